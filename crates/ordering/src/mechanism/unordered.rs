//! No order at all: the upper bound on speed, and no promise after a crash.

use backstitch_store::{PatchId, Store};

use super::{Decision, Mechanism, PatchSpec};
use crate::kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};

/// `async`.
pub static ASYNC: AsyncKind = AsyncKind;

/// The kind of [`ASYNC`].
pub struct AsyncKind;

struct Async;

impl MechanismKind for AsyncKind {
    fn name(&self) -> &'static str {
        "async"
    }

    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::Anything)
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::ANYTHING)
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::new(Async))
    }
}

impl Mechanism for Async {
    fn kind(&self) -> &'static dyn MechanismKind {
        &ASYNC
    }

    fn transform(
        &mut self,
        _store: &mut Store,
        _spec: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        dependencies.clear();
        Decision::IN_PLACE
    }
}
