//! UFS: which images are trusted that were not unmounted, and how they are recovered.

use crate::ufs_use::{image, make, make_file, new, open, pending, superblock_of};
use backstitch_crash::{Campaign, Fork, ImageOptions, Without, Workload, parse_script, standard};
use backstitch_crash_core::mount::{Engine, Mount, Nobody};
use backstitch_formats::Layout;
use backstitch_layout::tools::{CheckOptions, Mkfs};
use backstitch_layout::{
    BlockNumber, Error, FileType, GroupNumber, InodeNumber, SetAttributes, Timestamp, flags,
};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Operation;
use backstitch_rules::Id;
use backstitch_rules::watch::{self, Form};
use backstitch_store::Optimisations;
use backstitch_ufs::format::superblock::offset::{
    CLEAN, FLAGS, MOUNT_TIME, PENDING_BLOCKS, PENDING_INODES,
};
use backstitch_ufs::format::superblock::{
    FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES, FLAG_TRIM, FLAG_UNCLEAN,
};
use backstitch_ufs::format::{CylinderGroup, Inode, OnDisk, RawInode2, attributes};
use backstitch_ufs::rules::Rule;

/// Both versions, with both sizes of fragments; a block has eight.
const IMAGES: [(&str, u32); 4] = [("ufs1", 512), ("ufs1", 1024), ("ufs2", 512), ("ufs2", 1024)];

/// An image whose power was cut while in use, with a directory that is on the disk.
fn cut(ordering: Ordering, of: (&str, u32)) -> Fork {
    let mut mount = open(image(of).make().unwrap(), ordering);
    make(&mut mount, FileType::Directory, b"directory");
    mount.drain(&mut Nobody).unwrap();
    mount.fork()
}

/// Mounts what a power cut left, reclaims all of it, and checks that nothing is wrong then.
fn recover(image: Fork) -> Fork {
    let mut mount = open(image, Ordering::SOFT);
    assert_eq!(mount.fs.read_only_reason(), None);
    mount.unmount(&mut Nobody).unwrap();
    let image = mount.fork();
    assert!(superblock_of(&image).is_clean());
    let report = image.kind().tools().check(&image, &CheckOptions::QUICK);
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:?}");
    image
}

fn with_rule<T>(rule: Rule, holds: bool, body: impl FnOnce() -> T) -> T {
    watch::switch_off((!holds).then_some((rule.into(), Form::Whole)));
    let done = body();
    watch::switch_off(None);
    done
}

#[test]
fn an_image_in_use_is_marked_and_recovered() {
    for of in IMAGES {
        let at_rest = superblock_of(&image(of).make().unwrap()).flags;
        let image = cut(Ordering::SOFT, of);
        let sb = superblock_of(&image);
        // FreeBSD runs `fsck -p` on such an image.
        let marks = FLAG_NEEDS_CHECK | FLAG_SOFT_UPDATES;
        assert_eq!((sb.raw.fs_clean, sb.flags & marks), (0, marks), "{of:?}");
        assert!(sb.is_left_in_order() && !sb.is_clean());
        let mut mount = open(image, Ordering::SOFT);
        assert_eq!(mount.fs.read_only_reason(), None);
        mount.unmount(&mut Nobody).unwrap();
        let image = mount.fork();
        let sb = superblock_of(&image);
        assert_eq!((sb.raw.fs_clean, sb.flags), (1, at_rest), "{of:?}");
        assert_eq!(sb.record, None);
        let report = image.kind().tools().check(&image, &CheckOptions::QUICK);
        assert!(report.unwrap().is_clean());
    }
}

/// The attributes of an inode of UFS2 are kept like its contents, in all their blocks.
#[test]
fn attributes_stay_with_their_inode() {
    for (of, bytes) in [(512, 300), (512, 4_096), (512, 5_100), (1_024, 12_000)] {
        let of = ("ufs2", of);
        let mut mount = open(image(of).make().unwrap(), Ordering::SOFT);
        let inode = make_file(&mut mount, b"file", bytes);
        mount.drain(&mut Nobody).unwrap();
        let mut image = mount.fork();
        // Turns the contents into attributes, since nothing here can write attributes.
        let sb = superblock_of(&image);
        let (fragment, at) = sb.inode_place(inode);
        let at = fragment * u64::from(sb.fragment_bytes) + at as u64;
        let found = image.to_bytes()[at as usize..][..RawInode2::SIZE].to_vec();
        let before = RawInode2::decode(sb.order, &found);
        let mut raw = before.clone();
        raw.di_size = 0;
        raw.di_db = [0; 12];
        raw.di_extsize = bytes as u32;
        raw.di_extb = [before.di_db[0], before.di_db[1]];
        image.write(at, &raw.to_bytes(sb.order)).unwrap();
        // One attribute, up to where no further one has room.
        let value = vec![7; bytes / 8 * 8 - 8];
        let encoded = attributes::encode(sb.order, 1, b"n", &value);
        assert_eq!(encoded.len(), bytes / 8 * 8);
        let blocks = encoded.chunks(sb.block_bytes as usize);
        for (place, part) in raw.di_extb.into_iter().zip(blocks) {
            let at = place * u64::from(sb.fragment_bytes);
            image.write(at, part).unwrap();
        }
        let recovered = recover(image);
        let found = recovered.to_bytes()[at as usize..][..RawInode2::SIZE].to_vec();
        let after = Inode::parse(sb.version, sb.order, &found).unwrap();
        let sectors = (bytes as u64).next_multiple_of(of.1.into()) / 512;
        assert_eq!(after.sectors, sectors, "{of:?}, {bytes} bytes");
        assert_eq!(
            after.attribute_pointers, raw.di_extb,
            "{of:?}, {bytes} bytes"
        );
        // The attributes are freed with the inode.
        let mut mount = open(recovered, Ordering::SOFT);
        let gone = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
            let root = fs.root();
            fs.unlink(v, root, b"file", now)
        });
        gone.unwrap();
        mount.drain(&mut Nobody).unwrap();
        recover(mount.fork());
    }
}

/// If a block has a single fragment, a group may begin within a byte of the reclaim's bitmap.
#[test]
fn groups_of_any_number_of_fragments_are_reclaimed() {
    let size_bytes = 16 << 20;
    for (kind, per_group) in [("ufs1", 701), ("ufs2", 701), ("ufs2", 997), ("ufs2", 702)] {
        let mkfs = Mkfs {
            block_size: Some(4_096),
            fragment_size: Some(4_096),
            blocks_per_group: Some(per_group),
            inodes: Some(256),
            device_is_zero: true,
            ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
        };
        let layout = kind.parse::<Layout>().expect("a type that is registered");
        let image = Fork::formatted(layout, &mkfs, size_bytes, 4_096).unwrap();
        let sb = superblock_of(&image);
        let is_odd = !sb.fragments_per_group.is_multiple_of(8);
        assert!(
            is_odd && sb.groups > 3,
            "{kind}: {}",
            sb.fragments_per_group
        );
        let mut mount = open(image, Ordering::SOFT);
        make_file(&mut mount, b"file", 9 << 20);
        mount.drain(&mut Nobody).unwrap();
        let mut image = mount.fork();
        let free = |image: &Fork| {
            let total = superblock_of(image).summary_total();
            (total.cs_nbfree, total.cs_nffree)
        };
        let expected = free(&recover(image.clone()));
        // Half of the free fragments of each group leak.
        for group in GroupNumber::all(sb.groups) {
            let at = (sb.group_header(group) * u64::from(sb.fragment_bytes)) as usize;
            let bytes = image.to_bytes();
            let bytes = &bytes[at..at + sb.group_bytes as usize];
            let map = CylinderGroup::parse(&sb, group, bytes)
                .unwrap()
                .fragment_map();
            let map_at = map.as_ptr() as usize - bytes.as_ptr() as usize;
            let used: Vec<u8> = map.iter().map(|free| free & 0x55).collect();
            image.write((at + map_at) as u64, &used).unwrap();
        }
        assert_eq!(free(&recover(image)), expected, "{kind}, {per_group}");
    }
}

/// NetBSD sets the mark to 2 while it has a clean image mounted.
#[test]
fn only_what_says_that_it_is_clean_is() {
    for (clean, is_writable) in [(1_u8, true), (2, false), (3, false)] {
        let mut image = image(IMAGES[2]).make().unwrap();
        let sb = superblock_of(&image);
        image.write(sb.place + CLEAN as u64, &[clean]).unwrap();
        assert_eq!(superblock_of(&image).is_clean(), is_writable, "{clean}");
        let report = image.kind().tools().check(&image, &CheckOptions::QUICK);
        assert_eq!(report.unwrap().notes.is_empty(), is_writable, "{clean}");
        let mount = open(image, Ordering::SOFT);
        assert_eq!(
            mount.fs.read_only_reason().is_none(),
            is_writable,
            "{clean}"
        );
    }
}

#[test]
fn an_image_with_unknown_flags_is_not_written_to() {
    let mut image = image(IMAGES[2]).make().unwrap();
    let sb = superblock_of(&image);
    let flags = sb.order.bytes_of_u32(sb.flags | 0x4_0800);
    image.write(sb.place + FLAGS as u64, &flags).unwrap();
    let mount = open(image, Ordering::SOFT);
    let why = mount
        .fs
        .read_only_reason()
        .expect("it is read-only")
        .to_owned();
    assert!(why.contains("0x40800"), "{why}");
}

/// If flags changed since a mount of ours, another program had the image: a checker, if the mark
/// that asks for a check is gone. Flags that an administrator set since then are kept.
#[test]
fn flags_from_after_the_record_are_kept() {
    let mut image = cut(Ordering::SOFT, IMAGES[2]);
    let sb = superblock_of(&image);
    assert!(sb.record.is_some());
    for other in [FLAG_TRIM, FLAG_UNCLEAN] {
        let mut image = image.clone();
        let flags = sb.order.bytes_of_u32(sb.flags | other);
        image.write(sb.place + FLAGS as u64, &flags).unwrap();
        assert_eq!(superblock_of(&image).record, None);
        assert!(open(image, Ordering::SOFT).fs.read_only_reason().is_some());
    }
    // As `fsck_ffs` and `tunefs` leave the image: with its time unchanged.
    let flags = FLAG_TRIM | FLAG_SOFT_UPDATES;
    let bytes = sb.order.bytes_of_u32(flags);
    image.write(sb.place + FLAGS as u64, &bytes).unwrap();
    image.write(sb.place + CLEAN as u64, &[1]).unwrap();
    assert_eq!(superblock_of(&image).record, None);
    assert!(superblock_of(&image).is_clean());
    let mut mount = open(image, Ordering::SOFT);
    mount.unmount(&mut Nobody).unwrap();
    assert_eq!(superblock_of(&mount.fork()).flags, flags);
}

/// FreeBSD marks an image that it mounts although it is not clean, and counts what it has still to
/// free.
#[test]
fn what_was_recovered_wholly_has_no_marks() {
    let mut image = cut(Ordering::SOFT, IMAGES[2]);
    let sb = superblock_of(&image);
    let mut put = |at: usize, bytes: &[u8]| image.write(sb.place + at as u64, bytes).unwrap();
    put(
        MOUNT_TIME,
        &sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1),
    );
    put(
        FLAGS,
        &sb.order.bytes_of_u32(FLAG_SOFT_UPDATES | FLAG_UNCLEAN),
    );
    put(PENDING_BLOCKS, &sb.order.bytes_of_u64(64));
    put(PENDING_INODES, &sb.order.bytes_of_u32(2));
    let sb = superblock_of(&recover(image));
    assert_eq!(sb.flags, FLAG_SOFT_UPDATES);
    assert_eq!((sb.raw.fs_pendingblocks, sb.raw.fs_pendinginodes), (0, 0));
}

/// A mount that keeps no order leaves an image that no later mount writes to before a check.
#[test]
fn an_image_without_order_is_not_believed() {
    let image = cut(Ordering::ASYNC, IMAGES[3]);
    assert!(!superblock_of(&image).is_left_in_order());
    let mount = open(image, Ordering::SOFT);
    assert!(mount.fs.read_only_reason().is_some());
}

/// FreeBSD's soft updates leave no record, and no mark that asks for a check.
#[test]
fn what_foreign_soft_updates_left_is_believed() {
    let mut image = cut(Ordering::SOFT, IMAGES[2]);
    let sb = superblock_of(&image);
    let time = sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1);
    let flags = sb.order.bytes_of_u32(FLAG_SOFT_UPDATES);
    image.write(sb.place + MOUNT_TIME as u64, &time).unwrap();
    image.write(sb.place + FLAGS as u64, &flags).unwrap();
    assert_eq!(open(image, Ordering::SOFT).fs.read_only_reason(), None);
}

/// Whether an image is trusted that another system mounted after our last mount and did not
/// unmount.
fn believes_in_another_mount() -> bool {
    let mut image = cut(Ordering::SOFT, IMAGES[3]);
    let sb = superblock_of(&image);
    let time = sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1);
    image.write(sb.place + MOUNT_TIME as u64, &time).unwrap();
    open(image, Ordering::SOFT).fs.read_only_reason().is_none()
}

#[test]
fn the_record_of_an_earlier_mount_is_not_believed() {
    let rule = Rule::RecordIsOfLastMount;
    assert!(!with_rule(rule, true, believes_in_another_mount));
    assert!(with_rule(rule, false, believes_in_another_mount));
}

/// Whether an image is marked clean after an unmount, with or without the reclaim of what a crash
/// left.
fn is_called_clean(is_reclaimed: bool) -> bool {
    let mut mount = open(cut(Ordering::SOFT, IMAGES[3]), Ordering::SOFT);
    if is_reclaimed {
        mount.unmount(&mut Nobody).unwrap();
    } else {
        let step = Operation::Administration;
        mount.drain(&mut Nobody).unwrap();
        mount
            .run(step, &mut Nobody, |fs, v, now| fs.write_counters(v, now))
            .unwrap();
        mount
            .run(step, &mut Nobody, |fs, v, now| fs.mark_clean(v, now))
            .unwrap();
        mount.drain(&mut Nobody).unwrap();
    }
    let sb = superblock_of(&mount.fork());
    sb.raw.fs_clean != 0
}

#[test]
fn an_image_with_what_a_crash_left_is_not_called_clean() {
    let rule = Rule::CleanOnlyAfterReclaim;
    assert!(with_rule(rule, true, || is_called_clean(true)));
    assert!(!with_rule(rule, true, || is_called_clean(false)));
    assert!(with_rule(rule, false, || is_called_clean(false)));
}

/// Whether a state is found that no crash may leave.
fn is_damaged(of: (&str, u32), ordering: Ordering, text: &str, off: Option<Id>) -> bool {
    is_image_damaged(image(of), ordering, text, off)
}

fn is_image_damaged(image: ImageOptions, ordering: Ordering, text: &str, off: Option<Id>) -> bool {
    let campaign = Campaign {
        image,
        most_states_each: 20_000,
        ..standard::campaign(ordering, 1, 2)
    };
    finds_damage(campaign, text, off)
}

fn finds_damage(campaign: Campaign, text: &str, off: Option<Id>) -> bool {
    let workload = Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("it can be read"),
        setup: 0,
    };
    let campaign = Campaign {
        workloads: vec![workload],
        most_failures: 1,
        ..campaign
    };
    let results = campaign.run(&Without(off)).expect("the engine runs");
    !results.failures.is_empty()
}

/// A hole beyond the old end is filled in the same second in which the file became longer, and no
/// block is in fragments, so the two changes of the inode differ only in the size and the pointer.
#[test]
fn a_pointer_comes_with_the_size_that_it_is_within() {
    let text = "mkdir A; creat A/foo; write A/foo 0 8192; sync; truncate A/foo 40000; \
                write A/foo 20000 3000";
    let rule = Some(Rule::PointersGoWithSize.id());
    for of in IMAGES {
        assert!(!is_damaged(of, Ordering::SOFT, text, None), "{of:?}");
        assert!(is_damaged(of, Ordering::SOFT, text, rule), "{of:?}");
    }
}

/// Mounts, and changes that they make, of images for which only our record says what a crash may
/// leave: the flags do not say that FreeBSD's soft updates had the image.
#[test]
fn the_record_is_there_for_as_long_as_the_image_is_not_clean() {
    let text = "mkdir A; creat A/f; sync; remount; creat A/g; sync; remount; creat A/h";
    for rule in [Rule::CleanTakenAfterRecord, Rule::RecordKeptUntilClean] {
        for of in IMAGES {
            let image = ImageOptions {
                features: &["^soft_updates"],
                ..image(of)
            };
            let is_damaged = |off| is_image_damaged(image, Ordering::SOFT, text, off);
            assert!(!is_damaged(None), "{of:?}");
            assert!(is_damaged(Some(rule.id())), "{of:?}, {rule:?}");
        }
    }
}

/// The number of initialised inodes in a group's header.
fn initialised_inodes(image: &Fork, group: GroupNumber) -> u32 {
    let sb = superblock_of(image);
    let at = sb.group_header(group) as usize * sb.fragment_bytes as usize;
    let bytes = image.to_bytes();
    let header = &bytes[at..at + sb.group_bytes as usize];
    let header = CylinderGroup::parse(&sb, group, header);
    header.unwrap().initialised_inodes
}

/// An image in which inodes that are not initialised look like the root.
fn with_leftovers(of: (&str, u32)) -> Fork {
    let mut image = image(of).make().unwrap();
    let sb = superblock_of(&image);
    let (fragment, at) = sb.inode_place(backstitch_ufs::format::ROOT_INODE);
    let at = fragment as usize * sb.fragment_bytes as usize + at;
    let bytes = image.to_bytes();
    let root = &bytes[at..at + RawInode2::SIZE];
    for number in GroupNumber::all(sb.groups) {
        let first = initialised_inodes(&image, number);
        assert!(first < sb.inodes_per_group);
        let place = sb.group_inodes(number) * u64::from(sb.fragment_bytes);
        for index in first..sb.inodes_per_group {
            let at = place + u64::from(index) * RawInode2::SIZE as u64;
            image.write(at, root).unwrap();
        }
    }
    image
}

/// UFS2 initialises inodes when they are needed. What was on the disk there must not be taken for
/// inodes.
#[test]
fn inodes_are_zeros_before_they_count() {
    for of in [("ufs2", 512), ("ufs2", 1024)] {
        let image = with_leftovers(of);
        let sb = superblock_of(&image);
        // A block of inodes is initialised before the block before it is in use.
        let first = initialised_inodes(&image, GroupNumber(0));
        let before = first - sb.inodes_per_block + 1;
        let made: Vec<String> = (3..before).map(|n| format!("creat {n}")).collect();
        let text = format!("{}; sync;; creat a; creat b", made.join("; "));
        for off in [None, Some(Rule::InitialisedAfterZeros.id())] {
            let campaign = Campaign {
                base: Some(image.clone()),
                image: self::image(of),
                most_states_each: 1_500,
                ..standard::campaign(Ordering::SOFT, 1, 2)
            };
            let is_damaged = finds_damage(campaign, &text, off);
            assert_eq!(is_damaged, off.is_some(), "{of:?}, {off:?}");
        }
    }
}

/// Makes files until a block of inodes is initialised for them. Returns whether that block is to be
/// written.
fn writes_new_inodes(image: Fork) -> bool {
    let mut mount = open(image, Ordering::SOFT);
    let start = mount.fork();
    let (sb, first) = (
        superblock_of(&start),
        initialised_inodes(&start, GroupNumber(0)),
    );
    let mut names = (0..).map(|number| format!("{number}"));
    let mut next = |mount: &mut Mount| {
        let name = names.next().unwrap();
        make(mount, FileType::Regular, name.as_bytes()).0
    };
    // The block behind is initialised with the first inode of the last block that was.
    while next(&mut mount) + sb.inodes_per_block <= first {}
    let (fragment, _) = sb.inode_place(InodeNumber(first));
    let fragments = BlockNumber(fragment).run(sb.fragments_per_block.into());
    let writes = fragments
        .into_iter()
        .any(|f| !pending(&mut mount, f).is_empty());
    mount.unmount(&mut Nobody).unwrap();
    assert!(initialised_inodes(&mount.fork(), GroupNumber(0)) > first);
    writes
}

/// Changes of the inodes in a block that is zeroed would have to wait for it, with undo data.
#[test]
fn zeros_are_not_written_over_zeros() {
    for of in [("ufs2", 512), ("ufs2", 1024)] {
        assert!(!writes_new_inodes(image(of).make().unwrap()), "{of:?}");
        assert!(writes_new_inodes(with_leftovers(of)), "{of:?}");
    }
}

/// A file that is open as its last name goes is cleared on the disk when it is closed. Until then
/// it counts no name all the same, and cannot get one; after a crash it is gone.
#[test]
fn an_open_file_without_a_name_counts_none() {
    for of in IMAGES {
        let mut mount = open(image(of).make().unwrap(), Ordering::SOFT);
        let free = mount.fs.statistics().free_blocks;
        let file = make_file(&mut mount, b"file", 20_000);
        mount.fs.hold(file);
        mount.drain(&mut Nobody).unwrap();
        let before = mount.look(|fs, v, _| fs.attributes(v, file)).unwrap();
        let removed = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
            let (root, seconds) = (fs.root(), now.seconds + 60);
            fs.unlink(v, root, b"file", Timestamp { seconds, ..now })
        });
        removed.unwrap();
        let after = mount.look(|fs, v, _| fs.attributes(v, file)).unwrap();
        assert_eq!((before.links, after.links), (1, 0), "{of:?}");
        let later_seconds = after.changed.seconds - before.changed.seconds;
        assert!(later_seconds >= 60, "{of:?}: {later_seconds}");
        assert!(mount.look(|fs, v, _| fs.find(v, file)).is_err(), "{of:?}");
        let linked = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
            let root = fs.root();
            fs.link(v, file, root, b"again", now)
        });
        assert!(matches!(linked, Err(Error::NotFound)), "{of:?}");
        mount.drain(&mut Nobody).unwrap();
        let crashed = open(recover(mount.fork()), Ordering::SOFT);
        assert_eq!(crashed.fs.statistics().free_blocks, free, "{of:?}");
        mount.fs.release(file);
        mount.unmount(&mut Nobody).unwrap();
        assert_eq!(mount.fs.statistics().free_blocks, free, "{of:?}");
    }
}

/// Makes files until they use inodes that were not initialised before and are no zeros, and writes
/// only the last file and what it waits for. Returns whether another file can be made after a crash.
fn can_go_on(of: (&str, u32)) -> bool {
    let engine = Engine {
        ordering: Ordering::SOFT,
        optimisations: Optimisations::NONE,
        unit_bytes: None,
    };
    let mut mount = Mount::open(with_leftovers(of), engine, false, &mut Nobody).unwrap();
    let first = initialised_inodes(&mount.fork(), GroupNumber(0));
    let mut names = (0..).map(|number| format!("{number}"));
    while make(
        &mut mount,
        FileType::Regular,
        names.next().unwrap().as_bytes(),
    )
    .0 < first
    {}
    let last = make(&mut mount, FileType::Regular, b"last");
    let mut targets = Vec::new();
    let step = Operation::Administration;
    let asked = mount.run(step, &mut Nobody, |fs, v, _| {
        fs.sync_targets(v, last, false, &mut targets);
        Ok(())
    });
    asked.unwrap();
    mount.sync(&targets, &mut Nobody).unwrap();
    let mut mount = open(mount.fork(), Ordering::SOFT);
    let made = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
        let root = fs.root();
        fs.create(v, root, b"another", &new(FileType::Regular), now)
    });
    made.is_ok()
}

/// A group is damaged if its bitmap says that an inode is in use beyond those that it counts as
/// initialised. Such inodes are not zeroed, since that might destroy files.
#[test]
fn no_inode_is_marked_that_is_not_initialised() {
    for of in [("ufs2", 512), ("ufs2", 1024)] {
        assert!(can_go_on(of), "{of:?}");
        assert!(!with_rule(Rule::InodeBitAfterInitialised, false, || {
            can_go_on(of)
        }));
    }
}

/// Free fragments, as `statfs` shows them: before a crash, and in the mount after it.
fn free_around_a_crash(of: (&str, u32)) -> [u64; 2] {
    let mut mount = open(image(of).make().unwrap(), Ordering::SOFT);
    make_file(&mut mount, b"file", 20_000);
    mount.drain(&mut Nobody).unwrap();
    let again = open(mount.fork(), Ordering::SOFT);
    [mount, again].map(|mount| mount.fs.statistics().free_blocks)
}

/// The counts on the disk are older than the mount that the crash ended.
#[test]
fn what_is_free_after_a_crash_is_counted() {
    for of in IMAGES {
        let [before, after] = free_around_a_crash(of);
        assert_eq!(before, after, "{of:?}");
        let [before, after] =
            with_rule(Rule::GroupsAreRecounted, false, || free_around_a_crash(of));
        assert!(after > before, "{of:?}: {before}, {after}");
    }
}

/// Each unit of a truncated block is zeroed by a patch of its own. What makes the file longer again
/// waits for all of these: those of one truncation, or of two in succession.
#[test]
fn a_longer_file_waits_for_all_zeros_behind_its_end() {
    for text in [
        "creat f; write f 140000 6000; sync;; truncate f 140600; write f 147000 300",
        "creat f; write f 140000 6000; sync;; truncate f 142600; truncate f 140600; write f 147000 300",
    ] {
        for of in IMAGES {
            assert!(
                !is_damaged(of, Ordering::SOFT, text, None),
                "{of:?}: {text}"
            );
        }
    }
}

/// A directory moves as it grows, since another one is behind it. Then one of its old names is removed.
/// Until the inode points to the new place, the disk shows the name in the old one.
#[test]
fn a_name_in_fragments_that_move_is_gone_once_they_have() {
    let name = |n: u32| format!("creat B/{}{n}; ", "n".repeat(200));
    let made: String = (0..4).map(name).collect();
    let more: String = (4..6).map(name).collect();
    let text = format!("mkdir B; creat B/x; {made}mkdir B/d; sync; {more}unlink B/x; work");
    let rule = backstitch_formats::Rule::EntryAfterMovedPointer.id();
    for of in IMAGES {
        let find = |off| is_image_damaged(image(of), Ordering::SOFT, &text, off);
        assert!(!find(None), "{of:?}");
        assert!(find(Some(rule)), "{of:?}");
    }
}

/// A file needs several fragments in one block to become longer. If there are none, nothing is
/// wrong.
#[test]
fn a_file_need_not_grow_where_free_fragments_are_scattered() {
    let text = "few-blocks 24; creat f; creat g; write g 0 1500; append f 2000";
    assert!(!is_damaged(("ufs2", 1024), Ordering::SOFT, text, None));
}

/// Flags that a UFS inode cannot store.
#[test]
fn flags_that_would_be_lost_are_refused() {
    let mut mount = open(image(IMAGES[3]).make().unwrap(), Ordering::SOFT);
    let mut set = |flags: u32| {
        let set = SetAttributes {
            flags: Some(flags),
            ..SetAttributes::default()
        };
        mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
            let root = fs.root();
            fs.set_attributes(v, root, &set, now)?;
            Ok(fs.attributes(v, root)?.flags & flags::SETTABLE)
        })
    };
    assert_eq!(set(flags::NODUMP).unwrap(), flags::NODUMP);
    for lost in [flags::NOATIME, flags::SYNC, flags::NODUMP | flags::DIRSYNC] {
        assert!(matches!(set(lost), Err(Error::NotSupported)), "{lost:#x}");
    }
    assert_eq!(set(0).unwrap(), 0);
}
