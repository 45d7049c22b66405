//! The inodes below the first one for files, which have no names: what they map is in use.

use crate::fault::InodeFault;
use backstitch_layout::{BlockNumber, Error, FileType, InodeNumber, Step, Stop, Structure};
use backstitch_ordering::Volume;
use backstitch_unixfs::format::{Format, Space};
use backstitch_unixfs::{Reclaim, Run};

use crate::format::inode::DOUBLE_INDIRECT;
use crate::format::{Inode, RESIZE_INODE};
use crate::state::{Ext, ExtFormat};

fn corrupt(number: InodeNumber, fault: InodeFault) -> Error {
    Error::corrupt(Structure::inode(number), fault)
}

/// Marks what a reserved inode maps. Nothing in it is corrected.
pub(crate) fn mark(
    fs: &mut Ext,
    v: &mut Volume<'_>,
    r: &mut Reclaim,
    number: InodeNumber,
    inode: &Inode,
) -> Step<()> {
    if number == RESIZE_INODE {
        return mark_resize_tree(&fs.format, v, r, inode);
    }
    if inode.block.iter().all(|pointer| *pointer == 0) {
        return Ok(());
    }
    if !matches!(inode.file_type(), None | Some(FileType::Regular)) {
        return Err(corrupt(number, InodeFault::ReservedType).into());
    }
    // The check of pointers refuses the journal's blocks; not for the journal's own inode.
    let journal = match number == fs.format.sb.journal_inode {
        true => fs.format.journal.take(),
        false => None,
    };
    let mapped = fs.runs_of(v, inode);
    fs.format.journal = fs.format.journal.take().or(journal);
    let mut runs = mapped?.into_iter();
    runs.try_for_each(|run| r.mark(number, run, false))
}

/// The resize inode maps the blocks kept for descriptors, which are marked already, through
/// indirect blocks that are its own.
fn mark_resize_tree(
    format: &ExtFormat,
    v: &mut Volume<'_>,
    r: &mut Reclaim,
    inode: &Inode,
) -> Step<()> {
    let tree = BlockNumber(inode.block[DOUBLE_INDIRECT].into());
    if tree == BlockNumber::NONE {
        return Ok(());
    }
    let pointers = format.block_size() as usize / format.pointer_bytes();
    let checked = |block: BlockNumber| {
        if format.sb.is_valid_pointer(block) {
            Ok(block)
        } else {
            Err(corrupt(RESIZE_INODE, InodeFault::NoSuchBlock { block }))
        }
    };
    let pointers_in = |bytes: &[u8]| -> Vec<BlockNumber> {
        let all = (0..pointers).map(|i| format.pointer_at(bytes, i));
        all.filter(|block| *block != BlockNumber::NONE).collect()
    };
    let mut all = vec![checked(tree)?];
    for child in pointers_in(v.read(tree)?) {
        all.push(checked(child)?);
    }
    let mut missing = false;
    for child in &all[1..] {
        missing |= !v.want(*child);
    }
    if missing {
        return Err(Stop::Miss);
    }
    let first_level: Vec<BlockNumber> = all[1..].into();
    for child in first_level {
        for block in pointers_in(v.read(child)?) {
            all.push(checked(block)?);
        }
    }
    for block in all {
        r.mark_again(Run::one(block));
    }
    Ok(())
}
