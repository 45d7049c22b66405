//! Mounts through the binary: coming up, serving, going away, and what happens when something is
//! wrong.

use crate::support::{Bench, can_mount, is_root, listing, tool};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// An image that is mounted, and unmounted at the end whatever happens.
struct Mount {
    bench: Bench,
    report: serde_json::Value,
}

impl Mount {
    /// Makes and mounts an image; `None` where that is not possible here.
    fn new(mkfs: &str, options: &str) -> Option<Mount> {
        if !can_mount() {
            return None;
        }
        let bench = Bench::new();
        bench.shell("mkdir mnt");
        bench.image("a.img", mkfs);
        let mut mount = Mount {
            bench,
            report: serde_json::Value::Null,
        };
        mount.up(options);
        Some(mount)
    }

    #[track_caller]
    fn up(&mut self, options: &str) {
        self.report = self
            .bench
            .line(&format!("mount --json {options} a.img mnt"))
            .good()
            .json();
    }

    #[track_caller]
    fn down(&self) {
        self.bench.line("umount mnt").good();
        self.bench.check("a.img");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.path("mnt").join(name)
    }

    fn pid(&self) -> String {
        self.report["pid"].to_string()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It is unmounted already unless the test failed.
        let _ = self.bench.line("umount --lazy mnt");
    }
}

/// Waits until `done`, and fails the test if it does not come.
#[track_caller]
fn wait_until(done: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(20), done);
}

fn wait_within(limit: Duration, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < limit, "it did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_mount_answers_and_goes_away_clean() {
    let Some(mut mount) = Mount::new("-b 1024", "") else {
        return;
    };
    let report = &mount.report;
    assert_eq!(
        report["image"],
        mount.bench.path("a.img").display().to_string()
    );
    assert_eq!(
        (&report["layout"], &report["ordering"]),
        (&"ext2".into(), &"soft".into())
    );
    assert_eq!(report["recovery"]["needed"], false);
    mount.bench.shell(
        "mkdir src; cd src; mkdir -p d/e; echo hello > a; ln a d/b; ln -s ../a d/link; mkfifo fifo
        head -c 2000000 /dev/urandom > large; chmod 2750 d; touch -d '1999-01-02 03:04:05.5' d/e a",
    );
    mount.bench.shell("cp -a src mnt/src");
    assert_eq!(
        listing(&mount.bench.path("src")),
        listing(&mount.path("src"))
    );
    let stats = mount.bench.line("stats --json mnt").good().json();
    assert_eq!(stats["pid"], mount.report["pid"]);
    assert!(stats["patches"]["created"].as_u64() > Some(0) && stats["ops"].as_u64() > Some(0));
    mount.down();
    mount.up("-o noatime,cache=32M,expire=1");
    assert_eq!(
        listing(&mount.bench.path("src")),
        listing(&mount.path("src"))
    );
    mount.bench.shell("rm -r mnt/src");
    mount.down();
}

#[test]
fn a_file_without_names_lives_until_it_is_closed() {
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    let free = |mount: &Mount| rustix::fs::statvfs(mount.path("")).unwrap().f_bfree;
    let before = free(&mount);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.path("x"))
        .unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    std::fs::remove_file(mount.path("x")).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(file.metadata().unwrap().len(), 100_004);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 99_999).unwrap();
    assert_eq!(byte, [7]);
    let names = std::fs::read_dir(mount.path("")).unwrap().count();
    assert_eq!(names, 1, "nothing but lost+found");
    drop(file);
    wait_until(|| free(&mount) == before);
    mount.down();
}

#[test]
fn a_file_that_is_made_without_a_name_gets_one_or_goes() {
    for kind in ["-t ext2", "-t ext3"] {
        let Some(mount) = Mount::new(kind, "") else {
            return;
        };
        let names = |mount: &Mount| std::fs::read_dir(mount.path("")).unwrap().count();
        let free = |mount: &Mount| rustix::fs::statvfs(mount.path("")).unwrap().f_ffree;
        let before = (names(&mount), free(&mount));
        let nameless = || {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            let file = rustix::fs::open(mount.path(""), flags, Mode::from_bits_truncate(0o640));
            let mut file = File::from(file.unwrap());
            file.write_all(&[7; 5000]).unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            file
        };
        let (kept, lost) = (nameless(), nameless());
        assert_eq!(names(&mount), before.0, "{kind}");
        let open = format!("/proc/self/fd/{}", kept.as_raw_fd());
        rustix::fs::linkat(CWD, open, CWD, mount.path("f"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(kept.metadata().unwrap().nlink(), 1, "{kind}");
        drop((kept, lost));
        assert_eq!(std::fs::read(mount.path("f")).unwrap(), [7; 5000], "{kind}");
        wait_until(|| free(&mount) == before.1 - 1);
        mount.down();
    }
}

#[test]
fn renames_with_flags() {
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    let (a, b) = (mount.path("a"), mount.path("b"));
    std::fs::write(&a, "a").unwrap();
    std::fs::write(&b, "b").unwrap();
    let rename = |flags| rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    match rename(RenameFlags::EXCHANGE) {
        Ok(()) => assert_eq!(std::fs::read_to_string(&a).unwrap(), "b"),
        Err(error) => assert_eq!(error, Errno::INVAL),
    }
    assert_eq!(rename(RenameFlags::WHITEOUT), Err(Errno::INVAL));
    std::fs::rename(&a, &b).unwrap();
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::NOENT));
    assert!(!a.exists() && b.exists());
    mount.down();
}

#[test]
fn holes_are_punched_found_and_kept() {
    let Some(mount) = Mount::new("-b 1024", "") else {
        return;
    };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.path("x"))
        .unwrap();
    file.write_all_at(&[9; 200_000], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 10_240, 102_400).unwrap();
    let mut bytes = vec![1; 200_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(
        bytes[..10_240]
            .iter()
            .chain(&bytes[112_640..])
            .all(|byte| *byte == 9)
    );
    assert!(bytes[10_240..112_640].iter().all(|byte| *byte == 0));
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(10_240));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(10_240)), Ok(112_640));
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Data(200_000)),
        Err(Errno::NXIO)
    );
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 300_000, 50_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 200_000);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 250_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 250_000);
    let mut all = Vec::new();
    File::open(mount.path("x"))
        .unwrap()
        .read_to_end(&mut all)
        .unwrap();
    assert!(all.len() == 250_000 && all.iter().all(|byte| *byte == 0));
    let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 1024);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    drop(file);
    mount.down();
}

#[test]
fn ranges_are_copied_and_seen() {
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    std::fs::write(mount.path("from"), vec![5; 300_000]).unwrap();
    std::fs::write(mount.path("to"), vec![6; 100_000]).unwrap();
    let from = File::open(mount.path("from")).unwrap();
    let to = File::options()
        .read(true)
        .write(true)
        .open(mount.path("to"))
        .unwrap();
    let mut at = 50_000;
    let copied = rustix::fs::copy_file_range(&from, None, &to, Some(&mut at), 200_000).unwrap();
    assert_eq!((copied, to.metadata().unwrap().len()), (200_000, 250_000));
    let bytes = std::fs::read(mount.path("to")).unwrap();
    assert!(bytes[..50_000].iter().all(|byte| *byte == 6));
    assert!(bytes[50_000..].iter().all(|byte| *byte == 5));
    drop((from, to));
    mount.down();
}

#[test]
fn set_user_id_is_cleared_by_strangers_writes() {
    if !is_root("changing users") || tool("setpriv", "util-linux").is_none() {
        return;
    }
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    mount.bench.shell("chmod 755 .; chmod 777 mnt");
    let mode = || mount.path("x").metadata().unwrap().permissions().mode() & 0o7777;
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups sh -c";
    for (script, expected) in [
        ("echo x >> mnt/x", 0o777),
        (": > mnt/x", 0o777),
        ("truncate -s 5 mnt/x", 0o777),
        ("cat mnt/x > /dev/null; touch mnt/x", 0o6777),
    ] {
        mount
            .bench
            .shell("rm -f mnt/x; echo y > mnt/x; chmod 6777 mnt/x");
        mount.bench.shell(&format!("{user} '{script}'"));
        assert_eq!(mode(), expected, "{script}");
    }
    mount.bench.shell("chmod 6777 mnt/x; echo z >> mnt/x");
    assert_eq!(mode(), 0o6777, "root keeps them");
    mount.bench.shell("chown 0:0 mnt/x");
    assert_eq!(mode(), 0o777, "but not over a change of owner");
    mount.down();
}

#[test]
fn default_acls_are_inherited_instead_of_the_umask() {
    let Some(_) = tool("setfacl", "acl") else {
        return;
    };
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    let shown = mount.bench.shell(
        "umask 077; mkdir mnt/d; setfacl -d -m u:5:rw,g::r,o::- mnt/d; echo x > mnt/d/f; mkdir mnt/d/sub
        echo y > mnt/plain; getfacl -nc mnt/d/f | grep user:5; getfacl -ndc mnt/d/sub | grep user:5
        stat -c %a mnt/d/f mnt/plain",
    );
    let lines: Vec<String> = shown.text().lines().map(|l| l.replace('\t', " ")).collect();
    assert_eq!(lines, ["user:5:rw-", "user:5:rw-", "660", "600"]);
    mount.down();
}

#[test]
fn a_read_only_mount_changes_no_byte() {
    let Some(mut mount) = Mount::new("", "") else {
        return;
    };
    std::fs::write(mount.path("x"), "text").unwrap();
    mount.down();
    let before = std::fs::read(mount.bench.path("a.img")).unwrap();
    mount.up("-o ro");
    assert_eq!(mount.report["read_only"], true);
    assert_eq!(std::fs::read_to_string(mount.path("x")).unwrap(), "text");
    let refused = std::fs::write(mount.path("x"), "other").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    mount.down();
    assert!(
        std::fs::read(mount.bench.path("a.img")).unwrap() == before,
        "the image was changed"
    );
}

#[test]
fn an_image_is_mounted_once() {
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    mount.bench.shell("mkdir other");
    let refused = mount.bench.line("mount a.img other").refused(1);
    assert!(refused.stderr.contains(&mount.pid()), "{}", refused.stderr);
    mount.bench.line("ls a.img:/").refused(1);
    mount.bench.line("mkfs -s 32M a.img").refused(1);
    mount.down();
}

#[test]
fn files_in_use_keep_a_mount_but_not_from_a_signal() {
    let Some(mount) = Mount::new("", "") else {
        return;
    };
    let mut file = File::create(mount.path("x")).unwrap();
    file.write_all(b"kept").unwrap();
    let refused = mount.bench.line("umount mnt").refused(1);
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    mount.bench.shell(&format!("kill -TERM {}", mount.pid()));
    wait_until(|| !mount.path("x").exists());
    file.write_all(b" too").unwrap();
    drop(file);
    wait_until(|| mount.bench.line("cat a.img:/x").text() == "kept too");
    mount.bench.check("a.img");
}

#[test]
fn a_dead_daemon_is_cleared_away() {
    let Some(mut mount) = Mount::new("", "-o expire=0.2") else {
        return;
    };
    std::fs::write(mount.path("x"), "text").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    mount.bench.shell(&format!("kill -KILL {}", mount.pid()));
    let cleared = mount.bench.line("umount mnt").good();
    assert!(cleared.stderr.contains("died"), "{}", cleared.stderr);
    assert_eq!(
        mount.bench.line("info --json a.img").good().json()["state"],
        "dirty"
    );
    mount.up("");
    assert_eq!(mount.report["recovery"]["needed"], true);
    assert_eq!(std::fs::read_to_string(mount.path("x")).unwrap(), "text");
    mount.down();
}

#[test]
fn memory_that_a_burst_of_changes_took_goes_back_to_the_host() {
    const FILES: u32 = 5_000;
    let Some(mount) = Mount::new("-s 256M", "").filter(|_| cfg!(target_env = "gnu")) else {
        return;
    };
    let resident_bytes = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", mount.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.unwrap().parse::<u64>().unwrap() << 10
    };
    for number in 0..FILES {
        std::fs::write(mount.path(&number.to_string()), [1; 24 << 10]).unwrap();
    }
    let most = resident_bytes();
    assert!(most > 100 << 20, "{most} bytes");
    for number in 0..FILES {
        std::fs::remove_file(mount.path(&number.to_string())).unwrap();
    }
    // Removals are written after 30 seconds, and beside other tests the writer has its turn late.
    let limit = Duration::from_secs(180);
    // What goes bit by bit is given back from 64 MiB on; less may stay with the daemon.
    wait_within(limit, || resident_bytes() + (56 << 20) < most);
    mount.down();
}

#[test]
fn mount_8_calls_it_through_a_link() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "");
    let binary = env!("CARGO_BIN_EXE_backstitch");
    bench.shell(&format!(
        "mkdir mnt; ln -s {binary} mount.backstitch
        ./mount.backstitch a.img mnt -n -v -o rw,noatime,nofail,_netdev,x-systemd.automount
        grep -q \"mnt fuse.backstitch rw,[a-z,]*noatime\" /proc/mounts; echo x > mnt/x
        {binary} umount mnt"
    ));
    assert_eq!(bench.line("cat a.img:/x").good().text(), "x\n");
    bench.check("a.img");
}

#[test]
fn the_foreground_ends_with_the_mount() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("mkdir mnt");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_backstitch"));
    let mut child = command
        .args(["mount", "-f", "a.img", "mnt"])
        .current_dir(bench.path(""))
        .spawn()
        .unwrap();
    wait_until(|| bench.path("mnt/lost+found").exists());
    bench.shell(&format!("echo x > mnt/x; kill -INT {}", child.id()));
    assert!(child.wait().unwrap().success());
    assert_eq!(bench.line("cat a.img:/x").good().text(), "x\n");
    bench.check("a.img");
}
