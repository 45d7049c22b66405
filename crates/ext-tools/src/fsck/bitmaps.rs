//! Pass 5: what is marked as used against what is, and the counters.

use super::state::{Context, Gathered, InodeInfo};
use super::{CheckError, Summary};
use backstitch_ext::format::bitmap;
use backstitch_ext::format::directory::type_code;
use backstitch_ext::format::group::{FLAG_INODES_UNINITIALISED, GroupDescriptor};
use backstitch_ext::format::superblock::Superblock;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, FileType, GroupNumber, InodeNumber};
use std::sync::atomic::Ordering;

/// Compares the bitmaps with what was found.
pub(super) fn check<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    findings: &mut Findings,
    notes: &mut Findings,
) -> Result<Summary, CheckError> {
    let sb = context.sb;
    let (mut free_blocks, mut free_inodes) = (0, 0);
    let mut summary = Summary {
        inodes: sb.inodes_count.into(),
        blocks: sb.blocks_count,
        used_blocks: gathered.used.len(),
        ..Summary::default()
    };
    let mut scratch = Vec::new();
    for group in GroupNumber::all(sb.groups) {
        let bitmap = context.groups[group.index()].block_bitmap;
        let bytes = context.block(bitmap, &mut scratch)?;
        free_blocks += check_block_bitmap(context, gathered, group, bytes, findings);
        let bitmap = context.groups[group.index()].inode_bitmap;
        let bytes = context.block(bitmap, &mut scratch)?;
        free_inodes += check_inode_bitmap(context, gathered, group, bytes, findings, &mut summary);
    }
    note_totals(sb, free_blocks, free_inodes, notes);
    Ok(summary)
}

/// The superblock's own totals. They are notes only: every system computes them from the
/// descriptors when mounting.
fn note_totals(sb: &Superblock, free_blocks: u64, free_inodes: u64, notes: &mut Findings) {
    if free_blocks != sb.free_blocks_count {
        notes.add(Code::FreeBlocksWrong, Location::FILE_SYSTEM, || {
            format!(
                "the superblock counts {} free blocks, not {free_blocks}",
                sb.free_blocks_count
            )
        });
    }
    if free_inodes != u64::from(sb.free_inodes_count) {
        notes.add(Code::FreeInodesWrong, Location::FILE_SYSTEM, || {
            format!(
                "the superblock counts {} free inodes, not {free_inodes}",
                sb.free_inodes_count
            )
        });
    }
}

/// Bits that differ in the same way, one after the other.
struct Run {
    is_leak: bool,
    first: u64,
    last: u64,
}

/// Calls `report` for each run of bits in which `marked` and `used`, 64 bits each, differ. Gives
/// the run that is still open.
fn differences(
    open: Option<Run>,
    start: u64,
    marked: u64,
    used: u64,
    report: &mut impl FnMut(&Run),
) -> Option<Run> {
    let mut open = open;
    let mut differs = marked ^ used;
    while differs != 0 {
        let bit = differs.trailing_zeros();
        differs &= differs - 1;
        let at = start + u64::from(bit);
        let is_leak = marked & (1 << bit) != 0;
        match &mut open {
            Some(run) if run.is_leak == is_leak && run.last + 1 == at => run.last = at,
            _ => {
                if let Some(run) = &open {
                    report(run);
                }
                open = Some(Run {
                    is_leak,
                    first: at,
                    last: at,
                });
            }
        }
    }
    open
}

/// 64 bits of a bitmap from bit `index * 64` on, only the `valid` first ones.
fn word(bytes: &[u8], index: usize, valid: usize) -> u64 {
    let chunk = bytes.get(index * 8..index * 8 + 8).unwrap_or(&[0; 8]);
    let word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
    word & mask(valid)
}

fn mask(valid: usize) -> u64 {
    if valid >= 64 {
        u64::MAX
    } else {
        (1 << valid) - 1
    }
}

/// Returns the number of blocks that the bitmap shows as free.
fn check_block_bitmap<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    group: GroupNumber,
    bytes: &[u8],
    findings: &mut Findings,
) -> u64 {
    let sb = context.sb;
    let blocks = sb.blocks_in_group(group) as usize;
    let first = sb.group_first_block(group);
    let mut report = |run: &Run| {
        let code = if run.is_leak {
            Code::BlockLeaked
        } else {
            Code::BlockNotMarked
        };
        let place = Location {
            group: Some(group),
            ..Location::block(BlockNumber(run.first))
        };
        findings.add(code, place, || describe("block", run, "blocks"));
    };
    let mut open = None;
    for index in 0..blocks.div_ceil(64) {
        let valid = blocks - index * 64;
        let start = first + index as u64 * 64;
        let marked = word(bytes, index, valid);
        let used = gathered.used.bits_from(start) & mask(valid);
        if marked != used || open.is_some() {
            open = differences(open, start.0, marked, used, &mut report);
        }
    }
    if let Some(run) = &open {
        report(run);
    }
    let per_group = sb.blocks_per_group as usize;
    if bitmap::find_zero(bytes, blocks, per_group).is_some() || has_free_tail(bytes, per_group) {
        findings.add(Code::BitmapPadding, Location::group(group), || {
            "blocks behind the end of the file system are marked as free".into()
        });
    }
    let free = bitmap::count_zeros(bytes, blocks);
    let counted = context.groups[group.index()].free_blocks;
    if free != counted as usize {
        findings.add(Code::FreeBlocksWrong, Location::group(group), || {
            format!("counts {counted} free blocks, the bitmap has {free}")
        });
    }
    free as u64
}

/// Whether a bit is clear behind the bitmap's bits for its group. Those must be set.
fn has_free_tail(bytes: &[u8], bits: usize) -> bool {
    let tail = bytes.get(bits.div_ceil(8)..).unwrap_or(&[]);
    tail.iter().any(|byte| *byte != 0xff)
}

/// Returns the number of inodes that the bitmap shows as free.
fn check_inode_bitmap<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    group: GroupNumber,
    bytes: &[u8],
    findings: &mut Findings,
    summary: &mut Summary,
) -> u64 {
    let sb = context.sb;
    let inodes = sb.inodes_per_group as usize;
    let first = u64::from(sb.group_first_inode(group).0);
    let infos = gathered.inodes[group.index()].as_deref().unwrap_or(&[]);
    let mut report = |run: &Run| {
        let code = if run.is_leak {
            Code::InodeLeaked
        } else {
            Code::InodeNotMarked
        };
        let place = Location {
            group: Some(group),
            ..Location::inode(InodeNumber(run.first as u32))
        };
        findings.add(code, place, || describe("inode", run, "inodes"));
    };
    let (mut open, mut directories) = (None, 0);
    for index in 0..inodes.div_ceil(64) {
        let valid = inodes - index * 64;
        let marked = word(bytes, index, valid);
        let own = infos
            .get(index * 64..infos.len().min(index * 64 + 64))
            .unwrap_or(&[]);
        let used = used_word(own, marked, &mut directories, summary);
        if marked != used || open.is_some() {
            open = differences(open, first + index as u64 * 64, marked, used, &mut report);
        }
    }
    if let Some(run) = &open {
        report(run);
    }
    if has_free_tail(bytes, inodes) {
        findings.add(Code::BitmapPadding, Location::group(group), || {
            "inodes behind the end of the group are marked as free".into()
        });
    }
    let descriptor = &context.groups[group.index()];
    check_marks(descriptor, infos, group, findings);
    let free = bitmap::count_zeros(bytes, inodes);
    if free != descriptor.free_inodes as usize {
        findings.add(Code::FreeInodesWrong, Location::group(group), || {
            format!(
                "counts {} free inodes, the bitmap has {free}",
                descriptor.free_inodes
            )
        });
    }
    if directories != descriptor.used_directories {
        findings.add(Code::DirectoryCountWrong, Location::group(group), || {
            format!(
                "counts {} directories, has {directories}",
                descriptor.used_directories
            )
        });
    }
    free as u64
}

/// A descriptor may say that a part of the inode table was never written, but only where checksums
/// protect it.
fn check_marks(
    descriptor: &GroupDescriptor,
    infos: &[InodeInfo],
    group: GroupNumber,
    findings: &mut Findings,
) {
    let is_uninitialised = descriptor.flags & FLAG_INODES_UNINITIALISED != 0;
    if !is_uninitialised && descriptor.unused_inodes == 0 {
        return;
    }
    // With a count larger than the group, e2fsck's subtraction wraps around, and it takes none for
    // unused.
    let first_unused = infos.len().checked_sub(descriptor.unused_inodes.into());
    let is_named = |info: &InodeInfo| info.is_used && info.names.load(Ordering::Relaxed) > 0;
    let is_wrong = |(index, info): (usize, &InodeInfo)| {
        is_named(info) && (is_uninitialised || first_unused.is_some_and(|first| index >= first))
    };
    if infos.iter().enumerate().any(is_wrong) {
        findings.add(Code::DescriptorFlags, Location::group(group), || {
            format!(
                "flags {:#x} and {} inodes said to be unused",
                descriptor.flags, descriptor.unused_inodes
            )
        });
    }
}

/// Which of up to 64 inodes are in use, as bits; counts them on the way.
fn used_word(
    infos: &[InodeInfo],
    marked: u64,
    directories: &mut u32,
    summary: &mut Summary,
) -> u64 {
    let mut used = 0;
    for (bit, info) in infos.iter().enumerate().filter(|(_, info)| info.is_used) {
        used |= 1 << bit;
        summary.used_inodes += 1;
        if info.type_code == type_code(FileType::Directory) {
            summary.directories += 1;
            // The descriptors count only what is marked.
            *directories += u32::from(marked & (1 << bit) != 0);
        } else if info.type_code == type_code(FileType::Regular) {
            summary.regular_files += 1;
        } else if info.type_code == type_code(FileType::Symlink) {
            summary.symlinks += 1;
        } else if info.type_code != 0 {
            summary.special_files += 1;
        }
    }
    used
}

fn describe(one: &str, run: &Run, many: &str) -> String {
    let state = if run.is_leak {
        "marked, but not in use"
    } else {
        "in use, but not marked"
    };
    if run.first == run.last {
        format!("{one} {} is {state}", run.first)
    } else {
        format!("{many} {} … {} are {state}", run.first, run.last)
    }
}
