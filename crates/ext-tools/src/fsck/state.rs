//! What the passes hand to each other.

use super::{CheckError, Options};
use backstitch_ext::format::GroupDescriptor;
use backstitch_ext::format::directory::type_code;
use backstitch_ext::format::superblock::Superblock;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{BlockNumber, FileType, GroupNumber, InodeNumber};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Inode tables larger than this are worth several threads.
const LARGE_TABLE_BYTES: u64 = 256 << 20;
/// More threads than this only wait for the disk.
const MAX_THREADS: usize = 16;

/// What all passes read.
pub(crate) struct Context<'a, S: Source + ?Sized> {
    pub(crate) source: &'a S,
    pub(crate) sb: &'a Superblock,
    pub(crate) groups: &'a [GroupDescriptor],
    pub(crate) threads: usize,
    pub(crate) max_findings: usize,
    /// Whether a deletion time can be told from an inode number: not where the clock was near 1970.
    pub(crate) can_tell_low_times: bool,
    /// The blocks of the resize inode, where it is sound.
    pub(crate) resize_blocks: Option<u64>,
}

impl<'a, S: Source + ?Sized> Context<'a, S> {
    pub(crate) fn new(
        source: &'a S,
        sb: &'a Superblock,
        groups: &'a [GroupDescriptor],
        options: &Options,
    ) -> Self {
        let table_bytes = u64::from(sb.inodes_count) * u64::from(sb.inode_size);
        let threads = options.threads.unwrap_or_else(|| {
            if table_bytes < LARGE_TABLE_BYTES {
                return 1;
            }
            std::thread::available_parallelism().map_or(1, |count| count.get())
        });
        let is_low = |time: u32| time != 0 && time < sb.inodes_count;
        Context {
            source,
            sb,
            groups,
            threads: threads.clamp(1, MAX_THREADS),
            max_findings: options.max_findings,
            can_tell_low_times: ![sb.wtime, sb.mtime, sb.mkfs_time].into_iter().any(is_low),
            resize_blocks: None,
        }
    }

    pub(crate) fn block_size(&self) -> usize {
        self.sb.block_size as usize
    }

    /// One block.
    pub(crate) fn block<'b>(
        &'b self,
        block: BlockNumber,
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], CheckError> {
        let offset = self.sb.block_offset(block);
        Ok(self.source.bytes(offset, self.block_size(), scratch)?)
    }

    /// One inode's bytes.
    pub(crate) fn inode<'b>(
        &'b self,
        inode: InodeNumber,
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], CheckError> {
        let group = &self.groups[self.sb.group_of_inode(inode).index()];
        let (block, offset) = group.inode_location(self.sb, inode);
        let offset = self.sb.block_offset(block) + offset as u64;
        Ok(self
            .source
            .bytes(offset, self.sb.inode_size as usize, scratch)?)
    }

    /// Whether a block belongs to the file system itself: superblocks, descriptors, bitmaps, inode
    /// tables.
    pub(crate) fn is_metadata(&self, block: BlockNumber) -> bool {
        if !self.sb.is_valid_pointer(block) {
            return false;
        }
        let group = self.sb.group_of_block(block);
        let descriptor = &self.groups[group.index()];
        let table_end = descriptor.inode_table + u64::from(self.sb.inode_table_blocks);
        let distance = block - self.sb.group_first_block(group);
        distance < u64::from(self.sb.super_blocks_in_group(group))
            || block == descriptor.block_bitmap
            || block == descriptor.inode_bitmap
            || (descriptor.inode_table..table_end).contains(&block)
    }

    /// The blocks of the file system itself.
    pub(crate) fn metadata_blocks(&self) -> BlockSet {
        let mut set = BlockSet::new(self.sb.blocks_count);
        // Where blocks have 1 KiB, block 0 is the boot block. No bitmap has a bit for it: it is
        // left out.
        for (group, descriptor) in self.groups.iter().enumerate() {
            let group = GroupNumber::at(group);
            let first = self.sb.group_first_block(group);
            set.insert_run(first, u64::from(self.sb.super_blocks_in_group(group)));
            set.insert(descriptor.block_bitmap);
            set.insert(descriptor.inode_bitmap);
            set.insert_run(
                descriptor.inode_table,
                u64::from(self.sb.inode_table_blocks),
            );
        }
        set
    }
}

/// Runs `work` for the chunks `0..chunks`, on several threads where the context says so; the
/// results come in the chunks' order. `new_worker` makes what one thread keeps over its chunks, and
/// all of those come back too.
pub(crate) fn in_chunks<W: Send, R: Send>(
    threads: usize,
    chunks: usize,
    new_worker: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) -> Result<R, CheckError> + Sync,
) -> Result<(Vec<W>, Vec<R>), CheckError> {
    if threads <= 1 || chunks <= 1 {
        let mut worker = new_worker();
        let results: Result<Vec<R>, _> = (0..chunks).map(|c| work(&mut worker, c)).collect();
        return Ok((vec![worker], results?));
    }
    let next = AtomicUsize::new(0);
    let run = || -> Result<(W, Vec<(usize, R)>), CheckError> {
        let mut worker = new_worker();
        let mut results = Vec::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return Ok((worker, results));
            }
            results.push((chunk, work(&mut worker, chunk)?));
        }
    };
    let finished: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.min(chunks)).map(|_| scope.spawn(run)).collect();
        handles
            .into_iter()
            .map(|handle| {
                handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let (mut workers, mut results) = (Vec::new(), Vec::new());
    for part in finished {
        let (worker, part) = part?;
        workers.push(worker);
        results.extend(part);
    }
    results.sort_by_key(|(chunk, _)| *chunk);
    Ok((
        workers,
        results.into_iter().map(|(_, result)| result).collect(),
    ))
}

/// A set of blocks, a bit for each.
#[derive(Clone)]
pub(crate) struct BlockSet {
    words: Vec<u64>,
}

impl BlockSet {
    pub(crate) fn new(blocks: u64) -> BlockSet {
        BlockSet {
            words: vec![0; blocks.div_ceil(64) as usize],
        }
    }

    /// Adds a block; `false` where it was in the set already. The block must exist.
    pub(crate) fn insert(&mut self, block: BlockNumber) -> bool {
        let bit = 1 << (block.0 % 64);
        let word = &mut self.words[(block.0 / 64) as usize];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn insert_run(&mut self, first: BlockNumber, count: u64) {
        let (mut block, end) = (first, first + count);
        while block < end {
            if block.0.is_multiple_of(64) && block + 64 <= end {
                self.words[(block.0 / 64) as usize] = u64::MAX;
                block += 64;
            } else {
                self.insert(block);
                block += 1;
            }
        }
    }

    /// Adds another set, and returns the blocks that were in both. Blocks of `common`, which every
    /// set has from the start, are left out.
    pub(crate) fn join(&mut self, other: &BlockSet, common: &BlockSet) -> Vec<BlockNumber> {
        let mut twice = Vec::new();
        for (index, word) in self.words.iter_mut().enumerate() {
            let mut both = *word & other.words[index] & !common.words[index];
            while both != 0 {
                let block = index as u64 * 64 + u64::from(both.trailing_zeros());
                twice.push(BlockNumber(block));
                both &= both - 1;
            }
            *word |= other.words[index];
        }
        twice
    }

    /// The bits of 64 blocks from `block` on, which need not be a multiple of 64.
    pub(crate) fn bits_from(&self, block: BlockNumber) -> u64 {
        let (index, shift) = ((block.0 / 64) as usize, block.0 % 64);
        let word = |index: usize| self.words.get(index).copied().unwrap_or(0);
        if shift == 0 {
            return word(index);
        }
        word(index) >> shift | word(index + 1) << (64 - shift)
    }

    pub(crate) fn len(&self) -> u64 {
        self.words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }
}

/// What is kept of every inode in groups that have any in use.
#[derive(Default)]
pub(crate) struct InodeInfo {
    /// Whether it is in use.
    pub(crate) is_used: bool,
    /// Whether AFS uses it, which keeps no names.
    pub(crate) is_imagic: bool,
    /// The type code of a directory entry for it; 0 where the mode is none.
    pub(crate) type_code: u8,
    /// `i_links_count`
    pub(crate) links: u16,
    /// The names found; pass 2 counts from several threads.
    pub(crate) names: AtomicU32,
}

/// A directory of pass 1.
pub(crate) struct Directory {
    pub(crate) inode: InodeNumber,
    /// Its blocks in [`Gathered::directory_blocks`].
    pub(crate) blocks: std::ops::Range<usize>,
    /// One more than the last block that it maps.
    pub(crate) mapped_blocks: u64,
    /// Whether the index flag is set and the root looks like an index's.
    pub(crate) has_index: bool,
}

/// A block of a directory.
#[derive(Clone, Copy)]
pub(crate) struct DirectoryBlock {
    /// Which one it is.
    pub(crate) logical: u32,
    /// Where it is; 0 where another inode has claimed that block before, and its entries are
    /// therefore not looked at.
    pub(crate) block: u32,
}

/// The inodes that share an attribute block.
#[derive(Clone, Copy)]
pub(crate) struct XattrUse {
    pub(crate) count: u32,
    /// The first of them.
    pub(crate) inode: InodeNumber,
}

/// Everything that pass 1 gathers.
pub(crate) struct Gathered {
    /// The blocks in use.
    pub(crate) used: BlockSet,
    /// By group; `None` where no inode of the group is in use.
    pub(crate) inodes: Vec<Option<Box<[InodeInfo]>>>,
    /// In the order of their inodes.
    pub(crate) directories: Vec<Directory>,
    pub(crate) directory_blocks: Vec<DirectoryBlock>,
    pub(crate) xattr_blocks: FxHashMap<BlockNumber, XattrUse>,
    /// Whether a regular file has 2 GiB or more.
    pub(crate) has_large_file: bool,
}

impl Directories for Gathered {
    fn directory_count(&self) -> usize {
        self.directories.len()
    }

    fn directory_at(&self, place: usize) -> InodeNumber {
        self.directories[place].inode
    }

    fn directory_index(&self, inode: InodeNumber) -> Option<usize> {
        self.directories
            .binary_search_by_key(&inode, |directory| directory.inode)
            .ok()
    }
}

impl Gathered {
    /// What is known of an inode; `None` where it is not in use. The number must be an inode's.
    pub(crate) fn inode(&self, sb: &Superblock, inode: InodeNumber) -> Option<&InodeInfo> {
        let group = self
            .inodes
            .get(sb.group_of_inode(inode).index())?
            .as_ref()?;
        let info = group.get(sb.index_in_group(inode) as usize)?;
        info.is_used.then_some(info)
    }

    /// The place in [`Gathered::directories`] of an inode that may be one.
    pub(crate) fn directory_index_of(&self, info: &InodeInfo, inode: InodeNumber) -> Option<u32> {
        let is_directory = info.type_code == type_code(FileType::Directory);
        let index = if is_directory {
            self.directory_index(inode)
        } else {
            None
        };
        index.map(|index| index as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sets_join_and_shift() {
        let mut one = BlockSet::new(200);
        let mut other = BlockSet::new(200);
        let mut common = BlockSet::new(200);
        common.insert(BlockNumber(1));
        for block in [1, 63, 64, 199] {
            assert!(one.insert(BlockNumber(block)));
            assert!(!one.insert(BlockNumber(block)));
        }
        other.insert_run(BlockNumber(1), 130);
        assert_eq!(one.join(&other, &common), [63, 64].map(BlockNumber));
        assert_eq!(one.len(), 131);
        assert_eq!(one.bits_from(BlockNumber(130)), 1);
        assert_eq!(one.bits_from(BlockNumber(136)) >> 63, 1);
        assert_eq!(one.bits_from(BlockNumber(192)), 1 << 7);
    }

    #[test]
    fn chunks_come_back_in_order_whatever_the_threads() {
        for threads in [1, 4] {
            let (workers, results) = in_chunks(
                threads,
                20,
                || 0,
                |sum, chunk| {
                    *sum += chunk;
                    Ok(chunk * 2)
                },
            )
            .unwrap();
            assert_eq!(results, (0..20).map(|chunk| chunk * 2).collect::<Vec<_>>());
            assert_eq!(workers.iter().sum::<usize>(), 190);
        }
    }
}
