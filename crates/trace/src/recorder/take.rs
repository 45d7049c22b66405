//! How what happens becomes records.

use std::time::Duration;

use backstitch_device::WriteRequest;
use backstitch_patch::{BlockId, Change as Changing, Event, PatchId};
use backstitch_store::{Happening, Placement, Scope, VolumeId};

use super::Inner;
use crate::file::Chunk;
use crate::record::{Change, Place, Record};

/// Bytes of an image in one record.
const IMAGE_PART_BYTES: usize = 4096;

/// The chunk under way, and the time.
pub(super) struct Tape {
    pub(super) chunk: Chunk,
    /// The time, and how much of it is in the records already, in nanoseconds.
    now_ns: u64,
    told_ns: u64,
}

impl Tape {
    pub(super) fn new() -> Tape {
        Tape {
            chunk: Chunk::new(),
            now_ns: 0,
            told_ns: 0,
        }
    }

    #[inline]
    fn set_time(&mut self, now: Duration) {
        // It ends in 584 years.
        let now_ns = now.as_secs().saturating_mul(1_000_000_000);
        let now_ns = now_ns.saturating_add(u64::from(now.subsec_nanos()));
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Records something. Inlined, so that each caller has the writing of its own record only.
    #[inline(always)]
    fn put(&mut self, record: &Record<'_>) {
        if self.now_ns != self.told_ns {
            self.put_time();
        }
        self.chunk.put(record);
    }

    fn put_time(&mut self) {
        self.told_ns = self.now_ns;
        let now = Duration::from_nanos(self.now_ns);
        self.chunk.put(&Record::Time(now));
    }
}

/// The numbers of patches.
#[derive(Default)]
pub(super) struct Numbers {
    /// Of each place in the graph's table of patches: which of its users has which number.
    of: Vec<(u32, u64)>,
    last: u64,
    list: Vec<u64>,
}

impl Numbers {
    /// The number of a patch, if it has been named.
    #[inline]
    pub(super) fn known(&self, id: PatchId) -> Option<u64> {
        let (place, generation) = id.place();
        let (of, number) = *self.of.get(place as usize)?;
        (of == generation && number > 0).then_some(number)
    }

    /// The number of a patch; a new one where it has none yet. What is dead from the start has 0.
    #[inline]
    fn of(&mut self, id: PatchId) -> u64 {
        match self.known(id) {
            Some(number) => number,
            None if id == PatchId::COMMITTED => 0,
            None => self.give(id),
        }
    }

    fn give(&mut self, id: PatchId) -> u64 {
        let (place, generation) = id.place();
        let index = place as usize;
        if index >= self.of.len() {
            self.of.resize(index + 1, (0, 0));
        }
        self.last += 1;
        self.of[index] = (generation, self.last);
        self.last
    }

    /// The numbers of patches, without those that nobody has named yet: they committed before the
    /// recording began.
    #[inline]
    fn of_all(&mut self, ids: &[PatchId]) -> &[u64] {
        self.list.clear();
        for id in ids {
            if let Some(number) = self.known(*id) {
                self.list.push(number);
            }
        }
        &self.list
    }
}

/// What is known of the operation under way.
#[derive(Default)]
pub(super) struct Under {
    /// It is recorded.
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

impl Under {
    fn note(&mut self, scope: &Scope<'_>) {
        self.is_waiting = true;
        self.word = scope.word;
        self.range_bytes = scope.range_bytes;
        self.objects.clear();
        self.objects.extend_from_slice(scope.objects);
        self.names_count = scope.names.len().min(2);
        for (kept, name) in self.names.iter_mut().zip(scope.names) {
            kept.clear();
            kept.extend_from_slice(name);
        }
    }
}

impl Inner {
    /// The tape, for a change: if it is the first of an operation, after the record of that.
    #[inline(always)]
    fn tape_for_change(&mut self) -> &mut Tape {
        if self.under.is_waiting {
            self.open_scope();
        }
        &mut self.tape
    }

    fn open_scope(&mut self) {
        let under = &mut self.under;
        (under.is_open, under.is_waiting) = (true, false);
        self.scopes += 1;
        let name = |at: usize| (at < under.names_count).then_some(&under.names[at][..]);
        self.tape.put(&Record::Begin {
            scope: self.scopes,
            word: under.word.as_bytes(),
            objects: &under.objects,
            names: [name(0), name(1)],
            range_bytes: under.range_bytes,
        });
    }

    fn close_scope(&mut self) {
        self.under.is_waiting = false;
        if std::mem::take(&mut self.under.is_open) {
            self.tape.put(&Record::End);
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
            self.tape.put(&Record::Place {
                block: block.0,
                place,
            });
        }
    }

    pub(super) fn take_down(&mut self, what: &Happening<'_>) {
        match what {
            Happening::Patch(event) => self.take_down_event(event),
            Happening::Place(block, placement) => self.place(*block, placement),
            Happening::Begin(now, scope) => {
                self.tape.set_time(*now);
                self.close_scope();
                self.under.note(scope);
            }
            Happening::End => self.close_scope(),
            Happening::Made(object) => {
                let tape = self.tape_for_change();
                tape.put(&Record::Made { object: *object });
            }
            Happening::Batch {
                now,
                number,
                goal,
                writes,
            } => {
                self.tape.set_time(*now);
                let requests = writes.iter().flat_map(|(_, requests)| requests);
                let buffers = requests.clone().flat_map(|request| &request.buffers);
                self.tape.put(&Record::Batch {
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
                self.tape.set_time(*now);
                self.tape.put(&Record::Flushed { number: *number });
            }
            Happening::Failed(number) => self.tape.put(&Record::Failed { number: *number }),
            Happening::Awaited(now, ticket, targets) => {
                self.tape.set_time(*now);
                self.tape.put(&Record::Awaited {
                    ticket: *ticket,
                    patches: self.numbers.of_all(targets),
                });
            }
            Happening::Reached(ticket) => self.tape.put(&Record::Reached { ticket: *ticket }),
        }
    }

    pub(super) fn image(&mut self, bytes: &[u8]) {
        for (at, part) in bytes.chunks(IMAGE_PART_BYTES).enumerate() {
            if self.has_ended() {
                return self.count_lost();
            }
            if part.iter().all(|byte| *byte == 0) {
                continue;
            }
            self.tape.put(&Record::Contents {
                volume: 0,
                offset_bytes: (at * IMAGE_PART_BYTES) as u64,
                bytes: part,
            });
            if self.tape.chunk.is_full() {
                self.pass_on();
            }
        }
    }

    fn contents(&mut self, writes: &[(VolumeId, Vec<WriteRequest>)]) {
        for (volume, requests) in writes {
            for request in requests {
                let mut offset_bytes = request.offset_bytes;
                for buffer in &request.buffers {
                    // The rest could only pile up. It is missing, which has to be known.
                    if self.has_ended() {
                        self.count_lost();
                        return;
                    }
                    self.tape.put(&Record::Contents {
                        volume: volume.0,
                        offset_bytes,
                        bytes: buffer,
                    });
                    offset_bytes += buffer.len() as u64;
                    if self.tape.chunk.is_full() {
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
                let patch = self.numbers.of(id);
                self.tape_for_change();
                self.tape.put(&Record::Create {
                    patch,
                    kind,
                    held,
                    block: block.map(|block| block.0),
                    change: change.as_ref().map_or(Change::Nothing, range_of),
                    stated: self.numbers.of_all(dependencies),
                });
            }
            Event::Merge {
                into,
                kind,
                block,
                change,
                dependencies,
            } => {
                let into = self.numbers.of(into);
                self.tape_for_change();
                self.tape.put(&Record::Merge {
                    into,
                    kind,
                    block: block.0,
                    change: range_of(&change),
                    stated: self.numbers.of_all(dependencies),
                });
            }
            Event::Forward { from, to } => {
                let (from, to) = (self.numbers.of(from), self.numbers.of(to));
                self.tape_for_change().put(&Record::Forward { from, to });
            }
            Event::Split { from, block, to } => {
                let (from, to, block) = (self.numbers.of(from), self.numbers.of(to), block.0);
                self.tape.put(&Record::Split { from, block, to });
            }
            Event::Leave { from, block, to } => {
                let (from, to, block) = (self.numbers.of(from), self.numbers.of(to), block.0);
                self.tape.put(&Record::Leave { from, block, to });
            }
            Event::Supersede { from, block, to } => {
                let (from, to, block) = (self.numbers.of(from), self.numbers.of(to), block.0);
                self.tape_for_change()
                    .put(&Record::Supersede { from, block, to });
            }
            Event::Wait { after, before } => {
                let (after, before) = (self.numbers.of(after), self.numbers.of(before));
                self.tape.put(&Record::Wait { after, before });
            }
            Event::StopWaiting { after, before } => {
                let (after, before) = (self.numbers.of(after), self.numbers.of(before));
                self.tape.put(&Record::StopWaiting { after, before });
            }
            Event::Release { id } => {
                let patch = self.numbers.of(id);
                self.tape.put(&Record::Release { patch });
            }
            Event::Settle { targets } => {
                let patches = self.numbers.of_all(targets);
                self.tape.put(&Record::Settle { patches });
            }
            Event::Write {
                block,
                patches,
                rolled_back,
                ..
            } => {
                self.tape.put(&Record::Write {
                    block: block.0,
                    rolled_back,
                    patches: self.numbers.of_all(patches),
                });
            }
            Event::Harden { id } => {
                let patch = self.numbers.of(id);
                self.tape_for_change().put(&Record::Harden { patch });
            }
            Event::Discard { block } => self
                .tape_for_change()
                .put(&Record::Discard { block: block.0 }),
            Event::Commit { id } => {
                let patch = self.numbers.of(id);
                self.tape.put(&Record::Commit { patch });
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
                let patch = self.numbers.of(id);
                self.tape.put(&Record::Present {
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
