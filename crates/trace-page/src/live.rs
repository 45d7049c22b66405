//! The page of a mount that is being recorded: the moment after the newest record, and the last of
//! the recording, halted at some moment.
//!
//! What is halted is a trace like any other, whose questions are behind `at/` and its number. Its
//! thread owns the bytes. As long as nobody halts, only the newest state is asked about.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstitch_trace::Error;
use backstitch_trace::index::{Bounds, Kind, Snapshot, Tail};
use serde_json::{Value, json};

use crate::answers::{self, Answering, Answers, Reply};
use crate::query::Query;

/// What is kept of a recording.
const BOUNDS: Bounds = Bounds {
    most_bytes: 16 << 20,
    most_time: Duration::from_secs(60),
};
/// Halted recordings at a time, each of which holds a copy of what is kept.
const MOST_HALTED: usize = 2;
/// Operations that are told of while the page follows.
const MOST_OPERATIONS: usize = 14;

/// A question to a halted recording, and where its answer goes.
type Question = (String, Sender<Reply>);

/// A recording that was halted. Its thread ends with the sender.
struct Halted {
    id: u64,
    questions: Sender<Question>,
}

#[derive(Default)]
struct Inner {
    /// None before the head has come.
    tail: Option<Tail>,
    /// How many recordings there have been.
    recordings: u64,
    /// Why there is no more to come.
    ended: Option<String>,
    halted: VecDeque<Halted>,
    halts: u64,
}

/// The recording of a mount, from which the page is answered while it goes on.
pub struct Live {
    name: String,
    inner: Mutex<Inner>,
}

impl Live {
    /// Of the mount that is called this.
    pub fn new(name: String) -> Live {
        Live {
            name,
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A recording begins with this head. What there is of one before is forgotten.
    ///
    /// # Errors
    /// Where it is the head of no trace, or of one of another version.
    pub fn begin(&self, head: Vec<u8>) -> Result<(), Error> {
        let tail = Tail::new(head, BOUNDS)?;
        let mut inner = self.inner();
        inner.tail = Some(tail);
        inner.recordings += 1;
        Ok(())
    }

    /// The recording goes on with this chunk.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn take(&self, chunk: Vec<u8>) -> Result<(), Error> {
        match &mut self.inner().tail {
            Some(tail) => tail.take(chunk),
            None => Err(Error::NoTrace),
        }
    }

    /// There is no more to come, for this reason. What there is can still be looked at.
    pub fn end(&self, why: &str) {
        self.inner().ended = Some(why.to_owned());
    }

    fn document(&self, path: &str, query: Query<'_>) -> Option<Reply> {
        let mut inner = self.inner();
        let name = &self.name;
        Some(match path {
            "about" => Reply::json(&json!({
                "name": name,
                "is_live": true,
                "description": inner.tail.as_ref().map(Tail::description),
                "bounds": {"seconds": BOUNDS.most_time.as_secs(), "bytes": BOUNDS.most_bytes},
            })),
            "live" => Reply::json(&inner.live(query)),
            "halt" => answers::reply(inner.halt(name)),
            _ => return None,
        })
    }

    /// The answer of a halted recording.
    fn halted(&self, rest: &str) -> Reply {
        let (id, request) = rest.split_once('/').unwrap_or((rest, ""));
        let questions = id.parse().ok().and_then(|id: u64| {
            let halted = &self.inner().halted;
            let found = halted.iter().find(|of| of.id == id);
            found.map(|of| of.questions.clone())
        });
        let gone = || {
            let why = "what was halted has been forgotten: others have halted since. Follow again";
            answers::reply(Err(why.to_owned()))
        };
        let (answer, answered) = channel();
        let asked = questions.map(|of| of.send((request.to_owned(), answer)));
        match asked {
            Some(Ok(())) => answered.recv().unwrap_or_else(|_| gone()),
            Some(Err(_)) | None => gone(),
        }
    }
}

impl Answering for Live {
    fn answer(&self, request: &str, nonce: &str) -> Reply {
        let (path, query) = request.split_once('?').unwrap_or((request, ""));
        if path.is_empty() {
            return answers::page(nonce);
        }
        if let Some(rest) = request.strip_prefix("at/") {
            return self.halted(rest);
        }
        let found = self.document(path, Query(query));
        found.unwrap_or_else(|| Reply::refused(404))
    }
}

impl Inner {
    /// The newest moment, unless it is the one that is known: that after the records up to `since`
    /// of a recording.
    fn live(&self, query: Query<'_>) -> Value {
        let mut document = json!({"recording": self.recordings, "ended": self.ended});
        let Some(tail) = self.tail.as_ref().filter(|tail| tail.records() > 0) else {
            document["records"] = 0.into();
            return document;
        };
        let (first, records) = (tail.first(), tail.records());
        document["records"] = records.into();
        let is_known = query.number("since") == Some(records)
            && query.number("recording") == Some(self.recordings);
        if is_known {
            return document;
        }
        let last = records - 1;
        let operations = tail.line().spans(Kind::Operation);
        let newest = &operations[operations.len().saturating_sub(MOST_OPERATIONS)..];
        let newest = newest.iter().map(|of| json!([of.first, of.label]));
        let kept = tail.end().time.saturating_sub(tail.began());
        document["first"] = first.into();
        document["seconds"] = kept.as_secs_f64().into();
        document["operations"] = newest.collect();
        document["line"] = tail.line().page(first, last, answers::MOST_SPANS);
        document["moment"] = answers::moment_of(tail.end(), last, last, query);
        document
    }

    fn halt(&mut self, name: &str) -> Result<Value, String> {
        let tail = self.tail.as_ref().filter(|tail| tail.records() > 0);
        let snapshot = tail.ok_or("nothing has happened yet")?.snapshot();
        let (questions, asked) = channel();
        let first = snapshot.first();
        let name = name.to_owned();
        let thread = std::thread::Builder::new().name("halted".to_owned());
        let started = thread.spawn(move || attend(name, &snapshot, &asked));
        started.map_err(|error| error.to_string())?;
        self.halts += 1;
        let id = self.halts;
        self.halted.push_back(Halted { id, questions });
        while self.halted.len() > MOST_HALTED {
            self.halted.pop_front();
        }
        Ok(json!({"halted": id, "first": first, "recording": self.recordings}))
    }
}

/// Answers what is asked about a halted recording, until nobody can ask any more.
fn attend(name: String, snapshot: &Snapshot, asked: &Receiver<Question>) {
    let Ok(trace) = snapshot.trace() else {
        return;
    };
    let answers = Answers::new(name, trace);
    for (request, answer) in asked {
        // Who asked may be gone.
        let _ = answer.send(answers.document(&request));
    }
}
