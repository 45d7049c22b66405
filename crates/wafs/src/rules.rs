//! The rules of the log: see [`backstitch_rules`].

pub(crate) use backstitch_rules::holds;

backstitch_rules::registry! {
    "wafs", 768;

    // What is promised.
    Flush {
        /// A record that `sync` acknowledged is lost: it was handed to the device and not flushed.
        SyncFlushes,
        /// A checkpoint is taken for stable before it is: what is appended next overwrites the
        /// records that a crash begins with.
        CheckpointIsFlushed,
        /// A mount is taken for begun before it is: the mount after a crash has the same number,
        /// and stale records of this one follow its own.
        MountIsFlushed,
    }
    Condition {
        /// The superblock of the last checkpoint is overwritten by the next one: torn, it leaves
        /// none.
        SuperblocksAlternate,
        /// The log's end runs over its start.
        LiveRecordsAreKept,
        /// The block of the log's end is written though the oldest record is in it too.
        EndKeepsOffBlockOfStart,
        /// What stood in the last block before the mount is lost with the next write of that block.
        LastBlockIsKept,
        /// A superblock says that the log ends behind what is on the device.
        EndIsStable,
    }

    // How the end is found.
    Check {
        /// A torn record counts.
        PayloadChecksum,
        /// Anything counts as a record.
        HeaderChecksum,
        /// A record of an earlier round, or one that is out of place, counts.
        RecordsAreInPlace,
        /// A record that an earlier mount left behind its end counts.
        MountIsTheLatest,
        /// A record of an earlier log on the same device counts.
        RecordsAreOfThisLog,
        /// A torn superblock counts.
        SuperblockChecksum,
        /// Of two superblocks the older one counts.
        NewerSuperblockCounts,
    }
}
