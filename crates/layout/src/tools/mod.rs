//! What is done with an image that nobody has mounted: making, checking, repairing, describing and
//! changing it.
//!
//! One trait, [`Tools`], stands between the layouts' tools and those who use them; the types of
//! what goes in and comes out are here, so that nobody above needs to know which layout an image
//! has.

mod check;
mod finding;
mod info;
mod losses;
mod make;
mod overlay;
mod repair;
pub mod rounds;
mod source;
pub mod tree;
mod tune;

pub use check::{
    CheckError, CheckOptions, EXIT_CLEAN, EXIT_OPERATIONAL, EXIT_UNCORRECTED, Report, Summary,
};
pub use finding::{Code, Finding, Findings, Kind, Location};
pub use info::{Info, LastMount, State, uuid_text};
pub use make::{JournalFeatures, MadeJournal, Mkfs, MkfsError, MkfsJournal};
pub use overlay::Overlay;
pub use repair::{
    EXIT_CORRECTED, Losses, Mode, Outcome, Repair, RepairLog, RepairOptions, ReplaySuperblock,
};
pub use source::{DeviceSource, SliceSource, Source};
pub use tune::{Reserved, Tune, TuneError};

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_ordering::CrashRecord;

use crate::{BlockNumber, GroupNumber, InodeNumber, LayoutKind};

/// The tools of one layout. No method reads a clock or makes random numbers.
pub trait Tools: Send + Sync {
    /// What mounts such an image.
    fn layout(&self) -> &'static dyn LayoutKind;

    /// The types that it makes, as `mkfs -t` takes them, each with the features that it adds to the
    /// layout's usual ones.
    fn types(&self) -> &'static [(&'static str, &'static [&'static str])];

    /// Which of its types a device holds, where they can be told apart.
    fn type_on(&self, _device: &dyn BlockDevice) -> Option<&'static str> {
        None
    }

    /// The type by which the host's kernel mounts such images, those with features too that this
    /// version cannot read; `None` where it has no driver for them.
    fn kernel_type(&self) -> Option<&'static str> {
        None
    }

    /// The program of others that checks such images, those with features too that this version cannot
    /// check or change.
    fn foreign_check(&self) -> &'static str;

    /// Whether a device has the layout's magic number. One that cannot be read has none.
    fn is_on(&self, device: &dyn BlockDevice) -> bool;

    /// The UUID of the file system or journal on a device, unchecked; `None` where a device is too
    /// small for one or cannot be read.
    fn uuid_on(&self, device: &dyn BlockDevice) -> Option<[u8; 16]>;

    /// Whether blocks are divided into fragments, which are then the unit of allocation and have
    /// their size from [`Mkfs::fragment_size`].
    fn divides_blocks(&self) -> bool {
        false
    }

    /// Whether there is a feature of this name to ask for in [`Mkfs::features`].
    fn has_feature(&self, name: &str) -> bool;

    /// How many inodes [`make`](Self::make) would give the file system on a device of this size.
    /// Touches none: this also tells whether it can be made.
    ///
    /// # Errors
    /// What cannot be had.
    fn planned_inodes(&self, wanted: &Mkfs, device_bytes: u64) -> Result<u64, MkfsError>;

    /// Makes a file system and flushes the device. A crash in the middle leaves none.
    ///
    /// # Errors
    /// What cannot be had (the device is then untouched), and the device's errors.
    fn make(&self, wanted: &Mkfs, device: &dyn BlockDevice) -> Result<Info, MkfsError>;

    /// Makes a journal on a device of its own.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    fn make_journal(
        &self,
        _wanted: &MkfsJournal,
        _device: &dyn BlockDevice,
    ) -> Result<MadeJournal, MkfsError> {
        Err(MkfsError::Unsupported("a journal".to_owned()))
    }

    /// Notes a file system as the user of a journal's device.
    ///
    /// # Errors
    /// Where the journal is another file system's, or is not empty; the device's.
    fn attach_journal(
        &self,
        _device: &dyn BlockDevice,
        _file_system: [u8; 16],
    ) -> Result<(), MkfsError> {
        Err(MkfsError::Unsupported("a journal".to_owned()))
    }

    /// Label and features of a device that holds a journal and nothing else.
    ///
    /// # Errors
    /// The device's.
    fn journal_label(
        &self,
        _device: &dyn BlockDevice,
    ) -> Result<(Vec<u8>, Vec<String>), DeviceError> {
        Ok(Default::default())
    }

    /// Checks an image. Writes nothing.
    ///
    /// # Errors
    /// Where it is none of this layout, or one with features that cannot be checked, and where
    /// reading fails. A damaged file system is no error but a report.
    fn check(&self, source: &dyn Source, options: &CheckOptions) -> Result<Report, CheckError>;

    /// Repairs an image. Nothing is written before all is worked out and checked.
    ///
    /// # Errors
    /// Where it is none of this layout and no backup says otherwise, or has features that cannot be
    /// written; the device's.
    fn repair(
        &self,
        device: &dyn BlockDevice,
        options: &RepairOptions,
    ) -> Result<Outcome, CheckError>;

    /// Where findings about the journal are.
    fn journal_location(&self) -> Location {
        Location::FILE_SYSTEM
    }

    /// Whether the superblock says that a journal must be replayed, and that there is none.
    ///
    /// # Errors
    /// The device's.
    fn lacks_its_journal(&self, _device: &dyn BlockDevice) -> Result<bool, CheckError> {
        Ok(false)
    }

    /// Superblocks under which a journal may be replayed to which the superblock in place does not
    /// lead, as it may be unusable; the most likely first.
    ///
    /// # Errors
    /// The device's.
    fn superblocks_for_replay(
        &self,
        _device: &dyn BlockDevice,
        _is_unusable: bool,
    ) -> Result<Vec<ReplaySuperblock>, CheckError> {
        Ok(Vec::new())
    }

    /// Takes the mark that a journal must be replayed off a superblock by which no replay can go.
    /// Returns whether the mark was there.
    ///
    /// # Errors
    /// The device's.
    fn give_up_replay(&self, _device: &dyn BlockDevice) -> Result<bool, CheckError> {
        Ok(false)
    }

    /// What the superblock says.
    ///
    /// # Errors
    /// Where there is none of this layout, or it cannot be believed; the device's.
    fn info(&self, device: &dyn BlockDevice) -> Result<Info, CheckError>;

    /// Changes the label, the UUID or the reserved blocks.
    ///
    /// # Errors
    /// What cannot be had, and file systems that must not be changed now (nothing is written then);
    /// the device's.
    fn tune(&self, tune: &Tune, device: &dyn BlockDevice) -> Result<Info, TuneError>;

    /// What each block is for, and what its bytes say; `None` where the superblock or what it leads
    /// to cannot be read.
    fn geography(&self, source: &dyn Source) -> Option<Box<dyn Geography>>;

    /// The bytes that must be written, and where, for a mount to trust an image that a crash left
    /// under a mechanism without order as it trusts one with this record; `None` where nothing
    /// must.
    fn trusted(&self, source: &dyn Source, record: CrashRecord) -> Option<(u64, Vec<u8>)>;
}

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The superblock, or what comes before it.
    Superblock,
    /// Group descriptors.
    Descriptors,
    /// A backup of superblock or descriptors.
    Backup,
    /// The bitmap of this group's blocks.
    BlockBitmap(GroupNumber),
    /// The bitmap of this group's inodes.
    InodeBitmap(GroupNumber),
    /// Inodes, this one first.
    Inodes(InodeNumber),
    /// Contents of a file, from this block of it on.
    Contents(InodeNumber, u64),
    /// Names.
    Names(InodeNumber),
    /// Pointers to a file's blocks.
    Pointers(InodeNumber),
    /// Extended attributes.
    Attributes(InodeNumber),
    /// Nothing that is known.
    Unknown,
}

/// The blocks of an image, for those who explain it.
pub trait Geography {
    /// What a block is for.
    fn what(&self, block: BlockNumber) -> Use;

    /// The size of a block.
    fn block_bytes(&self) -> u32;

    /// The size of an inode in its table.
    fn inode_bytes(&self) -> u32;

    /// What of an inode changed, but for times, in words; empty where nothing did.
    fn inode_difference(&self, before: &[u8], after: &[u8]) -> String;

    /// The names in a block of a directory, as far as it can be read.
    fn names(&self, block: &[u8]) -> Vec<(Vec<u8>, InodeNumber)>;
}
