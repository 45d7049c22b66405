//! What a format is to what all formats share.
//!
//! A [`Format`] says how inodes, space, maps and directories look on the disk; [`UnixFs`] says what
//! must be on the disk before what. Reads and plans may miss blocks that are not in memory
//! ([`Error::Miss`](backstitch_layout::Error::Miss)) and change nothing; what marks, clears and
//! writes comes after them and cannot fail.
//!
//! Functions that take the whole file system (`fs`) are those by which a format adds what only it
//! has, an index of directories on the disk or attributes; they state their own rules.

use std::fmt::Debug;
use std::ops::Range;

use backstitch_layout::{
    DirectoryEntry, FileType, FreeSpaceReader, NewInode, Result, SetXattrMode, Timestamp,
};
use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::UnixFs;
use crate::directory::EntryLayout;
use crate::index::{Found, Room};
use crate::map::Mapped;
use crate::state::PatchIds;
use crate::state::reclaim::Reclaim;
use crate::state::runs::Run;

/// What an inode on the disk says.
pub trait Inode: Clone + Debug {
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
    /// The block of its attributes that others may share; 0 where there is none.
    fn attribute_block(&self) -> u64;
    /// A pointer of its [map](crate::map).
    fn pointer(&self, index: usize) -> u64;
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

    /// Whether the pointers are pointers: those of files, directories and slow symbolic links.
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
    /// What differs from `old`, from the first field to the last: whole fields, for of two changes
    /// of a field the later one comes after the earlier one whatever bytes they change.
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
    /// It has no name any more, since `now`.
    fn set_deleted(&mut self, now: Timestamp);
    /// A pointer of its map.
    fn set_pointer(&mut self, index: usize, block: u64);
    /// As [`Inode::attribute_block`].
    fn set_attribute_block(&mut self, block: u64);
    /// Last access.
    fn set_accessed(&mut self, time: Timestamp);
    /// Last change of the contents.
    fn set_modified(&mut self, time: Timestamp);
    /// Last change of the inode.
    fn set_changed(&mut self, time: Timestamp);
    /// When it was made, where inodes tell that.
    fn set_created(&mut self, time: Timestamp);
}

/// What blocks are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Contents of files.
    Contents,
    /// Directories, indirect blocks, attribute blocks.
    Metadata,
}

/// What has been picked in this operation already, and must not be picked again.
#[derive(Debug, Default)]
pub struct Picks(pub SmallVec<[Run; 4]>);

impl Picks {
    /// The end of the picked run that a block is in.
    pub fn end_if_taken(&self, block: u64) -> Option<u64> {
        self.0
            .iter()
            .find(|r| (r.start..r.end()).contains(&block))
            .map(|r| r.end())
    }

    /// Where the next picked run begins, behind a block.
    pub fn next_start(&self, block: u64) -> u64 {
        self.0
            .iter()
            .map(|r| r.start)
            .filter(|s| *s > block)
            .min()
            .unwrap_or(u64::MAX)
    }
}

/// Where blocks and inodes are, and which are free.
///
/// Blocks and inodes lie in groups. What is picked is not marked: that comes once all of an
/// operation is known to succeed, and cannot fail.
pub trait Space {
    /// Bytes of a block.
    fn block_size(&self) -> u32;
    /// The first block that can be a file's.
    fn first_data_block(&self) -> u64;
    /// One more than the last block's number.
    fn blocks_count(&self) -> u64;
    /// Blocks that only root may use.
    fn reserved_blocks(&self) -> u64;
    /// Blocks that files can never have.
    fn overhead_blocks(&self) -> u64;
    /// The last inode's number.
    fn inodes_count(&self) -> u32;
    /// The first inode that a file can have.
    fn first_inode(&self) -> u32;
    /// Free blocks, as far as is known in memory.
    fn free_blocks(&self) -> u64;
    /// Free inodes, as far as is known in memory.
    fn free_inodes(&self) -> u32;

    /// How many groups there are.
    fn groups_count(&self) -> u32;
    /// The group of a block.
    fn group_of_block(&self, block: u64) -> u32;
    /// The first block of a group.
    fn group_first_block(&self, group: u32) -> u64;
    /// The blocks of a group.
    fn blocks_in_group(&self, group: u32) -> u32;
    /// The blocks of all groups but the last one, a multiple of eight.
    fn blocks_per_group(&self) -> u32;
    /// The group of an inode.
    fn group_of_inode(&self, inode: u32) -> u32;
    /// The first inode of a group.
    fn group_first_inode(&self, group: u32) -> u32;
    /// The inodes of a group.
    fn inodes_per_group(&self) -> u32;
    /// The free inodes of a group.
    fn free_inodes_in(&self, group: u32) -> u32;
    /// The block with the bits of a group's blocks, bit 0 the first one; a set bit is a used block.
    fn block_bitmap(&self, group: u32) -> u64;
    /// The same of its inodes.
    fn inode_bitmap(&self, group: u32) -> u64;
    /// How many inodes a block of the inode table holds.
    fn inodes_per_block(&self) -> u32;
    /// The blocks that are the format's own: first and length of each run.
    fn own_runs(&self, visit: &mut dyn FnMut(u64, u64));
    /// A group has so many directories.
    fn set_directories(&mut self, group: u32, directories: u32);
    /// An inode of the group that is marked as used already becomes a directory.
    fn note_directory(&mut self, group: u32);

    /// Whether all blocks of the run may be a file's: what a pointer may name.
    fn is_data_run(&self, run: Run) -> bool;
    /// The place that is near to an inode.
    fn goal_near(&self, inode: u32) -> u64;
    /// Where a part of a group ends in which directories lie one beside the other, if a block is in
    /// one.
    fn directories_end(&self, block: u64) -> Option<u64>;
    /// Picks free blocks: one run of at most `want` blocks, at `goal` or as near as can be. `grows`
    /// says that the file has grown before, and space after the run is worth reserving. Empty where
    /// nothing is free.
    ///
    /// # Errors
    /// Where a bitmap is missing, or contradicts what is known.
    #[allow(clippy::too_many_arguments)]
    fn pick_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        purpose: Purpose,
        goal: u64,
        want: u64,
        grows: bool,
        picks: &Picks,
    ) -> Result<Run>;
    /// Picks one free block for an indirect or attribute block.
    ///
    /// # Errors
    /// As [`pick_run`](Self::pick_run).
    fn pick_single(&mut self, v: &mut Volume<'_>, inode: u32, picks: &Picks)
    -> Result<Option<u64>>;
    /// The run was taken for `inode`: what lies behind it is reserved if the file grows.
    fn note_taken(&mut self, inode: u32, run: Run, grows: bool);
    /// Whether space is reserved for an inode.
    fn has_window(&self, inode: u32) -> bool;
    /// Nothing is reserved for an inode any more.
    fn drop_window(&mut self, inode: u32);
    /// Marks free blocks as used; their bitmaps are in memory. Appends the patches.
    fn set_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds);
    /// Marks used blocks as free; their bitmaps are in memory.
    fn clear_block_bits(&mut self, v: &mut Volume<'_>, run: Run);
    /// Checks that all blocks of a run are marked as used.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) where one is not.
    fn check_blocks_used(&self, v: &mut Volume<'_>, run: Run) -> Result<()>;
    /// The transaction keeps a place for what freeing blocks of a group will change.
    fn expect_freeing(&self, v: &mut Volume<'_>, group: u32);

    /// Picks a free inode for a name in a directory; `None` where there is none.
    ///
    /// # Errors
    /// Where a bitmap is missing.
    fn pick_inode(
        &mut self,
        v: &mut Volume<'_>,
        parent: u32,
        name: &[u8],
        directory: bool,
    ) -> Result<Option<u32>>;
    /// Picks a free inode of a group.
    ///
    /// # Errors
    /// Where its bitmap is missing.
    fn free_inode_in(
        &mut self,
        v: &mut Volume<'_>,
        group: u32,
        directory: bool,
    ) -> Result<Option<u32>>;
    /// The group into which a file of this name goes, of a directory in group `home`.
    fn group_for_file(&self, home: u32, name: &[u8]) -> u32;
    /// Marks a free inode as used; its bitmap is in memory.
    fn set_inode_bit(&mut self, v: &mut Volume<'_>, inode: u32, directory: bool) -> PatchId;
    /// Marks a used inode as free; its bitmap is in memory.
    fn clear_inode_bit(&mut self, v: &mut Volume<'_>, inode: u32, directory: bool);

    /// Finds the runs of free blocks by the bitmaps that a device holds.
    fn free_space_reader(&self) -> FreeSpaceReader;
}

/// How a file system's structures look on the disk, and what only it has.
pub trait Format: Space + Sized + Send + 'static {
    /// An inode, read.
    type Inode: Inode;
    /// An inode, to be changed.
    type Editor: InodeEditor;
    /// The entries of directories.
    type Entries: EntryLayout;
    /// A change of attributes that was decided on.
    type AttributePlan;
    /// What a new inode gets from its directory.
    type Inheritance;

    /// The root directory's inode.
    const ROOT_INODE: u32;
    /// The most names of an inode.
    const LINK_MAX: u16;
    /// The bytes of a pointer in an indirect block.
    const POINTER_BYTES: usize;
    /// The most units of 512 bytes that an inode can count.
    const SECTORS_MAX: u64;
    /// The most bytes of a directory.
    const DIRECTORY_BYTES_MAX: u64;
    /// The flag of directories with an [index](Self::has_index) on the disk; 0 where there are none.
    const INDEX_FLAG: u32 = 0;

    /// What its type is called (`mount -t`).
    fn type_name(&self) -> &'static str;
    /// The most bytes of a file.
    fn max_file_bytes(&self) -> u64;
    /// The most bytes of a file that the superblock can be made to allow.
    fn max_file_bytes_at_once(&self) -> u64 {
        self.max_file_bytes()
    }
    /// The longest target of a symbolic link that lies in its inode, in bytes.
    fn fast_symlink_max(&self) -> usize;
    /// Whether entries of directories tell the types of their inodes.
    fn has_file_types(&self) -> bool;

    /// The block and the offset of an inode.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) for a number that does not exist.
    fn inode_place(&self, inode: u32) -> Result<(u64, usize)>;
    /// Bytes of an inode.
    fn inode_bytes(&self) -> usize;
    /// Whether a number is that of an inode.
    fn is_valid_inode(&self, inode: u32) -> bool {
        (1..=self.inodes_count()).contains(&inode)
    }
    /// An inode as it is, in use or not.
    ///
    /// # Errors
    /// Where its block is missing, or it cannot exist.
    fn read_inode(&self, v: &mut Volume<'_>, inode: u32) -> Result<Self::Inode>;
    /// Begins an inode that has nothing in it.
    fn new_inode(&self) -> Self::Editor;
    /// What a new inode of a type has beside owner, links and times: flags, length, pointers.
    fn fill_new(
        &self,
        editor: &mut Self::Editor,
        parent: &Self::Inode,
        new: &NewInode<'_>,
        block: Option<u64>,
    );

    /// A pointer of an indirect block; 0 behind its end.
    fn pointer_at(bytes: &[u8], index: usize) -> u64;
    /// Pointers to blocks one after the other.
    fn encode_pointers(blocks: &Range<u64>) -> SmallVec<[u8; 64]>;
    /// The map of an inode that has no [pointers](crate::map), which is read and never changed;
    /// `None` where it has some.
    fn foreign_map(
        &self,
        _v: &mut Volume<'_>,
        _inode: &Self::Inode,
        _logical: u64,
        _max: u64,
    ) -> Option<Result<Mapped>> {
        None
    }

    /// Whether indexes of directories on the disk can be made and changed, where the mechanism
    /// allows it.
    fn can_keep_indexes(&self) -> bool {
        false
    }
    /// Whether a directory has an index on the disk that may be used for finding names.
    fn has_index(&self, _directory: u32, _inode: &Self::Inode) -> bool {
        false
    }
    /// Some directory has another name.
    fn note_name_added(&mut self) {}
    /// A directory is gone.
    fn forget_directory(&mut self, _directory: u32) {}
    /// Finds a name by the index on the disk. `None` where that cannot tell.
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn find_by_index(
        _fs: &mut UnixFs<Self>,
        _v: &mut Volume<'_>,
        _directory: u32,
        _inode: &Self::Inode,
        _name: &[u8],
    ) -> Result<Option<Option<Found>>> {
        Ok(None)
    }
    /// Lists a directory in the order of its index. False, and nothing emitted, where that cannot
    /// tell.
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn list_by_index(
        _fs: &mut UnixFs<Self>,
        _v: &mut Volume<'_>,
        _directory: u32,
        _inode: &Self::Inode,
        _cookie: u64,
        _emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Result<bool> {
        Ok(false)
    }
    /// Room for a new name where its index has it. `None` where the directory has no index that is
    /// kept, and gets none.
    ///
    /// # Errors
    /// [`NoSpace`](backstitch_layout::Error::NoSpace) where the index is full.
    fn room_by_index(
        _fs: &mut UnixFs<Self>,
        _v: &mut Volume<'_>,
        _directory: u32,
        _inode: &Self::Inode,
        _name: &[u8],
        _now: Timestamp,
    ) -> Result<Option<Room>> {
        Ok(None)
    }

    /// Decides on what a new inode gets from its directory.
    ///
    /// # Errors
    /// Where blocks are missing, or there is no space.
    fn gather_inheritance(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        directory: (u32, &Self::Inode),
        inode: u32,
        new: &NewInode<'_>,
        picks: &Picks,
    ) -> Result<Self::Inheritance>;
    /// The permissions of the new inode.
    fn inherited_permissions(inherited: &Self::Inheritance) -> u16;
    /// Makes what a new inode inherits. Appends what its inode comes after; returns its attribute
    /// block, 0 for none.
    fn apply_inheritance(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inherited: &Self::Inheritance,
        before: &mut PatchIds,
    ) -> u64;
    /// What becomes of an access control list as the permissions change.
    ///
    /// # Errors
    /// Where blocks are missing, or there is no space.
    fn gather_permissions(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: (u32, &Self::Inode),
        permissions: u16,
    ) -> Result<Option<Self::AttributePlan>>;
    /// Applies a change of attributes.
    fn apply_attributes(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: u32,
        plan: Self::AttributePlan,
        now: Timestamp,
    );
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`NoAttribute`](backstitch_layout::Error::NoAttribute) where there is none of this name.
    fn read_xattr(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: u32,
        name: &[u8],
    ) -> Result<Vec<u8>>;
    /// The names of the attributes, each with a zero behind it.
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn list_xattrs(fs: &mut UnixFs<Self>, v: &mut Volume<'_>, inode: u32) -> Result<Vec<u8>>;
    /// Sets an attribute, or removes it where `value` is `None`.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    fn change_xattr(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: u32,
        name: &[u8],
        value: (Option<&[u8]>, SetXattrMode),
        now: Timestamp,
    ) -> Result<()>;
    /// Looks up what releasing an attribute block needs.
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn gather_attribute_release(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        block: u64,
    ) -> Result<()>;
    /// One reference less to an attribute block, to which no pointer is left on the disk; the last
    /// one frees it. The reference was given up before, or is given up with the inode `of`.
    ///
    /// # Errors
    /// As [`gather_attribute_release`](Self::gather_attribute_release).
    fn release_attribute_block(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        block: u64,
        of: Option<u32>,
    ) -> Result<()>;
    /// Sets the reference count of an attribute block, which is in memory, to what was counted.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) where it counts fewer.
    fn correct_references(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        block: u64,
        references: u32,
    ) -> Result<()>;
    /// Only attribute blocks that `is_in_use` are to be shared from now on.
    fn retain_shared(&mut self, _is_in_use: &dyn Fn(u64) -> bool) {}

    /// Says on the disk what a file of this length needs said.
    ///
    /// # Errors
    /// [`FileTooLarge`](backstitch_layout::Error::FileTooLarge) where that cannot be said.
    fn gather_size(&mut self, _v: &mut Volume<'_>, _size: u64) -> Result<()> {
        Ok(())
    }
    /// Says on the disk what a file that a crash left needs said.
    ///
    /// # Errors
    /// Where it cannot be what it is.
    fn gather_features(
        &mut self,
        _v: &mut Volume<'_>,
        _number: u32,
        _inode: &Self::Inode,
    ) -> Result<()> {
        Ok(())
    }
    /// What is wrong with the map of an inode that a crash left, if anything.
    fn map_fault(&self, _inode: &Self::Inode) -> Option<&'static str> {
        None
    }
    /// Marks what an inode maps that is below the first one for files. It has no name, and nothing
    /// in it is corrected.
    ///
    /// # Errors
    /// Where blocks are missing, or it maps what it cannot.
    fn mark_reserved(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        reclaim: &mut Reclaim,
        number: u32,
        inode: &Self::Inode,
    ) -> Result<()>;

    /// Writes the list of inodes without names or with a truncation under way; `gone` are no longer
    /// in it. May miss, before anything is changed.
    ///
    /// # Errors
    /// Where blocks are missing.
    fn write_orphans(
        &mut self,
        v: &mut Volume<'_>,
        list: &[u32],
        gone: &[u32],
        now: Timestamp,
    ) -> Result<()>;
    /// Writes the counters: groups, then the totals.
    ///
    /// # Errors
    /// Where blocks are missing.
    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Result<()>;
    /// Says "not clean", with what the record of the mount has. Returns what every change comes
    /// after.
    ///
    /// The commit point of a mount for writing.
    ///
    /// # Errors
    /// Where the superblock is missing.
    fn take_clean_mark(&mut self, v: &mut Volume<'_>) -> Result<Vec<PatchId>>;
    /// The very last write: the image is clean again, unless a crash left leaks in it.
    ///
    /// The commit point of an unmount.
    ///
    /// # Errors
    /// Where the superblock is missing.
    fn write_clean_mark(&mut self, v: &mut Volume<'_>, has_leaks: bool) -> Result<()>;
}
