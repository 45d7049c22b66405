//! Patchgroups of a real mount: which processes are in a group, and what happens when they end;
//! from Rust, C and Python.
//!
//! Changes in a group are on the disk once the group was synced, and nothing else is: the mount
//! writes nothing by itself meanwhile.

mod elsewhere;
mod holders;
mod languages;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use backstitch_device::{BlockDevice, MemoryDevice, Result as DeviceResult, WriteRequest};
use backstitch_formats::usual;
use backstitch_fuse::{Engine, FrontOptions, Mounted, spawn};
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::{MountOptions, Ordering};
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
    /// Only one test at a time: children of another test would inherit this one's groups.
    _alone: MutexGuard<'static, ()>,
}

/// A directory that is on the disk from the start.
const APART: &str = "apart";

static ALONE: Mutex<()> = Mutex::new(());

impl Bench {
    /// `None` where no FUSE mount can be made.
    fn new() -> Option<Bench> {
        Bench::under(Ordering::SOFT, &FrontOptions::default())
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
        if ordering.has_log() {
            mkfs.features.push("has_journal".to_owned());
        }
        usual().make(&mkfs, &device.memory).expect("mkfs");
        let options = MountOptions {
            ordering,
            expire_seconds: 1e6,
            commit_seconds: 1e6,
            ..MountOptions::default()
        };
        let engine =
            Engine::mount(device.clone(), usual().layout(), &options).expect("the engine mounts");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mounted = spawn(engine.clone(), dir.path(), front).expect("FUSE mounts");
        // Changes of one directory block may go to the disk together. Names that must not get there
        // are therefore made in another directory.
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

    /// Runs a shell in the mount; it inherits the groups' descriptors.
    fn shell(&self, script: &str) {
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.dir.path())
            .status();
        assert!(done.unwrap().success(), "{script}");
    }

    /// The contents of a file after a crash at this moment; `None` where it has no name.
    fn after_a_crash(&self, name: &str) -> Option<Vec<u8>> {
        let device = Arc::new(MemoryDevice::from_bytes(self.device.memory.snapshot()));
        let options = MountOptions {
            ordering: self.ordering,
            ..MountOptions::default()
        };
        let engine = Engine::mount(device, usual().layout(), &options).unwrap();
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

    /// Waits until no group is left, and unmounts.
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
    // A group that is not engaged can advance as well.
    group.advance().unwrap();
    sync("apart/second");
    assert_eq!(bench.after_a_crash("first").unwrap(), b"1");
    drop(group);
    bench.end();
}

#[test]
fn groups_keep_their_order_under_every_journal() {
    for mode in [
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
    ] {
        let front = FrontOptions::default();
        let Some(bench) = Bench::under(mode, &front) else {
            return;
        };
        fs::write(bench.path("in"), vec![7; 9000]).unwrap();
        fs::write(bench.path("old"), vec![1; 5000]).unwrap();
        bench.engine.sync().unwrap();
        let (write, remove) = (bench.group(), bench.group());
        write.engage().unwrap();
        fs::write(bench.path("out"), vec![8; 9000]).unwrap();
        // Overwritten in place: without the group these contents would not go through the journal
        // (except under `full`).
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

/// Whether poll reports the descriptor as readable, within `seconds` and a little more.
fn is_readable(descriptor: &impl AsFd, seconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: seconds,
        tv_nsec: 50_000_000,
    };
    poll(&mut fds, Some(&patience)).unwrap();
    fds[0].revents().contains(PollFlags::IN)
}

#[test]
fn poll_tells_when_a_group_is_on_the_disk() {
    let Some(bench) = Bench::new() else { return };
    let group = bench.group();
    group.engage().unwrap();
    fs::write(bench.path("a"), "a").unwrap();
    group.disengage().unwrap();
    let told = group.notify().unwrap();
    assert!(!is_readable(&told, 0));
    bench.engine.sync().unwrap();
    assert!(is_readable(&told, 20));
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
    // Syncing the last change brings everything before it to the disk.
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
