//! A state as the first chunk of a trace: what there is at its moment.

use super::State;
use crate::file::{Chunk, Records};
use crate::record::{Change, Record};

impl State {
    /// Applies the records of a chunk that one of us has made.
    pub(crate) fn apply_chunk(&mut self, chunk: &[u8]) {
        let (mut records, mut list) = (Records::of(chunk, 0), Vec::new());
        while let Ok(Some((number, record))) = records.next(&mut list) {
            self.apply(&record);
            self.records = number + 1;
        }
    }

    /// What there is at this moment, as the beginning of a trace.
    pub(crate) fn as_chunk(&self) -> Vec<u8> {
        let mut chunk = Chunk::at(self.newest, self.time);
        chunk.put(&Record::Time(self.time));
        for (block, place) in self.places.iter() {
            chunk.put(&Record::Place {
                block: block as u32,
                place: *place,
            });
        }
        for (number, patch) in self.patches() {
            let (offset_bytes, len_bytes) = match patch.changes.first() {
                Some(Change::Bytes {
                    offset_bytes,
                    len_bytes,
                }) => (*offset_bytes, *len_bytes),
                Some(Change::Flip { offset_bytes, .. }) => (*offset_bytes, 4),
                _ => (0, 0),
            };
            let mut put = |block, in_flight| {
                chunk.put(&Record::Present {
                    patch: number,
                    kind: patch.kind,
                    held: patch.is_held,
                    in_flight,
                    block,
                    offset_bytes,
                    len_bytes,
                });
            };
            for part in &patch.parts {
                put(Some(part.block), part.is_in_flight);
            }
            if patch.parts.is_empty() {
                put(None, false);
            }
        }
        for (from, to) in &self.forwards {
            chunk.put(&Record::Forward {
                from: *from,
                to: *to,
            });
        }
        for (after, patch) in self.patches() {
            for before in &patch.befores {
                chunk.put(&Record::Wait {
                    after,
                    before: *before,
                });
            }
        }
        for (ticket, patches) in &self.waits {
            chunk.put(&Record::Awaited {
                ticket: *ticket,
                patches,
            });
        }
        chunk.close(Vec::new())
    }
}
