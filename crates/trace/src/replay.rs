//! The writes of a trace again, onto another device that has what the first one had when the
//! recording began.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::Record;
use crate::{Error, Trace};

/// A piece of what a batch writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The volume.
    pub volume: u32,
    /// Where it goes there.
    pub offset_bytes: u64,
    /// What is written.
    pub bytes: Vec<u8>,
}

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Batches that were on stable storage at the end of the trace.
    pub batches: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Batches that were on their way at the end: nobody knows what of them is there.
    pub left_out: u64,
    /// Batches that were on their way when the recording began: what they wrote is not in the trace.
    pub unknown: u64,
    /// The trace has all of the recording, and of each batch what it wrote. Otherwise what was replayed is an earlier state.
    pub is_whole: bool,
    /// The time of its last record, since the mount.
    pub until: Duration,
}

/// Calls `write` for the image that the trace begins with, where it has that, and for all that its
/// batches wrote, in the order in which they were on stable storage.
///
/// # Errors
/// Where the trace has no contents or is damaged, or `write` fails.
pub fn replay(
    trace: &Trace<'_>,
    write: impl FnMut(u32, u64, &[u8]) -> Result<(), String>,
) -> Result<Replayed, Error> {
    replay_to(trace, u64::MAX, write).map(|(done, _)| done)
}

/// The same up to the moment after so many records; also what is on its way then, the newest last: of
/// each piece it may be there or not. Of a batch that failed nobody knows, until a later one has
/// brought something to the same place.
///
/// # Errors
/// As [`replay`].
pub fn replay_to(
    trace: &Trace<'_>,
    most_records: u64,
    mut write: impl FnMut(u32, u64, &[u8]) -> Result<(), String>,
) -> Result<(Replayed, Vec<Piece>), Error> {
    if !trace.has_contents {
        return Err(Error::NoContents);
    }
    let mut done = Replayed {
        is_whole: true,
        ..Replayed::default()
    };
    let mut on_their_way: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    let mut last = None;
    let (mut records, mut list, mut passed) = (trace.records(), Vec::new(), 0);
    while let Some((_, record)) = records.next(&mut list)? {
        passed += 1;
        // A batch has been handed over although its contents follow.
        if passed > most_records && !matches!(record, Record::Contents { .. }) {
            break;
        }
        match record {
            Record::Batch { number, .. } => {
                on_their_way.insert(number, Vec::new());
                last = Some(number);
            }
            Record::Contents {
                volume,
                offset_bytes,
                bytes,
            } => match last {
                Some(last) => on_their_way.entry(last).or_default().push(Piece {
                    volume,
                    offset_bytes,
                    bytes: bytes.to_vec(),
                }),
                // Of the image that the recording began with.
                None => write(volume, offset_bytes, bytes).map_err(Error::Device)?,
            },
            Record::Flushed { number } => {
                let Some(pieces) = on_their_way.remove(&number) else {
                    done.unknown += 1;
                    continue;
                };
                done.batches += 1;
                for piece in &pieces {
                    done.bytes += piece.bytes.len() as u64;
                    let written = write(piece.volume, piece.offset_bytes, &piece.bytes);
                    written.map_err(Error::Device)?;
                }
                for older in on_their_way.range_mut(..number).map(|(_, of)| of) {
                    older.retain(|old| !pieces.iter().any(|new| is_same_place(old, new)));
                }
            }
            Record::Time(time) => done.until = time,
            Record::Lost { .. } => done.is_whole = false,
            _ => {}
        }
    }
    done.is_whole &= !records.is_cut() && done.unknown == 0;
    done.left_out = on_their_way.len() as u64;
    Ok((done, on_their_way.into_values().flatten().collect()))
}

fn is_same_place(a: &Piece, b: &Piece) -> bool {
    (a.volume, a.offset_bytes) == (b.volume, b.offset_bytes)
}
