//! The update policies, which are the paper's six schemes, and their names.

use crate::rules::Rule;
use backstitch_rules::Id;
use std::sync::Mutex;
use std::time::Duration;

use super::Amom;
use crate::kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};
use crate::mechanism::Mechanism;

/// A tick of the paper's system: its clock went at 100 Hz.
const TICK: Duration = Duration::from_millis(10);

/// The longest delay and period: an hour.
const TICKS_MAX: u32 = 360_000;

/// When the next batch is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// As soon as the one before it is accomplished: scheme 1.
    Immediate,
    /// This long after that: schemes 2 (100 ticks) and 3 (300).
    Delayed(Duration),
    /// At the next beat of a clock: schemes 4 (4 ticks), 5 (300) and 6 (500).
    Periodic(Duration),
}

/// An update policy of `amom`.
#[derive(Debug)]
pub struct AmomKind {
    name: &'static str,
    pub(crate) policy: Policy,
}

/// `amom=immediate`: scheme 1.
pub static AMOM_IMMEDIATE: AmomKind = AmomKind {
    name: "amom=immediate",
    policy: Policy::Immediate,
};

/// `amom=delayed:100`: scheme 2.
pub static AMOM_DELAYED: AmomKind = AmomKind {
    name: "amom=delayed:100",
    policy: Policy::Delayed(Duration::from_secs(1)),
};

/// `amom=periodic:300`: scheme 5.
pub static AMOM_PERIODIC: AmomKind = AmomKind {
    name: "amom=periodic:300",
    policy: Policy::Periodic(Duration::from_secs(3)),
};

/// Policies that were asked for beside these. They are never freed: there are only as many as a
/// user has named.
static OTHERS: Mutex<Vec<&'static AmomKind>> = Mutex::new(Vec::new());

impl AmomKind {
    /// The one of this name: `amom=immediate`, `amom=delayed:TICKS` or `amom=periodic:TICKS`, with
    /// 1 to 360,000 ticks of 10 ms.
    pub fn named(name: &str) -> Option<&'static AmomKind> {
        let (policy, ticks) = match name.strip_prefix("amom=")? {
            "immediate" => return Some(&AMOM_IMMEDIATE),
            other => other.split_once(':')?,
        };
        let is_number = ticks.bytes().all(|b| b.is_ascii_digit()) && !ticks.starts_with('0');
        let ticks: u32 = ticks.parse().ok().filter(|_| is_number)?;
        if ticks > TICKS_MAX {
            return None;
        }
        let policy = match policy {
            "delayed" => Policy::Delayed(TICK * ticks),
            "periodic" => Policy::Periodic(TICK * ticks),
            _ => return None,
        };
        let is_it = |kind: &&'static AmomKind| kind.policy == policy;
        if let Some(known) = [&AMOM_DELAYED, &AMOM_PERIODIC].into_iter().find(is_it) {
            return Some(known);
        }
        let mut others = OTHERS
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = others.iter().copied().find(is_it) {
            return Some(known);
        }
        let name: &'static str = Box::leak(name.into());
        let made: &'static AmomKind = Box::leak(Box::new(AmomKind { name, policy }));
        others.push(made);
        Some(made)
    }
}

impl MechanismKind for AmomKind {
    fn name(&self) -> &'static str {
        self.name
    }

    fn promises(&self) -> Promises {
        Promises {
            orders_by_batches: true,
            ..Promises::leaving(CrashLeaves::Excess)
        }
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::BATCHES)
    }

    fn own_rules(&self) -> &'static [Id] {
        const {
            &[
                Rule::BatchAfterGate.id(),
                Rule::BatchBehindPredecessors.id(),
                Rule::HitOnlyBehindPredecessors.id(),
                Rule::NobodyJoinsABegunBatch.id(),
                Rule::SensorWaitsForAll.id(),
                Rule::BatchesAreNotSuperseded.id(),
            ]
        }
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        let kind = AmomKind::named(self.name).unwrap_or(&AMOM_IMMEDIATE);
        Ok(Box::new(Amom::new(kind)))
    }
}
