//! Where each name of a large directory is, in memory.

use smallvec::SmallVec;

use crate::name_table::NameTable;
use crate::room::RoomSummary;

/// Where each name of a directory is, and how much room each block has.
#[derive(Debug)]
pub struct DirectoryIndex {
    /// Where each name is: its block and its offset there, as one number.
    pub places: NameTable,
    /// The largest gap of each block, an upper bound.
    pub room: RoomSummary,
    /// Of the directory's blocks, in bytes.
    pub block_size: u64,
}

impl DirectoryIndex {
    /// Names, `.` and `..` among them.
    pub fn names(&self) -> u64 {
        self.places.names() as u64
    }

    /// About what it takes in memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.places.bytes()
    }

    /// Adds a name at an offset of a block of the directory.
    pub fn add(&mut self, name: &[u8], logical: u64, offset: usize) {
        let place = logical * self.block_size + offset as u64;
        self.places.add(hash(name), place);
    }

    /// Takes a name away that was there.
    pub fn remove(&mut self, name: &[u8], logical: u64, offset: usize) {
        let place = logical * self.block_size + offset as u64;
        self.places.remove(hash(name), place);
    }

    /// The blocks and offsets at which a name may be: mostly one, or none.
    pub fn find(&self, name: &[u8]) -> SmallVec<[(u64, usize); 2]> {
        let places = self.places.find(hash(name));
        places
            .map(|place| (place / self.block_size, (place % self.block_size) as usize))
            .collect()
    }

    /// Notes the largest gap of a block, in bytes.
    pub fn set_room(&mut self, logical: u64, room: usize) {
        self.room.set(logical as usize, room);
    }
}

/// A hash that spreads: eight bytes at a time, multiplied and folded.
pub fn hash(name: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = name.len() as u64 ^ K;
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let product = u128::from(h ^ u64::from_le_bytes(word)).wrapping_mul(u128::from(K) << 1 | 1);
        h = (product as u64) ^ ((product >> 64) as u64);
        h = h.rotate_left(23).wrapping_mul(K);
    }
    h ^ h >> 32
}
