//! Where each name of a large directory is: a table in memory of eight bytes a name.

/// Names by a part of their hashes: each slot holds that part and the place of the entry in the
/// directory. Several names may share the part; a search reads the entries. Slots are taken from a
/// name's first choice on, and the table stays in the order of the hashes but for its wrap at the
/// end, so that growing reads and writes from front to back.
#[derive(Debug, Default)]
pub struct NameTable {
    /// In the high half a part of the name's hash, in the low half its place + 1; 0 where there is
    /// no name.
    slots: Vec<u64>,
    len: usize,
}

/// Places are counted in units of four bytes, which entries are aligned to.
const UNIT: u64 = 4;
/// Directories of more bytes cannot have a table.
pub const MOST_BYTES: u64 = (u32::MAX as u64) * UNIT;
const FEWEST_SLOTS: usize = 64;

impl NameTable {
    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<u64>()) as u64
    }

    /// Names in it.
    pub fn names(&self) -> usize {
        self.len
    }

    /// Adds the name with this hash whose entry begins at byte `place` of the directory.
    pub fn add(&mut self, hash: u64, place: u64) {
        // Three quarters full at most.
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() / 2 * 3).max(FEWEST_SLOTS));
        }
        self.len += 1;
        self.put(part_of(hash) << 32 | (place / UNIT + 1));
    }

    /// The places where a name with this hash may be.
    pub fn find(&self, hash: u64) -> impl Iterator<Item = u64> + '_ {
        let part = part_of(hash);
        let all = self.probe(part).map(|at| self.slots[at]);
        let taken = all.take_while(|slot| *slot != 0);
        taken.filter(move |slot| slot >> 32 == part).map(place_of)
    }

    /// Takes out the name with this hash at this place.
    pub fn remove(&mut self, hash: u64, place: u64) {
        let wanted = part_of(hash) << 32 | (place / UNIT + 1);
        let mut probed = self.probe(part_of(hash));
        let is_end = |at: &usize| self.slots[*at] == wanted || self.slots[*at] == 0;
        let Some(mut gap) = probed.find(is_end) else {
            return;
        };
        if self.slots[gap] == 0 {
            return;
        }
        self.len -= 1;
        // Names behind it that had been kept from its slot move up.
        let count = self.slots.len();
        let mut at = gap;
        loop {
            at = (at + 1) % count;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let first_choice = self.first_choice(slot >> 32);
            let distance = (at + count - first_choice) % count;
            if distance >= (at + count - gap) % count {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = 0;
        if count > FEWEST_SLOTS && self.len * 8 < count {
            self.resize((count / 4).max(FEWEST_SLOTS));
        }
    }

    fn resize(&mut self, count: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; count]);
        old.into_iter()
            .filter(|s| *s != 0)
            .for_each(|s| self.put(s));
    }

    fn put(&mut self, slot: u64) {
        let free = self.probe(slot >> 32).find(|at| self.slots[*at] == 0);
        if let Some(at) = free {
            self.slots[at] = slot;
        }
    }

    /// The slots in which a name may be, the first choice first.
    fn probe(&self, part: u64) -> impl Iterator<Item = usize> + use<> {
        let first = match self.slots.len() {
            0 => 0,
            _ => self.first_choice(part),
        };
        (first..self.slots.len()).chain(0..first)
    }

    fn first_choice(&self, part: u64) -> usize {
        ((u128::from(part) * self.slots.len() as u128) >> 32) as usize
    }
}

fn part_of(hash: u64) -> u64 {
    hash >> 32
}

fn place_of(slot: u64) -> u64 {
    (u64::from(slot as u32) - 1) * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_plain_list_finds() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut table = NameTable::default();
        let mut model: Vec<(u64, u64)> = Vec::new();
        for step in 0..40_000_u64 {
            let grows = step < 20_000;
            if random.u8(..) < if grows { 180 } else { 90 } || model.is_empty() {
                // Few different parts at the end of the table: long chains that wrap.
                let hash = match random.bool() {
                    true => random.u64(..),
                    false => u64::MAX - (random.u64(..300) << 32),
                };
                table.add(hash, step * UNIT);
                model.push((hash, step * UNIT));
            } else {
                let (hash, place) = model.swap_remove(random.usize(..model.len()));
                assert!(table.find(hash).any(|p| p == place));
                table.remove(hash, place);
                assert!(table.find(hash).all(|p| p != place));
                table.remove(hash, place);
            }
            assert_eq!(table.names(), model.len());
        }
        assert!(model.len() > 500, "too few are left to compare");
        for (hash, _) in &model {
            let mut found: Vec<u64> = table.find(*hash).collect();
            found.sort_unstable();
            let same_part = model.iter().filter(|(h, _)| h >> 32 == hash >> 32);
            let mut expected: Vec<u64> = same_part.map(|(_, place)| *place).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn takes_at_most_sixteen_bytes_a_name_and_gives_them_back() {
        let mut table = NameTable::default();
        let hash = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for i in 0..100_000 {
            table.add(hash(i), i * 16);
        }
        assert!(table.bytes() <= 16 * 100_000 + 4096, "{}", table.bytes());
        (0..100_000).for_each(|i| table.remove(hash(i), i * 16));
        assert_eq!((table.names(), table.slots.len()), (0, FEWEST_SLOTS));
        assert_eq!(NameTable::default().find(5).count(), 0);
    }
}
