//! Pass 0: the groups' headers.

use super::state::{Context, Group};
use super::{CheckError, Code, Location, Source};
use backstitch_layout::tools::Findings;
use backstitch_layout::{BlockNumber, GroupNumber};
use backstitch_ufs::format::{CylinderGroup, Inode, RawCylinderGroup, Superblock, Version};

/// Reads all headers.
pub(super) fn read<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
) -> Result<Vec<Group>, CheckError> {
    let sb = context.sb;
    let mut groups = Vec::new();
    let mut scratch = Vec::new();
    for group in GroupNumber::all(sb.groups) {
        let place = sb.group_header(group);
        let bytes = context.bytes(place, sb.group_bytes as usize, &mut scratch)?;
        let parsed = CylinderGroup::parse(sb, group, bytes);
        let found = match parsed {
            Ok(header) => {
                let mut raw = header.raw();
                let mut initialised = header.initialised_inodes;
                let last = last_used(header.inode_map());
                if last >= initialised {
                    let more = plausible_until(context, group, initialised, last)?;
                    if more > initialised {
                        findings.add(
                            Code::InodeNotInitialised,
                            Location::group(group).at_block(BlockNumber(place)),
                            || format!("inodes {initialised} … {more} of the group are not said to be initialised"),
                        );
                        initialised = more;
                        raw.cg_initediblk = more;
                    }
                }
                Group {
                    raw,
                    is_sound: true,
                    initialised,
                }
            }
            Err(error) => {
                findings.add(
                    Code::GroupHeaderCorrupt,
                    Location::group(group).at_block(BlockNumber(place)),
                    || error.to_string(),
                );
                unreadable(context, group)?
            }
        };
        groups.push(found);
    }
    Ok(groups)
}

/// What to take for a group's header where there is none.
fn unreadable<S: Source + ?Sized>(
    context: &Context<'_, S>,
    group: GroupNumber,
) -> Result<Group, CheckError> {
    let sb = context.sb;
    let initialised = match sb.version {
        Version::Ufs1 => sb.inodes_per_group,
        Version::Ufs2 => {
            let first = sb.inodes_per_group.min(2 * sb.inodes_per_block);
            plausible_until(context, group, first, sb.inodes_per_group - 1)?.max(first)
        }
    };
    let raw = RawCylinderGroup {
        cg_initediblk: initialised,
        cg_time: sb.raw.fs_time,
        cg_old_time: sb.raw.fs_old_time,
        ..RawCylinderGroup::default()
    };
    Ok(Group {
        raw,
        is_sound: false,
        initialised,
    })
}

/// The last inode of a group that is marked as used, counted from its first one.
fn last_used(map: &[u8]) -> u32 {
    let last = map.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |at| at as u32 * 8 + map[at].ilog2())
}

/// How many inodes of a group were initialised by their looks: those of the blocks from inode
/// `from` on, up to the last block with an inode in use. Blocks without any may lie in between: a
/// block is initialised once and stays so when its last inode is freed. The search ends behind the
/// block with inode `last`, or at the first block that holds anything but inodes.
fn plausible_until<S: Source + ?Sized>(
    context: &Context<'_, S>,
    group: GroupNumber,
    from: u32,
    last: u32,
) -> Result<u32, CheckError> {
    let sb = context.sb;
    let block_bytes = sb.block_bytes as usize;
    let mut scratch = Vec::new();
    let mut until = from;
    for block in from / sb.inodes_per_block..=last / sb.inodes_per_block {
        let at = sb.group_inodes(group) + u64::from(block * sb.fragments_per_block);
        let offset = at * u64::from(sb.fragment_bytes);
        if context.source.is_known_zero(offset, block_bytes) {
            continue;
        }
        let bytes = context.bytes(at, block_bytes, &mut scratch)?;
        match plausible_inodes(sb, bytes) {
            None => break,
            Some(0) => {}
            Some(_) => until = (block + 1) * sb.inodes_per_block,
        }
    }
    Ok(until.min(sb.inodes_per_group))
}

/// How many inodes of a block are in use; `None` where it holds anything but inodes.
fn plausible_inodes(sb: &Superblock, bytes: &[u8]) -> Option<u32> {
    let mut used = 0;
    for bytes in bytes.chunks_exact(sb.version.inode_bytes()) {
        let inode = Inode::parse(sb.version, sb.order, bytes).ok()?;
        let is_sound = match inode.mode {
            0 => inode.size == 0 && inode.pointers.iter().all(|pointer| *pointer == 0),
            _ => inode.file_type().is_some() && inode.size <= sb.file_bytes_max,
        };
        if !is_sound {
            return None;
        }
        used += u32::from(inode.mode != 0);
    }
    Some(used)
}
