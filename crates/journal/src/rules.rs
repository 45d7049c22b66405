//! The rules of the journal's module and of its recovery: see [`backstitch_rules`]. A name says what
//! the rule demands, and the line above it what goes wrong without it.

pub(crate) use backstitch_ordering::rules::wait_for_now;
pub(crate) use backstitch_rules::{holds, implied};

backstitch_rules::registry! {
    "journal", 640;

    // The commit record.
    Dependency {
        /// A commit record is there before the copies that it commits.
        CommitAfterCopies,
        /// Originals are written once the commit record is there, though its copies are not.
        CommitStandsWithCopies,
        /// A commit record is there before the contents of its transaction.
        CommitAfterContents,
        /// A commit record is there before contents of blocks that its own transaction freed and
        /// used again.
        CommitAfterReusedContents,
        /// A transaction is committed before the one before it.
        CommitAfterEarlierCommit,
        /// A transaction is committed before what its patchgroups come after on other volumes.
        CommitAfterOtherVolumes,
        /// Of a group that changed something in the transaction under way and on another volume,
        /// the latter is not waited for.
        PartsOfGroupsCount,
        /// A torn revoke block that the commit record's checksum leaves out counts as whole.
        CommitAfterRevokeBlocks,
    }

    Fsync {
        /// With group commit a call returns before its transaction is committed.
        AnswersOnceCommitted,
    }

    // Originals and contents.
    Dependency {
        /// Originals are written before the transaction that changed them is committed.
        OriginalsAfterCommit,
        /// A commit record waits for contents, and a change of them that must follow the next
        /// transaction is merged into them: each waits for the other, and neither is written.
        HoldAfterEarlierHold,
        /// Contents are written into a block before the transaction that frees it is committed.
        ReuseAfterFreeing,
        /// Contents that come after a change of a transaction that is closed are written before that is
        /// committed.
        ContentsAfterClosed,
    }
    Condition {
        /// Contents that a commit record waits for are dropped with the file, though that is
        /// removed in a later transaction.
        AwaitedContentsAreKept,
        /// Contents written under a patchgroup stay out of the journal.
        GroupsThroughLog,
        /// Contents are written past the log into a block of which the log has a copy: a replay
        /// brings the older one home.
        LoggedContentsThroughLog,
        /// Contents that come after a change of the running transaction are written before it.
        OrderedContentsThroughLog,
        /// Contents that go into the log stay in the run of contents that the commit record waits
        /// for: the run waits for that record, and neither is written.
        RunsArePartedForLog,
        /// A block that a later transaction changes stays in the run of its own one: all of the
        /// run, and with it the log's tail, waits for the later one, for which the log may have no
        /// room.
        OriginalsArePartedFromRuns,
        /// Contents of a later transaction join a run that an earlier commit record waits for.
        RunsBelongToOneTransaction,
        /// What was logged and freed in one transaction counts as never logged.
        FreedCountAsLogged,
    }

    // Revokes.
    Revoke {
        /// A replay brings home an older copy over what a freed block holds next.
        FreedAreRevoked,
        /// A block that was freed and logged again in one transaction is revoked: its copy does not
        /// come home.
        LoggingTakesRevokeBack,
        /// A revocation counts for older copies only as far as its own transaction.
        RevokesAreHeeded,
        /// A revocation takes away copies of later transactions.
        RevokesCountForOlderCopies,
        /// Of several revocations of one block the first one counts.
        LastRevocationCounts,
    }

    // The tail.
    Tail {
        /// The tail moves past originals that are not at home.
        TailAfterOriginals,
        /// A block that a later transaction changes is taken for at home with the others of its
        /// transaction.
        PartOfOriginalsIsNoted,
        /// The tail moves past a block that a later transaction changed, before that one is
        /// committed.
        TailAfterLaterCommit,
        /// The tail moves past a block that a later transaction freed, before that one is
        /// committed.
        TailAfterFreeingCommit,
        /// A transaction that is not committed counts as at home.
        AtHomeOnlyIfCommitted,
        /// Space of the log is used again before the tail on the disk has moved past it.
        SpaceIsFreeOnceTailMoved,
    }

    // Recovery.
    Check {
        /// What an earlier round of the log left is replayed.
        SequenceIsChecked,
        /// A torn transaction is replayed.
        CommitChecksumIsChecked,
        /// A torn copy is replayed.
        CopyChecksumIsChecked,
        /// A transaction without a commit record is replayed.
        OnlyCommittedIsReplayed,
        /// An older copy of a block comes home over a newer one.
        NewestCopyComesHome,
        /// Recovery goes once around the log and reads on, from its tail again.
        LogEndsOnceAround,
    }
    Whole {
        /// A block of contents that begins with the journal's magic number is taken for a record.
        CopiesAreEscaped,
        /// A block that began with the journal's magic number comes home without it.
        CopiesAreUnescaped,
    }
    Flush {
        /// The log is marked as empty before what it held is at home.
        HomeIsFlushedBeforeTail,
        /// A later transaction is written over a log that the disk does not show as empty yet.
        TailIsFlushed,
    }
}
