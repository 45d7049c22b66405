//! The recorder: a watcher of a store that writes down what happens.
//!
//! It is called under the mount's lock. There it codes the record into the chunk under way
//! ([`take`]), and does nothing else: a full chunk is handed to a thread that writes it, kept for
//! whoever asks, or put into a ring of which the oldest one is dropped ([`out`]). None of these
//! waits, and each holds a bounded number of bytes. Where there is no room for a chunk the trace
//! ends after it. What happens from then on is counted, and the count is the trace's last record.

mod out;
mod take;

use std::io::{self, Write};
use std::thread::JoinHandle;

use backstitch_patch::PatchId;
use backstitch_store::{Happening, Watcher};
use parking_lot::Mutex;
use serde_json::Value;

use crate::file::{Chunk, head};
use crate::record::{Place, Record};
use crate::{RecordingError, Written};
use out::{Out, Refused};
use take::{Numbers, Tape, Under};

/// How far a recording is.
enum Stage {
    /// It records.
    Recording,
    /// There was no room for a chunk, which is kept for the end. Events since then are counted.
    Full { unsent: Vec<u8>, lost: u64 },
    /// It has been ended, or its writer has failed.
    Ended,
}

struct Inner {
    tape: Tape,
    out: Out,
    stage: Stage,
    with_contents: bool,
    numbers: Numbers,
    places: Vec<Option<Place>>,
    under: Under,
    scopes: u64,
}

/// Writes down what happens in a store; see [`Store::watch`](backstitch_store::Store::watch).
pub struct Recorder {
    head: Vec<u8>,
    inner: Mutex<Inner>,
    writer: Mutex<Option<JoinHandle<io::Result<u64>>>>,
}

/// What is to be recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What it is of: a JSON object. `root`, the number of the root directory, is used for paths.
    pub description: Value,
    /// The bytes of everything that is written too, so that they can be [replayed](crate::replay).
    pub with_contents: bool,
}

impl Recorder {
    fn to(recording: &Recording, out: Out) -> Recorder {
        Recorder {
            head: head(&recording.description, recording.with_contents),
            inner: Mutex::new(Inner {
                tape: Tape::new(),
                out,
                stage: Stage::Recording,
                with_contents: recording.with_contents,
                numbers: Numbers::default(),
                places: Vec::new(),
                under: Under::default(),
                scopes: 0,
            }),
            writer: Mutex::default(),
        }
    }

    /// A recorder that keeps everything in memory, and ends after about `most_bytes`.
    pub fn in_memory(recording: &Recording, most_bytes: usize) -> Recorder {
        Recorder::to(recording, Out::memory(most_bytes))
    }

    /// A recorder that keeps about the last `most_bytes`, and what all before came to.
    pub fn of_the_last(recording: &Recording, most_bytes: usize) -> Recorder {
        Recorder::to(recording, Out::ring(most_bytes))
    }

    /// A recorder that has a thread write. Each call of `write` gets the head or a whole chunk.
    ///
    /// # Errors
    /// The system's, where it gives us no thread.
    pub fn into_writer(
        recording: &Recording,
        writer: impl Write + Send + 'static,
    ) -> io::Result<Recorder> {
        let head = head(&recording.description, recording.with_contents);
        let (out, thread) = Out::writer(head, writer)?;
        let recorder = Recorder::to(recording, out);
        *recorder.writer.lock() = Some(thread);
        Ok(recorder)
    }

    /// Whether it has stopped recording: it was ended, there was no more room, or its writer failed.
    pub fn is_over(&self) -> bool {
        self.inner.lock().has_ended()
    }

    /// Records what the first volume holds as the recording begins, before anything else: its parts
    /// that are not zeros. The description says with `image_bytes` and `log_bytes` how long it is.
    pub fn put_image(&self, bytes: &[u8]) {
        self.inner.lock().image(bytes);
    }

    /// Hands over what there is although the chunk is not full, so that whoever follows the recording
    /// need not wait for that.
    pub fn pass_on(&self) {
        self.inner.lock().pass_on();
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.inner.lock().tape.chunk.records_in_all()
    }

    /// How many events could not be kept.
    pub fn lost(&self) -> u64 {
        match self.inner.lock().stage {
            Stage::Full { lost, .. } => lost,
            Stage::Recording | Stage::Ended => 0,
        }
    }

    /// The number of a patch in the trace, if it has been named.
    pub fn number_of(&self, id: PatchId) -> Option<u64> {
        self.inner.lock().numbers.known(id)
    }

    /// Ends a recording in memory or of the last of it; the trace. Nothing of one into a writer.
    pub fn finish(&self) -> Vec<u8> {
        let ending = self.inner.lock().end();
        let mut trace = self.head.clone();
        match ending.out {
            Out::Writer { .. } | Out::Nowhere => return Vec::new(),
            kept => kept.append_to(&mut trace),
        }
        ending.rest.iter().for_each(|chunk| trace.extend(chunk));
        trace
    }

    /// Ends a recording into a writer, and waits until all is written.
    ///
    /// # Errors
    /// Where not everything could be written, or was kept.
    pub fn finish_writing(&self) -> Result<Written, RecordingError> {
        let ending = self.inner.lock().end();
        if let Out::Writer { chunks, .. } = &ending.out {
            for chunk in ending.rest {
                // Why it fails is learnt below.
                let _ = chunks.send(chunk);
            }
        }
        drop(ending.out);
        let writer = self.writer.lock().take();
        let bytes = match writer {
            Some(writer) => writer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that writes it has died")))?,
            None => 0,
        };
        let kept = Written {
            bytes,
            records: self.records(),
        };
        match ending.lost {
            Some(events) => Err(RecordingError::Lost { events, kept }),
            None => Ok(kept),
        }
    }
}

impl Watcher for Recorder {
    fn happened(&self, what: &Happening<'_>) {
        let mut inner = self.inner.lock();
        if inner.has_ended() {
            return inner.count_lost();
        }
        inner.take_down(what);
        if inner.tape.chunk.is_full() {
            inner.pass_on();
        }
    }
}

/// What is left to do at the end of a recording, without a lock.
struct Ending {
    out: Out,
    /// Chunks that follow what `out` has.
    rest: Vec<Vec<u8>>,
    /// How many events are missing, where any are.
    lost: Option<u64>,
}

impl Inner {
    fn has_ended(&self) -> bool {
        !matches!(self.stage, Stage::Recording)
    }

    /// Counts an event that comes too late, or has not all of itself in the trace.
    fn count_lost(&mut self) {
        if let Stage::Full { lost, .. } = &mut self.stage {
            *lost += 1;
        }
    }

    /// Hands the chunk under way over.
    fn pass_on(&mut self) {
        if self.tape.chunk.is_empty() || self.has_ended() {
            return;
        }
        let chunk = self.tape.chunk.close(self.out.spare());
        self.stage = match self.out.take(chunk) {
            Ok(()) => Stage::Recording,
            Err(Refused::Full(unsent)) => Stage::Full { unsent, lost: 0 },
            Err(Refused::Ended) => Stage::Ended,
        };
    }

    /// Ends the recording.
    fn end(&mut self) -> Ending {
        let (mut rest, mut lost) = (Vec::new(), None);
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Recording => self.tape.chunk.put(&Record::Finished),
            Stage::Full {
                unsent,
                lost: events,
            } => {
                rest.push(unsent);
                self.tape.chunk.put(&Record::Lost { events });
                lost = Some(events);
            }
            Stage::Ended => self.tape.chunk = Chunk::new(),
        }
        if !self.tape.chunk.is_empty() {
            rest.push(self.tape.chunk.close(Vec::new()));
        }
        Ending {
            out: std::mem::replace(&mut self.out, Out::Nowhere),
            rest,
            lost,
        }
    }
}
