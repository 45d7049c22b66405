//! The trait between layouts and the layers above.

use std::ops::Range;

use backstitch_device::BlockDevice;
use backstitch_ordering::{Log, PatchId, Volume, VolumeId};

use crate::{
    AccessTimes, Allocate, Attributes, BlockNumber, DirectoryEntry, FileSystemStatistics,
    InodeNumber, NewInode, Piece, RenameMode, Seek, SetAttributes, SetXattrMode, Step, Timestamp,
};

/// Deferred work, in items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeferredStatistics {
    /// Items that wait for a patch or for their turn.
    pub pending: u64,
    /// Those of them that wait for nothing but their turn.
    pub ready: u64,
    /// Items done since the mount.
    pub done: u64,
    /// Items put aside because a block that they need cannot be read.
    pub unreadable: u64,
    /// Bytes of memory, about, that get free as it is done.
    pub bytes: u64,
    /// Bytes of memory that indexes of directories take. Their number has a bound of its own; no
    /// work frees them.
    pub index_bytes: u64,
}

/// Finds the free blocks of a file system that a device holds: runs of them, in the store's blocks.
pub type FreeSpaceReader =
    Box<dyn FnOnce(&dyn BlockDevice) -> crate::Result<Vec<Range<u64>>> + Send>;

/// What a step of the reclaim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimStep {
    /// Another step.
    More,
    /// Another step, once this is on stable storage.
    Wait(PatchId),
    /// Another step, once the deferred work that there is is done.
    WaitForFrees,
    /// Nothing: all that a crash left is found, and freed as soon as what was changed is on stable
    /// storage.
    Done,
}

/// How far the reclaim is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReclaimProgress {
    /// Whether it is under way.
    pub running: bool,
    /// Whether every directory has one name again; also where there is no reclaim.
    pub is_settled: bool,
    /// How much of it is done, 0 to 1; 1 where there was nothing to do.
    pub done_fraction: f64,
    /// Blocks that it found to be in nobody's use, and freed or is about to.
    pub freed_blocks: u64,
    /// Inodes likewise.
    pub freed_inodes: u64,
    /// How often it went on without something that could not be read.
    pub put_aside: u64,
}

impl ReclaimProgress {
    /// Blocks and inodes given back so far, for a comparison with a later count.
    pub fn freed(&self) -> u64 {
        self.freed_blocks + self.freed_inodes
    }
}

/// Something that changed without anybody asking for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A name is gone from a directory.
    Name {
        /// The directory.
        directory: InodeNumber,
        /// The name.
        name: Vec<u8>,
    },
    /// An inode's link count or block count.
    Attributes(InodeNumber),
}

/// How a file system is to be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenRequest {
    /// Change nothing.
    pub read_only: bool,
    /// The time, for the superblock.
    pub now: Timestamp,
    /// Change the file system without writing its journal, which is empty.
    pub without_journal: bool,
    /// Changes go through the image's journal, which is empty.
    pub journaled: bool,
    /// Why the image's journal cannot be written, in words, where it has one and that is so.
    pub unwritable_journal: Option<String>,
}

/// What opening a file system found.
pub struct Opened {
    /// The file system.
    pub file_system: Box<dyn FileSystem>,
    /// Whether the image was left by a crash.
    pub recovery_needed: bool,
    /// What was done about it, in words.
    pub actions: Vec<String>,
    /// What must be on stable storage before [`FileSystem::mark_in_use`].
    pub first: Vec<PatchId>,
}

/// A kind of layout: recognises its images and opens them.
pub trait LayoutKind: Send + Sync {
    /// The size of the blocks that the store is to use for the image on this device.
    ///
    /// # Errors
    /// Where the device holds no file system of this kind, or one that cannot be read.
    fn block_bytes(&self, device: &dyn BlockDevice) -> crate::Result<u32>;

    /// How file systems of this kind host a journal; `None` where they never do.
    fn journal_host(&self) -> Option<&dyn crate::JournalHost> {
        None
    }

    /// Opens the file system, recovering it where a crash left it. May miss, as any operation.
    ///
    /// # Errors
    /// Where the image is corrupt or uses what cannot be read.
    fn open(
        &self,
        volume: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened>;
}

/// An open file system: operations on inodes, each *gather, then apply* (see the crate's
/// documentation).
///
/// The default methods answer for a layout whose names never change, and that has no symlinks and
/// no extended attributes. A file system that passes operations on to another one must pass on all
/// of them.
pub trait FileSystem: Send {
    /// The layout's name, as `mkfs -t` takes it.
    fn name(&self) -> &'static str;

    /// The root directory.
    fn root(&self) -> InodeNumber;

    /// Why nothing can be changed, in words; `None` where it can.
    fn read_only_reason(&self) -> Option<String>;

    /// Takes the clean mark away. What it returns must be on stable storage before anything else is
    /// written.
    ///
    /// # Errors
    /// `Miss` as any operation.
    fn mark_in_use(&mut self, volume: &mut Volume<'_>) -> Step<Vec<PatchId>>;

    /// From now on nothing can be changed, because of an error that is described.
    fn become_read_only(&mut self, reason: &str);

    /// What `statfs` shows.
    fn statistics(&self) -> FileSystemStatistics;

    /// What `statfs` shows of the volume that holds an inode.
    fn statistics_at(&self, _inode: InodeNumber) -> FileSystemStatistics {
        self.statistics()
    }

    /// An inode's attributes.
    ///
    /// # Errors
    /// `NotFound` where the inode is not in use.
    fn attributes(&mut self, volume: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes>;

    /// The attributes of an inode that a caller names by a number that it remembers (a file
    /// handle), which may be any number.
    ///
    /// # Errors
    /// `NotFound` where the number is of no inode that names can lead to.
    fn find(&mut self, volume: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        self.attributes(volume, inode)
    }

    /// Changes attributes. A long truncation is done in steps, each ending with
    /// [`Stop::Again`](crate::Stop::Again).
    ///
    /// # Errors
    /// `FileTooLarge`, `IsADirectory` for the size of what has none, `ReadOnly`; `NotPermitted`
    /// where a flag forbids it, or there are no flags to set.
    fn set_attributes(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Step<Attributes>;

    /// The inode was read: moves its access time where `rule` and its flags say so.
    ///
    /// # Errors
    /// `NotFound` where the inode is not in use.
    fn touch_accessed(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        rule: AccessTimes,
        now: Timestamp,
    ) -> Step<()>;

    /// The inode that a name in a directory stands for.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`.
    fn lookup(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
    ) -> Step<InodeNumber>;

    /// Names of a directory from `cookie` on (0 at first), `.` and `..` among them, until `emit`
    /// returns false.
    ///
    /// # Errors
    /// `NotADirectory`.
    fn read_directory(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<()>;

    /// Makes an inode of any type and its name.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `TooManyLinks`, `NameTooLong`, …
    fn create(
        &mut self,
        _volume: &mut Volume<'_>,
        _directory: InodeNumber,
        _name: &[u8],
        _new: &NewInode<'_>,
        _now: Timestamp,
    ) -> Step<InodeNumber> {
        no_names(self.read_only_reason())
    }

    /// Makes a regular file without a name, with what one made in `directory` inherits. It may get a
    /// name by [`link`](Self::link), and shows it only with all that was done to it before. Unless it
    /// is [held](Self::hold) it is freed again.
    ///
    /// # Errors
    /// `Invalid` for another type; `NoSpace`, …
    fn create_unnamed(
        &mut self,
        _volume: &mut Volume<'_>,
        _directory: InodeNumber,
        _new: &NewInode<'_>,
        _now: Timestamp,
    ) -> Step<InodeNumber> {
        no_names(self.read_only_reason())
    }

    /// Gives an inode another name, or the first one to one that was made without.
    ///
    /// # Errors
    /// `Exists`, `TooManyLinks`, `NotPermitted` for directories, `NoSpace`, …
    fn link(
        &mut self,
        _volume: &mut Volume<'_>,
        _inode: InodeNumber,
        _directory: InodeNumber,
        _name: &[u8],
        _now: Timestamp,
    ) -> Step<()> {
        no_names(self.read_only_reason())
    }

    /// Takes a name away. The inode goes with its last name and its last reference.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`.
    fn unlink(
        &mut self,
        _volume: &mut Volume<'_>,
        _directory: InodeNumber,
        _name: &[u8],
        _now: Timestamp,
    ) -> Step<InodeNumber> {
        no_names(self.read_only_reason())
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`.
    fn remove_directory(
        &mut self,
        _volume: &mut Volume<'_>,
        _directory: InodeNumber,
        _name: &[u8],
        _now: Timestamp,
    ) -> Step<InodeNumber> {
        no_names(self.read_only_reason())
    }

    /// Moves a name. Returns the inode that lost its name to the move, if any.
    ///
    /// # Errors
    /// As POSIX has them; `Invalid` where a directory would move into itself or the mechanism
    /// cannot swap.
    fn rename(
        &mut self,
        _volume: &mut Volume<'_>,
        _rename: &Rename<'_>,
        _now: Timestamp,
    ) -> Step<Option<InodeNumber>> {
        no_names(self.read_only_reason())
    }

    /// What a symlink points to.
    ///
    /// # Errors
    /// `Invalid` where it is none.
    fn read_link(&mut self, _volume: &mut Volume<'_>, _inode: InodeNumber) -> Step<Vec<u8>> {
        Err(crate::Error::Invalid.into())
    }

    /// Where a part of a file is. Appends its pieces in order, short at the end of the file. What
    /// lies on the device must be read before [`free_epoch`](Self::free_epoch) changes, or mapped
    /// anew.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` for other types without contents.
    fn map(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        pieces: &mut Vec<Piece>,
    ) -> Step<()>;

    /// Where `count` blocks of a file are from its block `first` on: how many of them are together,
    /// and the first one's number in the volume; `None` in its stead where they are a hole. For a
    /// volume that is put into the file.
    ///
    /// # Errors
    /// `Invalid` for what is no regular file, `NotSupported` where the layout cannot say.
    fn extent(
        &mut self,
        _volume: &mut Volume<'_>,
        _inode: InodeNumber,
        _first: u64,
        _count: u64,
    ) -> Step<(Option<BlockNumber>, u64)> {
        Err(crate::Error::NotSupported.into())
    }

    /// The log of a volume that this file system holds and serves with it, and that volume; `None`
    /// where there is none. The log of its own volume is its mechanism's.
    fn log(&mut self) -> Option<(&mut dyn Log, VolumeId)> {
        None
    }

    /// Changes whenever blocks that belonged to something become free for something else.
    fn free_epoch(&self) -> u64;

    /// Writes into a file; may write less than asked (a step), never nothing.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooLarge`.
    fn write(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Step<usize>;

    /// Whether a write of `len_bytes` to a file that was just written to, ending at `end_bytes`,
    /// finds its place whenever it is done: so that it may be put off.
    fn is_sure_to_fit(&self, _inode: InodeNumber, _end_bytes: u64, _len_bytes: u64) -> bool {
        false
    }

    /// Whether the first contents of a new file get their place without a read, as it looks now: so
    /// that their write may be put off too.
    fn finds_place_unread(&self, _volume: &Volume<'_>, _inode: InodeNumber) -> bool {
        false
    }

    /// Reserves, punches or zeroes a range, in steps that end with
    /// [`Stop::Again`](crate::Stop::Again).
    ///
    /// # Errors
    /// `NoSpace`, `FileTooLarge`, `NotSupported`.
    fn allocate(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
        now: Timestamp,
    ) -> Step<()>;

    /// The next data or hole from an offset on.
    ///
    /// # Errors
    /// `NoSuchAddress` where there is none.
    fn seek(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        what: Seek,
    ) -> Step<u64>;

    /// An extended attribute's value.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for names of no known namespace.
    fn xattr(
        &mut self,
        _volume: &mut Volume<'_>,
        _inode: InodeNumber,
        _name: &[u8],
    ) -> Step<Vec<u8>> {
        Err(crate::Error::NoAttribute.into())
    }

    /// The names of all extended attributes, each ended by a zero byte.
    ///
    /// # Errors
    /// `Corrupt` where the attribute block is.
    fn list_xattrs(&mut self, _volume: &mut Volume<'_>, _inode: InodeNumber) -> Step<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute, or takes it away where `value` is `None`.
    ///
    /// # Errors
    /// `NoAttribute`, `Exists`, `NoSpace` where it does not fit, `Range`, `NotSupported`.
    fn set_xattr(
        &mut self,
        _volume: &mut Volume<'_>,
        _inode: InodeNumber,
        _name: &[u8],
        _value: Option<&[u8]>,
        _mode: SetXattrMode,
        _now: Timestamp,
    ) -> Step<()> {
        writable(self.read_only_reason())?;
        Err(crate::Error::NotSupported.into())
    }

    /// Appends the patches that must be on stable storage for the inode to be there. `data_only`
    /// leaves out what only changes times.
    fn sync_targets(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    );

    /// Somebody waits for the inode to be on stable storage: [`sync_targets`](Self::sync_targets),
    /// and what had better go with them.
    fn flush_targets(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        self.sync_targets(volume, inode, data_only, targets);
    }

    /// The transaction that holds everything changed so far is about to be closed, and everything
    /// that was put off until then is done: writes what a crash must find beside it (counters, the
    /// list of inodes without names). Called again where anything came between it and the end of
    /// the transaction.
    ///
    /// # Errors
    /// `Miss` as any operation.
    fn prepare_commit(&mut self, _volume: &mut Volume<'_>, _now: Timestamp) -> Step<()> {
        Ok(())
    }

    /// Somebody above refers to the inode (an open file, a name in the kernel's cache): it stays
    /// while it has no name.
    fn hold(&mut self, inode: InodeNumber);

    /// One reference less. Without names and references the inode is freed, as deferred work.
    fn release(&mut self, inode: InodeNumber);

    /// Nobody above refers to anything any more: the file system is about to be unmounted.
    fn release_all(&mut self);

    /// Does a bounded amount of the deferred work whose time has come. True where there was any.
    ///
    /// # Errors
    /// `Miss` as any operation; others end the item that caused them.
    fn background(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<bool>;

    /// Does a bounded amount of the deferred work that waits for nothing, without looking for more.
    /// True where there was any.
    ///
    /// # Errors
    /// As [`background`](Self::background).
    fn free_ready(&mut self, volume: &mut Volume<'_>) -> Step<bool>;

    /// A block that the last [`background`](Self::background) missed cannot be read: puts the work
    /// that needs it aside, so that what is behind it gets its turn. False where there is none.
    fn put_deferred_aside(&mut self) -> bool {
        false
    }

    /// A block that the last step of [`reclaim`](Self::reclaim) missed cannot be read: goes on
    /// without what is in it, as far as that goes. False where it does not.
    fn put_reclaim_aside(&mut self) -> bool {
        false
    }

    /// Takes up what was put aside: perhaps it can be read by now.
    fn retry_deferred(&mut self) {}

    /// A reader that finds, without the lock, the free blocks on a device that holds this file
    /// system as it is now: for a copy, which need not hold them.
    fn free_space(&self) -> FreeSpaceReader {
        Box::new(|_| Ok(Vec::new()))
    }

    /// Notes which blocks of a range of the volume are free, from its start as far as one step
    /// goes; from then on what is allocated is crossed off. Returns where the step ended.
    ///
    /// # Errors
    /// `Miss` as any operation; `NotSupported` where the layout cannot tell.
    fn note_free(&mut self, _volume: &mut Volume<'_>, _blocks: Range<u64>) -> Step<u64> {
        Err(crate::Error::NotSupported.into())
    }

    /// Takes a run of at most `most` blocks off what [`note_free`](Self::note_free) noted: blocks
    /// that have been free ever since.
    fn take_free(&mut self, _most: u64) -> Option<Range<u64>> {
        None
    }

    /// Forgets what was noted as free.
    fn forget_free(&mut self) {}

    /// From now on remembers which blocks are freed, or does so no longer.
    fn remember_freed(&mut self, _remember: bool) {}

    /// Takes what was freed since the last call, where that is remembered: sorted runs that do not
    /// overlap, and may be in use again.
    fn take_freed(&mut self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// How much deferred work there is.
    fn deferred(&self) -> DeferredStatistics;

    /// One bounded step of finding and freeing what a crash left: space and inodes marked as used,
    /// counts too high. It goes on where the step before ended; operations may come between. Only
    /// once it says [`ReclaimStep::Done`] can the image be marked clean.
    ///
    /// # Errors
    /// `Miss` as any operation; `Corrupt` where something was found that no crash can have left.
    /// Nothing more is reclaimed then, and a check is called for.
    fn reclaim(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<ReclaimStep>;

    /// How far the reclaim is.
    fn reclaim_progress(&self) -> ReclaimProgress;

    /// Appends what the reclaim has changed since the last call: a caller that remembers it must
    /// look again.
    fn take_changed(&mut self, into: &mut Vec<Changed>);

    /// Everything is on stable storage and no deferred work is left: writes counters and the like,
    /// all but the clean mark.
    ///
    /// # Errors
    /// `Miss` as any operation.
    fn write_counters(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<()>;

    /// Everything, [`write_counters`](Self::write_counters) included, is on stable storage: marks the image clean.
    ///
    /// # Errors
    /// `Miss` as any operation.
    fn mark_clean(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<()>;
}

/// Refuses a change where nothing may be changed, before any other error is looked for.
fn writable(read_only_reason: Option<String>) -> Step<()> {
    match read_only_reason {
        Some(_) => Err(crate::Error::ReadOnly.into()),
        None => Ok(()),
    }
}

/// The answer to a change of names where there are no names to change.
fn no_names<T>(read_only_reason: Option<String>) -> Step<T> {
    writable(read_only_reason)?;
    Err(crate::Error::NotPermitted.into())
}

/// A move of a name.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// The directory that has the name.
    pub from: InodeNumber,
    /// The name.
    pub from_name: &'a [u8],
    /// The directory that is to have it.
    pub to: InodeNumber,
    /// The name there.
    pub to_name: &'a [u8],
    /// What to do if that name exists.
    pub mode: RenameMode,
}
