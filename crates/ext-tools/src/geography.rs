//! What each block of an image is for: read off its superblock, descriptors and inodes, where these
//! can be read.

use backstitch_ext::format::directory;
use backstitch_ext::format::group::{self, GroupDescriptor};
use backstitch_ext::format::inode::{DIRECT_POINTERS, Inode};
use backstitch_ext::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use backstitch_layout::tools::{Geography, Source, Use};
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use rustc_hash::FxHashMap;

/// The superblock of an image, where it can be read.
pub(crate) fn superblock(source: &dyn Source) -> Option<Superblock> {
    let mut scratch = Vec::new();
    let bytes = source.bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, &mut scratch);
    Superblock::parse(bytes.ok()?.try_into().ok()?, source.size_bytes()).ok()
}

/// The blocks of an image.
pub(crate) struct Blocks {
    sb: Superblock,
    groups: Vec<GroupDescriptor>,
    owners: FxHashMap<BlockNumber, Use>,
}

impl Blocks {
    /// Reads an image; `None` where superblock or descriptors cannot be read.
    pub(crate) fn read(source: &dyn Source) -> Option<Blocks> {
        let sb = superblock(source)?;
        let start = sb.block_offset(group::descriptor_table_block(&sb));
        let len = (sb.descriptor_blocks * sb.block_size) as usize;
        let mut table = Vec::new();
        let table = source.bytes(start, len, &mut table).ok()?;
        let groups = group::parse_table(&sb, table).ok()?;
        let mut blocks = Blocks {
            sb,
            groups,
            owners: FxHashMap::default(),
        };
        for number in InodeNumber::FIRST.through(InodeNumber(blocks.sb.inodes_count)) {
            if let Some(inode) = blocks.inode(source, number)
                && inode.links > 0
            {
                blocks.add_inode(source, number, &inode);
            }
        }
        Some(blocks)
    }

    fn inode(&self, source: &dyn Source, number: InodeNumber) -> Option<Inode> {
        let group = self.groups.get(self.sb.group_of_inode(number).index())?;
        let (block, offset) = group.inode_location(&self.sb, number);
        let place = self.sb.block_offset(block) + offset as u64;
        let mut scratch = Vec::new();
        let bytes = source.bytes(place, self.sb.inode_size as usize, &mut scratch);
        Inode::parse(bytes.ok()?).ok()
    }

    fn add_inode(&mut self, source: &dyn Source, number: InodeNumber, inode: &Inode) {
        if inode.file_acl != BlockNumber::NONE {
            let attributes = Use::Attributes(number);
            self.owners.entry(inode.file_acl).or_insert(attributes);
        }
        if inode.has_extents(&self.sb.features) || !inode.has_block_map(self.sb.block_size) {
            return;
        }
        let mut next = 0;
        for (at, pointer) in inode.block.iter().enumerate() {
            let depth = at.saturating_sub(DIRECT_POINTERS - 1);
            self.add_pointer(
                source,
                (number, inode),
                BlockNumber((*pointer).into()),
                depth,
                &mut next,
            );
        }
    }

    /// A pointer, `depth` levels above contents; `next` is the file's block that it leads to first.
    fn add_pointer(
        &mut self,
        source: &dyn Source,
        (number, inode): (InodeNumber, &Inode),
        pointer: BlockNumber,
        depth: usize,
        next: &mut u64,
    ) {
        let size = u64::from(self.sb.block_size);
        let span = (size / 4).pow(depth as u32);
        let end = (pointer + 1).offset_bytes(size);
        let exists = pointer != BlockNumber::NONE && end <= source.size_bytes();
        if !exists || *next * size >= inode.size.max(size) {
            *next += span;
            return;
        }
        let what = match (depth, inode.is_directory()) {
            (0, true) => Use::Names(number),
            (0, false) => Use::Contents(number, *next),
            _ => Use::Pointers(number),
        };
        self.owners.entry(pointer).or_insert(what);
        if depth == 0 {
            *next += 1;
            return;
        }
        let mut scratch = Vec::new();
        let words = source.bytes(pointer.offset_bytes(size), size as usize, &mut scratch);
        for word in words.unwrap_or_default().chunks_exact(4) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let below = BlockNumber(word.into());
            self.add_pointer(source, (number, inode), below, depth - 1, next);
        }
    }
}

impl Geography for Blocks {
    fn block_bytes(&self) -> u32 {
        self.sb.block_size
    }

    fn inode_bytes(&self) -> u32 {
        self.sb.inode_size
    }

    fn what(&self, block: BlockNumber) -> Use {
        let table_blocks = u64::from(self.sb.inode_table_blocks);
        for (group, descriptor) in GroupNumber::all(self.sb.groups).zip(&self.groups) {
            if block == descriptor.block_bitmap {
                return Use::BlockBitmap(group);
            }
            if block == descriptor.inode_bitmap {
                return Use::InodeBitmap(group);
            }
            let table = descriptor.inode_table;
            if (table..table + table_blocks).contains(&block) {
                let per_block = self.block_bytes() / self.inode_bytes();
                let before = (block - table) as u32 * per_block;
                return Use::Inodes(self.sb.group_first_inode(group) + before);
            }
        }
        let first = self.sb.first_data_block;
        if block <= first {
            return Use::Superblock;
        }
        if block <= first + u64::from(self.sb.descriptor_blocks) {
            return Use::Descriptors;
        }
        let is_backup = |group: GroupNumber| {
            let from_start = block.0.wrapping_sub(self.sb.group_first_block(group).0);
            from_start < u64::from(self.sb.super_blocks_in_group(group))
        };
        match self.owners.get(&block) {
            Some(owner) => *owner,
            None if GroupNumber::all(self.sb.groups).any(is_backup) => Use::Backup,
            None => Use::Unknown,
        }
    }

    fn inode_difference(&self, before: &[u8], after: &[u8]) -> String {
        match (Inode::parse(before), Inode::parse(after)) {
            (Ok(before), Ok(after)) => difference(&before, &after),
            _ => String::new(),
        }
    }

    fn names(&self, block: &[u8]) -> Vec<(Vec<u8>, InodeNumber)> {
        directory::entries(block, u32::MAX)
            .map_while(Result::ok)
            .filter(|entry| entry.inode != InodeNumber::NONE)
            .map(|entry| (entry.name.to_vec(), entry.inode))
            .collect()
    }
}

/// What differs, but for times; empty where nothing does.
fn difference(before: &Inode, after: &Inode) -> String {
    let mut parts = Vec::new();
    if before.mode == 0 || after.generation != before.generation {
        parts.push("made".to_owned());
    } else if after.mode != before.mode {
        parts.push(format!("mode {:o} → {:o}", before.mode, after.mode));
    }
    let mut number = |name: &str, from: u64, to: u64| {
        if from != to {
            parts.push(format!("{name} {from} → {to}"));
        }
    };
    number("size", before.size, after.size);
    number("links", before.links.into(), after.links.into());
    number("owner", before.uid.into(), after.uid.into());
    if before.block != after.block {
        parts.push("pointers".to_owned());
    }
    parts.join(", ")
}
