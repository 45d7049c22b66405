//! What a format adds to what all formats share.
//!
//! A [`Format`] says how inodes, space, maps and directories look on the disk; [`UnixFs`] says what
//! must be on the disk before what. Methods that return a
//! [`Step`] read and plan: they may miss blocks that are not in memory
//! ([`Stop::Miss`](backstitch_layout::Stop::Miss)), and then have changed nothing. The others mark,
//! clear and write what was planned, with every block in memory, and cannot fail.
//!
//! Functions that take the whole file system (`fs`) are those by which a format adds what only it
//! has, an index of directories on the disk or attributes; they state their own rules.

mod inode;
mod space;

use backstitch_layout::{
    BlockNumber, DirectoryEntry, InodeNumber, NewInode, SetXattrMode, Step, Timestamp, flags,
};
use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::state::UnixFs;
use crate::state::patches::PatchIds;
use crate::state::reclaim::Reclaim;
use backstitch_blocks::block_edit::Room;
use backstitch_blocks::directory::{EntryLayout, Found};
use backstitch_blocks::runs::{Mapped, Run};

pub use inode::{DIRECT_POINTERS, INDIRECT, Inode, InodeEditor, POINTERS};
pub use space::{Picks, Purpose, Space};

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
    const ROOT_INODE: InodeNumber;
    /// The most names of an inode.
    const LINK_MAX: u16;
    /// The most units of 512 bytes that an inode can count.
    const SECTORS_MAX: u64;
    /// The most bytes of a directory.
    const DIRECTORY_BYTES_MAX: u64;
    /// The flag of directories with an [index](Self::has_index) on the disk; 0 where there are none.
    const INDEX_FLAG: u32 = 0;
    /// The flags of `chattr` that an inode has a place for.
    const FLAGS_KEPT: u32 = flags::SETTABLE;
    /// Whether an inode is [cleared](InodeEditor::clear) on the disk before what it has is freed: in
    /// UFS, where a checker takes an inode that has a type for one that is in use. In ext its links
    /// tell.
    const CLEARS_FREED: bool = false;
    /// Whether several inodes may have the same block of attributes.
    const SHARES_ATTRIBUTES: bool = true;

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
    /// The longest target of a symbolic link, in bytes.
    fn symlink_max(&self) -> usize;
    /// Whether an inode has room for a device number (Linux's `dev_t` as `stat` encodes it in 32
    /// bits).
    fn holds_device(&self, _device_number: u32) -> bool {
        true
    }
    /// Whether entries of directories tell the types of their inodes.
    fn has_file_types(&self) -> bool;

    /// The block and the offset of an inode.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) for a number that does not exist.
    fn inode_place(&self, inode: InodeNumber) -> Step<(BlockNumber, usize)>;
    /// Bytes of an inode.
    fn inode_bytes(&self) -> usize;
    /// Whether a number is that of an inode.
    fn is_valid_inode(&self, inode: InodeNumber) -> bool {
        (InodeNumber::FIRST..=self.last_inode()).contains(&inode)
    }
    /// Whether the inode is that of a file which holds a mechanism's log.
    fn is_log(&self, _inode: InodeNumber) -> bool {
        false
    }
    /// An inode as it is, in use or not.
    ///
    /// # Errors
    /// Where its block is missing, or it cannot exist.
    fn read_inode(&self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Self::Inode>;
    /// Begins an inode that has nothing in it.
    fn new_inode(&self) -> Self::Editor;
    /// What a new inode of a type has beside owner, links and times: flags, length, pointers.
    fn fill_new(
        &self,
        editor: &mut Self::Editor,
        parent: &Self::Inode,
        new: &NewInode<'_>,
        block: Option<BlockNumber>,
    );

    /// The bytes of a pointer in an indirect block.
    fn pointer_bytes(&self) -> usize;
    /// A pointer of an indirect block; 0 behind its end.
    fn pointer_at(&self, bytes: &[u8], index: usize) -> BlockNumber;
    /// Pointers to the blocks of a run, one after the other.
    fn encode_pointers(&self, blocks: Run) -> SmallVec<[u8; 64]>;
    /// The map of an inode that has no pointers, which is read and never changed;
    /// `None` where it has some.
    fn foreign_map(
        &self,
        _v: &mut Volume<'_>,
        _inode: &Self::Inode,
        _logical: u64,
        _max: u64,
    ) -> Option<Step<Mapped>> {
        None
    }

    /// Whether indexes of directories on the disk can be made and changed, where the mechanism
    /// allows it.
    fn can_keep_indexes(&self) -> bool {
        false
    }
    /// Whether a directory has an index on the disk that may be used for finding names.
    fn has_index(&self, _directory: InodeNumber, _inode: &Self::Inode) -> bool {
        false
    }
    /// A name was added to some directory.
    fn note_name_added(&mut self) {}
    /// A directory is gone.
    fn forget_directory(&mut self, _directory: InodeNumber) {}
    /// Finds a name by the index on the disk. `None` where that cannot tell.
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn find_by_index(
        _fs: &mut UnixFs<Self>,
        _v: &mut Volume<'_>,
        _directory: InodeNumber,
        _inode: &Self::Inode,
        _name: &[u8],
    ) -> Step<Option<Option<Found>>> {
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
        _directory: InodeNumber,
        _inode: &Self::Inode,
        _cookie: u64,
        _emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<bool> {
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
        _directory: InodeNumber,
        _inode: &Self::Inode,
        _name: &[u8],
        _now: Timestamp,
    ) -> Step<Option<Room>> {
        Ok(None)
    }

    /// Decides on what a new inode gets from its directory.
    ///
    /// # Errors
    /// Where blocks are missing, or there is no space.
    fn gather_inheritance(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        directory: (InodeNumber, &Self::Inode),
        inode: InodeNumber,
        new: &NewInode<'_>,
        picks: &Picks,
    ) -> Step<Self::Inheritance>;
    /// The permissions of the new inode.
    fn inherited_permissions(inherited: &Self::Inheritance) -> u16;
    /// Makes what a new inode inherits. Appends what its inode comes after; returns its attribute
    /// block, 0 for none.
    fn apply_inheritance(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inherited: &Self::Inheritance,
        before: &mut PatchIds,
    ) -> BlockNumber;
    /// What becomes of an access control list as the permissions change.
    ///
    /// # Errors
    /// Where blocks are missing, or there is no space.
    fn gather_permissions(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: (InodeNumber, &Self::Inode),
        permissions: u16,
    ) -> Step<Option<Self::AttributePlan>>;
    /// Applies a change of attributes.
    fn apply_attributes(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: InodeNumber,
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
        inode: InodeNumber,
        name: &[u8],
    ) -> Step<Vec<u8>>;
    /// The names of the attributes, each with a zero behind it.
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn list_xattrs(fs: &mut UnixFs<Self>, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>>;
    /// Sets an attribute, or removes it where `value` is `None`.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    fn change_xattr(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        name: &[u8],
        value: (Option<&[u8]>, SetXattrMode),
        now: Timestamp,
    ) -> Step<()>;
    /// The blocks of an inode's attributes: they are in use, and the inode counts them. Most formats
    /// have one.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) where they cannot be attributes' blocks.
    fn attribute_runs(&self, _number: InodeNumber, inode: &Self::Inode) -> Step<Vec<Run>> {
        let block = inode.attribute_block();
        let is_there = block != BlockNumber::NONE;
        Ok(is_there.then(|| Run::one(block)).into_iter().collect())
    }
    /// Looks up and checks all that releasing an attribute block needs: it cannot fail after this.
    /// `of` is the inode that is freed, as in
    /// [`release_attribute_block`](Self::release_attribute_block).
    ///
    /// # Errors
    /// Where blocks are missing or damaged.
    fn gather_attribute_release(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        block: BlockNumber,
        of: Option<InodeNumber>,
    ) -> Step<()>;
    /// One reference less to an attribute block, to which no pointer is left on the disk; the last
    /// one frees it. Either an inode lost its pointer to the block earlier and lives on (`of` is
    /// `None`), or the inode `of` is freed now and had one.
    ///
    /// # Errors
    /// As [`gather_attribute_release`](Self::gather_attribute_release).
    fn release_attribute_block(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        block: BlockNumber,
        of: Option<InodeNumber>,
    ) -> Step<()>;
    /// Sets the reference count of an attribute block, which is in memory, to what was counted.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) where it counts fewer.
    fn correct_references(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        block: BlockNumber,
        references: u32,
    ) -> Step<()>;
    /// Only attribute blocks that `is_in_use` are to be shared from now on.
    fn retain_shared(&mut self, _is_in_use: &dyn Fn(BlockNumber) -> bool) {}

    /// Before a file gets this length: sets the superblock's feature for such files. An operation
    /// does so while it gathers, since this may miss; a feature that no file needs does no harm.
    ///
    /// # Errors
    /// [`FileTooLarge`](backstitch_layout::Error::FileTooLarge) where there is no such feature.
    fn declare_size(&mut self, _v: &mut Volume<'_>, _size: u64) -> Step<()> {
        Ok(())
    }
    /// The same after a crash, for all features that the contents of an inode need: the inode may
    /// have reached the disk before the superblock.
    ///
    /// # Errors
    /// Where the inode is damaged.
    fn declare_features(
        &mut self,
        _v: &mut Volume<'_>,
        _number: InodeNumber,
        _inode: &Self::Inode,
    ) -> Step<()> {
        Ok(())
    }
    /// What is wrong with the map of an inode that a crash left, if anything.
    fn map_fault(&self, _inode: &Self::Inode) -> Option<&'static str> {
        None
    }
    /// Tells the reclaim which blocks a reserved inode maps, one with a lower number than any file
    /// has ([`Reclaim::mark`], [`Reclaim::mark_again`]). It has no name, and nothing in it is corrected.
    ///
    /// # Errors
    /// Where blocks are missing, or it maps what it cannot.
    fn mark_reserved(
        fs: &mut UnixFs<Self>,
        v: &mut Volume<'_>,
        reclaim: &mut Reclaim,
        number: InodeNumber,
        inode: &Self::Inode,
    ) -> Step<()>;

    /// Writes the list of inodes without names or with a truncation under way; `gone` are no longer
    /// in it. May miss, before anything is changed.
    ///
    /// # Errors
    /// Where blocks are missing.
    fn write_orphans(
        &mut self,
        v: &mut Volume<'_>,
        list: &[InodeNumber],
        gone: &[InodeNumber],
        now: Timestamp,
    ) -> Step<()>;
    /// Writes the counters: groups, then the totals.
    ///
    /// # Errors
    /// Where blocks are missing.
    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()>;
    /// Says in the superblock that the image is not clean, with the time and the count of this mount.
    /// Returns what every change comes after.
    ///
    /// The commit point of a mount for writing.
    ///
    /// # Errors
    /// Where the superblock is missing.
    fn take_clean_mark(&mut self, v: &mut Volume<'_>) -> Step<Vec<PatchId>>;
    /// The very last write: the image is clean again, unless a crash left leaks in it.
    ///
    /// The commit point of an unmount.
    ///
    /// # Errors
    /// Where the superblock is missing.
    fn write_clean_mark(&mut self, v: &mut Volume<'_>, has_leaks: bool) -> Step<()>;
}
