//! The fields of an inode as they are on the disk, to be changed.

use std::ops::Range;

use backstitch_layout::{BlockNumber, Timestamp};

use crate::format::inode::{self, BASE_SIZE, encode_time, offset};

/// How much of an inode an editor can change: the base and the extra fields, whatever the inode's
/// size.
const EDITABLE: usize = 256;

/// The bytes of an inode that change whenever its map does: from its block count to its last
/// pointer.
const MAP_FIELDS: Range<usize> = offset::BLOCKS..offset::pointer(inode::POINTERS);

/// The upper half of the block count, and that of the attribute block's number behind it.
const BLOCKS_HIGH: usize = 116;

/// Fields in two parts: where the lower part begins, and the upper part.
const HALVES: [(usize, Range<usize>); 3] = [
    (offset::SIZE, offset::SIZE_HIGH..offset::SIZE_HIGH + 4),
    (offset::UID, offset::UID_HIGH..offset::UID_HIGH + 2),
    (offset::GID, offset::GID_HIGH..offset::GID_HIGH + 2),
];

/// Changes fields of an inode; what differs afterwards becomes one patch.
pub(crate) struct InodeEditor {
    bytes: [u8; EDITABLE],
    len: usize,
    extra_end: usize,
}

impl InodeEditor {
    /// Begins with an inode of `size` bytes that has nothing in it, and `extra` bytes of extra
    /// fields.
    pub(crate) fn of_new(size: usize, extra: u16) -> InodeEditor {
        let mut editor = InodeEditor {
            bytes: [0; EDITABLE],
            len: size.min(EDITABLE),
            extra_end: BASE_SIZE + usize::from(extra),
        };
        if extra > 0 {
            editor.put(offset::EXTRA_ISIZE, &extra.to_le_bytes());
        }
        editor
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn set_inline(&mut self, bytes: &[u8]) {
        self.put(offset::BLOCK, bytes);
    }

    fn set_time(&mut self, low_at: usize, extra_at: usize, time: Timestamp) {
        let has_extra = extra_at + 4 <= self.extra_end;
        let (low, extra) = encode_time(time, has_extra);
        self.put(low_at, &low.to_le_bytes());
        if has_extra {
            self.put(extra_at, &extra.to_le_bytes());
        }
    }

    /// The bytes behind the extra fields: attributes in the inode's body.
    pub(crate) fn body(&mut self) -> &mut [u8] {
        let from = self.extra_end.min(self.len);
        &mut self.bytes[from..self.len]
    }
}

impl backstitch_unixfs::format::InodeEditor for InodeEditor {
    fn of_inode(old: &[u8]) -> Self {
        let len = old.len().min(EDITABLE);
        let mut editor = InodeEditor {
            bytes: [0; EDITABLE],
            len,
            extra_end: extra_end(&old[..len]),
        };
        editor.bytes[..len].copy_from_slice(&old[..len]);
        editor
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn differing(&self, old: &[u8]) -> Option<Range<usize>> {
        let (first, last) = differing(self.bytes(), &old[..self.len])?;
        let fields = field_at(first).start..field_at(last).end.min(self.len);
        let is_other =
            |at: &Range<usize>| at.end <= self.len && self.bytes[at.clone()] != old[at.clone()];
        let halves = HALVES.iter().filter(|(_, high)| is_other(high));
        let first = halves.map(|(low, _)| *low).fold(fields.start, usize::min);
        Some(first..fields.end)
    }

    fn changes_map(&self, old: &[u8]) -> bool {
        self.bytes[MAP_FIELDS] != old[MAP_FIELDS]
    }

    fn set_mode(&mut self, mode: u16) {
        self.put(offset::MODE, &mode.to_le_bytes());
    }

    fn set_owner(&mut self, uid: u32) {
        self.put(offset::UID, &(uid as u16).to_le_bytes());
        self.put(offset::UID_HIGH, &((uid >> 16) as u16).to_le_bytes());
    }

    fn set_group(&mut self, gid: u32) {
        self.put(offset::GID, &(gid as u16).to_le_bytes());
        self.put(offset::GID_HIGH, &((gid >> 16) as u16).to_le_bytes());
    }

    fn set_size(&mut self, size: u64) {
        self.put(offset::SIZE, &(size as u32).to_le_bytes());
        if u16::from_le_bytes([self.bytes[offset::MODE], self.bytes[offset::MODE + 1]]) & 0o170_000
            == 0o100_000
        {
            self.put(offset::SIZE_HIGH, &((size >> 32) as u32).to_le_bytes());
        }
    }

    fn set_links(&mut self, links: u16) {
        self.put(offset::LINKS, &links.to_le_bytes());
    }

    fn set_sectors(&mut self, sectors: u64) {
        let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
        self.put(offset::BLOCKS, &sectors.to_le_bytes());
    }

    fn set_flags(&mut self, flags: u32) {
        self.put(offset::FLAGS, &flags.to_le_bytes());
    }

    fn set_generation(&mut self, generation: u32) {
        self.put(offset::GENERATION, &generation.to_le_bytes());
    }

    fn set_mark(&mut self, mark: u32) {
        self.put(offset::VERSION, &mark.to_le_bytes());
    }

    fn set_deleted(&mut self, when: Option<Timestamp>) {
        let seconds = when.map_or(0, |when| when.seconds.clamp(1, u32::MAX.into()) as u32);
        self.put(offset::DTIME, &seconds.to_le_bytes());
    }

    fn set_pointer(&mut self, index: usize, block: BlockNumber) {
        self.put(offset::pointer(index), &(block.0 as u32).to_le_bytes());
    }

    fn set_attribute_block(&mut self, block: BlockNumber) {
        self.put(offset::FILE_ACL, &(block.0 as u32).to_le_bytes());
    }

    fn set_accessed(&mut self, time: Timestamp) {
        self.set_time(offset::ATIME, offset::ATIME_EXTRA, time);
    }

    fn set_modified(&mut self, time: Timestamp) {
        self.set_time(offset::MTIME, offset::MTIME_EXTRA, time);
    }

    fn set_changed(&mut self, time: Timestamp) {
        self.set_time(offset::CTIME, offset::CTIME_EXTRA, time);
    }

    fn set_created(&mut self, time: Timestamp) {
        if offset::CRTIME + 4 <= self.extra_end {
            self.set_time(offset::CRTIME, offset::CRTIME_EXTRA, time);
        }
    }
}

/// The range of the field that the byte at `at` belongs to. A field has two bytes in some words of
/// the inode, four in the others.
fn field_at(at: usize) -> Range<usize> {
    let bytes = match at / 4 * 4 {
        offset::MODE | offset::GID | BLOCKS_HIGH | offset::UID_HIGH | offset::EXTRA_ISIZE => 2,
        _ => 4,
    };
    let start = at / bytes * bytes;
    start..start + bytes
}

/// The first and the last byte in which two inodes differ, looked for eight at a time.
fn differing(a: &[u8], b: &[u8]) -> Option<(usize, usize)> {
    const WORD: usize = 8;
    let (words_a, rest_a) = a.as_chunks::<WORD>();
    let (words_b, rest_b) = b.as_chunks::<WORD>();
    let whole = words_a.len() * WORD;
    let mut words = words_a.iter().zip(words_b);
    let first_word = words.clone().position(|(a, b)| a != b);
    let last_word = words.rposition(|(a, b)| a != b);
    let bits = |word: usize| u64::from_le_bytes(words_a[word]) ^ u64::from_le_bytes(words_b[word]);
    let mut rest = (0..rest_a.len()).filter(|i| rest_a[*i] != rest_b[*i]);
    let first_rest = rest.next();
    let last_rest = rest.next_back().or(first_rest).map(|i| whole + i);
    let first = first_word.map(|w| w * WORD + bits(w).trailing_zeros() as usize / 8);
    let last = last_word.map(|w| w * WORD + WORD - 1 - bits(w).leading_zeros() as usize / 8);
    Some((
        first.or(first_rest.map(|i| whole + i))?,
        last_rest.or(last)?,
    ))
}

/// Where the extra fields of an inode end.
fn extra_end(bytes: &[u8]) -> usize {
    match bytes.get(offset::EXTRA_ISIZE..offset::EXTRA_ISIZE + 2) {
        Some(size) => {
            let size = usize::from(u16::from_le_bytes([size[0], size[1]]));
            // As the parser: an impossible size counts as none.
            if size >= 4 && size % 4 == 0 && BASE_SIZE + size <= bytes.len() {
                BASE_SIZE + size
            } else {
                BASE_SIZE
            }
        }
        None => BASE_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::{InodeEditor, differing, offset};
    use backstitch_unixfs::format::InodeEditor as _;

    #[test]
    fn a_field_changes_as_a_whole() {
        let mut old = vec![0; 256];
        old[1] = 0x80; // A regular file.
        let differing = |edit: &dyn Fn(&mut InodeEditor)| {
            let mut editor = InodeEditor::of_inode(&old);
            edit(&mut editor);
            editor.differing(&old)
        };
        assert_eq!(differing(&|_| {}), None);
        let size = offset::SIZE..offset::SIZE + 4;
        for bytes in [1, 512, 1 << 16, 1 << 24] {
            assert_eq!(differing(&|e| e.set_size(bytes)), Some(size.clone()));
        }
        let both = offset::SIZE..offset::SIZE_HIGH + 4;
        assert_eq!(differing(&|e| e.set_size(1 << 32)), Some(both));
        let links = offset::LINKS..offset::LINKS + 2;
        assert_eq!(differing(&|e| e.set_links(256)), Some(links));
        let owner = offset::UID..offset::UID + 2;
        assert_eq!(differing(&|e| e.set_owner(1)), Some(owner));
        let owner = offset::UID..offset::UID_HIGH + 2;
        assert_eq!(differing(&|e| e.set_owner(1 << 16)), Some(owner));
    }

    #[test]
    fn what_differs_is_found_at_every_place() {
        for len in [0, 5, 8, 128, 131, 256] {
            let old = vec![0x5a_u8; len];
            assert_eq!(differing(&old, &old), None);
            for first in 0..len {
                for last in (first..len).step_by(3) {
                    let mut new = old.clone();
                    new[first] ^= 0x80;
                    if last > first {
                        new[last] ^= 1;
                    }
                    assert_eq!(differing(&new, &old), Some((first, last)), "of {len}");
                }
            }
        }
    }
}
