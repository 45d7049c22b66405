//! Numbers as they are in a trace: LEB128, and patches by how far back they are.

use crate::Damage;

/// Bytes that a number takes at most.
pub(crate) const MOST_NUMBER_BYTES: usize = 10;

/// Room that is written into from its beginning on. Who makes it sees to it that all fits, so that
/// nothing has to grow between two numbers.
pub(crate) struct Room<'r> {
    bytes: &'r mut [u8],
    len: usize,
}

impl<'r> Room<'r> {
    pub(crate) fn new(bytes: &'r mut [u8]) -> Room<'r> {
        Room { bytes, len: 0 }
    }

    /// How many bytes have been written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn put_byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Appends a number, seven bits to a byte, the lowest first.
    #[inline(always)]
    pub(crate) fn put(&mut self, number: u64) {
        match number {
            ..0x80 => self.put_byte(number as u8),
            0x80..0x4000 => {
                self.put_byte(number as u8 | 0x80);
                self.put_byte((number >> 7) as u8);
            }
            _ => self.put_long(number),
        }
    }

    fn put_long(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.put_byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.put_byte(number as u8);
    }

    /// Appends how many bytes these are, and them.
    #[inline]
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// What is left to be read of some bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        let (first, rest) = self.0.split_first().ok_or(Damage::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8], Damage> {
        let len = usize::try_from(len).map_err(|_| Damage::Short)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Damage::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Damage> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Damage::Number);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damage::Number)
    }

    pub(crate) fn small(&mut self) -> Result<u32, Damage> {
        u32::try_from(self.number()?).map_err(|_| Damage::Number)
    }
}

/// What a record is coded relative to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// The largest number of a patch so far; they are given out from 1 on.
    pub(crate) newest: u64,
    /// The time of the last record of one, in nanoseconds.
    pub(crate) time_ns: u64,
}

impl Context {
    /// A patch: 0 is the next new one, 1 the newest there is, 2 the one before it.
    #[inline(always)]
    pub(crate) fn put_patch(&mut self, room: &mut Room<'_>, patch: u64) {
        if patch > self.newest {
            self.newest = patch;
            room.put_byte(0);
        } else {
            room.put(self.newest - patch + 1);
        }
    }

    pub(crate) fn patch(&mut self, rest: &mut Rest<'_>) -> Result<u64, Damage> {
        match rest.number()? {
            0 => {
                self.newest = self.newest.checked_add(1).ok_or(Damage::Number)?;
                Ok(self.newest)
            }
            back => (self.newest + 1).checked_sub(back).ok_or(Damage::Number),
        }
    }

    #[inline(always)]
    pub(crate) fn put_patches(&mut self, room: &mut Room<'_>, patches: &[u64]) {
        room.put(patches.len() as u64);
        for patch in patches {
            self.put_patch(room, *patch);
        }
    }

    pub(crate) fn patches(
        &mut self,
        rest: &mut Rest<'_>,
        into: &mut Vec<u64>,
    ) -> Result<(), Damage> {
        into.clear();
        let count = rest.number()?;
        // Each takes a byte at least: no count makes us take more memory than there are bytes.
        if count > rest.0.len() as u64 {
            return Err(Damage::Short);
        }
        for _ in 0..count {
            into.push(self.patch(rest)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, 0x3fff, 0x4000, 1 << 32, u64::MAX];
        let mut bytes = [0; 9 * MOST_NUMBER_BYTES];
        let mut room = Room::new(&mut bytes);
        for number in numbers {
            room.put(number);
        }
        let len = room.len();
        let mut rest = Rest(&bytes[..len]);
        for number in numbers {
            assert_eq!(rest.number(), Ok(number));
        }
        assert_eq!(rest.number(), Err(Damage::Short));
        assert_eq!(Rest(&[0xff; 10]).number(), Err(Damage::Number));
    }

    #[test]
    fn patches_are_coded_by_how_far_back_they_are() {
        let (mut bytes, mut cx) = ([0xff; 6], Context::default());
        let mut room = Room::new(&mut bytes);
        for patch in [1, 2, 1, 3, 3, 1] {
            cx.put_patch(&mut room, patch);
        }
        assert_eq!((room.len(), bytes), (6, [0, 0, 2, 0, 1, 3]));
        let (mut rest, mut cx) = (Rest(&bytes), Context::default());
        for patch in [1, 2, 1, 3, 3, 1] {
            assert_eq!(cx.patch(&mut rest), Ok(patch));
        }
        assert_eq!(cx.patch(&mut Rest(&[5])), Err(Damage::Number));
    }
}
