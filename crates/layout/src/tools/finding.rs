//! What a check can find, and how bad each of it is: one list for all layouts.

use crate::{BlockNumber, GroupNumber, InodeNumber};
use serde::{Serialize, Serializer};
use std::fmt;

/// How bad a finding is, by what a crash may leave (`docs/GUARANTEES.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Space or inodes that nobody can reach: lost until they are reclaimed, harmless until then.
    Leak,
    /// A number that can be computed anew from the rest, and that errs on the safe side.
    Count,
    /// Anything else: what soft updates never leave.
    Corruption,
}

/// Every code with its kind and its meaning, once.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident => $kind:ident,)*) => {
        /// What was found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// How bad it is.
            pub fn kind(self) -> Kind {
                match self { $(Code::$name => Kind::$kind,)* }
            }

            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
        }
    };
}

codes! {
    // The superblock and the group descriptors.
    /// The superblock contradicts itself or the device. The check stops here.
    SuperblockCorrupt => Corruption,
    /// A field of the superblock is out of its bounds, but the rest can be checked.
    SuperblockField => Corruption,
    /// A sound copy of the superblock says something else of what never changes.
    SuperblockContradicted => Corruption,
    /// One of two marks is missing by which kernels tell that a superblock from before UFS2 was brought up
    /// to date.
    UpgradeUnfinished => Count,
    /// A group descriptor puts bitmaps or inode table where they cannot be. The check stops here.
    DescriptorCorrupt => Corruption,
    /// A group descriptor says that its inodes were never written, but they were, and no checksum
    /// protects the saying.
    DescriptorFlags => Corruption,
    /// A regular file has 2 GiB or more, but the feature that says so is missing.
    LargeFileFeatureMissing => Corruption,
    /// The inode that maps the blocks kept for growing does not map just them.
    ResizeInodeInvalid => Corruption,
    /// The journal's superblock is damaged, or there is none.
    JournalInvalid => Corruption,
    /// The file system was not unmounted, or is mounted. A note: e2fsck asks for no repair.
    NotUnmounted => Count,
    /// The kernel met errors. A note.
    ErrorsRecorded => Count,
    /// A backup of the superblock or the descriptors differs in what never changes. A note.
    BackupDiffers => Count,

    // Inodes.
    /// The root directory's inode is not in use, or no directory.
    RootInvalid => Corruption,
    /// A reserved inode contains what it must not.
    ReservedInodeInvalid => Corruption,
    /// The mode is of no type that exists.
    ModeInvalid => Corruption,
    /// The mode says fifo, socket or device, or nothing at all, but the first block is that of a
    /// directory.
    LooksLikeDirectory => Corruption,
    /// A field that must be zero is not.
    FieldNotZero => Corruption,
    /// A flag that this inode cannot have.
    FlagInvalid => Corruption,
    /// The size of the extra fields is impossible.
    ExtraSizeInvalid => Corruption,
    /// A time before 1970 with the high bits of one far in the future.
    TimeInvalid => Corruption,
    /// A deletion time in an inode that is in use.
    DeletionTimeSet => Corruption,
    /// A deleted inode without deletion time: deleted while it was open, or about to be freed.
    DeletionTimeMissing => Leak,
    /// A deletion time that is an inode number: a remnant of an orphan list.
    DeletionTimeLow => Corruption,
    /// A fifo, socket or device with a size or with pointers that it cannot have.
    SpecialFileInvalid => Corruption,
    /// A symlink whose target and size do not fit together.
    SymlinkInvalid => Corruption,
    /// A size that cannot be.
    SizeInvalid => Corruption,
    /// Blocks are mapped behind the end of the file.
    SizeBelowMapped => Count,
    /// `i_blocks` is not what the inode takes.
    BlockCountWrong => Count,

    // Block pointers.
    /// A pointer to a block that does not exist.
    BlockOutOfRange => Corruption,
    /// A pointer to the file system's own structures.
    BlockInMetadata => Corruption,
    /// Two pointers to one block.
    BlockClaimedTwice => Corruption,
    /// A pointer in an inode to a block past the end of the file.
    PointerPastEnd => Corruption,

    // Attributes.
    /// An attribute block is none, or is damaged.
    XattrBlockInvalid => Corruption,
    /// The attributes inside an inode are damaged.
    XattrInodeInvalid => Corruption,
    /// An attribute block counts more inodes than use it.
    XattrRefcountTooHigh => Count,
    /// An attribute block counts fewer inodes than use it.
    XattrRefcountTooLow => Corruption,
    /// The hash by which attribute blocks are shared is wrong. A note.
    XattrBlockHash => Count,

    // Directories.
    /// A directory without any block.
    DirectoryEmpty => Corruption,
    /// A directory in which a block is missing.
    DirectoryHole => Corruption,
    /// Entries whose lengths do not add up.
    EntryCorrupt => Corruption,
    /// The first entry is not a proper `.`.
    DotInvalid => Corruption,
    /// The second entry is not a proper `..`.
    DotDotInvalid => Corruption,
    /// An entry with an inode number that no entry can have.
    EntryInodeInvalid => Corruption,
    /// An entry for an inode that is not in use.
    EntryToFreeInode => Corruption,
    /// A name that is empty, contains `/` or zero, or is a second `.` or `..`.
    EntryNameInvalid => Corruption,
    /// An entry that tells another type than the inode.
    EntryTypeWrong => Corruption,
    /// A name twice in one directory.
    EntryDuplicate => Corruption,
    /// The index of a hashed directory does not lead to its names.
    IndexInvalid => Corruption,

    // The tree.
    /// A directory with two names of which `..` agrees with one: moved when the power failed.
    DirectoryTwoNames => Leak,
    /// A directory with more names than that.
    DirectoryManyNames => Corruption,
    /// `..` is not the directory that contains the name.
    DotDotWrong => Corruption,
    /// Directories that contain each other.
    DirectoryCycle => Corruption,
    /// A directory without a name.
    UnconnectedDirectory => Leak,
    /// An inode in use without a name.
    UnconnectedInode => Leak,
    /// More links counted in the inode than there are names.
    LinksTooHigh => Count,
    /// Fewer links counted in the inode than there are names.
    LinksTooLow => Corruption,

    // Bitmaps and counters.
    /// Blocks marked as used that nothing points to.
    BlockLeaked => Leak,
    /// Blocks in use that are marked as free.
    BlockNotMarked => Corruption,
    /// Inodes marked as used that are not.
    InodeLeaked => Leak,
    /// Inodes in use that are marked as free.
    InodeNotMarked => Corruption,
    /// The bits behind a bitmap's end are not all set.
    BitmapPadding => Corruption,
    /// A free-block counter differs from the bitmap. The superblock's is a note.
    FreeBlocksWrong => Count,
    /// A free-inode counter differs from the bitmap. The superblock's is a note.
    FreeInodesWrong => Count,
    /// A directory counter is wrong.
    DirectoryCountWrong => Count,

    // Cylinder groups.
    /// A group's header contradicts the superblock.
    GroupHeaderCorrupt => Corruption,
    /// Where a group's next search begins is outside of the group.
    RotorInvalid => Count,
    /// An inode in use lies behind those that were ever initialised.
    InodeNotInitialised => Corruption,
    /// The counts of a group's runs of free fragments differ from the bitmap.
    FragmentSumsWrong => Count,
    /// The map of a group's free whole blocks, or the counts of their runs, differ from the bitmap.
    ClustersWrong => Count,
    /// The summary of a group, or their total, differs from the group's counters.
    SummaryWrong => Count,
}

/// Where something was found. Shown and serialised as words: `inode 12, block 3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// The group.
    pub group: Option<GroupNumber>,
    /// The inode.
    pub inode: Option<InodeNumber>,
    /// The block of the device.
    pub block: Option<BlockNumber>,
    /// The offset within the block or the structure.
    pub offset: Option<u32>,
}

impl Location {
    /// The file system as a whole.
    pub const FILE_SYSTEM: Location = Location {
        group: None,
        inode: None,
        block: None,
        offset: None,
    };

    /// A group.
    pub fn group(group: GroupNumber) -> Location {
        Location {
            group: Some(group),
            ..Location::FILE_SYSTEM
        }
    }

    /// An inode.
    pub fn inode(inode: InodeNumber) -> Location {
        Location {
            inode: Some(inode),
            ..Location::FILE_SYSTEM
        }
    }

    /// A block.
    pub fn block(block: BlockNumber) -> Location {
        Location {
            block: Some(block),
            ..Location::FILE_SYSTEM
        }
    }

    /// The same place, more exactly: a block.
    pub fn at_block(self, block: BlockNumber) -> Location {
        Location {
            block: Some(block),
            ..self
        }
    }

    /// The same place, more exactly: an offset.
    pub fn at_offset(self, offset: usize) -> Location {
        Location {
            offset: Some(offset as u32),
            ..self
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("group", self.group.map(|group| group.0.into())),
            ("inode", self.inode.map(|inode| u64::from(inode.0))),
            ("block", self.block.map(|block| block.0)),
            ("offset", self.offset.map(u64::from)),
        ];
        let mut separator = "";
        for (name, number) in parts {
            if let Some(number) = number {
                write!(f, "{separator}{name} {number}")?;
                separator = ", ";
            }
        }
        if separator.is_empty() {
            f.write_str("file system")
        } else {
            Ok(())
        }
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub kind: Kind,
    /// What it is.
    pub code: Code,
    /// Where it is.
    #[serde(rename = "where")]
    pub location: Location,
    /// What was expected and what was found, in words.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Leak => "leak",
            Kind::Count => "count",
            Kind::Corruption => "corruption",
        };
        write!(f, "{kind}: {}: {}", self.location, self.what)
    }
}

/// Findings as they are made, up to a limit: a hostile image must not fill the memory with them.
#[derive(Debug)]
pub struct Findings {
    /// Those that are kept.
    pub list: Vec<Finding>,
    /// How many are not.
    pub omitted: u64,
    /// The worst kind among these.
    pub worst_omitted: Option<Kind>,
    limit: usize,
}

impl Findings {
    /// None yet, of at most `limit`.
    pub fn new(limit: usize) -> Findings {
        Findings {
            list: Vec::new(),
            omitted: 0,
            worst_omitted: None,
            limit,
        }
    }

    /// Adds a finding; its words are only made where it is kept.
    pub fn add(&mut self, code: Code, location: Location, what: impl FnOnce() -> String) {
        let kind = code.kind();
        if self.list.len() < self.limit {
            self.list.push(Finding {
                kind,
                code,
                location,
                what: what(),
            });
        } else {
            self.omitted += 1;
            self.worst_omitted = self.worst_omitted.max(Some(kind));
        }
    }

    /// Appends those of another part of the check.
    pub fn append(&mut self, other: Findings) {
        self.omitted += other.omitted;
        self.worst_omitted = self.worst_omitted.max(other.worst_omitted);
        for finding in other.list {
            if self.list.len() < self.limit {
                self.list.push(finding);
            } else {
                self.omitted += 1;
                self.worst_omitted = self.worst_omitted.max(Some(finding.kind));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_read_as_words() {
        assert_eq!(Location::FILE_SYSTEM.to_string(), "file system");
        let place = Location::inode(InodeNumber(12))
            .at_block(BlockNumber(7))
            .at_offset(24);
        assert_eq!(place.to_string(), "inode 12, block 7, offset 24");
        assert_eq!(Location::group(GroupNumber(3)).to_string(), "group 3");
    }

    #[test]
    fn findings_serialise_with_kind_where_and_what() {
        let mut findings = Findings::new(1);
        findings.add(Code::LinksTooHigh, Location::inode(InodeNumber(12)), || {
            "3, not 2".into()
        });
        findings.add(Code::BlockLeaked, Location::block(BlockNumber(9)), || {
            unreachable!("not kept")
        });
        assert_eq!(
            (findings.omitted, findings.worst_omitted),
            (1, Some(Kind::Leak))
        );
        let json = serde_json::to_value(&findings.list[0]).unwrap();
        let expected = serde_json::json!({
            "kind": "count", "code": "links_too_high", "where": "inode 12", "what": "3, not 2"
        });
        assert_eq!(json, expected);
    }
}
