//! Where the journal is: the blocks of its inode, or of the copy that the superblock keeps of it,
//! or another device.

use crate::fault::JournalFault;
use crate::format::fault::SuperblockFault;
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, FileType, GroupNumber, InodeNumber, JournalLocation, JournalMap,
    JournalPlace, JournalRun, Result, Structure,
};
use zerocopy::FromBytes;

use super::{descriptor, read_block};
use crate::format::extent::{self, RawExtent, RawExtentHeader, RawExtentIndex};
use crate::format::features::{COMPAT_HAS_JOURNAL, INCOMPAT_RECOVER};
use crate::format::inode::{DIRECT_POINTERS, Inode, POINTERS};
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::format::{GroupDescriptor, JOURNAL_INODE};
use crate::image::from_format;

/// `s_jnl_backup_type`: `s_jnl_blocks` is a copy of the inode's pointers and size.
pub const BACKUP_BLOCKS: u8 = 1;
/// Entries for which an inode has room.
const EXTENTS_IN_INODE: u16 = 4;
/// Backups of the first group's descriptor that are looked at to find the journal's inode.
const TRIED_BACKUPS: usize = 3;
/// Journals have fewer blocks than this by far; a hostile inode must not make the map larger.
const BLOCKS_MAX: u64 = 1 << 24;

/// Whether the superblock names a journal: inside, or on another device.
pub fn superblock_names_journal(raw: &RawSuperblock) -> bool {
    raw.s_journal_inum.get() != 0 || raw.s_journal_uuid != [0; 16]
}

/// Where the superblock says that the journal is.
pub(super) fn place(
    device: &dyn BlockDevice,
    sb: &Superblock,
    raw: &RawSuperblock,
) -> Result<Option<JournalPlace>> {
    if !sb.features.has_compat(COMPAT_HAS_JOURNAL) {
        return Ok(None);
    }
    let location = match sb.journal_inode {
        InodeNumber::NONE if superblock_names_journal(raw) => {
            JournalLocation::Outside(raw.s_journal_uuid)
        }
        InodeNumber::NONE => {
            return Err(Error::corrupt(
                Structure::SUPERBLOCK,
                SuperblockFault::JournalWithoutPlace,
            ));
        }
        inode => {
            let map = from_inode(device, sb, inode).or_else(|error| backup(device, sb, raw, error));
            JournalLocation::Inside(Arc::new(map?))
        }
    };
    Ok(Some(at(sb, location)))
}

fn at(sb: &Superblock, location: JournalLocation) -> JournalPlace {
    JournalPlace {
        block_bytes: sb.block_size,
        home_blocks: sb.blocks_count,
        file_system: sb.uuid,
        location,
        needs_recovery: sb.features.has_incompat(INCOMPAT_RECOVER),
    }
}

/// Where the journal of a damaged file system may be: by its inode, by the copy in the superblock,
/// and by its inode where backups of the first descriptor have it. Maps without faults come first.
pub(super) fn damaged_places(
    device: &dyn BlockDevice,
    sb: &Superblock,
    raw: &RawSuperblock,
) -> Result<Vec<JournalPlace>> {
    if !sb.features.has_compat(COMPAT_HAS_JOURNAL) {
        return Ok(Vec::new());
    }
    if sb.journal_inode == InodeNumber::NONE && superblock_names_journal(raw) {
        let outside = JournalLocation::Outside(raw.s_journal_uuid);
        return Ok(vec![at(sb, outside)]);
    }
    let mut copies = Vec::new();
    // The inode's type does not matter: a place counts only if a journal is found there.
    copies.extend(of_inode(inode(device, sb, JOURNAL_INODE))?);
    copies.extend(superblock_copy(raw));
    for group in backup_descriptors(device, sb) {
        let inode = group.and_then(|group| inode_of(device, sb, &group, JOURNAL_INODE));
        let copy = of_inode(inode)?;
        copies.extend(copy.filter(|copy| !copies.contains(copy)));
    }
    let read = |block| read_block(device, sb, block);
    let mut found = Vec::new();
    for faults in [Faults::Refuse, Faults::LeaveOut] {
        for copy in &copies {
            match map(&read, sb, copy, Structure::Sole("the journal"), faults) {
                Ok(map) => found.push(map),
                Err(error @ Error::Device(_)) => return Err(error),
                Err(_) => {}
            }
        }
    }
    found.dedup();
    let places = found
        .into_iter()
        .map(|map| at(sb, JournalLocation::Inside(Arc::new(map))));
    Ok(places.collect())
}

fn inode(device: &dyn BlockDevice, sb: &Superblock, number: InodeNumber) -> Result<Inode> {
    if !sb.is_valid_inode(number) {
        let place = Structure::JournalInode(number);
        return Err(Error::corrupt(place, JournalFault::NoSuchInode));
    }
    let group = descriptor(device, sb, sb.group_of_inode(number))?;
    inode_of(device, sb, &group, number)
}

/// An inode of the group that this is the descriptor of.
fn inode_of(
    device: &dyn BlockDevice,
    sb: &Superblock,
    group: &GroupDescriptor,
    number: InodeNumber,
) -> Result<Inode> {
    let (block, offset) = group.inode_location(sb, number);
    let bytes = read_block(device, sb, block)?;
    let end = offset + sb.inode_size as usize;
    let bytes = bytes.get(offset..end).unwrap_or_default();
    Inode::parse(bytes).map_err(from_format)
}

/// The first group's descriptor, as its backups have it.
fn backup_descriptors<'d>(
    device: &'d dyn BlockDevice,
    sb: &'d Superblock,
) -> impl Iterator<Item = Result<GroupDescriptor>> + 'd {
    let backups = GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group));
    backups.take(TRIED_BACKUPS).map(|group| {
        let bytes = read_block(device, sb, sb.group_first_block(group) + 1)?;
        GroupDescriptor::parse(sb, GroupNumber(0), &bytes).map_err(from_format)
    })
}

/// Where an inode's blocks are; `None` where it cannot be read as one.
fn of_inode(inode: Result<Inode>) -> Result<Option<Copy>> {
    match inode {
        Ok(inode) => Ok(Some(Copy {
            pointers: inode.block,
            size: inode.size,
        })),
        Err(error @ Error::Device(_)) => Err(error),
        Err(_) => Ok(None),
    }
}

fn from_inode(
    device: &dyn BlockDevice,
    sb: &Superblock,
    number: InodeNumber,
) -> Result<JournalMap> {
    let place = Structure::JournalInode(number);
    let inode = inode(device, sb, number)?;
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        return Err(Error::corrupt(place, JournalFault::NoRegularFile));
    }
    let copy = Copy {
        pointers: inode.block,
        size: inode.size,
    };
    let read = |block| read_block(device, sb, block);
    map(&read, sb, &copy, place, Faults::Refuse)
}

/// The blocks of the file that a log of ours is in.
pub(super) fn log_file(
    device: &dyn BlockDevice,
    sb: &Superblock,
    number: InodeNumber,
) -> Result<Vec<Range<u64>>> {
    let map = from_inode(device, sb, number)?;
    let run = |run: &JournalRun| run.block.0..run.end().0;
    Ok(map.runs().iter().map(run).collect())
}

/// The copy in the superblock, where the inode cannot be used because of `error`.
fn backup(
    device: &dyn BlockDevice,
    sb: &Superblock,
    raw: &RawSuperblock,
    error: Error,
) -> Result<JournalMap> {
    let Some(copy) = superblock_copy(raw).filter(|_| !matches!(error, Error::Device(_))) else {
        return Err(error);
    };
    let place = Structure::Sole("the superblock's copy of the journal's inode");
    let read = |block| read_block(device, sb, block);
    map(&read, sb, &copy, place, Faults::Refuse).map_err(|_| error)
}

/// What is needed of an inode to find its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its pointers.
    pub pointers: [u32; POINTERS],
    /// Its size in bytes.
    pub size: u64,
}

/// The copy of the journal's inode in the superblock.
pub fn superblock_copy(raw: &RawSuperblock) -> Option<Copy> {
    let word = |index: usize| raw.s_jnl_blocks[index].get();
    (raw.s_jnl_backup_type == BACKUP_BLOCKS).then(|| Copy {
        pointers: std::array::from_fn(word),
        size: u64::from(word(POINTERS)) << 32 | u64::from(word(POINTERS + 1)),
    })
}

/// What to do about pointers that lead nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Report the error; there is no map.
    Refuse,
    /// Leave a gap in the map.
    LeaveOut,
}

/// The map of a journal with these pointers, whose indirect blocks `read` gives.
pub fn map(
    read: &dyn Fn(BlockNumber) -> Result<Vec<u8>>,
    sb: &Superblock,
    copy: &Copy,
    place: Structure,
    faults: Faults,
) -> Result<JournalMap> {
    let (pointers, size) = (&copy.pointers, copy.size);
    let blocks = size >> sb.block_size_bits;
    if blocks == 0 || blocks > BLOCKS_MAX.min(sb.blocks_count) {
        return Err(Error::corrupt(place, JournalFault::Size { bytes: size }));
    }
    let mut walk = Walk {
        read,
        sb,
        place,
        blocks,
        runs: Vec::new(),
        next: 0,
        faults,
        seen: FxHashSet::default(),
    };
    let words: Vec<u8> = pointers
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    // A block's number can look like the magic number; so the entry limit, which is always the same
    // in an inode, is compared as well.
    let head = RawExtentHeader::ref_from_prefix(&words);
    if head.is_ok_and(|(head, _)| {
        head.eh_magic.get() == extent::MAGIC && head.eh_max.get() == EXTENTS_IN_INODE
    }) {
        walk.extents(&words, extent::DEPTH_MAX)?;
    } else {
        for (index, pointer) in pointers.iter().enumerate() {
            let depth = index.saturating_sub(DIRECT_POINTERS - 1);
            walk.pointer(BlockNumber((*pointer).into()), depth)?;
        }
    }
    if walk.next < blocks && faults == Faults::Refuse {
        let fault = JournalFault::TooFewBlocks {
            found: walk.next,
            expected: blocks,
        };
        return Err(Error::corrupt(place, fault));
    }
    let map = match faults {
        Faults::Refuse => JournalMap::inside(walk.runs),
        Faults::LeaveOut => JournalMap::with_gaps(walk.runs, blocks as u32),
    };
    map.map_err(|error| Error::corrupt(place, error))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let part = bytes.get(at..at + 2).unwrap_or(&[0, 0]);
    u16::from_le_bytes([part[0], part[1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

/// Gathers runs in the order of the file.
struct Walk<'w> {
    read: &'w dyn Fn(BlockNumber) -> Result<Vec<u8>>,
    sb: &'w Superblock,
    place: Structure,
    blocks: u64,
    runs: Vec<JournalRun>,
    /// The file's next block.
    next: u64,
    faults: Faults,
    /// Where faults are left out, the blocks that have a place already.
    seen: FxHashSet<BlockNumber>,
}

impl Walk<'_> {
    fn corrupt<T>(&self, fault: JournalFault) -> Result<T> {
        Err(Error::corrupt(self.place, fault))
    }

    /// Leaves a gap where a pointer of this depth leads nowhere.
    fn fault(&mut self, depth: usize, fault: JournalFault) -> Result<()> {
        if self.faults == Faults::Refuse {
            return self.corrupt(fault);
        }
        let pointers = u64::from(self.sb.block_size / 4);
        self.next = (self.next + pointers.pow(depth as u32)).min(self.blocks);
        Ok(())
    }

    /// Adds blocks that follow each other.
    fn add(&mut self, first: BlockNumber, count: u64) -> Result<()> {
        let count = count.min(self.blocks - self.next);
        if count == 0 {
            return Ok(());
        }
        let last = first.checked_add(count - 1);
        if !self.sb.is_valid_pointer(first)
            || !last.is_some_and(|last| self.sb.is_valid_pointer(last))
        {
            return self.corrupt(JournalFault::Outside {
                position: self.next,
                block: first,
            });
        }
        match self.runs.last_mut() {
            Some(run)
                if run.end() == first && u64::from(run.position + run.blocks) == self.next =>
            {
                run.blocks += count as u32;
            }
            _ => self.runs.push(JournalRun {
                position: self.next as u32,
                block: first,
                blocks: count as u32,
            }),
        }
        self.next += count;
        Ok(())
    }

    /// Whether a block is next to the last one on the device as well as in the file, as nearly all
    /// are.
    fn is_in_line(&self, block: BlockNumber) -> bool {
        self.runs.last().is_some_and(|run| {
            let is_next = u64::from(run.position + run.blocks) == self.next;
            is_next && run.end() == block
        })
    }

    /// Leaves a gap where a block was claimed before.
    fn take_back(&mut self, block: BlockNumber) {
        let has = |run: &JournalRun| (run.block..run.end()).contains(&block);
        let Some(index) = self.runs.iter().position(has) else {
            return;
        };
        let run = self.runs.remove(index);
        let before = (block - run.block) as u32;
        let parts = [
            JournalRun {
                blocks: before,
                ..run
            },
            JournalRun {
                position: run.position + before + 1,
                block: block + 1,
                blocks: run.blocks - before - 1,
            },
        ];
        let parts = parts.into_iter().filter(|part| part.blocks > 0);
        self.runs.splice(index..index, parts);
    }

    /// What a pointer leads to: `depth` levels of indirect blocks, then the file's.
    fn pointer(&mut self, block: BlockNumber, depth: usize) -> Result<()> {
        if self.next >= self.blocks {
            return Ok(());
        }
        let position = self.next;
        if block == BlockNumber::NONE {
            return self.fault(depth, JournalFault::Hole { position });
        }
        if self.faults == Faults::LeaveOut {
            let is_valid = self.sb.is_valid_pointer(block);
            let is_new = is_valid && self.seen.insert(block);
            if is_valid && !is_new && depth == 0 && self.is_in_line(block) {
                self.take_back(block);
            } else if !is_new {
                return self.fault(depth, JournalFault::PlaceTaken { position, block });
            }
        }
        if depth == 0 {
            return self.add(block, 1);
        }
        let bytes = (self.read)(block)?;
        if depth == 1 && self.faults == Faults::Refuse {
            return self.leaf(&bytes);
        }
        for pointer in bytes.chunks_exact(4) {
            self.pointer(BlockNumber(word(pointer, 0).into()), depth - 1)?;
        }
        Ok(())
    }

    /// The file's blocks that an indirect block names, those that follow each other at once.
    fn leaf(&mut self, bytes: &[u8]) -> Result<()> {
        let mut pointers = bytes.chunks_exact(4).map(|p| word(p, 0)).peekable();
        while self.next < self.blocks
            && let Some(first) = pointers.next()
        {
            if first == 0 {
                return self.corrupt(JournalFault::Hole {
                    position: self.next,
                });
            }
            let mut end = u64::from(first) + 1;
            while pointers.next_if(|next| u64::from(*next) == end).is_some() {
                end += 1;
            }
            self.add(BlockNumber(first.into()), end - u64::from(first))?;
        }
        Ok(())
    }

    /// A node of an extent tree: a header of 12 bytes, and entries of 12 bytes that are extents or
    /// lead to nodes below.
    fn extents(&mut self, node: &[u8], depth_max: u16) -> Result<()> {
        let node = RawExtentHeader::ref_from_prefix(node).ok();
        let node = node.and_then(|(header, rest)| {
            let (all, _) = rest.as_chunks::<{ size_of::<RawExtent>() }>();
            let is_sane =
                header.eh_magic.get() == extent::MAGIC && header.eh_depth.get() <= depth_max;
            let entries = all.get(..header.eh_entries.get().into())?;
            is_sane.then(|| (header.eh_depth.get(), entries))
        });
        let Some((depth, entries)) = node else {
            return self.corrupt(JournalFault::Node);
        };
        for entry in entries {
            if self.next >= self.blocks {
                return Ok(());
            }
            // Both kinds of entry begin with the file's block.
            let found: RawExtent = zerocopy::transmute!(*entry);
            if u64::from(found.ee_block.get()) != self.next {
                return self.corrupt(JournalFault::NotInTree {
                    position: self.next,
                });
            }
            if depth == 0 {
                // A longer extent is unwritten; blocks of a journal are always written.
                let length = found.ee_len.get();
                if length == 0 || length > extent::WRITTEN_MAX {
                    return self.corrupt(JournalFault::ExtentLength { blocks: length });
                }
                self.add(found.physical(), length.into())?;
                continue;
            }
            let index: RawExtentIndex = zerocopy::transmute!(*entry);
            let bytes = (self.read)(index.node())?;
            // One level less in every step: a node that leads to itself ends.
            self.extents(&bytes, depth - 1)?;
        }
        Ok(())
    }
}
