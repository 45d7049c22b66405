//! How often somebody above refers to each inode. The kernel refers to as many as it likes, most of
//! them once.

use backstitch_layout::InodeNumber;
use rustc_hash::FxHashMap;

/// Inodes whose numbers lie together share an entry of the table.
const TOGETHER: u32 = 64;

/// What a count in a page can be at most; what goes beyond is counted apart.
const FULL: u8 = u8::MAX;

/// Counts of references: about 2 bytes an inode where inodes with adjacent numbers are referred to,
/// and 140 at most.
#[derive(Debug, Default)]
pub struct References {
    pages: FxHashMap<u32, [u8; TOGETHER as usize]>,
    /// References beyond those that a page counts.
    beyond: FxHashMap<InodeNumber, u64>,
}

impl References {
    /// Whether there is any to an inode.
    pub fn any_to(&self, inode: InodeNumber) -> bool {
        let page = self.pages.get(&(inode.0 / TOGETHER));
        page.is_some_and(|page| page[(inode.0 % TOGETHER) as usize] > 0)
    }

    /// One more.
    pub fn add(&mut self, inode: InodeNumber) {
        let page = self.pages.entry(inode.0 / TOGETHER);
        let count = &mut page.or_insert([0; TOGETHER as usize])[(inode.0 % TOGETHER) as usize];
        if *count == FULL {
            *self.beyond.entry(inode).or_default() += 1;
        } else {
            *count += 1;
        }
    }

    /// One less. True where that was the last one; there may have been none.
    pub fn release(&mut self, inode: InodeNumber) -> bool {
        let Some(page) = self.pages.get_mut(&(inode.0 / TOGETHER)) else {
            return false;
        };
        let count = &mut page[(inode.0 % TOGETHER) as usize];
        if *count == FULL
            && let Some(beyond) = self.beyond.get_mut(&inode)
        {
            *beyond -= 1;
            if *beyond == 0 {
                self.beyond.remove(&inode);
            }
            return false;
        }
        if *count == 0 {
            return false;
        }
        *count -= 1;
        let was_last = *count == 0;
        if was_last && *page == [0; TOGETHER as usize] {
            self.pages.remove(&(inode.0 / TOGETHER));
        }
        was_last
    }

    /// All of them are given up: the inodes there were any to.
    pub fn take_all(&mut self) -> impl Iterator<Item = InodeNumber> + use<> {
        self.beyond.clear();
        let pages = std::mem::take(&mut self.pages);
        pages.into_iter().flat_map(|(page, counts)| {
            let referred = counts
                .into_iter()
                .enumerate()
                .filter(|(_, count)| *count > 0);
            referred.map(move |(at, _)| InodeNumber(page * TOGETHER + at as u32))
        })
    }

    /// There is no such inode any more.
    pub fn forget(&mut self, inode: InodeNumber) {
        self.beyond.remove(&inode);
        while self.any_to(inode) {
            self.release(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_as_in_a_plain_table() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = References::default();
        let mut model: FxHashMap<InodeNumber, u64> = FxHashMap::default();
        for step in 0..200_000 {
            // A few inodes come beyond what a page counts.
            let inode = [random.u32(60..70), random.u32(1..1000)][usize::from(random.u8(..) < 64)];
            let inode = InodeNumber(inode);
            if random.u8(..) < if step < 100_000 { 150 } else { 90 } {
                counts.add(inode);
                *model.entry(inode).or_default() += 1;
            } else {
                let expected = model.get_mut(&inode).map(|count| {
                    *count -= 1;
                    *count == 0
                });
                assert_eq!(counts.release(inode), expected == Some(true));
                if expected == Some(true) {
                    model.remove(&inode);
                }
            }
            assert_eq!(counts.any_to(inode), model.contains_key(&inode));
            if step == 100_000 {
                assert!(!counts.beyond.is_empty(), "no count went beyond a page's");
                counts.forget(InodeNumber(65));
                model.remove(&InodeNumber(65));
            }
        }
        let mut left: Vec<InodeNumber> = counts.take_all().collect();
        left.sort_unstable();
        let mut expected: Vec<InodeNumber> = model.into_keys().collect();
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert!(counts.pages.is_empty() && counts.beyond.is_empty());
    }

    #[test]
    fn what_nobody_refers_to_takes_nothing() {
        let mut counts = References::default();
        (1..100_000).for_each(|inode| counts.add(InodeNumber(inode)));
        assert!((1..100_000).all(|inode| counts.release(InodeNumber(inode))));
        assert!(counts.pages.is_empty());
    }
}
