//! Traces of a store in which two blocks wait for each other, and every question about them.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice};
use backstitch_store::{
    BlockClass, Change, Goal, Happening, Limits, Optimisations, PatchId, Scope, Store, drive,
};
use backstitch_trace::{CHUNK_HEAD_BYTES, HEAD_BYTES, Recorder, Recording, Trace};

use super::Seed;
use crate::targets::answers::{AS_IT_IS, HAS_CONTENTS, HAS_IMAGE, IN_TWO, IS_LIVE, KEYS, PATHS};

const BLOCK_BYTES: u32 = 512;
/// Questions of an input.
const EACH: usize = 6;

/// A recording of four operations: a chain over two blocks, which is written out in four batches.
fn recorded(with_contents: bool) -> Option<Vec<u8>> {
    let recording = Recording {
        with_contents,
        ..Recording::default()
    };
    let recorder = Arc::new(Recorder::in_memory(&recording, 1 << 20));
    let mut store = Store::new(Limits::default(), Optimisations::NONE);
    let volume = store.add_volume(BLOCK_BYTES);
    store.watch(Some(recorder.clone()));
    for block in 0..3 {
        let zeros = Buffer::zeroed(BLOCK_BYTES as usize);
        store.insert(volume, block, BlockClass::Metadata, zeros);
    }
    let mut last: Option<PatchId> = None;
    for number in 0..4_u8 {
        let now = Duration::from_millis(number.into());
        let scope = Scope {
            word: "create",
            objects: &[2],
            names: &[&[b'a' + number]],
            range_bytes: (0, 0),
        };
        store.tell(|| Happening::Begin(now, scope));
        store.tell(|| Happening::Made(11 + u64::from(number)));
        let after: Vec<PatchId> = last.into_iter().collect();
        let change = Change::Bytes {
            offset_bytes: u32::from(number) * 32,
            bytes: &[number + 1; 8],
        };
        let (block, class) = (1 + u64::from(number % 2), BlockClass::Directory);
        last = Some(store.patch(volume, block, class, change, (&after).into(), now));
        store.tell(|| Happening::End);
    }
    let size = 8 * BLOCK_BYTES as usize;
    let devices: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(MemoryDevice::new(size))];
    let goal: Vec<PatchId> = last.into_iter().collect();
    let now = Duration::from_secs(1);
    drive::write_out(&mut store, &devices, Goal::Patches(&goal), now).ok()?;
    Some(recorder.finish())
}

/// Questions about a record, a patch or a block with this number: those from `first` on.
fn questions(first: usize, number: u8) -> Vec<u8> {
    let key = |name: &str| {
        let at = KEYS.iter().position(|(key, _)| *key == name);
        at.unwrap_or(0) as u8
    };
    let word = |name: &str, value: u8| vec![key(name), 0, value, 0];
    let chosen = |name: &str, which: u8| vec![key(name), 0xa0, which];
    let mut asked = vec![EACH as u8];
    for path in first..first + EACH {
        let path = path % PATHS.len();
        let more = match PATHS[path] {
            "next" => [chosen("kind", number), chosen("back", 0)],
            "search" => [chosen("text", number), word("from", 0)],
            "block" | "why/written" => [word("block", 1), word("patch", number)],
            "why/crash" => [word("with", 4), word("without", number)],
            "why/cut" => [chosen("blocks", number), chosen("patches", 0)],
            "states" | "state" => [chosen("blocks", number), word("since", 0)],
            "why/dirty" => [chosen("path", number), word("inode", 2)],
            _ => [chosen("by", number), word("cluster", number)],
        };
        asked.extend([path as u8, 3]);
        asked.extend(word("record", 12 + 6 * number));
        asked.extend(more.concat());
    }
    asked
}

pub(super) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for with_contents in [false, true] {
        let Some(file) = recorded(with_contents) else {
            continue;
        };
        let Ok(trace) = Trace::new(&file) else {
            continue;
        };
        let description = trace.description.to_string().len();
        let (head, body) = file.split_at(HEAD_BYTES + description + CHUNK_HEAD_BYTES);
        let records = &head[head.len() - CHUNK_HEAD_BYTES + 12..][..2];
        let contents = match with_contents {
            true => HAS_CONTENTS,
            false => 0,
        };
        let hows = [0, IS_LIVE, IN_TWO, HAS_IMAGE, HAS_IMAGE | IN_TWO, AS_IT_IS];
        for (number, how) in hows.into_iter().enumerate() {
            for first in (0..PATHS.len()).step_by(EACH) {
                let asked = questions(first, number as u8);
                // A second chunk would begin behind the end.
                let split = [0, 0, 0xff, 0xff];
                let rest = match how {
                    AS_IT_IS => file.clone(),
                    _ if how & IN_TWO != 0 => [records, &split, &[0; 24], body].concat(),
                    _ => [records, body].concat(),
                };
                let input = [&[how | contents][..], &asked, &rest].concat();
                seeds.push(("answers", format!("{how}-{first}-{contents}"), input));
            }
        }
    }
    seeds
}
