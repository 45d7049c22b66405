//! Exploring where a journal is replayed: by what the replay tells apart.

use super::{Cut, Explorer, Spectator, note, question_of};
use crate::arrival::Pieces;
use crate::classes::{self, State};
use crate::closed;
use crate::frontier::{Moment, Node, States};
use crate::judge::{Question, Verdict};
use backstitch_rules::watch;
use fastrand::Rng as Random;

impl Explorer<'_> {
    /// Asks about a state whose journal is replayed: what comes of that is judged, once. What is wrong.
    fn ask_recovered(&mut self, state: &State) -> Option<(Question, Verdict)> {
        let State {
            image, fingerprint, ..
        } = state;
        let question = self.open_question(*fingerprint)?;
        if question == Question::Reclaim {
            let verdict = self.judge(question, *fingerprint, image)?;
            return Some((question, verdict));
        }
        if question == Question::Consistency
            && let Some(what) = (self.witness)(image, *fingerprint)
        {
            let kind = "foreign";
            return Some((question, Verdict { kind, what }));
        }
        if let Some(what) = state.recovered.error.clone() {
            let kind = "unmountable";
            return Some((Question::Consistency, Verdict { kind, what }));
        }
        let model = self.model.clone()?;
        let result = state.recovered.result(image);
        let recovered = result.fingerprint();
        let now = self.now();
        let known = &mut *self.known;
        let (question, _) = question_of(&mut known.recovered, &known.shown, recovered, now)?;
        self.outcome.recovered.insert(recovered as u64);
        self.outcome.judged += 1;
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

    /// Visits what recovery tells apart of a moment. True where that is not everything.
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
        let is_all = classes::visit(&mut moment, &mut recoveries, limit, &mut |state| {
            found = self.ask_recovered(&state).map(|wrong| (state, wrong));
            found.is_none() && !self.is_done()
        });
        if !is_all && found.is_none() {
            closed::sample(nodes, self.plan.samples, random, &mut |included| {
                if found.is_none() && !self.is_done() {
                    let state = State::of(&mut moment, &mut recoveries, included.to_vec());
                    found = self.ask_recovered(&state).map(|wrong| (state, wrong));
                }
            });
        }
        self.known.recoveries = recoveries;
        if let Some((state, wrong)) = found {
            let blocks = states.blocks(nodes, &state.included);
            self.note(Cut::Patches(state.included), blocks, wrong, state.image);
        }
        !is_all
    }

    /// Visits what recovery tells apart of the parts of a batch. False where that is not everything.
    pub(super) fn visit_classes_of_batch(&mut self, pieces: &mut Pieces<'_>) -> bool {
        let mut found = None;
        let limit = self.plan.exhaustive;
        let mut recoveries = std::mem::take(&mut self.known.recoveries);
        let is_all = classes::visit(pieces, &mut recoveries, limit, &mut |state| {
            if let Some(wrong) = self.ask_recovered(&state) {
                found = Some((state, wrong));
            }
            found.is_none() && !self.is_done()
        });
        self.known.recoveries = recoveries;
        if let Some((state, wrong)) = found {
            self.note_part(pieces, &state.included, wrong, state.image);
        }
        is_all
    }
}
