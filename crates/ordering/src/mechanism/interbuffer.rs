//! Interbuffer dependencies (Ganger et al. 2000, §2.1): all writes are delayed, and blocks are
//! written in an order that is kept between blocks, as wholes. Where a change would close a circle
//! of blocks, what it comes after is written before its caller is answered, and the order between
//! those two blocks is not needed any more.
//!
//! So no block that nobody waits for is written with a part of its changes taken back
//! ([`writes_with_rollback`](Mechanism::writes_with_rollback)): whatever is dirty can be written as
//! it is once others are. Only that one write, which breaks a circle, may take changes back: it
//! comes at the end of the operation, not in the middle of it.

mod order;

use backstitch_rules::Id;
use std::time::Duration;

use backstitch_store::{BlockClass, BlockId, Graph, PatchId, Store};

use super::{Decision, Mechanism, PatchSpec};
use crate::kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};
use crate::operation::Operation;
use crate::rules::{Rule, holds};
use order::BlockOrder;

/// `interbuffer`.
pub static INTERBUFFER: InterbufferKind = InterbufferKind;

/// The kind of [`INTERBUFFER`].
pub struct InterbufferKind;

#[derive(Default)]
struct Interbuffer {
    order: BlockOrder,
    /// What the change under way comes after.
    stated: Vec<PatchId>,
    /// What is to be written, to break circles, before the operation under way is answered.
    breaks: Vec<PatchId>,
    /// The same for deferred work, for which nobody waits.
    issued: Vec<PatchId>,
    is_background: bool,
    circles: u64,
    dependencies: u64,
}

impl MechanismKind for InterbufferKind {
    fn name(&self) -> &'static str {
        "interbuffer"
    }

    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::Excess)
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::INTERBUFFER)
    }

    fn own_rules(&self) -> &'static [Id] {
        const { &[Rule::CircleIsBroken.id(), Rule::WrittenWithoutRollback.id()] }
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::<Interbuffer>::default())
    }
}

impl Interbuffer {
    /// Orders a block behind the blocks of `stated`, which one of its changes comes after.
    /// `others_wait`: others may wait for a part of the block through a run, which the order of
    /// blocks does not know.
    fn order_behind(&mut self, graph: &Graph, block: BlockId, stated: PatchId, others_wait: bool) {
        let mut stack = vec![(stated, false)];
        let mut closes = others_wait;
        while let Some((id, by_contents)) = stack.pop() {
            let Some(info) = graph.info(id) else {
                continue;
            };
            match info.block {
                // Changes of one block go together, unless a run lies between them, which has other
                // blocks.
                Some(before) if before == block => closes |= by_contents,
                Some(before) => {
                    self.dependencies += 1;
                    let is_live = |id| graph.is_live(id);
                    closes |= !self.order.put_behind(block, before, id, &is_live);
                }
                None => {
                    let by_contents = by_contents || graph.is_run(id);
                    let members = graph.dependencies(id).into_iter();
                    stack.extend(members.map(|(of, _)| (of, by_contents)));
                }
            }
        }
        if closes {
            self.circles += 1;
            if holds(Rule::CircleIsBroken) {
                self.breaks.push(stated);
            }
        }
    }
}

impl Mechanism for Interbuffer {
    fn kind(&self) -> &'static dyn MechanismKind {
        &INTERBUFFER
    }

    fn begin(&mut self, operation: Operation<'_>) {
        self.is_background = operation == Operation::Background;
    }

    fn transform(
        &mut self,
        _store: &mut Store,
        _spec: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        self.stated.clear();
        self.stated.extend_from_slice(dependencies);
        Decision::IN_PLACE
    }

    fn created(&mut self, store: &Store, spec: &PatchSpec<'_>, _decision: &Decision, id: PatchId) {
        let graph = store.graph();
        let is_contents = spec.kind.class == BlockClass::Data;
        let stated = std::mem::take(&mut self.stated);
        if let Some(block) = graph.info(id).and_then(|info| info.block) {
            let others_wait = is_contents && graph.uncommitted_count(block) > 1;
            for before in stated.iter().filter(|before| graph.is_live(**before)) {
                self.order_behind(graph, block, *before, others_wait);
            }
        }
        self.stated = stated;
    }

    fn writes_with_rollback(&self) -> bool {
        !holds(Rule::WrittenWithoutRollback)
    }

    fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        match self.is_background {
            true => self.issued.append(&mut self.breaks),
            false => wait_for.append(&mut self.breaks),
        }
    }

    fn tick(&mut self, _store: &mut Store, _now: Duration, _hurry: bool, issue: &mut Vec<PatchId>) {
        issue.append(&mut self.issued);
    }

    fn next_tick(&self) -> Option<Duration> {
        (!self.issued.is_empty()).then_some(Duration::ZERO)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("block_dependencies", self.dependencies),
            ("circles_broken", self.circles),
            ("blocks_in_order", self.order.len() as u64),
        ]
    }
}
