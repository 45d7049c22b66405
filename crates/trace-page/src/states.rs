//! The states that a crash at a moment can leave: made from what the trace wrote, and judged by
//! somebody who knows file systems.

use std::sync::Arc;

use backstitch_device::{BlockDevice, JoinedDevice, MemoryDevice, OverlayDevice, WriteRequest};
use backstitch_trace::graph::block_text;
use backstitch_trace::replay::{Piece, replay_to};
use backstitch_trace::{State, Trace};
use serde_json::{Value, json};

/// States that are offered for choice.
const MOST_OFFERED: usize = 64;
/// Blocks that are named in a choice; of more the number is told.
const MOST_NAMED: usize = 2;
/// The largest image that is kept in memory: a trace may say of itself that it has any.
const MOST_IMAGE_BYTES: u64 = 1 << 30;
/// The largest block of any layout.
const MOST_BLOCK_BYTES: u32 = 64 << 10;
/// The most that is on its way: as with the image, a trace may say anything.
const MOST_FLYING_BYTES: u64 = 1 << 30;
/// Blocks up to which the number of states is told in digits.
const MOST_COUNTED: usize = 50;

/// What a mount writes to.
#[derive(Clone)]
pub struct Devices {
    /// The image.
    pub image: Arc<dyn BlockDevice>,
    /// The log's device, where it has one of its own.
    pub log: Option<Arc<dyn BlockDevice>>,
    /// The size of a block: a mount has the log begin behind the image's last whole one.
    pub block_bytes: u32,
}

impl Devices {
    /// The same with something in front of each, which takes up what is written.
    fn overlaid(&self) -> Devices {
        let overlaid = |below: &Arc<dyn BlockDevice>| -> Arc<dyn BlockDevice> {
            Arc::new(OverlayDevice::new(below.clone()))
        };
        Devices {
            image: overlaid(&self.image),
            log: self.log.as_ref().map(overlaid),
            block_bytes: self.block_bytes,
        }
    }

    /// The volume that they are to a mount.
    fn volume(&self) -> Volume {
        let devices = [Some(self.image.clone()), self.log.clone()];
        let devices = devices.into_iter().flatten().collect();
        Volume(JoinedDevice::new(devices, self.block_bytes))
    }
}

/// The first volume of a trace, which is the only one of a mount.
struct Volume(JoinedDevice);

impl Volume {
    fn check_place(&self, volume: u32, offset_bytes: u64, len_bytes: u64) -> Result<(), String> {
        let (end, size) = (offset_bytes.saturating_add(len_bytes), self.0.size_bytes());
        match volume {
            0 if end <= size => Ok(()),
            0 => Err(format!(
                "it wrote up to byte {end}, and what it began with ends at {size}: the image is shorter than that \
                 of the recording, or its log is on a device of its own, which \
                 trace serve --image FILE --log-device FILE names"
            )),
            _ => Err("it wrote to several volumes, and a file system has one".to_owned()),
        }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        let read = self.0.read(offset_bytes, into);
        read.map_err(|error| error.to_string())
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), String> {
        let request = WriteRequest {
            offset_bytes,
            buffers: vec![bytes.into()],
        };
        let submitted = self.0.submit(&[request]);
        submitted.map_err(|error| error.to_string())
    }
}

/// Who knows file systems, which the page does not.
pub trait Judge: Sync {
    /// The image as it was when the recording began, and its log's device, where they were named.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn beginning(&self) -> Result<Option<Devices>, String>;

    /// What a check and a mount find of a state, which may be written to.
    fn judge(&self, state: &Devices) -> Judgement;
}

/// What is found of a state.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// What the check says, in lines; the last one is the verdict.
    pub check: Vec<String>,
    /// The tree as a mount finds it, a line for each path.
    pub tree: Vec<String>,
    /// Paths that are not among these.
    pub more_paths: usize,
    /// Why the tree ends too early.
    pub tree_error: Option<String>,
}

/// A block that is on its way, and may have arrived or not.
struct Flying {
    block: u32,
    offset_bytes: u64,
    bytes: Vec<u8>,
    /// It is not what is there already.
    differs: bool,
}

/// What is on the disk at a moment, and what is on its way.
pub(crate) struct Disk {
    record: u64,
    stable: Devices,
    flying: Vec<Flying>,
    /// Batches of which what they wrote is not in the trace.
    unknown: u64,
}

/// The devices of a trace before its first record.
fn beginning(trace: &Trace<'_>, judge: &dyn Judge) -> Result<Devices, String> {
    if !trace.has_contents {
        let why = "the trace does not have what was written: record it with --contents";
        return Err(why.to_owned());
    }
    // What the trace has of them is in its contents before the first batch.
    let zeros = |key: &str| -> Result<Option<Arc<dyn BlockDevice>>, String> {
        let Some(size) = trace.description[key].as_u64() else {
            return Ok(None);
        };
        match usize::try_from(size) {
            Ok(bytes) if size <= MOST_IMAGE_BYTES => Ok(Some(Arc::new(MemoryDevice::new(bytes)))),
            _ => Err("the image of the trace is too large".to_owned()),
        }
    };
    if let Some(image) = zeros("image_bytes")? {
        let log = zeros("log_bytes")?;
        // Both are made of whole blocks, whatever their size.
        return Ok(Devices {
            image,
            log,
            block_bytes: 1,
        });
    }
    judge.beginning()?.ok_or_else(|| {
        let why = "the trace does not have the image that it began with: trace serve --image FILE names it";
        why.to_owned()
    })
}

impl Disk {
    /// That after a record; the state is the graph there.
    pub(crate) fn after(
        trace: &Trace<'_>,
        state: &State,
        record: u64,
        judge: &dyn Judge,
    ) -> Result<Disk, String> {
        let stable = beginning(trace, judge)?.overlaid();
        let volume = stable.volume();
        let most_records = record.saturating_add(1);
        let replayed = replay_to(trace, most_records, |of, offset_bytes, bytes| {
            volume.check_place(of, offset_bytes, bytes.len() as u64)?;
            volume.write(offset_bytes, bytes)
        });
        let (done, pieces) = replayed.map_err(|error| error.to_string())?;
        let (mut flying, mut flying_bytes) = (Vec::new(), 0);
        for (batch, block) in state.blocks_in_flight() {
            let place = state.place(block).filter(|_| batch.is_some());
            let Some(place) = place else {
                continue;
            };
            flying_bytes += u64::from(place.len_bytes);
            if place.len_bytes > MOST_BLOCK_BYTES || flying_bytes > MOST_FLYING_BYTES {
                return Err("the blocks on their way are too large".to_owned());
            }
            let mut old = vec![0; place.len_bytes as usize];
            volume.check_place(place.volume, place.offset_bytes, old.len() as u64)?;
            volume.read(place.offset_bytes, &mut old)?;
            let bytes = with_pieces(&pieces, place.volume, place.offset_bytes, &old);
            flying.push(Flying {
                block,
                offset_bytes: place.offset_bytes,
                differs: bytes != old,
                bytes,
            });
        }
        Ok(Disk {
            record,
            stable,
            flying,
            unknown: done.unknown,
        })
    }

    pub(crate) fn is_after(&self, record: u64) -> bool {
        self.record == record
    }

    fn differing(&self) -> impl Iterator<Item = &Flying> {
        self.flying.iter().filter(|of| of.differs)
    }

    /// The states to choose from, each once: those that differ in what is on the disk.
    pub(crate) fn states(&self, state: &State) -> Value {
        let differing: Vec<&Flying> = self.differing().collect();
        let count = match differing.len() {
            few if few < MOST_COUNTED => (1_u64 << few).to_string(),
            many => format!("2^{many}"),
        };
        let offered = choices(differing.len(), MOST_OFFERED);
        let offered = offered.into_iter().map(|there| {
            let names = |is: bool| {
                let of = differing.iter().zip(&there).filter(|(_, t)| **t == is);
                of.map(|(of, _)| block_text(state, of.block))
                    .collect::<Vec<_>>()
            };
            let of = differing.iter().zip(&there).filter(|(_, is)| **is);
            let blocks: Vec<u32> = of.map(|(of, _)| of.block).collect();
            json!({"blocks": blocks, "words": words(&names(true), &names(false))})
        });
        json!({
            "blocks": self.flying.len(),
            "differing": differing.len(),
            "count": count,
            "offered": offered.collect::<Vec<_>>(),
            "unknown": self.unknown,
        })
    }

    /// The state in which these blocks have arrived, or all.
    pub(crate) fn state(&self, arrived: Option<&[u32]>) -> Result<Devices, String> {
        let state = self.stable.overlaid();
        let volume = state.volume();
        let has = |block: u32| arrived.is_none_or(|blocks| blocks.contains(&block));
        for of in self.differing().filter(|of| has(of.block)) {
            volume.write(of.offset_bytes, &of.bytes)?;
        }
        Ok(state)
    }
}

/// Bytes of a volume, with what pieces on their way have there.
fn with_pieces(pieces: &[Piece], volume: u32, offset_bytes: u64, old: &[u8]) -> Vec<u8> {
    let mut bytes = old.to_vec();
    let end = offset_bytes.saturating_add(old.len() as u64);
    for piece in pieces.iter().filter(|piece| piece.volume == volume) {
        let piece_end = piece.offset_bytes.saturating_add(piece.bytes.len() as u64);
        let (from, to) = (offset_bytes.max(piece.offset_bytes), end.min(piece_end));
        if from < to {
            let there = (from - offset_bytes) as usize..(to - offset_bytes) as usize;
            let here = (from - piece.offset_bytes) as usize..(to - piece.offset_bytes) as usize;
            bytes[there].copy_from_slice(&piece.bytes[here]);
        }
    }
    bytes
}

/// Subsets of so many things: none and all, then those that few are in or few are missing of. Each
/// once, at most `most`.
fn choices(count: usize, most: usize) -> Vec<Vec<bool>> {
    let mut all: Vec<Vec<bool>> = Vec::new();
    for chosen in 0..=count / 2 {
        let mut which: Vec<usize> = (0..chosen).collect();
        loop {
            let is_in: Vec<bool> = (0..count)
                .map(|at| which.binary_search(&at).is_ok())
                .collect();
            let others: Vec<bool> = is_in.iter().map(|is| !is).collect();
            // Of subsets of a half the complements come by themselves.
            let is_half = 2 * chosen == count;
            all.push(is_in);
            if !is_half {
                all.push(others);
            }
            if all.len() >= most {
                all.truncate(most);
                return all;
            }
            if !next_subset(&mut which, count) {
                break;
            }
        }
    }
    all
}

/// The next subset of as many; false after the last one.
fn next_subset(which: &mut [usize], count: usize) -> bool {
    let size = which.len();
    let Some(at) = (0..size).rev().find(|at| which[*at] < count - size + at) else {
        return false;
    };
    which[at] += 1;
    for later in at + 1..size {
        which[later] = which[later - 1] + 1;
    }
    true
}

/// A choice in words.
fn words(there: &[String], missing: &[String]) -> String {
    match (there.len(), missing.len()) {
        (0, 0) => "nothing on its way changes anything".to_owned(),
        (0, _) => "none has arrived".to_owned(),
        (_, 0) => "all have arrived".to_owned(),
        (few, _) if few <= MOST_NAMED => format!("only {}", there.join(" and ")),
        (_, few) if few <= MOST_NAMED => format!("all but {}", missing.join(" and ")),
        (some, rest) => format!("{some} of {}, {} among them", some + rest, there[0]),
    }
}

/// A judgement in words and for programs.
pub(crate) fn found(judgement: &Judgement) -> (String, Value) {
    let mut text = format!("a check finds:\n{}", indented(&judgement.check));
    text += &format!("\na mount finds:\n{}", indented(&judgement.tree));
    if judgement.more_paths > 0 {
        text += &format!("  … and {} paths more\n", judgement.more_paths);
    }
    if let Some(error) = &judgement.tree_error {
        text += &format!("  and no more: {error}\n");
    }
    let document = json!({
        "check": judgement.check,
        "tree": judgement.tree,
        "more_paths": judgement.more_paths,
        "tree_error": judgement.tree_error,
    });
    (text, document)
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_subset_is_offered_once_the_extremes_first() {
        for count in 0..=6 {
            let all = choices(count, 64);
            assert_eq!(all.len(), 1 << count, "{count}");
            assert_eq!(BTreeSet::from_iter(&all).len(), all.len());
        }
        let many = choices(500, 64);
        assert_eq!(many.len(), 64);
        assert!(many[0].iter().all(|is| !is) && many[1].iter().all(|is| *is));
        assert_eq!(many[2].iter().filter(|is| **is).count(), 1);
    }

    #[test]
    fn what_is_on_its_way_is_laid_over_what_is_there() {
        let piece = |volume, offset_bytes, byte| Piece {
            volume,
            offset_bytes,
            bytes: vec![byte; 4],
        };
        let pieces = [
            piece(0, 8, 1),
            piece(0, 14, 2),
            piece(1, 10, 3),
            piece(0, 30, 4),
        ];
        let bytes = with_pieces(&pieces, 0, 10, &[9; 6]);
        assert_eq!(bytes, [1, 1, 9, 9, 2, 2]);
    }
}
