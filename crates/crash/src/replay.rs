//! Making one state again, from its moment and the patches that were on disk. Also finding the
//! smallest workload and the fewest patches that still show a failure.

use crate::campaign::NoObserver;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Recorder, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::schedule::Schedule;
use backstitch_layout::Error;
use backstitch_store::Batch;

use crate::arrival::{arrive, arriving};
use crate::explore::{Cut, Found, Known, Plan, Spectator, explore, run, trouble_of};
use crate::judge::{Judge, Question, Verdict};
use crate::model::Model;
use backstitch_crash_workloads::Workload;

/// The most states that are explored to see whether a smaller workload fails too.
const STATES_TO_SHRINK: u64 = 200_000;

/// Looks for the smallest workload, and in it for the fewest patches, that fail in the same way.
pub(crate) fn minimise(
    image: &Fork,
    workload: &Workload,
    plan: &Plan,
    found: Found,
) -> (Workload, Plan, Found) {
    let mut best = (workload.clone(), plan.clone(), found);
    best.0.operations.truncate(best.2.begun);
    best.1.most_states = STATES_TO_SHRINK;
    if best.2.question == Question::Reclaim {
        best.1.whole_every = 1;
        best.1.in_use_every = 1;
    }
    for schedule in [Schedule::Nothing, Schedule::Everything] {
        if schedule != best.1.schedule {
            let plan = Plan {
                schedule,
                ..best.1.clone()
            };
            let workload = best.0.clone();
            if accept(image, &workload, &plan, &mut best) {
                break;
            }
        }
    }
    // Leaves out halves first, then quarters, down to single operations; repeats this until nothing
    // more can be left out.
    let mut chunk = best.0.operations.len() / 2;
    while chunk > 0 {
        let mut at = best.0.operations.len();
        let mut shrunk = false;
        while at > 0 {
            let start = at.saturating_sub(chunk);
            let mut workload = best.0.clone();
            workload.operations.drain(start..at);
            workload.setup = workload.setup.min(start);
            let plan = best.1.clone();
            shrunk |= accept(image, &workload, &plan, &mut best);
            at = start.min(best.0.operations.len());
        }
        if !shrunk || chunk > 1 {
            chunk /= 2;
        }
    }
    let fewer = fewest_patches(image, &best.0, &best.1, &best.2);
    best.2 = fewer.unwrap_or(best.2);
    best
}

/// Makes a workload the best one if it fails in the same way.
fn accept(
    image: &Fork,
    workload: &Workload,
    plan: &Plan,
    best: &mut (Workload, Plan, Found),
) -> bool {
    let outcome = explore(image, workload, plan, &mut Known::default(), &NoObserver);
    let Some(found) = outcome.found else {
        return false;
    };
    if found.verdict.kind != best.2.verdict.kind {
        return false;
    }
    let mut workload = workload.clone();
    workload.operations.truncate(found.begun);
    *best = (workload, plan.clone(), found);
    true
}

fn fewest_patches(image: &Fork, workload: &Workload, plan: &Plan, found: &Found) -> Option<Found> {
    let mut again = Again::new(
        plan,
        found.moment,
        found.cut.clone(),
        Some(found.verdict.kind),
    );
    again.question = found.question.max(Question::Consistency);
    // If the engine fails after the moment, the explorer has seen that already.
    let _ = trouble_of(image, &workload.operations, plan, &mut again);
    again.found
}

/// Makes a state again.
///
/// # Errors
/// The engine's.
pub(crate) fn again(
    image: &Fork,
    operations: &[Operation],
    plan: &Plan,
    place: &Place,
) -> Result<Option<Seen>, Error> {
    let mut again = Again::new(plan, place.moment, place.cut.clone(), None);
    run(image, operations, plan, &mut again)?;
    Ok(again.seen)
}

/// A state, and the verdict on it.
pub(crate) struct Seen {
    pub(crate) state: Fork,
    pub(crate) verdict: Option<Verdict>,
    /// A trace of what happened from the mount up to its moment.
    pub(crate) trace: Vec<u8>,
}

/// A state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) moment: usize,
    pub(crate) cut: Cut,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cut {
            Cut::Patches(included) => {
                write!(f, "{}:{}:", self.moment, included.len())?;
                included.chunks(4).try_for_each(|bits| {
                    let digit = bits.iter().rev().fold(0, |d, b| d * 2 + u8::from(*b));
                    write!(f, "{digit:x}")
                })
            }
            Cut::Batch(arrived) => {
                write!(f, "{}:w", self.moment)?;
                arrived
                    .iter()
                    .try_for_each(|(block, sectors)| write!(f, ":{block}={sectors:x}"))
            }
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let bad =
            || format!("'{text}' is not a state: MOMENT:COUNT:HEX or MOMENT:w:BLOCK=HEX… expected");
        let mut parts = text.split(':');
        let moment = parts.next().and_then(|m| m.parse().ok()).ok_or_else(bad)?;
        let kind = parts.next().ok_or_else(bad)?;
        if kind == "w" {
            let block = |part: &str| {
                let (block, sectors) = part.split_once('=')?;
                Some((block.parse().ok()?, u64::from_str_radix(sectors, 16).ok()?))
            };
            let arrived: Option<Vec<_>> = parts.map(block).collect();
            let cut = Cut::Batch(arrived.ok_or_else(bad)?);
            return Ok(Place { moment, cut });
        }
        let count: usize = kind.parse().map_err(|_| bad())?;
        let digits: Option<Vec<u32>> = parts
            .next()
            .unwrap_or_default()
            .chars()
            .map(|c| c.to_digit(16))
            .collect();
        let digits = digits
            .filter(|d| d.len() == count.div_ceil(4))
            .ok_or_else(bad)?;
        let surplus = digits
            .last()
            .is_some_and(|last| !count.is_multiple_of(4) && last >> (count % 4) != 0);
        if surplus || parts.next().is_some() {
            return Err(bad());
        }
        let included = (0..count).map(|at| digits[at / 4] & (1 << (at % 4)) != 0);
        Ok(Place {
            moment,
            cut: Cut::Patches(included.collect()),
        })
    }
}

/// Waits for a moment of a run.
struct Again {
    model: Option<Rc<RefCell<Model>>>,
    judge: Judge,
    begun: usize,
    now: usize,
    moment: usize,
    cut: Cut,
    /// Looks for fewer patches that still give a verdict of this kind; `None` to make the state
    /// only.
    shrink: Option<&'static str>,
    question: Question,
    /// Records what happens, if the state is only to be made.
    recorder: Option<Arc<Recorder>>,
    found: Option<Found>,
    seen: Option<Seen>,
}

impl Again {
    fn new(plan: &Plan, moment: usize, cut: Cut, shrink: Option<&'static str>) -> Again {
        Again {
            model: None,
            judge: Judge::new(plan.engine(), plan.in_use_every),
            begun: 0,
            now: 0,
            moment,
            cut,
            shrink,
            question: Question::Consistency,
            recorder: None,
            found: None,
            seen: None,
        }
    }

    fn judge(&mut self, state: &Fork) -> Option<Verdict> {
        let model = self.model.clone()?;
        let model = model.borrow();
        self.judge.judge(state, &model, self.question)
    }

    fn note(&mut self, state: Fork) {
        let model = self.model.clone();
        let verdict =
            model.and_then(|model| self.judge.judge(&state, &model.borrow(), Question::Reclaim));
        let recorder = self.recorder.as_ref();
        let trace = recorder.map_or_else(Vec::new, |recorder| recorder.finish());
        self.seen = Some(Seen {
            state,
            verdict,
            trace,
        });
    }
}

impl Spectator for Again {
    fn mounted(&mut self, mount: &mut Mount) {
        self.recorder = self.shrink.is_none().then(|| mount.record());
    }

    fn begin(&mut self, model: Rc<RefCell<Model>>, engine: Engine) {
        self.model = Some(model);
        self.judge.recover_with(engine);
    }

    fn begun(&mut self, operations: usize) {
        self.begun = operations;
    }

    fn refused(&mut self, _operation: &Operation, _error: &Error) {}

    fn is_done(&self) -> bool {
        self.now >= self.moment
    }
}

impl Watcher for Again {
    fn at_rest(&mut self, mount: &Mount) {
        self.now += 1;
        let Cut::Patches(included) = &self.cut else {
            return;
        };
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        if self.now != self.moment || included.len() != nodes.len() {
            return;
        }
        let mut included = included.clone();
        // A change cannot be on disk without what must be there before it.
        let founded = |at: usize| nodes[at].befores.iter().all(|before| included[*before]);
        if !(0..nodes.len()).all(|at| !included[at] || founded(at)) {
            return;
        }
        let Some(kind) = self.shrink else {
            let state = states.fork(&nodes, &included);
            return self.note(state);
        };
        // From the last one down, so that nothing that stays waits for what is removed.
        for node in (0..nodes.len())
            .rev()
            .filter(|node| included[*node])
            .collect::<Vec<_>>()
        {
            let waited_for = (node + 1..nodes.len())
                .any(|after| included[after] && nodes[after].befores.contains(&node));
            if waited_for {
                continue;
            }
            included[node] = false;
            let state = states.fork(&nodes, &included);
            match self.judge(&state).filter(|verdict| verdict.kind == kind) {
                Some(verdict) => {
                    self.found = Some(Found {
                        moment: self.moment,
                        begun: self.begun,
                        cut: Cut::Patches(included.clone()),
                        question: self.question,
                        verdict,
                        blocks: states.blocks(&nodes, &included),
                        state,
                    });
                }
                None => included[node] = true,
            }
        }
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        self.now += 1;
        let (true, Cut::Batch(arrived)) = (self.now == self.moment, &self.cut) else {
            return;
        };
        let disk = mount.fork();
        let blocks = arriving(batch, &disk);
        let is_there = |(at, _): &(u64, u64)| blocks.iter().any(|part| part.block == *at);
        if !arrived.iter().all(is_there) {
            return;
        }
        let with = |arrived: &[(u64, u64)]| {
            let mut state = disk.clone();
            for part in &blocks {
                if let Some((_, sectors)) = arrived.iter().find(|(at, _)| *at == part.block) {
                    arrive(&mut state, part, *sectors);
                }
            }
            state
        };
        let mut arrived = arrived.clone();
        let Some(kind) = self.shrink else {
            return self.note(with(&arrived));
        };
        for at in (0..arrived.len()).rev() {
            let mut fewer = arrived.clone();
            fewer.remove(at);
            let state = with(&fewer);
            if let Some(verdict) = self.judge(&state).filter(|verdict| verdict.kind == kind) {
                arrived = fewer;
                self.found = Some(Found {
                    moment: self.moment,
                    begun: self.begun,
                    cut: Cut::Batch(arrived.clone()),
                    question: self.question,
                    verdict,
                    blocks: blocks
                        .iter()
                        .map(|part| {
                            let there = arrived.iter().any(|(at, _)| *at == part.block);
                            (part.block, 1, usize::from(there))
                        })
                        .collect(),
                    state,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for cut in [
            Cut::Patches(vec![true, false, false, true, true]),
            Cut::Patches(vec![]),
            Cut::Batch(vec![(70, 3), (9, 1)]),
            Cut::Batch(vec![]),
        ] {
            let place = Place { moment: 12, cut };
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        }
        for bad in ["", "x:1:0", "3:5:0", "3:w:a=b", "3", "4:3:8", "4:3:1:1"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
