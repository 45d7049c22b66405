//! Reads numbers from an input's bytes. Zeros follow its end, so every input means something.

/// The rest of an input.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes: `most`, or fewer at the end.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Two bytes, little-endian.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes, little-endian.
    pub fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes, little-endian.
    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// An element of a list, chosen by a byte; `None` if the list is empty.
    pub fn pick<'t, T>(&mut self, list: &'t [T]) -> Option<&'t T> {
        let choice = usize::from(self.byte());
        list.get(choice.checked_rem(list.len())?)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_end_there_are_zeros() {
        let mut input = Input::new(&[1, 2, 3, 4, 5]);
        assert_eq!((input.byte(), input.word()), (1, 0x0302));
        assert_eq!(input.pick(&[7, 8, 9]), Some(&8));
        assert_eq!((input.number(), input.is_empty()), (5, true));
        assert_eq!((input.byte(), input.long(), input.rest()), (0, 0, &[][..]));
        assert_eq!(input.pick::<u8>(&[]), None);
    }
}
