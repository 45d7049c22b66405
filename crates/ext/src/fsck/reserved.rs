//! The inodes below the first one for files: bad blocks, resize, journal, and those that nobody uses.

use super::CheckError;
use super::finding::{Code, Findings, Location};
use super::source::Source;
use super::state::Context;
use crate::format::features::COMPAT_RESIZE_INODE;
use crate::format::inode::{DOUBLE_INDIRECT, Inode, POINTERS};
use crate::format::{RESIZE_INODE, ROOT_INODE};

/// The boot loader's inode: may be anything but a directory.
const BOOT_LOADER_INODE: u32 = 5;

/// What is wrong with a reserved inode's mode; `None` where it is fine.
pub(super) fn bad_mode(number: u32, inode: &Inode) -> Option<String> {
    let is_fine = match number {
        ROOT_INODE => true,
        BOOT_LOADER_INODE => !inode.is_directory(),
        RESIZE_INODE => inode.mode == 0 || inode.mode & 0o170_000 == 0o100_000,
        _ => inode.mode == 0,
    };
    (!is_fine).then(|| format!("reserved inode with mode {:o}", inode.mode))
}

/// The resize inode maps the descriptor blocks kept for growing, and nothing else: its double indirect block points to the ones
/// behind the primary descriptors, each of which points to its counterparts in the backups.
pub(super) fn check_resize_inode<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
) -> Result<(), CheckError> {
    if context.sb.inodes_count < RESIZE_INODE {
        return Ok(());
    }
    let mut scratch = Vec::new();
    let inode = Inode::parse(context.inode(RESIZE_INODE, &mut scratch)?)?;
    let has_feature = context.sb.features.has_compat(COMPAT_RESIZE_INODE);
    let what = if !has_feature {
        let is_empty = inode.block.iter().all(|pointer| *pointer == 0);
        (!is_empty).then(|| "has blocks, but the resize_inode feature is missing".to_owned())
    } else {
        wrong_structure(context, &inode)?
    };
    if let Some(what) = what {
        findings.add(
            Code::ResizeInodeInvalid,
            Location::inode(RESIZE_INODE),
            || what,
        );
    }
    Ok(())
}

/// What is wrong with the resize inode's tree.
fn wrong_structure<S: Source + ?Sized>(
    context: &Context<'_, S>,
    inode: &Inode,
) -> Result<Option<String>, CheckError> {
    let sb = context.sb;
    let tree = u64::from(inode.block[DOUBLE_INDIRECT]);
    let others = (0..POINTERS).filter(|index| *index != DOUBLE_INDIRECT);
    if others.into_iter().any(|index| inode.block[index] != 0) {
        return Ok(Some("has pointers besides the double indirect one".into()));
    }
    if tree == 0 || !sb.is_valid_block(tree) || inode.links == 0 || inode.mode & 0o100_000 == 0 {
        return Ok(Some(
            "is no regular file with a double indirect block".into(),
        ));
    }
    let (mut scratch, mut below) = (Vec::new(), Vec::new());
    let pointers = sb.block_size / 4;
    let bytes = context.block(tree, &mut scratch)?;
    for index in 0..sb.reserved_gdt_blocks {
        let slot = (sb.descriptor_blocks + index) % pointers;
        let expected = sb.first_data_block + 1 + u64::from(sb.descriptor_blocks + index);
        if pointer(bytes, slot as usize) != expected {
            return Ok(Some(format!(
                "does not map reserved descriptor block {expected}"
            )));
        }
        let backups = context.block(expected, &mut below)?;
        let groups = (1..sb.groups).filter(|group| sb.has_super(*group));
        for (slot, group) in groups.take(pointers as usize).enumerate() {
            let copy = expected + u64::from(group) * u64::from(sb.blocks_per_group);
            if pointer(backups, slot) != copy {
                return Ok(Some(format!(
                    "does not map block {copy}, a backup of {expected}"
                )));
            }
        }
    }
    Ok(None)
}

/// The blocks that the resize inode takes: all that it points to, for `i_blocks`.
pub(super) fn resize_blocks<S: Source + ?Sized>(
    context: &Context<'_, S>,
    inode: &Inode,
) -> Result<u64, CheckError> {
    let sb = context.sb;
    let tree = u64::from(inode.block[DOUBLE_INDIRECT]);
    if tree == 0 || !sb.is_valid_block(tree) {
        return Ok(0);
    }
    let (mut scratch, mut below, mut blocks) = (Vec::new(), Vec::new(), 1);
    let bytes = context.block(tree, &mut scratch)?;
    for slot in 0..context.block_size() / 4 {
        let indirect = pointer(bytes, slot);
        if indirect != 0 && sb.is_valid_block(indirect) {
            let backups = context.block(indirect, &mut below)?;
            let used = (0..context.block_size() / 4).filter(|slot| pointer(backups, *slot) != 0);
            blocks += 1 + used.count() as u64;
        }
    }
    Ok(blocks)
}

fn pointer(block: &[u8], slot: usize) -> u64 {
    let bytes = &block[slot * 4..slot * 4 + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into()
}
