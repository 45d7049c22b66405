//! A mechanism in one file: every operation is a batch, which here means that it reaches the disk
//! strictly after the operation before it. An operation is what [`Mechanism::begin`] announces:
//! each step of a long removal or truncation is one.
//!
//! Each batch has a *tail*, an empty patch that stands for all of it and for the tail before it.
//! Whatever the next operation changes depends on this tail, besides what the layout states. So a
//! crash leaves some whole operations, in their order, and a part of the next one that keeps the
//! layout's order.

use backstitch_ordering::{
    CrashLeaves, CrashRecord, Decision, LogPlace, Mechanism, MechanismKind, NoLog, Operation,
    PatchId, PatchSpec, Promises,
};
use backstitch_store::Store;

/// The mechanism.
pub(crate) static BATCHES: Batches = Batches {
    keeps_layouts_order: true,
};

/// The same without the layout's dependencies: any part of a batch may then be on the disk.
pub(crate) static LOOSE: Batches = Batches {
    keeps_layouts_order: false,
};

/// Batches of operations, in the form that the registry lists.
pub(crate) struct Batches {
    keeps_layouts_order: bool,
}

struct Running {
    kind: &'static Batches,
    /// The patches of the operation under way.
    made: Vec<PatchId>,
    /// An operation has begun, and has changed nothing yet.
    is_new: bool,
    /// The tail of the batch before it.
    tail: PatchId,
}

impl Batches {
    fn instance(&self) -> &'static Batches {
        match self.keeps_layouts_order {
            true => &BATCHES,
            false => &LOOSE,
        }
    }
}

impl MechanismKind for Batches {
    fn name(&self) -> &'static str {
        match self.keeps_layouts_order {
            true => "batches",
            false => "loose batches",
        }
    }

    /// Does not claim to order by batches: that would mean that the layout's order is not kept
    /// within a batch, and it is.
    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::Excess)
    }

    /// The next mount may use any mechanism of batches.
    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::BATCHES)
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::new(Running {
            kind: self.instance(),
            made: Vec::new(),
            is_new: false,
            tail: PatchId::COMMITTED,
        }))
    }
}

impl Mechanism for Running {
    fn kind(&self) -> &'static dyn MechanismKind {
        self.kind
    }

    fn begin(&mut self, _operation: Operation<'_>) {
        self.is_new = true;
    }

    fn transform(
        &mut self,
        store: &mut Store,
        _spec: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        if std::mem::take(&mut self.is_new) && !self.made.is_empty() {
            self.made.push(self.tail);
            self.tail = store.graph_mut().create_empty(&self.made, None, false);
            self.made.clear();
        }
        if !self.kind.keeps_layouts_order {
            dependencies.clear();
        }
        dependencies.push(self.tail);
        Decision::IN_PLACE
    }

    fn created(
        &mut self,
        _store: &Store,
        _spec: &PatchSpec<'_>,
        _decision: &Decision,
        id: PatchId,
    ) {
        self.made.push(id);
    }
}
