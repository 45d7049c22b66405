//! The inodes below the first one for files: bad blocks, resize, journal, and those that nobody
//! uses.

use super::CheckError;
use super::state::Context;
use backstitch_ext::format::features::COMPAT_RESIZE_INODE;
use backstitch_ext::format::inode::{DIRECT_POINTERS, DOUBLE_INDIRECT, Inode, POINTERS};
use backstitch_ext::format::superblock::Superblock;
use backstitch_ext::format::{RESIZE_INODE, ROOT_INODE};
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};

/// The boot loader's inode: may be anything but a directory.
const BOOT_LOADER_INODE: InodeNumber = InodeNumber(5);

/// The inodes of user and group quotas where the file system has them, which we do not read.
pub(super) const QUOTA_INODES: [InodeNumber; 2] = [InodeNumber(3), InodeNumber(4)];

/// What is wrong with a reserved inode's mode; `None` where it is fine.
pub(super) fn bad_mode(number: InodeNumber, inode: &Inode) -> Option<String> {
    let is_fine = match number {
        ROOT_INODE => true,
        BOOT_LOADER_INODE => !inode.is_directory(),
        RESIZE_INODE => inode.mode == 0 || inode.mode & 0o170_000 == 0o100_000,
        _ => inode.mode == 0,
    };
    (!is_fine).then(|| format!("reserved inode with mode {:o}", inode.mode))
}

/// The resize inode maps the descriptor blocks kept for growing, and nothing else: its double
/// indirect block points to the ones behind the primary descriptors, each of which points to its
/// counterparts in the backups.
///
/// A pointer that leads elsewhere inside the file system is a note: only growing the file system
/// would use it.
///
/// Returns the number of blocks of a sound tree, so that they need not be counted again.
pub(super) fn check_resize_inode<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
    notes: &mut Findings,
) -> Result<Option<u64>, CheckError> {
    if context.sb.inodes_count < RESIZE_INODE.0 {
        return Ok(None);
    }
    let mut scratch = Vec::new();
    let inode = Inode::parse(context.inode(RESIZE_INODE, &mut scratch)?)?;
    let place = Location::inode(RESIZE_INODE);
    if let Some(what) = wrong_inode(context.sb, &inode) {
        findings.add(Code::ResizeInodeInvalid, place, || what.into());
        return Ok(None);
    }
    if !context.sb.features.has_compat(COMPAT_RESIZE_INODE) {
        return Ok(None);
    }
    let (differing, blocks) = differing_pointers(context, &inode)?;
    let is_sound = differing.is_empty();
    for (block, slot, target) in differing {
        let what = || format!("pointer {slot} of its indirect block {block} is {target}");
        if target == BlockNumber::NONE || context.sb.is_valid_pointer(target) {
            notes.add(Code::ResizeInodeInvalid, place, what);
        } else {
            findings.add(Code::ResizeInodeInvalid, place, what);
        }
    }
    Ok(is_sound.then_some(blocks))
}

/// A pointer: its block, its slot in there, and where it leads.
type Pointer = (BlockNumber, usize, BlockNumber);

/// What is wrong with the inode itself.
fn wrong_inode(sb: &Superblock, inode: &Inode) -> Option<&'static str> {
    if !sb.features.has_compat(COMPAT_RESIZE_INODE) {
        let is_empty = inode.block.iter().all(|pointer| *pointer == 0);
        return (!is_empty).then_some("has blocks, but the resize_inode feature is missing");
    }
    let tree = BlockNumber(inode.block[DOUBLE_INDIRECT].into());
    if (0..POINTERS).any(|index| index != DOUBLE_INDIRECT && inode.block[index] != 0) {
        return Some("has pointers besides the double indirect one");
    }
    if tree == BlockNumber::NONE
        || !sb.is_valid_pointer(tree)
        || inode.links == 0
        || inode.mode & 0o100_000 == 0
    {
        return Some("is no regular file with a double indirect block");
    }
    None
}

/// The pointers of the resize inode's tree that are not what they should be, and the blocks that it
/// should have.
fn differing_pointers<S: Source + ?Sized>(
    context: &Context<'_, S>,
    inode: &Inode,
) -> Result<(Vec<Pointer>, u64), CheckError> {
    let sb = context.sb;
    let pointers = sb.block_size / 4;
    let slots = (0..sb.reserved_gdt_blocks).map(|index| {
        let number = sb.descriptor_blocks + index;
        (
            number % pointers,
            sb.first_data_block + 1 + u64::from(number),
        )
    });
    let (mut scratch, mut below, mut result) = (Vec::new(), Vec::new(), Vec::new());
    let tree = BlockNumber(inode.block[DOUBLE_INDIRECT].into());
    add_differing(
        tree,
        context.block(tree, &mut scratch)?,
        slots.clone(),
        &mut result,
    );
    let backups: Vec<u64> = GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group))
        .take(pointers as usize)
        .map(|group| u64::from(group.0) * u64::from(sb.blocks_per_group))
        .collect();
    for (_, block) in slots {
        let copies = (0..).zip(backups.iter().map(|distance| block + *distance));
        add_differing(
            block,
            context.block(block, &mut below)?,
            copies,
            &mut result,
        );
    }
    let blocks = 1 + u64::from(sb.reserved_gdt_blocks) * (1 + backups.len() as u64);
    Ok((result, blocks))
}

/// The logical block behind the last one that a sound resize inode maps; 0 where it maps none.
pub(super) fn resize_end(sb: &Superblock) -> u64 {
    let pointers = sb.block_size / 4;
    let backups = GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group))
        .take(pointers as usize)
        .count() as u64;
    let numbers = sb.descriptor_blocks..sb.descriptor_blocks + sb.reserved_gdt_blocks;
    let last_slot = numbers.map(|number| number % pointers).max();
    match last_slot {
        Some(slot) if backups > 0 => {
            let per_slot = u64::from(pointers);
            DIRECT_POINTERS as u64 + per_slot * (1 + u64::from(slot)) + backups
        }
        _ => 0,
    }
}

/// Adds the pointers that are not what they should be: those of `slots`, and zeros elsewhere.
fn add_differing(
    block: BlockNumber,
    bytes: &[u8],
    slots: impl Iterator<Item = (u32, BlockNumber)> + Clone,
    result: &mut Vec<Pointer>,
) {
    // Nearly always all pointers are right; then counting them is enough.
    let used = bytes
        .chunks_exact(4)
        .filter(|word| **word != [0; 4])
        .count();
    let has_all = slots
        .clone()
        .all(|(slot, target)| pointer(bytes, slot as usize) == target);
    if has_all && used == slots.clone().count() {
        return;
    }
    let mut expected = vec![BlockNumber::NONE; bytes.len() / 4];
    for (slot, target) in slots {
        expected[slot as usize] = target;
    }
    for (slot, target) in expected.into_iter().enumerate() {
        let found = pointer(bytes, slot);
        if found != target {
            result.push((block, slot, found));
        }
    }
}

/// The blocks that a damaged resize inode takes: all that it points to, for `i_blocks`.
pub(super) fn resize_blocks<S: Source + ?Sized>(
    context: &Context<'_, S>,
    inode: &Inode,
) -> Result<u64, CheckError> {
    let sb = context.sb;
    let tree = BlockNumber(inode.block[DOUBLE_INDIRECT].into());
    if tree == BlockNumber::NONE || !sb.is_valid_pointer(tree) {
        return Ok(0);
    }
    let (mut scratch, mut below, mut blocks) = (Vec::new(), Vec::new(), 1);
    let bytes = context.block(tree, &mut scratch)?;
    for slot in 0..context.block_size() / 4 {
        let indirect = pointer(bytes, slot);
        if indirect != BlockNumber::NONE && sb.is_valid_pointer(indirect) {
            let backups = context.block(indirect, &mut below)?;
            let used = (0..context.block_size() / 4)
                .filter(|slot| pointer(backups, *slot) != BlockNumber::NONE);
            blocks += 1 + used.count() as u64;
        }
    }
    Ok(blocks)
}

fn pointer(block: &[u8], slot: usize) -> BlockNumber {
    let bytes = &block[slot * 4..slot * 4 + 4];
    BlockNumber(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into())
}
