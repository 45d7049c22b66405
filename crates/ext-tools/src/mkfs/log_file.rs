//! A log of ours, where one is asked for: in a file, an ordinary one to everybody else, which nobody
//! may change; or behind the file system, which ends earlier for that.

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::format::FIRST_LOG_INODE;
use backstitch_ext::format::inode::{DIRECT_POINTERS, FLAG_IMMUTABLE, POINTERS};
use backstitch_ext::format::superblock::Superblock;
use backstitch_wafs::Wafs;
use backstitch_wafs::format::{BLOCK_BYTES, LOG_OFFSET_BYTES};

use super::journal::{Tree, all_blocks};
use super::writer::Writer;
use super::{LOG_BEHIND, LOG_FILE, Mkfs, MkfsError, has_word};

/// The name of the file, in the root directory.
pub(super) const NAME: &[u8] = b".lffs-log";
/// It is so much of the file system: about a hundredth, as in the paper.
const PART: u64 = 100;
/// The shortest that may be asked for.
const LEAST_WANTED_BYTES: u64 = 64 << 10;
/// The least and the most of it, where no size is stated.
const LEAST_BYTES: u64 = 256 << 10;
const MOST_BYTES: u64 = 1 << 30;

/// Whether the options ask for a log of ours.
pub(super) fn is_asked_for(options: &Mkfs) -> bool {
    has_word(options, LOG_FILE) || has_word(options, LOG_BEHIND)
}

/// The length of a log in so many bytes.
fn wanted_bytes(options: &Mkfs, size_bytes: u64) -> u64 {
    let usual = (size_bytes / PART).clamp(LEAST_BYTES, MOST_BYTES);
    let wanted = options.journal_bytes.unwrap_or(usual);
    wanted.next_multiple_of(BLOCK_BYTES)
}

/// The bytes of the log behind the file system that these options ask for, of `size_bytes` for both;
/// 0 for none.
pub(super) fn behind_bytes(options: &Mkfs, size_bytes: u64) -> Result<u64, MkfsError> {
    if !has_word(options, LOG_BEHIND) {
        return Ok(0);
    }
    if has_word(options, LOG_FILE) {
        let what = "a log is in a file or behind the file system".to_owned();
        return Err(MkfsError::BadOption(what));
    }
    let wanted = wanted_bytes(options, size_bytes);
    if wanted < LEAST_WANTED_BYTES || wanted > size_bytes / 2 {
        let what = format!("a log of {wanted} bytes does not fit into {size_bytes}");
        return Err(MkfsError::BadOption(what));
    }
    Ok(wanted)
}

/// Makes the log behind the file system, which is so long. What names it.
pub(super) fn write_behind(
    options: &Mkfs,
    device: &dyn BlockDevice,
    end_bytes: u64,
    log_bytes: u64,
) -> Result<(), MkfsError> {
    let log = made(options, log_bytes as usize)?;
    let start = end_bytes.next_multiple_of(BLOCK_BYTES);
    device.write(start, &log[..LOG_OFFSET_BYTES as usize])?;
    Ok(())
}

/// What names a log of these options: it differs from that of every log that was in its place
/// before.
pub(super) fn uuid(options: &Mkfs) -> [u8; 16] {
    let mut uuid = options.uuid;
    for (byte, seed) in uuid.iter_mut().zip(options.hash_seed) {
        *byte ^= seed;
    }
    uuid
}

/// The bytes of an empty log.
fn made(options: &Mkfs, len_bytes: usize) -> Result<Vec<u8>, MkfsError> {
    let log = MemoryDevice::new(len_bytes);
    let now = options.time_seconds.saturating_mul(1_000_000_000);
    let made = Wafs::make(&log, uuid(options), now);
    made.map_err(|error| MkfsError::BadOption(error.to_string()))?;
    Ok(log.snapshot())
}

/// The blocks of the log in a file that these options ask for; 0 for none.
pub(super) fn blocks(options: &Mkfs, sb: &Superblock) -> Result<u32, MkfsError> {
    if !has_word(options, LOG_FILE) {
        return Ok(0);
    }
    let bad = |what: String| Err(MkfsError::BadOption(what));
    if sb.revision == 0 || sb.block_size > 4096 || sb.first_inode > FIRST_LOG_INODE {
        return bad(
            "a log in a file needs revision 1, and blocks of 4096 bytes at most".to_owned(),
        );
    }
    if sb
        .features
        .has_compat(backstitch_ext::format::features::COMPAT_HAS_JOURNAL)
    {
        return bad("a file system has a journal or a log in a file".to_owned());
    }
    let wanted = wanted_bytes(options, sb.blocks_count << sb.block_size_bits);
    let blocks = wanted >> sb.block_size_bits;
    let fits = (LEAST_WANTED_BYTES..=MOST_BYTES).contains(&wanted) && blocks <= sb.blocks_count / 2;
    if !fits {
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
        let log = made(self.options, data.len() * block_bytes)?;
        for (index, block) in data.iter().enumerate() {
            let bytes = &log[index * block_bytes..(index + 1) * block_bytes];
            match bytes.iter().all(|byte| *byte == 0) {
                true => self.write_zero_blocks(*block..*block + 1)?,
                false => self.write_block(*block, bytes.to_vec())?,
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
