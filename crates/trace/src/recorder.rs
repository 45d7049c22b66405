//! The recorder: a watcher of a store that writes down what happens.
//!
//! It is called under the mount's lock. There it codes the record into the chunk under way, and
//! does nothing else: a full chunk is handed to a thread that writes it, kept for whoever asks, or
//! put into a ring of which the oldest one is dropped. Where the thread does not keep up the trace
//! ends, and says so; the file system is never made to wait for it. So the memory is bounded in
//! every case.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_device::WriteRequest;
use backstitch_patch::{BlockId, Change as Changing, Event, PatchId};
use backstitch_store::{Happening, Placement, Scope, VolumeId, Watcher};
use parking_lot::Mutex;
use serde_json::Value;

use crate::file::{Chunk, head};
use crate::record::{Change, Place, Record};
use crate::state::{Keep, State};

/// Chunks that wait for the thread that writes them: about 16 MiB.
const MOST_WAITING: usize = 256;

/// Where chunks go.
enum Out {
    /// They are kept.
    Memory(Vec<Vec<u8>>),
    /// The last ones are kept; what the others came to is known.
    Ring {
        chunks: VecDeque<Vec<u8>>,
        bytes: usize,
        most_bytes: usize,
        before: Box<State>,
    },
    /// A thread writes them, and gives their memory back.
    File {
        chunks: SyncSender<Vec<u8>>,
        spare: Receiver<Vec<u8>>,
        /// The chunk that ends the trace, where not everything could be taken down.
        last: Arc<Mutex<Option<Vec<u8>>>>,
    },
    /// More came than the thread could write, or it failed.
    Nowhere,
}

/// What is known of the operation under way.
#[derive(Default)]
struct Under {
    /// It is recorded, with this number.
    is_open: bool,
    /// Its record, as long as it has changed nothing: who looks only, or has to wait first, leaves
    /// no trace.
    objects: Vec<u64>,
    names: [Vec<u8>; 2],
    names_count: usize,
    word: &'static str,
    range_bytes: (u64, u64),
    is_waiting: bool,
}

struct Inner {
    chunk: Chunk,
    out: Out,
    with_contents: bool,
    /// Of each place in the graph's table of patches: which of its users has which number.
    numbers: Vec<(u32, u64)>,
    last_number: u64,
    places: Vec<Option<Place>>,
    now: Duration,
    told: Duration,
    under: Under,
    scopes: u64,
    list: Vec<u64>,
    is_over: bool,
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
                chunk: Chunk::new(),
                out,
                with_contents: recording.with_contents,
                numbers: Vec::new(),
                last_number: 0,
                places: Vec::new(),
                now: Duration::ZERO,
                told: Duration::ZERO,
                under: Under::default(),
                scopes: 0,
                list: Vec::new(),
                is_over: false,
            }),
            writer: Mutex::default(),
        }
    }

    /// A recorder that keeps everything in memory.
    pub fn in_memory(recording: &Recording) -> Recorder {
        Recorder::to(recording, Out::Memory(Vec::new()))
    }

    /// A recorder that keeps about the last `most_bytes`, and what all before came to.
    pub fn of_the_last(recording: &Recording, most_bytes: usize) -> Recorder {
        let ring = Out::Ring {
            chunks: VecDeque::new(),
            bytes: 0,
            most_bytes,
            before: Box::new(State::new(Keep::Live)),
        };
        Recorder::to(recording, ring)
    }

    /// A recorder that has a thread write into a file.
    ///
    /// # Errors
    /// The system's, where it gives us no thread.
    pub fn into_file(recording: &Recording, mut file: File) -> io::Result<Recorder> {
        let (sender, chunks) = sync_channel::<Vec<u8>>(MOST_WAITING);
        let (give_back, spare) = sync_channel(MOST_WAITING);
        let last = Arc::new(Mutex::new(None));
        let out = Out::File {
            chunks: sender,
            spare,
            last: last.clone(),
        };
        let recorder = Recorder::to(recording, out);
        let head = recorder.head.clone();
        let writer = std::thread::Builder::new().name("backstitch-trace".into());
        let writer = writer.spawn(move || {
            file.write_all(&head)?;
            let mut written = head.len() as u64;
            for chunk in chunks {
                file.write_all(&chunk)?;
                written += chunk.len() as u64;
                // Where there is no room for it, it is freed.
                let _ = give_back.try_send(chunk);
            }
            if let Some(chunk) = last.lock().take() {
                file.write_all(&chunk)?;
                written += chunk.len() as u64;
            }
            file.flush()?;
            Ok(written)
        })?;
        *recorder.writer.lock() = Some(writer);
        Ok(recorder)
    }

    /// Whether it has stopped recording because more came than could be written, or the writing
    /// failed.
    pub fn is_over(&self) -> bool {
        self.inner.lock().is_over
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.inner.lock().chunk.records_in_all()
    }

    /// The number of a patch in the trace, if it has been named.
    pub fn number_of(&self, id: PatchId) -> Option<u64> {
        let (place, generation) = id.place();
        let inner = self.inner.lock();
        let found = inner.numbers.get(place as usize);
        found
            .filter(|(of, number)| *of == generation && *number > 0)
            .map(|(_, number)| *number)
    }

    /// Ends a recording in memory or of the last of it; the trace. Nothing of one into a file.
    pub fn finish(&self) -> Vec<u8> {
        let mut inner = self.inner.lock();
        inner.pass_on();
        inner.is_over = true;
        let mut trace = self.head.clone();
        match std::mem::replace(&mut inner.out, Out::Nowhere) {
            Out::Memory(chunks) => chunks.iter().for_each(|chunk| trace.extend(chunk)),
            Out::Ring { chunks, before, .. } => {
                trace.extend(before.as_chunk());
                chunks.iter().for_each(|chunk| trace.extend(chunk));
            }
            Out::File { .. } | Out::Nowhere => return Vec::new(),
        }
        trace
    }

    /// Ends a recording into a file; its length.
    ///
    /// # Errors
    /// Where not everything could be written.
    pub fn finish_file(&self) -> io::Result<u64> {
        let mut inner = self.inner.lock();
        inner.pass_on();
        inner.is_over = true;
        inner.out = Out::Nowhere;
        drop(inner);
        match self.writer.lock().take() {
            Some(writer) => writer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that writes it has died"))),
            None => Ok(0),
        }
    }
}

impl Watcher for Recorder {
    fn happened(&self, what: &Happening<'_>) {
        let mut inner = self.inner.lock();
        if inner.is_over {
            return;
        }
        inner.take_down(what);
        if inner.chunk.is_full() {
            inner.pass_on();
        }
    }
}

impl Inner {
    /// Hands the chunk under way over.
    fn pass_on(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let spare = match &self.out {
            Out::File { spare, .. } => spare.try_recv().unwrap_or_default(),
            _ => Vec::new(),
        };
        let chunk = self.chunk.close(spare);
        match &mut self.out {
            Out::Memory(chunks) => chunks.push(chunk),
            Out::Ring {
                chunks,
                bytes,
                most_bytes,
                before,
            } => {
                *bytes += chunk.len();
                chunks.push_back(chunk);
                while *bytes > *most_bytes && chunks.len() > 1 {
                    let Some(oldest) = chunks.pop_front() else {
                        break;
                    };
                    *bytes -= oldest.len();
                    before.apply_chunk(&oldest);
                }
            }
            Out::File { chunks, last, .. } => {
                if chunks.try_send(chunk).is_err() {
                    self.chunk.put(&Record::Lost);
                    *last.lock() = Some(self.chunk.close(Vec::new()));
                    self.out = Out::Nowhere;
                    self.is_over = true;
                }
            }
            Out::Nowhere => {}
        }
    }

    /// Records something that belongs to no operation by itself.
    fn put(&mut self, record: &Record<'_>) {
        if self.now != self.told {
            self.told = self.now;
            self.chunk.put(&Record::Time(self.now));
        }
        self.chunk.put(record);
    }

    /// Records a change: if it is the first of an operation, that before.
    fn put_change(&mut self, record: &Record<'_>) {
        if self.under.is_waiting {
            self.open_scope();
        }
        self.put(record);
    }

    fn open_scope(&mut self) {
        let under = std::mem::take(&mut self.under);
        self.scopes += 1;
        let name = |at: usize| (at < under.names_count).then_some(&under.names[at][..]);
        let names = [name(0), name(1)];
        self.put(&Record::Begin {
            scope: self.scopes,
            word: under.word.as_bytes(),
            objects: &under.objects,
            names,
            range_bytes: under.range_bytes,
        });
        self.under = Under {
            is_open: true,
            is_waiting: false,
            ..under
        };
    }

    fn close_scope(&mut self) {
        self.under.is_waiting = false;
        if std::mem::take(&mut self.under.is_open) {
            self.put(&Record::End);
        }
    }

    fn begin(&mut self, scope: &Scope<'_>) {
        self.close_scope();
        let under = &mut self.under;
        under.is_waiting = true;
        under.word = scope.word;
        under.range_bytes = scope.range_bytes;
        under.objects.clear();
        under.objects.extend_from_slice(scope.objects);
        under.names_count = scope.names.len().min(2);
        for (kept, name) in under.names.iter_mut().zip(scope.names) {
            kept.clear();
            kept.extend_from_slice(name);
        }
    }

    fn place(&mut self, block: BlockId, placement: &Placement) {
        let place = Place {
            volume: placement.volume.0,
            offset_bytes: placement.offset_bytes,
            len_bytes: placement.len_bytes,
            class: placement.class,
        };
        let index = block.0 as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        if self.places[index] != Some(place) {
            self.places[index] = Some(place);
            self.put(&Record::Place {
                block: block.0,
                place,
            });
        }
    }

    /// The number of a patch; a new one where it has none yet. What is dead from the start has 0.
    fn number(&mut self, id: PatchId) -> u64 {
        let (place, generation) = id.place();
        if id == PatchId::COMMITTED {
            return 0;
        }
        let index = place as usize;
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, (0, 0));
        }
        let (of, number) = self.numbers[index];
        if of == generation && number > 0 {
            return number;
        }
        self.last_number += 1;
        self.numbers[index] = (generation, self.last_number);
        self.last_number
    }

    /// The numbers of patches, in a list that is to be given back.
    fn numbers_of(&mut self, ids: &[PatchId]) -> Vec<u64> {
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        for id in ids {
            // Those that nobody has named yet committed before the recording began.
            let (place, generation) = id.place();
            let known = self.numbers.get(place as usize);
            let known = known.filter(|(of, number)| *of == generation && *number > 0);
            list.extend(known.map(|(_, number)| *number));
        }
        list
    }

    fn take_down(&mut self, what: &Happening<'_>) {
        match what {
            Happening::Patch(event) => self.take_down_event(event),
            Happening::Place(block, placement) => self.place(*block, placement),
            Happening::Begin(now, scope) => {
                self.now = self.now.max(*now);
                self.begin(scope);
            }
            Happening::End => self.close_scope(),
            Happening::Made(object) => self.put_change(&Record::Made { object: *object }),
            Happening::Batch {
                now,
                number,
                goal,
                writes,
            } => {
                self.now = self.now.max(*now);
                let requests = writes.iter().flat_map(|(_, requests)| requests);
                let buffers = requests.clone().flat_map(|request| &request.buffers);
                self.put(&Record::Batch {
                    number: *number,
                    goal: goal.as_bytes(),
                    requests: requests.count() as u64,
                    bytes: buffers.map(|buffer| buffer.len() as u64).sum(),
                });
                if self.with_contents {
                    self.contents(writes);
                }
            }
            Happening::Flushed(now, number) => {
                self.now = self.now.max(*now);
                self.put(&Record::Flushed { number: *number });
            }
            Happening::Failed(number) => self.put(&Record::Failed { number: *number }),
            Happening::Awaited(now, ticket, targets) => {
                self.now = self.now.max(*now);
                let patches = self.numbers_of(targets);
                self.put(&Record::Awaited {
                    ticket: *ticket,
                    patches: &patches,
                });
                self.list = patches;
            }
            Happening::Reached(ticket) => self.put(&Record::Reached { ticket: *ticket }),
        }
    }

    fn contents(&mut self, writes: &[(VolumeId, Vec<WriteRequest>)]) {
        for (volume, requests) in writes {
            for request in requests {
                let mut offset_bytes = request.offset_bytes;
                for buffer in &request.buffers {
                    self.put(&Record::Contents {
                        volume: volume.0,
                        offset_bytes,
                        bytes: buffer,
                    });
                    offset_bytes += buffer.len() as u64;
                    if self.chunk.is_full() {
                        self.pass_on();
                    }
                }
            }
        }
    }

    fn take_down_event(&mut self, event: &Event<'_>) {
        match *event {
            Event::Create {
                id,
                kind,
                block,
                change,
                held,
                dependencies,
            } => {
                let patch = self.number(id);
                let stated = self.numbers_of(dependencies);
                self.put_change(&Record::Create {
                    patch,
                    kind,
                    held,
                    block: block.map(|block| block.0),
                    change: change.as_ref().map_or(Change::Nothing, range_of),
                    stated: &stated,
                });
                self.list = stated;
            }
            Event::Merge {
                into,
                kind,
                block,
                change,
                dependencies,
            } => {
                let into = self.number(into);
                let stated = self.numbers_of(dependencies);
                self.put_change(&Record::Merge {
                    into,
                    kind,
                    block: block.0,
                    change: range_of(&change),
                    stated: &stated,
                });
                self.list = stated;
            }
            Event::Forward { from, to } => {
                let (from, to) = (self.number(from), self.number(to));
                self.put_change(&Record::Forward { from, to });
            }
            Event::Split { from, block, to } => {
                let (from, to, block) = (self.number(from), self.number(to), block.0);
                self.put(&Record::Split { from, block, to });
            }
            Event::Leave { from, block, to } => {
                let (from, to, block) = (self.number(from), self.number(to), block.0);
                self.put(&Record::Leave { from, block, to });
            }
            Event::Supersede { from, block, to } => {
                let (from, to, block) = (self.number(from), self.number(to), block.0);
                self.put_change(&Record::Supersede { from, block, to });
            }
            Event::Wait { after, before } => {
                let (after, before) = (self.number(after), self.number(before));
                self.put(&Record::Wait { after, before });
            }
            Event::StopWaiting { after, before } => {
                let (after, before) = (self.number(after), self.number(before));
                self.put(&Record::StopWaiting { after, before });
            }
            Event::Release { id } => {
                let patch = self.number(id);
                self.put(&Record::Release { patch });
            }
            Event::Settle { targets } => {
                let patches = self.numbers_of(targets);
                self.put(&Record::Settle { patches: &patches });
                self.list = patches;
            }
            Event::Write {
                block,
                patches,
                rolled_back,
                ..
            } => {
                let patches = self.numbers_of(patches);
                self.put(&Record::Write {
                    block: block.0,
                    rolled_back,
                    patches: &patches,
                });
                self.list = patches;
            }
            Event::Harden { id } => {
                let patch = self.number(id);
                self.put_change(&Record::Harden { patch });
            }
            Event::Discard { block } => self.put_change(&Record::Discard { block: block.0 }),
            Event::Commit { id } => {
                let patch = self.number(id);
                self.put(&Record::Commit { patch });
            }
            Event::Present {
                id,
                kind,
                block,
                offset_bytes,
                len_bytes,
                in_flight,
                held,
            } => {
                let patch = self.number(id);
                self.put(&Record::Present {
                    patch,
                    kind,
                    held,
                    in_flight,
                    block: block.map(|block| block.0),
                    offset_bytes,
                    len_bytes,
                });
            }
        }
    }
}

fn range_of(change: &Changing<'_>) -> Change {
    match *change {
        Changing::Bytes {
            offset_bytes,
            bytes,
        } => Change::Bytes {
            offset_bytes,
            len_bytes: bytes.len() as u32,
        },
        Changing::Flip { offset_bytes, mask } => Change::Flip { offset_bytes, mask },
    }
}
