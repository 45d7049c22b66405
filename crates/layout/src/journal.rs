//! What a layout says of the journal that it hosts.
//!
//! The layout knows where the journal is, and nothing of what is in it. The caller that puts the
//! two together (the engine at a mount, `fsck`) replays the journal before the layout opens the
//! file system, and then lets it finish what a crash interrupted: the list of orphans, which is
//! changed through the journal as everything else is.

use std::ops::Range;
use std::sync::Arc;

use backstitch_device::BlockDevice;

use crate::{BlockNumber, Error, InodeNumber, JournalMap, Result, Timestamp};

/// Where a file system keeps its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    /// The size of a block, the same for both.
    pub block_bytes: u32,
    /// The blocks of the file system.
    pub home_blocks: u64,
    /// The file system's UUID, for journals that several share.
    pub file_system: [u8; 16],
    /// Where the journal is.
    pub location: JournalLocation,
    /// Whether the file system says that the journal must be replayed.
    pub needs_recovery: bool,
}

/// Where a journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalLocation {
    /// In blocks of the file system.
    Inside(Arc<JournalMap>),
    /// On another device, whose UUID this is.
    Outside([u8; 16]),
}

/// What a file system notes of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryMark {
    /// The journal must be replayed before the file system is used.
    pub needed: bool,
    /// Something is missing: the file system must be checked before it is trusted.
    pub is_damaged: bool,
    /// Errors had been met while the journal was written.
    pub has_errors: bool,
}

/// What a file system says of a log that one of our mechanisms writes, beside the journal that its
/// format knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNote {
    /// The size of a block.
    pub block_bytes: u32,
    /// The blocks of the file system.
    pub home_blocks: u64,
    /// Where the log is; `None` where there was none yet.
    pub place: Option<NotedPlace>,
    /// How the file system was left.
    pub left: Left,
}

/// Where a log of ours is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotedPlace {
    /// In a file that has these blocks.
    File(Vec<Range<u64>>),
    /// Outside the file system; this names it.
    Elsewhere([u8; 16]),
    /// In a file that cannot be read as one, and why.
    Lost(String),
}

impl NotedPlace {
    /// The place that a layout's record tells of: a file's inode, or none and what names the log.
    /// `find` looks for the file's blocks.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn recorded(
        inode: InodeNumber,
        uuid: [u8; 16],
        find: impl FnOnce(InodeNumber) -> Result<Vec<Range<u64>>>,
    ) -> Result<NotedPlace> {
        if inode == InodeNumber::NONE {
            return Ok(NotedPlace::Elsewhere(uuid));
        }
        match find(inode) {
            Ok(runs) => Ok(NotedPlace::File(runs)),
            Err(error @ Error::Device(_)) => Err(error),
            Err(error) => Ok(NotedPlace::Lost(error.to_string())),
        }
    }
}

/// How a file system was left, as far as its log is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was unmounted, or somebody has repaired it: whatever is in a log does not belong to it.
    Clean,
    /// A mount that wrote the log did not end.
    InUse,
    /// Something else wrote it, and did not end.
    ByOthers,
}

/// A block's number and its new bytes.
pub type ChangedBlock = (BlockNumber, Vec<u8>);

/// What a file system knows of its blocks without reading them.
pub trait HomeContents {
    /// Whether these bytes can be what the block holds, counted in blocks of their length. A copy
    /// in a damaged log that cannot be is left out.
    fn can_hold(&self, block: u64, bytes: &[u8]) -> bool;
}

/// A layout whose file systems can have journals. All of it works on a device on which nothing is
/// mounted.
pub trait JournalHost: HomeContents + Send + Sync {
    /// The command that gives an image a journal; `None` where images of this type never have one.
    fn journal_maker(&self) -> Option<&'static str> {
        None
    }

    /// Where the journal is; `None` where there is none.
    ///
    /// # Errors
    /// Where the device holds no such file system, or one whose journal cannot be found.
    fn place(&self, device: &dyn BlockDevice) -> Result<Option<JournalPlace>>;

    /// Where the journal of a damaged file system may be, what is likeliest first: by every record
    /// that there is of its place, with gaps where blocks are lost. None where there is no journal.
    ///
    /// # Errors
    /// Where the device holds no such file system.
    fn damaged_places(&self, device: &dyn BlockDevice) -> Result<Vec<JournalPlace>>;

    /// Refuses what could not be mounted once the journal is replayed: such an image is left alone.
    ///
    /// # Errors
    /// `Unsupported`, with the features' names.
    fn check_mountable(&self, device: &dyn BlockDevice) -> Result<()>;

    /// Refuses what the layout only reads, with features that change where things are: its journal
    /// is replayed in memory, and the image stays as it is.
    ///
    /// # Errors
    /// `Unsupported`, with the features' names.
    fn check_replayable(&self, device: &dyn BlockDevice) -> Result<()> {
        self.check_mountable(device)
    }

    /// Writes the mark, and flushes.
    ///
    /// # Errors
    /// The device's.
    fn set_recovery(&self, device: &dyn BlockDevice, mark: RecoveryMark) -> Result<()>;

    /// The first orphans, as the blocks that change when they are taken off the list and what they
    /// hold is freed: about `most_blocks` blocks, all of which must reach the device together. None
    /// where there are no orphans, or where they cannot be dealt with (the file system has features
    /// that this layout does not write, or its list is not to be trusted). They go past the store: a
    /// layout with seals returns sealed blocks.
    ///
    /// # Errors
    /// `Corrupt` where the list makes no sense.
    fn next_orphans(
        &self,
        device: &dyn BlockDevice,
        now: Timestamp,
        most_blocks: usize,
    ) -> Result<Orphans>;

    /// Forgets the list of orphans: what was on it is left to a check.
    ///
    /// # Errors
    /// The device's.
    fn drop_orphans(&self, device: &dyn BlockDevice) -> Result<()>;

    /// What the file system says of a log of ours; `None` where it cannot have one.
    ///
    /// # Errors
    /// Where the device holds no such file system; the device's.
    fn log_note(&self, _device: &dyn BlockDevice) -> Result<Option<LogNote>> {
        Ok(None)
    }

    /// Notes the name of a log of ours that lies elsewhere, and flushes.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where the layout has no room for that; the device's.
    fn note_log(&self, _device: &dyn BlockDevice, _uuid: [u8; 16]) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// Forgets where a log of ours is, and flushes.
    ///
    /// # Errors
    /// The device's.
    fn forget_log(&self, _device: &dyn BlockDevice) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// Notes that all that such a log held is at home: the file system is as if it had been
    /// unmounted. Flushes.
    ///
    /// # Errors
    /// The device's.
    fn log_is_home(&self, _device: &dyn BlockDevice) -> Result<()> {
        Err(Error::NotSupported)
    }
}

/// What [`JournalHost::next_orphans`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The blocks that change.
    pub blocks: Vec<ChangedBlock>,
    /// Inodes that had no name any more, and are freed.
    pub freed: u64,
    /// Inodes whose truncation is finished.
    pub truncated: u64,
}
