//! UFS with a log of operations: what `mkfs` makes, which mount a log belongs to, and what is freed
//! when it is brought home.

use crate::ufs_use::{image, make, make_file, open, superblock_of};
use backstitch_crash::{Fork, ForkDevice, ImageOptions};
use backstitch_crash_core::mount::{Mount, Nobody, replayed};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_formats::Layout;
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs, MkfsError, Mode, RepairOptions};
use backstitch_layout::{FileType, JournalHost, LayoutKind, Left, LogKind, LogSite, NotedPlace};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Operation;
use backstitch_rules::watch::{self, Form};
use backstitch_ufs::Ufs;
use backstitch_ufs::format::log_record;
use backstitch_ufs::format::superblock::offset::{CLEAN, FLAGS, MOUNT_TIME, ORPHANS};
use backstitch_ufs::format::superblock::{FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES};
use backstitch_ufs::rules::Rule;

const LOGS: [(&str, Ordering); 2] = [
    ("lffs_log", Ordering::LFFS_FILE),
    ("wafs_log", Ordering::LFFS_WAFS_1ASYNC),
];
const SIZE_BYTES: usize = 4 << 20;

fn options(features: &[&str]) -> Mkfs {
    Mkfs {
        features: features.iter().map(|name| (*name).to_owned()).collect(),
        ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
    }
}

fn layout(kind: &str) -> Layout {
    kind.parse().expect("a type that is registered")
}

fn site(device: &dyn BlockDevice) -> LogSite<'_> {
    LogSite {
        device,
        log_device: None,
        host: Ufs.journal_host(),
    }
}

fn kind(ordering: Ordering) -> &'static dyn LogKind {
    ordering.log_kind().unwrap()
}

fn left(fork: &Fork) -> Left {
    let note = Ufs.log_note(&ForkDevice::new(fork.clone())).unwrap();
    note.expect("every UFS can have a log").left
}

/// Puts what an `fsync` of the root waits for into the log.
fn flush_root(mount: &mut Mount) {
    let mut targets = Vec::new();
    let asked = mount.run(Operation::Administration, &mut Nobody, |fs, v, _| {
        let root = fs.root();
        fs.sync_targets(v, root, false, &mut targets);
        Ok(())
    });
    asked.unwrap();
    mount.sync(&targets, &mut Nobody).unwrap();
}

fn expect_clean(image: &Fork) {
    let report = image.kind().tools().check(image, &CheckOptions::default());
    let report = report.unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
}

/// Whether the file of [`cut`] is there.
fn has_file(fork: Fork) -> bool {
    let mut mount = open(fork, Ordering::SOFT);
    let looked = mount.run(Operation::Administration, &mut Nobody, |fs, v, _| {
        let root = fs.root();
        fs.lookup(v, root, b"file")
    });
    looked.is_ok()
}

#[test]
fn what_is_made_is_in_order_and_can_be_written() {
    for (feature, ordering) in LOGS {
        for of in ["ufs1", "ufs2"] {
            for order in ["big_endian", "^big_endian"] {
                for fragment in [512, 1024, 4096] {
                    for odd in [0, 512, 4095] {
                        let device = MemoryDevice::from_bytes(vec![0xa5; SIZE_BYTES + odd]);
                        let options = Mkfs {
                            fragment_size: Some(fragment),
                            ..options(&[of, order, feature])
                        };
                        layout(of).make(&options, &device).unwrap();
                        let of = format!("{feature}, {of}, {order}, {fragment}, {odd}");
                        let report =
                            layout("ufs2").check(&DeviceSource(&device), &CheckOptions::default());
                        let report = report.unwrap();
                        assert!(report.is_clean(), "{of}: {report:?}");
                        let found = kind(ordering).find(site(&device)).unwrap();
                        assert_eq!(found.err(), None, "{of}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_log_that_no_mount_could_write_is_refused() {
    let device = MemoryDevice::new(SIZE_BYTES);
    let with_size = |feature, bytes| Mkfs {
        journal_bytes: Some(bytes),
        ..options(&[feature])
    };
    let refused = [
        (with_size("lffs_log", 64 << 10), "too short"),
        (with_size("wafs_log", 64 << 10), "too short"),
        (with_size("lffs_log", 3 << 20), "does not fit"),
        (with_size("wafs_log", 3 << 20), "does not fit"),
        (options(&["lffs_log", "wafs_log"]), "in a file or behind"),
        (
            Mkfs {
                block_size: Some(65_536),
                fragment_size: Some(8192),
                ..options(&["lffs_log"])
            },
            "4096 bytes at most",
        ),
    ];
    for (options, why) in refused {
        let error = layout("ufs2").make(&options, &device).unwrap_err();
        let MkfsError::BadOption(what) = error else {
            panic!("{error}");
        };
        assert!(what.contains(why), "{what}");
    }
    assert!(device.snapshot().iter().all(|byte| *byte == 0));
    let size = with_size("^lffs_log", 1 << 20);
    let error = layout("ufs2").make(&size, &device).unwrap_err();
    assert!(matches!(error, MkfsError::Unsupported(_)), "{error}");
}

/// A lost superblock is restored from a copy, with the place of the log.
#[test]
fn a_copy_of_the_superblock_knows_the_log() {
    for of in ["ufs1", "ufs2"] {
        let device = MemoryDevice::new(SIZE_BYTES);
        layout(of)
            .make(&options(&[of, "lffs_log"]), &device)
            .unwrap();
        let sb = backstitch_ufs::read_superblock(&device).unwrap();
        let lost = vec![0; log_record::LOG_RECORD_END];
        device.write(sb.place, &lost).unwrap();
        let options = RepairOptions {
            mode: Mode::All,
            guess_geometry: false,
            now_seconds: 1_700_000_000,
            check: CheckOptions::default(),
        };
        layout(of).repair(&device, &options).unwrap();
        let again = backstitch_ufs::read_superblock(&device).unwrap();
        assert_eq!(again.log, sb.log, "{of}");
        let found = kind(Ordering::LFFS_FILE).find(site(&device)).unwrap();
        assert_eq!(found.err(), None, "{of}");
    }
}

/// A file system whose power was cut while in use, with a file that only the log has: the log is so
/// long that nothing goes home for its sake.
fn cut(of: (&str, u32), ordering: Ordering) -> Fork {
    let image = ImageOptions {
        log_blocks: 512,
        ..image(of)
    };
    let mut mount = open(image.make_for(ordering).unwrap(), ordering);
    make_file(&mut mount, b"file", 3000);
    flush_root(&mut mount);
    assert_eq!(left(&mount.fork()), Left::InUse);
    mount.fork()
}

#[test]
fn an_image_in_use_is_marked_and_brought_home() {
    for of in [("ufs1", 512), ("ufs2", 1024)] {
        for (_, ordering) in LOGS {
            let at_rest = superblock_of(&image(of).make_for(ordering).unwrap()).flags;
            let left_so = cut(of, ordering);
            let sb = superblock_of(&left_so);
            assert_eq!(
                (sb.raw.fs_clean, sb.flags & FLAG_NEEDS_CHECK),
                (0, FLAG_NEEDS_CHECK)
            );
            assert!(!sb.is_clean() && !sb.is_left_in_order());
            let home = replayed(&left_so).unwrap();
            let sb = superblock_of(&home);
            assert_eq!((sb.raw.fs_clean, sb.flags, sb.record), (1, at_rest, None));
            assert_eq!(left(&home), Left::Clean);
            expect_clean(&home);
            assert!(has_file(home), "{of:?}, {ordering}");
        }
    }
}

/// A mount by FreeBSD changes the time, a check the flags. After either the log is older than the
/// file system.
#[test]
fn a_log_is_dropped_that_somebody_else_came_after() {
    for of in [("ufs1", 512), ("ufs2", 1024)] {
        for (_, ordering) in LOGS {
            let mut image = cut(of, ordering);
            let sb = superblock_of(&image);
            let at = |field: usize| sb.place + field as u64;
            let mut checked = image.clone();
            let time = sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1);
            image.write(at(MOUNT_TIME), &time).unwrap();
            assert_eq!(left(&image), Left::ByOthers);
            let home = replayed(&image).unwrap();
            assert_eq!(superblock_of(&home).raw.fs_clean, 0, "{of:?}");
            let mount = open(home, Ordering::SOFT);
            assert!(mount.fs.read_only_reason().is_some(), "{of:?}");

            let flags = sb.order.bytes_of_u32(FLAG_SOFT_UPDATES);
            checked.write(at(FLAGS), &flags).unwrap();
            checked.write(at(CLEAN), &[1]).unwrap();
            // A foreign check knows nothing of the list.
            checked
                .write(at(ORPHANS), &sb.order.bytes_of_u32(5))
                .unwrap();
            assert_eq!(left(&checked), Left::Clean);
            let home = replayed(&checked).unwrap();
            assert!(!has_file(home.clone()), "{of:?}");
            let mut mount = open(home, ordering);
            assert_eq!(superblock_of(&mount.fork()).raw.fs_sujfree, 0);
            mount.unmount(&mut Nobody).unwrap();
            expect_clean(&mount.fork());
        }
    }
}

/// The image was written to since. Bringing the log home would destroy that.
#[test]
fn the_log_of_an_earlier_mount_is_not_brought_home() {
    let brings_home = || {
        let mut image = cut(("ufs2", 1024), Ordering::LFFS_FILE);
        let sb = superblock_of(&image);
        let time = sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1);
        image.write(sb.place + MOUNT_TIME as u64, &time).unwrap();
        left(&image) == Left::InUse
    };
    assert!(!brings_home());
    watch::switch_off(Some((Rule::RecordIsOfLastMount.into(), Form::Whole)));
    let found = brings_home();
    watch::switch_off(None);
    assert!(found);
}

/// A file that is open has lost its name. It is freed when the log is brought home, and the counts
/// are right.
#[test]
fn what_had_no_name_is_freed() {
    for of in [("ufs1", 512), ("ufs1", 1024), ("ufs2", 512), ("ufs2", 1024)] {
        // Fragments, an indirect block, a double indirect one.
        for bytes in [700, 60_000, 1_500_000] {
            let ordering = Ordering::LFFS_FILE;
            let mut mount = open(image(of).make_for(ordering).unwrap(), ordering);
            let empty = replayed(&mount.fork()).unwrap();
            let inode = make_file(&mut mount, b"open", bytes);
            mount.fs.hold(inode);
            let other = make_file(&mut mount, b"other", 100);
            mount.fs.hold(other);
            let directory = make(&mut mount, FileType::Directory, b"directory");
            mount.fs.hold(directory);
            for name in [&b"open"[..], b"other", b"directory"] {
                let removed = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
                    let root = fs.root();
                    match name {
                        b"directory" => fs.remove_directory(v, root, name, now),
                        _ => fs.unlink(v, root, name, now),
                    }
                });
                removed.unwrap();
            }
            flush_root(&mut mount);
            let listed = mount.fork();
            let home = replayed(&listed).unwrap();
            expect_clean(&home);
            let [before, after] = [empty, home].map(|fork| {
                let sb = superblock_of(&fork);
                assert_eq!(sb.raw.fs_sujfree, 0);
                let total = sb.summary_total();
                let free = (total.cs_nbfree, total.cs_nffree, total.cs_nifree);
                (free, total.cs_ndir)
            });
            assert_eq!(after, before, "{of:?}, {bytes}");
        }
    }
}

#[test]
fn a_log_file_that_is_damaged_keeps_nobody_out_who_needs_no_log() {
    let device = MemoryDevice::new(SIZE_BYTES);
    layout("ufs2")
        .make(&options(&["lffs_log"]), &device)
        .unwrap();
    let sb = backstitch_ufs::read_superblock(&device).unwrap();
    let inode = sb.log.unwrap().inode;
    let (fragment, at) = sb.inode_place(inode);
    let at = fragment * u64::from(sb.fragment_bytes) + at as u64;
    device
        .write(at, &vec![0; sb.version.inode_bytes()])
        .unwrap();
    let note = Ufs.log_note(&device).unwrap().unwrap();
    assert!(matches!(note.place, Some(NotedPlace::Lost(_))));
    assert!(
        kind(Ordering::LFFS_FILE)
            .find(site(&device))
            .unwrap()
            .is_err()
    );
    Ufs.forget_log(&device).unwrap();
    let note = Ufs.log_note(&device).unwrap().unwrap();
    assert_eq!((note.place, note.left), (None, Left::Clean));
}
