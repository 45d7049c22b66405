//! The rules that only ext states, each at the place that states it: see [`backstitch_rules`].
//!
//! Dependencies that one might leave out without harm, because others imply them, are not in the
//! list:
//! * a reference to an attribute block after its contents: they overlap, and the graph keeps the
//! * a reference to an attribute block after the block's contents: the two changes overlap, and the
//!   graph keeps the order of overlapping changes (errors in that can be planted there);
//! * the index flag of a directory that gets an index: without it the directory is an ordinary one,
//!   with a long `..`.

pub(crate) use backstitch_ordering::rules::{note_by, wait_for, wait_for_all};
pub(crate) use backstitch_rules::holds;

backstitch_rules::registry! {
    "ext", 256;

    // New names.
    Dependency {
        /// A new inode's inherited attributes are not there.
        InodeAfterInheritedAttributes,
    }

    // Attributes.
    Dependency {
        /// An attribute block counts fewer inodes than have it.
        AttributePointerAfterReference,
        /// An inode's attribute block was never written.
        AttributePointerAfterContents,
        /// An inode's attribute block is not marked.
        AttributeBlockAfterBit,
    }
    Wait {
        /// An attribute block is free, or counts one inode less, while that inode points to it.
        AttributeReleaseAfterPointer,
    }
    Condition {
        /// An attribute block that several inodes share is changed for all of them.
        AttributesInPlaceOnlyIfOwn,
        /// An inode shares an attribute block that is free.
        FreedAttributesAreNotShared,
    }

    // The index on the disk, which only an ordering with atomic scopes keeps.
    Whole {
        /// A leaf was split, and the index block above does not lead to the new one.
        SplitGetsEntry,
        /// The border between two leaves is not where the names were cut.
        SplitAtBorder,
        /// The entry of a new leaf is put before entries with lower hashes.
        IndexEntryInOrder,
    }

    // Order between the sectors of a block, where these are what is written wholly or not at all.
    Whole {
        /// An attribute block was changed where it is: its head does not belong to its values.
        AttributesChangedWhole,
    }
    Dependency {
        /// An inode shares an attribute block of which the values are not there yet.
        AttributesSharedWhole,
    }

    // What a sync waits for.
    Fsync {
        /// A file was synced, but an attribute that was changed where it is is as before.
        FsyncWaitsForAttributesInPlace,
    }

    // Mounting and reclaiming.
    Dependency {
        /// The image says that it is clean, but something was changed.
        ChangesAfterMark,
        /// The image says that it is not clean, and nothing says what a crash may have left.
        MarkAfterRecord,
    }
    Check {
        /// The record of an earlier mount is taken for that of the last one.
        RecordIsOfThisMount,
    }
    Whole {
        /// An image whose journal holds changes does not say so.
        RecoveryMarkWhileInUse,
    }
    Condition {
        /// An image with what a crash left is called clean.
        CleanOnlyWithoutLeaks,
        /// After a crash what is free is what the counters say, which are not kept up to date.
        FreeSpaceIsRecounted,
    }
}
