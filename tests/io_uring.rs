//! Requests that come by io_uring, where the kernel offers that: asked for and refused, everything
//! that a request can carry, many that wait at once, removed files whose space is free at once, and
//! a daemon that is killed.
//!
//! All other tests of mounts go the same way while `/sys/module/fuse/parameters/enable_uring` is on.

use backstitch_tests::command::{backstitch, run, run_within, tool};
use backstitch_tests::image::Image;
use backstitch_tests::io_uring::Switch;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn options(io_uring: &str) -> Options {
    Options::with(&format!("io_uring={io_uring}"))
}

/// How a mount says that its requests come.
fn kind(dir: &Path) -> String {
    let mut stats = backstitch();
    stats.args(["stats", "--json"]).arg(dir);
    let counters = run(&mut stats).expect_success().json();
    let transport = &counters["transport"];
    let kind = transport["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "io_uring" {
        let count = |name: &str| transport[name].as_u64().unwrap_or(0);
        assert!(count("queues") >= 1 && count("requests") >= count("queues"));
        assert_eq!(count("buffers_bytes"), count("requests") << 20);
    }
    kind
}

#[test]
fn is_chosen_where_it_is_offered() {
    require!("backstitch", "fuse", "root", "io_uring", "mke2fs");
    let scratch = Scratch::new("io_uring_choice");
    let image = Image::mke2fs(&scratch, "disk.img", "8M", &[]);
    let dir = scratch.dir("mnt");
    for (switch, option, expected) in [
        (true, "auto", Some("io_uring")),
        (true, "required", Some("io_uring")),
        (true, "off", Some("device")),
        (false, "auto", Some("device")),
        (false, "required", None),
    ] {
        let _switch = Switch::turned(switch);
        match Mounted::try_under_test(&image, &dir, &options(option)) {
            Ok(mounted) => {
                assert_eq!(Some(&*kind(mounted.path())), expected, "{switch} {option}");
                mounted.unmount();
            }
            Err(outcome) => {
                assert_eq!(expected, None, "{}", outcome.describe());
                assert!(
                    outcome.stderr.contains("enable_uring"),
                    "{}",
                    outcome.stderr
                );
            }
        }
    }
    image.expect_clean();
}

/// Where the system grants fewer rings than there are processors to serve, here for want of descriptors.
#[test]
fn does_without_where_it_cannot_be_had() {
    require!(
        "backstitch",
        "fuse",
        "root",
        "io_uring",
        "mke2fs",
        "prlimit"
    );
    let scratch = Scratch::new("io_uring_refused");
    let image = Image::mke2fs(&scratch, "disk.img", "8M", &[]);
    let dir = scratch.dir("mnt");
    let _switch = Switch::turned(true);
    let mount = |word: &str| {
        let mut limited = tool("prlimit");
        limited
            .arg("--nofile=40:40")
            .arg(backstitch().get_program());
        limited.args(["mount", "-o", &format!("io_uring={word}")]);
        run(limited.arg(image.path()).arg(&dir))
    };
    let refused = mount("required");
    assert_ne!(refused.code, Some(0), "{}", refused.describe());
    assert!(refused.stderr.contains("io_uring"), "{}", refused.stderr);
    drop(mount("auto").expect_success());
    fs::write(dir.join("file"), [7; 3000]).unwrap();
    assert_eq!(kind(&dir), "device");
    drop(run(backstitch().arg("umount").arg(&dir)).expect_success());
    image.expect_clean();
}

/// Everything that has no fixed size, up to its largest.
#[test]
fn carries_whatever_a_request_can() {
    require!("backstitch", "fuse", "root", "io_uring", "mke2fs");
    let scratch = Scratch::new("io_uring_sizes");
    let _switch = Switch::turned(true);
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &["-b", "4096"]);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &options("required"));
    let contents: Vec<u8> = (0..9_000_001_u32)
        .map(|n| (n.wrapping_mul(7919) >> 11) as u8)
        .collect();
    fs::write(dir.join("big"), &contents).unwrap();
    let long = "n".repeat(255);
    fs::create_dir(dir.join(&long)).unwrap();
    fs::rename(dir.join("big"), dir.join(&long).join(&long)).unwrap();
    let target = "t/".repeat(2000);
    std::os::unix::fs::symlink(&target, dir.join("link")).unwrap();
    let value = vec![b'v'; 4000];
    let flags = rustix::fs::XattrFlags::CREATE;
    rustix::fs::setxattr(dir.join("link").parent().unwrap(), "user.a", &value, flags).unwrap();
    for number in 0..3000 {
        File::create(dir.join(format!("file-{number}"))).unwrap();
    }
    mounted.unmount();
    image.expect_clean();
    let mounted = Mounted::under_test(&image, &dir, &options("required"));
    assert!(
        fs::read(dir.join(&long).join(&long)).unwrap() == contents,
        "contents differ"
    );
    assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new(&target));
    let mut found = vec![0; 8192];
    let len = rustix::fs::getxattr(&dir, "user.a", &mut found[..]).unwrap();
    assert!(found[..len] == value, "the value differs");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3000 + 3);
    mounted.unmount();
}

/// More callers than there are places for requests, of which each waits for the disk.
#[test]
fn more_wait_than_there_are_places() {
    const CALLERS: usize = 100;
    require!("backstitch", "fuse", "root", "io_uring", "mke2fs");
    let scratch = Scratch::new("io_uring_waiting");
    let _switch = Switch::turned(true);
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &[]);
    let dir = scratch.dir("mnt");
    let slow = Options::with("io_uring=required,flush_ms=5");
    let mounted = Mounted::under_test(&image, &dir, &slow);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let path = dir.join(format!("file-{caller}"));
            scope.spawn(move || {
                let mut file = File::create(path).unwrap();
                for round in 0..5_u8 {
                    file.write_all(&[round; 100]).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    for caller in 0..CALLERS {
        let found = fs::read(dir.join(format!("file-{caller}"))).unwrap();
        assert_eq!(found.len(), 500);
    }
    mounted.unmount();
    image.expect_clean();
}

/// The kernel gives references back by another way than requests come, and the space of a removed
/// file is free only then.
#[test]
fn the_space_of_a_removed_file_is_free_for_the_next() {
    require!("backstitch", "fuse", "root", "io_uring", "mke2fs");
    let scratch = Scratch::new("io_uring_space");
    let _switch = Switch::turned(true);
    let image = Image::mke2fs(&scratch, "disk.img", "8M", &["-m", "0"]);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &options("required"));
    let most = vec![1; 6 << 20];
    for round in 0..30 {
        let path = dir.join(format!("file-{round}"));
        fs::write(&path, &most).unwrap_or_else(|error| panic!("round {round}: {error}"));
        fs::remove_file(&path).unwrap();
    }
    mounted.unmount();
    image.expect_clean();
}

/// Its users get errors and do not wait for ever; what was acknowledged is there.
#[test]
fn a_daemon_is_killed() {
    require!("backstitch", "fuse", "root", "io_uring", "mke2fs");
    let scratch = Scratch::new("io_uring_kill");
    let _switch = Switch::turned(true);
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &[]);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &options("required"));
    let synced = b"acknowledged";
    let file = File::create(dir.join("synced")).unwrap();
    file.write_all_at(synced, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (dir, goes_on) = (&dir, &goes_on);
            scope.spawn(move || {
                let path = dir.join(format!("worker-{worker}"));
                while goes_on.load(Ordering::Relaxed) {
                    let done = File::create(&path).and_then(|mut file| file.write_all(&[7; 3000]));
                    if done.and_then(|()| fs::remove_file(&path)).is_err() {
                        return;
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(700));
        mounted.kill();
        goes_on.store(false, Ordering::Relaxed);
    });
    mounted.wait_for_daemon();
    drop(mounted);
    let mounted = Mounted::under_test(&image, &dir, &options("required"));
    assert_eq!(fs::read(dir.join("synced")).unwrap(), synced);
    let mut list = tool("ls");
    run_within(list.arg("-lR").arg(&dir), Duration::from_secs(20)).expect_success();
    mounted.unmount();
    image.expect_clean();
}
