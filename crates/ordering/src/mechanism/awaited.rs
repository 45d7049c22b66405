//! Whether a mechanism with a log answers a caller only once the log has what the caller changed.

use std::time::Duration;

use super::PatchSpec;
use crate::operation::Operation;
use crate::{BlockClass, Decision};

/// How long the first caller who waits for the log lets others share its write, where the mechanism
/// gathers them (group commit): about one revolution of a fast disk.
pub const GATHER_TIME: Duration = Duration::from_millis(5);

/// Whether the operation under way has changed what its caller is to wait for: metadata, but not the
/// times that move along with contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awaited {
    /// Nobody waits for what it changes.
    is_delayed: bool,
    has_changed: bool,
}

impl Awaited {
    /// An operation begins.
    pub fn begin(&mut self, operation: &Operation<'_>) {
        self.is_delayed = *operation == Operation::Background || operation.is_of_contents();
        self.has_changed = false;
    }

    /// The operation has made a patch.
    pub fn created(&mut self, spec: &PatchSpec<'_>, decision: &Decision) {
        let is_metadata = spec.kind.class != BlockClass::Data;
        self.has_changed |=
            decision.is_logged && is_metadata && !spec.is_implied_times && !self.is_delayed;
    }

    /// The operation is over. Returns whether its caller is to wait for the log.
    pub fn take(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}
