//! What the kernel's driver writes to a disk while files are made and removed, and what power cuts
//! leave of that.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use backstitch_device::write_log::{EntryFlags, LogReader};
use backstitch_tests::image::Image;
use backstitch_tests::random::Random;
use backstitch_tests::recorder::Recorder;
use backstitch_tests::scratch::{Scratch, force_unmount};

/// How long files are made and removed.
const WORK: Duration = Duration::from_secs(4);
/// The first bytes of the journal's own blocks. Copies of blocks that begin like this are escaped.
pub(crate) const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// A kind of journal.
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) mke2fs: &'static [&'static str],
    /// The kernel's driver, and the mount options.
    pub(crate) mount: (&'static str, &'static str),
    /// Whether this version can write such a file system, and so can deal with its orphans.
    pub(crate) is_writable: bool,
}

pub(crate) const PROFILES: [Profile; 10] = [
    Profile {
        name: "ext3_ordered",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        mount: ("ext3", "data=ordered,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_writeback",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=4"],
        mount: ("ext3", "data=writeback,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_full",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        mount: ("ext3", "data=journal,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_full_4k",
        mke2fs: &["-t", "ext3", "-b", "4096", "-J", "size=4"],
        mount: ("ext3", "data=journal,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_checksum_v1",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        mount: ("ext4", "data=writeback,commit=1,journal_async_commit"),
        is_writable: true,
    },
    Profile {
        name: "ext4_without_extents_journal",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^extents,^metadata_csum,^64bit",
        ],
        mount: ("ext4", "data=journal,commit=1"),
        is_writable: false,
    },
    Profile {
        name: "ext4_without_extents_ordered",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^extents,^metadata_csum,^64bit",
        ],
        mount: ("ext4", "data=ordered,commit=1"),
        is_writable: false,
    },
    Profile {
        name: "ext4_without_extents_writeback",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^extents,^metadata_csum,^64bit",
        ],
        mount: ("ext4", "data=writeback,commit=1"),
        is_writable: false,
    },
    Profile {
        name: "ext4_64bit",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "metadata_csum,64bit",
        ],
        mount: ("ext4", "data=journal,commit=1"),
        is_writable: false,
    },
    Profile {
        name: "ext4_checksum_v3",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^extents,metadata_csum,^64bit",
        ],
        mount: ("ext4", "data=ordered,commit=1"),
        is_writable: false,
    },
];

/// Makes, changes, truncates and removes files until the time is up. Some are removed while open.
pub(crate) fn work(dir: &Path, seed: u64, with_orphans: bool) {
    let mut random = Random::new(seed);
    let started = Instant::now();
    let mut open: Vec<File> = Vec::new();
    let name = |number: u64| {
        dir.join(format!("d{}", number % 7))
            .join(format!("f{number}"))
    };
    while started.elapsed() < WORK {
        let path = name(random.below(60));
        match random.below(12) {
            0..5 => {
                let _ = fs::create_dir(path.parent().unwrap_or(dir));
                let Ok(mut file) = OpenOptions::new().create(true).append(true).open(&path) else {
                    continue;
                };
                let mut bytes = random.bytes(random_len(seed, &path));
                if random.one_in(3) {
                    bytes[..4].copy_from_slice(&MAGIC);
                    let _ = file.seek(SeekFrom::Start(0));
                }
                let _ = file.write_all(&bytes);
                if random.one_in(4) {
                    let _ = file.sync_all();
                }
            }
            5 => {
                if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                    let _ = file.write_all_at(&MAGIC, random.below(20) * 1024);
                    let _ = file.sync_data();
                }
            }
            6 => {
                if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                    let _ = file.set_len(random.below(40_000));
                }
            }
            7 => drop(fs::rename(&path, name(random.below(60)))),
            8 => drop(fs::remove_dir_all(path.parent().unwrap_or(dir))),
            9 if with_orphans => {
                // It is an orphan while it is open.
                if let Ok(file) = File::open(&path) {
                    open.push(file);
                    let _ = fs::remove_file(&path);
                }
                if open.len() > 8 {
                    open.clear();
                }
            }
            10 => drop(std::os::unix::fs::symlink(
                &path,
                dir.join(format!("l{}", random.below(9))),
            )),
            _ => drop(fs::remove_file(&path)),
        }
    }
}

/// The length of a file, always the same for it: for most a few bytes, for some a few indirect
/// blocks.
fn random_len(seed: u64, path: &Path) -> usize {
    let number = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(seed, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
    match number % 5 {
        0 => 300_000 + (number % 7) as usize * 10_000,
        1..3 => 20_000,
        _ => 500,
    }
}

/// The changes of a recording, in memory.
pub(crate) struct Record {
    base: Vec<u8>,
    pub(crate) changes: Vec<Change>,
}

pub(crate) enum Change {
    /// The offset, the bytes, and whether it is durable when it ends.
    Write(usize, Vec<u8>, bool),
    Discard(usize, usize),
    Flush,
}

impl Record {
    fn read(recorder: &Recorder) -> Record {
        let base = fs::read(&recorder.base).expect("cannot read the base");
        let mut log = LogReader::open(&recorder.log).expect("cannot read the log");
        let mut changes = Vec::new();
        let entries: Vec<_> = log
            .by_ref()
            .map(|entry| entry.expect("a damaged log"))
            .collect();
        for entry in entries {
            if entry.flags.contains(EntryFlags::FLUSH) {
                changes.push(Change::Flush);
            }
            let at = entry.offset_bytes as usize;
            if entry.flags.contains(EntryFlags::DISCARD) {
                changes.push(Change::Discard(at, entry.len_bytes as usize));
            } else if entry.has_data() {
                let mut bytes = vec![0; entry.len_bytes as usize];
                log.read_data(&entry, 0, &mut bytes).expect("a damaged log");
                changes.push(Change::Write(
                    at,
                    bytes,
                    entry.flags.contains(EntryFlags::FUA),
                ));
            }
        }
        Record { base, changes }
    }

    /// Calls `look` with the state that each of `count` power cuts leaves.
    pub(crate) fn cut(&self, random: &mut Random, count: u64, look: &mut dyn FnMut(u64, Vec<u8>)) {
        let mut cuts: Vec<u64> = (0..count)
            .map(|_| random.below(self.changes.len() as u64 + 1))
            .collect();
        cuts.sort_unstable();
        let (mut stable, mut applied) = (self.base.clone(), 0);
        for cut in cuts {
            let before = &self.changes[..cut as usize];
            let flushed = before
                .iter()
                .rposition(|change| matches!(change, Change::Flush))
                .unwrap_or(0);
            for change in &self.changes[applied..flushed.max(applied)] {
                change.apply(&mut stable);
            }
            applied = applied.max(flushed);
            let mut state = stable.clone();
            let share = random.below(5);
            for change in &before[applied..] {
                if matches!(change, Change::Write(_, _, true)) || random.below(4) < share {
                    change.apply(&mut state);
                }
            }
            look(cut, state);
        }
    }
}

impl Change {
    fn apply(&self, state: &mut [u8]) {
        match self {
            Change::Write(at, bytes, _) => state[*at..at + bytes.len()].copy_from_slice(bytes),
            Change::Discard(at, length) => state[*at..at + length].fill(0),
            Change::Flush => {}
        }
    }
}

/// Records what the kernel writes under a load.
pub(crate) fn record(scratch: &Scratch, profile: &Profile, seed: u64) -> Record {
    let image = Image::mke2fs(scratch, "disk.img", "24M", profile.mke2fs);
    let recorder = Recorder::start(scratch, image.path());
    let dir = scratch.dir("mnt");
    recorder.mount_with(profile.mount.0, profile.mount.1, &dir);
    // e2fsck deals with orphans in another way. If only its replay can be compared, there should be
    // none.
    work(&dir, seed, profile.is_writable);
    force_unmount(&dir);
    recorder.end();
    Record::read(&recorder)
}
