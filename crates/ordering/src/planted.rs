//! Errors that a test can plant in patchgroups and in volumes on others, one at a time, to see that an explorer of crash states finds them.
//!
//! Only with the feature `planted-errors`; without it every question for a planted error is the constant "no". An error is planted
//! for the thread that asks.

#[cfg(feature = "planted-errors")]
use std::cell::Cell;

/// One rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// What is made under a group does not wait for the groups before it.
    HeadLeftOut,
    /// What is made under a group is not waited for by the groups after it.
    MemberLeftOut,
    /// Contents that show at once are taken for hidden ones.
    EverythingHidden,
    /// A change counts as there although no name leads to it yet.
    ReachLeftOut,
    /// Volumes on other volumes lose the order that is stated in them, as behind a driver that knows blocks only.
    OrderLeftBehind,
    /// What is written into a block that has just got its place counts as there before anything on the disk leads to the place.
    PlaceLeftOut,
    /// What is done to a new file is taken to show no earlier than the groups before it, whenever the file was made.
    NewObjectEarly,
}

impl Planted {
    /// Those of patchgroups.
    pub const ALL: [Planted; 5] = [
        Planted::HeadLeftOut,
        Planted::MemberLeftOut,
        Planted::EverythingHidden,
        Planted::ReachLeftOut,
        Planted::NewObjectEarly,
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
