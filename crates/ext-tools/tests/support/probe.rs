//! Where things are in an image, so that a test can damage just them.

use backstitch_ext::format::inode::Inode;
use backstitch_ext::format::superblock::Superblock;
use backstitch_ext::format::{GroupDescriptor, ROOT_INODE, directory, group};
use backstitch_layout::InodeNumber;

/// An image in memory.
pub(crate) struct Probe {
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// Its superblock.
    pub(crate) sb: Superblock,
    /// Its descriptors.
    pub(crate) groups: Vec<GroupDescriptor>,
}

impl Probe {
    /// Takes a sound image.
    pub(crate) fn new(bytes: Vec<u8>) -> Probe {
        let head: &[u8; 1024] = bytes[1024..2048].try_into().unwrap();
        let sb = Superblock::parse(head, bytes.len() as u64).unwrap();
        let table = sb.block_offset(group::descriptor_table_block(&sb)) as usize;
        let groups = group::parse_table(&sb, &bytes[table..]).unwrap();
        Probe { bytes, sb, groups }
    }

    /// Where a block starts.
    pub(crate) fn block(&self, block: u64) -> usize {
        (block << self.sb.block_size_bits) as usize
    }

    /// Where an inode starts.
    pub(crate) fn inode(&self, number: u32) -> usize {
        let number = InodeNumber(number);
        let group = self.sb.group_of_inode(number).index();
        let (block, offset) = self.groups[group].inode_location(&self.sb, number);
        self.block(block.0) + offset
    }

    /// An inode.
    pub(crate) fn parsed(&self, number: u32) -> Inode {
        let start = self.inode(number);
        Inode::parse(&self.bytes[start..start + self.sb.inode_size as usize]).unwrap()
    }

    /// Where the entry of this name starts, in one of the directory's direct blocks, and its inode.
    pub(crate) fn entry(&self, directory: u32, name: &str) -> (usize, u32) {
        for block in self
            .parsed(directory)
            .block
            .iter()
            .take(12)
            .filter(|block| **block != 0)
        {
            let start = self.block((*block).into());
            let bytes = &self.bytes[start..start + self.sb.block_size as usize];
            if let Some(entry) = directory::find(bytes, name.as_bytes()) {
                return (start + entry.offset, entry.inode.0);
            }
        }
        panic!("no entry {name} in inode {directory}");
    }

    /// The inode of a path.
    pub(crate) fn path(&self, path: &str) -> u32 {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.fold(ROOT_INODE.0, |directory, name| {
            self.entry(directory, name).1
        })
    }

    /// Where the entry of a path starts.
    pub(crate) fn path_entry(&self, path: &str) -> usize {
        let (parent, name) = path.rsplit_once('/').unwrap();
        self.entry(self.path(parent), name).0
    }

    /// Overwrites bytes.
    pub(crate) fn poke(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
