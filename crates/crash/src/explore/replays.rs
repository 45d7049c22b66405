//! Exploring where a journal is replayed: one state of each class that the replay tells apart.

use super::{Cut, Explorer, Spectator, note, question_of};
use crate::arrival::Pieces;
use crate::judge::{Question, Verdict};
use backstitch_crash_core::classes::{self, Choices, State};
use backstitch_crash_core::closed;
use backstitch_crash_core::frontier::{Moment, Node, States};
use backstitch_crash_core::image::Fork;
use backstitch_rules::watch;
use fastrand::Rng as Random;

/// The question and the answer about a state that is wrong, and its image.
type Wrong = ((Question, Verdict), Fork);

impl Explorer<'_> {
    /// Judges a state whose journal is replayed, by the result of the replay; each result is judged
    /// once. Returns the state if it is wrong.
    fn ask_recovered(&mut self, state: &State, choices: &mut dyn Choices) -> Option<Wrong> {
        let fingerprint = &state.fingerprint;
        let question = self.open_question(*fingerprint)?;
        let (image, _) = choices.state(&state.included);
        let wrong = self.ask_recovered_of(question, state, &image)?;
        Some((wrong, image))
    }

    fn ask_recovered_of(
        &mut self,
        question: Question,
        state: &State,
        image: &Fork,
    ) -> Option<(Question, Verdict)> {
        let fingerprint = &state.fingerprint;
        if question == Question::Reclaim {
            let verdict = self.judge(question, *fingerprint, image)?;
            return Some((question, verdict));
        }
        if question == Question::Consistency
            && let Some(what) = self.observer.state(image, *fingerprint)
        {
            let kind = "foreign";
            return Some((question, Verdict { kind, what }));
        }
        if let Some(what) = state.recovered.error.clone() {
            let kind = "unmountable";
            return Some((Question::Consistency, Verdict { kind, what }));
        }
        let model = self.model.clone()?;
        let recovered = state.recovered.result_fingerprint(image);
        let now = self.now();
        let known = &mut *self.known;
        let (question, _) = question_of(&mut known.recovered, &known.shown, recovered, now)?;
        self.outcome.recovered.insert(recovered as u64);
        self.outcome.judged += 1;
        let result = state.recovered.result(image);
        debug_assert_eq!(result.fingerprint(), recovered);
        let before = watch::set_remounted(true);
        let verdict = self.judge.judge(&result, &model.borrow(), question);
        watch::set_remounted(before);
        let known = &mut *self.known;
        note(
            &mut known.recovered,
            &mut known.shown,
            &self.judge,
            recovered,
            now,
            verdict.is_none(),
        );
        Some((question, verdict?))
    }

    /// Visits the classes of a moment that recovery tells apart. True if these were not all.
    pub(super) fn visit_classes(
        &mut self,
        nodes: &[Node],
        states: &mut States,
        random: &mut Random,
    ) -> bool {
        let mut recoveries = std::mem::take(&mut self.known.recoveries);
        let mut found = None;
        let mut moment = Moment { nodes, states };
        let limit = self.plan.exhaustive;
        let is_all = classes::visit(
            &mut moment,
            &mut recoveries,
            limit,
            &mut |state, choices| {
                let wrong = self.ask_recovered(&state, choices);
                found = wrong.map(|wrong| (state.included, wrong));
                found.is_none() && !self.is_done()
            },
        );
        if !is_all && found.is_none() {
            closed::sample(nodes, self.plan.samples, random, &mut |included| {
                if found.is_none() && !self.is_done() {
                    let state = State::of(&mut moment, &mut recoveries, included.to_vec());
                    let wrong = self.ask_recovered(&state, &mut moment);
                    found = wrong.map(|wrong| (state.included, wrong));
                }
            });
        }
        self.known.recoveries = recoveries;
        if let Some((included, (wrong, image))) = found {
            let blocks = states.blocks(nodes, &included);
            self.note(Cut::Patches(included), blocks, wrong, image);
        }
        !is_all
    }

    /// Visits the classes of the parts of a batch that recovery tells apart. False if these were
    /// not all.
    pub(super) fn visit_classes_of_batch(&mut self, pieces: &mut Pieces<'_>) -> bool {
        let mut found = None;
        let limit = self.plan.exhaustive;
        let mut recoveries = std::mem::take(&mut self.known.recoveries);
        let is_all = classes::visit(pieces, &mut recoveries, limit, &mut |state, choices| {
            if let Some(wrong) = self.ask_recovered(&state, choices) {
                found = Some((state.included, wrong));
            }
            found.is_none() && !self.is_done()
        });
        self.known.recoveries = recoveries;
        if let Some((included, (wrong, image))) = found {
            self.note_part(pieces, &included, wrong, image);
        }
        is_all
    }
}
