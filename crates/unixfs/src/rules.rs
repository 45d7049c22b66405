//! The rules that inode file systems share, each at the place that states it: see [`backstitch_rules`].
//!
//! Dependencies that one might leave out without harm, because others imply them, are not in the
//! list:
//! * of a moved directory, `..` after the new parent's link: it waits for the new name, which waits
//!   for the link;
//! * the old parent's count after `..`: it waits for the removal of the old name, which waits for
//!   `..`;
//! * the reach of a directory that was moved: until its new name can be reached it has the old one;
//! * where an inode is freed, the removals of names that it lost to moves between blocks: the link
//!   counts that these put back wait for them, and freeing the inode overwrites the counts;
//! * new indirect blocks after the bits of what they point to: what leads to the topmost of them
//!   waits for all of these bits;
//! * what `fsync` waits for beside an inode's change: what that change comes after, an indirect
//!   block's entries that go with a hole, or zeros behind the end that a file had before it grew;
//! * what must be synced beside the changes of an inode and its names: a new inode, since its name
//!   waits for it; a directory's own reach, since its names are synced; the removals of names that
//!   it had, since the link count that is put back waits for them; `..` and a name that takes
//!   another one's place, since the removal of the old name, which is noted, waits for them;
//! * where the reclaim takes away one of a directory's two names: that the other one can be
//!   reached, since nothing moves a directory before that is settled; that the directory which held
//!   the name is not removed before, since it counts more links than its own two and so waits for
//!   the end of the reclaim; that it is told of a `..`, since it looks before it corrects one;
//! * a new bit after its earlier clearing, a reference to an attribute block after its contents, an
//!   inode's newer fields after its older ones: they overlap, and the graph keeps the order of what
//!   overlaps (errors in that can be planted there);
//! * that a directory is remembered for what is under way in it: new blocks, removals, departures.
//!   Each of these is among the changes that `fsync` waits for, or comes before one of them
//!   (asserted where it is forgotten);
//! * where names are that were not on the disk when an index split and moved them: what is
//!   remembered of names decides about the order of the layout, and where indexes are kept that of
//!   transactions takes its place;
//! * the index flag of a directory that gets an index: without it the directory is an ordinary one,
//!   with a long `..`;
//! * taking the clean mark away after the record of the mount: they are in one block, which is
//!   written as one.
//!
//! That the clean mark comes last is the business of those who drive the layout.

pub(crate) use backstitch_ordering::rules::{note_by, wait_for, wait_for_all};
pub(crate) use backstitch_rules::{holds, implied};

backstitch_rules::registry! {
    "unixfs", 0;

    // Blocks of files and directories.
    Dependency {
        /// A pointer to a new block is there, its bit is not: the block is given away twice.
        PointerAfterBit,
        /// A pointer to a new block is there, its contents are not: the file shows what the block
        /// held before.
        PointerAfterContents,
        /// An indirect block has an entry for a new block whose bit is not set.
        IndirectEntryAfterBit,
        /// As `IndirectEntryAfterBit`, below a double or triple indirect block.
        DeepEntryAfterBit,
        /// An indirect block has an entry for a new block without contents, and the size covers it.
        IndirectEntryAfterContents,
        /// As `IndirectEntryAfterContents`, in a leaf below a double or triple indirect block.
        DeepEntryAfterContents,
        /// A new indirect block leads to a block without contents.
        NewLeafAfterContents,
        /// An indirect block has an entry for a new indirect block, what that leads to was never
        /// written.
        EntryAfterBelow,
        /// A file that was not on the disk has an inode, what its indirect blocks lead to was never
        /// written.
        UnbornInodeAfterEntries,
    }
    Condition {
        /// As the one before, for the file is taken for one that is not on the disk yet.
        UnbornMeansNotOnDisk,
    }
    Dependency {
        /// An inode points to an indirect block that was never written: its pointers are what the
        /// block held before.
        IndirectPointerAfterBlock,
        /// An inode points to an indirect block, what the indirect block points to was never
        /// written.
        IndirectPointerAfterBelow,
        /// An indirect block points to one below it that was never written.
        IndirectEntryAfterBlock,
        /// The size covers a new block, the indirect block has no entry for it: zeros that nobody
        /// wrote.
        SizeAfterIndirectEntry,
        /// The size covers bytes of the last block that are not there: zeros that nobody wrote.
        SizeAfterContents,
        /// The size covers bytes of a last block that was a hole and is one still on the disk:
        /// zeros that nobody wrote.
        SizeAfterFilledEnd,
        /// A file is cut, and blocks that a hole took before are mapped behind its end.
        SizeAfterHole,
        /// A file that was cut and grew again shows the bytes that were cut off.
        SizeAfterZeroedTail,
        /// A file that a crash left with bytes behind its end grows, and shows them.
        SizeAfterStaleTail,
    }
    Condition {
        /// A file that a crash left with bytes behind its end in its last block grows, and shows
        /// them.
        StaleTailIsZeroed,
        /// A file that a crash left with blocks behind its end grows, and shows what they hold.
        GrowthDropsLeftovers,
        /// An indirect block is written into the place from which the disk still reads it.
        LeftPlaceAfterPointer,
    }
    Wait {
        /// The place that an indirect block has left is free while the disk still leads there.
        LeftPlaceFreedAfterPointer,
    }
    Condition {
        /// An indirect block that goes to a new place lacks what a second leaf gains.
        MovedOnlyInOneLeaf,
    }

    // New names.
    Dependency {
        /// A name stands for an inode that was never written.
        NameAfterInode,
        /// A new inode is there, its bit is not: the inode is given away twice.
        InodeAfterBit,
        /// A new inode before the bit that marks it, which was set ahead.
        SpareInodeAfterBit,
        /// The block of a new directory or of a long symlink is not marked.
        InodeAfterBlockBit,
        /// A new directory has no `.` and no `..`.
        InodeAfterDirectoryBlock,
        /// A long symlink leads to what its block held before.
        InodeAfterSymlinkTarget,
        /// A new directory's `..` is not counted in its parent.
        InodeAfterParentLink,
        /// An inode has more names than it counts.
        LinkedNameAfterCount,
        /// A directory has the same name twice: once for the inode that lost it.
        NameAfterEarlierRemoval,
        /// A directory's index on the disk does not lead to a new name.
        NameAfterIndexFlag,
        /// A file that was made without a name shows, under its first name, less than was in it when
        /// it got that.
        FirstNameAfterChanges,
    }
    Condition {
        /// A file that was made without a name is not freed, though nothing refers to it any more.
        UnnamedCountsAsFreed,
        /// A file that was made without a name and got one is freed when it is closed.
        NamedIsNotFreed,
        /// A name in a new block of a directory counts as there although the directory does not
        /// have the block yet.
        NewDirectoryBlockIsNoted,
        /// Names in a new directory count as reachable although it has no name itself.
        NewDirectoryReachIsNoted,
        /// Names in a moved directory count as reachable although its new name is not there.
        MovedDirectoryReachIsNoted,
    }

    // Names that can be reached.
    Dependency {
        /// An inode's last reachable name is gone; the new one is in a block that its directory
        /// does not have yet.
        ReachIncludesPointer,
        /// An inode's last reachable name is gone; the new one is in a directory without a
        /// reachable name.
        ReachIncludesParents,
        /// One of two names is gone before the other one is there: the inode has none.
        ClearingAfterOtherReach,
    }
    Condition {
        /// A name that is not on the disk yet counts as the one that an inode keeps.
        NameIsPendingUntilWritten,
        /// A name in a block that its directory does not have yet counts as the one that an inode
        /// keeps.
        NameIsPendingUntilPointer,
        /// A name in a directory that cannot be reached yet counts as the one that an inode keeps.
        NameIsPendingUntilReach,
    }

    // Removed names.
    Dependency {
        /// A link count is lower than the names that are still there.
        CountAfterClearings,
        /// A name stands for an inode that is marked as deleted.
        FreeingAfterClearings,
        /// The link count goes down first, and the name waits for that: fewer links than names.
        CountFollowsClearing,
        /// The names in a removed directory count as gone when its own name is: but it is still
        /// there, and so are they.
        NamesGoWithInode,
        /// A parent no longer counts the `..` of a removed directory that is still there.
        ParentLinkAfterFreeing,
        /// A directory's name is gone while what was moved out of it has its only name there.
        ClearingAfterDepartures,
        /// A name changes in a directory's last fragments, which go to a new place, and the disk still
        /// has it where it was: it stands for what is freed.
        EntryAfterMovedPointer,
    }
    Condition {
        /// A directory's name is gone while the other name of what was unlinked in it is not there
        /// yet.
        RemovalIsDeparture,
        /// A directory's name is gone while the other name of what was replaced in it is not there
        /// yet.
        ReplacementIsDeparture,
        /// A directory's name is gone while the new name of what was moved out of it is not there
        /// yet.
        MoveIsDeparture,
    }
    Dependency {
        /// A removed directory is left with a name that its `..` does not agree with.
        ClearingAfterEarlierNames,
    }
    Condition {
        /// An inode is freed, or its count drops, while a removed name of it is still on the disk.
        ClearingCountsUnlessMerged,
        /// An inode that is on the disk is freed as if it had never been there.
        NeverAliveOnlyIfMerged,
        /// Where freed inodes are cleared: one that never had a name is free, and still has what it
        /// had.
        NeverAliveOnlyIfCleared,
        /// A directory has the same name twice: once for the inode that was removed.
        RemovalIsNoted,
    }

    // Moved names.
    Dependency {
        /// A moved file has both names and counts one.
        NewNameAfterCount,
        /// A moved file has neither name.
        OldNameAfterNew,
        /// A moved file's only name is in a directory without a reachable name.
        OldNameAfterReach,
        /// A moved file's only name is in a block that its directory does not have yet.
        OldNameAfterPointer,
        /// A moved file counts one link while both names are there.
        CountAfterOldName,
        /// The name of a replaced file still stands for it, but it is marked as deleted.
        TargetAfterNewName,
        /// A replaced file that has another name has none on the disk.
        ReplacingAfterReach,
        /// A replaced directory's name is gone while what was moved out of it has its only name
        /// there.
        ReplacingAfterDepartures,
        /// A replaced directory is left with a name that its `..` does not agree with.
        ReplacingAfterEarlierNames,
        /// A file that was renamed and removed is marked as deleted while its old name is there.
        MoveWithinBlockIsClearing,
        /// The old name goes first, and the new one waits for that: neither is there.
        OldNameFollowsNew,
    }
    Condition {
        /// A file that was moved and removed is marked as deleted while its old name is there.
        MoveIsClearing,
        /// A directory has the same name twice: once for the inode that moved away.
        MoveIsRemoval,
    }
    Dependency {
        /// A file that was replaced by a new one is gone, and the new one is empty.
        RenameAfterContents,
        /// An entry across two sectors says another type than its inode has.
        TypeUnknownBeforeNumber,
        /// An entry across two sectors has the new type with the old inode.
        TypeAfterNumber,
    }

    // Moved directories.
    Dependency {
        /// A directory's `..` leads to where it has no name yet.
        DotDotAfterName,
        /// A directory's `..` leads to where its name is in a block that nobody can reach yet.
        DotDotAfterPointer,
        /// A moved directory's `..` is not counted in its new parent.
        MovedAfterParentLink,
        /// A moved directory's only name is where its `..` does not lead.
        OldNameAfterDotDot,
        /// The old parent no longer counts a moved directory whose `..` still leads there, or that
        /// cannot be reached by its new name yet.
        OldParentLinkAfterOldName,
        /// A directory that was made and moved has only the name that its `..` does not agree with.
        NewNameAfterPendingOldName,
        /// A file was synced in a directory that had been moved, and recovery, which finds both
        /// names of that, keeps the earlier one.
        ReachOutlastsRecovery,
        /// A directory is below itself: one above its new place still has its earlier name.
        NewNameAfterNamesAbove,
    }

    // A directory that takes an empty one's name.
    Dependency {
        /// A directory took an empty one's name and still has its old one, and nothing on the disk
        /// tells which is the new one: the reclaim takes that one away.
        ReplacingAfterMark,
        /// A directory has its old name and its new one, but the directory that it replaced is
        /// freed, and with that the mark of which name is new.
        MarkUntilOldNameGone,
        /// A directory that has two names moves on, over another one: nothing tells any more which
        /// name was that one's.
        MovingAfterEarlierNames,
        /// A directory takes one directory's name and then another's: the mark of the first move is
        /// still there, and by it the reclaim keeps the older name.
        MovingAgainAfterMark,
    }
    Condition {
        /// What removes a name that replaced another one before it was on the disk is forgotten:
        /// that other one is still there when the name is made again elsewhere.
        RemovalOfReplacementIsNoted,
    }

    // Truncation and holes.
    Dependency {
        /// A file was cut, but its blocks are still mapped: a checker gives it back the bytes, or a
        /// growth shows them.
        SizeAfterNullification,
        /// The end of a file that was about to be cut reads as zeros.
        TailZeroedAfterSize,
    }
    Wait {
        /// Blocks that are cut off or punched out are free while pointers to them are there.
        BlocksFreedAfterUnmapping,
    }
    Condition {
        /// Blocks that are mapped on the disk are freed as if they had never been.
        BlocksNeverMappedOnlyIfMerged,
    }

    // Deferred work.
    Wait {
        /// An inode and its blocks are free while its name is there.
        InodeFreedAfterDeath,
        /// Whatever is to be freed is freed at once, while it is pointed to.
        DeferredWorkWaits,
        /// Freeing waits for the first of several clearings: what lost the others is free while
        /// they are still to come.
        DeferredWorkWaitsForAll,
    }
    Condition {
        /// Changes of inodes in use are never written, for another inode of their block was freed.
        TableBlockForgottenOnlyIfUnused,
        /// Changes of a block of the inode table that a transaction holds are never written.
        TableBlockKeptUnderJournal,
    }

    // What is remembered of an inode.
    Condition {
        /// Names of an inode are forgotten before they are on the disk.
        RememberedWhileNamed,
        /// What makes a directory reachable is forgotten before it is on the disk.
        RememberedWhileReached,
        /// Removed names of an inode are forgotten while they are on the disk.
        RememberedWhileCleared,
        /// Changes that `fsync` is to wait for are forgotten before they are on the disk.
        RememberedWhileChanged,
        /// Of many changes that `fsync` is to wait for, those not on the disk yet are let go.
        ChangesKeptWhileLive,
        /// Of many removals and new blocks in a directory, those not on the disk yet are let go.
        RecentKeptWhileLive,
    }

    // The index on the disk, which only an ordering with atomic scopes keeps.
    Whole {
        /// Two names in different blocks are swapped, and one of them is as before.
        ExchangeBoth,
    }

    // Order between the sectors of a block, where these are what is written wholly or not at all.
    Dependency {
        /// An entry gave up its tail, and what is there is no entry yet.
        TailCutAfterHead,
        /// A name was synced, but the entry before it still has its space.
        NameAfterTailCut,
        /// A removed name that crosses two sectors is still there, with the head of a new entry in
        /// it.
        TailHeadAfterPending,
    }
    Whole {
        /// A name was moved to another sector of its block in one patch: it is in neither.
        MoveWithinUnit,
        /// Two names in two sectors of a block are swapped in one patch: one of them is as before.
        ExchangeWithinUnit,
    }

    // Patchgroups.
    Dependency {
        /// A later group is there, and what an earlier one overwrote is in a block that the file does
        /// not have yet, or behind its end.
        GroupAfterShownContents,
    }

    // What a sync waits for.
    Fsync {
        /// A file was synced, but its inode is as before.
        FsyncWaitsForChanges,
        /// A file was synced, but what was overwritten in it is as before.
        FsyncWaitsForOverwrites,
        /// A new file was synced, but its name is not there.
        FsyncWaitsForName,
        /// A new file was synced, but its name is in a block that its directory does not have yet.
        FsyncWaitsForPointer,
        /// A new file was synced, but its directory has no name.
        FsyncWaitsForReach,
        /// A file was synced, and nothing of it is there: the call did not wait.
        FsyncWaits,
        /// A file was synced, but changes of its inode are not there.
        FsyncWaitsForInode,
        /// A file was synced, but its flags are as before.
        FsyncWaitsForFlags,
        /// A file was synced, but its times are as before.
        FsyncWaitsForTimes,
        /// A file that was cut was synced, but its last block holds what was cut off.
        FsyncWaitsForZeroedTail,
        /// A hole was synced, but the parts of blocks at its ends are as before.
        FsyncWaitsForPunchedZeros,
        /// A directory was synced, but a new name in it is not there.
        FsyncOfDirectoryWaitsForName,
        /// A directory was synced, but a removed name in it is still there.
        FsyncOfDirectoryWaitsForRemoval,
        /// The directory that a name was moved out of was synced, but the name is still there.
        FsyncOfDirectoryWaitsForOldName,
        /// The directory that a name was moved into was synced, but the old name is still there.
        FsyncOfTargetWaitsForOldName,
        /// A directory was synced, but a name that was moved within a block is as before.
        FsyncOfDirectoryWaitsForMove,
        /// A directory was synced, but a name in it that was swapped is as before.
        FsyncOfDirectoryWaitsForExchange,
    }

    // Mounting and reclaiming.
    Condition {
        /// A truncation that transactions end in the middle of is not finished after a crash.
        LongTruncationIsListed,
        /// An inode without names, that a transaction ends before it is freed, stays after a crash.
        DeadAreListed,
        /// An inode that the disk lists as an orphan is freed as if it had never been there.
        ListedWereAlive,
        /// The list of orphans is cut by the time of a deletion.
        ListedKeepTheirLink,
    }
    Wait {
        /// A directory keeps one name; its `..` still leads to where the reclaim took the other one
        /// away.
        ReclaimOrphansAfterParents,
    }
    Check {
        /// Of a directory's two names the reclaim keeps the one that nobody else had before.
        ReclaimHeedsMarks,
    }
    Dependency {
        /// The reclaim takes away the name that a directory's `..` agrees with before `..` leads to
        /// the other one.
        ReclaimClearsAfterDotDot,
    }
    Wait {
        /// A name in a directory that nobody can reach stands for an inode that the reclaim marked
        /// as deleted.
        ReclaimKillsAfterClearings,
    }
    Dependency {
        /// A `..` leads to a directory that the reclaim marked as deleted.
        ReclaimKillsChildrenFirst,
    }
    Condition {
        /// Where freed inodes are cleared: one that had lost its last name is free, and not cleared.
        ReclaimClearsDeadInodes,
    }
    Wait {
        /// Where freed inodes are cleared: the reclaim frees one that is not cleared on the disk.
        ReclaimFreesAfterClearing,
    }
    Wait {
        /// A directory that nobody can reach is still there, but the reclaim no longer counts its
        /// `..`.
        ReclaimCorrectsAfterDeaths,
        /// The reclaim freed blocks behind the end of a file while they are still mapped.
        ReclaimFreesAfterUnmapping,
        /// The reclaim frees blocks of an inode that somebody else is freeing.
        ReclaimWaitsForFrees,
    }
    Condition {
        /// A name is made again in a directory before the one that the reclaim took away is gone.
        ReclaimedNameIsRemoval,
        /// A directory is freed before a name that the reclaim took away is gone.
        ReclaimedNameIsClearing,
        /// The reclaim is not told of a name that comes: it takes the only name of something away
        /// from its count.
        ReclaimToldOfNewName,
        /// The reclaim is not told of a name that goes.
        ReclaimToldOfRemovedName,
        /// The reclaim is not told of a new inode, and takes it for one that it knows.
        ReclaimToldOfNewInode,
        /// The reclaim is not told of a new directory, and does not find it.
        ReclaimToldOfNewDirectory,
        /// The reclaim is not told that an inode lost its last name, and corrects what is dead.
        ReclaimToldOfLastName,
        /// The reclaim is not told that an inode was freed.
        ReclaimToldOfFreedInode,
        /// The reclaim is not told of blocks that are allocated or unmapped, and frees them.
        ReclaimToldOfBlocks,
        /// The reclaim is not told that a file that it has looked at in part has another map.
        ReclaimToldOfMap,
        /// The reclaim is not told of an inode's new attributes, and corrects their count to one
        /// that is too low.
        ReclaimToldOfAttributes,
        /// The reclaim is not told that an attribute block counts one reference less.
        ReclaimToldOfReference,
        /// The reclaim is not told that an attribute block was freed.
        ReclaimToldOfFreedAttributes,
        /// A directory with two names loses one of them before the reclaim knows: the other one
        /// stands for what is dead.
        DirectoriesWaitForNames,
        /// A directory is removed before one without a name, left by the crash, whose `..` leads to
        /// it.
        ParentsWaitForReclaim,
    }
}
