//! Inodes, read and changed, whatever they look like on the disk.

use std::fmt::Debug;
use std::ops::Range;

use backstitch_layout::{BlockNumber, FileType, Timestamp};

/// The number of pointers in an inode.
pub const POINTERS: usize = 15;
/// Pointers to data.
pub const DIRECT_POINTERS: usize = 12;
/// The pointer to the single indirect block; the double and the triple one follow.
pub const INDIRECT: usize = 12;

/// What an inode on the disk says.
pub trait Inode: Clone + Debug + Send {
    /// Type and permissions.
    fn mode(&self) -> u16;
    /// The owner.
    fn uid(&self) -> u32;
    /// The group.
    fn gid(&self) -> u32;
    /// The length in bytes.
    fn size(&self) -> u64;
    /// The number of names.
    fn links(&self) -> u16;
    /// What it takes on the disk, in units of 512 bytes.
    fn sectors(&self) -> u64;
    /// Its flags, numbered as in [`backstitch_layout::flags`], and what else the format keeps with
    /// them.
    fn flags(&self) -> u32;
    /// What changes when the number is used anew.
    fn generation(&self) -> u32;
    /// Of a directory that was to be replaced: its [mark](crate::replaced), else 0.
    fn mark(&self) -> u32;
    /// Last access.
    fn accessed(&self) -> Timestamp;
    /// Last change of the contents.
    fn modified(&self) -> Timestamp;
    /// Last change of the inode.
    fn changed(&self) -> Timestamp;
    /// When it was made, where inodes tell that.
    fn created(&self) -> Option<Timestamp>;
    /// The device number of a device, in the encoding of Linux's `stat`.
    fn device_number(&self) -> u32;
    /// The block of its attributes that others may share; [`BlockNumber::NONE`] where there is none.
    fn attribute_block(&self) -> BlockNumber;
    /// A pointer of its map.
    fn pointer(&self, index: usize) -> BlockNumber;
    /// Whether it is a symbolic link with its target inside. `block_size` is in bytes.
    fn is_fast_symlink(&self, block_size: u32) -> bool;
    /// The bytes in which such a target lies.
    fn inline_bytes(&self) -> Vec<u8>;

    /// What the inode is; `None` where the mode says nothing that exists.
    fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode().into())
    }

    /// Whether it is a directory.
    fn is_directory(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Whether its pointers lead to blocks: in files, directories and slow symbolic links.
    fn has_block_map(&self, block_size: u32) -> bool {
        match self.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => !self.is_fast_symlink(block_size),
            _ => false,
        }
    }
}

/// The fields of an inode as they are on the disk, to be changed.
pub trait InodeEditor: Sized {
    /// Begins with an inode as it is.
    fn of_inode(old: &[u8]) -> Self;
    /// The inode as it is now, or the part of it that can be changed.
    fn bytes(&self) -> &[u8];
    /// The bytes that differ from `old`, from the first field that does to the last. Always whole
    /// fields: two patches of one field must overlap, or the disk could show a mixture of their values.
    fn differing(&self, old: &[u8]) -> Option<Range<usize>>;
    /// Whether the inode leads to other blocks than `old`, or to more or fewer of them.
    fn changes_map(&self, old: &[u8]) -> bool;
    /// Type and permissions.
    fn set_mode(&mut self, mode: u16);
    /// The owner.
    fn set_owner(&mut self, uid: u32);
    /// The group.
    fn set_group(&mut self, gid: u32);
    /// The length in bytes.
    fn set_size(&mut self, size: u64);
    /// The number of names.
    fn set_links(&mut self, links: u16);
    /// What it takes on the disk, in units of 512 bytes.
    fn set_sectors(&mut self, sectors: u64);
    /// As [`Inode::flags`].
    fn set_flags(&mut self, flags: u32);
    /// What changes when the number is used anew.
    fn set_generation(&mut self, generation: u32);
    /// As [`Inode::mark`].
    fn set_mark(&mut self, mark: u32);
    /// When its last name went; `None` where it has one.
    fn set_deleted(&mut self, when: Option<Timestamp>);
    /// It has nothing any more, as an inode of which a format has the [freed ones
    /// cleared](super::Format::CLEARS_FREED).
    fn clear(&mut self) {}
    /// A pointer of its map.
    fn set_pointer(&mut self, index: usize, block: BlockNumber);
    /// As [`Inode::attribute_block`].
    fn set_attribute_block(&mut self, block: BlockNumber);
    /// Last access.
    fn set_accessed(&mut self, time: Timestamp);
    /// Last change of the contents.
    fn set_modified(&mut self, time: Timestamp);
    /// Last change of the inode.
    fn set_changed(&mut self, time: Timestamp);
    /// When it was made, where inodes tell that.
    fn set_created(&mut self, time: Timestamp);
}
