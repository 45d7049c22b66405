//! The places of everything in an image to damage.

use super::volume::{Entry, JOURNAL, RESIZE, Role, SUPERBLOCK, Volume, u32_at};
use std::collections::{BTreeMap, HashSet};

/// There are more blocks of contents than of everything else, so only this many of a file are
/// damaged.
const DATA_OF_A_FILE: usize = 4;
const JOURNAL_MAGIC: u32 = 0xc03b_3998;
const ROOT_OF_INDEX: u64 = 0;
const FLAG_INDEX: u32 = 0x1000;

/// The purpose of a part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The superblock.
    Superblock,
    /// A copy of the superblock.
    Backup,
    /// The group descriptors.
    Descriptors,
    /// A copy of the group descriptors.
    DescriptorBackup,
    /// A descriptor block kept for growing.
    Reserved,
    /// A group's block bitmap.
    BlockBitmap,
    /// A group's inode bitmap.
    InodeBitmap,
    /// A block of an inode table that has inodes in use.
    InodeTable,
    /// A block of a directory's names.
    Directory,
    /// The first block of a directory with an index.
    Index,
    /// A block of pointers.
    Indirect,
    /// Extended attributes.
    Attributes,
    /// Contents.
    Data,
    /// The journal's superblock.
    JournalSuperblock,
    /// A block of the journal that has a header: a descriptor, a commit or a revocation.
    JournalHeader,
    /// A block of the journal that is a copy of another.
    JournalCopy,
    /// A block of the pointers to the journal.
    JournalIndirect,
}

impl Class {
    /// The name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Class::Superblock => "superblock",
            Class::Backup => "backup superblock",
            Class::Descriptors => "group descriptors",
            Class::DescriptorBackup => "backup of the group descriptors",
            Class::Reserved => "reserved descriptor block",
            Class::BlockBitmap => "block bitmap",
            Class::InodeBitmap => "inode bitmap",
            Class::InodeTable => "inode table",
            Class::Directory => "directory",
            Class::Index => "index of a directory",
            Class::Indirect => "indirect block",
            Class::Attributes => "attribute block",
            Class::Data => "contents",
            Class::JournalSuperblock => "journal superblock",
            Class::JournalHeader => "journal descriptor, commit or revocation",
            Class::JournalCopy => "copy in the journal",
            Class::JournalIndirect => "indirect block of the journal",
        }
    }
}

/// A piece of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Its offset.
    pub offset: u64,
    /// Its length.
    pub length: usize,
}

/// Everything that can be damaged in a meaningful way.
#[derive(Debug, Default)]
pub struct Atlas {
    /// The parts of each class.
    pub spots: BTreeMap<Class, Vec<Spot>>,
    /// Inodes in use on which much depends, with their offsets: directories and reserved ones.
    pub important: Vec<(u32, u64)>,
    /// The other inodes in use.
    pub inodes: Vec<(u32, u64)>,
    /// Names, with the offsets of their blocks.
    pub entries: Vec<(u64, Entry)>,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Bytes in an inode.
    pub inode_bytes: u64,
}

impl Atlas {
    /// Finds the places.
    pub fn of(volume: &Volume) -> Atlas {
        let mut atlas = Atlas {
            block_bytes: volume.block_bytes,
            blocks: volume.blocks,
            inode_bytes: volume.inode_bytes,
            ..Atlas::default()
        };
        atlas.groups(volume);
        let mut seen = HashSet::new();
        for (number, inode) in volume.used_inodes() {
            let Some(offset) = volume.inode_offset(number) else {
                continue;
            };
            let table = offset / atlas.block_bytes;
            if seen.insert(table) {
                atlas.block(Class::InodeTable, table);
            }
            let is_important = number < 11 || inode.kind() == 4;
            let list = match is_important {
                true => &mut atlas.important,
                false => &mut atlas.inodes,
            };
            list.push((number, offset));
            let attributes = u64::from(inode.xattr_block());
            if attributes != 0 && seen.insert(attributes) {
                atlas.block(Class::Attributes, attributes);
            }
            match number {
                RESIZE => {}
                JOURNAL if volume.has_journal() => atlas.journal(volume),
                _ => atlas.file(volume, &inode),
            }
        }
        atlas
    }

    fn block(&mut self, class: Class, number: u64) {
        let (offset, length) = (number * self.block_bytes, self.block_bytes as usize);
        self.spot(class, offset, length);
    }

    fn spot(&mut self, class: Class, offset: u64, length: usize) {
        self.spots
            .entry(class)
            .or_default()
            .push(Spot { offset, length });
    }

    fn groups(&mut self, volume: &Volume) {
        self.spot(Class::Superblock, SUPERBLOCK, 1024);
        for group in 0..volume.groups() {
            let first = volume.group_first(group);
            if volume.has_backup(group) {
                let after = first + 1 + volume.descriptor_blocks();
                if group > 0 {
                    self.spot(Class::Backup, first * self.block_bytes, 1024);
                }
                let class = match group {
                    0 => Class::Descriptors,
                    _ => Class::DescriptorBackup,
                };
                (first + 1..after).for_each(|block| self.block(class, block));
                // The reserved blocks are between the descriptors and the bitmaps.
                let end = volume.descriptor(group, 0).min(after + 32);
                if volume.has_resize_inode() {
                    (after..end).for_each(|block| self.block(Class::Reserved, block));
                }
            }
            self.block(Class::BlockBitmap, volume.descriptor(group, 0));
            self.block(Class::InodeBitmap, volume.descriptor(group, 1));
        }
    }

    fn file(&mut self, volume: &Volume, inode: &super::volume::Inode) {
        let has_index = u32_at(&inode.bytes, 32) & FLAG_INDEX != 0;
        let mut contents = 0;
        for (block, role) in volume.file_blocks(inode) {
            match role {
                Role::Indirect(_) => self.block(Class::Indirect, block),
                Role::Data(ROOT_OF_INDEX) if has_index => self.block(Class::Index, block),
                Role::Data(_) if inode.kind() == 4 => self.block(Class::Directory, block),
                Role::Data(_) if contents < DATA_OF_A_FILE => {
                    contents += 1;
                    self.block(Class::Data, block);
                }
                Role::Data(_) => {}
            }
        }
        if inode.kind() == 4 {
            let entries = volume.entries(inode).into_iter();
            let placed = entries.map(|entry| (entry.block * self.block_bytes, entry));
            self.entries.extend(placed);
        }
    }

    fn journal(&mut self, volume: &Volume) {
        let Some(inode) = volume.inode(JOURNAL) else {
            return;
        };
        for (block, role) in volume.file_blocks(&inode) {
            let bytes = volume.block(block).unwrap_or_default();
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            let magic = u32_at(&bytes, 0).swap_bytes();
            match role {
                Role::Indirect(_) => self.block(Class::JournalIndirect, block),
                Role::Data(0) => self.block(Class::JournalSuperblock, block),
                Role::Data(_) if magic == JOURNAL_MAGIC => self.block(Class::JournalHeader, block),
                Role::Data(_) if !is_empty => self.block(Class::JournalCopy, block),
                Role::Data(_) => {}
            }
        }
    }
}
