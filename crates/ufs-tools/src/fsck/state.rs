//! What the passes hand to each other.

use super::{CheckError, Source};
use crate::bits::Bits;
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{FileType, GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::type_code;
use backstitch_ufs::format::{RawCylinderGroup, Superblock};
use std::cell::Cell;
use std::ops::Range;

/// What all passes read.
pub(crate) struct Context<'a, S: Source + ?Sized> {
    pub(crate) source: &'a S,
    pub(crate) sb: &'a Superblock,
    /// Filled in pass 0.
    pub(crate) groups: Vec<Group>,
}

/// What pass 0 knows of a group.
pub(crate) struct Group {
    /// The header; zeros where it is not this group's.
    pub(crate) raw: RawCylinderGroup,
    /// Whether the maps are where the header says.
    pub(crate) is_sound: bool,
    /// Inodes that are to be looked at.
    pub(crate) initialised: u32,
}

impl<'a, S: Source + ?Sized> Context<'a, S> {
    pub(crate) fn new(source: &'a S, sb: &'a Superblock) -> Self {
        Context {
            source,
            sb,
            groups: Vec::new(),
        }
    }

    /// Bytes from the start of a fragment on, which must exist.
    pub(crate) fn bytes<'b>(
        &'b self,
        fragment: u64,
        length: usize,
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], CheckError> {
        let offset = fragment * u64::from(self.sb.fragment_bytes);
        Ok(self.source.bytes(offset, length, scratch)?)
    }
}

/// What is kept of every inode in groups that have any in use.
#[derive(Default)]
pub(crate) struct InodeInfo {
    /// Whether it is in use.
    pub(crate) is_used: bool,
    /// The type code of a directory entry for it; 0 where the mode is none.
    pub(crate) type_code: u8,
    /// `di_nlink`
    pub(crate) links: u16,
    /// The sectors that its fragments take.
    pub(crate) sectors: u64,
    /// Whether it had lost its last name when a mount with order was cut off.
    pub(crate) is_dead: bool,
    /// The names found.
    pub(crate) names: Cell<u32>,
}

impl InodeInfo {
    pub(crate) fn is_directory(&self) -> bool {
        self.type_code == type_code(FileType::Directory)
    }
}

/// A directory of pass 1.
pub(crate) struct Directory {
    pub(crate) inode: InodeNumber,
    /// Its pieces in [`Gathered::pieces`].
    pub(crate) pieces: Range<usize>,
}

/// A block of a directory, or what it has of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Which block of the directory it is.
    pub(crate) logical: u64,
    /// Where it is; `None` where another inode has claimed it before, and its entries are therefore
    /// not looked at.
    pub(crate) fragment: Option<u64>,
    /// Bytes of it that hold entries.
    pub(crate) bytes: u32,
}

/// Everything that pass 1 gathers.
pub(crate) struct Gathered {
    /// The fragments in use.
    pub(crate) used: Bits,
    /// By group; `None` where no inode of the group is in use.
    pub(crate) inodes: Vec<Option<Box<[InodeInfo]>>>,
    /// In the order of their inodes.
    pub(crate) directories: Vec<Directory>,
    pub(crate) pieces: Vec<Piece>,
}

impl Directories for Gathered {
    fn directory_count(&self) -> usize {
        self.directories.len()
    }

    fn directory_at(&self, place: usize) -> InodeNumber {
        self.directories[place].inode
    }

    fn directory_index(&self, inode: InodeNumber) -> Option<usize> {
        self.directories
            .binary_search_by_key(&inode, |directory| directory.inode)
            .ok()
    }
}

impl Gathered {
    /// What is known of an inode; `None` where it is not in use or does not exist.
    pub(crate) fn inode(&self, sb: &Superblock, inode: InodeNumber) -> Option<&InodeInfo> {
        let group = self.inodes.get((inode.0 / sb.inodes_per_group) as usize)?;
        let info = group
            .as_ref()?
            .get((inode.0 % sb.inodes_per_group) as usize)?;
        info.is_used.then_some(info)
    }

    /// The inodes in use, in order.
    pub(crate) fn used_inodes<'g>(
        &'g self,
        sb: &'g Superblock,
    ) -> impl Iterator<Item = (InodeNumber, &'g InodeInfo)> {
        let groups = GroupNumber::all(sb.groups).zip(&self.inodes);
        groups.flat_map(move |(group, infos)| {
            let first = InodeNumber(group.0 * sb.inodes_per_group);
            let infos = infos.as_deref().unwrap_or(&[]);
            let numbered = infos.iter().enumerate().filter(|(_, info)| info.is_used);
            numbered.map(move |(index, info)| (first + index as u32, info))
        })
    }

    /// The map of a group's inodes that are in use, but for those that are nobody's.
    pub(crate) fn inode_map(&self, sb: &Superblock, group: GroupNumber) -> Vec<u8> {
        let mut map = crate::group::empty_inode_map(sb, group);
        let infos = self.inodes[group.index()].as_deref().unwrap_or(&[]);
        for (index, _) in infos.iter().enumerate().filter(|(_, info)| info.is_used) {
            backstitch_blocks::bitmap::set(&mut map, index);
        }
        map
    }

    /// The number of a group's directories.
    pub(crate) fn directories_in(&self, group: GroupNumber) -> u32 {
        let infos = self.inodes[group.index()].as_deref().unwrap_or(&[]);
        let directories = infos
            .iter()
            .filter(|info| info.is_used && info.is_directory());
        directories.count() as u32
    }
}
