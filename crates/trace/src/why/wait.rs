//! What does this `fsync` wait for?

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::dirty::rounds_text;
use super::rounds::Rounds;
use super::{chain_text, document};
use crate::record::Record;
use crate::state::{Keep, Standing, State};
use crate::{Error, Trace};

/// A wait for patches to be on stable storage, from its beginning on.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Its ticket.
    pub ticket: u64,
    /// The patches that it waits for by name.
    pub targets: Vec<u64>,
    /// The graph at its beginning.
    pub state: State,
    /// Patches that had to reach the disk for it, and the blocks that they are of.
    pub patches: BTreeSet<u64>,
    /// See `patches`.
    pub blocks: BTreeSet<u32>,
    /// Rounds of writing that it needed at least.
    pub rounds: u32,
    /// The chain that needed them.
    pub chain: Vec<u64>,
    /// Batches that reached stable storage meanwhile.
    pub batches: Vec<u64>,
    /// When it ended, where the trace has that.
    pub ended: Option<Duration>,
}

/// The wait with this ticket, or where none is given the one that needed the most rounds.
///
/// # Errors
/// Where the trace is damaged.
pub fn wait(trace: &Trace<'_>, ticket: Option<u64>) -> Result<Option<Wait>, Error> {
    wait_within(trace, ticket, u64::MAX)
}

/// The same as far as the first so many records tell.
///
/// # Errors
/// Where the trace is damaged within them.
pub fn wait_within(
    trace: &Trace<'_>,
    ticket: Option<u64>,
    most_records: u64,
) -> Result<Option<Wait>, Error> {
    let mut state = State::of(trace, Keep::Live);
    let (mut records, mut list, mut passed) = (trace.records(), Vec::new(), 0);
    let mut open: Vec<Wait> = Vec::new();
    let mut best: Option<Wait> = None;
    while passed < most_records
        && let Some((_, record)) = records.next(&mut list)?
    {
        passed += 1;
        state.apply(&record);
        match record {
            Record::Awaited {
                ticket: found,
                patches,
            } if ticket.is_none_or(|wanted| wanted == found) => {
                open.retain(|wait| wait.ticket != found);
                let rounds = rounds_of(&state, patches);
                let least = best.iter().chain(&open).map(|wait| wait.rounds).max();
                // Those that cannot be the longest one any more need not be followed.
                if ticket.is_some() || least.is_none_or(|least| rounds > least) {
                    open.push(begin(&state, found, patches));
                }
            }
            Record::Flushed { number } => {
                open.iter_mut().for_each(|wait| wait.batches.push(number));
            }
            Record::Reached { ticket: found } => {
                if let Some(index) = open.iter().position(|wait| wait.ticket == found) {
                    let mut wait = open.swap_remove(index);
                    wait.ended = Some(state.time);
                    best = longer(best, wait);
                }
            }
            _ => {}
        }
    }
    Ok(open.into_iter().fold(best, longer))
}

fn longer(best: Option<Wait>, wait: Wait) -> Option<Wait> {
    match best {
        Some(best) if best.rounds >= wait.rounds => Some(best),
        _ => Some(wait),
    }
}

fn rounds_of(state: &State, targets: &[u64]) -> u32 {
    let mut rounds = Rounds::new(state);
    let all = targets.iter().map(|target| rounds.of(*target));
    all.max().unwrap_or(0)
}

fn begin(state: &State, ticket: u64, targets: &[u64]) -> Wait {
    let mut rounds = Rounds::new(state);
    let longest = targets.iter().max_by_key(|target| rounds.of(**target));
    let chain = longest.map_or(Vec::new(), |target| Rounds::new(state).chain(*target));
    let (mut patches, mut blocks) = (BTreeSet::new(), BTreeSet::new());
    let mut stack: Vec<u64> = targets.iter().map(|of| state.resolved(*of)).collect();
    while let Some(number) = stack.pop() {
        let Some(patch) = state.patch(number) else {
            continue;
        };
        if patch.standing == Standing::Committed || !patches.insert(number) {
            continue;
        }
        blocks.extend(patch.parts.iter().map(|part| part.block));
        stack.extend(patch.befores.iter().map(|before| state.resolved(*before)));
    }
    Wait {
        ticket,
        targets: targets.to_vec(),
        state: state.clone(),
        rounds: longest.map_or(0, |target| rounds.of(*target)),
        patches,
        blocks,
        chain,
        batches: Vec::new(),
        ended: None,
    }
}

impl Wait {
    /// For people.
    pub fn text(&self) -> String {
        let began = self.state.time.as_secs_f64();
        let mut out = format!(
            "wait {} began at {began:.6}s for {} patches on {} blocks, {} at least\n",
            self.ticket,
            self.patches.len(),
            self.blocks.len(),
            rounds_text(self.rounds)
        );
        if !self.chain.is_empty() {
            out += "the longest chain:\n";
            out += &chain_text(&self.state, &self.chain, "  ");
        }
        let batches: Vec<String> = self.batches.iter().map(u64::to_string).collect();
        let after = match batches.is_empty() {
            true => "without a batch".to_owned(),
            false => format!("after batches {}", batches.join(", ")),
        };
        out + &match self.ended {
            Some(ended) => format!("it ended at {:.6}s, {after}\n", ended.as_secs_f64()),
            None => format!("it had not ended at the end of the trace, {after}\n"),
        }
    }

    /// For programs: the keys stay.
    pub fn json(&self) -> Value {
        let chain = self.chain.iter().map(|patch| document(&self.state, *patch));
        json!({
            "ticket": self.ticket,
            "began_seconds": self.state.time.as_secs_f64(),
            "ended_seconds": self.ended.map(|ended| ended.as_secs_f64()),
            "patches": self.patches,
            "blocks": self.blocks.len(),
            "rounds": self.rounds,
            "chain": chain.collect::<Vec<_>>(),
            "batches": self.batches,
        })
    }
}
