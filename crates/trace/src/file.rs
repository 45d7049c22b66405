//! The file: a head, then chunks of records, each of which can be read by itself.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::{Context, Rest, Room};
use crate::record::Record;
use crate::state::State;
use crate::{Damage, Error};
use serde_json::Value;

/// How a trace begins.
pub const MAGIC: [u8; 8] = *b"BSTRACE\n";
/// The version of the format.
pub const VERSION: u16 = 1;
/// Set where the trace has the contents of what was written.
pub const WITH_CONTENTS: u16 = 1;
/// Bytes before the description.
pub const HEAD_BYTES: usize = 16;
/// How a chunk begins.
pub const CHUNK_MAGIC: [u8; 4] = *b"BSTC";
/// Bytes of a chunk before its records.
pub const CHUNK_HEAD_BYTES: usize = 44;
/// A chunk is closed once it has as many bytes of records.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Memory of a chunk that has filled up: its records, and the ones with which it did.
const ROOM_BYTES: usize = CHUNK_HEAD_BYTES + CHUNK_BYTES + (4 << 10);
/// The longest description.
const MOST_DESCRIPTION_BYTES: u32 = 1 << 20;

/// The head of a trace: what it is of, as a JSON object.
pub(crate) fn head(description: &Value, with_contents: bool) -> Vec<u8> {
    let text = description.to_string();
    let flags = if with_contents { WITH_CONTENTS } else { 0 };
    let mut out = Vec::with_capacity(HEAD_BYTES + text.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// Records on their way into a chunk.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) cx: Context,
    /// The context at its beginning.
    began: Context,
    first_record: u64,
    records: u32,
    /// Room for the head, the records, and more of them.
    bytes: Vec<u8>,
    /// How many bytes of that are the head's and the records'.
    len: usize,
}

impl Chunk {
    pub(crate) fn new() -> Chunk {
        Chunk {
            cx: Context::default(),
            began: Context::default(),
            first_record: 0,
            records: 0,
            bytes: vec![0; CHUNK_HEAD_BYTES],
            len: CHUNK_HEAD_BYTES,
        }
    }

    /// A first chunk, which begins at this time after a patch with this number.
    pub(crate) fn at(newest: u64, time: Duration) -> Chunk {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cx = Context { newest, time_ns };
        Chunk {
            cx,
            began: cx,
            ..Chunk::new()
        }
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, record: &Record<'_>) {
        self.records += 1;
        let end = self.len + record.most_bytes();
        if end > self.bytes.len() {
            self.grow(end);
        }
        let mut room = Room::new(&mut self.bytes[self.len..]);
        record.encode(&mut self.cx, &mut room);
        self.len += room.len();
    }

    /// Makes room up to `end`, and for more records in the same go.
    #[cold]
    fn grow(&mut self, end: usize) {
        let twice = (2 * self.bytes.len()).min(ROOM_BYTES);
        self.bytes.resize(end.max(twice), 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// How many records there were since the beginning.
    pub(crate) fn records_in_all(&self) -> u64 {
        self.first_record + u64::from(self.records)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= CHUNK_HEAD_BYTES + CHUNK_BYTES
    }

    /// The chunk's bytes; what follows goes into `next`.
    pub(crate) fn close(&mut self, mut next: Vec<u8>) -> Vec<u8> {
        let bytes = &mut self.bytes;
        bytes.truncate(self.len);
        let len = (bytes.len() - CHUNK_HEAD_BYTES) as u32;
        bytes[0..4].copy_from_slice(&CHUNK_MAGIC);
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_record.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.began.time_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.began.newest.to_le_bytes());
        bytes[40..44].fill(0);
        let sum = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        self.first_record += u64::from(self.records);
        (self.records, self.began) = (0, self.cx);
        // What is in memory that is used again need not be zeros: all of the chunk is written.
        next.resize(next.len().max(CHUNK_HEAD_BYTES), 0);
        self.len = CHUNK_HEAD_BYTES;
        std::mem::replace(&mut self.bytes, next)
    }
}

/// A trace that is read.
#[derive(Clone, Debug)]
pub struct Trace<'t> {
    /// What it is of.
    pub description: Value,
    /// It has the contents of what was written.
    pub has_contents: bool,
    chunks: &'t [u8],
    chunks_at: u64,
    /// What there is before its first record, where that is known.
    start: Option<Arc<State>>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_le_bytes(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

impl<'t> Trace<'t> {
    /// Reads the head.
    ///
    /// # Errors
    /// Where it is no trace, or one of another version.
    pub fn new(bytes: &'t [u8]) -> Result<Trace<'t>, Error> {
        if bytes.get(..8) != Some(&MAGIC[..]) {
            return Err(Error::NoTrace);
        }
        let cut = Error::NoTrace;
        let version = u16_at(bytes, 8).ok_or(cut.clone())?;
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let flags = u16_at(bytes, 10).ok_or(cut.clone())?;
        let len = u32_at(bytes, 12).filter(|len| *len <= MOST_DESCRIPTION_BYTES);
        let end = HEAD_BYTES + len.ok_or(cut.clone())? as usize;
        let text = bytes.get(HEAD_BYTES..end).ok_or(cut)?;
        Ok(Trace {
            description: serde_json::from_slice(text).unwrap_or_default(),
            has_contents: flags & WITH_CONTENTS != 0,
            chunks: &bytes[end..],
            chunks_at: end as u64,
            start: None,
        })
    }

    /// The same trace as the rest of a longer one, which came to this state.
    #[must_use]
    pub(crate) fn beginning_with(self, start: Arc<State>) -> Trace<'t> {
        Trace {
            start: Some(start),
            ..self
        }
    }

    /// See [`beginning_with`](Self::beginning_with).
    pub(crate) fn start(&self) -> Option<&State> {
        self.start.as_deref()
    }

    /// Whether it is cut off in the middle, and how many events at least could not be kept at its
    /// end, where that is so.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn missing(&self) -> Result<(bool, Option<u64>), Error> {
        let (mut records, mut list, mut lost) = (self.records(), Vec::new(), None);
        while let Some((_, record)) = records.next(&mut list)? {
            if let Record::Lost { events } = record {
                lost = Some(events);
            }
        }
        Ok((records.is_cut(), lost))
    }

    /// Its records, from the first on.
    pub fn records(&self) -> Records<'t> {
        Records::of(self.chunks, self.chunks_at)
    }
}

/// The records of a trace, one after the other.
#[derive(Clone, Debug)]
pub struct Records<'t> {
    chunks: &'t [u8],
    /// Where `chunks` begins in the file.
    at: u64,
    body: Rest<'t>,
    cx: Context,
    number: u64,
    left: u32,
    is_cut: bool,
    /// The last record is one that ends a recording.
    has_ended: bool,
}

impl<'t> Records<'t> {
    /// Those of chunks that begin at this byte of their file.
    pub(crate) fn of(chunks: &'t [u8], at: u64) -> Records<'t> {
        Records {
            chunks,
            at,
            body: Rest(&[]),
            cx: Context::default(),
            number: 0,
            left: 0,
            is_cut: false,
            has_ended: false,
        }
    }

    /// The next record, whose lists are put into `list`, and its number.
    ///
    /// # Errors
    /// Where the trace is damaged from here on.
    pub fn next<'a>(&mut self, list: &'a mut Vec<u64>) -> Result<Option<(u64, Record<'a>)>, Error>
    where
        't: 'a,
    {
        while self.left == 0 {
            if !self.next_chunk()? {
                return Ok(None);
            }
        }
        self.left -= 1;
        let number = self.number;
        self.number += 1;
        let mut body: Rest<'a> = self.body;
        let record = Record::decode(&mut body, &mut self.cx, list);
        self.body = Rest(&self.body.0[self.body.0.len() - body.0.len()..]);
        match record {
            Ok(record) => {
                self.has_ended = matches!(record, Record::Finished | Record::Lost { .. });
                Ok(Some((number, record)))
            }
            Err(damage) => Err(self.damaged(damage)),
        }
    }

    /// Whether the file ends before the recording did: its recorder was killed, or the mount's
    /// process. Known at the end.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn damaged(&mut self, damage: Damage) -> Error {
        (self.left, self.chunks) = (0, &[]);
        Error::Damaged {
            at_bytes: self.at,
            damage,
        }
    }

    /// Goes on to the next chunk; false at the end.
    fn next_chunk(&mut self) -> Result<bool, Error> {
        let chunks = self.chunks;
        if chunks.is_empty() {
            self.is_cut |= !self.has_ended;
            return Ok(false);
        }
        if chunks.len() >= 4 && chunks[..4] != CHUNK_MAGIC {
            return Err(self.damaged(Damage::Chunk));
        }
        let whole = u32_at(chunks, 8).and_then(|len| {
            let end = CHUNK_HEAD_BYTES.checked_add(len as usize)?;
            chunks.split_at_checked(end)
        });
        let Some((chunk, rest)) = whole else {
            (self.is_cut, self.chunks) = (true, &[]);
            return Ok(false);
        };
        if u32_at(chunk, 4) != Some(crc32c::crc32c(&chunk[8..])) {
            return Err(self.damaged(Damage::Checksum));
        }
        let (Some(left), Some(number), Some(time_ns), Some(newest)) = (
            u32_at(chunk, 12),
            u64_at(chunk, 16),
            u64_at(chunk, 24),
            u64_at(chunk, 32),
        ) else {
            return Err(self.damaged(Damage::Chunk));
        };
        let are_possible = number < u64::MAX >> 1 && newest < u64::MAX >> 1;
        if !are_possible {
            return Err(self.damaged(Damage::Number));
        }
        (self.left, self.number) = (left, number);
        self.cx = Context { newest, time_ns };
        self.body = Rest(&chunk[CHUNK_HEAD_BYTES..]);
        self.at += chunk.len() as u64;
        self.chunks = rest;
        Ok(true)
    }
}
