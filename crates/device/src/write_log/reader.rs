//! Reading a log, one entry after the other.

use super::error::reason_of;
use super::raw::{
    ENTRY_BYTES, MAGIC, RawEntry, RawSuper, SECTOR_MAX_BYTES, SECTOR_MIN_BYTES, VERSION,
};
use super::{EntryFlags, LogError, LogResult};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

/// One entry of a log, checked against the log's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the log, from 0.
    pub number: u64,
    /// Where on the device it wrote, in bytes; a multiple of the log's sector size.
    pub offset_bytes: u64,
    /// How much it wrote or discarded; 0 for a plain flush and for a mark.
    pub len_bytes: u64,
    /// What it is.
    pub flags: EntryFlags,
    /// Where in the log its data starts. A discard and a mark have none.
    pub data_at_bytes: u64,
    /// What a mark says. Bytes that are no UTF-8 are replaced.
    pub mark: Option<String>,
}

impl Entry {
    /// Whether the entry carries data.
    pub fn has_data(&self) -> bool {
        self.len_bytes > 0 && !self.flags.contains(EntryFlags::DISCARD)
    }
}

/// Reads a log. Iterating gives the entries that its superblock counts, or an error and then
/// nothing more.
#[derive(Debug)]
pub struct LogReader {
    file: File,
    name: String,
    len_bytes: u64,
    sector_bytes: u64,
    entries: u64,
    next_number: u64,
    next_at_bytes: u64,
    failed: bool,
}

impl LogReader {
    /// Opens a log and reads its superblock.
    ///
    /// # Errors
    ///
    /// [`LogError::Open`] where the host refuses, [`LogError::NotALog`] and
    /// [`LogError::Unsupported`] by the superblock.
    pub fn open(path: &Path) -> LogResult<Self> {
        let name = path.display().to_string();
        let io = |error: std::io::Error| LogError::Open {
            log: name.clone(),
            what: "cannot open",
            reason: reason_of(&error),
        };
        let mut file = File::open(path).map_err(io)?;
        let len_bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
        let mut log = Self {
            file,
            name,
            len_bytes,
            sector_bytes: u64::from(SECTOR_MIN_BYTES),
            entries: 0,
            next_number: 0,
            next_at_bytes: 0,
            failed: false,
        };
        log.read_super()?;
        Ok(log)
    }

    fn read_super(&mut self) -> LogResult<()> {
        let not_a_log = |log: &Self, reason: String| LogError::NotALog {
            log: log.name.clone(),
            reason,
        };
        if self.len_bytes < u64::from(SECTOR_MIN_BYTES) {
            let reason = format!("it has {} bytes, less than a sector", self.len_bytes);
            return Err(not_a_log(self, reason));
        }
        let mut raw = RawSuper::new_zeroed();
        self.read_at("cannot read", 0, raw.as_mut_bytes())?;
        if raw.magic.get() != MAGIC {
            let reason = format!("its magic is {:#x}, not {MAGIC:#x}", raw.magic.get());
            return Err(not_a_log(self, reason));
        }
        let unsupported = |reason: String| LogError::Unsupported {
            log: self.name.clone(),
            reason,
        };
        if raw.version.get() != VERSION {
            let reason = format!("version {}, not {VERSION}", raw.version.get());
            return Err(unsupported(reason));
        }
        let sector = raw.sectorsize.get();
        if !sector.is_power_of_two() || !(SECTOR_MIN_BYTES..=SECTOR_MAX_BYTES).contains(&sector) {
            let reason = format!(
                "sectors of {sector} bytes, not a power of two from {SECTOR_MIN_BYTES} to {SECTOR_MAX_BYTES}"
            );
            return Err(unsupported(reason));
        }
        self.sector_bytes = u64::from(sector);
        self.entries = raw.nr_entries.get();
        self.next_at_bytes = self.sector_bytes;
        Ok(())
    }

    /// What the log is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit of its offsets and lengths.
    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    /// How many entries the superblock counts.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The bytes behind the entry read last. More than 0 after all entries means that the log's
    /// writer died, or was stopped, before it counted its last entries. These are not read: nothing
    /// was promised about them.
    pub fn rest_bytes(&self) -> u64 {
        self.len_bytes.saturating_sub(self.next_at_bytes)
    }

    /// Fills `buffer` with an entry's data from `from_bytes` on.
    ///
    /// # Errors
    ///
    /// [`LogError::Io`] where the host refuses, [`LogError::Entry`] if the entry has no such data.
    pub fn read_data(&self, entry: &Entry, from_bytes: u64, buffer: &mut [u8]) -> LogResult<()> {
        let end = from_bytes.checked_add(buffer.len() as u64);
        if !entry.has_data() || end.is_none_or(|end| end > entry.len_bytes) {
            let len = buffer.len();
            let reason = format!("it has no {len} bytes of data from byte {from_bytes} on");
            return Err(self.bad(entry.number, entry.data_at_bytes, reason));
        }
        self.read_at("cannot read data", entry.data_at_bytes + from_bytes, buffer)
    }

    fn read_at(&self, what: &'static str, at_bytes: u64, buffer: &mut [u8]) -> LogResult<()> {
        self.file
            .read_exact_at(buffer, at_bytes)
            .map_err(|error| LogError::Io {
                log: self.name.clone(),
                what,
                at_bytes,
                reason: match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => "the file has become shorter".to_owned(),
                    _ => reason_of(&error),
                },
            })
    }

    fn bad(&self, entry: u64, at_bytes: u64, reason: String) -> LogError {
        LogError::Entry {
            log: self.name.clone(),
            entry,
            at_bytes,
            reason,
        }
    }

    fn read_entry(&mut self) -> LogResult<Entry> {
        let (number, at) = (self.next_number, self.next_at_bytes);
        let data_at = at
            .checked_add(self.sector_bytes)
            .filter(|&end| end <= self.len_bytes);
        let Some(data_at) = data_at else {
            let (len, counted) = (self.len_bytes, self.entries);
            let reason = format!(
                "the log ends here, at {len} bytes, but its superblock counts {counted} entries"
            );
            return Err(self.bad(number, at, reason));
        };
        let mut raw = RawEntry::new_zeroed();
        self.read_at("cannot read an entry", at, raw.as_mut_bytes())?;
        let bad = |reason: String| self.bad(number, at, reason);
        let (offset_bytes, len_bytes) = self.range(&raw).map_err(bad)?;
        let flags = EntryFlags(raw.flags.get());
        let mark = match flags.contains(EntryFlags::MARK) {
            true => Some(self.read_mark(number, at, raw.data_len.get())?),
            false => None,
        };
        let entry = Entry {
            number,
            offset_bytes,
            len_bytes,
            flags,
            data_at_bytes: data_at,
            mark,
        };
        let data_bytes = if entry.has_data() { len_bytes } else { 0 };
        let end = data_at
            .checked_add(data_bytes)
            .filter(|&end| end <= self.len_bytes);
        let Some(end) = end else {
            let reason = format!(
                "the log ends at {} bytes, inside its {len_bytes} bytes of data",
                self.len_bytes
            );
            return Err(bad(reason));
        };
        self.next_number += 1;
        self.next_at_bytes = end;
        Ok(entry)
    }

    /// Where an entry is on the device, and how long, in bytes; or what is wrong with it.
    fn range(&self, raw: &RawEntry) -> Result<(u64, u64), String> {
        let (flags, sectors) = (raw.flags.get(), raw.nr_sectors.get());
        if flags & !EntryFlags::KNOWN.0 != 0 {
            return Err(format!("its flags {flags:#x} are not known"));
        }
        if flags == 0 && sectors == 0 {
            return Err("it is empty: no flags and no sectors".to_owned());
        }
        let in_bytes = |what: &str, sectors: u64| {
            let bytes = sectors.checked_mul(self.sector_bytes);
            bytes.ok_or_else(|| format!("its {what} of {sectors} sectors is no possible one"))
        };
        let offset_bytes = in_bytes("place", raw.sector.get())?;
        let len_bytes = in_bytes("length", sectors)?;
        match offset_bytes.checked_add(len_bytes) {
            Some(_) => Ok((offset_bytes, len_bytes)),
            None => Err(format!("{sectors} sectors reach past every device's end")),
        }
    }

    fn read_mark(&self, number: u64, at: u64, len: u64) -> LogResult<String> {
        let room = self.sector_bytes - ENTRY_BYTES;
        if len > room {
            let reason = format!("a mark of {len} bytes, for which its sector has {room}");
            return Err(self.bad(number, at, reason));
        }
        let mut text = vec![0; len as usize];
        self.read_at("cannot read a mark", at + ENTRY_BYTES, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Iterator for LogReader {
    type Item = LogResult<Entry>;

    fn next(&mut self) -> Option<LogResult<Entry>> {
        if self.failed || self.next_number >= self.entries {
            return None;
        }
        let entry = self.read_entry();
        self.failed = entry.is_err();
        Some(entry)
    }
}
