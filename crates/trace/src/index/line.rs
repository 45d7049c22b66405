//! What happened when: operations, batches and waits, in the order in which they began.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::names::cut_short;
use crate::record::Record;
use crate::state::State;

/// Stretches of the trace of which it is known how many patches at most were not on the disk.
const MOST_SAMPLES: usize = 1024;
/// Bytes of all labels together, beyond which further ones are cut short.
const MOST_LABEL_BYTES: usize = 64 << 20;
/// Bytes of a label that is cut short.
const SHORT_LABEL_BYTES: usize = 64;

/// What a span of the time line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An operation that changed something.
    Operation,
    /// A batch of writes, until it is on stable storage.
    Batch,
    /// Somebody who waited for patches.
    Wait,
}

/// Something that lasted.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The number of the operation or the batch, or the ticket of the wait.
    pub number: u64,
    /// What it was, in a few words.
    pub label: String,
    /// The record that it began with, and when.
    pub first: u64,
    /// See `first`.
    pub began_seconds: f64,
    /// The record that it ended with, and when; of one that did not end, none.
    pub last: Option<u64>,
    /// See `last`.
    pub ended_seconds: Option<f64>,
    /// Of a batch that reached stable storage: the record from which on the trace has told of all
    /// that it committed.
    pub settled: Option<u64>,
}

/// The time line of a trace.
#[derive(Clone, Debug, Default)]
pub struct Line {
    operations: Vec<Span>,
    batches: Vec<Span>,
    waits: Vec<Span>,
    /// Of what is open: where it is in its list.
    open_operation: Option<usize>,
    open_batches: BTreeMap<u64, usize>,
    open_waits: BTreeMap<u64, usize>,
    /// The batches that flushes have ended, and that are not settled yet.
    arriving: Vec<usize>,
    /// Of each stretch: the record in it after which the most patches were not on the disk, and how
    /// many.
    samples: Vec<(u64, usize)>,
    /// Records in a stretch.
    distance: u64,
    label_bytes: usize,
    records: u64,
}

impl Line {
    /// Takes note of a record; the state is that after it.
    pub(super) fn note(&mut self, at: u64, record: &Record<'_>, state: &State) {
        self.sample(at, state);
        let seconds = state.time.as_secs_f64();
        let span = |number: u64, label: String| Span {
            number,
            label,
            first: at,
            began_seconds: seconds,
            last: None,
            ended_seconds: None,
            settled: None,
        };
        match *record {
            Record::Begin { scope, .. } => {
                let label = state.scope(scope).map_or("", |scope| &scope.label);
                let label = self.kept(label);
                self.open_operation = Some(self.operations.len());
                self.operations.push(span(scope, label));
            }
            Record::Batch {
                number,
                goal,
                requests,
                bytes,
            } => {
                let goal = crate::names::printable(&String::from_utf8_lossy(goal));
                let goal = cut_short(&goal, SHORT_LABEL_BYTES);
                let label = format!("{goal}: {requests} requests, {bytes} bytes");
                self.open_batches.insert(number, self.batches.len());
                self.batches.push(span(number, label));
            }
            Record::Awaited { ticket, patches } => {
                let label = format!("for {} patches", patches.len());
                self.open_waits.insert(ticket, self.waits.len());
                self.waits.push(span(ticket, label));
            }
            Record::End => {
                let open = self.open_operation.take();
                end(&mut self.operations, open, at, seconds);
            }
            Record::Flushed { number } => {
                let open = self.open_batches.remove(&number);
                end(&mut self.batches, open, at, seconds);
                self.arriving.extend(open);
            }
            Record::Failed { number } => {
                let open = self.open_batches.remove(&number);
                end(&mut self.batches, open, at, seconds);
            }
            Record::Reached { ticket } => {
                let open = self.open_waits.remove(&ticket);
                end(&mut self.waits, open, at, seconds);
            }
            _ => {}
        }
        if !state.is_arriving() {
            for batch in self.arriving.drain(..) {
                self.batches[batch].settled = Some(at);
            }
        }
    }

    fn sample(&mut self, at: u64, state: &State) {
        self.distance = self.distance.max(1);
        self.offer((at, state.pending_count()));
        if self.samples.len() > MOST_SAMPLES {
            self.distance *= 2;
            for sample in std::mem::take(&mut self.samples) {
                self.offer(sample);
            }
        }
    }

    /// Keeps the larger one of a stretch's samples.
    fn offer(&mut self, sample: (u64, usize)) {
        match self.samples.last_mut() {
            Some(last) if last.0 / self.distance == sample.0 / self.distance => {
                if sample.1 > last.1 {
                    *last = sample;
                }
            }
            _ => self.samples.push(sample),
        }
    }

    /// Records in a stretch of which only the largest number of patches is known.
    pub(super) fn distance(&self) -> u64 {
        self.distance.max(1)
    }

    /// A label as it is kept.
    fn kept(&mut self, label: &str) -> String {
        let most = match self.label_bytes < MOST_LABEL_BYTES {
            true => usize::MAX,
            false => SHORT_LABEL_BYTES,
        };
        let label = cut_short(label, most);
        self.label_bytes += label.len();
        label
    }

    /// Forgets what had ended before this record.
    pub(super) fn forget_before(&mut self, record: u64) {
        let is_open = |at: usize| self.open_operation == Some(at);
        let kept = forget(&mut self.operations, record, is_open);
        self.open_operation = self.open_operation.and_then(|at| kept[at]);
        let is_open = |at: usize| {
            self.open_batches.values().any(|of| *of == at) || self.arriving.contains(&at)
        };
        let kept = forget(&mut self.batches, record, is_open);
        (self.open_batches.values_mut()).for_each(|at| *at = kept[*at].unwrap_or(0));
        (self.arriving.iter_mut()).for_each(|at| *at = kept[*at].unwrap_or(0));
        let is_open = |at: usize| self.open_waits.values().any(|of| *of == at);
        let kept = forget(&mut self.waits, record, is_open);
        (self.open_waits.values_mut()).for_each(|at| *at = kept[*at].unwrap_or(0));
        self.samples.retain(|(at, _)| *at >= record);
        if self.samples.len() < MOST_SAMPLES / 4 {
            self.distance = (self.distance / 2).max(1);
        }
        self.label_bytes = self.operations.iter().map(|span| span.label.len()).sum();
    }

    pub(super) fn finish(&mut self, records: u64) {
        self.records = records;
    }

    /// Its spans of a kind.
    pub fn spans(&self, kind: Kind) -> &[Span] {
        match kind {
            Kind::Operation => &self.operations,
            Kind::Batch => &self.batches,
            Kind::Wait => &self.waits,
        }
    }

    /// What there is between two records, for programs: the keys stay. Neighbours are put together
    /// where there are more than `most` of a kind.
    pub fn page(&self, from: u64, to: u64, most: usize) -> Value {
        // One more on each side, so that a line through them does not begin in the middle.
        let first = self.samples.partition_point(|(at, _)| *at < from);
        let last = self.samples.partition_point(|(at, _)| *at <= to);
        let last = last.saturating_add(1).min(self.samples.len());
        let samples = &self.samples[first.saturating_sub(1).min(last)..last];
        let samples = samples.iter().map(|(at, count)| json!([at, count]));
        json!({
            "from": from,
            "to": to,
            "operations": self.gathered(Kind::Operation, from, to, most),
            "batches": self.gathered(Kind::Batch, from, to, most),
            "waits": self.gathered(Kind::Wait, from, to, most),
            "not_on_disk": samples.collect::<Vec<_>>(),
        })
    }

    fn gathered(&self, kind: Kind, from: u64, to: u64, most: usize) -> Vec<Value> {
        let spans = self.spans(kind).iter();
        let is_there = |span: &&Span| span.first <= to && span.last.is_none_or(|at| at >= from);
        let spans: Vec<&Span> = spans.filter(is_there).collect();
        let each = spans.len().div_ceil(most.max(1)).max(1);
        let together = spans.chunks(each).filter_map(|some| match some {
            [] => None,
            [one] => Some(one.json()),
            [first, ..] => {
                let last = some.iter().map(|span| span.last.unwrap_or(self.records));
                Some(json!({
                    "count": some.len(),
                    "first": first.first,
                    "last": last.max(),
                    "label": format!("{} of them, from {}", some.len(), first.label),
                }))
            }
        });
        together.collect()
    }

    /// The record to go to for the span after this one, or before it: an operation's end, a batch's
    /// or a wait's beginning.
    pub fn next(&self, kind: Kind, record: u64, is_back: bool) -> Option<u64> {
        let at = |span: &Span| match kind {
            Kind::Operation => span.last,
            Kind::Batch | Kind::Wait => Some(span.first),
        };
        let all = self.spans(kind).iter().filter_map(at);
        nearest(all, record, is_back)
    }

    /// The record of the flush after this record, or before it: the one from which on the trace has
    /// told of all that the flush committed.
    pub fn next_flush(&self, record: u64, is_back: bool) -> Option<u64> {
        let all = self.batches.iter().filter_map(|of| of.settled);
        nearest(all, record, is_back)
    }

    /// Operations whose words have this text in them, from a record on, at most so many.
    pub fn search(&self, text: &str, from: u64, most: usize) -> Vec<&Span> {
        let all = self.operations.iter().filter(|of| of.first >= from);
        all.filter(|of| of.label.contains(text))
            .take(most)
            .collect()
    }
}

impl Span {
    /// For programs: the keys stay.
    pub fn json(&self) -> Value {
        json!({
            "number": self.number,
            "label": self.label,
            "first": self.first,
            "last": self.last,
            "began_seconds": self.began_seconds,
            "ended_seconds": self.ended_seconds,
        })
    }
}

/// Forgets the spans that are not open and had ended before a record; where each of them is now.
fn forget(
    spans: &mut Vec<Span>,
    record: u64,
    is_open: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    let mut stay = 0;
    let places = spans.iter().enumerate().map(|(at, span)| {
        let is_kept = span.last.is_some_and(|last| last >= record) || is_open(at);
        stay += usize::from(is_kept);
        is_kept.then(|| stay - 1)
    });
    let places: Vec<Option<usize>> = places.collect();
    let mut all = places.iter();
    spans.retain(|_| all.next().is_some_and(Option::is_some));
    places
}

fn end(spans: &mut [Span], open: Option<usize>, at: u64, seconds: f64) {
    if let Some(span) = open.and_then(|open| spans.get_mut(open)) {
        (span.last, span.ended_seconds) = (Some(at), Some(seconds));
    }
}

fn nearest(all: impl Iterator<Item = u64>, record: u64, is_back: bool) -> Option<u64> {
    match is_back {
        true => all.filter(|at| *at < record).max(),
        false => all.filter(|at| *at > record).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_labels_together_have_a_bound() {
        let mut line = Line::default();
        let long = "x".repeat(8192);
        let bytes = (0..20_000).map(|_| line.kept(&long).len()).sum::<usize>();
        assert_eq!(bytes, line.label_bytes);
        let beyond = 20_000 * (SHORT_LABEL_BYTES + 3) + long.len();
        assert!(bytes < MOST_LABEL_BYTES + beyond, "{bytes}");
        assert!(bytes > MOST_LABEL_BYTES);
    }
}
