//! The patches of a failing moment, and the order that is missing among them.
//!
//! The workload runs once more, recorded, up to the moment of the failure. There the judge is asked
//! about other sets of the same patches ([`missing`](backstitch_crash_core::missing)).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use backstitch_crash_core::classes::Choices;
use backstitch_crash_core::frontier::{Frontier, Pending, pending};
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::missing::{Found as Missing, Question as Wrong, Said, missing};
use backstitch_crash_core::mount::{Engine, Mount, Recorder, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::report::BlockState;
use backstitch_crash_core::report::graph::Graph;
use backstitch_crash_core::scene::{Scene, Told, rank};
use backstitch_layout::Error;
use backstitch_store::Batch;

use crate::arrival::{Pieces, arriving};
use crate::explore::{Cut, Found, Plan, Spectator, trouble_of};
use crate::judge::{Judge, Question};
use crate::model::Model;
use backstitch_crash_workloads::Workload;

/// The most states that are judged to find the missing order. Each takes about a millisecond, or
/// some tens of them if it is reclaimed.
const MOST_ASKED: u32 = 300;

/// A failing moment.
pub(crate) struct Shown {
    pub(crate) graph: Graph,
    /// A trace of what happened from the mount up to the moment.
    pub(crate) trace: Vec<u8>,
}

/// Looks at the moment of a failure. `None` if there is none because the engine itself failed.
pub(crate) fn shown(
    image: &Fork,
    workload: &Workload,
    plan: &Plan,
    found: &Found,
) -> Option<Shown> {
    if found.verdict.kind == "engine" {
        return None;
    }
    let mut camera = Camera {
        model: None,
        judge: Judge::new(plan.engine(), plan.in_use_every),
        now: 0,
        found,
        recorder: None,
        shown: None,
    };
    // If the engine fails after the moment, the explorer has seen that already.
    let _ = trouble_of(image, &workload.operations, plan, &mut camera);
    camera.shown
}

/// Waits for the moment of a failure, and records it.
struct Camera<'c> {
    model: Option<Rc<RefCell<Model>>>,
    judge: Judge,
    now: usize,
    found: &'c Found,
    recorder: Option<Arc<Recorder>>,
    shown: Option<Shown>,
}

impl Camera<'_> {
    /// The order that is missing in `state`, or why it was not looked for.
    fn told(
        &mut self,
        (befores, ranks): (&[Vec<usize>], &dyn Fn(usize) -> u8),
        state: &[bool],
        make: &mut dyn FnMut(&[bool]) -> Fork,
    ) -> Result<Missing, &'static str> {
        if self.found.verdict.kind == "foreign" {
            return Err(
                "Only a foreign tool saw what is wrong, so no missing order was looked for.",
            );
        }
        let Some(model) = self.model.clone() else {
            return Err("Nothing was promised yet, so no missing order was looked for.");
        };
        let model = model.borrow();
        let question = self.found.question.max(Question::Consistency);
        let wrong = Wrong {
            befores,
            state,
            part: state,
            rank: ranks,
            most: MOST_ASKED,
        };
        let told = missing(&wrong, &mut |included| {
            let verdict = self.judge.judge(&make(included), &model, question);
            Ok::<Said, std::convert::Infallible>(match verdict {
                None => Said::Good,
                Some(verdict) if verdict.kind == self.found.verdict.kind => Said::Alike,
                Some(_) => Said::Otherwise,
            })
        });
        match told {
            Ok(found) => Ok(found),
            Err(never) => match never {},
        }
    }

    fn show(&mut self, patches: &[Pending], states: &[BlockState], images: &[&Fork], told: &Told) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let trace = recorder.finish();
        let scene = Scene {
            patches,
            states,
            images,
            recorder,
            trace: &trace,
        };
        let graph = scene.graph(told);
        self.shown = Some(Shown { graph, trace });
    }

    /// For each patch whether its block has arrived, and for each part of the batch whether it has.
    fn arrived(
        &self,
        patches: &[Pending],
        pieces: &Pieces<'_>,
        arrived: &[(u64, u64)],
    ) -> (Vec<BlockState>, Vec<bool>) {
        let sectors = |block: u64| {
            let found = arrived.iter().find(|(at, _)| *at == block);
            found.map_or(0, |(_, sectors)| *sectors)
        };
        let parts = pieces.arriving.iter();
        let included = parts.map(|part| sectors(part.block) & part.sectors == part.sectors);
        let states = patches.iter().map(|patch| {
            let parts = pieces
                .arriving
                .iter()
                .filter(|part| part.block == patch.block);
            let sent = parts.fold(0, |sent, part| sent | part.sectors);
            match sectors(patch.block) & sent {
                _ if !patch.in_flight => BlockState::Missing,
                0 => BlockState::Missing,
                there if there == sent => BlockState::OnDisk,
                _ => BlockState::Torn,
            }
        });
        (states.collect(), included.collect())
    }
}

fn states_of(included: &[bool]) -> Vec<BlockState> {
    let of = |is: &bool| match is {
        true => BlockState::OnDisk,
        false => BlockState::Missing,
    };
    included.iter().map(of).collect()
}

impl Spectator for Camera<'_> {
    fn mounted(&mut self, mount: &mut Mount) {
        self.recorder = Some(mount.record());
    }

    fn begin(&mut self, model: Rc<RefCell<Model>>, engine: Engine) {
        self.model = Some(model);
        self.judge.recover_with(engine);
    }

    fn begun(&mut self, _operations: usize) {}

    fn refused(&mut self, _operation: &Operation, _error: &Error) {}

    fn is_done(&self) -> bool {
        self.now >= self.found.moment
    }
}

impl Watcher for Camera<'_> {
    fn at_rest(&mut self, mount: &Mount) {
        self.now += 1;
        if self.now != self.found.moment {
            return;
        }
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        let included = match &self.found.cut {
            Cut::Patches(included) if included.len() == nodes.len() => included.clone(),
            // The state that a drive leaves while nothing is on its way.
            Cut::Batch(arrived) if arrived.is_empty() => vec![false; nodes.len()],
            _ => return,
        };
        let befores: Vec<Vec<usize>> = nodes.iter().map(|node| node.befores.clone()).collect();
        let patches = states.pending(&nodes);
        let ranks = |at: usize| rank(&patches[at]);
        let order = (&befores[..], &ranks as &dyn Fn(usize) -> u8);
        let told = self.told(order, &included, &mut |set| states.fork(&nodes, set));
        let told = told.map_or_else(Told::Nothing, Told::Patches);
        let newest = states.fork(&nodes, &vec![true; nodes.len()]);
        let images = [&newest, &self.found.state, &mount.fork()];
        self.show(&patches, &states_of(&included), &images, &told);
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        self.now += 1;
        let (true, Cut::Batch(arrived)) = (self.now == self.found.moment, &self.found.cut) else {
            return;
        };
        let disk = mount.fork();
        let parts = arriving(batch, &disk);
        let contents = vec![false; parts.len()];
        let mut pieces = Pieces::of(&parts, &contents, &disk, false);
        let patches = pending(&mount.store);
        let (states, included) = self.arrived(&patches, &pieces, arrived);
        let told = match states.contains(&BlockState::Torn) {
            true => Err("A block is there in part, so no order between blocks was looked for."),
            false => {
                let befores = vec![Vec::new(); included.len()];
                self.told((&befores, &|_| 0), &included, &mut |set| {
                    pieces.state(set).0
                })
            }
        };
        let blocks: Vec<u64> = parts.iter().map(|part| part.block).collect();
        let told = told.map_or_else(Told::Nothing, |found| Told::Blocks(found, blocks));
        let (newest, _) = pieces.state(&vec![true; included.len()]);
        self.show(
            &patches,
            &states,
            &[&newest, &self.found.state, &disk],
            &told,
        );
    }
}
