//! Errors that a test can plant, to see that the model test would find them.
//!
//! Only with the feature `planted-errors`; without it every question for a planted error is the
//! constant "no".
//!
//! Errors that one might plant and are harmless, because another rule makes up for them, are not in
//! the list:
//! * the searches follow patches in flight: those wait for nothing that is not committed or in
//!   flight, so the answer is the same;
//! * a merge without the look for an edge that is there already: duplicates are counted twice and
//!   removed twice;
//! * a flip gives the other bits of its patch dependencies that they did not have: they only wait
//!   longer (`tests/bits.rs` looks);
//! * a block's zones are not cleared when its soft patches are gone: they only save walks.

use crate::Graph;

/// One rule of the graph, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A soft patch does not depend on those that it overlaps.
    OverlapLeftOut,
    /// A patch of a block that others wait for is made hard although the search finds a way back.
    HardIgnoresSearch,
    /// A patch is made hard although other blocks wait for its block.
    HardDespiteExternal,
    /// Soft patches become hard although other blocks wait for their block.
    ConvertDespiteExternal,
    /// A change is merged into a patch that it overlaps although its dependencies lead back.
    OverlapMergeIgnoresSearch,
    /// A patch that is merged away loses its dependencies.
    ForwardLosesDependencies,
    /// A patch that is merged away loses its dependents.
    ForwardLosesDependents,
    /// A second version of a block goes in flight.
    SecondInFlight,
    /// A patch is ready although it waits for one more.
    ReadyTooEarly,
    /// A patch goes along although it waits for one of another block.
    GoesAlongTooEarly,
    /// A patch that waits for a held empty patch goes along with what the empty patch stands for.
    HeldGoesAlong,
    /// Patches are rolled back oldest first.
    RollbackInWrongOrder,
    /// The undo data of a patch that grew by a merge is what the bytes were before the merge.
    MergedUndoWrong,
    /// A patch that keeps only what it made differ takes on a further change.
    DifferenceOutlivesMerge,
    /// An empty patch commits with the first of its dependencies.
    EmptyCommitsEarly,
    /// A held empty patch commits with its dependencies.
    HeldCommits,
    /// A watched empty patch commits and nobody hears of it.
    TokenLost,
    /// Bits that a merged change flipped back are not covered any more.
    CancelledFlipsForget,
    /// Flips are merged per word although they depend on different things.
    BitsMergeIgnoresDependencies,
    /// All dependencies of a patch are dropped with the duplicates among them.
    ThinnedTooMuch,
    /// An edge to another block is not counted.
    ExternalNotIncremented,
    /// An edge that goes away stays counted.
    ExternalNotDecremented,
    /// An edge of an empty patch that somebody depends on is not counted.
    ExternalMissesEmpties,
    /// A patch that grows by a merge does not enter the zones that it grows into.
    ZonesForgotten,
    /// Dependents of a discarded patch never learn that they need not wait.
    DiscardForgetsDependents,
    /// A discarded patch is still waited for.
    DiscardKeepsEdges,
    /// An empty patch is given a dependency that closes a circle.
    CircleAccepted,
    /// The searches do not look behind empty patches.
    SearchStopsAtEmpty,
    /// The closure of a patch ends with its direct dependencies.
    ClosureTooShort,
    /// A run commits before the last of its blocks is on disk.
    RunCommitsEarly,
    /// Dependents of a run do not wait for a block that left it.
    SplitForgetsRun,
    /// A run with something to wait for is ready at once.
    RunDoesNotWait,
    /// A block that leaves a waiting run does not wait.
    PartDoesNotWait,
    /// The searches do not know which blocks a run is about.
    SearchOverlooksRuns,
    /// The closure of a run does not have its blocks.
    ClosureMissesRuns,
    /// A change is superseded by one that waits for it.
    SupersededInACircle,
    /// Dependents of a superseded change wait for nothing in its place.
    SupersededForgetsDependents,
    /// A chain does not look behind empty patches.
    ChainStopsAtEmpty,
    /// A chain leaves out the blocks of runs.
    ChainForgetsRuns,
    /// What a block follows is forgotten for the next thing that it follows.
    ChainKeepsOnlyLast,
    /// A held empty patch is passed before it is released.
    HeldIsPassed,
    /// An empty patch commits as soon as what it stands for was sent.
    EmptyCommitsWhenPassed,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 42] = [
        Planted::OverlapLeftOut,
        Planted::HardIgnoresSearch,
        Planted::HardDespiteExternal,
        Planted::ConvertDespiteExternal,
        Planted::OverlapMergeIgnoresSearch,
        Planted::ForwardLosesDependencies,
        Planted::ForwardLosesDependents,
        Planted::SecondInFlight,
        Planted::ReadyTooEarly,
        Planted::GoesAlongTooEarly,
        Planted::HeldGoesAlong,
        Planted::RollbackInWrongOrder,
        Planted::MergedUndoWrong,
        Planted::DifferenceOutlivesMerge,
        Planted::EmptyCommitsEarly,
        Planted::HeldCommits,
        Planted::TokenLost,
        Planted::CancelledFlipsForget,
        Planted::BitsMergeIgnoresDependencies,
        Planted::ExternalNotIncremented,
        Planted::ExternalNotDecremented,
        Planted::ExternalMissesEmpties,
        Planted::ZonesForgotten,
        Planted::DiscardForgetsDependents,
        Planted::DiscardKeepsEdges,
        Planted::CircleAccepted,
        Planted::SearchStopsAtEmpty,
        Planted::ClosureTooShort,
        Planted::RunCommitsEarly,
        Planted::SplitForgetsRun,
        Planted::RunDoesNotWait,
        Planted::PartDoesNotWait,
        Planted::SearchOverlooksRuns,
        Planted::ClosureMissesRuns,
        Planted::ThinnedTooMuch,
        Planted::SupersededInACircle,
        Planted::SupersededForgetsDependents,
        Planted::ChainStopsAtEmpty,
        Planted::ChainForgetsRuns,
        Planted::ChainKeepsOnlyLast,
        Planted::HeldIsPassed,
        Planted::EmptyCommitsWhenPassed,
    ];
}

impl Graph {
    /// Breaks one rule from here on.
    #[cfg(feature = "planted-errors")]
    pub fn plant(&mut self, error: Planted) {
        self.planted = Some(error);
    }

    #[cfg(feature = "planted-errors")]
    #[inline(always)]
    pub(crate) fn planted(&self, error: Planted) -> bool {
        self.planted == Some(error)
    }

    #[cfg(not(feature = "planted-errors"))]
    #[inline(always)]
    pub(crate) const fn planted(&self, _: Planted) -> bool {
        false
    }
}
