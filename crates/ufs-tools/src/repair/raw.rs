//! An inode's bytes, to be changed.

use backstitch_ufs::format::inode::{ATTRIBUTE_POINTERS, Offsets, POINTERS};
use backstitch_ufs::format::{ByteOrder, FormatError, Inode, RawInode2, Superblock, Version};
use core::mem::offset_of;

/// The bytes of one inode.
pub(super) struct InodeBytes {
    version: Version,
    order: ByteOrder,
    pub(super) bytes: Vec<u8>,
}

impl InodeBytes {
    pub(super) fn new(sb: &Superblock, bytes: Vec<u8>) -> InodeBytes {
        InodeBytes {
            version: sb.version,
            order: sb.order,
            bytes,
        }
    }

    pub(super) fn parse(&self) -> Result<Inode, FormatError> {
        Inode::parse(self.version, self.order, &self.bytes)
    }

    fn at(&self) -> &'static Offsets {
        Offsets::of(self.version)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A number of as many bytes as a pointer has.
    fn put_wide(&mut self, at: usize, value: u64) {
        match self.version {
            Version::Ufs1 => self.put(at, &self.order.bytes_of_u32(value as u32)),
            Version::Ufs2 => self.put(at, &self.order.bytes_of_u64(value)),
        }
    }

    pub(super) fn set_mode(&mut self, mode: u16) {
        self.put(self.at().mode, &self.order.bytes_of_u16(mode));
    }

    pub(super) fn set_links(&mut self, links: u16) {
        self.put(self.at().links, &self.order.bytes_of_u16(links));
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.put(self.at().size, &self.order.bytes_of_u64(size));
    }

    pub(super) fn set_sectors(&mut self, sectors: u64) {
        self.put_wide(self.at().sectors, sectors);
    }

    pub(super) fn set_pointer(&mut self, slot: usize, pointer: u64) {
        self.put_wide(self.at().pointer(self.version, slot), pointer);
    }

    /// Sets the times of access, modification and change.
    pub(super) fn set_times(&mut self, seconds: u64) {
        let at = self.at();
        for (place, _) in [at.accessed, at.modified, at.changed] {
            self.put_wide(place, seconds);
        }
    }

    /// Takes all extended attributes away.
    pub(super) fn clear_attributes(&mut self) {
        if self.version == Version::Ufs2 {
            self.put(offset_of!(RawInode2, di_extsize), &[0; 4]);
            self.put(offset_of!(RawInode2, di_extb), &[0; 8 * ATTRIBUTE_POINTERS]);
        }
    }

    /// Frees it: everything is zero but the generation.
    pub(super) fn clear(&mut self) {
        let at = self.at().generation;
        let generation = [
            self.bytes[at],
            self.bytes[at + 1],
            self.bytes[at + 2],
            self.bytes[at + 3],
        ];
        self.bytes.fill(0);
        self.put(at, &generation);
    }

    /// Makes it a directory with its first block at `fragment`.
    pub(super) fn make_directory(&mut self, fragment: u64, bytes: u64, sectors: u64, now: u64) {
        self.clear();
        self.set_mode(0o040_700);
        self.set_links(2);
        self.set_size(bytes);
        self.set_sectors(sectors);
        for slot in 0..POINTERS {
            self.set_pointer(slot, 0);
        }
        self.set_pointer(0, fragment);
        self.set_times(now);
    }
}
