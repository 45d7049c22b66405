//! Undo data: what the bytes of a patch were before it.

/// The previous contents of the bytes that a patch changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undo {
    /// Nothing to undo (hard, empty).
    None,
    /// Bits, taken back by flipping them again. `covered` holds every bit that was ever flipped, also those that a merged change
    /// flipped back: later flips of them come after.
    Flip { covered: Packed },
    /// They were all zero.
    Zero,
    /// They fit into the patch.
    Inline([u8; 8]),
    /// They are in this slot of the [`UndoStore`].
    Stored(Packed),
}

/// A number that may lie at any address, which saves a patch four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed([u8; 4]);

impl Packed {
    pub(crate) fn new(number: u32) -> Packed {
        Packed(number.to_ne_bytes())
    }

    pub(crate) fn get(self) -> u32 {
        u32::from_ne_bytes(self.0)
    }
}

/// The smallest buffer is of 16 bytes, every next size is twice as large.
const CLASSES: usize = 9;
const SMALLEST: usize = 16;
/// Buffers of this many bytes at most are kept for reuse.
const SPARE_BYTES: usize = 256 << 10;

/// Undo data that does not fit into its patch. Buffers come in sizes of powers of two and are used again, so that a graph in a
/// steady state allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct UndoStore {
    slots: Vec<Box<[u8]>>,
    free_slots: Vec<u32>,
    spare: [Vec<Box<[u8]>>; CLASSES],
    spare_bytes: usize,
}

impl UndoStore {
    /// Keeps the old bytes of a patch. `frugal` keeps zeros, which is what most bytes were that a file system initialises, in no
    /// space at all.
    pub(crate) fn keep(&mut self, old: &[u8], frugal: bool) -> Undo {
        if frugal && old.iter().all(|b| *b == 0) {
            return Undo::Zero;
        }
        if old.len() <= 8 {
            let mut bytes = [0; 8];
            bytes[..old.len()].copy_from_slice(old);
            return Undo::Inline(bytes);
        }
        let mut buffer = self.buffer(old.len());
        buffer[..old.len()].copy_from_slice(old);
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = buffer;
            return Undo::Stored(Packed::new(slot));
        }
        self.slots.push(buffer);
        Undo::Stored(Packed::new(self.slots.len() as u32 - 1))
    }

    fn buffer(&mut self, len: usize) -> Box<[u8]> {
        let size = len.next_power_of_two().max(SMALLEST);
        let class = Self::class(size);
        if let Some(buffer) = self.spare.get_mut(class).and_then(Vec::pop) {
            self.spare_bytes -= buffer.len();
            return buffer;
        }
        vec![0; size].into()
    }

    fn class(size: usize) -> usize {
        (size / SMALLEST).trailing_zeros() as usize
    }

    /// Puts the old bytes into `into`, which is as long as they are.
    pub(crate) fn restore(&self, undo: Undo, into: &mut [u8]) {
        match undo {
            Undo::None | Undo::Flip { .. } => {}
            Undo::Zero => into.fill(0),
            Undo::Inline(bytes) => into.copy_from_slice(&bytes[..into.len()]),
            Undo::Stored(slot) => {
                into.copy_from_slice(&self.slots[slot.get() as usize][..into.len()])
            }
        }
    }

    /// Gives up what `undo` holds.
    pub(crate) fn forget(&mut self, undo: Undo) {
        let Undo::Stored(slot) = undo else {
            return;
        };
        let slot = slot.get();
        let buffer = std::mem::take(&mut self.slots[slot as usize]);
        self.free_slots.push(slot);
        let class = Self::class(buffer.len());
        if class < CLASSES && self.spare_bytes + buffer.len() <= SPARE_BYTES {
            self.spare_bytes += buffer.len();
            self.spare[class].push(buffer);
        }
    }
}

impl Undo {
    /// The bytes of undo data that a patch of `len` bytes holds with this.
    pub(crate) fn held_bytes(self, len: u32) -> u64 {
        match self {
            Undo::Stored(_) => u64::from(len),
            Undo::Inline(_) => 8,
            Undo::None | Undo::Flip { .. } | Undo::Zero => 0,
        }
    }
}
