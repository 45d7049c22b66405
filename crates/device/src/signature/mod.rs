//! What a device holds, by bytes at known places: file systems, tables of partitions, members of
//! RAID and LVM, disk images of virtual machines, compressed and other files.
//!
//! It answers two questions: what would be lost if a file system were made here, and which program
//! reads this if Backstitch does not. [`signatures`] has an entry for each format: its name, where
//! its magic bytes lie, and which program reads it. Where the magic is short, a function checks
//! more. Nothing is parsed further than that.
//!
//! An ext2 superblock lies in bytes 1024 to 2047, where other formats have two or four bytes of
//! magic. If there is one, such formats are not looked for: any number in it may look like their
//! magic.

mod closer;
mod table;

use crate::partition::PartitionTable;
use crate::{BlockDevice, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

pub use table::signatures;

/// Bytes that are read at a time.
const PAGE_BYTES: u64 = 64 << 10;
/// Where the superblock of ext2 lies, whose numbers may look like another format's magic.
const EXT_SUPERBLOCK: Range<u64> = 1024..2048;
/// Bytes that are erased of a format without magic, which is recognised by its first bytes.
const TEXT_BYTES: u64 = 512;
/// Erasing one signature may show another one that it hid; no device has more layers.
const MOST_LAYERS: usize = 16;

/// The name of the [`Signature`] of a BSD disk label.
pub const BSD_LABEL: &str = "a BSD disk label";

/// What sort of thing a format is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file system, or swap space.
    FileSystem,
    /// A table of partitions.
    PartitionTable,
    /// A part of something larger or a layer below it: RAID, LVM, encryption, caches.
    Member,
    /// A disk image in a format of its own.
    Container,
    /// Compressed, or an archive.
    Packed,
    /// Some other file.
    File,
}

/// Where magic bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this offset.
    Start(u64),
    /// At each of these: the first one, the distance to the next one, how many.
    Each(u64, u64, u64),
    /// Bytes before the end.
    End(u64),
    /// Bytes before the end, after the end is rounded down to a multiple: bytes before, multiple.
    RoundedEnd(u64, u64),
}

impl Place {
    /// The offsets on a device of this size.
    fn offsets(self, size_bytes: u64) -> impl Iterator<Item = u64> {
        let (first, step, count) = match self {
            Place::Start(at) => (Some(at), 0, 1),
            Place::Each(at, step, count) => (Some(at), step, count),
            Place::End(before) => (size_bytes.checked_sub(before), 0, 1),
            Place::RoundedEnd(before, unit) => {
                ((size_bytes / unit * unit).checked_sub(before), 0, 1)
            }
        };
        (0..count).filter_map(move |n| first?.checked_add(n * step))
    }
}

/// Checks more of the format whose magic was found at this offset.
pub(crate) type Closer = fn(&Reader<'_>, u64) -> Result<bool>;

/// A format: how it is recognised, and what reads it.
#[derive(Debug)]
pub struct Signature {
    /// What people call it, with its article: "an XFS file system".
    pub name: &'static str,
    /// What sort of thing it is.
    pub kind: Kind,
    /// Which program reads it, as a sentence or a command; `{}` stands for the image.
    pub reader: &'static str,
    /// Its magic bytes, any of which will do.
    pub magic: &'static [(Place, &'static [u8])],
    /// A further check, if the magic is not enough.
    pub(crate) closer: Option<Closer>,
}

impl Signature {
    /// [`reader`](Self::reader) for an image of this name.
    pub fn reader_of(&self, image: &str) -> String {
        self.reader.replace("{}", image)
    }
}

/// A format that was found on a device.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which one.
    pub signature: &'static Signature,
    /// Where its magic bytes are.
    pub magic: Vec<Range<u64>>,
}

/// Bytes of a device, a page at a time.
pub(crate) struct Reader<'a> {
    device: &'a dyn BlockDevice,
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

impl<'a> Reader<'a> {
    fn new(device: &'a dyn BlockDevice) -> Reader<'a> {
        Reader {
            device,
            pages: RefCell::default(),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    /// `length` bytes from `offset` on; `None` behind the end.
    fn bytes(&self, offset: u64, length: usize) -> Result<Option<Vec<u8>>> {
        let end = offset.checked_add(length as u64);
        let Some(end) = end.filter(|end| *end <= self.size_bytes()) else {
            return Ok(None);
        };
        let mut bytes = Vec::with_capacity(length);
        let mut at = offset;
        let mut pages = self.pages.borrow_mut();
        while at < end {
            let start = at / PAGE_BYTES * PAGE_BYTES;
            let page = match pages.entry(start) {
                std::collections::hash_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    let mut page = vec![0; PAGE_BYTES.min(self.size_bytes() - start) as usize];
                    self.device.read(start, &mut page)?;
                    free.insert(page)
                }
            };
            let stop = end.min(start + PAGE_BYTES);
            bytes.extend_from_slice(&page[(at - start) as usize..(stop - start) as usize]);
            at = stop;
        }
        Ok(Some(bytes))
    }

    /// Whether these bytes lie at that offset.
    fn holds(&self, offset: u64, magic: &[u8]) -> Result<bool> {
        Ok(self.bytes(offset, magic.len())?.as_deref() == Some(magic))
    }
}

/// Everything that is recognised on a device, the most telling first: file systems and disk images
/// before what they lie in.
///
/// # Errors
/// Where the device cannot be read.
pub fn find(device: &dyn BlockDevice) -> Result<Vec<Found>> {
    let reader = Reader::new(device);
    let has_ext = closer::is_ext(&reader)?;
    let mut found: Vec<Found> = Vec::new();
    for signature in signatures() {
        let magic = places_of(signature, &reader, has_ext)?;
        if !magic.is_empty() {
            found.push(Found { signature, magic });
        }
    }
    Ok(found)
}

/// The places where a format's magic lies and the further check holds.
fn places_of(
    signature: &'static Signature,
    reader: &Reader<'_>,
    has_ext: bool,
) -> Result<Vec<Range<u64>>> {
    let mut places = Vec::new();
    for (place, magic) in signature.magic {
        // A format without magic is recognised by its first bytes.
        let length = if magic.is_empty() {
            TEXT_BYTES
        } else {
            magic.len() as u64
        };
        for offset in place.offsets(reader.size_bytes()) {
            let is_hidden =
                has_ext && EXT_SUPERBLOCK.contains(&offset) && offset != closer::EXT_MAGIC_AT;
            if is_hidden || !reader.holds(offset, magic)? {
                continue;
            }
            let agrees = match signature.closer {
                Some(looks) => looks(reader, offset)?,
                None => true,
            };
            if agrees {
                places.push(offset..(offset + length).min(reader.size_bytes()));
            }
        }
    }
    Ok(places)
}

/// Zeroes the magic of everything that is recognised, including copies at the device's end, so that
/// no program takes the new contents for the old ones. Returns what was erased.
///
/// # Errors
/// Where the device cannot be read or written.
pub fn erase(device: &dyn BlockDevice) -> Result<Vec<&'static Signature>> {
    erase_but(device, &[])
}

/// The same, but for the formats of these names.
///
/// # Errors
/// Where the device cannot be read or written.
pub fn erase_but(device: &dyn BlockDevice, kept: &[&str]) -> Result<Vec<&'static Signature>> {
    let mut erased: Vec<&'static Signature> = Vec::new();
    for _ in 0..MOST_LAYERS {
        let mut found = find(device)?;
        found.retain(|found| !kept.contains(&found.signature.name));
        if found.is_empty() {
            break;
        }
        for Found { signature, magic } in found {
            for range in magic {
                device.write(range.start, &vec![0; (range.end - range.start) as usize])?;
            }
            if !erased.iter().any(|known| std::ptr::eq(*known, signature)) {
                erased.push(signature);
            }
        }
    }
    device.flush()?;
    Ok(erased)
}

/// How many partitions the tables of a disk have; 0 where it has no table.
pub(crate) fn partitions(reader: &Reader<'_>) -> Result<usize> {
    Ok(PartitionTable::read(reader.device)?.map_or(0, |table| table.partitions.len()))
}
