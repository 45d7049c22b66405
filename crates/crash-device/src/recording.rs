//! A log and the image it was recorded on, cut into epochs and moments.

use crate::error::{ScheduleError, ScheduleResult};
use backstitch_crash_core::error::at;
use backstitch_device::write_log::{Entry, EntryFlags, LogReader};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes that a drive stores wholly or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A write or a discard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry of the log.
    pub entry: Entry,
}

impl Change {
    /// Whether it is durable by itself when it ends.
    pub fn is_fua(&self) -> bool {
        self.entry.flags.contains(EntryFlags::FUA) && self.entry.has_data()
    }

    /// Whether it is a discard.
    pub fn is_discard(&self) -> bool {
        !self.entry.has_data()
    }

    /// How many sectors it can be torn into.
    pub fn sectors(&self) -> u64 {
        self.entry.len_bytes / SECTOR_BYTES
    }

    /// Where it starts, in bytes.
    pub fn start(&self) -> u64 {
        self.entry.offset_bytes
    }

    /// Where it ends, in bytes.
    pub fn end(&self) -> u64 {
        self.entry.offset_bytes + self.entry.len_bytes
    }
}

/// What an entry means for the order of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Flush,
    Change,
    FlushThenChange,
    Mark,
    /// A FUA write or a discard of no sectors.
    Nothing,
}

/// A moment at which the power may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The entry before which it is cut.
    pub cut: u64,
    /// Whether the FUA write right before the cut is still in flight.
    pub in_flight: bool,
    /// Changes before this one are durable: an index into [`Recording::changes`].
    pub stable: usize,
    /// Changes from this one on have not begun.
    pub end: usize,
    /// How many marks have passed.
    pub marks: usize,
}

/// A log and its base.
#[derive(Debug)]
pub struct Recording {
    log: LogReader,
    base: File,
    base_path: PathBuf,
    base_bytes: u64,
    meanings: Vec<Meaning>,
    changes: Vec<Change>,
    marks: Vec<String>,
}

impl Recording {
    /// Reads the log's entries, but not their data.
    ///
    /// # Errors
    ///
    /// Those of the log, and [`ScheduleError::Outside`] if it does not fit the base.
    pub fn open(base_path: &Path, log: &Path) -> ScheduleResult<Self> {
        let cannot = at("cannot open the base", base_path);
        let mut base = File::open(base_path).map_err(&cannot)?;
        let base_bytes = base.seek(SeekFrom::End(0)).map_err(&cannot)?;
        let mut recording = Self {
            log: LogReader::open(log)?,
            base,
            base_path: base_path.to_owned(),
            base_bytes,
            meanings: Vec::new(),
            changes: Vec::new(),
            marks: Vec::new(),
        };
        while let Some(entry) = recording.log.next() {
            recording.add(entry?)?;
        }
        Ok(recording)
    }

    fn add(&mut self, mut entry: Entry) -> ScheduleResult<()> {
        if let Some(mark) = entry.mark.take() {
            self.marks.push(mark);
            self.meanings.push(Meaning::Mark);
            return Ok(());
        }
        let is_flush = entry.flags.contains(EntryFlags::FLUSH);
        if entry.len_bytes == 0 {
            self.meanings.push(match is_flush {
                true => Meaning::Flush,
                false => Meaning::Nothing,
            });
            return Ok(());
        }
        if entry.offset_bytes + entry.len_bytes > self.base_bytes {
            return Err(ScheduleError::Outside {
                base: self.base_path.display().to_string(),
                base_bytes: self.base_bytes,
                entry: entry.number,
                offset_bytes: entry.offset_bytes,
                len_bytes: entry.len_bytes,
            });
        }
        self.changes.push(Change { entry });
        self.meanings.push(match is_flush {
            true => Meaning::FlushThenChange,
            false => Meaning::Change,
        });
        Ok(())
    }

    /// The log, from which data is read.
    pub fn log(&self) -> &LogReader {
        &self.log
    }

    /// The base.
    pub fn base(&self) -> &File {
        &self.base
    }

    /// The path of the base.
    pub fn base_path(&self) -> &Path {
        &self.base_path
    }

    /// The size of the base, and of each state.
    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Every write and discard, in the log's order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Every mark, in the log's order.
    pub fn marks(&self) -> &[String] {
        &self.marks
    }

    /// How many entries the log has.
    pub fn entries(&self) -> u64 {
        self.meanings.len() as u64
    }

    /// How many flushes the log has.
    pub fn flushes(&self) -> usize {
        let flush = |m: &&Meaning| matches!(m, Meaning::Flush | Meaning::FlushThenChange);
        self.meanings.iter().filter(flush).count()
    }

    /// The moments that have states of their own: before each flush, when the epoch is largest;
    /// before each mark, when less has been promised; while each FUA write is in flight; and the
    /// end.
    pub fn moments(&self) -> Vec<Moment> {
        let mut moments: Vec<Moment> = Vec::new();
        self.walk(|now, next| {
            let before = match next {
                None | Some(Meaning::Flush | Meaning::FlushThenChange | Meaning::Mark) => true,
                Some(Meaning::Change | Meaning::Nothing) => false,
            };
            if !now.in_flight && !before {
                return;
            }
            let same = |last: &Moment| {
                let cut = now.cut;
                Moment { cut, ..*last } == now
            };
            if !moments.last().is_some_and(same) {
                moments.push(now);
            }
        });
        moments
    }

    /// Calls `look` with the moment of a cut before each entry and at the end. After a FUA write it
    /// is called twice, first with that write in flight.
    fn walk(&self, mut look: impl FnMut(Moment, Option<Meaning>)) {
        let mut now = Moment {
            cut: 0,
            in_flight: false,
            stable: 0,
            end: 0,
            marks: 0,
        };
        for &meaning in &self.meanings {
            look(now, Some(meaning));
            now.cut += 1;
            if matches!(meaning, Meaning::Flush | Meaning::FlushThenChange) {
                now.stable = now.end;
            }
            match meaning {
                Meaning::Flush | Meaning::Nothing => {}
                Meaning::Mark => now.marks += 1,
                Meaning::Change | Meaning::FlushThenChange => {
                    now.end += 1;
                    if self.changes[now.end - 1].is_fua() {
                        let in_flight = true;
                        look(Moment { in_flight, ..now }, None);
                    }
                }
            }
        }
        look(now, None);
    }

    /// The moment of a given cut, if there is one.
    pub fn moment_at(&self, cut: u64, in_flight: bool) -> Option<Moment> {
        let mut found = None;
        self.walk(|now, _| {
            if now.cut == cut && now.in_flight == in_flight {
                found.get_or_insert(now);
            }
        });
        found
    }

    /// The changes that may be missing at a moment: indices into [`changes`](Self::changes).
    pub fn optional(&self, moment: &Moment) -> Vec<usize> {
        (moment.stable..moment.end)
            .filter(|&index| {
                let still_going = moment.in_flight && index + 1 == moment.end;
                still_going || !self.changes[index].is_fua()
            })
            .collect()
    }

    /// For each of these changes, how many FUA writes of the epoch come before it. Changes with
    /// different numbers keep their order.
    pub fn segments(&self, moment: &Moment, optional: &[usize]) -> Vec<usize> {
        let mut segments = Vec::with_capacity(optional.len());
        let (mut segment, mut at) = (0, moment.stable);
        for &index in optional {
            segment += (at..index).filter(|&i| self.changes[i].is_fua()).count();
            at = index;
            segments.push(segment);
        }
        segments
    }
}
