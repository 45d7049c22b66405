//! Reading: records by LSN and in order, and the search for the end.

use crate::format::{
    BLOCK_BYTES, Circle, RecordHeader, Superblock, Superblocks, longest_payload, seed,
};
use crate::rules::{Rule, holds};
use crate::{Lsn, Result, WafsError};
use backstitch_device::BlockDevice;
use zerocopy::FromBytes;

/// Bytes that are read at a time where each record is looked at once: few enough to stay in a
/// processor's cache.
const WINDOW_BYTES: u64 = 64 << 10;
/// Bytes that the search for the end reads at a time at most: enough for a disk's full speed.
const LARGEST_PIECE_BYTES: u64 = 1 << 20;
/// The longest part of a log that [`Log::kept_records`] keeps in memory.
const MOST_KEPT_BYTES: u64 = 64 << 20;

/// How far to read ahead.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// Not at all.
    Nothing,
    /// To a multiple of this many bytes, so that the device sees long, aligned reads.
    Window(u64),
    /// As many bytes as were read so far, at least a block: so at most half of all reading is in
    /// vain. Never more than [`LARGEST_PIECE_BYTES`].
    AsMuchAgain,
    /// To the limit.
    Everything,
}

/// A record as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it begins.
    pub lsn: Lsn,
    /// Where the next one begins.
    pub next: Lsn,
    /// Where the one before it begins; `None` for the first one of a log. A checkpoint may have let
    /// it go.
    pub previous: Option<Lsn>,
    /// When it was appended: nanoseconds since 1970.
    pub time: u64,
    /// Which mount of the log appended it.
    pub mount: u64,
    /// What was appended.
    pub payload: &'a [u8],
}

/// A log's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Place<'d> {
    pub(crate) device: &'d dyn BlockDevice,
    pub(crate) circle: Circle,
    pub(crate) seed: u32,
}

/// A part of the log in memory.
struct Window {
    bytes: Vec<u8>,
    from: u64,
    ahead: Ahead,
    /// What was read so far.
    read_bytes: u64,
}

impl Window {
    fn new(ahead: Ahead) -> Window {
        Window {
            bytes: Vec::new(),
            from: 0,
            ahead,
            read_bytes: 0,
        }
    }

    /// Where to end a read of bytes that end at `needed`.
    fn read_end(&self, needed: Lsn, limit: Lsn) -> Lsn {
        let end = match self.ahead {
            Ahead::Nothing => needed.0,
            Ahead::Window(bytes) => {
                let multiple = needed.0.checked_next_multiple_of(bytes);
                multiple.unwrap_or(limit.0)
            }
            Ahead::AsMuchAgain => {
                let more = self.read_bytes.clamp(BLOCK_BYTES, LARGEST_PIECE_BYTES);
                let end = needed.0.saturating_add(more);
                end - end % BLOCK_BYTES
            }
            Ahead::Everything => limit.0,
        };
        Lsn(end.min(limit.0).max(needed.0))
    }

    /// `len` bytes from `at` on. Reads ahead for later calls, but not past `limit`.
    fn get(&mut self, place: &Place<'_>, at: Lsn, len: u64, limit: Lsn) -> Result<&[u8]> {
        let held = self.from..self.from + self.bytes.len() as u64;
        if at.0 < held.start || at.0 + len > held.end {
            self.fill(place, at, len, limit)?;
        }
        let start = (at.0 - self.from) as usize;
        Ok(&self.bytes[start..start + len as usize])
    }

    /// Reads ahead where possible; where that fails, only what is needed. What is behind the end of
    /// a log need not be readable.
    fn fill(&mut self, place: &Place<'_>, at: Lsn, len: u64, limit: Lsn) -> Result<()> {
        let needed = at.plus(len);
        let wanted = self.read_end(needed, limit);
        match self.fill_to(place, at, wanted) {
            Err(_) if wanted > needed => self.fill_to(place, at, needed),
            filled => filled,
        }
    }

    fn fill_to(&mut self, place: &Place<'_>, at: Lsn, end: Lsn) -> Result<()> {
        let held_end = self.from + self.bytes.len() as u64;
        match (self.from..held_end).contains(&at.0) {
            true => drop(self.bytes.drain(..(at.0 - self.from) as usize)),
            false => self.bytes.clear(),
        }
        self.from = at.0;
        let mut filled = self.bytes.len();
        self.bytes.resize((end.0 - at.0) as usize, 0);
        self.read_bytes += (self.bytes.len() - filled) as u64;
        while filled < self.bytes.len() {
            let from = at.plus(filled as u64);
            let to_turn = place.circle.bytes_to_turn(from);
            let some = (self.bytes.len() - filled).min(to_turn as usize);
            let part = &mut self.bytes[filled..filled + some];
            let offset_bytes = place.circle.offset_bytes(from);
            if let Err(error) = place.device.read_contents(offset_bytes, part) {
                self.bytes.clear();
                return Err(error.into());
            }
            filled += some;
        }
        Ok(())
    }
}

/// What is at an LSN.
enum Found {
    Record(RecordHeader),
    /// A record of this log, but not the one of this place.
    Other(RecordHeader),
    /// No record, and why not.
    Nothing(&'static str),
}

/// What is at `at`. Nothing from `limit` on belongs to the record.
fn look(window: &mut Window, place: &Place<'_>, at: Lsn, limit: Lsn) -> Result<Found> {
    if at.plus(RecordHeader::BYTES) > limit {
        return Ok(Found::Nothing("the log ends within a record's header"));
    }
    let bytes = window.get(place, at, RecordHeader::BYTES, limit)?;
    let (header, _) = RecordHeader::read_from_prefix(bytes).expect("as long as a header");
    if holds(Rule::HeaderChecksum) && header.checksum != header.right_checksum(place.seed) {
        return Ok(Found::Nothing("no record begins here"));
    }
    if holds(Rule::RecordsAreInPlace) && header.lsn.get() != at.0 {
        return Ok(Found::Other(header));
    }
    let len = u64::from(header.len_bytes.get());
    let is_too_long = len > longest_payload(place.circle.log_bytes);
    if is_too_long || at.plus(header.record_bytes()) > limit {
        return Ok(Found::Nothing("the record is longer than the log"));
    }
    let payload = window.get(place, at.plus(RecordHeader::BYTES), len, limit)?;
    if holds(Rule::PayloadChecksum) && header.payload_checksum != crc32c::crc32c(payload) {
        return Ok(Found::Nothing("the record's payload is damaged"));
    }
    Ok(Found::Record(header))
}

/// The records of a part of a log, one after the other.
pub struct Records<'d> {
    place: Place<'d>,
    window: Window,
    first: Lsn,
    next: Lsn,
    end: Lsn,
}

impl<'d> Records<'d> {
    pub(crate) fn new(place: Place<'d>, from: Lsn, end: Lsn) -> Records<'d> {
        Records::with(place, from, end, Ahead::Window(WINDOW_BYTES))
    }

    fn with(place: Place<'d>, from: Lsn, end: Lsn, ahead: Ahead) -> Records<'d> {
        Records {
            place,
            window: Window::new(ahead),
            first: from,
            next: from,
            end,
        }
    }

    /// Goes back to the first record. What is still in memory is not read again.
    pub fn rewind(&mut self) {
        self.next = self.first;
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`WafsError::NotARecord`] where a record is damaged, or none begins where the first one was
    /// asked for; [`WafsError::Device`] where the device fails.
    #[expect(clippy::should_implement_trait, reason = "a record borrows from this")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let lsn = self.next;
        if lsn >= self.end {
            return Ok(None);
        }
        let wrong = |reason| WafsError::NotARecord { lsn, reason };
        let header = match look(&mut self.window, &self.place, lsn, self.end)? {
            Found::Record(header) => header,
            Found::Other(_) => return Err(wrong("a record of another place is here")),
            Found::Nothing(reason) => return Err(wrong(reason)),
        };
        self.next = lsn.plus(header.record_bytes());
        let len = header.len_bytes.get().into();
        let at = lsn.plus(RecordHeader::BYTES);
        let payload = self.window.get(&self.place, at, len, self.end)?;
        Ok(Some(Record {
            lsn,
            next: self.next,
            previous: previous(&header),
            time: header.time.get(),
            mount: header.mount.get(),
            payload,
        }))
    }
}

fn previous(header: &RecordHeader) -> Option<Lsn> {
    let back = u64::from(header.back_bytes.get());
    let before = header.lsn.get().checked_sub(back);
    before.filter(|_| back > 0).map(Lsn)
}

/// A log that is only read, as it was found on a device. Another program may go on writing it; see
/// [`refresh`](Self::refresh).
pub struct Log<'d> {
    pub(crate) place: Place<'d>,
    pub(crate) superblock: Superblock,
    damaged: Option<String>,
    end: Lsn,
    /// The record before the end, and its time.
    last: Option<Lsn>,
    last_time: u64,
    found: u64,
}

impl<'d> Log<'d> {
    /// Reads the superblocks of a log and looks for its end. Nothing is written.
    ///
    /// # Errors
    /// Where there is no log, where it cannot be believed, and where the device fails.
    pub fn open(device: &'d dyn BlockDevice) -> Result<Log<'d>> {
        let (superblock, damaged) = superblock(device)?;
        let mut log = Log::as_found(device, superblock, Lsn(superblock.end.get()));
        log.damaged = damaged;
        log.begin_at_superblock();
        log.look_for_end()?;
        Ok(log)
    }

    /// A log that was opened before, with the superblock and the end that it had then. Nothing is
    /// read; the last record is not known.
    pub fn as_found(device: &'d dyn BlockDevice, superblock: Superblock, end: Lsn) -> Log<'d> {
        Log {
            place: Place {
                device,
                circle: Circle {
                    log_bytes: superblock.log_bytes.get(),
                },
                seed: seed(&superblock.uuid),
            },
            superblock,
            damaged: None,
            end,
            last: None,
            last_time: 0,
            found: 0,
        }
    }

    /// The uuid of the log on a device. Its end is not looked for.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn uuid(device: &dyn BlockDevice) -> Result<[u8; 16]> {
        Ok(superblock(device)?.0.uuid)
    }

    fn begin_at_superblock(&mut self) {
        self.end = Lsn(self.superblock.end.get());
        let last_bytes = u64::from(self.superblock.last_record_bytes.get());
        let last = self.end.0.checked_sub(last_bytes);
        self.last = last.filter(|_| last_bytes > 0).map(Lsn);
        self.last_time = self.superblock.time.get();
    }

    /// Looks again for the start and the end, which a program that writes the log may have moved.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn refresh(&mut self) -> Result<()> {
        let (superblock, damaged) = superblock(self.place.device)?;
        let is_new = superblock.generation != self.superblock.generation;
        (self.superblock, self.damaged) = (superblock, damaged);
        if is_new && self.superblock.end.get() > self.end.0 {
            self.begin_at_superblock();
        }
        self.look_for_end()
    }

    /// Follows the records from the place up to which everything was on the device, as long as the
    /// latest mount appended them.
    fn look_for_end(&mut self) -> Result<()> {
        let start = self.start();
        let limit = start.block_start().plus(self.place.circle.log_bytes);
        let mount = self.superblock.mount.get();
        let mut window = Window::new(match self.place.device.notes_reads() {
            true => Ahead::Nothing,
            false => Ahead::AsMuchAgain,
        });
        loop {
            match look(&mut window, &self.place, self.end, limit)? {
                Found::Record(header) => {
                    let is_latest = header.mount.get() == mount;
                    if holds(Rule::MountIsTheLatest) && !is_latest {
                        return self.stop_at(&header);
                    }
                    self.last = Some(self.end);
                    self.last_time = header.time.get();
                    self.end = self.end.plus(header.record_bytes());
                    self.found += 1;
                }
                Found::Other(header) => return self.stop_at(&header),
                Found::Nothing(_) => return Ok(()),
            }
        }
    }

    /// Checks that the log ends at a record that does not continue it. It does if the record is
    /// left from an earlier round or mount. A record of a later one means that this superblock is
    /// out of date.
    fn stop_at(&self, header: &RecordHeader) -> Result<()> {
        let is_later = header.lsn.get() > self.end.0;
        if is_later || header.mount.get() > self.superblock.mount.get() {
            return Err(WafsError::StaleSuperblock {
                device: self.place.device.name(),
                start: self.start(),
                found: Lsn(header.lsn.get()),
            });
        }
        Ok(())
    }

    /// The oldest record that is kept.
    pub fn start(&self) -> Lsn {
        Lsn(self.superblock.start.get())
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The last record; `None` in an empty log.
    pub fn last(&self) -> Option<Lsn> {
        self.last.filter(|last| *last >= self.start())
    }

    /// The length of the record before the end, even if a checkpoint has let that go.
    pub fn last_record_bytes(&self) -> u64 {
        self.last.map_or(0, |last| self.end.0 - last.0)
    }

    /// When the record before the end was appended.
    pub fn last_time(&self) -> u64 {
        self.last_time
    }

    /// How many records were found behind the place that the superblock names.
    pub fn found_behind_superblock(&self) -> u64 {
        self.found
    }

    /// The superblock that counts.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// What is wrong with the other superblock; `None` where nothing is.
    pub fn damaged_superblock(&self) -> Option<&str> {
        self.damaged.as_deref()
    }

    /// The records from `from` on.
    ///
    /// # Errors
    /// [`WafsError::Gone`] before the start, [`WafsError::NotWritten`] behind the end.
    pub fn records(&self, from: Lsn) -> Result<Records<'d>> {
        check_range(from, self.start(), self.end)?;
        Ok(Records::new(self.place, from, self.end))
    }

    /// The same, all of which are read at once and stay in memory where that takes 64 MiB at most,
    /// so that going through them [again](Records::rewind) reads nothing.
    ///
    /// # Errors
    /// As [`records`](Self::records).
    pub fn kept_records(&self, from: Lsn) -> Result<Records<'d>> {
        check_range(from, self.start(), self.end)?;
        let ahead = match self.end.0 - from.0 <= MOST_KEPT_BYTES {
            true => Ahead::Everything,
            false => Ahead::Window(LARGEST_PIECE_BYTES),
        };
        Ok(Records::with(self.place, from, self.end, ahead))
    }
}

/// Refuses to read from an LSN where no record can begin; the end is allowed.
pub(crate) fn check_range(from: Lsn, start: Lsn, end: Lsn) -> Result<()> {
    if from < start {
        return Err(WafsError::Gone { lsn: from, start });
    }
    if from > end {
        return Err(WafsError::NotWritten { lsn: from, end });
    }
    Ok(())
}

/// The superblock of a device that counts, and what is wrong with the other one.
pub(crate) fn superblock(device: &dyn BlockDevice) -> Result<(Superblock, Option<String>)> {
    let (name, size_bytes) = (device.name(), device.size_bytes());
    let mut sectors = [[0; Superblock::BYTES]; 2];
    for (block, sector) in sectors.iter_mut().enumerate() {
        let offset_bytes = block as u64 * BLOCK_BYTES;
        match offset_bytes + sector.len() as u64 <= size_bytes {
            true => device.read(offset_bytes, sector)?,
            false => return Err(WafsError::NotALog { device: name }),
        }
    }
    let sectors = [&sectors[0][..], &sectors[1][..]];
    let chosen = Superblocks::choose(&name, size_bytes, sectors)?;
    Ok((chosen.newer, chosen.damaged))
}
