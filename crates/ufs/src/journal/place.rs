//! The file that a log of operations is in: which fragments it has.

use std::ops::Range;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, FileType, InodeNumber, JournalMap, JournalRun, Result, Structure,
};

use crate::fault::LogFault;
use crate::format::inode::DIRECT_POINTERS;
use crate::format::{Inode, Superblock, Version};
use crate::image::from_format;

/// Logs have fewer fragments than this by far; a hostile inode must not make the map larger.
const FRAGMENTS_MAX: u64 = 1 << 24;

/// Some bytes, from a fragment on, all of which must be in the file system.
pub(super) fn read(
    device: &dyn BlockDevice,
    sb: &Superblock,
    fragment: u64,
    bytes: usize,
) -> Result<Vec<u8>> {
    let fragment_bytes = u64::from(sb.fragment_bytes);
    let end = fragment.checked_add((bytes as u64).div_ceil(fragment_bytes));
    if end.is_none_or(|end| end > sb.fragments) {
        let fragment = BlockNumber(fragment);
        return Err(Error::corrupt(
            Structure::SUPERBLOCK,
            LogFault::Claims { fragment },
        ));
    }
    let mut read = vec![0; bytes];
    device.read(fragment * fragment_bytes, &mut read)?;
    Ok(read)
}

/// Whether a file can have these fragments: they are in one group, and neither that group's own nor
/// the summary's.
pub(super) fn is_data(sb: &Superblock, first: u64, count: u64) -> bool {
    let Some(end) = first.checked_add(count).filter(|end| *end <= sb.fragments) else {
        return false;
    };
    let group = sb.group_of(first);
    let touches = |own: Range<u64>| first < own.end && own.start < end;
    group == sb.group_of(end - 1)
        && !touches(sb.own_fragments(group))
        && !touches(sb.summary_fragments())
}

/// The pointer in these bytes with this number.
pub(super) fn pointer(sb: &Superblock, bytes: &[u8], index: usize) -> u64 {
    match sb.version {
        Version::Ufs1 => sb.order.u32(bytes, index * 4).into(),
        Version::Ufs2 => sb.order.u64(bytes, index * 8),
    }
}

/// The fragments of the file that the log is in.
pub(super) fn log_file(
    device: &dyn BlockDevice,
    sb: &Superblock,
    number: InodeNumber,
) -> Result<Vec<Range<u64>>> {
    let place = Structure::JournalInode(number);
    let corrupt = |fault: LogFault| Error::corrupt(place, fault);
    if number.0 >= sb.inodes() {
        return Err(corrupt(LogFault::NoSuchInode));
    }
    let (fragment, at) = sb.inode_place(number);
    let bytes = read(device, sb, fragment, sb.fragment_bytes as usize)?;
    let inode = Inode::parse(sb.version, sb.order, &bytes[at..]).map_err(from_format)?;
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        return Err(corrupt(LogFault::NoRegularFile));
    }
    let (size, block) = (inode.size, u64::from(sb.block_bytes));
    let most = FRAGMENTS_MAX.min(sb.fragments) * u64::from(sb.fragment_bytes);
    if size == 0 || size > most || !size.is_multiple_of(block) {
        return Err(corrupt(LogFault::Size { bytes: size }));
    }
    let mut walk = Walk {
        device,
        sb,
        place,
        blocks: size / block,
        runs: Vec::new(),
        next: 0,
    };
    for (index, pointer) in inode.pointers.into_iter().enumerate() {
        walk.pointer(pointer, index.saturating_sub(DIRECT_POINTERS - 1))?;
    }
    if walk.next < walk.blocks {
        return Err(corrupt(LogFault::Size { bytes: size }));
    }
    let map = JournalMap::inside(walk.runs).map_err(|error| Error::corrupt(place, error))?;
    let run = |run: &JournalRun| run.block.0..run.end().0;
    Ok(map.runs().iter().map(run).collect())
}

/// Gathers runs in the order of the file.
struct Walk<'w> {
    device: &'w dyn BlockDevice,
    sb: &'w Superblock,
    place: Structure,
    /// Blocks of the file.
    blocks: u64,
    /// Counted in fragments.
    runs: Vec<JournalRun>,
    /// The file's next block.
    next: u64,
}

impl Walk<'_> {
    /// What a pointer leads to: `depth` levels of indirect blocks, then the file's.
    fn pointer(&mut self, first: u64, depth: usize) -> Result<()> {
        if self.next >= self.blocks {
            return Ok(());
        }
        let count = u64::from(self.sb.fragments_per_block);
        if first == 0 {
            return self.corrupt(LogFault::Hole { block: self.next });
        }
        if !is_data(self.sb, first, count) {
            let fragment = BlockNumber(first);
            return self.corrupt(LogFault::Claims { fragment });
        }
        if depth == 0 {
            self.add(BlockNumber(first), count);
            return Ok(());
        }
        let bytes = read(self.device, self.sb, first, self.sb.block_bytes as usize)?;
        for index in 0..self.sb.pointers_per_block as usize {
            self.pointer(pointer(self.sb, &bytes, index), depth - 1)?;
        }
        Ok(())
    }

    fn corrupt<T>(&self, fault: LogFault) -> Result<T> {
        Err(Error::corrupt(self.place, fault))
    }

    fn add(&mut self, block: BlockNumber, count: u64) {
        let position = (self.next * count) as u32;
        self.next += 1;
        match self.runs.last_mut() {
            Some(run) if run.end() == block => run.blocks += count as u32,
            _ => self.runs.push(JournalRun {
                position,
                block,
                blocks: count as u32,
            }),
        }
    }
}
