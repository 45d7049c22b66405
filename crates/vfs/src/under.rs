//! The patchgroups that a thread's operations run under, and listeners that wait to hear of one.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use backstitch_ordering::{GroupId, PatchId};

thread_local! {
    /// The groups that this thread's operations run under.
    static UNDER: RefCell<Option<Arc<[GroupId]>>> = const { RefCell::new(None) };
}

/// The groups of the thread; `None` where it has none.
pub(crate) fn under() -> Option<Arc<[GroupId]>> {
    UNDER.with_borrow(Option::clone)
}

/// While it lives, this thread's operations run under groups. Dropping it sets the groups of before
/// again.
#[must_use]
pub struct Under {
    before: Option<Arc<[GroupId]>>,
    /// Keeps the guard in its thread, to which the groups belong.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Under {
    fn drop(&mut self) {
        UNDER.set(self.before.take());
    }
}

pub(crate) fn enter(groups: Option<Arc<[GroupId]>>) -> Under {
    Under {
        before: UNDER.replace(groups),
        of_this_thread: PhantomData,
    }
}

/// Runs `body` with the thread's operations under no groups.
pub(crate) fn without<T>(body: impl FnOnce() -> T) -> T {
    let _under = enter(None);
    body()
}

/// A caller that wants to hear that a group is on stable storage.
pub(crate) struct Listener {
    pub(crate) group: GroupId,
    /// The patches that are not there yet.
    pub(crate) targets: Vec<PatchId>,
    pub(crate) tell: Box<dyn FnOnce() + Send>,
}
