//! Answers in words: why something is not on stable storage, what somebody waits for, why a block
//! was written again, and which crashes are ruled out.
//!
//! | question | answer |
//! |---|---|
//! | [`dirty`] | what the patches of a file wait for, the longest chain first |
//! | [`wait`] | what an `fsync` had to bring to the disk, and in how many rounds it did |
//! | [`versions`] | of each time that a block was written, why that was |
//! | [`cut`] | whether a crash can leave these patches and no others, and what the operations have then |
//! | [`crash`] | whether a crash can leave one patch without another, and which edges forbid it |

pub mod crash;
pub mod cut;
pub mod dirty;
mod rounds;
pub mod versions;
pub mod wait;

use serde_json::{Value, json};

use crate::graph::{block_of, label};
use crate::state::{Patch, Standing, State};

/// What became of a patch that was discarded.
const NOT_NEEDED: &str = "need not be written any more";

/// A patch in words: what it does where, and for which operation.
fn words(state: &State, number: u64) -> String {
    match state.patch(number) {
        Some(patch) => format!("p{number}, {}", of_patch(state, patch)),
        None if state.was_discarded(number) => format!("p{number}, which {NOT_NEEDED}"),
        None => format!("p{number}, which is on the disk"),
    }
}

fn of_patch(state: &State, patch: &Patch) -> String {
    let mut text = label(state, patch);
    if !patch.parts.is_empty() {
        text += &format!(" of {}", block_of(state, patch));
    }
    if let Some(operation) = operation(state, patch) {
        text += &format!(", for {operation}");
    }
    text
}

fn operation(state: &State, patch: &Patch) -> Option<String> {
    let scope = patch.scopes.first()?;
    Some(state.scope(*scope)?.label.clone())
}

/// A patch for programs: the keys stay.
fn document(state: &State, number: u64) -> Value {
    let Some(patch) = state.patch(number) else {
        let standing = match state.was_discarded(number) {
            true => "discarded",
            false => "committed",
        };
        return json!({"patch": number, "standing": standing});
    };
    json!({
        "patch": number,
        "change": label(state, patch),
        "block": (!patch.parts.is_empty()).then(|| block_of(state, patch)),
        "operation": operation(state, patch),
        "standing": standing(state, number, patch),
    })
}

fn standing(state: &State, number: u64, patch: &Patch) -> &'static str {
    match patch.standing {
        Standing::Committed if patch.was_discarded => "discarded",
        Standing::Committed => "committed",
        Standing::InFlight => "in flight",
        Standing::Uncommitted if patch.is_held => "held",
        Standing::Uncommitted if state.is_ready(number) => "ready",
        Standing::Uncommitted => "waiting",
    }
}

/// What a chain of patches ends with, in words.
fn end_of_chain(state: &State, number: u64) -> &'static str {
    match state
        .patch(number)
        .map(|patch| standing(state, number, patch))
    {
        Some("in flight") => "is on its way to the disk",
        Some("held") => "is held until its transaction is closed",
        Some("ready") => {
            "waits for nothing: it is written when somebody wants it or it is old enough"
        }
        Some("waiting") => "waits",
        Some("discarded") => NOT_NEEDED,
        _ => "is on the disk",
    }
}

/// A chain of patches, each of which waits for the next, as lines.
fn chain_text(state: &State, chain: &[u64], indent: &str) -> String {
    let mut out = String::new();
    for (index, number) in chain.iter().enumerate() {
        let rest = match index + 1 < chain.len() {
            true => "waits for",
            false => end_of_chain(state, *number),
        };
        out += &format!("{indent}{}: {rest}\n", words(state, *number));
    }
    out
}
