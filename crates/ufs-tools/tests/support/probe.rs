//! An image in memory whose structures can be found and changed, without any of the code under
//! test but the format's.

use backstitch_layout::{GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::CHUNK_BYTES;
use backstitch_ufs::format::inode::{DIRECT_POINTERS, Offsets};
use backstitch_ufs::format::record::RECORD_END;
use backstitch_ufs::format::{
    CylinderGroup, Inode, OnDisk, ROOT_INODE, RawCylinderGroup, RawSuperblock, Superblock, Version,
};

/// An image.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sb: Superblock,
}

impl Probe {
    pub(crate) fn new(bytes: Vec<u8>) -> Probe {
        let size = bytes.len() as u64;
        let sb = Superblock::find(size, |place| {
            let at = place as usize;
            let found = bytes.get(at..at + RECORD_END);
            Ok::<_, backstitch_layout::FormatError>(found.map(<[u8]>::to_vec))
        })
        .unwrap();
        Probe { bytes, sb }
    }

    pub(crate) fn poke(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Where a fragment begins.
    pub(crate) fn fragment(&self, fragment: u64) -> usize {
        (fragment * u64::from(self.sb.fragment_bytes)) as usize
    }

    /// Changes the superblock.
    pub(crate) fn superblock(&mut self, change: impl FnOnce(&mut RawSuperblock)) {
        let at = self.sb.place as usize;
        let mut raw = RawSuperblock::decode(self.sb.order, &self.bytes[at..]);
        change(&mut raw);
        raw.encode(self.sb.order, &mut self.bytes[at..]);
    }

    /// Where a group's header begins.
    pub(crate) fn header(&self, group: u32) -> usize {
        self.fragment(self.sb.group_header(GroupNumber(group)))
    }

    /// Changes a group's header.
    pub(crate) fn group(&mut self, group: u32, change: impl FnOnce(&mut RawCylinderGroup)) {
        let at = self.header(group);
        let mut raw = RawCylinderGroup::decode(self.sb.order, &self.bytes[at..]);
        change(&mut raw);
        raw.encode(self.sb.order, &mut self.bytes[at..]);
    }

    /// A group's header, read.
    pub(crate) fn parsed_group(&self, group: u32) -> CylinderGroup<'_> {
        let at = self.header(group);
        let bytes = &self.bytes[at..at + self.sb.group_bytes as usize];
        CylinderGroup::parse(&self.sb, GroupNumber(group), bytes).unwrap()
    }

    /// Where an inode begins.
    pub(crate) fn inode_at(&self, number: u32) -> usize {
        let (fragment, offset) = self.sb.inode_place(InodeNumber(number));
        self.fragment(fragment) + offset
    }

    pub(crate) fn inode(&self, number: u32) -> Inode {
        let at = self.inode_at(number);
        Inode::parse(self.sb.version, self.sb.order, &self.bytes[at..at + 256]).unwrap()
    }

    pub(crate) fn offsets(&self) -> &'static Offsets {
        Offsets::of(self.sb.version)
    }

    pub(crate) fn set_u16(&mut self, at: usize, value: u16) {
        self.poke(at, &self.sb.order.bytes_of_u16(value));
    }

    pub(crate) fn set_u32(&mut self, at: usize, value: u32) {
        self.poke(at, &self.sb.order.bytes_of_u32(value));
    }

    pub(crate) fn set_u64(&mut self, at: usize, value: u64) {
        self.poke(at, &self.sb.order.bytes_of_u64(value));
    }

    /// Sets a number of as many bytes as a pointer has.
    pub(crate) fn set_wide(&mut self, at: usize, value: u64) {
        match self.sb.version {
            Version::Ufs1 => self.set_u32(at, value as u32),
            Version::Ufs2 => self.set_u64(at, value),
        }
    }

    pub(crate) fn set_pointer(&mut self, number: u32, slot: usize, value: u64) {
        let at = self.inode_at(number) + self.offsets().pointer(self.sb.version, slot);
        self.set_wide(at, value);
    }

    pub(crate) fn set_size(&mut self, number: u32, size: u64) {
        let at = self.inode_at(number) + self.offsets().size;
        self.set_u64(at, size);
    }

    /// The direct blocks of an inode: where each begins, and its bytes.
    pub(crate) fn direct_blocks(&self, number: u32) -> Vec<(usize, usize)> {
        let inode = self.inode(number);
        let block = u64::from(self.sb.block_bytes);
        (0..DIRECT_POINTERS as u64)
            .take_while(|index| index * block < inode.size)
            .filter(|index| inode.pointers[*index as usize] != 0)
            .map(|index| {
                let len = (inode.size - index * block).min(block);
                (self.fragment(inode.pointers[index as usize]), len as usize)
            })
            .collect()
    }

    /// The first bytes of a file, those in its direct blocks.
    pub(crate) fn contents(&self, number: u32) -> Vec<u8> {
        let blocks = self.direct_blocks(number).into_iter();
        blocks
            .flat_map(|(at, len)| self.bytes[at..at + len].to_vec())
            .collect()
    }

    /// The entries of a directory: where each is, its inode, and its name.
    pub(crate) fn entries(&self, directory: u32) -> Vec<(usize, u32, Vec<u8>)> {
        let mut found = Vec::new();
        for (start, len) in self.direct_blocks(directory) {
            for chunk in (start..start + len).step_by(CHUNK_BYTES) {
                let mut at = chunk;
                while at + 8 <= chunk + CHUNK_BYTES {
                    let inode = self.sb.order.u32(&self.bytes, at);
                    let rec_len = self.sb.order.u16(&self.bytes, at + 4) as usize;
                    let name_len = self.bytes[at + 7] as usize;
                    if inode != 0 {
                        let name = self.bytes[at + 8..at + 8 + name_len].to_vec();
                        found.push((at, inode, name));
                    }
                    at += rec_len.max(8);
                }
            }
        }
        found
    }

    /// Where the entry of a path is, and its inode.
    pub(crate) fn entry(&self, path: &str) -> (usize, u32) {
        let mut found = (0, ROOT_INODE.0);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let entries = self.entries(found.1);
            let entry = entries.iter().find(|(_, _, name)| name == part.as_bytes());
            let (at, inode, _) = entry.unwrap_or_else(|| panic!("{path}: no {part}"));
            found = (*at, *inode);
        }
        found
    }

    pub(crate) fn path(&self, path: &str) -> u32 {
        self.entry(path).1
    }

    /// Takes a name away: its entry stands for nothing.
    pub(crate) fn unlink(&mut self, path: &str) {
        let (at, _) = self.entry(path);
        self.set_u32(at, 0);
    }

    /// Makes an entry stand for another inode, with another type.
    pub(crate) fn relink(&mut self, path: &str, inode: u32, file_type: u8) {
        let (at, _) = self.entry(path);
        self.set_u32(at, inode);
        self.poke(at + 6, &[file_type]);
    }
}
