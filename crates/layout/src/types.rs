//! Inode numbers, attributes, directory entries: the vocabulary between layouts and the layers
//! above.

use std::fmt;
use std::ops::{Add, Sub};

/// An inode's number within its file system, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub u32);

impl InodeNumber {
    /// What stands where there is no inode, in an entry of a directory that is not used.
    pub const NONE: InodeNumber = InodeNumber(0);
    /// The first number that an inode can have.
    pub const FIRST: InodeNumber = InodeNumber(1);

    /// The numbers from this one to `last`, both included.
    pub fn through(self, last: InodeNumber) -> impl Iterator<Item = InodeNumber> + Clone {
        (self.0..=last.0).map(InodeNumber)
    }

    /// The place in a table of all inodes, which begins with inode 1; out of any table for
    /// [`NONE`](Self::NONE).
    pub fn index(self) -> usize {
        (self.0 as usize).wrapping_sub(1)
    }
}

/// The inode that many behind another one.
impl Add<u32> for InodeNumber {
    type Output = InodeNumber;

    fn add(self, inodes: u32) -> InodeNumber {
        InodeNumber(self.0 + inodes)
    }
}

/// The inodes from one number to a later one.
impl Sub for InodeNumber {
    type Output = u32;

    fn sub(self, earlier: InodeNumber) -> u32 {
        self.0 - earlier.0
    }
}

impl fmt::Display for InodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A group's number within its file system: a block group of ext, a cylinder group of UFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u32);

impl GroupNumber {
    /// The groups from the first one on, of a file system with that many.
    pub fn all(count: u32) -> impl DoubleEndedIterator<Item = GroupNumber> + Clone {
        (0..count).map(GroupNumber)
    }

    /// The group behind this one.
    #[must_use]
    pub fn next(self) -> GroupNumber {
        GroupNumber(self.0 + 1)
    }

    /// The group at this place in a table of all groups.
    pub fn at(index: usize) -> GroupNumber {
        GroupNumber(index as u32)
    }

    /// Where the group is in a table of all groups.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for GroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl FileType {
    /// The type bits of a POSIX mode (`S_IFMT`).
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::CharacterDevice => 0o020_000,
            FileType::Directory => 0o040_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Regular => 0o100_000,
            FileType::Symlink => 0o120_000,
            FileType::Socket => 0o140_000,
        }
    }

    /// The type that a POSIX mode states; `None` where it is none of the seven.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileType::Fifo,
            0o020_000 => FileType::CharacterDevice,
            0o040_000 => FileType::Directory,
            0o060_000 => FileType::BlockDevice,
            0o100_000 => FileType::Regular,
            0o120_000 => FileType::Symlink,
            0o140_000 => FileType::Socket,
            _ => return None,
        })
    }
}

/// A moment, as seconds and nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// 0 … 999,999,999.
    pub nanoseconds: u32,
}

/// What `stat` shows of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub inode: InodeNumber,
    /// What changes when the number is used anew (NFS's and FUSE's generation).
    pub generation: u32,
    /// What it is.
    pub file_type: FileType,
    /// Permission bits with setuid, setgid and sticky (`mode & 0o7777`).
    pub permissions: u16,
    /// The number of names.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number (Linux's `dev_t` as `stat` encodes it in 32 bits: `makedev`'s new
    /// encoding), 0 but for devices.
    pub device_number: u32,
    /// The length in bytes.
    pub size_bytes: u64,
    /// What it takes on the disk, in units of 512 bytes.
    pub sectors: u64,
    /// The preferred unit of I/O.
    pub block_size_bytes: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// When it was made, where the format stores it.
    pub created: Option<Timestamp>,
    /// What `lsattr` shows: [`flags`](crate::flags), 0 where the format has none.
    pub flags: u32,
}

/// A change of attributes: only what is `Some` changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// New permission bits (`mode & 0o7777`).
    pub permissions: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length: shrinks or grows.
    pub size_bytes: Option<u64>,
    /// New access time.
    pub accessed: Option<Timestamp>,
    /// New modification time.
    pub modified: Option<Timestamp>,
    /// New [`flags`](crate::flags): those that cannot be set stay as they are.
    pub flags: Option<u32>,
}

/// When reading moves an access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Where it is not after the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`).
    Strict,
}

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Its type.
    pub file_type: FileType,
    /// Its permission bits, the umask already taken off by the caller (it is *not* applied where
    /// `umask` is stated).
    pub permissions: u16,
    /// The umask to apply unless the directory has a default ACL; 0 where the caller did it.
    pub umask: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group; a directory with the setgid bit gives its own instead.
    pub gid: u32,
    /// The device number of a device node.
    pub device_number: u32,
    /// What a symlink points to; empty otherwise.
    pub target: &'a [u8],
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The inode it names.
    pub inode: InodeNumber,
    /// Its type, where the directory tells.
    pub file_type: Option<FileType>,
    /// The name, without a terminator.
    pub name: &'a [u8],
    /// Hand this to the next `read_directory` to go on after this entry.
    pub next_cookie: u64,
}

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystemStatistics {
    /// The block size.
    pub block_size_bytes: u32,
    /// Blocks that files can take in all.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Those of them that a file is sure to get: where the format gives files parts of its blocks, the
    /// parts of blocks of which all is free.
    pub free_in_whole_blocks: u64,
    /// Free blocks for those who are not root.
    pub available_blocks: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// The longest name.
    pub name_max_bytes: u32,
}

/// How `rename` treats a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replace it.
    #[default]
    Replace,
    /// Refuse (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swap the two names (`RENAME_EXCHANGE`).
    Exchange,
}

/// How `setxattr` treats a value that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SetXattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// Only create (`XATTR_CREATE`).
    Create,
    /// Only replace (`XATTR_REPLACE`).
    Replace,
}

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// What `fallocate` is to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve blocks, reading as zeros; grows the size unless `keep_size`.
    Reserve {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Free the range's blocks (`FALLOC_FL_PUNCH_HOLE`, never changes the size).
    PunchHole,
    /// Make the range read as zeros (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange {
        /// Leave the size as it is.
        keep_size: bool,
    },
}
