//! The moments of a run: what a crash at rest, or in the middle of a batch, could leave.

use std::cell::RefCell;
use std::rc::Rc;

use backstitch_crash_core::classes::Choices;
use backstitch_crash_core::closed::{self, Bounds, Coverage};
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::parts::parts;
use backstitch_layout::Error;
use backstitch_ordering::rules::count_rolled_back;
use backstitch_rules::watch;
use backstitch_store::Batch;
use fastrand::Rng as Random;

use super::{Cut, Explorer, Found, Spectator};
use crate::arrival::{Pieces, arriving};
use crate::drive::RunDrive;
use crate::judge::{Question, Verdict};
use crate::model::Model;

impl Spectator for Explorer<'_> {
    fn begin(&mut self, model: Rc<RefCell<Model>>, engine: Engine) {
        self.model = Some(model);
        self.judge.recover_with(engine);
    }

    fn begun(&mut self, operations: usize) {
        self.begun = operations;
    }

    fn refused(&mut self, operation: &Operation, error: &Error) {
        self.outcome.refused.push(format!("{operation}: {error}"));
    }

    fn is_done(&self) -> bool {
        self.outcome.found.is_some() || self.is_enough()
    }
}

impl Watcher for Explorer<'_> {
    fn at_rest(&mut self, mount: &Mount) {
        self.moment += 1;
        if self.begun <= self.setup || self.is_done() {
            return;
        }
        self.outcome.moments += 1;
        if self.plan.drive.is_some() {
            return self.visit_medium(mount.fork());
        }
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        self.count_coverage(&nodes);
        let bounds = Bounds {
            exhaustive: self.plan.exhaustive,
            samples: self.plan.samples,
        };
        let mut random = Random::with_seed(self.random.u64(..));
        if self.replays {
            let sampled = self.visit_classes(&nodes, &mut states, &mut random);
            self.outcome.sampled_moments += usize::from(sampled || !states.is_complete);
            return;
        }
        let coverage = closed::visit(&nodes, bounds, &mut random, &mut |included| {
            if self.is_done() {
                return;
            }
            let fingerprint = states.fingerprint(&nodes, included);
            let Some(question) = self.open_question(fingerprint) else {
                return;
            };
            let state = states.fork(&nodes, included);
            if let Some(verdict) = self.judge(question, fingerprint, &state) {
                let blocks = states.blocks(&nodes, included);
                let cut = Cut::Patches(included.to_vec());
                self.note(cut, blocks, (question, verdict), state);
            }
        });
        self.outcome.sampled_moments +=
            usize::from(coverage == Coverage::Sampled || !states.is_complete);
        self.outcome.reduced_moments += usize::from(coverage == Coverage::Reduced);
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        self.moment += 1;
        if watch::records() {
            count_rolled_back(mount.store.graph());
        }
        if self.begun <= self.setup || self.is_done() {
            return;
        }
        self.outcome.moments += 1;
        let disk = mount.fork();
        let arriving = arriving(batch, &disk);
        let contents: Vec<bool> = arriving
            .iter()
            .map(|part| mount.holds_contents(part.block))
            .collect();
        let mut pieces = Pieces::of(&arriving, &contents, &disk, self.plan.torn);
        let is_any_drive = self.plan.drive.is_none();
        if self.replays && is_any_drive && self.visit_classes_of_batch(&mut pieces) {
            return;
        }
        let contents: Vec<bool> = (0..pieces.count())
            .map(|at| pieces.is_contents(at))
            .collect();
        let samples = self.plan.samples.min(64);
        let (parts, complete) = match self.plan.drive.clone() {
            None => parts(&contents, samples, &mut self.random),
            Some(spec) => {
                let drive =
                    (self.drive).get_or_insert_with(|| RunDrive::new(&spec, disk.all_bytes()));
                let requests: Vec<_> = batch.writes.iter().flat_map(|(_, all)| all).collect();
                let of = pieces.of_each();
                drive.parts(&requests, &of, &contents, samples, &mut self.random)
            }
        };
        self.outcome.sampled_batches += usize::from(!complete);
        for included in parts {
            if self.is_done() {
                return;
            }
            let (state, fingerprint) = pieces.state(&included);
            let asked = self.open_question(fingerprint);
            let asked = asked.and_then(|q| Some((q, self.judge(q, fingerprint, &state)?)));
            if let Some(found) = asked {
                self.note_part(&pieces, &included, found, state);
            }
        }
    }
}

impl Explorer<'_> {
    /// Judges the state that a drive leaves while nothing is on its way.
    fn visit_medium(&mut self, state: Fork) {
        let fingerprint = state.fingerprint();
        let asked = self.open_question(fingerprint);
        let asked = asked.and_then(|q| Some((q, self.judge(q, fingerprint, &state)?)));
        if let Some(found) = asked {
            self.note(Cut::Batch(Vec::new()), Vec::new(), found, state);
        }
    }

    pub(super) fn note_part(
        &mut self,
        pieces: &Pieces<'_>,
        included: &[bool],
        wrong: (Question, Verdict),
        state: Fork,
    ) {
        let mut cut: Vec<(u64, u64)> = Vec::new();
        let mut blocks = Vec::new();
        for (part, sectors) in pieces.arriving.iter().zip(pieces.arrived(included)) {
            blocks.push((part.block, 1, usize::from(sectors != 0)));
            match cut.last_mut() {
                _ if sectors == 0 => {}
                Some((block, there)) if *block == part.block => *there |= sectors,
                _ => cut.push((part.block, sectors)),
            }
        }
        self.note(Cut::Batch(cut), blocks, wrong, state);
    }

    pub(super) fn note(
        &mut self,
        cut: Cut,
        blocks: Vec<(u64, usize, usize)>,
        (question, verdict): (Question, Verdict),
        state: Fork,
    ) {
        self.outcome.found = Some(Found {
            moment: self.moment,
            begun: self.begun,
            cut,
            question,
            verdict,
            blocks,
            state,
        });
    }
}
