//! The daemon is killed while it writes a journal, and the tools that know journals best judge what
//! it leaves.
//!
//! `e2fsck -fy` must replay the journal and find nothing more to repair. The kernel must mount what
//! is left, and everything promised must be there; likewise for our own mount. The device of each
//! daemon has a volatile cache that a kill loses and reorders, as a power cut does. `JOURNAL_KILLS`
//! is how often each kind is killed (34 give 272 crashed images), and `SEED` repeats a load.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backstitch_tests::command::{backstitch, our_fsck, run, tool};
use backstitch_tests::dumps::same_dumps;
use backstitch_tests::image::Image;
use backstitch_tests::load::{Load, Promise, broken_promises, foreign_bytes};
use backstitch_tests::loop_device::LoopDevice;
use backstitch_tests::mount::{Backend, Mounted, Options};
use backstitch_tests::random::Random;
use backstitch_tests::scratch::{Scratch, force_unmount};
use backstitch_tests::{require, say, setting};

/// Free space is filled with this byte first. No file may show it.
const GARBAGE: u8 = 0xee;
const MEBIBYTES: usize = 64;
const THREADS: u64 = 3;
/// e2fsck's lines that only say that it replayed, freed orphans, and went through its passes.
const EXPECTED: [&str; 8] = [
    "e2fsck ",
    "Pass ",
    "recovering journal",
    "orphaned inode",
    "Setting free",
    "FILE SYSTEM WAS MODIFIED",
    " files (",
    "Setting filetype",
];

/// A kind of journal.
struct Kind {
    mode: &'static str,
    is_outside: bool,
    /// Whether commit records are written together with what they commit.
    is_at_once: bool,
    name: &'static str,
}

#[test]
fn ordered() {
    killed(&Kind {
        mode: "journal=ordered",
        is_outside: false,
        is_at_once: false,
        name: "journal_kill_ordered",
    });
}

#[test]
fn full() {
    killed(&Kind {
        mode: "journal=full",
        is_outside: false,
        is_at_once: false,
        name: "journal_kill_full",
    });
}

#[test]
fn writeback() {
    killed(&Kind {
        mode: "journal=writeback",
        is_outside: false,
        is_at_once: false,
        name: "journal_kill_writeback",
    });
}

#[test]
fn ordered_on_a_device_of_its_own() {
    killed(&Kind {
        mode: "journal=ordered",
        is_outside: true,
        is_at_once: false,
        name: "journal_kill_ordered_outside",
    });
}

#[test]
fn full_on_a_device_of_its_own() {
    killed(&Kind {
        mode: "journal=full",
        is_outside: true,
        is_at_once: false,
        name: "journal_kill_full_outside",
    });
}

#[test]
fn writeback_on_a_device_of_its_own() {
    killed(&Kind {
        mode: "journal=writeback",
        is_outside: true,
        is_at_once: false,
        name: "journal_kill_writeback_outside",
    });
}

/// Commit records that do not wait, with the journal inside the image or on a device of its own, by
/// the seed; both if there is time.
#[test]
fn asynchronous_commit() {
    let kinds = [
        Kind {
            mode: "journal=writeback",
            is_outside: false,
            is_at_once: true,
            name: "journal_kill_at_once",
        },
        Kind {
            mode: "journal=full",
            is_outside: true,
            is_at_once: true,
            name: "journal_kill_at_once_outside",
        },
    ];
    let (first, count) = match setting("JOURNAL_KILLS", 1) {
        1 => (Random::seed("journal_kill_at_once") as usize % 2, 1),
        _ => (0, 2),
    };
    kinds
        .iter()
        .cycle()
        .skip(first)
        .take(count)
        .for_each(killed);
}

fn killed(kind: &Kind) {
    require!("root", "fuse", "loop", "e2fsck", "backstitch");
    if Backend::from_env() != Backend::Backstitch {
        return backstitch_tests::requirements::skip(kind.name, "it is about our journals");
    }
    let seed = Random::seed(kind.name);
    let scratch = Scratch::new(kind.name);
    let disk = Disk::made(&scratch, kind);
    for round in 0..setting("JOURNAL_KILLS", 1) {
        let promises = round_of(kind, &scratch, &disk, seed + round);
        // Both print the same for a log of ours, and it is not empty.
        let (image, log) = (disk.image.path(), disk.journal.as_deref());
        assert!(same_dumps(kind.name, image, log) > 1, "an empty log");
        let mut complaints = by_e2fsck(&disk);
        complaints.extend(by_the_kernel(kind, &scratch, &disk, &promises));
        complaints.extend(by_ourselves(kind, &scratch, &disk, &promises));
        let text = complaints.join("\n");
        assert!(
            complaints.is_empty(),
            "{}, round {round}:\n{text}",
            kind.name
        );
    }
}

/// An image, and that of its journal if it has one of its own.
struct Disk {
    image: Image,
    journal: Option<PathBuf>,
}

impl Disk {
    fn made(scratch: &Scratch, kind: &Kind) -> Disk {
        let path = scratch.path("disk.img");
        fs::write(&path, vec![GARBAGE; MEBIBYTES << 20]).expect("cannot make an image");
        let journal = kind.is_outside.then(|| scratch.path("log.img"));
        let at_once = kind.is_at_once.then_some("--journal-async-commit");
        // Small, so that the log wraps around and has to make room.
        let place = match &journal {
            None => "4M".to_owned(),
            Some(log) => {
                let mut command = backstitch();
                command.args(["mkfs", "-q", "-O", "journal_dev", "-b", "1024", "-s", "4M"]);
                run(command.args(at_once).arg(log)).expect_success();
                format!("device={}", log.display())
            }
        };
        let mut command = backstitch();
        command.args(["mkfs", "-q", "-t", "ext3", "-b", "1024", "-J", &place]);
        command.args(at_once.filter(|_| !kind.is_outside));
        run(command.arg(&path)).expect_success();
        Disk {
            image: Image::at(path),
            journal,
        }
    }

    /// A copy that another program may change.
    fn copy(&self, name: &str) -> Disk {
        let copied = |path: &PathBuf| {
            let to = path.with_extension(name);
            fs::copy(path, &to).expect("cannot copy");
            to
        };
        Disk {
            image: Image::at(copied(&self.image.path().to_owned())),
            journal: self.journal.as_ref().map(copied),
        }
    }

    fn options(&self, kind: &Kind, more: &str) -> Options {
        let journal = self.journal.as_ref();
        let journal = journal.map(|path| format!("journal_dev={},", path.display()));
        let options = format!("{}commit=1,expire=2{more}", journal.unwrap_or_default());
        Options::ordered(kind.mode, &options)
    }

    fn e2fsck(&self, how: &str) -> (Option<i32>, String) {
        let mut command = tool("e2fsck");
        command.arg(how);
        if let Some(journal) = &self.journal {
            command.arg("-j").arg(journal);
        }
        let outcome = run(command.arg(self.image.path()));
        (outcome.code, outcome.text())
    }
}

/// Mounts, works, and kills.
fn round_of(kind: &Kind, scratch: &Scratch, disk: &Disk, seed: u64) -> Vec<Promise> {
    let dir = scratch.dir("mnt");
    let options = disk.options(kind, &format!(",volatile={seed}"));
    let mounted = Mounted::under_test(&disk.image, &dir, &options);
    let place = dir.join("r");
    if place.exists() {
        fs::remove_dir_all(&place).expect("what the last round left cannot be removed");
    }
    let load = Load::start(&place, seed, THREADS);
    let pause = Duration::from_millis(Random::new(seed).between(200, 2500));
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
        "{}: seed {seed}, killed after {} operations in {:.1} s, {} promises",
        kind.name,
        done.operations,
        pause.as_secs_f64(),
        done.promises.len(),
    ));
    done.promises
}

/// e2fsck replays, and finds nothing more to repair.
fn by_e2fsck(disk: &Disk) -> Vec<String> {
    let theirs = disk.copy("e2fsck");
    let (code, text) = theirs.e2fsck("-fy");
    let lines = text.lines().map(str::trim);
    let is_said = |line: &&str| !line.is_empty() && !EXPECTED.iter().any(|e| line.contains(e));
    let mut complaints: Vec<String> = lines
        .filter(is_said)
        .map(|line| format!("e2fsck -fy: {line}"))
        .collect();
    if !matches!(code, Some(0 | 1)) {
        complaints.push(format!("e2fsck -fy ended with {code:?}:\n{text}"));
    }
    let (code, text) = theirs.e2fsck("-fn");
    if code != Some(0) {
        complaints.push(format!("e2fsck -fn afterwards:\n{text}"));
    }
    complaints
}

/// What is wrong with the files of a mount.
fn files(kind: &Kind, dir: &Path, promises: &[Promise]) -> Vec<String> {
    let mut complaints = broken_promises(promises);
    // Under writeback a file may show earlier contents of its blocks.
    if kind.mode != "journal=writeback" {
        complaints.extend(foreign_bytes(dir));
    }
    complaints
}

/// The kernel replays, and everything promised is there.
fn by_the_kernel(kind: &Kind, scratch: &Scratch, disk: &Disk, promises: &[Promise]) -> Vec<String> {
    let theirs = disk.copy("kernel");
    let dir = scratch.dir("mnt");
    let log = theirs.journal.as_deref().map(LoopDevice::over);
    let options = match &log {
        None => "loop".to_owned(),
        Some(log) => format!("loop,journal_path={}", log.name()),
    };
    let mut command = tool("mount");
    command.args(["-t", "ext3", "-o", &options]);
    run(command.arg(theirs.image.path()).arg(&dir)).expect_success();
    let mut complaints = files(kind, &dir, promises);
    force_unmount(&dir);
    drop(log);
    let (code, text) = theirs.e2fsck("-fn");
    if code != Some(0) {
        complaints.push(format!("e2fsck -fn after the kernel's mount:\n{text}"));
    }
    let named = complaints.into_iter().map(|c| format!("the kernel: {c}"));
    named.collect()
}

/// Our mount does so too. The next round continues with this image.
fn by_ourselves(kind: &Kind, scratch: &Scratch, disk: &Disk, promises: &[Promise]) -> Vec<String> {
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&disk.image, &dir, &disk.options(kind, ""));
    let mut complaints = files(kind, &dir, promises);
    mounted.unmount();
    let (code, text) = disk.e2fsck("-fn");
    if code != Some(0) {
        complaints.push(format!("e2fsck -fn after our recovery:\n{text}"));
    }
    let ours = our_fsck(disk.image.path()).filter(|outcome| outcome.code != Some(0));
    complaints.extend(ours.map(|outcome| outcome.describe()));
    complaints
}
