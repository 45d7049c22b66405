//! What each fragment is for, on images of `makefs`.

use crate::support::damages::good_images;
use crate::support::have;
use crate::support::probe::Probe;
use backstitch_device::MemoryDevice;
use backstitch_layout::tools::{SliceSource, Tools, Tune, Use};
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use backstitch_ordering::CrashRecord;
use backstitch_ufs::format::MountRecord;
use backstitch_ufs::format::record::RECORD_AT;
use backstitch_ufs::format::superblock::{FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES};
use backstitch_ufs_tools::UfsTools;

#[test]
fn every_fragment_has_its_use() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        let probe = Probe::new(good.clone());
        let sb = &probe.sb;
        let geography = UfsTools.geography(&SliceSource(good)).unwrap();
        let what = |fragment: u64| geography.what(BlockNumber(fragment));
        let group = GroupNumber(0);
        assert_eq!(geography.block_bytes(), sb.fragment_bytes);
        let home = sb.place / u64::from(sb.fragment_bytes);
        assert_eq!(what(home), Use::Superblock);
        assert_eq!(what(sb.superblock_copy(group)), Use::Backup);
        assert_eq!(what(sb.group_header(group)), Use::BlockBitmap(group));
        assert_eq!(what(sb.summary_at), Use::Descriptors);
        let (fragment, offset) = sb.inode_place(InodeNumber(9));
        let first = 9 - (offset / sb.version.inode_bytes()) as u32;
        assert_eq!(what(fragment), Use::Inodes(InodeNumber(first)));
        let many = probe.path("/many");
        let names = what(probe.inode(many).pointers[0]);
        assert_eq!(names, Use::Names(InodeNumber(many)));
        let larger = probe.path("/dir/sub/larger");
        let (inode, own) = (probe.inode(larger), InodeNumber(larger));
        let per_block = u64::from(sb.fragments_per_block);
        let last = inode.pointers[3] + per_block - 1;
        assert_eq!(what(last), Use::Contents(own, 4 * per_block - 1));
        if inode.pointers[12] != 0 {
            assert_eq!(what(inode.pointers[12]), Use::Pointers(own));
        }
        assert_eq!(what(sb.fragments), Use::Unknown);
        let (at, len) = probe.direct_blocks(2)[0];
        let found = geography.names(&good[at..at + len]);
        assert!(found.iter().any(|(name, _)| name == b"many"), "{found:?}");
    }
}

#[test]
fn inodes_are_compared_in_words() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        let mut probe = Probe::new(good.clone());
        let geography = UfsTools.geography(&SliceSource(good)).unwrap();
        let inode = probe.path("/dir/small");
        let range = probe.inode_at(inode)..probe.inode_at(inode) + geography.inode_bytes() as usize;
        let before = probe.bytes[range.clone()].to_vec();
        assert_eq!(geography.inode_difference(&before, &before), "");
        probe.set_size(inode, 9_999);
        let after = &probe.bytes[range];
        assert_eq!(geography.inode_difference(&before, after), "size 8 → 9999");
    }
}

#[test]
fn an_image_that_a_mechanism_with_order_left_is_trusted() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        let trusted = CrashRecord::SOFT;
        assert_eq!(UfsTools.trusted(&SliceSource(good), trusted), None);
        // As a mount for writing leaves it, and as others may.
        for marks in [FLAG_NEEDS_CHECK, FLAG_NEEDS_CHECK | FLAG_SOFT_UPDATES, 0] {
            let mut probe = Probe::new(good.clone());
            probe.superblock(|raw| {
                raw.fs_clean = 0;
                raw.fs_flags &= !(FLAG_SOFT_UPDATES as i32);
                raw.fs_flags |= marks as i32;
            });
            let found = UfsTools.trusted(&SliceSource(&probe.bytes), trusted);
            let (at, bytes) = found.unwrap();
            probe.poke(at as usize, &bytes);
            let after = Probe::new(probe.bytes.clone());
            let left = after.sb.flags & (FLAG_SOFT_UPDATES | FLAG_NEEDS_CHECK);
            assert_eq!(left, FLAG_SOFT_UPDATES, "{marks:#x}");
            assert_eq!(UfsTools.trusted(&SliceSource(&probe.bytes), trusted), None);
        }
    }
}

/// A crash between the marks of a mount and the first change leaves a clean image with both.
#[test]
fn a_clean_image_with_marks_of_a_mount_keeps_clean_with_another_uuid() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        let mut probe = Probe::new(good.clone());
        let record = MountRecord {
            mechanism: CrashRecord::SOFT,
            mount_time_seconds: probe.sb.raw.fs_mtime,
            atomic_unit_bytes: 512,
            flags: probe.sb.flags,
        };
        probe.superblock(|raw| raw.fs_flags = record.flags_in_use() as i32);
        let bytes = record.encode(&probe.sb.raw, probe.sb.order);
        probe.poke(probe.sb.place as usize + RECORD_AT, &bytes);
        let marked = Probe::new(probe.bytes);
        assert!(marked.sb.record.is_some() && marked.sb.is_clean());
        let device = MemoryDevice::from_bytes(marked.bytes);
        let tune = Tune {
            uuid: Some([7; 16]),
            ..Tune::default()
        };
        let info = UfsTools.tune(&tune, &device).unwrap();
        assert_eq!(info.uuid, [7; 16]);
        let after = Probe::new(device.snapshot());
        assert!(after.sb.is_clean() && after.sb.record.is_none());
        assert_eq!(after.sb.flags, record.flags);
    }
}
