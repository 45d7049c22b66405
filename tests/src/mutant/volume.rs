//! A reader of ext2 images that shares no code with the file system under test and survives every
//! damage.
//!
//! It is fast rather than thorough: it validates only what keeps it from running wild, since images
//! that it reads were repaired before, or are about to be damaged.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The superblock's offset.
pub const SUPERBLOCK: u64 = 1024;
/// The root directory's inode.
pub const ROOT: u32 = 2;
/// The inode that keeps the reserved descriptor blocks.
pub const RESIZE: u32 = 7;
/// The journal's inode.
pub const JOURNAL: u32 = 8;
const MAGIC: u16 = 0xef53;
const COMPAT_HAS_JOURNAL: u32 = 4;
const COMPAT_RESIZE_INODE: u32 = 0x10;
const RO_COMPAT_SPARSE_SUPER: u32 = 1;
/// The most blocks of a file: this ends a cycle of indirect blocks.
const MOST_BLOCKS: usize = 300_000;

/// Reads 16 bits.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let field = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    u16::from_le_bytes(field.unwrap_or_default())
}

/// Reads 32 bits.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    u32::from_le_bytes(field.unwrap_or_default())
}

/// The role of a file's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Contents, at this block of the file.
    Data(u64),
    /// Pointers, a number of levels above the contents.
    Indirect(u32),
}

/// An inode's bytes.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its bytes on the disk.
    pub bytes: Vec<u8>,
}

impl Inode {
    /// Type and permissions.
    pub fn mode(&self) -> u16 {
        u16_at(&self.bytes, 0)
    }

    /// The type: 4 a directory, 8 a file, 10 a symbolic link.
    pub fn kind(&self) -> u16 {
        self.mode() >> 12
    }

    /// The number of names.
    pub fn links(&self) -> u16 {
        u16_at(&self.bytes, 26)
    }

    /// The size in bytes; the upper half only for files.
    pub fn size(&self) -> u64 {
        let high = if self.kind() == 8 {
            u32_at(&self.bytes, 108)
        } else {
            0
        };
        u64::from(u32_at(&self.bytes, 4)) | u64::from(high) << 32
    }

    /// The block of extended attributes.
    pub fn xattr_block(&self) -> u32 {
        u32_at(&self.bytes, 104)
    }

    /// One of its fifteen pointers.
    pub fn pointer(&self, index: usize) -> u32 {
        u32_at(&self.bytes, 40 + 4 * index)
    }

    /// Whether it is a symbolic link with its target in the place of its pointers.
    pub fn is_fast_link(&self) -> bool {
        self.kind() == 10 && self.size() < 60
    }
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The block in which it is.
    pub block: u64,
    /// Its offset in that block.
    pub at: usize,
    /// The inode that it names.
    pub inode: u32,
    /// The name.
    pub name: Vec<u8>,
}

/// An image, with the values of its superblock.
#[derive(Debug)]
pub struct Volume {
    file: File,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// The first block of the first group.
    pub first_block: u64,
    /// Blocks in a group.
    pub group_blocks: u64,
    /// Inodes in a group.
    pub group_inodes: u32,
    /// Inodes in all.
    pub inodes: u32,
    /// Bytes in an inode.
    pub inode_bytes: u64,
    compat: u32,
    ro_compat: u32,
    descriptors: Vec<u8>,
}

impl Volume {
    /// Reads an image's superblock and descriptors; `None` if they make no sense.
    pub fn open(file: File) -> Option<Volume> {
        let mut raw = [0; 1024];
        file.read_exact_at(&mut raw, SUPERBLOCK).ok()?;
        let word = |at| u32_at(&raw, at);
        let log = word(24);
        let is_dynamic = word(76) > 0;
        if u16_at(&raw, 56) != MAGIC || log > 6 || word(32) == 0 || word(40) == 0 {
            return None;
        }
        let inode_bytes = if is_dynamic { u16_at(&raw, 88) } else { 128 };
        let mut volume = Volume {
            file,
            block_bytes: 1024 << log,
            blocks: word(4).into(),
            first_block: word(20).into(),
            group_blocks: word(32).into(),
            group_inodes: word(40),
            inodes: word(0),
            inode_bytes: inode_bytes.into(),
            compat: if is_dynamic { word(92) } else { 0 },
            ro_compat: if is_dynamic { word(100) } else { 0 },
            descriptors: Vec::new(),
        };
        let is_possible = inode_bytes >= 128
            && volume.block_bytes.is_multiple_of(inode_bytes.into())
            && volume.groups() <= 4096;
        let length = volume.groups() as usize * 32;
        volume.descriptors = volume
            .bytes((volume.first_block + 1) * volume.block_bytes, length)
            .filter(|_| is_possible)?;
        Some(volume)
    }

    /// Bytes of the image.
    pub fn bytes(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// A block; `None` where it does not exist.
    pub fn block(&self, number: u64) -> Option<Vec<u8>> {
        let exists = number < self.blocks;
        exists.then(|| self.bytes(number * self.block_bytes, self.block_bytes as usize))?
    }

    /// The number of groups.
    pub fn groups(&self) -> u64 {
        let blocks = self.blocks.saturating_sub(self.first_block);
        blocks.div_ceil(self.group_blocks)
    }

    /// A word of a group's descriptor: 0 the block bitmap, 1 the inode bitmap, 2 the inode table.
    pub fn descriptor(&self, group: u64, index: usize) -> u64 {
        u32_at(&self.descriptors, group as usize * 32 + index * 4).into()
    }

    /// Blocks of the descriptor table.
    pub fn descriptor_blocks(&self) -> u64 {
        (self.groups() * 32).div_ceil(self.block_bytes)
    }

    /// Blocks of a group's inode table.
    pub fn table_blocks(&self) -> u64 {
        (u64::from(self.group_inodes) * self.inode_bytes).div_ceil(self.block_bytes)
    }

    /// The first block of a group.
    pub fn group_first(&self, group: u64) -> u64 {
        self.first_block + group * self.group_blocks
    }

    /// Whether a group begins with a copy of the superblock.
    pub fn has_backup(&self, group: u64) -> bool {
        let is_power = |base: u64| {
            std::iter::successors(Some(base), |p| p.checked_mul(base))
                .take_while(|power| *power <= group)
                .any(|power| power == group)
        };
        self.ro_compat & RO_COMPAT_SPARSE_SUPER == 0
            || group <= 1
            || [3, 5, 7].into_iter().any(is_power)
    }

    /// Whether the superblock says that there is a journal.
    pub fn has_journal(&self) -> bool {
        self.compat & COMPAT_HAS_JOURNAL != 0
    }

    /// Whether the superblock says that descriptor blocks are reserved for growing.
    pub fn has_resize_inode(&self) -> bool {
        self.compat & COMPAT_RESIZE_INODE != 0
    }

    /// The offset of an inode in the image.
    pub fn inode_offset(&self, number: u32) -> Option<u64> {
        let index = number.checked_sub(1).filter(|_| number <= self.inodes)?;
        let table = self.descriptor(u64::from(index / self.group_inodes), 2);
        let within = u64::from(index % self.group_inodes) * self.inode_bytes;
        Some(table * self.block_bytes + within)
    }

    /// An inode, free or not.
    pub fn inode(&self, number: u32) -> Option<Inode> {
        let offset = self.inode_offset(number)?;
        let bytes = self.bytes(offset, self.inode_bytes as usize)?;
        Some(Inode { bytes })
    }

    /// Every inode that has names or, of the reserved ones, blocks.
    pub fn used_inodes(&self) -> Vec<(u32, Inode)> {
        let mut used = Vec::new();
        for group in 0..self.groups() {
            let length = u64::from(self.group_inodes) * self.inode_bytes;
            let offset = self.descriptor(group, 2) * self.block_bytes;
            let Some(table) = self.bytes(offset, length as usize) else {
                continue;
            };
            for (index, bytes) in table.chunks_exact(self.inode_bytes as usize).enumerate() {
                let number = group as u32 * self.group_inodes + index as u32 + 1;
                if bytes[..128].iter().any(|byte| *byte != 0) {
                    let bytes = bytes.to_vec();
                    used.push((number, Inode { bytes }));
                }
            }
        }
        used.retain(|(number, inode)| inode.links() > 0 || *number == RESIZE);
        used
    }

    /// Every block of a file with its role, indirect blocks before what they lead to.
    pub fn file_blocks(&self, inode: &Inode) -> Vec<(u64, Role)> {
        let mut blocks = Vec::new();
        if inode.is_fast_link() || !matches!(inode.kind(), 4 | 8 | 10) {
            return blocks;
        }
        let per_block = self.block_bytes / 4;
        let mut first = 0;
        for index in 0..15 {
            let depth = (index as u32).saturating_sub(11);
            self.gather(inode.pointer(index), depth, first, &mut blocks);
            first += per_block.pow(depth);
        }
        blocks
    }

    fn gather(&self, pointer: u32, depth: u32, first: u64, blocks: &mut Vec<(u64, Role)>) {
        if pointer == 0 || u64::from(pointer) >= self.blocks || blocks.len() > MOST_BLOCKS {
            return;
        }
        if depth == 0 {
            blocks.push((pointer.into(), Role::Data(first)));
            return;
        }
        blocks.push((pointer.into(), Role::Indirect(depth)));
        let Some(bytes) = self.block(pointer.into()) else {
            return;
        };
        let below = (self.block_bytes / 4).pow(depth - 1);
        for (index, word) in bytes.chunks_exact(4).enumerate() {
            self.gather(
                u32_at(word, 0),
                depth - 1,
                first + index as u64 * below,
                blocks,
            );
        }
    }

    /// The names in a directory, including `.` and `..`.
    pub fn entries(&self, inode: &Inode) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (block, role) in self.file_blocks(inode) {
            let Some(bytes) = self.block(block).filter(|_| matches!(role, Role::Data(_))) else {
                continue;
            };
            let mut at = 0;
            while at + 8 <= bytes.len() {
                let length = usize::from(u16_at(&bytes, at + 4));
                let name_length = usize::from(bytes[at + 6]);
                if length < 8 + name_length || at + length > bytes.len() {
                    break;
                }
                entries.push(Entry {
                    block,
                    at,
                    inode: u32_at(&bytes, at),
                    name: bytes[at + 8..at + 8 + name_length].to_vec(),
                });
                at += length;
            }
        }
        entries
    }
}
