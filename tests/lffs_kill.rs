//! The daemon is killed while it writes a log of operations, and what it leaves is recovered.
//!
//! The device has a volatile cache that a kill loses and reorders, as a power cut does. The log's
//! device has another one; memory that survives a power cut has none. No foreign tool knows these
//! logs. So `backstitch fsck` brings a copy home, in which `e2fsck -fn` (on UFS2 our own check) then
//! finds nothing, and a mount of the image shows everything that was promised. `LOG_KILLS` is how
//! often each kind is killed, and `SEED` repeats a load.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backstitch_tests::command::{Outcome, backstitch, run};
use backstitch_tests::image::Image;
use backstitch_tests::load::{Load, Promise, broken_promises};
use backstitch_tests::mount::{Backend, Mounted, Options};
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};

/// The image and its log are filled with this byte before they are made. It must not be taken for a
/// record.
const GARBAGE: u8 = 0xee;
const MEBIBYTES: usize = 64;
/// Small, so that the log wraps around and has to make room.
const LOG_MEBIBYTES: usize = 2;
const THREADS: u64 = 3;

/// The place of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a file, or after the file system; the image has this feature.
    Home(&'static str),
    /// On a device of its own.
    Device,
    /// In a mapped file.
    Memory,
}

/// How an image is made, and whether e2fsck knows it.
#[derive(Clone, Copy)]
struct Format {
    arguments: &'static [&'static str],
    is_ext: bool,
}

const EXT2: Format = Format {
    arguments: &["-b", "1024"],
    is_ext: true,
};

const UFS2: Format = Format {
    arguments: &["-t", "ufs2", "-f", "1024"],
    is_ext: false,
};

/// An image, and that of its log if it has one of its own.
struct Disk {
    image: Image,
    log: Option<PathBuf>,
    at: At,
}

#[test]
fn in_a_file() {
    killed("lffs_kill_file", EXT2, "lffs-file", At::Home("lffs_log"));
}

#[test]
fn in_a_file_of_ufs() {
    killed("lffs_kill_ufs", UFS2, "lffs-file", At::Home("lffs_log"));
}

#[test]
fn behind_ufs_and_on_a_device_beside_it() {
    killed(
        "lffs_kill_ufs_1",
        UFS2,
        "lffs-wafs=1async",
        At::Home("wafs_log"),
    );
    killed("lffs_kill_ufs_2", UFS2, "lffs-wafs=2sync", At::Device);
}

#[test]
fn behind_the_file_system() {
    killed(
        "lffs_kill_1async",
        EXT2,
        "lffs-wafs=1async",
        At::Home("wafs_log"),
    );
    killed(
        "lffs_kill_1sync",
        EXT2,
        "lffs-wafs=1sync",
        At::Home("wafs_log"),
    );
    killed(
        "lffs_kill_1group",
        EXT2,
        "lffs-wafs=1group",
        At::Home("wafs_log"),
    );
}

#[test]
fn on_a_device_of_its_own() {
    killed("lffs_kill_2async", EXT2, "lffs-wafs=2async", At::Device);
    killed("lffs_kill_2sync", EXT2, "lffs-wafs=2sync", At::Device);
}

#[test]
fn in_memory_that_survives() {
    killed("lffs_kill_nvram", EXT2, "lffs-wafs=2sync", At::Memory);
}

/// After a crash, an image without its log is neither mounted for writing nor repaired.
#[test]
fn what_a_crash_left_waits_for_its_log() {
    require!("root", "fuse", "backstitch");
    let name = "lffs_kill_without_log";
    if Backend::from_env() != Backend::Backstitch {
        return backstitch_tests::requirements::skip(name, "it is about our logs");
    }
    let scratch = Scratch::new(name);
    let disk = Disk::made(&scratch, EXT2, At::Device);
    let seed = Random::seed(name);
    round_of(name, "lffs-wafs=2async", &scratch, &disk, seed);
    let before = disk.image.bytes();

    for mode in ["-n", "-p", "-y"] {
        let refused = fsck(&disk.image, None, mode);
        let said = refused.describe();
        assert_eq!(refused.code, Some(8), "{mode}: {said}");
        assert!(said.contains("another device"), "{mode}: {said}");
        // The message must not be about a journal, for which every image has an inode.
        assert!(!said.contains("inode 8"), "{mode}: {said}");
    }
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&disk.image, &dir, &Options::ordered("soft", ""));
    fs::write(dir.join("new"), "x").expect_err("the rest of it is in the log");
    mounted.unmount();
    assert!(disk.image.bytes() == before, "the image was changed");

    let repaired = fsck(&disk.image, disk.log.as_deref(), "-p");
    let text = repaired.text();
    assert!(matches!(repaired.code, Some(0 | 1)), "{text}");
    assert!(text.contains("brought home"), "{text}");
    assert!(!text.contains("inode 8"), "{text}");
    disk.image.expect_clean();
}

fn killed(name: &'static str, format: Format, ordering: &'static str, at: At) {
    require!("root", "fuse", "e2fsck", "backstitch");
    if Backend::from_env() != Backend::Backstitch {
        return backstitch_tests::requirements::skip(name, "it is about our logs");
    }
    let seed = Random::seed(name);
    let scratch = Scratch::new(name);
    let disk = Disk::made(&scratch, format, at);
    for round in 0..setting("LOG_KILLS", 1) {
        let promises = round_of(name, ordering, &scratch, &disk, seed + round);
        let mut complaints = by_fsck(&disk);
        complaints.extend(by_a_mount(ordering, &scratch, &disk, &promises));
        let text = complaints.join("\n");
        assert!(complaints.is_empty(), "{name}, round {round}:\n{text}");
    }
}

impl Disk {
    fn made(scratch: &Scratch, format: Format, at: At) -> Disk {
        let path = scratch.path("disk.img");
        fs::write(&path, vec![GARBAGE; MEBIBYTES << 20]).expect("cannot make an image");
        let mut command = backstitch();
        command.args(["mkfs", "-q"]).args(format.arguments);
        let log = match at {
            At::Home(feature) => {
                command.args(["-O", feature, "-J", &format!("size={LOG_MEBIBYTES}")]);
                None
            }
            At::Device | At::Memory => {
                let log = scratch.path("log.img");
                fs::write(&log, vec![GARBAGE; LOG_MEBIBYTES << 20]).expect("cannot make a log");
                run(backstitch().args(["wafs", "mkfs"]).arg(&log)).expect_success();
                Some(log)
            }
        };
        run(command.arg(&path)).expect_success();
        let image = match format.is_ext {
            true => Image::at(path),
            false => Image::ours_at(path),
        };
        Disk { image, log, at }
    }

    /// A copy that another program may change.
    fn copy(&self) -> Disk {
        let log = self.log.as_ref().map(|log| {
            let to = log.with_extension("copy");
            fs::copy(log, &to).expect("cannot copy");
            to
        });
        Disk {
            image: self.image.copy("copy.img"),
            log,
            at: self.at,
        }
    }

    fn options(&self, ordering: &str, more: &str) -> Options {
        let log = self.log.as_ref();
        let log = log.map(|path| format!("log_device={},", path.display()));
        let mapped = match self.at {
            At::Memory => "nvram,",
            At::Home(_) | At::Device => "",
        };
        let options = format!("{}{mapped}commit=1,expire=2{more}", log.unwrap_or_default());
        Options::ordered(ordering, &options)
    }
}

fn fsck(image: &Image, log: Option<&Path>, mode: &str) -> Outcome {
    let mut command = backstitch();
    command.args(["fsck", mode]);
    if let Some(log) = log {
        command.arg("-j").arg(log);
    }
    run(command.arg(image.path()))
}

/// Mounts, works, and kills.
fn round_of(name: &str, ordering: &str, scratch: &Scratch, disk: &Disk, seed: u64) -> Vec<Promise> {
    let dir = scratch.dir("mnt");
    let options = disk.options(ordering, &format!(",volatile={seed}"));
    let mounted = Mounted::under_test(&disk.image, &dir, &options);
    let place = dir.join("r");
    if place.exists() {
        fs::remove_dir_all(&place).expect("what the last round left cannot be removed");
    }
    let load = Load::start(&place, seed, THREADS);
    let pause = Duration::from_millis(Random::new(seed).between(500, 2500));
    std::thread::sleep(pause);
    load.expect_the_end();
    mounted.kill();
    let done = load.finish();
    mounted.detach();
    let text = done.unexpected.join("\n");
    assert!(
        done.unexpected.is_empty(),
        "errors before the kill:\n{text}"
    );
    say(&format!(
        "{name}: seed {seed}, killed after {} operations in {:.1} s, {} promises",
        done.operations,
        pause.as_secs_f64(),
        done.promises.len(),
    ));
    done.promises
}

/// `fsck -p` brings a copy home, and a check finds nothing.
fn by_fsck(disk: &Disk) -> Vec<String> {
    let theirs = disk.copy();
    let repaired = fsck(&theirs.image, theirs.log.as_deref(), "-p");
    let mut complaints = Vec::new();
    if !matches!(repaired.code, Some(0 | 1)) {
        complaints.push(repaired.describe());
    }
    let after = (theirs.image.complaint()).map(|found| format!("after fsck -p: {found}"));
    complaints.extend(after);
    complaints
}

/// A mount recovers, and everything promised is there. The next round continues with this image.
fn by_a_mount(ordering: &str, scratch: &Scratch, disk: &Disk, promises: &[Promise]) -> Vec<String> {
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&disk.image, &dir, &disk.options(ordering, ""));
    // Contents may be those from before: nothing waits for them, and they are not in the log.
    let mut complaints = broken_promises(promises);
    mounted.unmount();
    let after = (disk.image.complaint()).map(|found| format!("after our recovery: {found}"));
    complaints.extend(after);
    let ours = fsck(&disk.image, disk.log.as_deref(), "-n");
    if ours.code != Some(0) {
        complaints.push(ours.describe());
    }
    complaints
}
