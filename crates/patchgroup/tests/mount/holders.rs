//! Which processes are in a group: children, threads, orphans, containers, other users; and that
//! nothing is left when they end.

use super::*;

#[test]
fn children_threads_and_orphans_are_in_the_group_and_nobody_else_is() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.set_close_on_exec(true).unwrap();
    let mut outsider = Command::new("sh")
        .args(["-ec", "read go; echo outside > apart/outsider"])
        .current_dir(bench.dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    group.set_close_on_exec(false).unwrap();
    group.label("everybody who has it").unwrap();
    group.engage().unwrap();
    // A child, its child through exec, and an orphan, whose parents are gone when it writes.
    bench.shell(
        "echo child > child; sh -c 'exec dd if=/dev/zero of=over bs=5000 count=1' 2>/dev/null",
    );
    bench.shell("( ( sleep 0.3; echo late > orphan; echo > done ) & ) ");
    let by_thread = bench.path("thread");
    std::thread::spawn(move || fs::write(by_thread, "thread").unwrap())
        .join()
        .unwrap();
    let mut go = outsider.stdin.take().unwrap();
    go.write_all(b"go\n").unwrap();
    assert!(outsider.wait().unwrap().success());
    let since = Instant::now();
    while !bench.path("done").exists() {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    group.disengage().unwrap();
    fs::write(bench.path("apart/later"), "later").unwrap();
    group.sync().unwrap();
    for inside in ["child", "over", "orphan", "thread"] {
        assert!(bench.after_a_crash(inside).is_some(), "{inside}");
    }
    for outside in ["apart/outsider", "apart/later"] {
        assert_eq!(bench.after_a_crash(outside), None, "{outside}");
    }
    drop(group);
    bench.end();
}

#[test]
fn a_container_s_processes_are_in_the_group_and_so_is_a_vfork_s_child() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.engage().unwrap();
    // A child started by vfork, which the library uses if it can.
    let vfork = "import subprocess; subprocess.run(['sh', '-c', 'echo v > vforked'], close_fds=False, check=True)";
    let in_python = format!("python3 -c \"{vfork}\"");
    bench.shell(&in_python);
    // In a container processes have other numbers than those that the mount's process sees.
    let contained = rustix::process::geteuid().is_root();
    if contained {
        bench.shell(
            "unshare --pid --fork --mount-proc sh -c 'echo c > contained; ( echo g > grandchild )'",
        );
    }
    group.disengage().unwrap();
    group.sync().unwrap();
    assert!(bench.after_a_crash("vforked").is_some());
    for name in ["contained", "grandchild"] {
        assert_eq!(bench.after_a_crash(name).is_some(), contained, "{name}");
    }
    drop(group);
    bench.end();
}

/// A user passes its group to root, which has the descriptor from then on without knowing of it.
const PASSED_ON: &str = "
import os, patchgroup, socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
child = os.fork()
if child == 0:
    os.setgid(65534); os.setuid(65534)
    group = patchgroup.Group('.')
    group.engage()
    open('theirs/file', 'w').close()
    socket.send_fds(theirs, [b'x'], [group.fileno()])
    ours.close()
    theirs.recv(1)
    group.disengage()
    group.sync()
    os._exit(0)
theirs.close()
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
assert len(fds) == 1
open('apart/roots', 'w').close()
ours.send(b'x')
status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status))
";

#[test]
fn a_user_s_group_is_nobody_else_s_even_where_they_have_its_descriptor() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: root is wanted, to be two users");
        return;
    }
    let front = FrontOptions {
        allow_other: true,
        check_permissions: true,
        ..FrontOptions::default()
    };
    let Some(bench) = Bench::under(Ordering::SOFT, &front) else {
        return;
    };
    fs::create_dir(bench.path("theirs")).unwrap();
    bench.shell("chmod 777 theirs . apart");
    bench.engine.sync().unwrap();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let done = Command::new("python3")
        .args(["-c", PASSED_ON])
        .env("PYTHONPATH", module)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(bench.dir.path())
        .status();
    match done {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => {
            eprintln!("skipped: python3: {error}");
            return bench.end();
        }
    }
    assert!(bench.after_a_crash("theirs/file").is_some());
    assert_eq!(bench.after_a_crash("apart/roots"), None);
    bench.end();
}

#[test]
fn a_process_that_is_killed_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.engage().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "echo a > a; while :; do echo more >> a; done"])
        .current_dir(bench.dir.path())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while !bench.path("a").exists() {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    // The child is the only holder, then there is none.
    drop(group);
    assert_eq!(bench.engine.stats().patchgroups.engaged, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // Many children that end without closing it.
    let group = bench.group();
    group.engage().unwrap();
    bench.shell("i=0; while [ $i -lt 1000 ]; do ( echo $i > f$i ) & i=$((i+1)); done; wait");
    drop(group);
    bench.end();
}

#[test]
fn a_descriptor_that_is_no_group_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    let address = {
        let mut name = [0_u8; 108];
        let len =
            rustix::fs::getxattr(bench.dir.path(), protocol::SOCKET_XATTR, &mut name[..]).unwrap();
        rustix::net::SocketAddrUnix::new_abstract_name(&name[..len]).unwrap()
    };
    let ask = |op, descriptors: &[std::os::fd::BorrowedFd<'_>]| {
        use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv};
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        connect(&socket, &address).unwrap();
        protocol::send_request(&socket, op, &[], descriptors).unwrap();
        let mut bytes = [0; 16];
        let (_, len) = recv(&socket, &mut bytes[..], RecvFlags::empty()).unwrap();
        let errno = protocol::decode_answer(&bytes[..len]).err();
        errno.and_then(|error| error.raw_os_error())
    };
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    // Attaching another socket than the connection's own: its holders would be in a group without
    // knowing of it.
    assert_eq!(ask(protocol::Op::Create, &[one.as_fd()]), Some(22));
    assert_eq!(ask(protocol::Op::Create, &[group.as_fd()]), Some(22));
    assert_eq!(ask(protocol::Op::Create, &[]), Some(22));
    assert_eq!(ask(protocol::Op::Engage, &[other.as_fd()]), Some(9));
    assert_eq!(ask(protocol::Op::Sync, &[null.as_fd()]), Some(9));
    assert_eq!(ask(protocol::Op::Depend, &[group.as_fd()]), Some(22));
    assert_eq!(
        ask(protocol::Op::Depend, &[group.as_fd(), group.as_fd()]),
        Some(22)
    );
    assert_eq!(ask(protocol::Op::Engage, &[group.as_fd()]), None);
    drop(group);
    bench.end();
}

#[test]
fn whoever_has_as_many_groups_as_there_may_be_can_still_use_them() {
    let Some(bench) = Bench::new() else { return };
    let mut groups = Vec::new();
    let refused = loop {
        match Group::create_in(bench.dir.path()) {
            Ok(group) => groups.push(group),
            Err(error) => break error,
        }
        groups.last().unwrap().set_close_on_exec(true).unwrap();
        assert!(groups.len() < 2000);
    };
    assert_eq!(refused.raw_os_error(), Some(24));
    for group in &groups {
        group.engage().unwrap();
    }
    fs::write(bench.path("a"), "a").unwrap();
    groups[0].sync().unwrap();
    assert!(bench.after_a_crash("a").is_some());
    drop(groups);
    bench.end();
}

#[test]
fn a_group_s_number_is_its_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let group = Group::create_in(dir.path()).unwrap();
    let number = group.as_fd().as_raw_fd();
    let owned: std::os::fd::OwnedFd = group.into();
    assert_eq!(owned.as_raw_fd(), number);
}
