//! The journal of a new file system: its size, and its inode.

use backstitch_journal::format::superblock::MIN_BLOCKS;
use backstitch_journal::format::{Features as JournalFeatures, Superblock as JournalSuperblock};
use backstitch_layout::BlockNumber;
use backstitch_layout::tools::JournalFeatures as FeatureNames;

use super::writer::{Writer, put_pointer};
use super::{Mkfs, MkfsError, log_file};
use backstitch_ext::format::features::COMPAT_HAS_JOURNAL;
use backstitch_ext::format::inode::{DIRECT_POINTERS, POINTERS};
use backstitch_ext::format::{JOURNAL_INODE, Superblock};

/// No journal is larger than mke2fs lets it be.
const MAX_BLOCKS: u32 = 10_240_000;

/// The blocks that mke2fs gives the journal of a file system of `blocks` blocks; 0 where it is too
/// small for one.
pub(crate) fn usual_blocks(blocks: u64) -> u32 {
    const KIBI: u64 = 1024;
    const SIZES: [(u64, u32); 9] = [
        (2 * KIBI, 0),
        (32 * KIBI, 1024),
        (256 * KIBI, 4096),
        (512 * KIBI, 8192),
        (4096 * KIBI, 16384),
        (8192 * KIBI, 32768),
        (16384 * KIBI, 65536),
        (32768 * KIBI, 131_072),
        (u64::MAX, 262_144),
    ];
    let fitting = SIZES.iter().find(|(end, _)| blocks < *end);
    fitting.map_or(0, |(_, journal)| *journal)
}

/// The blocks of the journal that these options ask for; 0 for none.
pub(super) fn blocks(options: &Mkfs, sb: &Superblock) -> Result<u32, MkfsError> {
    let has_journal = sb.features.has_compat(COMPAT_HAS_JOURNAL);
    let bad = |what: &str| Err(MkfsError::BadOption(what.to_owned()));
    let (has_size, is_outside) = (
        options.journal_bytes.is_some(),
        options.journal_uuid.is_some(),
    );
    let has_features = !options.journal_features.is_empty();
    let is_log_file = !has_journal && log_file::is_asked_for(options) && !is_outside;
    if !has_journal && (has_size && !is_log_file || is_outside || has_features) {
        return bad("journal options need has_journal (-t ext3)");
    }
    if (has_size || has_features) && is_outside {
        return bad("a journal on another device gets its options when that device is made");
    }
    if !has_journal || is_outside {
        return Ok(0);
    }
    let usual = usual_blocks(sb.blocks_count);
    if usual == 0 {
        let blocks = sb.blocks_count;
        let what = format!("{blocks} blocks, a journal needs 2048");
        return Err(MkfsError::TooSmall(what));
    }
    let wanted = options
        .journal_bytes
        .map_or(usual.into(), |bytes| bytes >> sb.block_size_bits);
    if !(u64::from(MIN_BLOCKS)..=MAX_BLOCKS.into()).contains(&wanted) {
        let what = format!("the journal must have {MIN_BLOCKS} to {MAX_BLOCKS} blocks");
        return Err(MkfsError::BadOption(what));
    }
    if wanted > sb.blocks_count / 2 {
        let what = format!("a journal of {wanted} blocks takes more than half of them");
        return Err(MkfsError::BadOption(what));
    }
    Ok(wanted as u32)
}

/// The features of these names.
pub(super) fn features(names: FeatureNames) -> Result<JournalFeatures, MkfsError> {
    let unknown = || MkfsError::BadOption(format!("journal features {}", names.join(",")));
    JournalFeatures::named(names).ok_or_else(unknown)
}

/// A journal's blocks with the indirect blocks that map them.
pub(super) fn all_blocks(blocks: u32, block_bytes: u32) -> u32 {
    let pointers = block_bytes / 4;
    let single = blocks.saturating_sub(DIRECT_POINTERS as u32);
    let double = single.saturating_sub(pointers);
    let triple = double.saturating_sub(pointers.saturating_mul(pointers));
    let middle = triple.div_ceil(pointers.saturating_mul(pointers)) + u32::from(double > 0);
    blocks + single.div_ceil(pointers) + middle + u32::from(triple > 0)
}

impl Writer<'_> {
    /// Writes the journal: a file whose blocks and indirect blocks are adjacent, and a superblock
    /// that says it is empty. The rest is zeros: no record of an older journal in that place must
    /// be taken for one of this.
    pub(super) fn write_journal(&mut self) -> Result<(), MkfsError> {
        let blocks = self.geometry.journal_blocks;
        let taken = self.allocate(all_blocks(blocks, self.sb.block_size));
        let mut tree = Tree::new(taken, blocks, self.block_size());
        let mut raw = self.new_inode(0o100_600, 1, &[]);
        let mut copy = [0; POINTERS + 2];
        for (index, pointer) in copy.iter_mut().take(POINTERS).enumerate() {
            let block = tree.take(index.saturating_sub(DIRECT_POINTERS - 1));
            *pointer = block.0 as u32;
        }
        let (data, indirect) = (tree.data, tree.indirect);
        let mut sb = JournalSuperblock::new(self.sb.block_size, blocks, 0, self.options.uuid);
        sb.set_features(features(self.options.journal_features)?);
        let mut first = sb.encode().to_vec();
        first.resize(self.block_size(), 0);
        self.write_block(data[0], first)?;
        for block in &data[1..] {
            self.write_zero_blocks(*block..*block + 1)?;
        }
        let sectors = (data.len() + indirect.len()) as u32 * (self.sb.block_size / 512);
        for (block, bytes) in indirect {
            self.write_block(block, bytes)?;
        }
        let size = u64::from(blocks) << self.sb.block_size_bits;
        (copy[POINTERS], copy[POINTERS + 1]) = ((size >> 32) as u32, size as u32);
        raw.i_size_lo = (size as u32).into();
        raw.i_size_high = ((size >> 32) as u32).into();
        raw.i_blocks_lo = sectors.into();
        for (pointer, block) in raw.i_block.iter_mut().zip(copy) {
            *pointer = block.into();
        }
        self.add_inode(JOURNAL_INODE, &raw);
        self.journal = Some(copy);
        Ok(())
    }
}

/// A file's map as it is built.
pub(super) struct Tree {
    taken: std::vec::IntoIter<BlockNumber>,
    /// The file's blocks that are still to be placed.
    left: u32,
    pub(super) data: Vec<BlockNumber>,
    pub(super) indirect: Vec<(BlockNumber, Vec<u8>)>,
    pointers: usize,
}

impl Tree {
    /// The map of a file of `blocks` blocks. `taken` are the blocks for its contents and its
    /// indirect blocks, in order.
    pub(super) fn new(taken: Vec<BlockNumber>, blocks: u32, block_bytes: usize) -> Tree {
        Tree {
            taken: taken.into_iter(),
            left: blocks,
            data: Vec::new(),
            indirect: Vec::new(),
            pointers: block_bytes / 4,
        }
    }

    /// Places a block of the file (`depth` 0), or an indirect block with `depth` levels below it. 0
    /// once all of the file is placed.
    pub(super) fn take(&mut self, depth: usize) -> BlockNumber {
        if self.left == 0 {
            return BlockNumber::NONE;
        }
        let Some(block) = self.taken.next() else {
            return BlockNumber::NONE;
        };
        if depth == 0 {
            self.left -= 1;
            self.data.push(block);
            return block;
        }
        let mut bytes = vec![0; self.pointers * 4];
        for slot in 0..self.pointers {
            let below = self.take(depth - 1);
            put_pointer(&mut bytes, slot, below);
        }
        self.indirect.push((block, bytes));
        block
    }
}
