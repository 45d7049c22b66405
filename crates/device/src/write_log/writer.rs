//! Writing a log.

use super::error::reason_of;
use super::raw::{ENTRY_BYTES, MAGIC, RawEntry, RawSuper, SECTOR_MIN_BYTES, VERSION};
use super::{EntryFlags, LogError, LogResult};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zerocopy::IntoBytes;

const SECTOR: u64 = SECTOR_MIN_BYTES as u64;

/// The longest text of a mark that fits into its sector.
pub const MARK_MAX_BYTES: usize = (SECTOR - ENTRY_BYTES) as usize;

/// Writes a log with sectors of 512 bytes.
///
/// The superblock counts an entry only after [`count`](Self::count), which a flush and a mark call
/// by themselves. The log of a writer that was killed is a valid log of everything up to then.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
    name: String,
    entries: u64,
    end_bytes: u64,
}

impl LogWriter {
    /// Makes an empty log, in place of one that is there.
    ///
    /// # Errors
    ///
    /// [`LogError::Open`] and [`LogError::Io`].
    pub fn create(path: &Path) -> LogResult<Self> {
        let name = path.display().to_string();
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|error| LogError::Open {
                log: name.clone(),
                what: "cannot make it",
                reason: reason_of(&error),
            })?;
        let mut log = Self {
            file,
            name,
            entries: 0,
            end_bytes: SECTOR,
        };
        log.count()?;
        Ok(log)
    }

    /// What the log is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many entries were written.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Adds a write. Its data consists of whole sectors.
    ///
    /// # Errors
    ///
    /// [`LogError::Io`]; [`LogError::Entry`] if place or length are no multiples of a sector.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8], flags: EntryFlags) -> LogResult<()> {
        self.add(offset_bytes, data.len() as u64, flags, 0, data)?;
        if flags.contains(EntryFlags::FLUSH) {
            self.count()?;
        }
        Ok(())
    }

    /// Adds a discard.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> LogResult<()> {
        self.add(offset_bytes, len_bytes, EntryFlags::DISCARD, 0, &[])
    }

    /// Adds a flush.
    ///
    /// # Errors
    ///
    /// [`LogError::Io`].
    pub fn flush(&mut self) -> LogResult<()> {
        self.add(0, 0, EntryFlags::FLUSH, 0, &[])?;
        self.count()
    }

    /// Adds a remark, cut to [`MARK_MAX_BYTES`].
    ///
    /// # Errors
    ///
    /// [`LogError::Io`].
    pub fn mark(&mut self, text: &str) -> LogResult<()> {
        let mut end = text.len().min(MARK_MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text.as_bytes()[..end];
        let at = self.end_bytes;
        self.put("cannot write a mark", at + ENTRY_BYTES, text)?;
        self.add(0, 0, EntryFlags::MARK, text.len() as u64, &[])?;
        self.count()
    }

    /// Brings the superblock up to date.
    ///
    /// # Errors
    ///
    /// [`LogError::Io`].
    pub fn count(&mut self) -> LogResult<()> {
        let raw = RawSuper {
            magic: MAGIC.into(),
            version: VERSION.into(),
            nr_entries: self.entries.into(),
            sectorsize: SECTOR_MIN_BYTES.into(),
        };
        let mut sector = [0; SECTOR as usize];
        sector[..size_of::<RawSuper>()].copy_from_slice(raw.as_bytes());
        self.put("cannot write the superblock", 0, &sector)
    }

    fn add(
        &mut self,
        offset_bytes: u64,
        len_bytes: u64,
        flags: EntryFlags,
        data_len: u64,
        data: &[u8],
    ) -> LogResult<()> {
        let at = self.end_bytes;
        if !offset_bytes.is_multiple_of(SECTOR) || !len_bytes.is_multiple_of(SECTOR) {
            return Err(LogError::Entry {
                log: self.name.clone(),
                entry: self.entries,
                at_bytes: at,
                reason: format!("{len_bytes} bytes at {offset_bytes} are not whole sectors"),
            });
        }
        let raw = RawEntry {
            sector: (offset_bytes / SECTOR).into(),
            nr_sectors: (len_bytes / SECTOR).into(),
            flags: flags.0.into(),
            data_len: data_len.into(),
        };
        self.put("cannot write an entry", at, raw.as_bytes())?;
        self.put("cannot write data", at + SECTOR, data)?;
        let end = at + SECTOR + data.len() as u64;
        // The header's sector is whole even if nothing comes behind it.
        self.file.set_len(end).map_err(|error| LogError::Io {
            log: self.name.clone(),
            what: "cannot extend it",
            at_bytes: end,
            reason: reason_of(&error),
        })?;
        self.end_bytes = end;
        self.entries += 1;
        Ok(())
    }

    fn put(&self, what: &'static str, at_bytes: u64, bytes: &[u8]) -> LogResult<()> {
        self.file
            .write_all_at(bytes, at_bytes)
            .map_err(|error| LogError::Io {
                log: self.name.clone(),
                what,
                at_bytes,
                reason: reason_of(&error),
            })
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // This ignores an error; a caller that needs to know calls `count` first.
        let _ = self.count();
    }
}
