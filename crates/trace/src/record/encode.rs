//! How each record is written.

use backstitch_store::{BlockClass, PatchKind};

use super::{Change, Record};
use crate::codec::{Context, MOST_NUMBER_BYTES, Room};

impl Record<'_> {
    /// Bytes that it takes at most.
    #[inline(always)]
    pub(crate) fn most_bytes(&self) -> usize {
        /// The code, and as many numbers as the longest record has beside its lists and bytes.
        const MOST_FIXED_BYTES: usize = 1 + 9 * MOST_NUMBER_BYTES;
        let (numbers, bytes) = match *self {
            Record::Begin {
                word,
                objects,
                names,
                ..
            } => {
                let names = names.iter().flatten().map(|name| name.len());
                (objects.len(), word.len() + names.sum::<usize>())
            }
            Record::Create { stated, .. } | Record::Merge { stated, .. } => (stated.len(), 0),
            Record::Settle { patches }
            | Record::Write { patches, .. }
            | Record::Awaited { patches, .. } => (patches.len(), 0),
            Record::Batch { goal, .. } => (0, goal.len()),
            Record::Contents { bytes, .. } => (0, bytes.len()),
            _ => (0, 0),
        };
        MOST_FIXED_BYTES + numbers * MOST_NUMBER_BYTES + bytes
    }

    /// Writes it, into at least [`most_bytes`](Self::most_bytes). Where the caller knows which
    /// record it is, only the writing of that one is left of this.
    #[inline(always)]
    pub(crate) fn encode(&self, cx: &mut Context, out: &mut Room<'_>) {
        out.put_byte(self.code());
        match *self {
            Record::Time(time) => {
                let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                out.put(time_ns.saturating_sub(cx.time_ns));
                cx.time_ns = cx.time_ns.max(time_ns);
            }
            Record::Place { block, place } => {
                out.put(u64::from(block));
                out.put(u64::from(place.volume));
                out.put(place.offset_bytes);
                out.put(u64::from(place.len_bytes));
                out.put_byte(class_code(place.class));
            }
            Record::Begin {
                scope,
                word,
                objects,
                names,
                range_bytes,
            } => {
                out.put(scope);
                out.put_bytes(word);
                out.put(objects.len() as u64);
                objects.iter().for_each(|object| out.put(*object));
                out.put(names.iter().flatten().count() as u64);
                names.iter().flatten().for_each(|name| out.put_bytes(name));
                out.put(range_bytes.0);
                out.put(range_bytes.1);
            }
            Record::End | Record::Finished => {}
            Record::Lost { events } => out.put(events),
            Record::Made { object } => out.put(object),
            Record::Create {
                patch,
                kind,
                held,
                block,
                change,
                stated,
            } => {
                cx.put_patch(out, patch);
                out.put_byte(kind_code(kind) | u8::from(held) << 3);
                out.put(block.map_or(0, |block| u64::from(block) + 1));
                put_change(out, change);
                cx.put_patches(out, stated);
            }
            Record::Merge {
                into,
                kind,
                block,
                change,
                stated,
            } => {
                cx.put_patch(out, into);
                out.put_byte(kind_code(kind));
                out.put(u64::from(block));
                put_change(out, change);
                cx.put_patches(out, stated);
            }
            Record::Forward { from: a, to: b }
            | Record::Wait {
                after: a,
                before: b,
            }
            | Record::StopWaiting {
                after: a,
                before: b,
            } => {
                cx.put_patch(out, a);
                cx.put_patch(out, b);
            }
            Record::Split { from, block, to }
            | Record::Leave { from, block, to }
            | Record::Supersede { from, block, to } => {
                cx.put_patch(out, from);
                out.put(u64::from(block));
                cx.put_patch(out, to);
            }
            Record::Release { patch } | Record::Commit { patch } | Record::Harden { patch } => {
                cx.put_patch(out, patch);
            }
            Record::Discard { block } => out.put(u64::from(block)),
            Record::Settle { patches } => cx.put_patches(out, patches),
            Record::Write {
                block,
                rolled_back,
                patches,
            } => {
                out.put(u64::from(block));
                out.put(u64::from(rolled_back));
                cx.put_patches(out, patches);
            }
            Record::Present {
                patch,
                kind,
                held,
                in_flight,
                block,
                offset_bytes,
                len_bytes,
            } => {
                cx.put_patch(out, patch);
                out.put_byte(kind_code(kind) | u8::from(held) << 3 | u8::from(in_flight) << 4);
                out.put(block.map_or(0, |block| u64::from(block) + 1));
                out.put(u64::from(offset_bytes));
                out.put(u64::from(len_bytes));
            }
            Record::Batch {
                number,
                goal,
                requests,
                bytes,
            } => {
                out.put(number);
                out.put_bytes(goal);
                out.put(requests);
                out.put(bytes);
            }
            Record::Contents {
                volume,
                offset_bytes,
                bytes,
            } => {
                out.put(u64::from(volume));
                out.put(offset_bytes);
                out.put_bytes(bytes);
            }
            Record::Flushed { number } | Record::Failed { number } => out.put(number),
            Record::Reached { ticket } => out.put(ticket),
            Record::Awaited { ticket, patches } => {
                out.put(ticket);
                cx.put_patches(out, patches);
            }
        }
    }
}

#[inline(always)]
fn put_change(out: &mut Room<'_>, change: Change) {
    let (code, a, b) = match change {
        Change::Nothing => {
            out.put_byte(0);
            return;
        }
        Change::Bytes {
            offset_bytes,
            len_bytes,
        } => (1, offset_bytes, len_bytes),
        Change::Flip { offset_bytes, mask } => (2, offset_bytes, mask),
    };
    out.put_byte(code);
    out.put(u64::from(a));
    out.put(u64::from(b));
}

/// The code of what a block holds: its place in [`CLASSES`](super::CLASSES).
#[inline(always)]
fn class_code(class: BlockClass) -> u8 {
    match class {
        BlockClass::Data => 0,
        BlockClass::Metadata => 1,
        BlockClass::Directory => 2,
        BlockClass::Journal => 3,
    }
}

/// The code of what a patch is made of: its place in [`PATCH_KINDS`](super::PATCH_KINDS).
#[inline(always)]
fn kind_code(kind: PatchKind) -> u8 {
    match kind {
        PatchKind::Soft => 0,
        PatchKind::Bits => 1,
        PatchKind::Hard => 2,
        PatchKind::Empty => 3,
        PatchKind::Run => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CLASSES, PATCH_KINDS};
    use super::*;

    #[test]
    fn codes_are_places_in_the_tables() {
        for (at, class) in CLASSES.iter().enumerate() {
            assert_eq!(usize::from(class_code(*class)), at);
        }
        for (at, kind) in PATCH_KINDS.iter().enumerate() {
            assert_eq!(usize::from(kind_code(*kind)), at);
        }
    }

    #[test]
    fn no_record_is_longer_than_it_says() {
        let names = [Some(&b"name"[..]), Some(&b"another"[..])];
        let largest = Record::Begin {
            scope: u64::MAX,
            word: b"word",
            objects: &[u64::MAX; 3],
            names,
            range_bytes: (u64::MAX, u64::MAX),
        };
        let mut bytes = vec![0; largest.most_bytes()];
        largest.encode(&mut Context::default(), &mut Room::new(&mut bytes));
    }
}
