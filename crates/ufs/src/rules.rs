//! The rules that only UFS states, each at the place that states it: see [`backstitch_rules`].
//!
//! What fragments need, the rules of `unixfs` say: a run that moves is a block that is freed once the
//! pointer to the new place is stable.

pub(crate) use backstitch_ordering::rules::{wait_for, wait_for_all};
pub(crate) use backstitch_rules::holds;

backstitch_rules::registry! {
    "ufs", 288;

    // UFS2's inodes, which are initialised when they are needed.
    Dependency {
        /// A group counts a block of inodes as initialised that holds what was there before.
        InitialisedAfterZeros,
        /// An inode is marked that the group does not count as initialised.
        InodeBitAfterInitialised,
    }

    // The pointers of an inode.
    Condition {
        /// A pointer is on the disk, and the size is not that makes it one within the file.
        PointersGoWithSize,
    }

    // Mounting and reclaiming.
    Dependency {
        /// The image says that it is clean, but something was changed.
        ChangesAfterCleanTaken,
        /// The image says that it is not clean, and nothing says what a crash may have left.
        CleanTakenAfterRecord,
        /// The marks of the mount are gone, and the image does not say yet that it is clean.
        RecordKeptUntilClean,
    }
    Condition {
        /// An image with what a crash left is called clean.
        CleanOnlyAfterReclaim,
        /// After a crash what is free is what the groups' counts say, which are not kept up to date.
        GroupsAreRecounted,
        /// The counts of a group are those from before its maps changed, in an image that is clean.
        ChangedGroupsAreCounted,
    }
    Check {
        /// The record of an earlier mount is taken for that of the last one.
        RecordIsOfLastMount,
    }
}
