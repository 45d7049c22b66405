//! The writes of a trace again, onto another device that has what the first one had when the
//! recording began.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::Record;
use crate::{Error, Trace};

/// A piece of what a batch writes: the volume, where, and the bytes.
type Piece = (u32, u64, Vec<u8>);

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

/// Calls `write` for all that the trace's batches wrote, in the order in which they were on stable
/// storage.
///
/// # Errors
/// Where the trace has no contents or is damaged, or `write` fails.
pub fn replay(
    trace: &Trace<'_>,
    mut write: impl FnMut(u32, u64, &[u8]) -> Result<(), String>,
) -> Result<Replayed, Error> {
    if !trace.has_contents {
        return Err(Error::NoContents);
    }
    let mut done = Replayed {
        is_whole: true,
        ..Replayed::default()
    };
    let mut on_their_way: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    let mut last = 0;
    let (mut records, mut list) = (trace.records(), Vec::new());
    while let Some((_, record)) = records.next(&mut list)? {
        match record {
            Record::Batch { number, .. } => {
                on_their_way.insert(number, Vec::new());
                last = number;
            }
            Record::Contents {
                volume,
                offset_bytes,
                bytes,
            } => {
                let pieces = on_their_way.entry(last).or_default();
                pieces.push((volume, offset_bytes, bytes.to_vec()));
            }
            Record::Flushed { number } => {
                let Some(pieces) = on_their_way.remove(&number) else {
                    done.unknown += 1;
                    continue;
                };
                done.batches += 1;
                for (volume, offset_bytes, bytes) in pieces {
                    done.bytes += bytes.len() as u64;
                    write(volume, offset_bytes, &bytes).map_err(Error::Device)?;
                }
            }
            Record::Time(time) => done.until = time,
            Record::Lost { .. } => done.is_whole = false,
            _ => {}
        }
    }
    done.is_whole &= !records.is_cut() && done.unknown == 0;
    done.left_out = on_their_way.len() as u64;
    Ok(done)
}
