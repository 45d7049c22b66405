//! The fields of an inode as they are on the disk, to be changed.

use std::ops::Range;

use backstitch_layout::{BlockNumber, Timestamp, flags};

use crate::format::directory::UfsEntries;
use crate::format::inode::{
    Offsets, POINTERS, SF_APPEND, SF_IMMUTABLE, UF_APPEND, UF_IMMUTABLE, UF_NODUMP,
};
use crate::format::{ByteOrder, Version};
use crate::rules::{Rule, holds};

/// The largest inode.
const BYTES_MAX: usize = 256;

/// Flags of Linux, the bits by which UFS says the same, and the one of these that is set.
const FLAGS: [(u32, u32, u32); 3] = [
    (flags::IMMUTABLE, SF_IMMUTABLE | UF_IMMUTABLE, SF_IMMUTABLE),
    (flags::APPEND, SF_APPEND | UF_APPEND, SF_APPEND),
    (flags::NODUMP, UF_NODUMP, UF_NODUMP),
];

/// The flags of an inode as Linux has them.
pub(crate) fn linux_flags(on_disk: u32) -> u32 {
    let shown = FLAGS.iter().filter(|(_, bits, _)| on_disk & bits != 0);
    shown.fold(0, |all, (flag, _, _)| all | flag)
}

/// Flags as UFS has them: those that Linux knows as `wanted`, the others as they are.
fn ufs_flags(on_disk: u32, wanted: u32) -> u32 {
    FLAGS.iter().fold(on_disk, |all, (flag, bits, usual)| {
        match (wanted & flag != 0, all & bits != 0) {
            (true, false) => all | usual,
            (false, true) => all & !bits,
            _ => all,
        }
    })
}

/// Changes fields of an inode; what differs afterwards becomes one patch.
pub(crate) struct InodeEditor<const BIG: bool> {
    bytes: [u8; BYTES_MAX],
    version: Version,
}

impl<const BIG: bool> InodeEditor<BIG> {
    const ORDER: ByteOrder = UfsEntries::<BIG>::ORDER;

    /// Begins with an inode that has nothing in it.
    pub(crate) fn of_new(version: Version) -> Self {
        InodeEditor {
            bytes: [0; BYTES_MAX],
            version,
        }
    }

    fn at(&self) -> &'static Offsets {
        Offsets::of(self.version)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, &Self::ORDER.bytes_of_u16(value));
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &Self::ORDER.bytes_of_u32(value));
    }

    fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &Self::ORDER.bytes_of_u64(value));
    }

    /// A number of four bytes in UFS1, of eight in UFS2.
    fn put_wide(&mut self, at: usize, value: u64) {
        match self.version {
            Version::Ufs1 => self.put_u32(at, u32::try_from(value).unwrap_or(u32::MAX)),
            Version::Ufs2 => self.put_u64(at, value),
        }
    }

    fn set_time(&mut self, (seconds_at, nanoseconds_at): (usize, usize), time: Timestamp) {
        match self.version {
            Version::Ufs1 => {
                let seconds = time.seconds.clamp(i32::MIN.into(), i32::MAX.into());
                self.put_u32(seconds_at, seconds as i32 as u32);
            }
            Version::Ufs2 => self.put_u64(seconds_at, time.seconds as u64),
        }
        self.put_u32(nanoseconds_at, time.nanoseconds);
    }

    /// The target of a short symbolic link.
    pub(crate) fn set_inline(&mut self, target: &[u8]) {
        self.put(self.at().pointers, target);
    }

    /// The first pointer of a device.
    pub(crate) fn set_device(&mut self, device: u64) {
        // UFS1 has the lower half, as FreeBSD writes it.
        match self.version {
            Version::Ufs1 => self.put_u32(self.at().pointers, device as u32),
            Version::Ufs2 => self.put_u64(self.at().pointers, device),
        }
    }
}

impl<const BIG: bool> backstitch_unixfs::format::InodeEditor for InodeEditor<BIG> {
    fn of_inode(old: &[u8]) -> Self {
        let version = match old.len() {
            len if len < Version::Ufs2.inode_bytes() => Version::Ufs1,
            _ => Version::Ufs2,
        };
        let mut editor = InodeEditor::of_new(version);
        let len = version.inode_bytes().min(old.len());
        editor.bytes[..len].copy_from_slice(&old[..len]);
        editor
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.version.inode_bytes()]
    }

    fn differing(&self, old: &[u8]) -> Option<Range<usize>> {
        let new = self.bytes();
        let (first, last) = first_and_last(new, old)?;
        let mut start = field_at(self.version, first).start;
        let end = field_at(self.version, last).end;
        // To a checker a pointer past the end is damage, and what made the file long enough for it
        // may be a patch of the size alone. A patch of pointers has the size in it as well: so the
        // two overlap, and the pointers come after the size.
        let pointers = self.at().pointers..self.at().pointer(self.version, POINTERS);
        if new[pointers.clone()] != old[pointers] && holds(Rule::PointersGoWithSize) {
            start = start.min(self.at().size);
        }
        Some(start..end)
    }

    fn changes_map(&self, old: &[u8]) -> bool {
        let (at, version) = (self.at(), self.version);
        let pointers = at.pointers..at.pointer(version, POINTERS);
        let sectors = at.sectors..at.sectors + version.pointer_bytes();
        // The size says how many fragments the last block has.
        let size = at.size..at.size + 8;
        [pointers, sectors, size]
            .into_iter()
            .any(|range| self.bytes[range.clone()] != old[range])
    }

    fn set_mode(&mut self, mode: u16) {
        self.put_u16(self.at().mode, mode);
    }

    fn set_owner(&mut self, uid: u32) {
        self.put_u32(self.at().uid, uid);
    }

    fn set_group(&mut self, gid: u32) {
        self.put_u32(self.at().gid, gid);
    }

    fn set_size(&mut self, size: u64) {
        self.put_u64(self.at().size, size);
    }

    fn set_links(&mut self, links: u16) {
        self.put_u16(self.at().links, links);
    }

    fn set_sectors(&mut self, sectors: u64) {
        self.put_wide(self.at().sectors, sectors);
    }

    fn set_flags(&mut self, flags: u32) {
        let at = self.at().flags;
        let flags = ufs_flags(Self::ORDER.u32(&self.bytes, at), flags);
        self.put_u32(at, flags);
    }

    fn set_generation(&mut self, generation: u32) {
        self.put_u32(self.at().generation, generation);
    }

    fn set_mark(&mut self, mark: u32) {
        self.put_u64(self.at().revision, mark.into());
    }

    /// An inode that has no name counts none, and keeps its type and all that it has until it is
    /// cleared.
    fn set_deleted(&mut self, _when: Option<Timestamp>) {}

    /// All is zero but for the generation, which the next file of this number goes on from.
    fn clear(&mut self) {
        let at = self.at().generation;
        let generation = Self::ORDER.u32(&self.bytes, at);
        self.bytes = [0; BYTES_MAX];
        self.put_u32(at, generation);
    }

    fn set_pointer(&mut self, index: usize, block: BlockNumber) {
        let at = self.at().pointer(self.version, index);
        self.put_wide(at, block.0);
    }

    /// Attributes are not changed, and a new inode has none.
    fn set_attribute_block(&mut self, _block: BlockNumber) {}

    fn set_accessed(&mut self, time: Timestamp) {
        self.set_time(self.at().accessed, time);
    }

    fn set_modified(&mut self, time: Timestamp) {
        self.set_time(self.at().modified, time);
    }

    fn set_changed(&mut self, time: Timestamp) {
        self.set_time(self.at().changed, time);
    }

    fn set_created(&mut self, time: Timestamp) {
        if let Some(at) = self.at().created {
            self.set_time(at, time);
        }
    }
}

/// The field of an inode that a byte lies in: the field of eight bytes if there is one, so that
/// such a field changes as a whole.
fn field_at(version: Version, at: usize) -> Range<usize> {
    let offsets = Offsets::of(version);
    let is_wide = match version {
        Version::Ufs1 => at.wrapping_sub(offsets.size) < 8 || at.wrapping_sub(offsets.revision) < 8,
        // All fields of eight bytes are at multiples of eight, and so are pairs of shorter ones.
        Version::Ufs2 => true,
    };
    let bytes = if is_wide { 8 } else { 4 };
    let start = at / bytes * bytes;
    start..start + bytes
}

/// The first and the last byte that differ. Words are compared first: most are the same.
fn first_and_last(new: &[u8], old: &[u8]) -> Option<(usize, usize)> {
    const WORD: usize = 8;
    let (new, old) = (new.as_chunks::<WORD>().0, old.as_chunks::<WORD>().0);
    let mut words = new.iter().zip(old);
    let first = words.clone().position(|(new, old)| new != old)?;
    let last = words.rposition(|(new, old)| new != old)?;
    let bits = |word: usize| u64::from_le_bytes(new[word]) ^ u64::from_le_bytes(old[word]);
    Some((
        first * WORD + bits(first).trailing_zeros() as usize / 8,
        last * WORD + WORD - 1 - bits(last).leading_zeros() as usize / 8,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_unixfs::format::InodeEditor as _;

    fn differing<const BIG: bool>(
        old: &[u8],
        edit: &dyn Fn(&mut InodeEditor<BIG>),
    ) -> Range<usize> {
        let mut editor = InodeEditor::<BIG>::of_inode(old);
        assert_eq!(editor.differing(old), None);
        edit(&mut editor);
        editor.differing(old).unwrap()
    }

    #[test]
    fn words_that_are_the_same_are_passed_over() {
        for (first, last) in [(0, 0), (3, 5), (7, 8), (9, 127), (127, 127), (0, 127)] {
            let mut new = [1; 128];
            (new[first], new[last]) = (2, 3);
            assert_eq!(first_and_last(&new, &[1; 128]), Some((first, last)));
        }
        assert_eq!(first_and_last(&[1; 128], &[1; 128]), None);
    }

    #[test]
    fn a_field_changes_as_a_whole() {
        for bytes in [1, 512, 1 << 32, 1 << 50] {
            assert_eq!(differing::<false>(&[0; 128], &|e| e.set_size(bytes)), 8..16);
            assert_eq!(differing::<true>(&[0; 256], &|e| e.set_size(bytes)), 16..24);
        }
        assert_eq!(
            differing::<false>(&[0; 128], &|e| e.set_sectors(256)),
            104..108
        );
    }

    #[test]
    fn a_change_of_pointers_has_the_size_in_it() {
        for bytes in [1, 512, 1 << 32, 1 << 50] {
            let pointer = 112 + 14 * 8;
            let changed = differing::<true>(&[0; 256], &|e| e.set_pointer(14, BlockNumber(bytes)));
            assert_eq!(changed, 16..pointer + 8);
        }
        assert_eq!(
            differing::<false>(&[0; 128], &|e| e.set_pointer(2, BlockNumber(1))),
            8..52
        );
    }

    #[test]
    fn flags_that_only_ufs_has_stay() {
        let archived = crate::format::inode::SF_ARCHIVED;
        let on_disk = ufs_flags(archived | UF_IMMUTABLE, flags::IMMUTABLE | flags::APPEND);
        assert_eq!(on_disk, archived | UF_IMMUTABLE | SF_APPEND);
        assert_eq!(linux_flags(on_disk), flags::IMMUTABLE | flags::APPEND);
        assert_eq!(ufs_flags(on_disk, 0), archived);
    }
}
