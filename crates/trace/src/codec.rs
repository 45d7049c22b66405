//! Numbers as they are in a trace: LEB128, and patches by how far back they are.

use crate::Damage;

/// Appends a number, seven bits to a byte, the lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
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
    pub(crate) fn put_patch(&mut self, out: &mut Vec<u8>, patch: u64) {
        if patch > self.newest {
            self.newest = patch;
            out.push(0);
        } else {
            put(out, self.newest - patch + 1);
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

    pub(crate) fn put_patches(&mut self, out: &mut Vec<u8>, patches: &[u64]) {
        put(out, patches.len() as u64);
        for patch in patches {
            self.put_patch(out, *patch);
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
        let mut out = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        for number in numbers {
            put(&mut out, number);
        }
        let mut rest = Rest(&out);
        for number in numbers {
            assert_eq!(rest.number(), Ok(number));
        }
        assert_eq!(rest.number(), Err(Damage::Short));
        assert_eq!(Rest(&[0xff; 10]).number(), Err(Damage::Number));
    }

    #[test]
    fn patches_are_coded_by_how_far_back_they_are() {
        let (mut out, mut cx) = (Vec::new(), Context::default());
        for patch in [1, 2, 1, 3, 3, 1] {
            cx.put_patch(&mut out, patch);
        }
        assert_eq!(out, [0, 0, 2, 0, 1, 3]);
        let (mut rest, mut cx) = (Rest(&out), Context::default());
        for patch in [1, 2, 1, 3, 3, 1] {
            assert_eq!(cx.patch(&mut rest), Ok(patch));
        }
        assert_eq!(cx.patch(&mut Rest(&[5])), Err(Damage::Number));
    }
}
