//! Order that the scheduler of the device's requests keeps (Ganger et al. 2000, §2.1; the
//! mechanism is from Ganger and Patt 1994): what `sync` waits for is written at once as well, but
//! nobody waits. Each request goes with what it must follow, and the queue sees to the order.
//!
//! What a request must follow are the layout's dependencies. Over a device whose queue takes requests
//! behind others, as simulated drives do, a batch is done once the device has it, and each request
//! of the next one goes behind those of it. Over a file or a disk that promises no order the store
//! keeps it: whatever can be written goes in one batch, and what follows it in the next, behind a
//! flush.

use backstitch_rules::Id;
use std::time::Duration;

use backstitch_store::{BlockClass, PatchId, Store};

use super::{Decision, Mechanism, PatchSpec};
use crate::kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};
use crate::operation::Operation;
use crate::rules::{Rule, holds, wait_for_now};

/// `scheduler`.
pub static SCHEDULER: SchedulerKind = SchedulerKind;

/// The kind of [`SCHEDULER`].
pub struct SchedulerKind;

#[derive(Default)]
struct Scheduler {
    /// What operations have changed since the last tick.
    made: Vec<PatchId>,
    /// The operation under way is of contents, or deferred work: what it changes is delayed.
    is_delayed: bool,
    issued: u64,
}

impl MechanismKind for SchedulerKind {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::Excess)
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::SCHEDULER)
    }

    fn own_rules(&self) -> &'static [Id] {
        const {
            &[
                Rule::RequestAfterPredecessors.id(),
                Rule::RequestsAreIssued.id(),
            ]
        }
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::<Scheduler>::default())
    }
}

impl Mechanism for Scheduler {
    fn kind(&self) -> &'static dyn MechanismKind {
        &SCHEDULER
    }

    fn begin(&mut self, operation: Operation<'_>) {
        self.is_delayed = operation == Operation::Background || operation.is_of_contents();
    }

    fn transform(
        &mut self,
        store: &mut Store,
        spec: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        if spec.kind.class != BlockClass::Data {
            let graph = store.graph();
            for before in dependencies {
                *before = wait_for_now(graph, Rule::RequestAfterPredecessors, *before);
            }
        }
        Decision::IN_PLACE
    }

    fn created(&mut self, _store: &Store, spec: &PatchSpec<'_>, _decision: &Decision, id: PatchId) {
        let is_metadata = spec.kind.class != BlockClass::Data;
        if is_metadata && !spec.is_implied_times && !self.is_delayed {
            self.made.push(id);
        }
    }

    fn tick(&mut self, _store: &mut Store, _now: Duration, _hurry: bool, issue: &mut Vec<PatchId>) {
        self.issued += self.made.len() as u64;
        match holds(Rule::RequestsAreIssued) {
            true => issue.append(&mut self.made),
            false => self.made.clear(),
        }
    }

    fn next_tick(&self) -> Option<Duration> {
        (!self.made.is_empty()).then_some(Duration::ZERO)
    }

    fn is_ordered_by_queue(&self) -> bool {
        true
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![("changes_issued", self.issued)]
    }
}
