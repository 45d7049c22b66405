//! A log of ours (`lffs`), where one is asked for. It is in a file, which is an ordinary but
//! immutable one to other systems; or it is behind the file system, which is then shorter.

use backstitch_device::BlockDevice;
use backstitch_ext::format::FIRST_LOG_INODE;
use backstitch_ext::format::features::COMPAT_HAS_JOURNAL;
use backstitch_ext::format::inode::{DIRECT_POINTERS, FLAG_IMMUTABLE, POINTERS};
use backstitch_ext::format::superblock::Superblock;
use backstitch_layout::LOG_FILE_NAME;
use backstitch_wafs::Wafs;
use backstitch_wafs::format::{BLOCK_BYTES, LOG_OFFSET_BYTES};

use super::journal::{Tree, all_blocks};
use super::writer::Writer;
use super::{LOG_BEHIND, LOG_FILE, Mkfs, MkfsError, has_word};

/// The name of the file, in the root directory.
pub(super) const NAME: &[u8] = LOG_FILE_NAME.as_bytes();
/// The usual log takes one part in this many of the file system, as in the paper.
const PART: u64 = 100;
/// The length of the shortest log that may be asked for, in blocks, without its superblocks.
const LEAST_LOG_BLOCKS: u64 = 64;
/// The largest block size with a log: the log's two superblocks must be in different blocks.
const MOST_BLOCK_BYTES: u32 = BLOCK_BYTES as u32;
/// The shortest and the longest log where no length is stated.
const LEAST_BYTES: u64 = least_wanted_bytes(MOST_BLOCK_BYTES);
const MOST_BYTES: u64 = 1 << 30;

/// Whether the options ask for a log of ours.
pub(super) fn is_asked_for(options: &Mkfs) -> bool {
    has_word(options, LOG_FILE) || has_word(options, LOG_BEHIND)
}

/// The size of the file system and the log behind it, rounded down to whole blocks of the log.
pub(super) fn with_log_behind(options: &Mkfs, size_bytes: u64) -> u64 {
    match has_word(options, LOG_BEHIND) {
        true => size_bytes - size_bytes % BLOCK_BYTES,
        false => size_bytes,
    }
}

/// The length of the shortest log that may be asked for, in bytes.
const fn least_wanted_bytes(block_bytes: u32) -> u64 {
    LOG_OFFSET_BYTES + LEAST_LOG_BLOCKS * block_bytes as u64
}

/// The length of the log for a file system of `size_bytes`.
fn wanted_bytes(options: &Mkfs, size_bytes: u64) -> u64 {
    let usual = (size_bytes / PART).clamp(LEAST_BYTES, MOST_BYTES);
    let wanted = options.journal_bytes.unwrap_or(usual);
    wanted.next_multiple_of(BLOCK_BYTES)
}

/// The length of the log behind the file system that these options ask for; 0 for none.
/// `size_bytes` is the size of both.
pub(super) fn behind_bytes(options: &Mkfs, size_bytes: u64) -> Result<u64, MkfsError> {
    if !has_word(options, LOG_BEHIND) {
        return Ok(0);
    }
    if has_word(options, LOG_FILE) {
        let what = "a log is in a file or behind the file system".to_owned();
        return Err(MkfsError::BadOption(what));
    }
    let wanted = wanted_bytes(options, size_bytes);
    if wanted > size_bytes / 2 {
        let what = format!("a log of {wanted} bytes does not fit into {size_bytes}");
        return Err(MkfsError::BadOption(what));
    }
    Ok(wanted)
}

/// Makes a log of `log_bytes` behind the file system: its superblocks, and zeros where its first
/// record would be.
pub(super) fn write_behind(
    options: &Mkfs,
    device: &dyn BlockDevice,
    end_bytes: u64,
    log_bytes: u64,
) -> Result<(), MkfsError> {
    let mut log = superblocks(options, log_bytes);
    log.resize((LOG_OFFSET_BYTES + BLOCK_BYTES) as usize, 0);
    device.write(end_bytes.next_multiple_of(BLOCK_BYTES), &log)?;
    Ok(())
}

/// The log's UUID. It differs from that of every log that was in its place before.
pub(super) fn uuid(options: &Mkfs) -> [u8; 16] {
    let mut uuid = options.uuid;
    for (byte, seed) in uuid.iter_mut().zip(options.hash_seed) {
        *byte ^= seed;
    }
    uuid
}

/// The superblocks of an empty log that has `bytes` bytes with them.
fn superblocks(options: &Mkfs, bytes: u64) -> Vec<u8> {
    let now = options.time_seconds.saturating_mul(1_000_000_000);
    Wafs::superblocks(bytes - LOG_OFFSET_BYTES, uuid(options), now)
}

/// Refuses options that ask for a log which no mount could write.
pub(super) fn check(options: &Mkfs, sb: &Superblock, behind_bytes: u64) -> Result<(), MkfsError> {
    let bad = |what: String| Err(MkfsError::BadOption(what));
    if !is_asked_for(options) {
        return Ok(());
    }
    let block_bytes = sb.block_size;
    if block_bytes > MOST_BLOCK_BYTES {
        return bad(format!(
            "a log needs blocks of {MOST_BLOCK_BYTES} bytes at most"
        ));
    }
    if sb.features.has_compat(COMPAT_HAS_JOURNAL) {
        return bad("a file system has a journal or a log of operations".to_owned());
    }
    let wanted = match behind_bytes {
        0 => wanted_bytes(options, sb.blocks_count << sb.block_size_bits),
        behind => behind,
    };
    let least = least_wanted_bytes(block_bytes);
    if wanted < least {
        return bad(format!(
            "a log of {wanted} bytes is too short: with blocks of {block_bytes} bytes it needs {least}"
        ));
    }
    Ok(())
}

/// The blocks of the log in a file that these options ask for; 0 for none.
pub(super) fn blocks(options: &Mkfs, sb: &Superblock) -> Result<u32, MkfsError> {
    if !has_word(options, LOG_FILE) {
        return Ok(0);
    }
    let bad = |what: String| Err(MkfsError::BadOption(what));
    if sb.revision == 0 || sb.first_inode > FIRST_LOG_INODE {
        return bad("a log in a file needs revision 1".to_owned());
    }
    let wanted = wanted_bytes(options, sb.blocks_count << sb.block_size_bits);
    let blocks = wanted >> sb.block_size_bits;
    if wanted > MOST_BYTES || blocks > sb.blocks_count / 2 {
        return bad(format!(
            "a log of {wanted} bytes does not fit into {} blocks",
            sb.blocks_count
        ));
    }
    Ok(blocks as u32)
}

impl Writer<'_> {
    /// The file with an empty log. The rest of it is zeros, so that nothing that was there before
    /// shows.
    pub(super) fn write_log_file(&mut self) -> Result<(), MkfsError> {
        let blocks = self.geometry.log_blocks;
        let block_bytes = self.block_size();
        let taken = self.allocate(all_blocks(blocks, self.sb.block_size));
        let mut tree = Tree::new(taken, blocks, block_bytes);
        let mut pointers = [0; POINTERS];
        for (index, pointer) in pointers.iter_mut().enumerate() {
            *pointer = tree.take(index.saturating_sub(DIRECT_POINTERS - 1)).0 as u32;
        }
        let (data, indirect) = (tree.data, tree.indirect);
        let log = superblocks(self.options, (data.len() * block_bytes) as u64);
        for (index, block) in data.iter().enumerate() {
            match log.get(index * block_bytes..(index + 1) * block_bytes) {
                Some(bytes) => self.write_block(*block, bytes.to_vec())?,
                None => self.write_zero_blocks(*block..*block + 1)?,
            }
        }
        let sectors = (data.len() + indirect.len()) as u32 * (self.sb.block_size / 512);
        for (block, bytes) in indirect {
            self.write_block(block, bytes)?;
        }
        let size = u64::from(blocks) << self.sb.block_size_bits;
        let mut raw = self.new_inode(0o100_400, 1, &[]);
        raw.i_size_lo = (size as u32).into();
        raw.i_size_high = ((size >> 32) as u32).into();
        raw.i_blocks_lo = sectors.into();
        raw.i_flags = FLAG_IMMUTABLE.into();
        for (pointer, block) in raw.i_block.iter_mut().zip(pointers) {
            *pointer = block.into();
        }
        self.add_inode(FIRST_LOG_INODE, &raw);
        Ok(())
    }
}
