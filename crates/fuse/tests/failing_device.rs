//! What programs are told through a mount when the device fails for good: by `fsync` of each open
//! file, and by everything else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;

use backstitch_device::{Fault, FaultDevice, FaultKind, FaultLength, Loss, MemoryDevice};
use backstitch_formats::usual;
use backstitch_fuse::{Engine, FrontOptions, spawn};
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs};
use backstitch_vfs::MountOptions;

/// What an `fsync` said: nothing, or the error's number.
fn synced(file: &File) -> Option<i32> {
    let error = file.sync_all().err()?;
    Some(error.raw_os_error().expect("an error of the system"))
}

fn number(result: io::Result<()>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Loses what two open files share, with fsyncs by both, and by one that is opened later.
fn lose(report_once: bool) {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = fuse {
        return eprintln!("skipped: /dev/fuse: {error} (Debian package fuse3)");
    }
    let memory = Arc::new(MemoryDevice::new(8 << 20));
    let mkfs = Mkfs::new([1; 16], [2; 16], 1_700_000_000);
    usual().make(&mkfs, &*memory).expect("mkfs");
    let device = Arc::new(FaultDevice::new(memory.clone(), Loss::Everything));
    let options = MountOptions {
        expire_seconds: 1e6,
        ..MountOptions::default()
    };
    let engine =
        Engine::mount(device.clone(), usual().layout(), &options).expect("the engine mounts");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let front = FrontOptions {
        image: "memory".into(),
        report_once,
        ..FrontOptions::default()
    };
    let mounted = spawn(engine, dir.path(), &front).expect("FUSE mounts");

    let path = |name: &str| dir.path().join(name);
    fs::write(path("stable"), "text").unwrap();
    let stable = File::open(path("stable")).unwrap();
    assert_eq!(synced(&stable), None);
    let mut first = File::create(path("lost")).unwrap();
    first.write_all(b"lost").unwrap();
    let second = File::open(path("lost")).unwrap();
    device.inject(Fault {
        kind: FaultKind::Flush,
        number: device.counts().flushes + 1,
        length: FaultLength::Gone,
    });
    // Each open file is told; whether again is the option's business.
    let again = (!report_once).then_some(libc::EIO);
    assert_eq!(synced(&first), Some(libc::EIO));
    assert_eq!(synced(&first), again);
    assert_eq!(synced(&second), Some(libc::EIO));
    assert_eq!(synced(&second), again);
    // Of this one somebody knows.
    assert_eq!(synced(&File::open(path("lost")).unwrap()), again);
    // What was not changed is not lost, and can be read; so can what is in memory. Nothing can be
    // changed any more.
    assert_eq!(synced(&stable), None);
    device.comes_back();
    assert_eq!(fs::read_to_string(path("stable")).unwrap(), "text");
    assert_eq!(fs::read_to_string(path("lost")).unwrap(), "lost");
    assert_eq!(number(fs::write(path("stable"), "new")), Some(libc::EROFS));
    assert_eq!(number(fs::remove_file(path("lost"))), Some(libc::EROFS));
    assert_eq!(number(first.write_all(b"x")), Some(libc::EROFS));
    drop((first, second, stable));

    mounted.unmounter().detach().expect("it is detached");
    mounted.ender().end();
    mounted.wait().expect_err("not everything is on the disk");
    let report = usual()
        .check(&DeviceSource(&*memory), &CheckOptions::default())
        .unwrap();
    assert!(report.is_consistent(), "{:?}", report.findings);
}

#[test]
fn every_fsync_of_what_is_lost_fails() {
    lose(false);
}

#[test]
fn with_report_once_each_open_file_is_told_of_its_loss_once() {
    lose(true);
}
