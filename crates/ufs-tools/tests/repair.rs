//! What a repair keeps: files with two owners, names in `lost+found`, superblocks from copies; and
//! what it does with an image that soft updates left.

use crate::support::damages::good_images;
use crate::support::have;
use crate::support::probe::Probe;
use backstitch_device::{MemoryDevice, RecordingDevice, materialise_torn};
use backstitch_layout::GroupNumber;
use backstitch_layout::tools::{Mkfs, Tools};
use backstitch_ufs::format::superblock::{FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES};
use backstitch_ufs::format::{OnDisk, RawSuperblock, Version};
use backstitch_ufs_tools::UfsTools;
use backstitch_ufs_tools::fsck::{self, Code, Kind, Options, Report, SliceSource};
use backstitch_ufs_tools::repair::{Mode, Options as RepairOptions, Outcome, repair};
use std::sync::Arc;

fn check(bytes: &[u8]) -> Report {
    fsck::check_source(&SliceSource(bytes), &Options::default()).unwrap()
}

fn repaired(probe: &Probe, mode: Mode) -> (Outcome, Probe) {
    let device = MemoryDevice::from_bytes(probe.bytes.clone());
    let options = RepairOptions {
        mode,
        guess_geometry: false,
        now_seconds: 1_700_000_000,
        check: Options::default(),
    };
    let outcome = repair(&device, &options).unwrap();
    (outcome, Probe::new(device.snapshot()))
}

fn each(test: impl Fn(Probe)) {
    if have("makefs", "makefs") {
        good_images()
            .iter()
            .for_each(|good| test(Probe::new(good.clone())));
    }
}

/// As a crash leaves it that was managed by soft updates.
fn crashed(probe: &mut Probe) {
    probe.superblock(|raw| {
        raw.fs_clean = 0;
        raw.fs_flags |= FLAG_SOFT_UPDATES as i32;
    });
}

#[test]
fn both_owners_of_a_block_can_be_read() {
    each(|mut probe| {
        let (large, larger) = (probe.path("/dir/large"), probe.path("/dir/sub/larger"));
        let shared = probe.inode(large).pointers[1];
        probe.set_pointer(larger, 1, shared);
        let (_, after) = repaired(&probe, Mode::All);
        for inode in [large, larger] {
            assert_eq!(probe.contents(inode), after.contents(inode));
        }
        assert_ne!(
            after.inode(large).pointers[1],
            after.inode(larger).pointers[1]
        );
    });
}

#[test]
fn what_has_no_name_is_found_in_lost_and_found() {
    each(|mut probe| {
        let (sub, small, fast) = (
            probe.path("/dir/sub"),
            probe.path("/dir/small"),
            probe.path("/fast"),
        );
        for path in ["/dir/sub", "/dir/small", "/fast"] {
            probe.unlink(path);
        }
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        assert_eq!(after.path(&format!("/lost+found/#{sub}")), sub);
        assert_eq!(after.path(&format!("/lost+found/#{fast}")), fast);
        // It has another name in there.
        assert_eq!(after.path(&format!("/lost+found/#{sub}/linked")), small);
        assert_eq!(after.contents(small), b"contents");
        let lost = after.path("/lost+found");
        assert_eq!(after.path(&format!("/lost+found/#{sub}/..")), lost);
    });
}

#[test]
fn lost_and_found_grows() {
    each(|mut probe| {
        let many = probe.path("/many");
        let names = probe.entries(many);
        let count = names.len() - 2;
        for (at, _, name) in names {
            if name != b"." && name != b".." {
                probe.set_u32(at, 0);
            }
        }
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        let found = after.entries(after.path("/lost+found")).len() - 2;
        assert_eq!(found, count);
        assert!(check(&after.bytes).is_clean());
    });
}

#[test]
fn preening_frees_what_soft_updates_leave() {
    each(|mut probe| {
        crashed(&mut probe);
        probe.unlink("/dir/sub");
        probe.unlink("/fast");
        let before = check(&probe.bytes);
        assert_ne!(before.worst(), Some(Kind::Corruption), "{before:#?}");
        let (outcome, after) = repaired(&probe, Mode::Preen);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        let root = after.entries(2);
        assert!(root.iter().all(|(_, _, name)| name != b"lost+found"));
        let report = check(&after.bytes);
        assert!(report.is_clean() && report.notes.is_empty(), "{report:#?}");
        assert_eq!(after.sb.raw.fs_clean, 1);
        // `linked` was a name of this one.
        assert_eq!(after.inode(after.path("/dir/small")).links, 1);
        assert!(before.summary.used_inodes > report.summary.used_inodes + 3);
    });
}

/// A file that was about to be cleared leads to blocks that somebody else has by now.
#[test]
fn what_was_being_removed_is_cleared_where_there_is_damage_as_well() {
    each(|mut probe| {
        crashed(&mut probe);
        let (dead, larger, small) = (
            probe.path("/dir/large"),
            probe.path("/dir/sub/larger"),
            probe.path("/dir/small"),
        );
        probe.unlink("/dir/large");
        let links = probe.inode_at(dead) + probe.offsets().links;
        probe.set_u16(links, 0);
        let taken = probe.inode(larger).pointers[1];
        probe.set_pointer(dead, 1, taken);
        probe.set_pointer(small, 3, 7);
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        assert_eq!(after.inode(dead).mode, 0);
        assert_eq!(after.inode(larger).pointers[1], taken);
        assert!(
            after
                .entries(2)
                .iter()
                .all(|(_, _, name)| name != b"lost+found")
        );
        assert_eq!(after.contents(larger), probe.contents(larger));
    });
}

#[test]
fn preening_does_not_free_what_others_left() {
    each(|mut probe| {
        probe.superblock(|raw| {
            raw.fs_clean = 0;
            raw.fs_flags &= !(FLAG_SOFT_UPDATES as i32);
        });
        probe.unlink("/fast");
        let (outcome, after) = repaired(&probe, Mode::Preen);
        assert!(outcome.after.is_none() && after.bytes == probe.bytes);
        let (outcome, _) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean());
    });
}

/// As a power cut leaves it during our own mount.
fn cut_off(probe: &mut Probe) {
    crashed(probe);
    probe.superblock(|raw| raw.fs_flags |= FLAG_NEEDS_CHECK as i32);
}

#[test]
fn preening_leaves_files_without_a_name_where_a_mount_was_cut_off() {
    each(|mut probe| {
        cut_off(&mut probe);
        let fast = probe.path("/fast");
        probe.unlink("/fast");
        let notes = check(&probe.bytes).notes;
        let told = notes.iter().find(|note| note.code == Code::ErrorsRecorded);
        assert!(
            told.unwrap()
                .what
                .contains("a mount without order was cut off")
        );
        let (outcome, after) = repaired(&probe, Mode::Preen);
        assert!(outcome.after.is_none() && after.bytes == probe.bytes);
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        assert_eq!(after.path(&format!("/lost+found/#{fast}")), fast);
        assert!(after.sb.is_clean());
    });
}

#[test]
fn preening_repairs_counts_where_a_mount_was_cut_off() {
    each(|mut probe| {
        cut_off(&mut probe);
        probe.group(0, |raw| raw.cg_cs.cs_nbfree += 1);
        let (outcome, after) = repaired(&probe, Mode::Preen);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        let report = check(&after.bytes);
        assert!(report.is_clean() && report.notes.is_empty(), "{report:#?}");
        assert!(after.sb.is_clean());
    });
}

#[test]
fn an_image_that_was_not_unmounted_is_marked_as_clean() {
    each(|mut probe| {
        crashed(&mut probe);
        let report = check(&probe.bytes);
        assert!(report.is_clean());
        assert_eq!(report.notes[0].code, Code::NotUnmounted);
        for mode in [Mode::Preen, Mode::All] {
            let (outcome, after) = repaired(&probe, mode);
            assert_eq!(outcome.exit_status(), 1);
            assert!(after.sb.is_clean() && check(&after.bytes).notes.is_empty());
        }
    });
}

#[test]
fn a_lost_superblock_is_taken_from_a_copy() {
    each(|good| {
        let place = good.sb.place as usize;
        let damages: [&dyn Fn(&mut Probe); 4] = [
            &|probe| probe.poke(place, &[0; 1_376]),
            &|probe| probe.poke(place, &[0xa5; 1_376]),
            &|probe| probe.superblock(|raw| raw.fs_ncg += 1),
            &|probe| probe.superblock(|raw| raw.fs_bsize = 12),
        ];
        for (index, damage) in damages.iter().enumerate() {
            let mut probe = good.clone();
            damage(&mut probe);
            let (outcome, after) = repaired(&probe, Mode::All);
            assert!(outcome.is_clean(), "{index}: {:#?}", outcome.after);
            assert!(check(&after.bytes).is_clean(), "{index}");
            assert_eq!(after.sb.fragments, good.sb.fragments);
            let path = "/dir/sub/larger";
            assert_eq!(
                after.contents(after.path(path)),
                good.contents(good.path(path))
            );
        }
    });
}

/// Removes all files of one block of inodes, neither the first two of the group nor its last one;
/// gives the first inode behind it. `None` where no such block holds files of `many` only.
fn empty_block(probe: &mut Probe) -> Option<u32> {
    let per_block = probe.sb.inodes_per_block;
    let names: Vec<(usize, u32, Vec<u8>)> = probe.entries(probe.path("/many"));
    let of_many = |inode: u32| names.iter().skip(2).any(|(_, named, _)| *named == inode);
    let used: Vec<u32> = (2..probe.parsed_group(0).initialised_inodes)
        .filter(|number| probe.inode(*number).mode != 0)
        .collect();
    let last = used.last()? / per_block;
    let block = (2..last).find(|block| {
        let mut inside = used.iter().filter(|inode| **inode / per_block == *block);
        inside.clone().count() > 0 && inside.all(|inode| of_many(*inode))
    })?;
    let len = probe.sb.version.inode_bytes();
    for (at, inode, _) in names.iter().filter(|name| name.1 / per_block == block) {
        probe.set_u32(*at, 0);
        let place = probe.inode_at(*inode);
        probe.poke(place, &vec![0; len]);
    }
    Some((block + 1) * per_block)
}

#[test]
fn inodes_behind_an_emptied_block_are_found() {
    if !have("makefs", "makefs") {
        return;
    }
    let mut tried = 0;
    for image in good_images() {
        let mut probe = Probe::new(image.clone());
        let Some(behind) = empty_block(&mut probe) else {
            continue;
        };
        let (outcome, good) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        let per_block = good.sb.inodes_per_block;
        let damages: [&dyn Fn(&mut Probe); 2] =
            [&|probe| probe.group(0, |raw| raw.cg_magic += 1), &|probe| {
                probe.group(0, |raw| raw.cg_initediblk = 2 * per_block)
            }];
        for damage in damages {
            let mut damaged = good.clone();
            damage(&mut damaged);
            let (outcome, after) = repaired(&damaged, Mode::All);
            assert!(outcome.is_clean(), "{:#?}", outcome.after);
            let names = |probe: &Probe| {
                let entries = probe.entries(probe.path("/many")).into_iter();
                entries.map(|entry| (entry.1, entry.2)).collect::<Vec<_>>()
            };
            assert_eq!(names(&after), names(&good));
            for (inode, _) in names(&good).into_iter().filter(|name| name.0 >= behind) {
                assert_eq!(after.contents(inode), good.contents(inode));
                tried += 1;
            }
        }
    }
    assert!(tried > 0, "no image has files behind such a block");
}

#[test]
fn a_root_of_no_type_keeps_its_names() {
    each(|good| {
        for mode in [0, 0o070_755, 0o100_755] {
            let mut probe = good.clone();
            let at = probe.inode_at(2) + probe.offsets().mode;
            probe.set_u16(at, mode);
            let (outcome, after) = repaired(&probe, Mode::All);
            assert!(outcome.is_clean(), "{mode:o}: {:#?}", outcome.after);
            assert_eq!(after.entries(2), good.entries(2), "{mode:o}");
            assert_eq!(after.inode(2).mode, 0o040_755, "{mode:o}");
            assert_eq!(after.inode(2).pointers, good.inode(2).pointers);
        }
    });
}

#[test]
fn a_root_whose_block_is_no_directory_is_made_anew() {
    each(|mut probe| {
        let many = probe.path("/many");
        let at = probe.inode_at(2) + probe.offsets().mode;
        probe.set_u16(at, 0o100_755);
        let (block, _) = probe.direct_blocks(2)[0];
        probe.poke(block, &[0xa5; 512]);
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.after);
        assert_eq!(after.path(&format!("/lost+found/#{many}")), many);
    });
}

#[test]
fn losses_are_told() {
    each(|mut probe| {
        let (at, _) = probe.entry("/dir/small");
        let free = probe.sb.inodes() - 1;
        probe.set_u32(at, free);
        let large = probe.path("/dir/large");
        probe.set_pointer(large, 2, u64::MAX);
        let (outcome, _) = repaired(&probe, Mode::All);
        let losses = outcome.losses.unwrap();
        assert_eq!((losses.names_gone, losses.pointers_cleared), (0, 1));
        let mut probe = probe.clone();
        probe.unlink("/fast");
        let (outcome, _) = repaired(&probe, Mode::All);
        assert_eq!(outcome.losses.unwrap().moved_to_lost_found, 1);
    });
}

/// Shows states that a power cut in a repair can leave: what was flushed, and of the rest any
/// sectors.
fn cuts(probe: &Probe, mode: Mode, mut visit: impl FnMut(Probe)) {
    let device = Arc::new(MemoryDevice::from_bytes(probe.bytes.clone()));
    let recording = RecordingDevice::new(device);
    let options = RepairOptions {
        mode,
        guess_geometry: false,
        now_seconds: 1_700_000_000,
        check: Options::default(),
    };
    assert!(repair(&recording, &options).unwrap().is_clean());
    let records = recording.records();
    let mut random = fastrand::Rng::with_seed(probe.sb.fragments);
    let step = records.len().div_ceil(40);
    for cut in (0..=records.len()).step_by(step) {
        let mut bytes = probe.bytes.clone();
        materialise_torn(&mut bytes, &records, cut, 512, &mut |_, _| random.bool());
        visit(Probe::new(bytes));
    }
}

#[test]
fn a_preening_that_is_cut_can_be_preened_again() {
    each(|mut probe| {
        crashed(&mut probe);
        probe.unlink("/dir/sub");
        probe.unlink("/fast");
        let many = probe.path("/many");
        for (at, _, _) in probe.entries(many).into_iter().skip(2).take(40) {
            probe.set_u32(at, 0);
        }
        cuts(&probe, Mode::Preen, |cut| {
            let report = check(&cut.bytes);
            let words = format!("{:#?}", report.findings);
            assert_ne!(report.worst(), Some(Kind::Corruption), "{words}");
            let (outcome, after) = repaired(&cut, Mode::Preen);
            assert!(outcome.is_clean() && check(&after.bytes).is_clean());
        });
    });
}

#[test]
fn a_repair_that_is_cut_is_not_trusted_before_it_is_finished() {
    each(|mut probe| {
        crashed(&mut probe);
        probe.unlink("/dir/sub");
        let larger = probe.path("/dir/large");
        probe.set_pointer(larger, 2, u64::MAX);
        let before = Probe::new(probe.bytes.clone()).sb;
        cuts(&probe, Mode::All, |cut| {
            let is_old = cut.sb.flags == before.flags;
            let is_marked = cut.sb.flags & FLAG_NEEDS_CHECK != 0;
            let is_done = cut.sb.is_clean();
            assert!(is_old || is_marked || is_done);
            let report = check(&cut.bytes);
            assert!(!is_done || report.is_clean(), "{:#?}", report.findings);
            let (outcome, after) = repaired(&cut, Mode::All);
            assert!(outcome.is_clean() && check(&after.bytes).is_clean());
        });
    });
}

/// UFS1 of kernels from before UFS2: clean, it is left as it is; else it is repaired, and its superblock
/// brought up to date, also where it is taken from a copy.
#[test]
fn a_superblock_from_before_ufs2_is_repaired() {
    each(|mut probe| {
        if probe.sb.version != Version::Ufs1 {
            return;
        }
        let old = |raw: &mut RawSuperblock| {
            (raw.fs_maxbsize, raw.fs_sblockloc, raw.fs_spare1) = (0, 0, [-1_024, 10]);
            (raw.fs_size, raw.fs_dsize, raw.fs_csaddr, raw.fs_time) = (0, 0, 0, 0);
            (raw.fs_cstotal, raw.fs_metaspace) = (Default::default(), 0);
            (raw.fs_flags, raw.fs_old_flags) = (0, 0);
        };
        probe.superblock(old);
        let last = GroupNumber(probe.sb.groups - 1);
        for copy in [GroupNumber(0), last] {
            let at = probe.fragment(probe.sb.superblock_copy(copy));
            let mut raw = RawSuperblock::decode(probe.sb.order, &probe.bytes[at..]);
            old(&mut raw);
            raw.encode(probe.sb.order, &mut probe.bytes[at..]);
        }
        let report = check(&probe.bytes);
        assert!(report.is_clean(), "{:#?}", report.findings);
        for mode in [Mode::Preen, Mode::All] {
            let (outcome, after) = repaired(&probe, mode);
            assert!(outcome.is_clean() && after.bytes == probe.bytes);
        }
        let contents = probe.contents(probe.path("/dir/large"));
        let damages: [fn(&mut Probe); 3] = [
            |probe| probe.superblock(|raw| raw.fs_clean = 0),
            |probe| probe.group(0, |raw| raw.cg_cs.cs_nbfree += 1),
            |probe| {
                let place = probe.sb.place as usize;
                probe.bytes[place..place + 1_376].fill(0);
            },
        ];
        for (number, damage) in damages.iter().enumerate() {
            let mut damaged = probe.clone();
            damage(&mut damaged);
            let (outcome, after) = repaired(&damaged, Mode::All);
            assert!(outcome.is_clean(), "{number}: {:#?}", outcome.repairs);
            assert!(!after.sb.is_old && after.sb.is_clean(), "{number}");
            assert!(check(&after.bytes).is_clean(), "{number}");
            assert_eq!(after.contents(after.path("/dir/large")), contents);
        }
    });
}

/// As a crash leaves it while a superblock is brought up to date: nothing that preening would not repair.
#[test]
fn an_upgrade_that_is_cut_is_finished() {
    each(|good| {
        if good.sb.version != Version::Ufs1 {
            return;
        }
        for unfinish in [
            (|raw| raw.fs_maxbsize = 0) as fn(&mut RawSuperblock),
            |raw| raw.fs_old_flags = 0,
        ] {
            let mut probe = good.clone();
            probe.superblock(unfinish);
            let report = check(&probe.bytes);
            assert_eq!(report.worst(), Some(Kind::Count), "{:#?}", report.findings);
            let (outcome, after) = repaired(&probe, Mode::Preen);
            assert!(outcome.is_clean() && check(&after.bytes).is_clean());
            assert!(!after.sb.needs_mark());
        }
    });
}

/// Kernels of FreeBSD and NetBSD write the time of a group in both places, whatever the version.
#[test]
fn both_times_of_a_group_may_be_set() {
    each(|mut probe| {
        probe.group(0, |raw| (raw.cg_old_time, raw.cg_time) = (5, 6));
        assert!(check(&probe.bytes).is_clean());
    });
}

/// Where another file system was before its copies may still be there, in front of those that count.
#[test]
fn copies_of_an_earlier_file_system_do_not_count() {
    let make = |device: &MemoryDevice, uuid: u8, (block, fragment): (u32, u32), time: u64| {
        let mkfs = Mkfs {
            block_size: Some(block),
            fragment_size: Some(fragment),
            features: vec!["ufs2".to_owned()],
            ..Mkfs::new([uuid; 16], [9; 16], time)
        };
        UfsTools.make(&mkfs, device).unwrap();
    };
    for sizes in [
        [(16_384, 4_096), (32_768, 4_096)],
        [(16_384, 2_048), (32_768, 4_096)],
        [(4_096, 512), (65_536, 8_192)],
        [(65_536, 8_192), (4_096, 512)],
    ] {
        let earlier = MemoryDevice::new(64 << 20);
        make(&earlier, 1, sizes[0], 1_600_000_000);
        let earlier = earlier.snapshot();
        let device = MemoryDevice::new(64 << 20);
        make(&device, 2, sizes[1], 1_700_000_000);
        let mut probe = Probe::new(device.snapshot());
        // The earlier one's copy, wherever the later one has nothing of its own, as other makers leave it.
        let old = Probe::new(earlier.clone());
        let at = old.fragment(old.sb.superblock_copy(GroupNumber(0)));
        if probe.bytes[at..at + 8_192].iter().all(|byte| *byte == 0) {
            probe.bytes[at..at + 8_192].copy_from_slice(&earlier[at..at + 8_192]);
        }
        assert!(check(&probe.bytes).is_clean(), "{sizes:?}");
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.repairs.is_empty(), "{:#?}", outcome.repairs);
        assert!(after.bytes == probe.bytes, "{sizes:?}: changed");
        // A damaged number is taken from the right copies, and so is a lost superblock.
        let mut damaged = probe.clone();
        damaged.superblock(|raw| raw.fs_sbsize += 512);
        let (outcome, after) = repaired(&damaged, Mode::All);
        assert!(outcome.is_clean(), "{sizes:?}: {:#?}", outcome.repairs);
        assert_eq!(after.sb.raw.fs_sbsize, probe.sb.raw.fs_sbsize);
        let place = probe.sb.place as usize;
        damaged.bytes[place..place + 8_192].fill(0);
        let (outcome, after) = repaired(&damaged, Mode::All);
        assert!(outcome.is_clean(), "{sizes:?}: {:#?}", outcome.repairs);
        assert_eq!(after.sb.raw.fs_id, probe.sb.raw.fs_id, "{sizes:?}");
    }
}

/// With one group nothing but the group itself tells which of the two is right.
#[test]
fn a_single_copy_that_is_wrong_is_not_believed() {
    let device = MemoryDevice::new(200 << 10);
    let mkfs = Mkfs {
        block_size: Some(4_096),
        fragment_size: Some(512),
        features: vec!["ufs2".to_owned()],
        ..Mkfs::new([1; 16], [9; 16], 1_700_000_000)
    };
    UfsTools.make(&mkfs, &device).unwrap();
    let good = Probe::new(device.snapshot());
    assert_eq!(good.sb.groups, 1);
    let at = good.fragment(good.sb.superblock_copy(GroupNumber(0)));
    for wrong in [
        (|raw| raw.fs_ipg -= raw.fs_inopb) as fn(&mut RawSuperblock),
        |raw| raw.fs_sbsize += 512,
        |raw| raw.fs_iblkno += raw.fs_frag,
    ] {
        let mut probe = good.clone();
        let mut raw = RawSuperblock::decode(probe.sb.order, &probe.bytes[at..]);
        wrong(&mut raw);
        raw.encode(probe.sb.order, &mut probe.bytes[at..]);
        let (outcome, after) = repaired(&probe, Mode::All);
        assert!(outcome.is_clean(), "{:#?}", outcome.repairs);
        let same = |probe: &Probe| (probe.sb.inodes_per_group, probe.sb.raw.fs_iblkno);
        assert_eq!(same(&after), same(&good));
    }
}

/// A wrong number in the superblock is taken from the copies, and nothing of the tree is lost by it.
#[test]
fn a_wrong_number_does_not_lose_the_tree() {
    type Change = fn(&mut RawSuperblock);
    let wrong: [(&str, Change); 12] = [
        ("fs_fpg", |raw| raw.fs_fpg += raw.fs_frag),
        ("fs_fpg, less", |raw| raw.fs_fpg -= raw.fs_frag),
        ("fs_csaddr", |raw| raw.fs_csaddr += 1),
        ("fs_csaddr, a block", |raw| {
            raw.fs_csaddr += i64::from(raw.fs_frag)
        }),
        ("fs_cssize", |raw| raw.fs_cssize *= 2),
        ("fs_size", |raw| raw.fs_size -= i64::from(raw.fs_frag)),
        ("fs_ipg", |raw| raw.fs_ipg -= raw.fs_inopb),
        ("fs_cblkno", |raw| raw.fs_cblkno += raw.fs_frag),
        ("fs_iblkno", |raw| raw.fs_iblkno += raw.fs_frag),
        ("fs_dblkno", |raw| raw.fs_dblkno += raw.fs_frag),
        ("fs_sblkno", |raw| raw.fs_sblkno += raw.fs_frag),
        ("fs_sbsize", |raw| raw.fs_sbsize += 512),
    ];
    let mut images: Vec<Probe> = Vec::new();
    if have("makefs", "makefs") {
        images.extend(good_images().iter().map(|good| Probe::new(good.clone())));
    }
    assert!(images.is_empty() || images.iter().any(|probe| probe.sb.groups > 1));
    for (number, good) in images.iter().enumerate() {
        let many = good.entries(good.path("/many")).len();
        let large = good.contents(good.path("/dir/large"));
        for (name, change) in wrong {
            let mut probe = good.clone();
            probe.superblock(change);
            let (outcome, after) = repaired(&probe, Mode::All);
            let what = format!("image {number}, {name}: {:#?}", outcome.repairs);
            assert!(outcome.is_clean(), "{what}");
            let entries = |path| after.entries(after.path(path)).len();
            assert_eq!(
                (entries("/many"), entries("/")),
                (many, good.entries(2).len()),
                "{what}"
            );
            assert!(after.contents(after.path("/dir/large")) == large, "{what}");
        }
    }
}

#[test]
fn preening_leaves_an_image_with_snapshots_alone() {
    each(|mut probe| {
        crashed(&mut probe);
        probe.superblock(|raw| raw.fs_snapinum[0] = 5);
        let (outcome, after) = repaired(&probe, Mode::Preen);
        assert!(outcome.after.is_none() && after.bytes == probe.bytes);
    });
}
