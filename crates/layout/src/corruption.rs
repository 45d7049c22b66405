//! What contradicts itself in an image: which structure, and how.
//!
//! The structures are stated here, for all layouts. What can be wrong with one is stated by the
//! module that looks at it, as an enum whose variants carry the numbers; a caller that wants to
//! know asks [`Corruption::fault`] for that enum.

use crate::{BlockNumber, GroupNumber, InodeNumber};
use std::fmt;
use std::sync::Arc;

/// A contradiction in an image. Two are equal if they say the same of the same structure.
#[derive(Clone, Debug)]
pub struct Corruption {
    /// The structure that is wrong.
    pub structure: Structure,
    fault: Arc<dyn std::error::Error + Send + Sync>,
}

impl Corruption {
    /// A fault of a structure.
    pub fn new(
        structure: Structure,
        fault: impl std::error::Error + Send + Sync + 'static,
    ) -> Corruption {
        Corruption {
            structure,
            fault: Arc::new(fault),
        }
    }

    /// The same fault, of a structure that is known better now: which inode it was, for example.
    pub fn of(self, structure: Structure) -> Corruption {
        Corruption { structure, ..self }
    }

    /// The fault, if it is one that the module of `F` states.
    pub fn fault<F: std::error::Error + 'static>(&self) -> Option<&F> {
        self.fault.downcast_ref()
    }

    /// The fault in words, without the structure.
    pub fn what(&self) -> impl fmt::Display + '_ {
        &self.fault
    }
}

impl PartialEq for Corruption {
    fn eq(&self, other: &Corruption) -> bool {
        self.structure == other.structure && self.fault.to_string() == other.fault.to_string()
    }
}

impl Eq for Corruption {}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.structure, self.fault)
    }
}

/// A structure of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A structure that an image has once, by its name: `superblock`, `block map`, `journal`.
    Sole(&'static str),
    /// A group's descriptor.
    Descriptor {
        /// The group.
        group: GroupNumber,
    },
    /// A group's bitmap of blocks.
    BlockBitmap {
        /// The group.
        group: GroupNumber,
    },
    /// An inode.
    Inode(InodeNumber),
    /// An inode on the list of orphans.
    Orphan(InodeNumber),
    /// A directory as a whole.
    Directory(InodeNumber),
    /// A block of a directory.
    DirectoryBlock {
        /// The directory.
        directory: InodeNumber,
        /// Which of its blocks.
        logical: u64,
    },
    /// A symbolic link.
    Symlink(InodeNumber),
    /// An inode's extended attributes.
    Attributes(InodeNumber),
    /// A block of extended attributes.
    AttributeBlock {
        /// The block.
        block: BlockNumber,
    },
    /// A node of a tree of extents.
    ExtentNode {
        /// Its block; `None` for the root in the inode.
        block: Option<BlockNumber>,
    },
    /// The inode that holds the journal.
    JournalInode(InodeNumber),
    /// A block of the journal.
    JournalBlock {
        /// Counted from the journal's start.
        position: u32,
    },
    /// A block of the file that holds a file system.
    ImageBlock {
        /// Counted from the file's start.
        block: u64,
    },
}

impl Structure {
    /// The superblock.
    pub const SUPERBLOCK: Structure = Structure::Sole("superblock");
    /// What says where the blocks of files are.
    pub const BLOCK_MAP: Structure = Structure::Sole("block map");
    /// The journal as a whole.
    pub const JOURNAL: Structure = Structure::Sole("journal");

    /// The inode.
    pub fn inode(number: InodeNumber) -> Structure {
        Structure::Inode(number)
    }

    /// The directory.
    pub fn directory(number: InodeNumber) -> Structure {
        Structure::Directory(number)
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Structure::Sole(name) => f.write_str(name),
            Structure::Descriptor { group } => write!(f, "descriptor of group {group}"),
            Structure::BlockBitmap { group } => write!(f, "block bitmap of group {group}"),
            Structure::Inode(inode) => write!(f, "inode {inode}"),
            Structure::Orphan(inode) => write!(f, "orphan {inode}"),
            Structure::Directory(inode) => write!(f, "directory {inode}"),
            Structure::DirectoryBlock { directory, logical } => {
                write!(f, "directory {directory}, block {logical}")
            }
            Structure::Symlink(inode) => write!(f, "symlink {inode}"),
            Structure::Attributes(inode) => write!(f, "attributes of inode {inode}"),
            Structure::AttributeBlock { block } => write!(f, "attribute block {block}"),
            Structure::ExtentNode { block: None } => f.write_str("extent tree, the inode"),
            Structure::ExtentNode { block: Some(block) } => write!(f, "extent tree, block {block}"),
            Structure::JournalInode(inode) => write!(f, "the journal's inode {inode}"),
            Structure::JournalBlock { position } => write!(f, "journal block {position}"),
            Structure::ImageBlock { block } => {
                write!(f, "block {block} of the file that holds the file system")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[derive(Debug, thiserror::Error)]
    #[error("its length is {found}")]
    struct Length {
        found: u64,
    }

    #[test]
    fn a_fault_keeps_its_numbers() {
        let error = Error::corrupt(Structure::inode(InodeNumber(12)), Length { found: 7 });
        assert_eq!(
            error.to_string(),
            "corrupt file system: inode 12: its length is 7"
        );
        let Error::Corrupt(corruption) = error else {
            panic!("{error}");
        };
        assert_eq!(
            corruption.fault::<Length>().map(|fault| fault.found),
            Some(7)
        );
        assert!(corruption.fault::<fmt::Error>().is_none());
    }

    #[test]
    fn equal_are_those_that_say_the_same() {
        let of = |structure, found| Corruption::new(structure, Length { found });
        let directory = Structure::directory(InodeNumber(2));
        assert_eq!(of(directory, 1), of(directory, 1));
        assert_ne!(of(directory, 1), of(directory, 2));
        assert_ne!(of(directory, 1), of(Structure::inode(InodeNumber(2)), 1));
        assert_eq!(
            of(directory, 1).of(Structure::inode(InodeNumber(2))),
            of(Structure::inode(InodeNumber(2)), 1)
        );
    }
}
