//! What the kernel keeps, and how it learns that something changed.

use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_fuse::{Engine, FrontOptions, Mounted, spawn, stats_of};
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs};
use backstitch_vfs::{MountOptions, SetAttributes};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A file system in memory, mounted.
struct Bench {
    device: Arc<MemoryDevice>,
    engine: Arc<Engine>,
    mounted: Mounted,
    dir: TempDir,
}

impl Bench {
    /// `None` where FUSE mounts cannot be made.
    fn new() -> Option<Bench> {
        Bench::with(FrontOptions::default())
    }

    fn with(front: FrontOptions) -> Option<Bench> {
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        if let Err(error) = fuse {
            eprintln!("skipped: /dev/fuse: {error} (Debian package fuse3)");
            return None;
        }
        let device = Arc::new(MemoryDevice::new(32 << 20));
        let mkfs = Mkfs::new([1; 16], [2; 16], 1_700_000_000);
        usual().make(&mkfs, &*device).expect("mkfs");
        let options = MountOptions::default();
        let engine =
            Engine::mount(device.clone(), usual().layout(), &options).expect("the engine mounts");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let front = FrontOptions {
            image: "memory".into(),
            ..front
        };
        let mounted = spawn(engine.clone(), dir.path(), &front).expect("FUSE mounts");
        Some(Bench {
            device,
            engine,
            mounted,
            dir,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Takes it off although files are in use, and brings everything to the disk.
    fn abandon(self) -> Arc<MemoryDevice> {
        self.mounted.unmounter().detach().expect("it is detached");
        self.mounted.ender().end();
        self.mounted.wait().expect("everything is written");
        self.device
    }

    /// Operations that the engine has seen.
    fn operations(&self) -> u64 {
        self.engine.stats().ops
    }

    fn end(self) {
        let unmounter = self.mounted.unmounter();
        unmounter
            .unmount_within(Duration::from_secs(10))
            .expect("it comes off");
        self.mounted.wait().expect("everything is written");
    }
}

#[test]
fn what_is_known_is_not_asked_again() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("file"), "text").unwrap();
    let look = || {
        assert_eq!(fs::read_to_string(bench.path("file")).unwrap(), "text");
        assert!(fs::metadata(bench.path("missing")).is_err());
        assert_eq!(fs::read_dir(bench.path("")).unwrap().count(), 2);
    };
    look();
    look();
    let before = bench.operations();
    for _ in 0..100 {
        assert!(fs::metadata(bench.path("missing")).is_err());
        assert!(fs::metadata(bench.path("file")).unwrap().is_file());
        drop(File::open(bench.path("file")).unwrap());
    }
    let asked = bench.operations() - before;
    assert!(asked <= 5, "{asked} requests for what is known");
    bench.end();
}

#[test]
fn with_a_writeback_cache_small_writes_are_gathered_until_fsync() {
    const WRITES: u64 = 2000;
    let Some(bench) = Bench::with(FrontOptions {
        writeback_cache: true,
        ..FrontOptions::default()
    }) else {
        return;
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(bench.path("file"))
        .unwrap();
    let before = bench.operations();
    for number in 0..WRITES {
        file.write_all(&number.to_le_bytes()).unwrap();
    }
    // Changing what is there, and reading it, before any of it was handed over.
    file.write_all_at(&7_u64.to_le_bytes(), 8 * 100).unwrap();
    let mut back = [0; 8];
    file.read_exact_at(&mut back, 8 * 100).unwrap();
    assert_eq!(back, 7_u64.to_le_bytes());
    file.sync_all().unwrap();
    let asked = bench.operations() - before;
    assert!(asked < WRITES / 10, "{asked} requests for {WRITES} writes");
    let inode = bench
        .engine
        .lookup(bench.engine.root(), b"file")
        .unwrap()
        .inode;
    let mut found = Vec::new();
    bench.engine.read(inode, 0, 1 << 20, &mut found).unwrap();
    bench.engine.forget(inode, 1);
    let mut expected: Vec<u8> = (0..WRITES).flat_map(u64::to_le_bytes).collect();
    expected[800..808].copy_from_slice(&7_u64.to_le_bytes());
    assert!(found == expected, "fsync returned before it had everything");
    drop(file);
    bench.end();
}

#[test]
fn without_xattrs_nobody_asks_for_one_before_a_write() {
    const FILES: u64 = 100;
    let Some(bench) = Bench::with(FrontOptions {
        xattrs: false,
        ..FrontOptions::default()
    }) else {
        return;
    };
    let text = rustix::fs::XattrFlags::empty();
    let refused = rustix::fs::setxattr(bench.dir.path(), "user.a", b"b", text);
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    let mut value = [0; 16];
    let unknown = rustix::fs::getxattr(bench.dir.path(), "user.a", &mut value);
    assert_eq!(unknown, Err(rustix::io::Errno::OPNOTSUPP));
    assert!(stats_of(bench.dir.path()).is_err());
    let before = bench.operations();
    for number in 0..FILES {
        fs::write(bench.path(&number.to_string()), "text").unwrap();
    }
    let asked = bench.operations() - before;
    // A look-up, the making, the write, and what the directory's permissions are.
    assert!(asked <= 4 * FILES, "{asked} requests for {FILES} files");
    backstitch_fuse::sync_of(bench.dir.path()).unwrap();
    assert!(bench.engine.stats().flushes > 0);
    bench.end();
}

#[test]
fn more_fsyncs_than_threads_keep_nobody_waiting_for_ever() {
    let Some(bench) = Bench::with(FrontOptions {
        threads: 1,
        ..FrontOptions::default()
    }) else {
        return;
    };
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = bench.path(&format!("file{writer}"));
            scope.spawn(move || {
                let mut file = File::create(path).unwrap();
                for _ in 0..50 {
                    file.write_all(&[writer; 5000]).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
    let stats = bench.engine.stats();
    assert!(stats.flushes > 0);
    for writer in 0..8 {
        let contents = fs::read(bench.path(&format!("file{writer}"))).unwrap();
        assert!(contents == [writer; 50 * 5000]);
    }
    bench.end();
}

#[test]
fn changes_behind_the_kernels_back_are_told() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.path("file");
    fs::write(&path, "first").unwrap();
    let inode = bench
        .engine
        .lookup(bench.engine.root(), b"file")
        .unwrap()
        .inode;
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    let set = SetAttributes {
        permissions: Some(0o600),
        ..SetAttributes::default()
    };
    bench.engine.set_attributes(inode, &set).unwrap();
    bench.mounted.invalidator().attributes(inode);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

    bench.engine.write(inode, 0, b"FIRST").unwrap();
    bench.mounted.invalidator().contents(inode);
    assert_eq!(fs::read(&path).unwrap(), b"FIRST");

    assert!(fs::metadata(bench.path("other")).is_err());
    bench
        .engine
        .link(inode, bench.engine.root(), b"other")
        .unwrap();
    bench
        .mounted
        .invalidator()
        .name(bench.engine.root(), b"other");
    bench.mounted.invalidator().attributes(inode);
    assert_eq!(fs::metadata(bench.path("other")).unwrap().nlink(), 2);
    bench.engine.forget(inode, 2);
    bench.end();
}

#[test]
fn names_and_links_are_never_stale() {
    let Some(bench) = Bench::new() else { return };
    let (a, b, dir) = (bench.path("a"), bench.path("b"), bench.path("dir"));
    fs::write(&a, "x").unwrap();
    fs::hard_link(&a, &b).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    fs::create_dir(&dir).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().nlink(), 3);
    fs::rename(dir.join("sub"), bench.path("sub")).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().nlink(), 2);
    let opened = File::open(&b).unwrap();
    fs::remove_file(&a).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 1);
    assert_eq!(opened.metadata().unwrap().nlink(), 1);
    fs::write(bench.path("c"), "y").unwrap();
    fs::rename(bench.path("c"), &b).unwrap();
    assert_eq!(opened.metadata().unwrap().nlink(), 0);
    let mut byte = [0];
    opened.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!((&byte, fs::read(&b).unwrap().as_slice()), (b"x", &b"y"[..]));
    drop(opened);
    let mut appended = File::options().append(true).open(&b).unwrap();
    appended.write_all(&[b'z'; 10_000]).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().len(), 10_001);
    drop(appended);
    bench.end();
}

#[test]
fn counters_are_an_attribute_of_the_root() {
    let Some(bench) = Bench::new() else { return };
    let stats = stats_of(bench.dir.path()).unwrap();
    assert_eq!(
        (&stats["image"], &stats["ordering"]),
        (&"memory".into(), &"soft".into())
    );
    assert_eq!(stats["pid"], std::process::id());
    fs::create_dir(bench.path("dir")).unwrap();
    let elsewhere = stats_of(&bench.path("dir")).unwrap_err();
    assert_eq!(elsewhere.raw_os_error(), Some(95));
    bench.end();
}

#[test]
fn what_comes_too_late_is_refused_and_spoils_nothing() {
    let Some(bench) = Bench::new() else { return };
    fs::create_dir(bench.path("busy")).unwrap();
    // A process of its own: one that waits for a mount that it serves itself can never be killed.
    let script = "i=0; while echo $i > file-$((i % 100)); do i=$((i + 1)); done; echo $i";
    let writer = Command::new("sh")
        .args(["-c", script])
        .current_dir(bench.path("busy"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let device = bench.abandon();
    let written = writer.wait_with_output().unwrap().stdout;
    let written: u32 = String::from_utf8(written).unwrap().trim().parse().unwrap();
    assert!(written > 0, "it wrote until it was refused");
    let report = usual()
        .check(&DeviceSource(&*device), &CheckOptions::default())
        .unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}
