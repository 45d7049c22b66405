//! Requests to the engine that reach no layout, for a recorder.

use backstitch_ordering::GroupId;

/// Is told what callers ask for, in the order in which the engine does it. The calls come under the
/// engine's lock, and must not call the engine.
pub trait Observer: Send + Sync {
    /// Everything changed so far is about to be put onto stable storage.
    fn sync_asked(&self);

    /// The first patchgroup comes after the second from now on.
    fn group_depends(&self, after: GroupId, before: GroupId);

    /// Everything done under a patchgroup is about to be put onto stable storage.
    fn group_sync_asked(&self, group: GroupId);
}
