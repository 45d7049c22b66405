//! Entries of directories in either byte order.

use backstitch_blocks::directory::{self, DirectoryError, Entry, HEADER_SIZE};
use backstitch_layout::InodeNumber;
use backstitch_ufs::format::directory::{CHUNK_BYTES, UfsEntries};
use backstitch_ufs::format::{ByteOrder, OnDisk};

pub(crate) use backstitch_ufs::format::directory::RawEntry;

/// The entries of some chunks; ends after the first error.
pub(crate) enum Entries<'a> {
    Little(directory::Entries<'a, UfsEntries<false>>),
    Big(directory::Entries<'a, UfsEntries<true>>),
}

/// The entries of one or more chunks.
pub(crate) fn entries(order: ByteOrder, bytes: &[u8]) -> Entries<'_> {
    match order {
        ByteOrder::Little => Entries::Little(directory::entries(bytes, u32::MAX)),
        ByteOrder::Big => Entries::Big(directory::entries(bytes, u32::MAX)),
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Little(entries) => entries.next(),
            Entries::Big(entries) => entries.next(),
        }
    }
}

/// The entries of all chunks with names, as far as each chunk can be read.
pub(crate) fn live(order: ByteOrder, bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let chunks = bytes.chunks(CHUNK_BYTES).enumerate();
    chunks.flat_map(move |(index, chunk)| {
        let sound = entries(order, chunk).map_while(Result::ok);
        let named = sound.filter(|entry| entry.inode != InodeNumber::NONE);
        named.map(move |entry| Entry {
            offset: index * CHUNK_BYTES + entry.offset,
            ..entry
        })
    })
}

/// The bytes that an entry with a name of this length takes, with the zero behind it.
pub(crate) fn needed(name_len: usize) -> usize {
    (HEADER_SIZE + name_len + 1).next_multiple_of(4)
}

/// An entry to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) inode: InodeNumber,
    pub(crate) file_type: u8,
    pub(crate) name: Vec<u8>,
}

/// Writes entries into a chunk, the last one with all the space that is left. Gives those that do
/// not fit.
pub(crate) fn fill<'s>(order: ByteOrder, chunk: &mut [u8], all: &'s [Saved]) -> &'s [Saved] {
    chunk.fill(0);
    let (mut at, mut count) = (0, 0);
    for saved in all {
        let len = needed(saved.name.len());
        if at + len > chunk.len() {
            break;
        }
        put(order, chunk, at, len, saved);
        (at, count) = (at + len, count + 1);
    }
    let last_len = all[..count]
        .last()
        .map_or(0, |saved| needed(saved.name.len()));
    let start = at - last_len;
    let rec_len = order.bytes_of_u16((chunk.len() - start) as u16);
    let field = start + core::mem::offset_of!(RawEntry, d_reclen);
    chunk[field..field + 2].copy_from_slice(&rec_len);
    &all[count..]
}

fn put(order: ByteOrder, chunk: &mut [u8], at: usize, len: usize, saved: &Saved) {
    let raw = RawEntry {
        d_ino: saved.inode.0,
        d_reclen: len as u16,
        d_type: saved.file_type,
        d_namlen: saved.name.len() as u8,
    };
    raw.encode(order, &mut chunk[at..]);
    chunk[at + HEADER_SIZE..at + HEADER_SIZE + saved.name.len()].copy_from_slice(&saved.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_filled_as_far_as_they_go() {
        for order in ByteOrder::ALL {
            let all: Vec<Saved> = (1..=50_u32)
                .map(|inode| Saved {
                    inode: InodeNumber(inode),
                    file_type: 8,
                    name: format!("name {inode}").into_bytes(),
                })
                .collect();
            let mut chunk = vec![0xff; CHUNK_BYTES];
            let left = fill(order, &mut chunk, &all);
            let found: Vec<_> = entries(order, &chunk).map(Result::unwrap).collect();
            assert_eq!(found.len() + left.len(), 50);
            assert!(found.len() > 20 && found.iter().zip(&all).all(|(a, b)| a.name == b.name));
            assert_eq!(fill(order, &mut chunk, &[]).len(), 0);
            let empty: Vec<_> = entries(order, &chunk).map(Result::unwrap).collect();
            assert_eq!((empty.len(), empty[0].rec_len), (1, 512));
            assert_eq!(empty[0].inode, InodeNumber::NONE);
        }
    }
}
