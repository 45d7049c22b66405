//! What a superblock's numbers must be, of themselves and of each other.

use super::{RawSuperblock, Superblock, Version};
use crate::format::fault::SuperblockFault;
use crate::format::group::Maps;
use crate::format::order::ByteOrder;
use backstitch_layout::GroupNumber;

/// The smallest block.
const BLOCK_BYTES_MIN: u32 = 4_096;
/// The largest block.
const BLOCK_BYTES_MAX: u32 = 65_536;
/// The most fragments of a block.
const FRAGMENTS_MAX: u32 = 8;
/// The smallest `fs_sbsize`: the structure itself, in the smallest fragments.
const SUPERBLOCK_BYTES_MIN: i32 = super::SUPERBLOCK_BYTES.next_multiple_of(512) as i32;
/// The most inodes that can be numbered.
const INODES_MAX: u64 = u32::MAX as u64;

fn bounds(field: &'static str, found: i64, low: i64, high: i64) -> Result<i64, SuperblockFault> {
    match (low..=high).contains(&found) {
        true => Ok(found),
        false => Err(SuperblockFault::OutOfBounds {
            field,
            found,
            low,
            high,
        }),
    }
}

fn power_of_two(field: &'static str, found: i32) -> Result<u32, SuperblockFault> {
    match u32::try_from(found) {
        Ok(size) if size.is_power_of_two() => Ok(size),
        _ => Err(SuperblockFault::NoPowerOfTwo {
            field,
            found: found.into(),
        }),
    }
}

fn equal(field: &'static str, found: i64, expected: i64) -> Result<(), SuperblockFault> {
    match found == expected {
        true => Ok(()),
        false => Err(SuperblockFault::Contradiction {
            field,
            found,
            expected,
        }),
    }
}

/// The sizes of blocks and fragments.
struct Sizes {
    block: u32,
    fragment: u32,
    per_block: u32,
    inodes_per_block: u32,
    pointers_per_block: u32,
}

impl Sizes {
    fn checked(raw: &RawSuperblock, version: Version) -> Result<Sizes, SuperblockFault> {
        let block = power_of_two("fs_bsize", raw.fs_bsize)?;
        let (low, high) = (BLOCK_BYTES_MIN.into(), BLOCK_BYTES_MAX.into());
        bounds("fs_bsize", block.into(), low, high)?;
        let fragment = power_of_two("fs_fsize", raw.fs_fsize)?;
        let low = (block / FRAGMENTS_MAX).max(512);
        bounds("fs_fsize", fragment.into(), low.into(), block.into())?;
        let per_block = block / fragment;
        equal("fs_frag", raw.fs_frag.into(), per_block.into())?;
        let inodes_per_block = block / version.inode_bytes() as u32;
        equal("fs_inopb", raw.fs_inopb.into(), inodes_per_block.into())?;
        let pointers_per_block = block / version.pointer_bytes() as u32;
        equal("fs_nindir", raw.fs_nindir.into(), pointers_per_block.into())?;
        Ok(Sizes {
            block,
            fragment,
            per_block,
            inodes_per_block,
            pointers_per_block,
        })
    }
}

/// The size of the file system, where its summary is, and its flags: where the version has them.
struct Moved {
    fragments: i64,
    summary_at: i64,
    flags: u32,
    file_bytes_max: u64,
}

impl Moved {
    fn of(raw: &RawSuperblock, is_old: bool, sizes: &Sizes) -> Moved {
        let flags = match raw.fs_old_flags & super::OLD_FLAG_MOVED {
            0 => u32::from(raw.fs_old_flags),
            _ => raw.fs_flags as u32,
        };
        if !is_old {
            return Moved {
                fragments: raw.fs_size,
                summary_at: raw.fs_csaddr,
                flags,
                file_bytes_max: raw.fs_maxfilesize.min(file_bytes_max(sizes)),
            };
        }
        Moved {
            fragments: raw.fs_old_size.into(),
            summary_at: raw.fs_old_csaddr.into(),
            flags,
            file_bytes_max: file_bytes_max(sizes),
        }
    }
}

/// The most bytes that an inode's pointers lead to.
fn file_bytes_max(sizes: &Sizes) -> u64 {
    let pointers = u64::from(sizes.pointers_per_block);
    let blocks = 12 + pointers + pointers.pow(2) + pointers.pow(3);
    blocks
        .saturating_mul(sizes.block.into())
        .min(i64::MAX as u64)
        - 1
}

pub(super) fn checked(
    raw: Box<RawSuperblock>,
    version: Version,
    order: ByteOrder,
    place: u64,
) -> Result<Superblock, SuperblockFault> {
    let sizes = Sizes::checked(&raw, version)?;
    // Kernels from before UFS2 knew neither of the two. FreeBSD goes by `fs_maxbsize` alone; where only one of them tells, a crash came
    // between, and both kinds of fields say the same.
    let has_moved_flags = raw.fs_old_flags & super::OLD_FLAG_MOVED != 0;
    let is_old = version == Version::Ufs1 && raw.fs_maxbsize != raw.fs_bsize && !has_moved_flags;
    let moved = Moved::of(&raw, is_old, &sizes);
    let low = SUPERBLOCK_BYTES_MIN.into();
    bounds("fs_sbsize", raw.fs_sbsize.into(), low, 8_192)?;
    let groups = bounds("fs_ncg", raw.fs_ncg.into(), 1, i32::MAX.into())? as u32;
    let per_group = bounds("fs_fpg", raw.fs_fpg.into(), 1, i32::MAX.into())?;
    let multiple = per_group - per_group % i64::from(sizes.per_block);
    equal("fs_fpg", per_group, multiple)?;
    // Each group has at least one fragment, so that the last one is not empty.
    let before_last = i64::from(groups - 1) * per_group;
    let most = before_last + per_group;
    let fragments = bounds("fs_size", moved.fragments, before_last + 1, most)?;
    let most_inodes = (INODES_MAX / u64::from(groups)).min(per_group as u64 * 8 * 8);
    let inodes = bounds("fs_ipg", raw.fs_ipg.into(), 1, most_inodes as i64)?;
    let multiple = inodes - inodes % i64::from(sizes.inodes_per_block);
    equal("fs_ipg", inodes, multiple)?;
    let group_bytes = bounds("fs_cgsize", raw.fs_cgsize.into(), 168, sizes.block.into())?;
    let sums = bounds("fs_contigsumsize", raw.fs_contigsumsize.into(), 0, 1_024)?;
    bounds("fs_old_cpg", raw.fs_old_cpg.into(), 0, i32::MAX.into())?;
    let summary_needed = i64::from(groups) * 16;
    let summary_bytes = bounds("fs_cssize", raw.fs_cssize.into(), summary_needed, 1 << 30)?;
    let sb = Superblock {
        version,
        order,
        place,
        block_bytes: sizes.block,
        fragment_bytes: sizes.fragment,
        fragments_per_block: sizes.per_block,
        fragments: fragments as u64,
        groups,
        fragments_per_group: per_group as u32,
        inodes_per_group: inodes as u32,
        inodes_per_block: sizes.inodes_per_block,
        pointers_per_block: sizes.pointers_per_block,
        superblock_at: bounds("fs_sblkno", raw.fs_sblkno.into(), 0, per_group)? as u32,
        header_at: bounds("fs_cblkno", raw.fs_cblkno.into(), 1, per_group)? as u32,
        inodes_at: bounds("fs_iblkno", raw.fs_iblkno.into(), 1, per_group)? as u32,
        data_at: bounds("fs_dblkno", raw.fs_dblkno.into(), 1, per_group)? as u32,
        group_bytes: group_bytes as u32,
        summary_at: bounds("fs_csaddr", moved.summary_at, 0, fragments)? as u64,
        summary_bytes: summary_bytes as u32,
        cluster_sums: sums as u32,
        symlink_max: symlink_max(&raw, version),
        file_bytes_max: moved.file_bytes_max,
        flags: moved.flags,
        record: None,
        log: None,
        is_old,
        raw,
    };
    check_places(&sb)?;
    Ok(sb)
}

fn symlink_max(raw: &RawSuperblock, version: Version) -> u32 {
    let most = 15 * version.pointer_bytes() as i32;
    raw.fs_maxsymlinklen.clamp(0, most) as u32
}

/// The parts of each group follow each other and lie within it; maps have room in the header.
fn check_places(sb: &Superblock) -> Result<(), SuperblockFault> {
    let block = i64::from(sb.fragments_per_block);
    let end = i64::from(sb.fragments_per_group);
    let (header, inodes) = (i64::from(sb.header_at), i64::from(sb.inodes_at));
    // The first group's copy is behind the superblock.
    let behind = sb.place + super::AREA_BYTES as u64;
    let least = behind.div_ceil(sb.fragment_bytes.into()) as i64;
    bounds("fs_sblkno", sb.superblock_at.into(), least, end)?;
    let copy = super::AREA_BYTES.div_ceil(sb.fragment_bytes as usize) as i64;
    bounds("fs_cblkno", header, i64::from(sb.superblock_at) + copy, end)?;
    bounds("fs_iblkno", inodes, header + block, end)?;
    let table = i64::from(sb.inodes_per_group / sb.inodes_per_block) * block;
    bounds("fs_dblkno", sb.data_at.into(), inodes + table, end)?;
    let last = GroupNumber(sb.groups - 1);
    // The last group may be cut short, but not within its own structures; where parts are shifted
    // from group to group, none may be shifted out of its group.
    for group in [GroupNumber(0), last] {
        let data = sb.group_data(group) as i64;
        let start = sb.group_start(group) as i64;
        let group_end = start + i64::from(sb.fragments_in_group(group));
        bounds("fs_size", sb.fragments as i64, data, i64::MAX)?;
        bounds("fs_old_cgoffset", data, start, group_end)?;
    }
    if sb.version == Version::Ufs1 && sb.raw.fs_old_cgoffset != 0 {
        let turn = i64::from(!(sb.raw.fs_old_cgmask as u32)).min(i64::from(sb.groups));
        let most = (end - i64::from(sb.data_at)) / turn.max(1);
        bounds("fs_old_cgoffset", sb.raw.fs_old_cgoffset.into(), 0, most)?;
    }
    check_summary(sb)?;
    // A file system from before UFS2 may have its maps elsewhere; its headers tell, and are
    // checked as they are read.
    if !sb.is_old {
        let least = Maps::new(sb).end as i64;
        bounds(
            "fs_cgsize",
            sb.group_bytes.into(),
            least,
            sb.block_bytes.into(),
        )?;
    }
    Ok(())
}

/// The summary array is in the file system, and in nobody's way: it is written whenever groups are
/// counted anew.
fn check_summary(sb: &Superblock) -> Result<(), SuperblockFault> {
    let summary = sb.summary_fragments();
    bounds("fs_cssize", summary.end as i64, 1, sb.fragments as i64)?;
    let (first, last) = (sb.group_of(summary.start), sb.group_of(summary.end - 1));
    for group in (first.0..=last.0).map(GroupNumber) {
        let own = sb.own_fragments(group);
        if summary.start < own.end && own.start < summary.end {
            return Err(SuperblockFault::SummaryInTheWay {
                first: summary.start,
                last: summary.end - 1,
                group: group.0,
            });
        }
    }
    Ok(())
}
