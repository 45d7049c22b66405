//! How each record is written.

use backstitch_store::{BlockClass, PatchKind};

use super::{CLASSES, Change, PATCH_KINDS, Record};
use crate::codec::{Context, put};

impl Record<'_> {
    pub(crate) fn encode(&self, cx: &mut Context, out: &mut Vec<u8>) {
        out.push(self.code());
        match *self {
            Record::Time(time) => {
                let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                put(out, time_ns.saturating_sub(cx.time_ns));
                cx.time_ns = cx.time_ns.max(time_ns);
            }
            Record::Place { block, place } => {
                put(out, u64::from(block));
                put(out, u64::from(place.volume));
                put(out, place.offset_bytes);
                put(out, u64::from(place.len_bytes));
                out.push(class_code(place.class));
            }
            Record::Begin {
                scope,
                word,
                objects,
                names,
                range_bytes,
            } => {
                put(out, scope);
                put_bytes(out, word);
                put(out, objects.len() as u64);
                objects.iter().for_each(|object| put(out, *object));
                put(out, names.iter().flatten().count() as u64);
                names.iter().flatten().for_each(|name| put_bytes(out, name));
                put(out, range_bytes.0);
                put(out, range_bytes.1);
            }
            Record::End | Record::Finished => {}
            Record::Lost { events } => put(out, events),
            Record::Made { object } => put(out, object),
            Record::Create {
                patch,
                kind,
                held,
                block,
                change,
                stated,
            } => {
                cx.put_patch(out, patch);
                out.push(kind_code(kind) | u8::from(held) << 3);
                put(out, block.map_or(0, |block| u64::from(block) + 1));
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
                out.push(kind_code(kind));
                put(out, u64::from(block));
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
                put(out, u64::from(block));
                cx.put_patch(out, to);
            }
            Record::Release { patch } | Record::Commit { patch } | Record::Harden { patch } => {
                cx.put_patch(out, patch);
            }
            Record::Discard { block } => put(out, u64::from(block)),
            Record::Settle { patches } => cx.put_patches(out, patches),
            Record::Write {
                block,
                rolled_back,
                patches,
            } => {
                put(out, u64::from(block));
                put(out, u64::from(rolled_back));
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
                out.push(kind_code(kind) | u8::from(held) << 3 | u8::from(in_flight) << 4);
                put(out, block.map_or(0, |block| u64::from(block) + 1));
                put(out, u64::from(offset_bytes));
                put(out, u64::from(len_bytes));
            }
            Record::Batch {
                number,
                goal,
                requests,
                bytes,
            } => {
                put(out, number);
                put_bytes(out, goal);
                put(out, requests);
                put(out, bytes);
            }
            Record::Contents {
                volume,
                offset_bytes,
                bytes,
            } => {
                put(out, u64::from(volume));
                put(out, offset_bytes);
                put_bytes(out, bytes);
            }
            Record::Flushed { number } | Record::Failed { number } => put(out, number),
            Record::Reached { ticket } => put(out, ticket),
            Record::Awaited { ticket, patches } => {
                put(out, ticket);
                cx.put_patches(out, patches);
            }
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_change(out: &mut Vec<u8>, change: Change) {
    let (code, a, b) = match change {
        Change::Nothing => {
            out.push(0);
            return;
        }
        Change::Bytes {
            offset_bytes,
            len_bytes,
        } => (1, offset_bytes, len_bytes),
        Change::Flip { offset_bytes, mask } => (2, offset_bytes, mask),
    };
    out.push(code);
    put(out, u64::from(a));
    put(out, u64::from(b));
}

fn class_code(class: BlockClass) -> u8 {
    CLASSES.iter().position(|c| *c == class).unwrap_or(0) as u8
}

fn kind_code(kind: PatchKind) -> u8 {
    PATCH_KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u8
}
