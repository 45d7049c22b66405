//! A log of operations, where one is asked for: in a file, an ordinary one to everybody else, which
//! nobody may change; or behind the file system, which ends earlier for that.

use std::ops::Range;

use backstitch_device::BlockDevice;
use backstitch_layout::{GroupNumber, InodeNumber, LOG_FILE_NAME};
use backstitch_ufs::format::inode::{DIRECT_POINTERS, POINTERS};
use backstitch_ufs::format::{LogRecord, ROOT_INODE, Superblock, Version};
use backstitch_wafs::Wafs;
use backstitch_wafs::format::{BLOCK_BYTES, LOG_OFFSET_BYTES};

use super::{MkfsError, Wanted};

/// The word for a log in a file.
pub(super) const LOG_FILE: &str = "lffs_log";
/// The word for a write-ahead log behind the file system.
pub(super) const LOG_BEHIND: &str = "wafs_log";
/// The name of the file, in the root directory.
pub(super) const NAME: &[u8] = LOG_FILE_NAME.as_bytes();
/// Its inode, the first one that newfs(8) leaves free.
pub(super) const INODE: InodeNumber = InodeNumber(ROOT_INODE.0 + 1);
/// The log's part of the file system: a hundredth, as in the paper.
const PART: u64 = 100;
/// The fragments of the shortest log that may be asked for, without its superblocks.
const LEAST_LOG_FRAGMENTS: u64 = 64;
/// The largest fragments that a log can lie in: its superblocks must be in different ones.
const MOST_FRAGMENT_BYTES: u32 = BLOCK_BYTES as u32;
/// The least and the most bytes of it, where no size is stated.
const LEAST_BYTES: u64 = least_bytes(MOST_FRAGMENT_BYTES);
const MOST_BYTES: u64 = 1 << 30;

/// Where a log is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogPlace {
    File,
    Behind,
}

/// A log as it will be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// The blocks of the file that it is in, as it has them; none where it is elsewhere.
    pub(super) blocks: u64,
    /// The fragments with which the blocks of the file begin, and those of its indirect blocks.
    pub(super) taken: Vec<u64>,
    /// The bytes of the log behind the file system; 0 for none.
    pub(super) behind_bytes: u64,
}

/// The least that may be asked for.
const fn least_bytes(fragment_bytes: u32) -> u64 {
    LOG_OFFSET_BYTES + LEAST_LOG_FRAGMENTS * fragment_bytes as u64
}

/// The bytes of a log in so many bytes.
fn wanted_bytes(wanted: &Wanted<'_>, size_bytes: u64) -> u64 {
    let usual = (size_bytes / PART).clamp(LEAST_BYTES, MOST_BYTES);
    let bytes = wanted.mkfs.journal_bytes.unwrap_or(usual);
    bytes.next_multiple_of(BLOCK_BYTES)
}

/// What the file system has of these bytes, and what the log behind it has. Both begin at a block of
/// the log.
///
/// # Errors
/// Where the log does not fit.
pub(super) fn divided(wanted: &Wanted<'_>, size_bytes: u64) -> Result<(u64, u64), MkfsError> {
    if wanted.log != Some(LogPlace::Behind) {
        return Ok((size_bytes, 0));
    }
    let size_bytes = size_bytes - size_bytes % BLOCK_BYTES;
    let behind = wanted_bytes(wanted, size_bytes);
    match behind > size_bytes / 2 {
        true => bad(format!(
            "a log of {behind} bytes does not fit into {size_bytes}"
        )),
        false => Ok((size_bytes - behind, behind)),
    }
}

fn bad<T>(what: String) -> Result<T, MkfsError> {
    Err(MkfsError::BadOption(what))
}

impl Log {
    /// The log that is asked for, in or behind this file system.
    ///
    /// # Errors
    /// Where no mount could write it, or where there is no room for it.
    pub(super) fn of(
        wanted: &Wanted<'_>,
        sb: &Superblock,
        behind_bytes: u64,
        first: u64,
    ) -> Result<Log, MkfsError> {
        let Some(place) = wanted.log else {
            return Ok(Log::default());
        };
        if sb.fragment_bytes > MOST_FRAGMENT_BYTES {
            return bad(format!(
                "a log needs fragments of {MOST_FRAGMENT_BYTES} bytes at most"
            ));
        }
        let home_bytes = sb.fragments * u64::from(sb.fragment_bytes);
        let bytes = match place {
            LogPlace::File => wanted_bytes(wanted, home_bytes),
            LogPlace::Behind => behind_bytes,
        };
        let least = least_bytes(sb.fragment_bytes);
        if bytes < least {
            return bad(format!(
                "a log of {bytes} bytes is too short: with fragments of {} bytes it needs {least}",
                sb.fragment_bytes
            ));
        }
        let mut log = Log {
            behind_bytes,
            ..Log::default()
        };
        if place == LogPlace::File {
            log.blocks = bytes.div_ceil(sb.block_bytes.into());
            let blocks = all_blocks(log.blocks, sb.pointers_per_block.into());
            let free = free_blocks(sb, first).take(blocks as usize);
            log.taken = free.collect();
            if bytes > MOST_BYTES || bytes > home_bytes / 2 || (log.taken.len() as u64) < blocks {
                return bad(format!(
                    "a log of {bytes} bytes does not fit into {home_bytes}"
                ));
            }
        }
        Ok(log)
    }

    /// Where it is, as the superblock notes it; `None` where there is none.
    pub(super) fn record(&self, wanted: &Wanted<'_>) -> Option<LogRecord> {
        let (inode, uuid) = match wanted.log? {
            LogPlace::File => (INODE, [0; 16]),
            LogPlace::Behind => (InodeNumber::NONE, uuid(wanted)),
        };
        Some(LogRecord { inode, uuid })
    }

    /// The fragments of a group that the file has, with its indirect blocks, counted in the group.
    pub(super) fn in_group(&self, sb: &Superblock, group: GroupNumber) -> Vec<Range<usize>> {
        let start = sb.group_start(group);
        let end = start + u64::from(sb.fragments_in_group(group));
        let from = self.taken.partition_point(|block| *block < start);
        let to = self.taken.partition_point(|block| *block < end);
        let run = |block: &u64| {
            let first = (block - start) as usize;
            first..first + sb.fragments_per_block as usize
        };
        self.taken[from..to].iter().map(run).collect()
    }

    /// Makes the log behind the file system. No record stands at its beginning.
    pub(super) fn write_behind(
        &self,
        wanted: &Wanted<'_>,
        device: &dyn BlockDevice,
        end_bytes: u64,
    ) -> Result<(), MkfsError> {
        let mut log = superblocks(wanted, self.behind_bytes);
        log.resize((LOG_OFFSET_BYTES + BLOCK_BYTES) as usize, 0);
        Ok(device.write(end_bytes.next_multiple_of(BLOCK_BYTES), &log)?)
    }
}

/// The blocks of groups that nobody has, from a fragment on.
fn free_blocks(sb: &Superblock, first: u64) -> impl Iterator<Item = u64> + '_ {
    let per_block = u64::from(sb.fragments_per_block);
    GroupNumber::all(sb.groups).flat_map(move |group| {
        let end = sb.group_start(group) + u64::from(sb.fragments_in_group(group));
        let start = sb.group_data(group).next_multiple_of(per_block).max(first);
        let whole = end.saturating_sub(start) / per_block;
        (0..whole).map(move |block| start + block * per_block)
    })
}

/// A file's blocks with the indirect blocks that map them.
fn all_blocks(blocks: u64, pointers: u64) -> u64 {
    let single = blocks.saturating_sub(DIRECT_POINTERS as u64);
    let double = single.saturating_sub(pointers);
    let triple = double.saturating_sub(pointers * pointers);
    let middle = triple.div_ceil(pointers * pointers) + u64::from(double > 0);
    blocks + single.div_ceil(pointers) + middle + u64::from(triple > 0)
}

/// What names a log of these options: it differs from that of every log that was in its place
/// before.
fn uuid(wanted: &Wanted<'_>) -> [u8; 16] {
    let mut uuid = wanted.mkfs.uuid;
    for (byte, seed) in uuid.iter_mut().zip(wanted.mkfs.hash_seed) {
        *byte ^= seed;
    }
    uuid
}

/// What an empty log begins with that is so long with it.
pub(super) fn superblocks(wanted: &Wanted<'_>, bytes: u64) -> Vec<u8> {
    let now = wanted.mkfs.time_seconds.saturating_mul(1_000_000_000);
    Wafs::superblocks(bytes - LOG_OFFSET_BYTES, uuid(wanted), now)
}

/// A file's map as it is built: indirect blocks lie between the file's own.
pub(super) struct Tree<'t> {
    taken: std::slice::Iter<'t, u64>,
    /// The file's blocks that are still to be placed.
    left: u64,
    /// The file's blocks, in order.
    pub(super) data: Vec<u64>,
    /// Indirect blocks, with what they hold.
    pub(super) indirect: Vec<(u64, Vec<u8>)>,
    /// The inode's pointers.
    pub(super) pointers: [u64; POINTERS],
}

impl<'t> Tree<'t> {
    pub(super) fn new(sb: &Superblock, log: &'t Log) -> Tree<'t> {
        let mut tree = Tree {
            taken: log.taken.iter(),
            left: log.blocks,
            data: Vec::new(),
            indirect: Vec::new(),
            pointers: [0; POINTERS],
        };
        for index in 0..POINTERS {
            tree.pointers[index] = tree.take(sb, index.saturating_sub(DIRECT_POINTERS - 1));
        }
        tree
    }

    /// A block of the file, or a tree of `depth` levels of indirect blocks above some; 0 once all
    /// are placed.
    fn take(&mut self, sb: &Superblock, depth: usize) -> u64 {
        if self.left == 0 {
            return 0;
        }
        let Some(block) = self.taken.next().copied() else {
            return 0;
        };
        if depth == 0 {
            self.left -= 1;
            self.data.push(block);
            return block;
        }
        let mut bytes = Vec::with_capacity(sb.block_bytes as usize);
        for _ in 0..sb.pointers_per_block {
            let below = self.take(sb, depth - 1);
            bytes.extend(wide(sb, below));
        }
        self.indirect.push((block, bytes));
        block
    }
}

/// A number of four bytes in UFS1, of eight in UFS2.
pub(super) fn wide(sb: &Superblock, value: u64) -> Vec<u8> {
    match sb.version {
        Version::Ufs1 => sb.order.bytes_of_u32(value as u32).to_vec(),
        Version::Ufs2 => sb.order.bytes_of_u64(value).to_vec(),
    }
}
