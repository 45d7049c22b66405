//! Partitions: parts of a disk, as the tables on it say.
//!
//! Three kinds of tables are read, none is written:
//!
//! * **MBR**: four entries in the first sector, names `1` to `4`; of an extended one, a chain of
//!   further tables, names `5` and up.
//! * **GPT**: a header and entries with CRCs after a protective MBR, a second copy at the disk's
//!   end. Where the first is damaged the second is used, and a note says so.
//! * **BSD label**: letters, in the second sector of an MBR's slice or of a GPT's partition of that
//!   type (`1a`), or of a disk without either (`a`). Offsets are counted from the disk's start or
//!   from the slice's; the partition `c`, which is the whole, tells which.
//!
//! Everything on a disk may be wrong: a partition that does not lie on the disk is left out with a
//! note, chains end where they repeat.

mod bsd;
mod gpt;
mod mbr;

use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, Result, WriteRequest, check_range};

/// The unit of tables, in bytes; except a GPT on disks with larger sectors.
const SECTOR_BYTES: u64 = 512;
/// No table has more partitions.
const MOST_PARTITIONS: usize = 256;

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The PC's, of DOS.
    Mbr,
    /// The GUID partition table of UEFI.
    Gpt,
    /// The disk label of BSD.
    Bsd,
}

impl Scheme {
    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Mbr => "mbr",
            Scheme::Gpt => "gpt",
            Scheme::Bsd => "bsd",
        }
    }
}

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// What it is called: `1`, `5`, `1a`, `a`.
    pub name: String,
    /// The table that has it.
    pub scheme: Scheme,
    /// Its type as the table has it: `0xa5`, a GUID, a number.
    pub kind: String,
    /// What that is, where it is known.
    pub meaning: Option<&'static str>,
    /// The name that people gave it.
    pub label: Option<String>,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

/// The tables of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// The outermost.
    pub scheme: Scheme,
    /// All partitions, in the order of the tables.
    pub partitions: Vec<Partition>,
    /// What is wrong with the tables.
    pub notes: Vec<String>,
}

impl PartitionTable {
    /// Reads the tables of a disk; `None` where it has none.
    ///
    /// # Errors
    /// Where the disk cannot be read.
    pub fn read(disk: &dyn BlockDevice) -> Result<Option<PartitionTable>> {
        let mut found = Found::new(disk);
        let scheme = if gpt::read(&mut found)? {
            Scheme::Gpt
        } else if mbr::read(&mut found)? {
            Scheme::Mbr
        } else if bsd::read(&mut found, 0..disk.size_bytes(), "")? {
            Scheme::Bsd
        } else {
            return Ok(None);
        };
        Ok(Some(PartitionTable {
            scheme,
            partitions: found.partitions,
            notes: found.notes,
        }))
    }

    /// The partition of that name.
    pub fn get(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.name == name)
    }
}

/// What was found so far.
struct Found<'a> {
    disk: &'a dyn BlockDevice,
    partitions: Vec<Partition>,
    notes: Vec<String>,
}

impl<'a> Found<'a> {
    fn new(disk: &'a dyn BlockDevice) -> Found<'a> {
        Found {
            disk,
            partitions: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Bytes of the disk; `None` behind its end.
    fn bytes(&self, offset_bytes: u64, len_bytes: usize) -> Result<Option<Vec<u8>>> {
        let end = offset_bytes.checked_add(len_bytes as u64);
        if end.is_none_or(|end| end > self.disk.size_bytes()) {
            return Ok(None);
        }
        let mut bytes = vec![0; len_bytes];
        self.disk.read(offset_bytes, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Adds a partition, unless it does not lie in `whole`.
    fn add(&mut self, partition: Partition, whole: &Range<u64>) {
        let Partition {
            offset_bytes,
            len_bytes,
            ..
        } = partition;
        let end = offset_bytes.checked_add(len_bytes);
        let lies_in = offset_bytes >= whole.start && end.is_some_and(|end| end <= whole.end);
        if lies_in && len_bytes > 0 && self.partitions.len() < MOST_PARTITIONS {
            self.partitions.push(partition);
        } else {
            self.note(format!(
                "partition {} is left out: {len_bytes} bytes at {offset_bytes} do not lie between {} and {}",
                partition.name, whole.start, whole.end
            ));
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MOST_PARTITIONS {
            self.notes.push(note);
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// A part of another device as a device of its own.
pub struct PartitionDevice {
    disk: Arc<dyn BlockDevice>,
    name: String,
    offset_bytes: u64,
    len_bytes: u64,
}

impl PartitionDevice {
    /// The part of `disk` that a partition is.
    ///
    /// # Errors
    /// Where it does not lie on the disk.
    pub fn new(disk: Arc<dyn BlockDevice>, partition: &Partition) -> Result<PartitionDevice> {
        let name = format!("{}#{}", disk.name(), partition.name);
        Self::of_range(disk, name, partition.offset_bytes, partition.len_bytes)
    }

    /// Any part of `disk`, called `name`.
    ///
    /// # Errors
    /// Where it does not lie on the disk.
    pub fn of_range(
        disk: Arc<dyn BlockDevice>,
        name: String,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<PartitionDevice> {
        check_range(&name, disk.size_bytes(), offset_bytes, len_bytes)?;
        Ok(PartitionDevice {
            disk,
            name,
            offset_bytes,
            len_bytes,
        })
    }

    fn check(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        check_range(&self.name, self.len_bytes, offset_bytes, len_bytes)
    }
}

impl BlockDevice for PartitionDevice {
    fn size_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn atomic_unit_bytes(&self) -> u32 {
        // If the partition does not begin at a unit of the disk, its own unit is smaller.
        let of_disk = self.disk.atomic_unit_bytes();
        let aligned = 1 << self.offset_bytes.trailing_zeros().min(31);
        of_disk.min(aligned)
    }

    fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset_bytes, buffer.len() as u64)?;
        self.disk.read(self.offset_bytes + offset_bytes, buffer)
    }

    fn read_contents(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset_bytes, buffer.len() as u64)?;
        (self.disk).read_contents(self.offset_bytes + offset_bytes, buffer)
    }

    fn read_at_once(&self, offset_bytes: u64, buffer: &mut [u8]) -> bool {
        self.check(offset_bytes, buffer.len() as u64).is_ok()
            && (self.disk).read_at_once(self.offset_bytes + offset_bytes, buffer)
    }

    fn reads_are_scattered(&self) {
        self.disk.reads_are_scattered();
    }

    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        if self.check(offset_bytes, len_bytes).is_ok() {
            let at = self.offset_bytes + offset_bytes;
            self.disk.will_read(at, len_bytes);
        }
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let moved = batch.iter().map(|request| {
            self.check(request.offset_bytes, request.len_bytes())?;
            Ok(WriteRequest {
                offset_bytes: self.offset_bytes + request.offset_bytes,
                buffers: request.buffers.clone(),
            })
        });
        self.disk.submit(&moved.collect::<Result<Vec<_>>>()?)
    }

    fn flush(&self) -> Result<()> {
        self.disk.flush()
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.check(offset_bytes, len_bytes)?;
        self.disk
            .discard(self.offset_bytes + offset_bytes, len_bytes)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        if offset_bytes >= self.len_bytes {
            return Ok(None);
        }
        let found = self.disk.next_data(self.offset_bytes + offset_bytes)?;
        let within = |at: u64| at.saturating_sub(self.offset_bytes).min(self.len_bytes);
        Ok(found
            .map(|range| within(range.start)..within(range.end))
            .filter(|range| range.start < self.len_bytes))
    }

    fn reset_after_failure(&self) {
        self.disk.reset_after_failure();
    }
}
