//! What each block of an ext2 image is for: read off its superblock, descriptors and inodes, where these can be read.

use backstitch_ext::format::group::{self, GroupDescriptor};
use backstitch_ext::format::inode::Inode;
use backstitch_ext::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use backstitch_ext_tools::fsck::Source;
use backstitch_layout::InodeNumber;
use rustc_hash::FxHashMap;

use crate::image::Fork;

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Superblock,
    Descriptors,
    BlockBitmap,
    InodeBitmap,
    /// The first inode of the block.
    Inodes(u32),
    /// Contents of a file, from this block of it on.
    Contents(InodeNumber, u64),
    /// Names.
    Names(InodeNumber),
    /// Pointers to a file's blocks.
    Pointers(InodeNumber),
    Attributes(InodeNumber),
    /// Of what is no file system.
    Volume,
    Unknown,
}

/// The blocks of an image.
pub(crate) struct Geography {
    superblock: Option<Superblock>,
    groups: Vec<GroupDescriptor>,
    owners: FxHashMap<u64, Use>,
}

impl Geography {
    /// Of the first image that knows a block, the later ones where it does not.
    pub(crate) fn new(images: &[&Fork]) -> Geography {
        let mut geography = Geography {
            superblock: None,
            groups: Vec::new(),
            owners: FxHashMap::default(),
        };
        for image in images {
            geography.add(image);
        }
        geography
    }

    fn add(&mut self, image: &Fork) {
        let Some((superblock, groups)) = read_groups(image) else {
            return;
        };
        for number in 1..=superblock.inodes_count {
            if let Some(inode) = read_inode(image, &superblock, &groups, number)
                && inode.links > 0
            {
                self.add_inode(image, InodeNumber(number), &inode);
            }
        }
        self.superblock.get_or_insert(superblock);
        if self.groups.is_empty() {
            self.groups = groups;
        }
    }

    fn add_inode(&mut self, image: &Fork, number: InodeNumber, inode: &Inode) {
        if inode.file_acl != 0 {
            let attributes = Use::Attributes(number);
            self.owners.entry(inode.file_acl).or_insert(attributes);
        }
        if !inode.has_block_map(image.block_bytes()) {
            return;
        }
        let mut next = 0;
        for (at, pointer) in inode.block.iter().enumerate() {
            let depth = at.saturating_sub(11);
            self.add_pointer(image, (number, inode), (*pointer).into(), depth, &mut next);
        }
    }

    /// A pointer, `depth` levels above contents; `next` is the file's block that it leads to first.
    fn add_pointer(
        &mut self,
        image: &Fork,
        (number, inode): (InodeNumber, &Inode),
        pointer: u64,
        depth: usize,
        next: &mut u64,
    ) {
        let size = u64::from(image.block_bytes());
        let span = (size / 4).pow(depth as u32);
        let exists = pointer != 0 && (pointer + 1) * size <= image.size_bytes();
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
        for word in image.block(pointer).to_vec().chunks_exact(4) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.add_pointer(image, (number, inode), word.into(), depth - 1, next);
        }
    }

    /// What a block is for.
    pub(crate) fn what(&self, block: u64) -> Use {
        let Some(superblock) = &self.superblock else {
            return Use::Volume;
        };
        let table = u64::from(superblock.inode_table_blocks);
        for (number, descriptor) in self.groups.iter().enumerate() {
            if block == descriptor.block_bitmap {
                return Use::BlockBitmap;
            }
            if block == descriptor.inode_bitmap {
                return Use::InodeBitmap;
            }
            if (descriptor.inode_table..descriptor.inode_table + table).contains(&block) {
                let per_block = superblock.block_size / superblock.inode_size;
                let before = (block - descriptor.inode_table) as u32 * per_block;
                return Use::Inodes(superblock.group_first_inode(number as u32) + before);
            }
        }
        let first = superblock.first_data_block;
        if block == first {
            return Use::Superblock;
        }
        if block <= first + u64::from(superblock.descriptor_blocks) {
            return Use::Descriptors;
        }
        self.owners.get(&block).copied().unwrap_or(Use::Unknown)
    }

    /// The size of an inode in its table.
    pub(crate) fn inode_bytes(&self) -> usize {
        self.superblock
            .as_ref()
            .map_or(256, |s| s.inode_size as usize)
    }
}

fn read_groups(image: &Fork) -> Option<(Superblock, Vec<GroupDescriptor>)> {
    let mut scratch = Vec::new();
    let bytes = image
        .bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, &mut scratch)
        .ok()?;
    let superblock = Superblock::parse(bytes.try_into().ok()?, image.size_bytes()).ok()?;
    if superblock.block_size != image.block_bytes() {
        return None;
    }
    let first = group::descriptor_table_block(&superblock);
    let mut table = Vec::new();
    for block in first..first + u64::from(superblock.descriptor_blocks) {
        table.extend_from_slice(image.block(block));
    }
    let groups = group::parse_table(&superblock, &table).ok()?;
    Some((superblock, groups))
}

fn read_inode(
    image: &Fork,
    superblock: &Superblock,
    groups: &[GroupDescriptor],
    number: u32,
) -> Option<Inode> {
    let group = groups.get(superblock.group_of_inode(number) as usize)?;
    let (block, offset) = group.inode_location(superblock, number);
    let bytes = image.block(block).get(offset..)?;
    Inode::parse(&bytes[..bytes.len().min(superblock.inode_size as usize)]).ok()
}
