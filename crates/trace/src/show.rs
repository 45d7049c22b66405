//! The records as lines, those that are asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::graph::{block_text, change_text};
use crate::names::printable;
use crate::record::{Record, kind_word};
use crate::state::State;

/// Which records are wanted; all where nothing is said. Of an operation that is, everything that
/// becomes of its patches is too.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those of operations about this path, or about something below it.
    pub path: Option<String>,
    /// Those of operations about this object.
    pub object: Option<u64>,
    /// Those about this block: its number in blocks of its own size.
    pub block: Option<u64>,
    /// Those of operations with this word.
    pub operation: Option<String>,
    /// Those from this time on.
    pub from: Option<Duration>,
    /// Those before this time.
    pub until: Option<Duration>,
}

/// A record, for people and for programs.
#[derive(Clone, Debug)]
pub struct Line {
    /// The record's number.
    pub record: u64,
    /// When it happened.
    pub time: Duration,
    /// What happened.
    pub text: String,
    /// The same, for programs.
    pub json: Value,
}

/// Turns the records of a trace into lines, one after the other.
pub struct Lines {
    filter: Filter,
    /// The operation under way is wanted.
    is_in_scope: bool,
    /// Patches of operations that are.
    patches: BTreeSet<u64>,
}

impl Lines {
    /// Lines of the records that a filter takes.
    pub fn new(filter: Filter) -> Lines {
        Lines {
            filter,
            is_in_scope: false,
            patches: BTreeSet::new(),
        }
    }

    /// The line of a record, if it is wanted. `state` is that after the record.
    pub fn line(&mut self, number: u64, record: &Record<'_>, state: &State) -> Option<Line> {
        if matches!(record, Record::Time(_) | Record::Place { .. }) {
            return None;
        }
        let is_wanted = self.takes(record, state);
        let is_late = self.filter.from.is_none_or(|from| state.time >= from);
        let is_early = self.filter.until.is_none_or(|until| state.time < until);
        (is_wanted && is_late && is_early).then(|| Line {
            record: number,
            time: state.time,
            text: text(record, state),
            json: document(number, record, state),
        })
    }

    fn takes(&mut self, record: &Record<'_>, state: &State) -> bool {
        match record {
            Record::Begin { .. } => self.is_in_scope = self.takes_scope(state),
            Record::End => return std::mem::take(&mut self.is_in_scope),
            _ => {}
        }
        let is_of_operation = self.filter.path.is_some()
            || self.filter.object.is_some()
            || self.filter.operation.is_some();
        if self.is_in_scope && is_of_operation {
            self.patches.extend(patches_of(record).into_iter().take(1));
        }
        let names_one = || patches_of(record).iter().any(|p| self.patches.contains(p));
        let is_of_operation = !is_of_operation || self.is_in_scope || names_one();
        let is_of_block = self.filter.block.is_none_or(|wanted| {
            let place = block_of(record).and_then(|block| state.place(block));
            place.is_some_and(|at| at.offset_bytes / u64::from(at.len_bytes.max(1)) == wanted)
        });
        is_of_operation && is_of_block
    }

    fn takes_scope(&self, state: &State) -> bool {
        let scope = state.scope_under_way().and_then(|scope| state.scope(scope));
        let Some(scope) = scope else {
            return false;
        };
        let Filter {
            path,
            object,
            operation,
            ..
        } = &self.filter;
        let is_below = |of: &String, path: &String| {
            let rest = of.strip_prefix(path.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let by_path = |path: &String| scope.paths.iter().any(|of| is_below(of, path));
        path.as_ref().is_none_or(by_path)
            && object.is_none_or(|object| scope.objects.contains(&object))
            && operation.as_ref().is_none_or(|word| scope.word == *word)
    }
}

/// The patches that a record names, the one that it is about first.
fn patches_of(record: &Record<'_>) -> Vec<u64> {
    match *record {
        Record::Create { patch, .. }
        | Record::Present { patch, .. }
        | Record::Release { patch }
        | Record::Harden { patch }
        | Record::Commit { patch } => vec![patch],
        Record::Merge { into, .. } => vec![into],
        Record::Forward { from, to }
        | Record::Split { from, to, .. }
        | Record::Leave { from, to, .. }
        | Record::Supersede { from, to, .. } => vec![to, from],
        Record::Wait { after, .. } | Record::StopWaiting { after, .. } => vec![after],
        Record::Settle { patches }
        | Record::Write { patches, .. }
        | Record::Awaited { patches, .. } => patches.to_vec(),
        _ => Vec::new(),
    }
}

fn block_of(record: &Record<'_>) -> Option<u32> {
    match *record {
        Record::Create { block, .. } | Record::Present { block, .. } => block,
        Record::Merge { block, .. }
        | Record::Split { block, .. }
        | Record::Leave { block, .. }
        | Record::Supersede { block, .. }
        | Record::Discard { block }
        | Record::Write { block, .. } => Some(block),
        _ => None,
    }
}

fn list(patches: &[u64]) -> String {
    let words: Vec<String> = patches.iter().map(|patch| format!("p{patch}")).collect();
    words.join(" ")
}

/// What happened, in words.
fn text(record: &Record<'_>, state: &State) -> String {
    let at = |block: u32| block_text(state, block);
    match *record {
        Record::Begin { .. } => {
            let scope = state.scope_under_way();
            let label = scope.and_then(|scope| Some(&state.scope(scope)?.label));
            let label = label.map_or("", String::as_str);
            format!("operation {}: {label}", scope.unwrap_or(0))
        }
        Record::End => "operation ends".to_owned(),
        Record::Made { object } => {
            let path = printable(&state.path(object));
            format!("  made {path}, inode {object}")
        }
        Record::Create {
            patch,
            kind,
            held,
            block,
            change,
            stated,
        } => {
            let mut text = format!("  p{patch}: {} patch", kind_word(kind));
            if let Some(block) = block {
                text += &format!(" of {}, {}", at(block), change_text(&change));
            }
            if !stated.is_empty() {
                text += &format!(", after {}", list(stated));
            }
            text + if held { ", held" } else { "" }
        }
        Record::Merge {
            into,
            kind,
            block,
            change,
            stated,
        } => {
            let after = match stated {
                [] => String::new(),
                stated => format!(", after {}", list(stated)),
            };
            let (kind, change) = (kind_word(kind), change_text(&change));
            format!("  p{into}: takes {change} of {} ({kind}){after}", at(block))
        }
        Record::Forward { from, to } => format!("  p{from} is a part of p{to} from now on"),
        Record::Split { from, block, to } => {
            format!(
                "  {} leaves run p{from} as p{to}, which that waits for",
                at(block)
            )
        }
        Record::Leave { from, block, to } => format!("  {} leaves run p{from} as p{to}", at(block)),
        Record::Supersede { from, block, to } => {
            format!(
                "  p{from} of {} need not be written: p{to} makes up for it",
                at(block)
            )
        }
        Record::Wait { after, before } => format!("  p{after} waits for p{before}"),
        Record::StopWaiting { after, before } => {
            format!("  p{after} no longer waits for p{before}")
        }
        Record::Release { patch } => format!("  p{patch} is released"),
        Record::Settle { patches } => format!("settled: {}", list(patches)),
        Record::Write {
            block,
            rolled_back,
            patches,
        } => {
            let without = match rolled_back {
                0 => String::new(),
                count => format!(", {count} rolled back"),
            };
            format!("write {} with {}{without}", at(block), list(patches))
        }
        Record::Harden { patch } => format!("  p{patch} has no undo data any more"),
        Record::Discard { block } => format!("  what {} has is not needed any more", at(block)),
        Record::Commit { patch } if state.has_discarded => {
            format!("p{patch} need not be written any more")
        }
        Record::Commit { patch } => format!("p{patch} is on the disk"),
        Record::Present {
            patch,
            kind,
            in_flight,
            block,
            ..
        } => {
            let of = block.map_or(String::new(), |block| format!(" of {}", at(block)));
            let on_its_way = if in_flight { ", in flight" } else { "" };
            format!(
                "there is p{patch}: {} patch{of}{on_its_way}",
                kind_word(kind)
            )
        }
        Record::Batch {
            number,
            goal,
            requests,
            bytes,
        } => format!(
            "batch {number} goes to the device ({}): {requests} requests, {bytes} bytes",
            printable(&String::from_utf8_lossy(goal))
        ),
        Record::Contents {
            volume,
            offset_bytes,
            bytes,
        } => format!("  volume {volume}, {offset_bytes}+{}", bytes.len()),
        Record::Flushed { number } => format!("batch {number} is on stable storage"),
        Record::Failed { number } => format!("batch {number} failed"),
        Record::Awaited { ticket, patches } => {
            format!("somebody waits ({ticket}) for {}", list(patches))
        }
        Record::Reached { ticket } => format!("who waited ({ticket}) goes on"),
        Record::Lost { events } => {
            format!("the trace ends here: {events} events after this could not be kept")
        }
        Record::Finished => "the recording ends".to_owned(),
        Record::Time(_) | Record::Place { .. } => String::new(),
    }
}

/// What happened, for programs: the keys stay.
fn document(number: u64, record: &Record<'_>, state: &State) -> Value {
    let mut out = json!({
        "record": number,
        "seconds": state.time.as_secs_f64(),
        "event": record.word(),
    });
    let mut set = |key: &str, value: Value| out[key] = value;
    let scope = state.scope_under_way();
    if let Some(scope) = scope {
        set("operation", scope.into());
    }
    if let Some(block) = block_of(record) {
        set("block", block.into());
        if let Some(place) = state.place(block) {
            set("volume", place.volume.into());
            set("block_offset_bytes", place.offset_bytes.into());
            set("class", crate::record::class_word(place.class).into());
        }
    }
    match patches_of(record)[..] {
        [] => {}
        [one] => set("patch", one.into()),
        [to, from]
            if !matches!(
                record,
                Record::Write { .. } | Record::Awaited { .. } | Record::Settle { .. }
            ) =>
        {
            set("patch", to.into());
            set("from", from.into());
        }
        ref several => set("patches", several.to_vec().into()),
    }
    match *record {
        Record::Begin { .. } => {
            if let Some(scope) = scope.and_then(|scope| state.scope(scope)) {
                set("kind", scope.word.clone().into());
                set("paths", scope.paths.clone().into());
                set("objects", scope.objects.clone().into());
            }
        }
        Record::Made { object } => {
            set("object", object.into());
            set("path", state.path(object).into());
        }
        Record::Create { kind, stated, .. } | Record::Merge { kind, stated, .. } => {
            set("kind", kind_word(kind).into());
            set("after", stated.to_vec().into());
        }
        Record::Wait { before, .. } | Record::StopWaiting { before, .. } => {
            set("before", before.into());
        }
        Record::Write { rolled_back, .. } => set("rolled_back", rolled_back.into()),
        Record::Batch {
            number,
            goal,
            requests,
            bytes,
        } => {
            set("batch", number.into());
            set("goal", String::from_utf8_lossy(goal).into());
            set("requests", requests.into());
            set("bytes", bytes.into());
        }
        Record::Flushed { number } | Record::Failed { number } => set("batch", number.into()),
        Record::Lost { events } => set("events", events.into()),
        Record::Commit { .. } => set("discarded", state.has_discarded.into()),
        Record::Awaited { ticket, .. } | Record::Reached { ticket } => set("ticket", ticket.into()),
        _ => {}
    }
    if let Record::Create { change, .. } | Record::Merge { change, .. } = record {
        match change {
            crate::record::Change::Bytes {
                offset_bytes,
                len_bytes,
            } => {
                set("offset_bytes", (*offset_bytes).into());
                set("len_bytes", (*len_bytes).into());
            }
            crate::record::Change::Flip { offset_bytes, mask } => {
                set("offset_bytes", (*offset_bytes).into());
                set("mask", (*mask).into());
            }
            crate::record::Change::Nothing => {}
        }
    }
    out
}
