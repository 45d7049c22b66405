//! Pass 2, the index of a hashed directory: do its blocks lead to the names, and to each block
//! once?

use backstitch_ext::format::htree::{
    self, BLOCK_MASK, ENTRY_SIZE, HASH_TEA, NODE_ENTRIES_OFFSET, ROOT_INFO_OFFSET, RawCountLimit,
    RawIndexEntry, RawRootInfo,
};
use backstitch_ext::format::superblock::Superblock;
use backstitch_layout::InodeNumber;
use backstitch_layout::tools::{Code, Findings, Location};
use zerocopy::FromBytes;

/// The flags of a root that a reader must know.
const INCOMPATIBLE_ROOT_FLAGS: u8 = 0x1;
/// The largest hash.
const LAST_HASH: u32 = 0xffff_fffe;

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Root,
    Node,
    Leaf,
}

/// What is known of one block of the directory.
#[derive(Clone, Copy)]
struct IndexBlock {
    kind: BlockKind,
    /// How many index entries lead here, and from which block.
    references: u32,
    parent: usize,
    /// Whether it is the first one, or the last one, below its parent.
    is_first: bool,
    is_last: bool,
    /// The lowest and the highest hash of its names.
    hashes: (u32, u32),
    /// The lowest and the highest hash by its index entry.
    bounds: (u32, u32),
}

/// The index of one directory while its blocks are being read.
pub(super) struct Index<'s> {
    sb: &'s Superblock,
    inode: InodeNumber,
    blocks: Vec<IndexBlock>,
    version: u8,
    levels: u8,
    fault: Option<String>,
}

impl<'s> Index<'s> {
    /// For a directory of `blocks` blocks.
    pub(super) fn new(sb: &'s Superblock, inode: InodeNumber, blocks: usize) -> Index<'s> {
        let block = IndexBlock {
            kind: BlockKind::Leaf,
            references: 0,
            parent: 0,
            is_first: false,
            is_last: false,
            hashes: (u32::MAX, 0),
            bounds: (0, LAST_HASH),
        };
        Index {
            sb,
            inode,
            blocks: vec![block; blocks],
            version: 0,
            levels: 0,
            fault: None,
        }
    }

    fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.fault.is_none() {
            self.fault = Some(what());
        }
    }

    /// Looks at a block before its names. Block 0 comes first.
    pub(super) fn start_block(&mut self, logical: usize, bytes: &[u8]) {
        if logical == 0 {
            self.root(bytes);
        } else if is_node(bytes) {
            self.blocks[logical].kind = BlockKind::Node;
            self.entries(logical, bytes, NODE_ENTRIES_OFFSET);
        }
    }

    fn root(&mut self, bytes: &[u8]) {
        self.blocks[0].kind = BlockKind::Root;
        self.blocks[0].references = 1;
        let info = bytes.get(ROOT_INFO_OFFSET..).unwrap_or(&[]);
        let Ok((info, _)) = RawRootInfo::ref_from_prefix(info) else {
            return;
        };
        if info.reserved_zero.get() != 0 || info.info_length < 8 {
            self.fail(|| "its root is no index root".into());
        } else if info.hash_version > HASH_TEA {
            self.fail(|| format!("unknown hash version {}", info.hash_version));
        } else if info.unused_flags & INCOMPATIBLE_ROOT_FLAGS != 0 {
            self.fail(|| format!("unknown flags {:#x}", info.unused_flags));
        } else if info.indirect_levels > htree::max_indirect_levels(self.sb) {
            self.fail(|| format!("{} levels", info.indirect_levels));
        }
        self.version = htree::effective_version(self.sb, info.hash_version);
        self.levels = info.indirect_levels;
        self.entries(0, bytes, ROOT_INFO_OFFSET + usize::from(info.info_length));
    }

    /// The index entries of a block, which start at `start`.
    fn entries(&mut self, logical: usize, bytes: &[u8], start: usize) {
        let expected = bytes.len().saturating_sub(start) / ENTRY_SIZE;
        let table = bytes.get(start..).unwrap_or(&[]);
        let Ok((limits, _)) = RawCountLimit::ref_from_prefix(table) else {
            return self.fail(|| format!("no index entries in block {logical}"));
        };
        let (limit, count) = (
            usize::from(limits.limit.get()),
            usize::from(limits.count.get()),
        );
        if limit != expected || count > limit || count == 0 {
            return self.fail(|| format!("{count} of {limit} index entries in block {logical}"));
        }
        let mut lowest = 0;
        for index in 0..count {
            let entry = |index: usize| {
                table
                    .get(index * ENTRY_SIZE..)
                    .and_then(|bytes| RawIndexEntry::ref_from_prefix(bytes).ok())
                    .map_or((0, 0), |(raw, _)| {
                        (raw.hash.get() & !1, raw.block.get() & BLOCK_MASK)
                    })
            };
            let (hash, block) = entry(index);
            let hash = if index == 0 { 0 } else { hash };
            if hash < lowest {
                self.fail(|| format!("index entries out of order in block {logical}"));
            }
            lowest = hash;
            let Some(child) = self.blocks.get_mut(block as usize) else {
                self.fail(|| format!("index entry to block {block}, which does not exist"));
                continue;
            };
            child.references += 1;
            child.parent = logical;
            child.is_first = index == 0;
            child.is_last = index + 1 == count;
            child.bounds = (
                hash,
                if child.is_last {
                    LAST_HASH
                } else {
                    entry(index + 1).0
                },
            );
        }
        self.blocks[logical].hashes = (0, lowest);
    }

    /// A name in a leaf.
    pub(super) fn name(&mut self, logical: usize, name: &[u8]) {
        let block = &mut self.blocks[logical];
        if block.kind != BlockKind::Leaf || self.fault.is_some() {
            return;
        }
        if let Some(hash) = htree::hash(self.version, &self.sb.hash_seed, name) {
            block.hashes = (block.hashes.0.min(hash), block.hashes.1.max(hash));
        }
    }

    /// Checks the whole, once all blocks were read.
    pub(super) fn finish(mut self, findings: &mut Findings) {
        self.check_blocks();
        if let Some(what) = self.fault {
            findings.add(Code::IndexInvalid, Location::inode(self.inode), || {
                format!("index: {what}")
            });
        }
    }

    fn check_blocks(&mut self) {
        // A name in the first or the last leaf below an inner node lies outside of the node's
        // bounds only if it lies outside of that leaf's. So the hashes of a node are those of its
        // first and last child, and are found from the leaves upwards.
        let depths: Vec<u8> = (0..self.blocks.len())
            .map(|logical| self.depth(logical))
            .collect();
        for depth in (0..=htree::max_indirect_levels(self.sb) + 1).rev() {
            for logical in (1..self.blocks.len()).filter(|l| depths[*l] == depth) {
                let block = self.blocks[logical];
                if block.references == 0 {
                    continue;
                }
                let parent = &mut self.blocks[block.parent];
                if block.is_first {
                    parent.hashes.0 = block.hashes.0;
                }
                if block.is_last {
                    parent.hashes.1 = block.hashes.1;
                }
            }
        }
        for (logical, depth) in depths.into_iter().enumerate().skip(1) {
            let block = self.blocks[logical];
            if block.references != 1 {
                let count = block.references;
                self.fail(|| format!("{count} index entries lead to block {logical}"));
            } else if !block.is_first && block.hashes.0 < block.bounds.0
                || block.hashes.1 > block.bounds.1
            {
                self.fail(|| format!("block {logical} has names that its index entry excludes"));
            } else if block.kind == BlockKind::Leaf && depth != self.levels {
                self.fail(|| format!("block {logical} is a leaf at the wrong depth"));
            }
        }
        if self.blocks.first().is_some_and(|root| root.references != 1) {
            self.fail(|| "an index entry leads to the root".into());
        }
    }

    /// The number of nodes between the root and a leaf.
    fn depth(&self, logical: usize) -> u8 {
        let (mut depth, mut at) = (0, self.blocks[logical].parent);
        while self.blocks[at].kind != BlockKind::Root
            && depth <= htree::max_indirect_levels(self.sb)
        {
            depth += 1;
            at = self.blocks[at].parent;
        }
        depth
    }
}

/// Whether a block is an inner node: one unused entry that fills it, and the right number of index
/// entries.
fn is_node(bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk::<NODE_ENTRIES_OFFSET>() else {
        return false;
    };
    let length = u16::from_le_bytes([header[4], header[5]]);
    let expected = rest.len() / ENTRY_SIZE;
    header[..4] == [0; 4]
        && header[6..] == [0; 2]
        && usize::from(length) == bytes.len()
        && RawCountLimit::ref_from_prefix(rest)
            .is_ok_and(|(limits, _)| usize::from(limits.limit.get()) == expected)
}
