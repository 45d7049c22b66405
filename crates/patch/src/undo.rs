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
    /// They fit into the patch. Zeros follow.
    Inline([u8; 8]),
    /// They are in this slot of the [`UndoStore`]. Zeros follow.
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
    slots: Vec<Kept>,
    free_slots: Vec<u32>,
    spare: [Vec<Box<[u8]>>; CLASSES],
    spare_bytes: usize,
}

/// A part of a buffer.
#[derive(Debug, Default)]
struct Kept {
    buffer: Box<[u8]>,
    len_bytes: usize,
}

impl UndoStore {
    /// Keeps the old bytes of a patch. `frugal` keeps the zeros at their end, which is what bytes mostly were that a file system
    /// initialises or takes into use, in no space at all.
    pub(crate) fn keep(&mut self, old: &[u8], frugal: bool) -> Undo {
        let mut kept = old;
        if frugal {
            let zeros = old.iter().rev().take_while(|b| **b == 0).count();
            kept = &old[..old.len() - zeros];
            if kept.is_empty() {
                return Undo::Zero;
            }
        }
        if kept.len() <= 8 {
            let mut bytes = [0; 8];
            bytes[..kept.len()].copy_from_slice(kept);
            return Undo::Inline(bytes);
        }
        let mut buffer = self.buffer(kept.len());
        buffer[..kept.len()].copy_from_slice(kept);
        let kept = Kept {
            buffer,
            len_bytes: kept.len(),
        };
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = kept;
            return Undo::Stored(Packed::new(slot));
        }
        self.slots.push(kept);
        Undo::Stored(Packed::new(self.slots.len() as u32 - 1))
    }

    /// The bytes of undo data that are held with this.
    pub(crate) fn held_bytes(&self, undo: Undo) -> u64 {
        match undo {
            Undo::Stored(slot) => self.slots[slot.get() as usize].len_bytes as u64,
            Undo::Inline(_) => 8,
            Undo::None | Undo::Flip { .. } | Undo::Zero => 0,
        }
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
        let kept = match &undo {
            Undo::None | Undo::Flip { .. } => return,
            Undo::Zero => &[],
            Undo::Inline(bytes) => &bytes[..into.len().min(bytes.len())],
            Undo::Stored(slot) => {
                let kept = &self.slots[slot.get() as usize];
                &kept.buffer[..kept.len_bytes]
            }
        };
        let (first, zeros) = into.split_at_mut(kept.len());
        first.copy_from_slice(kept);
        zeros.fill(0);
    }

    /// Gives up what `undo` holds.
    pub(crate) fn forget(&mut self, undo: Undo) {
        let Undo::Stored(slot) = undo else {
            return;
        };
        let slot = slot.get();
        let Kept { buffer, .. } = std::mem::take(&mut self.slots[slot as usize]);
        self.free_slots.push(slot);
        let class = Self::class(buffer.len());
        if class < CLASSES && self.spare_bytes + buffer.len() <= SPARE_BYTES {
            self.spare_bytes += buffer.len();
            self.spare[class].push(buffer);
        }
    }
}
