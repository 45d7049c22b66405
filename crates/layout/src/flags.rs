//! The flags of an inode that `chattr` sets and `lsattr` shows, numbered as Linux has them
//! (`FS_*_FL`).

use crate::FileType;

/// Writes to the file, and changes of the directory, are synchronous.
pub const SYNC: u32 = 0x8;
/// Nothing of it may change.
pub const IMMUTABLE: u32 = 0x10;
/// A file may only grow at its end; a directory may only get more names.
pub const APPEND: u32 = 0x20;
/// `dump` leaves it out.
pub const NODUMP: u32 = 0x40;
/// Reading it does not move its access time.
pub const NOATIME: u32 = 0x80;
/// The contents of the file are journaled.
pub const JOURNAL_DATA: u32 = 0x4000;
/// Changes of the directory's names are synchronous.
pub const DIRSYNC: u32 = 0x1_0000;
/// The top of a directory tree, for the allocator.
pub const TOPDIR: u32 = 0x2_0000;

/// Never implemented anywhere, but kept for users who set them: secure deletion, undeletion,
/// compression, no compression, no tail merging.
const KEPT: u32 = 0x1 | 0x2 | 0x4 | 0x400 | 0x8000;

/// What a caller may set.
pub const SETTABLE: u32 =
    0x7 | SYNC | IMMUTABLE | APPEND | NODUMP | NOATIME | JOURNAL_DATA | 0x8000 | DIRSYNC | TOPDIR;

/// What is shown: besides what can be set, what the layout itself set (a compressed file's state, a
/// hashed directory, extents).
pub const VISIBLE: u32 = SETTABLE | 0x100 | 0x200 | 0x400 | 0x1000 | 0x8_0000;

/// What only a process with `CAP_LINUX_IMMUTABLE` may change.
pub const PRIVILEGED: u32 = IMMUTABLE | APPEND;

/// The flags that a new inode takes over from the directory that it is made in.
pub fn inherited(directory: u32, file_type: FileType) -> u32 {
    let all = directory & (KEPT | SYNC | NODUMP | NOATIME | JOURNAL_DATA | DIRSYNC);
    match file_type {
        FileType::Directory => all,
        FileType::Regular => all & !DIRSYNC,
        _ => all & (NODUMP | NOATIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_for_a_type_is_taken_over() {
        let all = u32::MAX;
        let of_directory = inherited(all, FileType::Directory);
        assert_eq!(of_directory & (IMMUTABLE | APPEND | TOPDIR | 0x1000), 0);
        assert_eq!(of_directory & (SYNC | DIRSYNC), SYNC | DIRSYNC);
        assert_eq!(inherited(all, FileType::Regular) & DIRSYNC, 0);
        assert_eq!(inherited(all, FileType::Fifo), NODUMP | NOATIME);
    }
}
