//! The superblock of ext2, and the group descriptors after it.
//!
//! The input is the size of the device in blocks of 1 KiB (4 bytes), a superblock, and descriptors.

use backstitch_ext::format::features::INCOMPAT_META_BG;
use backstitch_ext::format::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use backstitch_ext::format::{GroupDescriptor, group};
use backstitch_ext_tools::info;
use backstitch_layout::{GroupNumber, InodeNumber};
use zerocopy::IntoBytes;

use crate::Input;

/// Groups that are checked, from both ends.
const GROUPS: u32 = 32;

/// Whatever a superblock says, if it is accepted then it is possible on its device.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let device_bytes = u64::from(input.number()) << 10;
    let mut head = [0; SUPERBLOCK_SIZE];
    let taken = input.bytes(SUPERBLOCK_SIZE);
    head[..taken.len()].copy_from_slice(taken);
    let raw = RawSuperblock::from_array(&head);
    assert_eq!(raw.as_bytes(), head);
    let features = raw.features();
    let _ = (features.names(), features.unwritable());
    if let Some(record) = raw.record() {
        let encoded = record.encode(&raw.s_uuid);
        assert_eq!(encoded, raw.s_backstitch.as_bytes());
    }
    let Ok(sb) = Superblock::parse(&head, device_bytes) else {
        return;
    };
    let _ = (sb.read_support(), sb.write_support(), sb.max_file_size());
    let _ = info::of(&sb);
    geometry(&sb, device_bytes);
    descriptors(&sb, input.rest());
}

/// Every place computed from it is on the device.
fn geometry(sb: &Superblock, device_bytes: u64) {
    let bits = sb.block_size_bits;
    assert!(sb.blocks_count << bits <= device_bytes);
    let last = sb.groups - 1;
    let groups = (0..sb.groups.min(GROUPS)).chain(last.saturating_sub(GROUPS)..=last);
    let has_table_in_pieces = sb.features.has_incompat(INCOMPAT_META_BG);
    for number in groups.map(GroupNumber) {
        let first = sb.group_first_block(number);
        let blocks = u64::from(sb.blocks_in_group(number));
        assert!(sb.has_block(first) && blocks > 0);
        assert_eq!(sb.group_of_block(first), number);
        assert_eq!(sb.group_of_block(first + blocks - 1), number);
        assert!(first + blocks <= sb.end_block());
        let (block, offset) = group::descriptor_location(sb, number);
        assert!(offset + sb.desc_size as usize <= sb.block_size as usize);
        assert!(sb.is_valid_pointer(block) || has_table_in_pieces);
        // With `meta_bg`, which cannot be mounted, the table is in other places.
        let own = sb.super_blocks_in_group(number);
        assert!(own <= sb.blocks_per_group || has_table_in_pieces);
    }
    let inodes = [1, sb.first_inode.0, sb.inodes_per_group, sb.inodes_count];
    for inode in (inodes.into_iter().map(InodeNumber)).filter(|inode| sb.is_valid_inode(*inode)) {
        let (block, offset) = sb.inode_position(inode);
        assert!(block < u64::from(sb.inode_table_blocks));
        assert!(offset + sb.inode_size as usize <= sb.block_size as usize);
        assert!(sb.group_of_inode(inode).0 < sb.groups);
    }
}

/// A descriptor that is accepted leads to existing blocks.
fn descriptors(sb: &Superblock, mut bytes: &[u8]) {
    for number in GroupNumber::all(sb.groups.min(GROUPS)) {
        if let Ok(descriptor) = GroupDescriptor::parse(sb, number, bytes) {
            let _ = descriptor.misplaced(sb, number);
            let first = sb.group_first_inode(number);
            for inode in [first, first + (sb.inodes_per_group - 1)] {
                let (block, _) = descriptor.inode_location(sb, inode);
                assert!(sb.is_valid_pointer(block), "inode {inode} in block {block}");
            }
            assert!(sb.is_valid_pointer(descriptor.block_bitmap));
            assert!(sb.is_valid_pointer(descriptor.inode_bitmap));
        }
        bytes = bytes.get(sb.desc_size as usize..).unwrap_or(&[]);
    }
    if sb.groups <= GROUPS {
        let _ = group::parse_table(sb, bytes);
    }
}
