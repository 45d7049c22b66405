//! The rules of the mechanism and of its recovery: see [`backstitch_rules`].

pub(crate) use backstitch_rules::holds;

backstitch_rules::registry! {
    "lffs", 832;

    // What is written when.
    Dependency {
        /// A block goes home before the records of what changed it are in the log.
        HomeAfterRecords,
        /// What is made in a group of operations counts as there before its records are.
        HoldAfterRecords,
        /// A group of operations counts as there before the one before it.
        GroupAfterEarlierGroup,
        /// Contents are written into a block before the group that frees it is in the log.
        ReuseAfterFreeingGroup,
        /// Contents that come after a change of a group that is closed are written before that is
        /// in the log.
        ContentsAfterClosedGroup,
        /// A group counts as there before what its patchgroups come after on other volumes.
        RecordsAfterOtherVolumes,
    }
    Fsync {
        /// Under the synchronous variants a call returns before its records are in the log.
        AnswersOnceLogged,
    }

    // What goes into the log.
    Condition {
        /// Contents are written past the log into a block of which the log has records: recovery
        /// brings what it held before.
        RecordedContentsThroughLog,
        /// Contents that come after a change of the running group are written before it.
        FollowingContentsThroughLog,
        /// Contents written under a patchgroup stay out of the log.
        PatchgroupsThroughLog,
        /// A record leaves out what an operation changed of a block that it was the first to change.
        RecordsAreWhole,
        /// What an operation changed of a block before it freed that is in its record.
        FreedLeaveTheirRecord,
    }
    Revoke {
        /// Recovery brings what a freed block held over what it holds next.
        FreedAreListed,
        /// The list of freed blocks is written, and recovery does not look at it.
        FreedAreHeeded,
        /// What was written into a block after it was freed is not brought home.
        FreedCountForEarlierRecords,
    }

    // The start of the log.
    Tail {
        /// The log's start moves past records of blocks that are not at home.
        StartAfterHomes,
        /// The log's start moves past records of a block that a later group changed, before that is
        /// in the log.
        StartAfterLaterGroup,
        /// The log's start moves past records of a block that a later group freed, before that is
        /// in the log.
        StartAfterFreeingGroup,
        /// A group that is not in the log counts as at home.
        AtHomeOnlyIfLogged,
        /// Room is used again before the start on the disk has moved past it.
        RoomIsFreeOnceStartMoved,
        /// The superblock names an end that is not on the disk.
        EndIsLogged,
        /// A mount's records have the number of an earlier mount: what that one left behind the end
        /// counts again.
        MountsAreNumbered,
    }

    // Recovery.
    Check {
        /// A group of operations of which only some are in the log is brought home.
        OnlyWholeGroupsCount,
        /// Records are brought home in another order than that in which they were made.
        LastRecordCounts,
        /// A log that is not this file system's is brought home.
        LogIsOfThisMount,
    }
    Flush {
        /// The log says that it is empty before what it held is at home.
        HomesAreFlushed,
        /// A record is written into a log of which the disk does not show yet that it is empty.
        EmptyIsFlushed,
    }
}

impl Rule {
    /// The numbers of all of them.
    pub const IDS: [backstitch_rules::Id; Rule::SITES.len()] = {
        let mut ids = [Rule::SITES[0].id; Rule::SITES.len()];
        let mut at = 0;
        while at < ids.len() {
            ids[at] = Rule::SITES[at].id;
            at += 1;
        }
        ids
    };
}
