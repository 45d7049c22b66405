//! Errors that a test can plant in the module, one at a time, to see that an explorer of crash states finds them.
//!
//! Only with the feature `planted-errors`; without it every question for a planted error is the constant "no". An error is planted
//! for the thread that asks.

#[cfg(feature = "planted-errors")]
use std::cell::Cell;

/// One dependency or record of the module left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The commit record does not wait for the copies.
    CommitBeforeCopies,
    /// A commit record that need not wait for the copies stands for them: originals wait for it alone.
    CommitStandsForCopies,
    /// Originals do not wait for the commit record.
    NoHold,
    /// Freed blocks are not revoked.
    NoRevokes,
    /// The commit record does not wait for contents.
    CommitBeforeContents,
    /// The commit record does not wait for contents of blocks that its own transaction freed and used again.
    ReusedContentsForgotten,
    /// Contents that a commit record waits for are dropped with the file, though that is removed in a later transaction.
    AwaitedContentsDropped,
    /// The tail moves past originals that are not at home.
    TailBeforeOriginals,
    /// A block that a later transaction changes is taken for at home with the others of its transaction.
    PartOfOriginalsForgotten,
    /// Contents written under a patchgroup stay out of the journal. Not among [`ALL`](Self::ALL): only groups show it.
    GroupsPastJournal,
    /// A transaction does not wait for what its patchgroups come after on other volumes. Not among [`ALL`](Self::ALL) either.
    OtherVolumesForgotten,
    /// Of a group that changed something in the transaction under way and on another volume, the latter is not waited for. Nor this one.
    PartsForgotten,
}

impl Planted {
    /// All that show without patchgroups.
    pub const ALL: [Planted; 9] = [
        Planted::CommitBeforeCopies,
        Planted::CommitStandsForCopies,
        Planted::NoHold,
        Planted::NoRevokes,
        Planted::CommitBeforeContents,
        Planted::ReusedContentsForgotten,
        Planted::AwaitedContentsDropped,
        Planted::TailBeforeOriginals,
        Planted::PartOfOriginalsForgotten,
    ];
}

#[cfg(feature = "planted-errors")]
thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants an error for this thread; none with `None`.
#[cfg(feature = "planted-errors")]
pub fn plant(error: Option<Planted>) {
    PLANTED.set(error);
}

/// Whether this error is planted.
#[inline]
pub(crate) fn planted(error: Planted) -> bool {
    #[cfg(feature = "planted-errors")]
    return PLANTED.get() == Some(error);
    #[cfg(not(feature = "planted-errors"))]
    {
        let _ = error;
        false
    }
}
