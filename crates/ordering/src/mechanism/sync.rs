//! Conventional FFS: what an operation changed of the metadata is on stable storage, in the order
//! that the layout states, before the operation returns. Contents are delayed, as they are there,
//! and so are the pointers to them, the size, frees, and the times that move along with something
//! else.

use backstitch_store::{BlockClass, PatchId, Store};

use super::{Decision, Mechanism, PatchSpec};
use crate::kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};
use crate::operation::Operation;
use crate::rules::{Rule, holds};

/// `sync`.
pub static SYNC: SyncKind = SyncKind;

/// The kind of [`SYNC`].
pub struct SyncKind;

#[derive(Default)]
struct Sync {
    made: Vec<PatchId>,
    delayed: bool,
}

impl MechanismKind for SyncKind {
    fn name(&self) -> &'static str {
        "sync"
    }

    fn promises(&self) -> Promises {
        Promises {
            answers_once_stable: true,
            ..Promises::leaving(CrashLeaves::Excess)
        }
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::SYNC)
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::<Sync>::default())
    }
}

impl Mechanism for Sync {
    fn kind(&self) -> &'static dyn MechanismKind {
        &SYNC
    }

    fn begin(&mut self, operation: Operation<'_>) {
        self.made.clear();
        self.delayed = operation == Operation::Background || operation.is_of_contents();
    }

    fn created(&mut self, _store: &Store, spec: &PatchSpec<'_>, _decision: &Decision, id: PatchId) {
        if spec.kind.class != BlockClass::Data && !spec.is_implied_times && !self.delayed {
            self.made.push(id);
        }
    }

    /// The creation of a file waits for its inode only. Without undo data it would also wait for
    /// contents of the inode's neighbours in the table, which their pointers wait for.
    fn keeps_undo(&self, spec: &PatchSpec<'_>) -> bool {
        spec.kind.class != BlockClass::Data
    }

    fn answers_for(&self, id: PatchId) -> bool {
        self.made.contains(&id)
    }

    fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        if holds(Rule::SyncAnswersOnceStable) {
            wait_for.append(&mut self.made);
        }
    }
}
