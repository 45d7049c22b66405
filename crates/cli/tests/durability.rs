//! What is on stable storage when a call on a mount returns: looked for in a copy of the image, as
//! a crash at that moment would leave it, and counted in flushes of the device. Nothing is written
//! by itself meanwhile.

use crate::support::{Bench, can_mount, tool};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

struct Mount(Bench);

impl Mount {
    fn new(options: &str) -> Option<Mount> {
        Mount::of("-b 1024", options)
    }

    /// Of an image that mke2fs makes with these options.
    fn of(made: &str, options: &str) -> Option<Mount> {
        if !can_mount() {
            return None;
        }
        let bench = Bench::new();
        bench.shell("mkdir mnt");
        bench.image("a.img", made);
        let mount = Mount(bench);
        mount
            .0
            .line(&format!("mount -o expire=100000{options} a.img mnt"))
            .good();
        // The root directory and what the mount itself wrote are not what is looked for.
        mount.0.line("sync mnt").good();
        Some(mount)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path("mnt").join(name)
    }

    fn stat(&self, path: &str) -> u64 {
        let stats = self.0.line("stats --json mnt").good().json();
        stats.pointer(path).and_then(|v| v.as_u64()).unwrap()
    }

    fn flushes(&self) -> u64 {
        self.stat("/flushes")
    }

    /// A file's contents after a crash now; `None` where it has no name.
    fn after_a_crash(&self, name: &str) -> Option<Vec<u8>> {
        self.0.shell("cp --sparse=always a.img crashed.img");
        let done = self.0.line(&format!("cat crashed.img:/{name}"));
        (done.code == 0).then_some(done.stdout)
    }

    fn end(self) {
        self.0.line("umount mnt").good();
        self.0.check("a.img");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It is unmounted already unless the test failed.
        let _ = self.0.line("umount --lazy mnt");
    }
}

#[test]
fn a_write_through_o_sync_or_o_dsync_is_there_when_it_returns() {
    let Some(mount) = Mount::new("") else { return };
    let flags = [
        ("sync", libc::O_SYNC),
        ("dsync", libc::O_DSYNC),
        ("direct", libc::O_DSYNC | libc::O_DIRECT),
        ("plain", 0),
    ];
    for (name, flags) in flags {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(flags)
            .open(mount.path(name))
            .unwrap();
        for round in 1..4_u8 {
            let before = mount.flushes();
            file.write_all(&[round; 4096]).unwrap();
            let flushed = mount.flushes() > before;
            let found = mount.after_a_crash(name);
            if flags == 0 {
                assert!(
                    !flushed && found.is_none(),
                    "{name}: what this looks at proves nothing"
                );
                continue;
            }
            assert!(flushed, "{name}: no flush");
            let found = found.unwrap_or_default();
            assert_eq!(found.len(), usize::from(round) * 4096, "{name}");
            assert!(
                found[found.len() - 4096..].iter().all(|b| *b == round),
                "{name}"
            );
        }
    }
    mount.end();
}

#[test]
fn fsync_of_a_directory_brings_its_names() {
    let Some(mount) = Mount::new("") else { return };
    std::fs::create_dir(mount.path("d")).unwrap();
    for name in ["a", "b"] {
        File::create(mount.path("d").join(name)).unwrap();
    }
    assert_eq!(mount.after_a_crash("d/a"), None);
    let before = mount.flushes();
    File::open(mount.path("d")).unwrap().sync_all().unwrap();
    assert!(mount.flushes() > before);
    assert_eq!(mount.after_a_crash("d/a"), Some(vec![]));
    assert_eq!(mount.after_a_crash("d/b"), Some(vec![]));
    mount.end();
}

#[test]
fn msync_of_a_mapping_brings_its_pages() {
    let Some(mount) = Mount::new("") else { return };
    let Some(python) = tool("python3", "python3") else {
        return;
    };
    std::fs::write(mount.path("m"), vec![b'.'; 8192]).unwrap();
    mount.0.line("sync mnt").good();
    let before = mount.flushes();
    let script = "import mmap, sys
f = open(sys.argv[1], 'r+b')
m = mmap.mmap(f.fileno(), 8192)
m[5000:5003] = b'new'
m.flush()";
    let mapped = Command::new(python)
        .args(["-c", script])
        .arg(mount.path("m"))
        .status();
    assert!(mapped.unwrap().success());
    assert!(mount.flushes() > before);
    let found = mount.after_a_crash("m").unwrap();
    assert_eq!(&found[4999..5004], b".new.");
    mount.end();
}

#[test]
fn sync_brings_everything() {
    let Some(mount) = Mount::new("") else { return };
    for number in 0..50 {
        std::fs::write(mount.path(&format!("f{number}")), vec![number; 3000]).unwrap();
    }
    assert_eq!(mount.after_a_crash("f7"), None);
    // Whatever lies in the mount stands for it.
    mount.0.line("sync mnt/f3").good();
    assert_eq!(mount.stat("/patches/live"), 0);
    for number in [0, 7, 49] {
        let found = mount.after_a_crash(&format!("f{number}"));
        assert_eq!(found, Some(vec![number; 3000]));
    }
    mount.0.line("sync .").refused(1);
    mount.0.line("sync nowhere").refused(1);
    mount.end();
}

#[test]
fn a_mount_without_writes_has_nothing_to_sync() {
    let Some(mount) = Mount::new(",ro") else {
        return;
    };
    mount.0.line("sync mnt").good();
    mount.0.line("umount mnt").good();
}

#[test]
fn what_has_expired_is_written() {
    let Some(mount) = Mount::new(",expire=1") else {
        return;
    };
    is_written_by_and_by(&mount);
    mount.end();
}

/// A transaction ends by itself once it is as old as `commit=` says; what it holds is there without
/// having gone home.
#[test]
fn a_transaction_is_committed_when_it_is_old() {
    let Some(mount) = Mount::of("-t ext3 -b 1024", ",commit=1") else {
        return;
    };
    is_written_by_and_by(&mount);
    mount.end();
}

fn is_written_by_and_by(mount: &Mount) {
    std::fs::write(mount.path("x"), b"expired").unwrap();
    assert_eq!(mount.after_a_crash("x"), None);
    let started = std::time::Instant::now();
    while mount.after_a_crash("x").as_deref() != Some(b"expired") {
        let waited = started.elapsed();
        assert!(waited.as_secs() < 20, "it is not written");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(
        started.elapsed().as_millis() > 300,
        "it did not wait at all"
    );
}
