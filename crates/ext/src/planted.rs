//! Errors that a test can plant in what the layout states, one at a time, to see that an explorer of crash states finds them.
//!
//! Only with the feature `planted-errors`; without it every question for a planted error is the constant "no". An error is planted
//! for the thread that asks, which has one machine.
//!
//! Dependencies that one might leave out without harm, because others imply them, are not in the list:
//! * the name of a new directory after its parent's link: the name waits for the inode, that for the block with `..`, and that for
//!   the link;
//! * the inode after the bits of new indirect blocks, and of what they point to: the indirect blocks wait for all of them;
//! * the old parent's count after `..` alone: it waits for the removal of the old name, which waits for `..`;
//! * the removal of an inode's earlier names, where it is about to be freed and lost them to a move to another block: the move put
//!   the link count back after them, and freeing the inode overwrites that;
//! * a new bit after its earlier clearing, a reference to an attribute block after its contents, an inode's newer fields after its
//!   older ones: they overlap, and the graph keeps the order of what overlaps;
//! * the reach of a directory that was moved: until its new name can be reached it has the old one;
//! * what is synced of a moved directory after the removal of its old name: its link count waits for that, and is synced;
//! * the clean mark's removal after the record of the mount: they are in one block, which is written as one.
//!
//! That the clean mark comes last is the business of those who drive the layout.

#[cfg(feature = "planted-errors")]
use std::cell::Cell;

use backstitch_ordering::PatchId;

/// One dependency of the layout left out, reversed or reported too early; what the disk shows after an unlucky crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Planted {
    /// A pointer to a new block is there, its bit is not: the block is given away twice.
    PointerWithoutBit,
    /// A pointer to a new block is there, its contents are not: the file shows what the block held before.
    PointerWithoutContents,
    /// An indirect block has an entry for a new block whose bit is not set.
    IndirectEntryWithoutBit,
    /// An indirect block has an entry for a new block without contents, and the size covers it.
    IndirectEntryWithoutContents,
    /// An inode points to an indirect block that was never written: its pointers are what the block held before.
    IndirectPointerWithoutBlock,
    /// An indirect block points to one below it that was never written.
    IndirectEntryWithoutBlock,
    /// The size covers a new block, the indirect block has no entry for it: zeros that nobody wrote.
    SizeBeforeIndirectEntry,
    /// The size covers bytes of the last block that are not there: zeros that nobody wrote.
    SizeBeforeContents,
    /// A file that was cut and grew again shows the bytes that were cut off.
    SizeBeforeZeroedTail,
    /// A name stands for an inode that was never written.
    NameWithoutInode,
    /// A new inode is there, its bit is not: the inode is given away twice.
    InodeWithoutBit,
    /// The block of a new directory or of a long symlink is not marked.
    NewBlockWithoutBit,
    /// A new directory has no `.` and no `..`.
    DirectoryWithoutBlock,
    /// A long symlink leads to what its block held before.
    SymlinkWithoutTarget,
    /// A new inode's inherited attributes are not there.
    InodeWithoutAttributeBlock,
    /// A new directory's `..` is not counted in its parent.
    DotDotWithoutParentLink,
    /// An inode has more names than it counts.
    NameWithoutLinkCount,
    /// A directory has the same name twice: once for the inode that lost it.
    NameBeforeEarlierRemoval,
    /// A directory's index on the disk does not lead to a new name.
    NameBeforeIndexFlag,
    /// An inode's last reachable name is gone; the new one is in a block that its directory does not have yet.
    ReachWithoutPointer,
    /// An inode's last reachable name is gone; the new one is in a directory without a reachable name.
    ReachWithoutParents,
    /// One of two names is gone before the other one is there: the inode has none.
    ClearedWithoutReach,
    /// A link count is lower than the names that are still there.
    LinkDroppedBeforeClearing,
    /// A name stands for an inode that is marked as deleted.
    FreedBeforeClearing,
    /// The link count goes down first, and the name waits for that: fewer links than names.
    RemovalReversed,
    /// A parent no longer counts the `..` of a removed directory that is still there.
    ParentLinkDroppedBeforeFreeing,
    /// A directory's name is gone while what was moved out of it has its only name there.
    ClearedBeforeDepartures,
    /// A removed directory is left with a name that its `..` does not agree with.
    ClearedBeforeEarlierNames,
    /// A moved file has both names and counts one.
    NewNameWithoutLinkCount,
    /// A moved file has neither name.
    OldNameClearedBeforeNew,
    /// A moved file's only name is in a directory without a reachable name.
    OldNameClearedWithoutReach,
    /// A moved file's only name is in a block that its directory does not have yet.
    OldNameClearedWithoutPointer,
    /// A moved file counts one link while both names are there.
    LinkDroppedBeforeOldName,
    /// The name of a replaced file still stands for it, but it is marked as deleted.
    TargetDroppedBeforeNewName,
    /// A replaced file that has another name has none on the disk.
    ReplacedWithoutReach,
    /// A replaced directory's name is gone while what was moved out of it has its only name there.
    ReplacedBeforeDepartures,
    /// A replaced directory is left with a name that its `..` does not agree with.
    ReplacedBeforeEarlierNames,
    /// A file that was renamed and removed is marked as deleted while its old name is there.
    MoveWithinBlockForgotten,
    /// The old name goes first, and the new one waits for that: neither is there.
    RenameReversed,
    /// A directory's `..` leads to where it has no name yet.
    DotDotBeforeName,
    /// A directory's `..` leads to where its name is in a block that nobody can reach yet.
    DotDotBeforePointer,
    /// A moved directory's `..` is not counted in its new parent.
    MovedWithoutParentLink,
    /// A moved directory's only name is where its `..` does not lead.
    OldNameClearedBeforeDotDot,
    /// The old parent no longer counts a directory whose `..` still leads there.
    OldParentLinkDroppedEarly,
    /// A directory that was made and moved has only the name that its `..` does not agree with.
    NewNameBeforePendingOldName,
    /// A directory is below itself: one above its new place still has its earlier name.
    NewNameBeforeNamesAbove,
    /// A file was cut, but its blocks are still mapped: a checker gives it back the bytes, or a growth shows them.
    SizeBeforeNullification,
    /// The end of a file that was about to be cut reads as zeros.
    TailZeroedBeforeSize,
    /// Blocks that are cut off or punched out are free while pointers to them are there.
    BlocksFreedEarly,
    /// An attribute block counts fewer inodes than have it.
    AttributePointerWithoutReference,
    /// An inode's attribute block was never written.
    AttributePointerWithoutContents,
    /// An inode's attribute block is not marked.
    AttributeBlockWithoutBit,
    /// An attribute block is free, or counts one inode less, while that inode points to it.
    AttributeBlockReleasedEarly,
    /// An inode and its blocks are free while its name is there.
    InodeFreedEarly,
    /// Whatever is to be freed is freed at once, while it is pointed to.
    DeferredAtOnce,
    /// Freeing waits for the first of several clearings: what lost the others is free while they are still to come.
    DeferredAfterTheFirst,
    /// A file was synced, but its inode is as before.
    FsyncWithoutInode,
    /// A file was synced, but what was overwritten in it is as before.
    FsyncWithoutContents,
    /// A new file was synced, but its name is not there.
    FsyncWithoutName,
    /// A new file was synced, but its name is in a block that its directory does not have yet.
    FsyncWithoutPointer,
    /// A new file was synced, but its directory has no name.
    FsyncWithoutReach,
    /// A file was synced, and nothing of it is there: the call did not wait.
    FsyncAtOnce,
    /// The image says that it is clean, but something was changed.
    ChangesBeforeMark,
    /// A name in a directory that nobody can reach stands for an inode that the reclaim marked as deleted.
    ReclaimKillsEarly,
    /// A `..` leads to a directory that the reclaim marked as deleted.
    ReclaimKillsParentFirst,
    /// A directory that nobody can reach is still there, but the reclaim no longer counts its `..`.
    ReclaimCorrectsEarly,
    /// The reclaim freed blocks behind the end of a file while they are still mapped.
    ReclaimFreesEarly,
}

/// A name so long that three of its kind, and `.` and `..`, leave no room for a fourth in a block of 1024 bytes.
#[cfg(feature = "planted-errors")]
macro_rules! long {
    () => {
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    };
}

#[cfg(feature = "planted-errors")]
impl Planted {
    /// All of them.
    pub const ALL: &[Planted] = &[
        Planted::PointerWithoutBit,
        Planted::PointerWithoutContents,
        Planted::IndirectEntryWithoutBit,
        Planted::IndirectEntryWithoutContents,
        Planted::IndirectPointerWithoutBlock,
        Planted::IndirectEntryWithoutBlock,
        Planted::SizeBeforeIndirectEntry,
        Planted::SizeBeforeContents,
        Planted::SizeBeforeZeroedTail,
        Planted::NameWithoutInode,
        Planted::InodeWithoutBit,
        Planted::NewBlockWithoutBit,
        Planted::DirectoryWithoutBlock,
        Planted::SymlinkWithoutTarget,
        Planted::InodeWithoutAttributeBlock,
        Planted::DotDotWithoutParentLink,
        Planted::NameWithoutLinkCount,
        Planted::NameBeforeEarlierRemoval,
        Planted::NameBeforeIndexFlag,
        Planted::ReachWithoutPointer,
        Planted::ReachWithoutParents,
        Planted::ClearedWithoutReach,
        Planted::LinkDroppedBeforeClearing,
        Planted::FreedBeforeClearing,
        Planted::RemovalReversed,
        Planted::ParentLinkDroppedBeforeFreeing,
        Planted::ClearedBeforeDepartures,
        Planted::ClearedBeforeEarlierNames,
        Planted::NewNameWithoutLinkCount,
        Planted::OldNameClearedBeforeNew,
        Planted::OldNameClearedWithoutReach,
        Planted::OldNameClearedWithoutPointer,
        Planted::LinkDroppedBeforeOldName,
        Planted::TargetDroppedBeforeNewName,
        Planted::ReplacedWithoutReach,
        Planted::ReplacedBeforeDepartures,
        Planted::ReplacedBeforeEarlierNames,
        Planted::MoveWithinBlockForgotten,
        Planted::RenameReversed,
        Planted::DotDotBeforeName,
        Planted::DotDotBeforePointer,
        Planted::MovedWithoutParentLink,
        Planted::OldNameClearedBeforeDotDot,
        Planted::OldParentLinkDroppedEarly,
        Planted::NewNameBeforePendingOldName,
        Planted::NewNameBeforeNamesAbove,
        Planted::SizeBeforeNullification,
        Planted::TailZeroedBeforeSize,
        Planted::BlocksFreedEarly,
        Planted::AttributePointerWithoutReference,
        Planted::AttributePointerWithoutContents,
        Planted::AttributeBlockWithoutBit,
        Planted::AttributeBlockReleasedEarly,
        Planted::InodeFreedEarly,
        Planted::DeferredAtOnce,
        Planted::DeferredAfterTheFirst,
        Planted::FsyncWithoutInode,
        Planted::FsyncWithoutContents,
        Planted::FsyncWithoutName,
        Planted::FsyncWithoutPointer,
        Planted::FsyncWithoutReach,
        Planted::FsyncAtOnce,
        Planted::ChangesBeforeMark,
        Planted::ReclaimKillsEarly,
        Planted::ReclaimKillsParentFirst,
        Planted::ReclaimCorrectsEarly,
        Planted::ReclaimFreesEarly,
    ];

    /// Its name, in words.
    pub fn name(self) -> &'static str {
        match self {
            Planted::PointerWithoutBit => "pointer-without-bit",
            Planted::PointerWithoutContents => "pointer-without-contents",
            Planted::IndirectEntryWithoutBit => "indirect-entry-without-bit",
            Planted::IndirectEntryWithoutContents => "indirect-entry-without-contents",
            Planted::IndirectPointerWithoutBlock => "indirect-pointer-without-block",
            Planted::IndirectEntryWithoutBlock => "indirect-entry-without-block",
            Planted::SizeBeforeIndirectEntry => "size-before-indirect-entry",
            Planted::SizeBeforeContents => "size-before-contents",
            Planted::SizeBeforeZeroedTail => "size-before-zeroed-tail",
            Planted::NameWithoutInode => "name-without-inode",
            Planted::InodeWithoutBit => "inode-without-bit",
            Planted::NewBlockWithoutBit => "new-block-without-bit",
            Planted::DirectoryWithoutBlock => "directory-without-block",
            Planted::SymlinkWithoutTarget => "symlink-without-target",
            Planted::InodeWithoutAttributeBlock => "inode-without-attribute-block",
            Planted::DotDotWithoutParentLink => "dot-dot-without-parent-link",
            Planted::NameWithoutLinkCount => "name-without-link-count",
            Planted::NameBeforeEarlierRemoval => "name-before-earlier-removal",
            Planted::NameBeforeIndexFlag => "name-before-index-flag",
            Planted::ReachWithoutPointer => "reach-without-pointer",
            Planted::ReachWithoutParents => "reach-without-parents",
            Planted::ClearedWithoutReach => "cleared-without-reach",
            Planted::LinkDroppedBeforeClearing => "link-dropped-before-clearing",
            Planted::FreedBeforeClearing => "freed-before-clearing",
            Planted::RemovalReversed => "removal-reversed",
            Planted::ParentLinkDroppedBeforeFreeing => "parent-link-dropped-before-freeing",
            Planted::ClearedBeforeDepartures => "cleared-before-departures",
            Planted::ClearedBeforeEarlierNames => "cleared-before-earlier-names",
            Planted::NewNameWithoutLinkCount => "new-name-without-link-count",
            Planted::OldNameClearedBeforeNew => "old-name-cleared-before-new",
            Planted::OldNameClearedWithoutReach => "old-name-cleared-without-reach",
            Planted::OldNameClearedWithoutPointer => "old-name-cleared-without-pointer",
            Planted::LinkDroppedBeforeOldName => "link-dropped-before-old-name",
            Planted::TargetDroppedBeforeNewName => "target-dropped-before-new-name",
            Planted::ReplacedWithoutReach => "replaced-without-reach",
            Planted::ReplacedBeforeDepartures => "replaced-before-departures",
            Planted::ReplacedBeforeEarlierNames => "replaced-before-earlier-names",
            Planted::MoveWithinBlockForgotten => "move-within-block-forgotten",
            Planted::RenameReversed => "rename-reversed",
            Planted::DotDotBeforeName => "dot-dot-before-name",
            Planted::DotDotBeforePointer => "dot-dot-before-pointer",
            Planted::MovedWithoutParentLink => "moved-without-parent-link",
            Planted::OldNameClearedBeforeDotDot => "old-name-cleared-before-dot-dot",
            Planted::OldParentLinkDroppedEarly => "old-parent-link-dropped-early",
            Planted::NewNameBeforePendingOldName => "new-name-before-pending-old-name",
            Planted::NewNameBeforeNamesAbove => "new-name-before-names-above",
            Planted::SizeBeforeNullification => "size-before-nullification",
            Planted::TailZeroedBeforeSize => "tail-zeroed-before-size",
            Planted::BlocksFreedEarly => "blocks-freed-early",
            Planted::AttributePointerWithoutReference => "attribute-pointer-without-reference",
            Planted::AttributePointerWithoutContents => "attribute-pointer-without-contents",
            Planted::AttributeBlockWithoutBit => "attribute-block-without-bit",
            Planted::AttributeBlockReleasedEarly => "attribute-block-released-early",
            Planted::InodeFreedEarly => "inode-freed-early",
            Planted::DeferredAtOnce => "deferred-at-once",
            Planted::DeferredAfterTheFirst => "deferred-after-the-first",
            Planted::FsyncWithoutInode => "fsync-without-inode",
            Planted::FsyncWithoutContents => "fsync-without-contents",
            Planted::FsyncWithoutName => "fsync-without-name",
            Planted::FsyncWithoutPointer => "fsync-without-pointer",
            Planted::FsyncWithoutReach => "fsync-without-reach",
            Planted::FsyncAtOnce => "fsync-at-once",
            Planted::ChangesBeforeMark => "changes-before-mark",
            Planted::ReclaimKillsEarly => "reclaim-kills-early",
            Planted::ReclaimKillsParentFirst => "reclaim-kills-parent-first",
            Planted::ReclaimCorrectsEarly => "reclaim-corrects-early",
            Planted::ReclaimFreesEarly => "reclaim-frees-early",
        }
    }

    /// Whether it is made after a crash: it shows where the power fails again while the reclaim is at work on one of the states
    /// that [`provoking`](Self::provoking) leaves.
    pub fn is_in_recovery(self) -> bool {
        matches!(
            self,
            Planted::ReclaimKillsEarly
                | Planted::ReclaimKillsParentFirst
                | Planted::ReclaimCorrectsEarly
                | Planted::ReclaimFreesEarly
        )
    }

    /// Operations on an empty file system of 1024-byte blocks some crash state of which shows the error; separated by `;`.
    ///
    /// `creat`, `mkdir`, `unlink`, `rmdir`, `rename`, `link` and `symlink` are as the commands; `write`, `overwrite`, `punch` and
    /// `falloc` take an offset and a length, `append` and `truncate` a length; `setacl` gives a directory a default access control
    /// list; `sync` puts everything on the disk and does all deferred work; `work` does what deferred work can be done; `index` has
    /// a foreign checker give the directories an index on the disk, with nothing mounted.
    pub fn provoking(self) -> &'static str {
        match self {
            Planted::PointerWithoutBit => "mkdir A; creat A/f; sync; write A/f 0 5000",
            Planted::PointerWithoutContents => {
                "mkdir A; creat A/old; write A/old 0 8192; sync; unlink A/old; sync; creat A/f; sync; write A/f 0 5000"
            }
            Planted::IndirectEntryWithoutBit => {
                "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024"
            }
            Planted::IndirectEntryWithoutContents => {
                "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; write A/f 0 14336; sync; append A/f 1024"
            }
            Planted::IndirectPointerWithoutBlock => {
                "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; write A/f 0 20000"
            }
            Planted::IndirectEntryWithoutBlock => {
                "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; write A/f 274432 1000"
            }
            Planted::SizeBeforeIndirectEntry => {
                "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024"
            }
            Planted::SizeBeforeContents => {
                "mkdir A; creat A/f; write A/f 0 300; sync; append A/f 300"
            }
            Planted::SizeBeforeZeroedTail => {
                "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100; truncate A/f 5000"
            }
            Planted::NameWithoutInode => "mkdir A; sync; creat A/f",
            Planted::InodeWithoutBit => "mkdir A; sync; creat A/f",
            Planted::NewBlockWithoutBit => "mkdir A; sync; mkdir A/d",
            Planted::DirectoryWithoutBlock => "mkdir A; sync; mkdir A/d",
            Planted::SymlinkWithoutTarget => {
                "mkdir A; sync; symlink tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt A/s"
            }
            Planted::InodeWithoutAttributeBlock => "mkdir A; setacl A; sync; mkdir A/d; creat A/f",
            Planted::DotDotWithoutParentLink => "mkdir A; sync; mkdir A/d",
            Planted::NameWithoutLinkCount => "mkdir A; mkdir B; creat A/f; sync; link A/f B/g",
            Planted::NameBeforeEarlierRemoval => {
                "mkdir A; creat A/x; creat A/y; creat A/f; sync; unlink A/x; unlink A/f; creat A/f"
            }
            Planted::NameBeforeIndexFlag => {
                concat!(
                    "mkdir A; creat A/",
                    long!(),
                    "1; creat A/",
                    long!(),
                    "2; creat A/",
                    long!(),
                    "3; creat A/",
                    long!(),
                    "4; index A; creat A/f"
                )
            }
            Planted::ReachWithoutPointer => {
                concat!(
                    "mkdir B; creat B/",
                    long!(),
                    "1; creat B/",
                    long!(),
                    "2; creat B/",
                    long!(),
                    "3; mkdir A; creat A/f; sync; link A/f B/",
                    long!(),
                    "4; unlink A/f"
                )
            }
            Planted::ReachWithoutParents => {
                "mkdir A; creat A/f; sync; mkdir D; mkdir D/e; link A/f D/e/g; unlink A/f"
            }
            Planted::ClearedWithoutReach => {
                "mkdir A; mkdir B; creat A/f; sync; link A/f B/g; unlink A/f"
            }
            Planted::LinkDroppedBeforeClearing => {
                "mkdir A; mkdir B; creat A/f; link A/f B/g; sync; unlink A/f"
            }
            Planted::FreedBeforeClearing => "mkdir A; creat A/f; sync; unlink A/f",
            Planted::RemovalReversed => {
                "mkdir A; mkdir B; creat A/f; link A/f B/g; sync; unlink A/f"
            }
            Planted::ParentLinkDroppedBeforeFreeing => "mkdir A; mkdir A/d; sync; rmdir A/d",
            Planted::ClearedBeforeDepartures => {
                "mkdir A; mkdir D; creat D/f; sync; rename D/f A/f; rmdir D"
            }
            Planted::ClearedBeforeEarlierNames => {
                "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d; rmdir B/d"
            }
            Planted::NewNameWithoutLinkCount => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g",
            Planted::OldNameClearedBeforeNew => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g",
            Planted::OldNameClearedWithoutReach => {
                "mkdir A; creat A/f; sync; mkdir D; rename A/f D/f"
            }
            Planted::OldNameClearedWithoutPointer => {
                concat!(
                    "mkdir B; creat B/",
                    long!(),
                    "1; creat B/",
                    long!(),
                    "2; creat B/",
                    long!(),
                    "3; mkdir A; creat A/f; sync; rename A/f B/",
                    long!(),
                    "4"
                )
            }
            Planted::LinkDroppedBeforeOldName => {
                "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g"
            }
            Planted::TargetDroppedBeforeNewName => {
                "mkdir A; mkdir B; creat A/f; creat B/g; sync; rename A/f B/g"
            }
            Planted::ReplacedWithoutReach => {
                "mkdir A; mkdir B; creat A/t; creat A/f; sync; link A/t B/u; rename A/f A/t"
            }
            Planted::ReplacedBeforeDepartures => {
                "mkdir A; mkdir B; mkdir A/t; creat A/t/x; mkdir A/d; sync; rename A/t/x B/x; rename A/d A/t"
            }
            Planted::ReplacedBeforeEarlierNames => {
                "mkdir A; mkdir B; mkdir A/t; mkdir B/d; sync; rename A/t B/t; rename B/d B/t"
            }
            Planted::MoveWithinBlockForgotten => {
                "mkdir A; creat A/f; sync; rename A/f A/g; unlink A/g"
            }
            Planted::RenameReversed => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g",
            Planted::DotDotBeforeName => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d",
            Planted::DotDotBeforePointer => {
                concat!(
                    "mkdir B; creat B/",
                    long!(),
                    "1; creat B/",
                    long!(),
                    "2; creat B/",
                    long!(),
                    "3; mkdir A; mkdir A/d; sync; rename A/d B/",
                    long!(),
                    "4"
                )
            }
            Planted::MovedWithoutParentLink => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d",
            Planted::OldNameClearedBeforeDotDot => {
                "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d"
            }
            Planted::OldParentLinkDroppedEarly => {
                "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d"
            }
            Planted::NewNameBeforePendingOldName => {
                "mkdir A; mkdir B; sync; mkdir A/d; rename A/d B/d"
            }
            Planted::NewNameBeforeNamesAbove => {
                "mkdir outer; mkdir outer/middle; mkdir outer/middle/inner; mkdir outer/middle/inner/sub; mkdir other; sync; rename outer/middle/inner other/inner; rename outer other/inner/sub/outer"
            }
            Planted::SizeBeforeNullification => {
                "mkdir A; creat A/f; write A/f 0 20000; sync; truncate A/f 13000"
            }
            Planted::TailZeroedBeforeSize => {
                "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100"
            }
            Planted::BlocksFreedEarly => {
                "mkdir A; creat A/f; write A/f 0 20000; sync; truncate A/f 5000; work"
            }
            Planted::AttributePointerWithoutReference => {
                "mkdir A; creat A/f; creat A/g; setxattr A/f user.a one; sync; setxattr A/g user.a one"
            }
            Planted::AttributePointerWithoutContents => {
                "mkdir A; creat A/f; sync; setxattr A/f user.a one"
            }
            Planted::AttributeBlockWithoutBit => {
                "mkdir A; creat A/f; sync; setxattr A/f user.a one"
            }
            Planted::AttributeBlockReleasedEarly => {
                "mkdir A; creat A/f; setxattr A/f user.a one; sync; removexattr A/f user.a; work"
            }
            Planted::InodeFreedEarly => {
                "mkdir A; creat A/f; write A/f 0 3000; sync; unlink A/f; work"
            }
            Planted::DeferredAtOnce => {
                "mkdir A; creat A/f; setxattr A/f user.a one; write A/f 0 20000; sync; punch A/f 1024 2048; truncate A/f 5000; unlink A/f; work"
            }
            Planted::DeferredAfterTheFirst => {
                "mkdir A; mkdir B; creat A/f; creat B/g; write B/g 0 3000; sync; unlink A/f; unlink B/g; work; creat A/h; fsync A/h; append A/h 100; fsync A/h; work"
            }
            Planted::FsyncWithoutInode => "mkdir A; creat A/f; sync; write A/f 0 3000; fsync A/f",
            Planted::FsyncWithoutContents => {
                "mkdir A; creat A/f; write A/f 0 3000; sync; overwrite A/f 0 1000; fsync A/f"
            }
            Planted::FsyncWithoutName => "mkdir A; sync; creat A/f; fsync A/f",
            Planted::FsyncWithoutPointer => {
                concat!(
                    "mkdir B; creat B/",
                    long!(),
                    "1; creat B/",
                    long!(),
                    "2; creat B/",
                    long!(),
                    "3; sync; creat B/",
                    long!(),
                    "4; fsync B/",
                    long!(),
                    "4"
                )
            }
            Planted::FsyncWithoutReach => "mkdir A; creat A/f; fsync A/f",
            Planted::FsyncAtOnce => "mkdir A; creat A/f; write A/f 0 3000; fsync A/f",
            Planted::ChangesBeforeMark => "mkdir A; creat A/f",
            Planted::ReclaimKillsEarly => "mkdir A; sync; mkdir A/d; mkdir A/d/e",
            Planted::ReclaimKillsParentFirst => "mkdir A; sync; mkdir A/d; mkdir A/d/e",
            Planted::ReclaimCorrectsEarly => "mkdir A; sync; mkdir A/d",
            Planted::ReclaimFreesEarly => {
                "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024"
            }
        }
    }
}

#[cfg(feature = "planted-errors")]
thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Makes one error in this thread from here on, or none.
#[cfg(feature = "planted-errors")]
pub fn plant(error: Option<Planted>) {
    PLANTED.set(error);
}

/// Whether the error is to be made.
#[cfg(feature = "planted-errors")]
pub(crate) fn planted(error: Planted) -> bool {
    PLANTED.get() == Some(error)
}

/// Whether the error is to be made.
#[cfg(not(feature = "planted-errors"))]
#[inline(always)]
pub(crate) const fn planted(_: Planted) -> bool {
    false
}

/// A patch to wait for, or none where the error is to be made.
#[inline(always)]
pub(crate) fn unless(error: Planted, patch: PatchId) -> PatchId {
    if planted(error) {
        PatchId::COMMITTED
    } else {
        patch
    }
}

/// Patches to wait for, or none where the error is to be made.
#[inline(always)]
pub(crate) fn unless_all(error: Planted, patches: &[PatchId]) -> &[PatchId] {
    if planted(error) { &[] } else { patches }
}
