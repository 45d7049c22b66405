//! Errors that a test can plant in what the layout states, one at a time, to see that an explorer of crash states finds them.
//!
//! Only with the feature `planted-errors`; without it every question for a planted error is the constant "no". An error is planted
//! for the thread that asks, which has one machine.
//!
//! Dependencies that one might leave out without harm, because others imply them, are not in the list:
//! * the name of a new directory after its parent's link: the name waits for the inode, that for the block with `..`, and that for
//!   the link;
//! * of a moved directory, either the new name or `..` after the new parent's link: `..` waits for the name, and until `..` is
//!   there the old name is, with which it agrees. (Both together are in the list);
//! * the old parent's count after `..`: it waits for the removal of the old name, which waits for `..`;
//! * the reach of a directory that was moved: until its new name can be reached it has the old one;
//! * where an inode is freed, the removals of names that it lost to moves between blocks: the link counts that these put back wait
//!   for them, and freeing the inode overwrites the counts;
//! * the inode after the bits of new indirect blocks, and of what they point to: the indirect blocks wait for all of them;
//! * what must be synced of a directory beside its changes: its reach, for so are its names; the removals of its earlier names,
//!   for its link count waits for them;
//! * a new bit after its earlier clearing, a reference to an attribute block after its contents, an inode's newer fields after its
//!   older ones: they overlap, and the graph keeps the order of what overlaps (errors in that can be planted there);
//! * the index flag of a directory that gets an index: without it the directory is an ordinary one, with a long `..`;
//! * taking the clean mark away after the record of the mount: they are in one block, which is written as one.
//!
//! The stale end of a last block that is zeroed before a file grows is not in the list either: only a crash leaves one. That the
//! clean mark comes last is the business of those who drive the layout.

#[cfg(feature = "planted-errors")]
use std::cell::Cell;

use backstitch_ordering::PatchId;

/// Every error with what the disk shows after an unlucky crash, its name, and operations that lead there, once.
macro_rules! errors {
    ($($(#[$doc:meta])* $error:ident => $name:literal, $script:expr;)*) => {
        /// One dependency of the layout left out, reversed or reported too early; what the disk shows after an unlucky crash.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Planted { $($(#[$doc])* $error,)* }

        #[cfg(feature = "planted-errors")]
        impl Planted {
            /// All of them.
            pub const ALL: &[Planted] = &[$(Planted::$error,)*];

            /// Its name, in words.
            pub fn name(self) -> &'static str {
                match self { $(Planted::$error => $name,)* }
            }

            /// Operations on an empty file system of 1024-byte blocks some crash state of which shows the error; separated by `;`.
            ///
            /// `creat`, `mkdir`, `unlink`, `rmdir`, `rename`, `link` and `symlink` are as the commands; `write`, `overwrite` and
            /// `punch` take an offset and a length, `append` and `truncate` a length; `setacl` gives a directory a default access
            /// control list; `chattr` takes letters; `sync` puts everything on the disk and does all deferred work; `work` does what deferred work can be
            /// done; `index` has a foreign checker give the directories an index on the disk, with nothing mounted. What comes before `blocks`
            /// is done while blocks are written wholly or not at all, and is not looked at.
            pub fn provoking(self) -> &'static str {
                match self { $(Planted::$error => $script,)* }
            }
        }
    };
}

/// A small tree with shared attributes, a part of which is not on the disk.
#[cfg(feature = "planted-errors")]
macro_rules! tree {
    () => {
        "mkdir A; mkdir A/d; creat A/f; write A/f 0 9000; link A/f A/g; setacl A; creat A/h; sync; creat A/d/i; mkdir A/e; \
         unlink A/g; rename A/f A/d/f"
    };
}

/// A name so long that three of its kind, and `.` and `..`, leave no room for a fourth in a block of 1024 bytes.
#[cfg(feature = "planted-errors")]
macro_rules! long {
    () => {
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
         nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
         nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    };
}

/// A directory without room for a further long name in its block.
#[cfg(feature = "planted-errors")]
macro_rules! full_b {
    () => {
        concat!(
            "mkdir B; creat B/",
            long!(),
            "1; creat B/",
            long!(),
            "2; creat B/",
            long!(),
            "3"
        )
    };
}

/// So many more of them that leaves of its index are split.
#[cfg(feature = "planted-errors")]
macro_rules! more_b {
    () => {
        concat!(
            "creat B/",
            long!(),
            "4; creat B/",
            long!(),
            "5; creat B/",
            long!(),
            "6; creat B/",
            long!(),
            "7; creat B/",
            long!(),
            "8; creat B/",
            long!(),
            "9"
        )
    };
}

errors! {
    // Blocks of files and directories.
    /// A pointer to a new block is there, its bit is not: the block is given away twice.
    PointerWithoutBit => "pointer-without-bit", "mkdir A; creat A/f; sync; write A/f 0 5000";
    /// A pointer to a new block is there, its contents are not: the file shows what the block held before.
    PointerWithoutContents => "pointer-without-contents",
        "mkdir A; creat A/old; write A/old 0 8192; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 0 5000";
    /// An indirect block has an entry for a new block whose bit is not set.
    IndirectEntryWithoutBit => "indirect-entry-without-bit",
        "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024";
    /// An indirect block has an entry for a new block without contents, and the size covers it.
    IndirectEntryWithoutContents => "indirect-entry-without-contents",
        "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; write A/f \
         0 14336; sync; append A/f 1024";
    /// As the one before, for the file is taken for one that is not on the disk yet.
    EntryAsOfUnborn => "entry-as-of-unborn",
        "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; write A/f \
         0 14336; sync; append A/f 1024";
    /// An inode points to an indirect block that was never written: its pointers are what the block held before.
    IndirectPointerWithoutBlock => "indirect-pointer-without-block",
        "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 0 20000";
    /// An inode points to an indirect block, what the indirect block points to was never written.
    PointerWithoutBelow => "pointer-without-below",
        "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 16384 1000";
    /// An indirect block points to one below it that was never written.
    IndirectEntryWithoutBlock => "indirect-entry-without-block",
        "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 274432 1000";
    /// The size covers a new block, the indirect block has no entry for it: zeros that nobody wrote.
    SizeBeforeIndirectEntry => "size-before-indirect-entry",
        "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024";
    /// The size covers bytes of the last block that are not there: zeros that nobody wrote.
    SizeBeforeContents => "size-before-contents",
        "mkdir A; creat A/f; write A/f 0 300; sync; append A/f 300";
    /// The size covers bytes of a last block that was a hole and is one still on the disk: zeros that nobody wrote.
    SizeBeforeFilledEnd => "size-before-filled-end",
        "mkdir A; creat A/f; sync; truncate A/f 500; write A/f 100 50; append A/f 100";
    /// A file is cut, and blocks that a hole took before are mapped behind its end.
    SizeBeforeHole => "size-before-hole",
        "mkdir A; creat A/f; write A/f 0 6000; punch A/f 1024 5000; truncate A/f 1024";
    /// A file that was cut and grew again shows the bytes that were cut off.
    SizeBeforeZeroedTail => "size-before-zeroed-tail",
        "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100; truncate A/f 5000";

    // New names.
    /// A name stands for an inode that was never written.
    NameWithoutInode => "name-without-inode", "mkdir A; sync; creat A/f";
    /// A new inode is there, its bit is not: the inode is given away twice.
    InodeWithoutBit => "inode-without-bit", "mkdir A; sync; creat A/f";
    /// A new inode before the bit that marks it, which was set ahead.
    SpareWithoutBit => "spare-without-bit", "mkdir A; creat A/f; fsync A/f; creat A/g; creat A/h";
    /// The block of a new directory or of a long symlink is not marked.
    NewBlockWithoutBit => "new-block-without-bit", "mkdir A; sync; mkdir A/d";
    /// A new directory has no `.` and no `..`.
    DirectoryWithoutBlock => "directory-without-block", "mkdir A; sync; mkdir A/d";
    /// A long symlink leads to what its block held before.
    SymlinkWithoutTarget => "symlink-without-target",
        "mkdir A; sync; symlink \
         tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt \
         A/s";
    /// A new inode's inherited attributes are not there.
    InodeWithoutAttributeBlock => "inode-without-attribute-block",
        "mkdir A; setacl A; sync; mkdir A/d; creat A/f";
    /// A new directory's `..` is not counted in its parent.
    DotDotWithoutParentLink => "dot-dot-without-parent-link", "mkdir A; sync; mkdir A/d";
    /// An inode has more names than it counts.
    NameWithoutLinkCount => "name-without-link-count",
        "mkdir A; mkdir B; creat A/f; sync; link A/f B/g";
    /// A directory has the same name twice: once for the inode that lost it.
    NameBeforeEarlierRemoval => "name-before-earlier-removal",
        "mkdir A; creat A/x; creat A/y; creat A/f; sync; unlink A/x; unlink A/f; creat A/f";
    /// A directory's index on the disk does not lead to a new name.
    NameBeforeIndexFlag => "name-before-index-flag",
        concat!(
            "mkdir A; creat A/", long!(), "1; creat A/", long!(), "2; creat A/", long!(),
            "3; creat A/", long!(), "4; index A; creat A/f",
        );

    // Names that can be reached.
    /// An inode's last reachable name is gone; the new one is in a block that its directory does not have yet.
    ReachWithoutPointer => "reach-without-pointer",
        concat!(full_b!(), "; mkdir A; creat A/f; sync; link A/f B/", long!(), "4; unlink A/f");
    /// An inode's last reachable name is gone; the new one is in a directory without a reachable name.
    ReachWithoutParents => "reach-without-parents",
        "mkdir A; creat A/f; sync; mkdir D; mkdir D/e; link A/f D/e/g; unlink A/f";
    /// One of two names is gone before the other one is there: the inode has none.
    ClearedWithoutReach => "cleared-without-reach",
        "mkdir A; mkdir B; creat A/f; sync; link A/f B/g; unlink A/f";

    // Removed names.
    /// A link count is lower than the names that are still there.
    LinkDroppedBeforeClearing => "link-dropped-before-clearing",
        "mkdir A; mkdir B; creat A/f; link A/f B/g; sync; unlink A/f";
    /// A name stands for an inode that is marked as deleted.
    FreedBeforeClearing => "freed-before-clearing", "mkdir A; creat A/f; sync; unlink A/f";
    /// The link count goes down first, and the name waits for that: fewer links than names.
    RemovalReversed => "removal-reversed",
        "mkdir A; mkdir B; creat A/f; link A/f B/g; sync; unlink A/f";
    /// The names in a removed directory count as gone when its own name is: but it is still there, and so are they.
    NamesGoneWithTheName => "names-gone-with-the-name",
        "mkdir A; mkdir A/d; creat f; rename f A/d/f; sync; unlink A/d/f; rmdir A/d";
    /// A parent no longer counts the `..` of a removed directory that is still there.
    ParentLinkDroppedBeforeFreeing => "parent-link-dropped-before-freeing",
        "mkdir A; mkdir A/d; sync; rmdir A/d";
    /// A directory's name is gone while what was moved out of it has its only name there.
    ClearedBeforeDepartures => "cleared-before-departures",
        "mkdir A; mkdir D; creat D/f; sync; rename D/f A/f; rmdir D";
    /// A directory's name is gone while the other name of what was unlinked in it is not there yet.
    DepartureByRemovalForgotten => "departure-by-removal-forgotten",
        "mkdir A; mkdir D; creat D/f; sync; link D/f A/g; unlink D/f; rmdir D";
    /// A directory's name is gone while the other name of what was replaced in it is not there yet.
    DepartureByReplacementForgotten => "departure-by-replacement-forgotten",
        "mkdir A; mkdir D; creat D/t; creat D/f; sync; link D/t A/u; rename D/f D/t; unlink D/t; \
         rmdir D";
    /// A removed directory is left with a name that its `..` does not agree with.
    ClearedBeforeEarlierNames => "cleared-before-earlier-names",
        "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d; rmdir B/d";

    // Moved names.
    /// A moved file has both names and counts one.
    NewNameWithoutLinkCount => "new-name-without-link-count",
        "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    /// A moved file has neither name.
    OldNameClearedBeforeNew => "old-name-cleared-before-new",
        "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    /// A moved file's only name is in a directory without a reachable name.
    OldNameClearedWithoutReach => "old-name-cleared-without-reach",
        "mkdir A; creat A/f; sync; mkdir D; rename A/f D/f";
    /// A moved file's only name is in a block that its directory does not have yet.
    OldNameClearedWithoutPointer => "old-name-cleared-without-pointer",
        concat!(full_b!(), "; mkdir A; creat A/f; sync; rename A/f B/", long!(), "4");
    /// A moved file counts one link while both names are there.
    LinkDroppedBeforeOldName => "link-dropped-before-old-name",
        "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    /// The name of a replaced file still stands for it, but it is marked as deleted.
    TargetDroppedBeforeNewName => "target-dropped-before-new-name",
        "mkdir A; mkdir B; creat A/f; creat B/g; sync; rename A/f B/g";
    /// A replaced file that has another name has none on the disk.
    ReplacedWithoutReach => "replaced-without-reach",
        "mkdir A; mkdir B; creat A/t; creat A/f; sync; link A/t B/u; rename A/f A/t";
    /// A replaced directory's name is gone while what was moved out of it has its only name there.
    ReplacedBeforeDepartures => "replaced-before-departures",
        "mkdir A; mkdir B; mkdir A/t; creat A/t/x; mkdir A/d; sync; rename A/t/x B/x; rename A/d \
         A/t";
    /// A replaced directory is left with a name that its `..` does not agree with.
    ReplacedBeforeEarlierNames => "replaced-before-earlier-names",
        "mkdir A; mkdir B; mkdir A/t; mkdir B/d; sync; rename A/t B/t; rename B/d B/t";
    /// A file that was renamed and removed is marked as deleted while its old name is there.
    MoveWithinBlockForgotten => "move-within-block-forgotten",
        "mkdir A; creat A/f; sync; rename A/f A/g; unlink A/g";
    /// The old name goes first, and the new one waits for that: neither is there.
    RenameReversed => "rename-reversed", "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";

    // Moved directories.
    /// A directory's `..` leads to where it has no name yet.
    DotDotBeforeName => "dot-dot-before-name", "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    /// A directory's `..` leads to where its name is in a block that nobody can reach yet.
    DotDotBeforePointer => "dot-dot-before-pointer",
        concat!(full_b!(), "; mkdir A; mkdir A/d; sync; rename A/d B/", long!(), "4");
    /// A moved directory's `..` is not counted in its new parent.
    MovedWithoutParentLink => "moved-without-parent-link",
        "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    /// A moved directory's only name is where its `..` does not lead.
    OldNameClearedBeforeDotDot => "old-name-cleared-before-dot-dot",
        "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    /// The old parent no longer counts a directory whose `..` still leads there.
    OldParentLinkDroppedEarly => "old-parent-link-dropped-early",
        "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    /// The old parent no longer counts a moved directory that cannot be reached by its new name yet.
    OldParentLinkDroppedBeforeOldName => "old-parent-link-dropped-before-old-name",
        "mkdir A; mkdir A/d; sync; mkdir B; rename A/d B/d";
    /// A directory that was made and moved has only the name that its `..` does not agree with.
    NewNameBeforePendingOldName => "new-name-before-pending-old-name",
        "mkdir A; mkdir B; sync; mkdir A/d; rename A/d B/d";
    /// A directory is below itself: one above its new place still has its earlier name.
    NewNameBeforeNamesAbove => "new-name-before-names-above",
        "mkdir outer; mkdir outer/middle; mkdir outer/middle/inner; mkdir outer/middle/inner/sub; \
         mkdir other; sync; rename outer/middle/inner other/inner; rename outer \
         other/inner/sub/outer";

    // A directory that takes an empty one's name.
    /// A directory has two names, and nothing tells which of them was another one's: the reclaim takes that one away.
    ReplacedWithoutMark => "replaced-without-mark",
        concat!("mkdir B; mkdir B/C; creat B/", long!(), "1; creat B/", long!(), "2; creat B/", long!(), "3; mkdir B/", long!(),
            "4; sync; rename B/C B/", long!(), "4");
    /// The same, for what tells it is freed already.
    ReplacedGoneBeforeOldName => "replaced-gone-before-old-name",
        "mkdir A; mkdir B; mkdir B/foo; mkdir B/foo/D; sync; rename A B/foo/D";
    /// A directory that has two names moves on, over another one: nothing tells any more which name was that one's.
    MovedBeforeEarlierNames => "moved-before-earlier-names",
        "mkdir A; mkdir B; mkdir B/C; mkdir B/D; sync; rename A B/C; rename B/C B/D";
    /// What removes a name that replaced another one before it was on the disk is forgotten: that other one is still there when the
    /// name is made again elsewhere.
    RemovalOfReplacementForgotten => "removal-of-replacement-forgotten",
        concat!(full_b!(), "; creat B/", long!(), "4; creat B/", long!(), "5; sync; unlink B/", long!(), "1; sync; rename B/", long!(),
            "5 B/", long!(), "4; unlink B/", long!(), "4; creat B/", long!(), "4");

    // Truncation and holes.
    /// A file was cut, but its blocks are still mapped: a checker gives it back the bytes, or a growth shows them.
    SizeBeforeNullification => "size-before-nullification",
        "mkdir A; creat A/f; write A/f 0 20000; sync; truncate A/f 13000";
    /// The end of a file that was about to be cut reads as zeros.
    TailZeroedBeforeSize => "tail-zeroed-before-size",
        "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100";
    /// Blocks that are cut off or punched out are free while pointers to them are there.
    BlocksFreedEarly => "blocks-freed-early",
        "mkdir A; creat A/f; write A/f 0 20000; sync; truncate A/f 5000; work";

    // Attributes.
    /// An attribute block counts fewer inodes than have it.
    AttributePointerWithoutReference => "attribute-pointer-without-reference",
        "mkdir A; creat A/f; creat A/g; setxattr A/f user.a one; sync; setxattr A/g user.a one";
    /// An inode's attribute block was never written.
    AttributePointerWithoutContents => "attribute-pointer-without-contents",
        "mkdir A; creat A/f; sync; setxattr A/f user.a one";
    /// An inode's attribute block is not marked.
    AttributeBlockWithoutBit => "attribute-block-without-bit",
        "mkdir A; creat A/f; sync; setxattr A/f user.a one";
    /// An attribute block is free, or counts one inode less, while that inode points to it.
    AttributeBlockReleasedEarly => "attribute-block-released-early",
        "mkdir A; creat A/f; setxattr A/f user.a one; sync; removexattr A/f user.a; work";

    // Deferred work.
    /// An inode and its blocks are free while its name is there.
    InodeFreedEarly => "inode-freed-early",
        "mkdir A; creat A/f; write A/f 0 3000; sync; unlink A/f; work";
    /// Whatever is to be freed is freed at once, while it is pointed to.
    DeferredAtOnce => "deferred-at-once",
        "mkdir A; creat A/f; setxattr A/f user.a one; write A/f 0 20000; sync; punch A/f 1024 \
         2048; truncate A/f 5000; unlink A/f; work";
    /// Freeing waits for the first of several clearings: what lost the others is free while they are still to come.
    DeferredAfterTheFirst => "deferred-after-the-first",
        "mkdir A; mkdir B; creat A/x; creat A/y; creat A/f; creat B/g; write B/g 0 3000; sync; \
         unlink A/f; unlink B/g; work; creat A/h; fsync A/h; append A/h 100; fsync A/h; work";

    // The index on the disk, which only an ordering with atomic scopes keeps.
    /// A leaf was split, and the index block above does not lead to the new one.
    SplitWithoutEntry => "split-without-entry", concat!(full_b!(), "; sync; ", more_b!());
    /// The border between two leaves is not where the names were cut.
    BorderOfWrongName => "border-of-wrong-name", concat!(full_b!(), "; sync; ", more_b!());
    /// The entry of a new leaf is put before entries with lower hashes.
    EntryOutOfOrder => "entry-out-of-order", concat!(full_b!(), "; sync; ", more_b!());
    /// Two names in different blocks are swapped, and one of them is as before.
    ExchangeHalfDone => "exchange-half-done", "mkdir A; mkdir B; creat A/f; creat B/g; sync; exchange A/f B/g";

    // Order between the sectors of a block, where these are what is written wholly or not at all.
    /// An entry gave up its tail, and what is there is no entry yet.
    TailCutBeforeItsHead => "tail-cut-before-its-head", concat!("creat ", long!(), "1; creat ", long!(), "2");
    /// A name was synced, but the entry before it still has its space.
    NameBeforeTailIsCut => "name-before-tail-is-cut",
        concat!("creat ", long!(), "1; creat ", long!(), "2; fsync ", long!(), "2");
    /// A removed name that crosses two sectors is still there, with the head of a new entry in it.
    TailUsedBeforeItIsFree => "tail-used-before-it-is-free",
        concat!("mkdir A; creat A/f; creat A/", long!(), "1; creat A/", long!(), "2; blocks; unlink A/", long!(), "2; creat A/", long!(), "3");
    /// A name was moved to another sector of its block in one patch: it is in neither.
    MoveAcrossUnits => "move-across-units",
        concat!("mkdir A; creat A/", long!(), "1; creat A/", long!(), "2; creat A/f; sync; rename A/", long!(), "1 A/f");
    /// An attribute block was changed where it is: its head does not belong to its values.
    AttributesChangedInPieces => "attributes-changed-in-pieces",
        "mkdir A; creat A/f; setxattr A/f user.a one; sync; setxattr A/f user.a two";
    /// An inode shares an attribute block of which the values are not there yet.
    AttributesSharedInPart => "attributes-shared-in-part",
        "mkdir A; creat A/f; creat A/g; sync; setxattr A/f user.a one; setxattr A/g user.a one";

    // What a sync waits for.
    /// A file was synced, but its inode is as before.
    FsyncWithoutInode => "fsync-without-inode",
        "mkdir A; creat A/f; sync; write A/f 0 3000; fsync A/f";
    /// A file was synced, but its flags are as before.
    FsyncWithoutFlags => "fsync-without-flags", "mkdir A; creat A/f; sync; chattr A/f id; fsync A/f";
    /// A file was synced, but what was overwritten in it is as before.
    FsyncWithoutContents => "fsync-without-contents",
        "mkdir A; creat A/f; write A/f 0 3000; sync; overwrite A/f 0 1000; fsync A/f";
    /// A new file was synced, but its name is not there.
    FsyncWithoutName => "fsync-without-name", "mkdir A; sync; creat A/f; fsync A/f";
    /// A new file was synced, but its name is in a block that its directory does not have yet.
    FsyncWithoutPointer => "fsync-without-pointer",
        concat!(full_b!(), "; sync; creat B/", long!(), "4; fsync B/", long!(), "4");
    /// A new file was synced, but its directory has no name.
    FsyncWithoutReach => "fsync-without-reach", "mkdir A; creat A/f; fsync A/f";
    /// A file was synced, and nothing of it is there: the call did not wait.
    FsyncAtOnce => "fsync-at-once", "mkdir A; creat A/f; write A/f 0 3000; fsync A/f";

    // Mounting and reclaiming.
    /// The image says that it is clean, but something was changed.
    ChangesBeforeMark => "changes-before-mark", "mkdir A; creat A/f";
    /// A directory keeps one name; its `..` still leads to where the reclaim took the other one away.
    ReclaimClearsBeforeParents => "reclaim-clears-before-parents",
        "mkdir A; mkdir A/d; sync; mkdir B; rename A/d B/d";
    /// Of a directory's two names the reclaim keeps the one that nobody else had before.
    ReclaimIgnoresMarks => "reclaim-ignores-marks",
        "mkdir A; mkdir B; mkdir B/foo; mkdir B/foo/D; sync; rename A B/foo/D";
    /// The reclaim takes away the name that a directory's `..` agrees with before `..` leads to the other one.
    ReclaimClearsBeforeDotDot => "reclaim-clears-before-dot-dot",
        "mkdir A; mkdir B; mkdir B/foo; mkdir B/foo/D; sync; rename A B/foo/D";
    /// A name in a directory that nobody can reach stands for an inode that the reclaim marked as deleted.
    ReclaimKillsEarly => "reclaim-kills-early", "mkdir A; sync; mkdir A/d; mkdir A/d/e";
    /// A `..` leads to a directory that the reclaim marked as deleted.
    ReclaimKillsParentFirst => "reclaim-kills-parent-first",
        "mkdir A; sync; mkdir A/d; mkdir A/d/e";
    /// A directory that nobody can reach is still there, but the reclaim no longer counts its `..`.
    ReclaimCorrectsEarly => "reclaim-corrects-early", "mkdir A; sync; mkdir A/d";
    /// The reclaim freed blocks behind the end of a file while they are still mapped.
    ReclaimFreesEarly => "reclaim-frees-early",
        "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024";
    /// The reclaim is not told of a name that comes: it takes the only name of something away from its count.
    NameComesUntold => "name-comes-untold", tree!();
    /// The reclaim is not told of a name that goes.
    NameGoesUntold => "name-goes-untold", tree!();
    /// The reclaim is not told of a new inode, and takes it for one that it knows.
    InodeMadeUntold => "inode-made-untold", tree!();
    /// The reclaim is not told that an inode lost its last name, and corrects what is dead.
    LastNameUntold => "last-name-untold", tree!();
    /// The reclaim is not told of blocks that are allocated or unmapped, and frees them.
    BlocksUntold => "blocks-untold", tree!();
    /// The reclaim is not told of an inode's new attributes, and corrects their count to one that is too low.
    AttributesUntold => "attributes-untold", tree!();
    /// A directory with two names loses one of them before the reclaim knows: the other one stands for what is dead.
    NamesUnsettled => "names-unsettled", "mkdir A; mkdir A/d; mkdir B; sync; rename A/d B/d";
    /// A directory is removed before one without a name, left by the crash, whose `..` leads to it.
    OrphansParentRemoved => "orphans-parent-removed", tree!();
}

#[cfg(feature = "planted-errors")]
impl Planted {
    /// Whether it is made after a crash: it shows where the power fails again while the reclaim is at work on one of the states
    /// that [`provoking`](Self::provoking) leaves.
    pub fn is_in_recovery(self) -> bool {
        matches!(
            self,
            Planted::ReclaimClearsBeforeParents
                | Planted::ReclaimIgnoresMarks
                | Planted::ReclaimClearsBeforeDotDot
                | Planted::ReclaimKillsEarly
                | Planted::ReclaimKillsParentFirst
                | Planted::ReclaimCorrectsEarly
                | Planted::ReclaimFreesEarly
                | Planted::NameComesUntold
                | Planted::NameGoesUntold
                | Planted::InodeMadeUntold
                | Planted::LastNameUntold
                | Planted::BlocksUntold
                | Planted::AttributesUntold
                | Planted::NamesUnsettled
                | Planted::OrphansParentRemoved
        )
    }
}

#[cfg(feature = "planted-errors")]
impl Planted {
    /// Whether the states that a crash leaves are right, and only what the reclaim makes of them is not.
    pub fn needs_reclaim(self) -> bool {
        let leaves_no_hint = matches!(
            self,
            Planted::ReplacedWithoutMark
                | Planted::ReplacedGoneBeforeOldName
                | Planted::MovedBeforeEarlierNames
        );
        leaves_no_hint || self.is_in_recovery()
    }

    /// Whether it is in what is done only where scopes are atomic, as they are under a journal.
    pub fn needs_atomic_scopes(self) -> bool {
        matches!(
            self,
            Planted::SplitWithoutEntry
                | Planted::BorderOfWrongName
                | Planted::EntryOutOfOrder
                | Planted::ExchangeHalfDone
        )
    }

    /// Whether it is in what is done only where sectors are written wholly or not at all, and not blocks.
    pub fn needs_torn_blocks(self) -> bool {
        matches!(
            self,
            Planted::TailCutBeforeItsHead
                | Planted::NameBeforeTailIsCut
                | Planted::TailUsedBeforeItIsFree
                | Planted::MoveAcrossUnits
                | Planted::AttributesChangedInPieces
                | Planted::AttributesSharedInPart
        )
    }

    /// Whether it takes much use of the file system while the reclaim is under way to show it, more than an exhaustive exploration has
    /// time for.
    pub fn needs_much_use(self) -> bool {
        matches!(
            self,
            Planted::AttributesUntold | Planted::NamesUnsettled | Planted::OrphansParentRemoved
        )
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
