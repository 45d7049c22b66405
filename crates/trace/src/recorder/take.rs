//! How what happens becomes records.

use backstitch_device::WriteRequest;
use backstitch_patch::{BlockId, Change as Changing, Event, PatchId};
use backstitch_store::{Happening, Placement, Scope, VolumeId};

use super::{Inner, Under};
use crate::record::{Change, Place, Record};

/// Bytes of an image in one record.
const IMAGE_PART_BYTES: usize = 4096;

impl Inner {
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

    pub(super) fn take_down(&mut self, what: &Happening<'_>) {
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

    pub(super) fn image(&mut self, volume: u32, bytes: &[u8]) {
        for (at, part) in bytes.chunks(IMAGE_PART_BYTES).enumerate() {
            if self.has_ended() {
                return self.count_lost();
            }
            if part.iter().all(|byte| *byte == 0) {
                continue;
            }
            self.put(&Record::Contents {
                volume,
                offset_bytes: (at * IMAGE_PART_BYTES) as u64,
                bytes: part,
            });
            if self.chunk.is_full() {
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
