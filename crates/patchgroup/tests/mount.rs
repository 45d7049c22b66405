//! Patchgroups of a real mount: who is in a group, what becomes of it when processes end, from Rust, C and Python.
//!
//! What is in a group is on the disk once the group was synced, and nothing else is: the mount writes nothing by itself meanwhile.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use backstitch_device::{BlockDevice, MemoryDevice, Result as DeviceResult, WriteRequest};
use backstitch_ext::Ext2;
use backstitch_ext::format::features::COMPAT_HAS_JOURNAL;
use backstitch_ext::mkfs::Mkfs;
use backstitch_fuse::{Engine, FrontOptions, Mounted, spawn};
use backstitch_vfs::{JournalMode, MountOptions, Ordering};
use patchgroup::{Group, protocol, supported};

/// A device in memory that counts flushes.
struct Disk {
    memory: MemoryDevice,
    flushes: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Disk {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn name(&self) -> String {
        self.memory.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> DeviceResult<()> {
        self.memory.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> DeviceResult<()> {
        self.memory.submit(batch)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.flushes
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.memory.flush()
    }
}

/// A file system in memory, mounted.
struct Bench {
    device: Arc<Disk>,
    engine: Arc<Engine>,
    mounted: Mounted,
    dir: tempfile::TempDir,
    ordering: Ordering,
    /// Children that another test starts would inherit this one's groups.
    _alone: MutexGuard<'static, ()>,
}

/// A directory that is on the disk from the start.
const APART: &str = "apart";

static ALONE: Mutex<()> = Mutex::new(());

impl Bench {
    /// `None` where FUSE mounts cannot be made.
    fn new() -> Option<Bench> {
        Bench::under(Ordering::Soft, &FrontOptions::default())
    }

    fn under(ordering: Ordering, front: &FrontOptions) -> Option<Bench> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            eprintln!("skipped: /dev/fuse: {error} (Debian package fuse3)");
            return None;
        }
        let device = Arc::new(Disk {
            memory: MemoryDevice::new(32 << 20),
            flushes: 0.into(),
        });
        let mut mkfs = Mkfs::new([1; 16], [2; 16], 1_700_000_000);
        if matches!(ordering, Ordering::Journal(_)) {
            mkfs.features.compat |= COMPAT_HAS_JOURNAL;
        }
        mkfs.write(&device.memory).expect("mkfs");
        let options = MountOptions {
            ordering,
            expire_seconds: 1e6,
            commit_seconds: 1e6,
            ..MountOptions::default()
        };
        let engine = Engine::mount(device.clone(), &Ext2, &options).expect("the engine mounts");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mounted = spawn(engine.clone(), dir.path(), front).expect("FUSE mounts");
        // Changes of one block of names may go to the disk together: what is to stay behind is made in another directory.
        fs::create_dir(dir.path().join(APART)).unwrap();
        engine.sync().unwrap();
        Some(Bench {
            device,
            engine,
            mounted,
            dir,
            ordering,
            _alone: alone,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn group(&self) -> Group {
        Group::create_in(self.dir.path()).unwrap()
    }

    /// Runs a shell in the mount; it inherits the descriptors of groups.
    fn shell(&self, script: &str) {
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.dir.path())
            .status();
        assert!(done.unwrap().success(), "{script}");
    }

    /// What a crash now would leave of a file; `None` where it has no name.
    fn after_a_crash(&self, name: &str) -> Option<Vec<u8>> {
        let device = Arc::new(MemoryDevice::from_bytes(self.device.memory.snapshot()));
        let options = MountOptions {
            ordering: self.ordering,
            ..MountOptions::default()
        };
        let engine = Engine::mount(device, &Ext2, &options).unwrap();
        let mut found = engine.attributes(engine.root()).unwrap();
        for name in name.split('/') {
            found = engine.lookup(found.inode, name.as_bytes()).ok()?;
        }
        let mut bytes = Vec::new();
        let size = found.size_bytes as usize;
        engine.read(found.inode, 0, size, &mut bytes).unwrap();
        Some(bytes)
    }

    fn flushes(&self) -> u64 {
        self.device
            .flushes
            .load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Waits until no group is left, and takes the mount off.
    fn end(self) {
        let since = Instant::now();
        loop {
            let stats = self.engine.stats().patchgroups;
            if (stats.open, stats.engaged) == (0, 0) {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "left: {stats:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let unmounter = self.mounted.unmounter();
        unmounter
            .unmount_within(Duration::from_secs(10))
            .expect("it comes off");
        self.mounted.wait().expect("everything is written");
    }
}

#[test]
fn what_is_done_under_a_group_comes_after_what_was_done_before() {
    let Some(bench) = Bench::new() else { return };
    assert!(supported(bench.dir.path()));
    fs::write(bench.path("in"), vec![7; 9000]).unwrap();
    bench.engine.sync().unwrap();
    let (write, remove) = (bench.group(), bench.group());
    write.engage().unwrap();
    fs::write(bench.path("out"), vec![8; 9000]).unwrap();
    assert_eq!(remove.depend(&write).unwrap_err().raw_os_error(), Some(16));
    write.disengage().unwrap();
    remove.depend(&write).unwrap();
    assert_eq!(write.engage().unwrap_err().raw_os_error(), Some(22));
    assert_eq!(write.depend(&remove).unwrap_err().raw_os_error(), Some(22));
    remove.engage().unwrap();
    fs::remove_file(bench.path("in")).unwrap();
    remove.disengage().unwrap();
    fs::write(bench.path("apart/other"), "of no group").unwrap();
    assert!(bench.after_a_crash("in").is_some());
    assert!(!remove.is_durable().unwrap());
    remove.sync().unwrap();
    assert!(remove.is_durable().unwrap() && write.is_durable().unwrap());
    assert_eq!(bench.after_a_crash("in"), None);
    assert_eq!(bench.after_a_crash("out").unwrap(), [8; 9000]);
    assert_eq!(bench.after_a_crash("apart/other"), None);
    drop((write, remove));
    bench.end();
}

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
    // A child, its child over exec, and one whose parents are gone when it writes.
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
fn what_is_done_after_an_advance_comes_after_what_was_done_before() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.engage().unwrap();
    fs::write(bench.path("unordered"), "1").unwrap();
    fs::write(bench.path("apart/unordered"), "2").unwrap();
    let sync = |name| File::open(bench.path(name)).unwrap().sync_all().unwrap();
    sync("apart/unordered");
    assert_eq!(bench.after_a_crash("unordered"), None);
    fs::write(bench.path("first"), "1").unwrap();
    group.advance().unwrap();
    fs::write(bench.path("apart/second"), "2").unwrap();
    group.disengage().unwrap();
    // Not engaged it advances as well.
    group.advance().unwrap();
    sync("apart/second");
    assert_eq!(bench.after_a_crash("first").unwrap(), b"1");
    drop(group);
    bench.end();
}

#[test]
fn groups_keep_their_order_under_every_journal() {
    for mode in [
        JournalMode::Writeback,
        JournalMode::Ordered,
        JournalMode::Full,
    ] {
        let front = FrontOptions::default();
        let Some(bench) = Bench::under(Ordering::Journal(mode), &front) else {
            return;
        };
        fs::write(bench.path("in"), vec![7; 9000]).unwrap();
        fs::write(bench.path("old"), vec![1; 5000]).unwrap();
        bench.engine.sync().unwrap();
        let (write, remove) = (bench.group(), bench.group());
        write.engage().unwrap();
        fs::write(bench.path("out"), vec![8; 9000]).unwrap();
        // In place: contents that go past a metadata journal but for the group.
        let old = File::options().write(true).open(bench.path("old"));
        old.unwrap().write_all(&[2; 5000]).unwrap();
        write.disengage().unwrap();
        remove.depend(&write).unwrap();
        remove.engage().unwrap();
        fs::remove_file(bench.path("in")).unwrap();
        remove.disengage().unwrap();
        assert!(bench.after_a_crash("in").is_some(), "{mode:?}");
        remove.sync().unwrap();
        assert!(remove.is_durable().unwrap() && write.is_durable().unwrap());
        assert_eq!(bench.after_a_crash("in"), None, "{mode:?}");
        assert_eq!(bench.after_a_crash("out").unwrap(), [8; 9000], "{mode:?}");
        assert_eq!(bench.after_a_crash("old").unwrap(), [2; 5000], "{mode:?}");
        drop((write, remove));
        bench.end();
    }
}

#[test]
fn a_container_s_processes_are_in_the_group_and_so_is_a_vfork_s_child() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.engage().unwrap();
    // Started by vfork, as the library does it where it can.
    let vfork = "import subprocess; subprocess.run(['sh', '-c', 'echo v > vforked'], close_fds=False, check=True)";
    let in_python = format!("python3 -c \"{vfork}\"");
    bench.shell(&in_python);
    // Its processes have numbers of their own; the mount's process sees others for them.
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

/// A user passes its group to root, who has the descriptor from then on and knows nothing of it.
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
    let Some(bench) = Bench::under(Ordering::Soft, &front) else {
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
    // The child has the group alone; then nobody has it.
    drop(group);
    assert_eq!(bench.engine.stats().patchgroups.engaged, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // Many who forget it.
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
    // Somebody else's socket for one's own: its holders would be in a group that they know nothing of.
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
fn poll_tells_when_a_group_is_on_the_disk() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.engage().unwrap();
    fs::write(bench.path("a"), "a").unwrap();
    group.disengage().unwrap();
    let told = group.notify().unwrap();
    let is_ready = |seconds| {
        let mut fds = [PollFd::new(&told, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: seconds,
            tv_nsec: 50_000_000,
        };
        poll(&mut fds, Some(&patience)).unwrap() == 1
    };
    assert!(!is_ready(0));
    bench.engine.sync().unwrap();
    assert!(is_ready(20));
    group.wait().unwrap();
    drop((told, group));
    bench.end();
}

#[test]
fn under_order_an_fsync_waits_for_nothing_and_keeps_the_order() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.order(None).unwrap();
    group.engage().unwrap();
    let before = bench.flushes();
    bench.shell(
        "for i in 1 2 3 4 5; do dd if=/dev/zero of=f$i bs=3000 count=1 conv=fsync 2>/dev/null; done; \
         echo new > tmp; mv tmp f1; dd if=/dev/zero of=f6 bs=10 count=1 conv=fsync 2>/dev/null; echo end > last",
    );
    assert_eq!(bench.flushes(), before, "an fsync waited");
    group.disengage().unwrap();
    // The last thing asked for brings all that came before it.
    let last = fs::metadata(bench.path("last")).map(|_| ()).and_then(|()| {
        let file = File::open(bench.path("last"))?;
        file.sync_all()
    });
    last.unwrap();
    assert_eq!(bench.after_a_crash("f1").unwrap(), b"new\n");
    for file in ["f2", "f5"] {
        assert_eq!(bench.after_a_crash(file).unwrap().len(), 3000, "{file}");
    }
    drop(group);
    bench.end();
}

#[test]
fn elsewhere_the_same_calls_keep_the_order_by_waiting() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!supported(dir.path()));
    let (one, other) = (
        Group::create_in(dir.path()).unwrap(),
        Group::create_in(dir.path()).unwrap(),
    );
    assert!(!one.is_supported());
    one.engage().unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    one.disengage().unwrap();
    other.depend(&one).unwrap();
    other.sync().unwrap();
    assert!(!other.is_durable().unwrap());
    assert!(other.notify().is_ok());
    assert_eq!(other.linear().unwrap_err().raw_os_error(), Some(95));
}

/// What is written under the first of two groups is on the disk once the second depends on it: there is nobody who would keep the order.
const BY_WAITING: &str = "
import patchgroup
assert not patchgroup.supported('.')
first, second = patchgroup.Group('.'), patchgroup.Group('.')
assert not first.supported
with first:
    open('apart/first', 'w').write('first')
second.depend(first)
with second:
    open('apart/second', 'w').close()
";

fn python_by_waiting(bench: &Bench, command: &[&str]) {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let done = Command::new(command[0])
        .args(&command[1..])
        .args(["-c", BY_WAITING])
        .env("PYTHONPATH", module)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(bench.dir.path())
        .status();
    assert!(done.unwrap().success());
    assert_eq!(bench.after_a_crash("apart/first").unwrap(), b"first");
}

/// The same from this process, by the library.
fn library_by_waiting(bench: &Bench) {
    let (first, second) = (bench.group(), bench.group());
    first.engage().unwrap();
    fs::write(bench.path("apart/third"), b"third").unwrap();
    first.disengage().unwrap();
    second.depend(&first).unwrap();
    assert_eq!(bench.after_a_crash("apart/third").unwrap(), b"third");
}

#[test]
fn where_the_kernel_gathers_writes_order_is_kept_by_waiting() {
    let front = FrontOptions {
        writeback_cache: true,
        ..FrontOptions::default()
    };
    let Some(bench) = Bench::under(Ordering::Soft, &front) else {
        return;
    };
    assert!(!supported(bench.dir.path()));
    library_by_waiting(&bench);
    python_by_waiting(&bench, &["python3"]);
    bench.end();
}

#[test]
fn in_another_network_s_container_order_is_kept_by_waiting() {
    let Some(bench) = Bench::new() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes network namespaces");
        return bench.end();
    }
    python_by_waiting(&bench, &["unshare", "--net", "python3"]);
    bench.end();
}

/// Where cargo puts the libraries that it builds.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

#[test]
fn a_c_program_uses_groups_with_the_static_library_and_the_shared_one() {
    c_program_with("libpatchgroup.a");
    c_program_with("libpatchgroup.so");
}

fn c_program_with(library: &str) {
    let Some(bench) = Bench::new() else { return };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("groups");
    let library = libraries().join(library);
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/groups.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", libraries().display()))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .status();
    match built {
        Ok(status) => assert!(status.success(), "cc with {}", library.display()),
        Err(error) => {
            eprintln!("skipped: cc: {error} (Debian package gcc)");
            return bench.end();
        }
    }
    let done = Command::new(&program)
        .current_dir(bench.dir.path())
        .status();
    assert!(done.unwrap().success());
    // It wrote "new", after it "flag", and synced that; what it did last it left alone.
    assert_eq!(bench.after_a_crash("new").unwrap(), b"contents");
    assert!(bench.after_a_crash("flag").is_some());
    assert_eq!(bench.after_a_crash("apart/last"), None);
    bench.end();
}

#[test]
fn a_python_program_uses_groups_and_maps_a_file() {
    let Some(bench) = Bench::new() else { return };
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let script = "
import mmap, os, patchgroup
with open('map', 'wb') as f:
    f.write(bytes(8192))
first, second = patchgroup.Group('.'), patchgroup.Group('.')
assert first.supported and patchgroup.supported('.')
with first:
    fd = os.open('map', os.O_RDWR)
    with mmap.mmap(fd, 8192) as m:
        m[0:5] = b'first'
    os.close(fd)
second.depend(first)
with second:
    open('flag', 'w').close()
try:
    first.engage()
    raise SystemExit('a sealed group was engaged')
except OSError as error:
    assert error.errno == 22
second.sync()
assert first.durable and second.durable
";
    let done = Command::new("python3")
        .args(["-c", script])
        .env("PYTHONPATH", module)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(bench.dir.path())
        .status();
    match done {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            eprintln!("skipped: python3: {error}");
            return bench.end();
        }
    }
    assert_eq!(&bench.after_a_crash("map").unwrap()[..5], b"first");
    assert!(bench.after_a_crash("flag").is_some());
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
