//! A failing state in words.

use crate::recording::{Change, Recording};
use crate::variant::StateId;
use backstitch_crash_core::check::Verdict;
use backstitch_crash_core::report::{Block, BlockState, Failure};

/// The most lines of each list that a report shows of a state.
const LINES: usize = 64;

/// Everything about a failing state except how to replay it.
pub(crate) fn failure(recording: &Recording, state: &StateId, verdict: &Verdict) -> Failure {
    let verdict = match verdict {
        Verdict::Good => "good".to_owned(),
        Verdict::Failed { how, output } if output.is_empty() => how.clone(),
        Verdict::Failed { how, output } => format!("{how}\n{output}"),
    };
    Failure {
        verdict,
        operations: operations(recording, state),
        cut: cut(recording, state),
        blocks: blocks(recording, state),
        replay: String::new(),
        minimised: false,
        graph: None,
    }
}

fn cut(recording: &Recording, state: &StateId) -> String {
    let moment = &state.moment;
    let passed = match recording.marks()[..moment.marks].last() {
        Some(mark) => format!("after mark '{mark}'"),
        None if recording.marks().is_empty() => "no marks in the log".to_owned(),
        None => "before the first mark".to_owned(),
    };
    let when = match moment.in_flight {
        true => format!("while entry {}, a FUA write, is in flight", moment.cut - 1),
        false => format!("before entry {} of {}", moment.cut, recording.entries()),
    };
    let durable = moment.stable;
    format!("{when}, {passed}; the last flush had made {durable} changes durable")
}

/// The marks that had passed, and the changes since the last flush.
fn operations(recording: &Recording, state: &StateId) -> Vec<String> {
    let moment = &state.moment;
    let marks = recording.marks()[..moment.marks].iter();
    let mut lines: Vec<String> = marks.map(|mark| format!("mark '{mark}'")).collect();
    let surplus = lines.len().saturating_sub(LINES);
    if surplus > 0 {
        lines.drain(..surplus);
        lines.insert(0, format!("… {surplus} marks before"));
    }
    let changes = &recording.changes()[moment.stable..moment.end];
    let shown = changes.iter().take(LINES).map(what);
    lines.extend(shown);
    if changes.len() > LINES {
        lines.push(format!("… {} changes more", changes.len() - LINES));
    }
    lines
}

fn what(change: &Change) -> String {
    let entry = &change.entry;
    let kind = match (change.is_discard(), change.is_fua()) {
        (true, _) => "discard",
        (false, true) => "FUA write",
        (false, false) => "write",
    };
    let (len, at) = (entry.len_bytes, entry.offset_bytes);
    format!("entry {}: {kind} of {len} bytes at {at}", entry.number)
}

/// The changes that may be missing. Of those on the disk and those missing, the fewer are listed
/// first.
fn blocks(recording: &Recording, state: &StateId) -> Vec<Block> {
    let optional = recording.optional(&state.moment);
    let mut there = vec![false; optional.len()];
    for &position in &state.variant.kept {
        there[position as usize] = true;
    }
    let rank = |n: u32| state.variant.kept.iter().position(|&kept| kept == n);
    let block = |n: usize| {
        let change = &recording.changes()[optional[n]];
        let mut what = what(change);
        let state = match (there[n], state.variant.mask(n as u32)) {
            (false, _) => BlockState::Missing,
            (true, None) => BlockState::OnDisk,
            (true, Some(mask)) => {
                let kept = mask.iter().filter(|&&kept| kept).count();
                what = format!("{what}, of which {kept} of {} sectors", mask.len());
                BlockState::Torn
            }
        };
        Block {
            block: change.start() / 4096,
            what: match rank(n as u32) {
                Some(rank) if self::is_reordered(&there, rank, n) => {
                    format!("{what}, as number {} to reach the disk", rank + 1)
                }
                _ => what,
            },
            state,
        }
    };
    let missing = there.iter().filter(|&&there| !there).count();
    let mut order: Vec<usize> = (0..optional.len()).collect();
    order.sort_by_key(|&n| (there[n] == (missing * 2 <= there.len()), n));
    order.truncate(LINES);
    order.sort_unstable();
    order.into_iter().map(block).collect()
}

/// Whether a change reached the disk at another place than in the log's order.
fn is_reordered(there: &[bool], rank: usize, n: usize) -> bool {
    there[..n].iter().filter(|&&there| there).count() != rank
}
