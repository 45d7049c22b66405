//! The last of a recording that goes on: its newest records, the state before the first of them, the
//! state after the last, and what happened in between.
//!
//! What is older is forgotten a chunk at a time. The state before what is kept has what the forgotten
//! records came to, with the names of files, so the graph is complete at every moment that is kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Line;
use crate::file::Records;
use crate::state::{Keep, State};
use crate::{Error, Trace};

/// How much of a recording is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of records. The spans of the time line take some ten times as much memory at most.
    pub most_bytes: usize,
    /// How long before the last record.
    pub most_time: Duration,
}

/// A chunk that is kept.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    /// The time of its last record.
    ends: Duration,
}

/// The last of a recording; see the module's documentation.
#[derive(Debug)]
pub struct Tail {
    head: Vec<u8>,
    bounds: Bounds,
    before: State,
    chunks: VecDeque<Kept>,
    bytes: usize,
    /// Bytes that were forgotten since the time line was told of it.
    forgotten: usize,
    end: State,
    line: Line,
}

impl Tail {
    /// Of a recording that begins with this head.
    ///
    /// # Errors
    /// Where that is the head of no trace, or of one of another version.
    pub fn new(head: Vec<u8>, bounds: Bounds) -> Result<Tail, Error> {
        let before = State::of(&Trace::new(&head)?, Keep::Live);
        Ok(Tail {
            end: before.clone(),
            before,
            head,
            bounds,
            chunks: VecDeque::new(),
            bytes: 0,
            forgotten: 0,
            line: Line::default(),
        })
    }

    /// Takes the next chunk, and forgets what is beyond the bounds. The newest chunk always stays.
    ///
    /// # Errors
    /// Where it is damaged. What it has before the damage counts.
    pub fn take(&mut self, chunk: Vec<u8>) -> Result<(), Error> {
        let (mut records, mut list) = (Records::of(&chunk, 0), Vec::new());
        let damage = loop {
            match records.next(&mut list) {
                Ok(Some((number, record))) => {
                    self.end.apply(&record);
                    self.line.note(number, &record, &self.end);
                    self.end.records = number + 1;
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        self.end.forget_long_discarded();
        self.bytes += chunk.len();
        self.chunks.push_back(Kept {
            bytes: chunk,
            ends: self.end.time,
        });
        self.forget();
        self.line.finish(self.records());
        damage.map_or(Ok(()), Err)
    }

    fn forget(&mut self) {
        while self.chunks.len() > 1
            && self.chunks.front().is_some_and(|oldest| {
                self.bytes > self.bounds.most_bytes
                    || self.end.time.saturating_sub(oldest.ends) > self.bounds.most_time
            })
            && let Some(oldest) = self.chunks.pop_front()
        {
            self.bytes -= oldest.bytes.len();
            self.forgotten += oldest.bytes.len();
            self.before.apply_chunk(&oldest.bytes);
        }
        self.before.forget_long_discarded();
        // The time line is gone through as a whole: not for every chunk.
        if self.forgotten > self.bytes / 2 {
            self.forgotten = 0;
            self.line.forget_before(self.before.records);
        }
    }

    /// The state after the last record.
    pub fn end(&self) -> &State {
        &self.end
    }

    /// What happened when. Records are counted from the beginning of the recording. A little of what
    /// was before [`first`](Self::first) may still be in it.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// What the recording is of.
    pub fn description(&self) -> serde_json::Value {
        Trace::new(&self.head).map_or_else(|_| serde_json::Value::Null, |trace| trace.description)
    }

    /// The number of the first record that is kept.
    pub fn first(&self) -> u64 {
        self.before.records
    }

    /// How many records there were since the beginning.
    pub fn records(&self) -> u64 {
        self.end.records
    }

    /// The time of the last record before those that are kept, since the mount.
    pub fn began(&self) -> Duration {
        self.before.time
    }

    /// Bytes of the records that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.bytes
    }

    /// What is kept, as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let mut bytes = self.head.clone();
        bytes.reserve(self.bytes);
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk.bytes);
        }
        Snapshot {
            bytes,
            before: Arc::new(self.before.clone()),
            first: self.first(),
        }
    }
}

/// The last of a recording as it was at some moment.
#[derive(Debug)]
pub struct Snapshot {
    bytes: Vec<u8>,
    before: Arc<State>,
    first: u64,
}

impl Snapshot {
    /// As a trace, which begins with the state before its first record.
    ///
    /// # Errors
    /// None: its head has been read before.
    pub fn trace(&self) -> Result<Trace<'_>, Error> {
        let trace = Trace::new(&self.bytes)?;
        Ok(trace.beginning_with(self.before.clone()))
    }

    /// The number of its first record in the recording.
    pub fn first(&self) -> u64 {
        self.first
    }
}
