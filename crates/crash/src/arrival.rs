//! The parts of a batch on its way that have arrived.

use backstitch_crash_core::classes::Choices;
use backstitch_crash_core::image::Fork;
use backstitch_device::Buffer;
use backstitch_store::Batch;

/// A block that is on its way, or some sectors of one.
pub(crate) struct Arriving {
    pub(crate) block: u64,
    /// The sectors, a bit for each.
    pub(crate) sectors: u64,
    /// What the block is to hold.
    bytes: Buffer,
}

impl Arriving {
    /// What the block is to hold.
    pub(crate) fn bytes(&self) -> &Buffer {
        &self.bytes
    }
}

/// The blocks that a batch writes, wholly or in part.
pub(crate) fn arriving(batch: &Batch, disk: &Fork) -> Vec<Arriving> {
    let size = u64::from(disk.block_bytes());
    let mut arriving = Vec::new();
    for request in batch.writes.iter().flat_map(|(_, requests)| requests) {
        let mut offset = request.offset_bytes;
        for buffer in &request.buffers {
            let (block, at) = (offset / size, (offset % size) as usize);
            offset += buffer.len() as u64;
            let is_whole = buffer.len() as u64 == size;
            let mut part = Arriving {
                block,
                sectors: disk.all_sectors(),
                bytes: buffer.clone(),
            };
            if !is_whole {
                let mut bytes = disk.block(block).to_vec();
                bytes[at..at + buffer.len()].copy_from_slice(buffer);
                part.bytes = bytes.into();
                part.sectors = ((1 << (buffer.len() / 512)) - 1) << (at / 512);
            }
            arriving.push(part);
        }
    }
    arriving
}

/// Lets some sectors of a block arrive.
pub(crate) fn arrive(state: &mut Fork, part: &Arriving, sectors: u64) {
    let sectors = sectors & part.sectors;
    if sectors == state.all_sectors() {
        return state.set_block(part.block, part.bytes.clone());
    }
    let mut bytes = state.block(part.block).to_vec();
    for sector in (0..bytes.len() / 512).filter(|sector| sectors & (1 << sector) != 0) {
        let range = sector * 512..(sector + 1) * 512;
        bytes[range.clone()].copy_from_slice(&part.bytes[range]);
    }
    state.set_block(part.block, bytes.into());
}

/// The pieces of a batch that arrive independently: blocks, or sectors where blocks may be torn.
pub(crate) struct Pieces<'p> {
    /// What is on its way.
    pub(crate) arriving: &'p [Arriving],
    /// Which blocks are files' contents.
    pub(crate) contents: &'p [bool],
    /// The image before the batch.
    pub(crate) disk: &'p Fork,
    /// For each piece the index of its block in `arriving`, and its sectors.
    pub(crate) pieces: Vec<(usize, u64)>,
}

impl<'p> Pieces<'p> {
    pub(crate) fn of(
        arriving: &'p [Arriving],
        contents: &'p [bool],
        disk: &'p Fork,
        torn: bool,
    ) -> Pieces<'p> {
        let mut pieces: Vec<(usize, u64)> = Vec::new();
        for (at, part) in arriving.iter().enumerate() {
            match torn {
                true => {
                    let sectors = (0..64).map(|bit| 1 << bit);
                    let there = sectors.filter(|sector| part.sectors & sector != 0);
                    pieces.extend(there.map(|sector| (at, sector)));
                }
                false => pieces.push((at, part.sectors)),
            }
        }
        Pieces {
            arriving,
            contents,
            disk,
            pieces,
        }
    }

    /// The pieces of each block in `arriving`.
    pub(crate) fn of_each(&self) -> Vec<Vec<usize>> {
        let mut of_each = vec![Vec::new(); self.arriving.len()];
        for (piece, (at, _)) in self.pieces.iter().enumerate() {
            of_each[*at].push(piece);
        }
        of_each
    }

    /// Which sectors of each block arrived with these pieces.
    pub(crate) fn arrived(&self, included: &[bool]) -> Vec<u64> {
        let mut arrived = vec![0; self.arriving.len()];
        for ((at, sectors), _) in self.pieces.iter().zip(included).filter(|(_, is)| **is) {
            arrived[*at] |= sectors;
        }
        arrived
    }
}

impl Choices for Pieces<'_> {
    fn count(&self) -> usize {
        self.pieces.len()
    }

    fn befores(&self, _piece: usize) -> &[usize] {
        &[]
    }

    fn block(&self, piece: usize) -> u64 {
        self.arriving[self.pieces[piece].0].block
    }

    fn is_contents(&self, piece: usize) -> bool {
        self.contents[self.pieces[piece].0]
    }

    fn state(&mut self, included: &[bool]) -> (Fork, u128) {
        let mut state = self.disk.clone();
        for (part, sectors) in self.arriving.iter().zip(self.arrived(included)) {
            if sectors != 0 {
                arrive(&mut state, part, sectors);
            }
        }
        let fingerprint = state.fingerprint();
        (state, fingerprint)
    }
}
