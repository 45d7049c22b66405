//! The blocks that a file has been given.
//!
//! Under some mechanisms contents reach the disk at any time. Then a block that a file was given
//! since it was flushed may show what it held before, in each version of the file that has the
//! block at this place. A block that the file had all along may not, and nor may a hole.

use std::collections::BTreeMap;

/// Where the blocks of a file are, and which of them it was given since it was flushed.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// Where the blocks are now, by their numbers in the file.
    places: BTreeMap<u64, u64>,
    since: Vec<Gift>,
}

/// A block that was given to a file.
#[derive(Clone, Debug)]
struct Gift {
    /// Its number in the file.
    block: u64,
    /// The first version of the file that has the block at this place.
    first: usize,
    /// The first version that does not have it there any more.
    end: Option<usize>,
}

impl Given {
    /// Notes that the blocks are at these places, from this version on.
    pub(super) fn note(&mut self, version: usize, now: BTreeMap<u64, u64>) {
        for gift in self.since.iter_mut().filter(|gift| gift.end.is_none()) {
            let (before, after) = (self.places.get(&gift.block), now.get(&gift.block));
            if before != after {
                gift.end = Some(version);
            }
        }
        let new = now
            .iter()
            .filter(|(block, place)| self.places.get(*block) != Some(*place));
        self.since.extend(new.map(|(block, _)| Gift {
            block: *block,
            first: version,
            end: None,
        }));
        self.places = now;
    }

    /// The contents of all blocks are on stable storage.
    pub(super) fn settle(&mut self) {
        self.since.clear();
    }

    /// Whether this version has a block that was given to the file after version `oldest`.
    pub(super) fn was_given(&self, block: u64, oldest: usize, version: usize) -> bool {
        let is_since = |gift: &Gift| {
            gift.block == block
                && gift.first > oldest
                && gift.first <= version
                && gift.end.is_none_or(|end| version < end)
        };
        self.since.iter().any(is_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_been_given_a_block_until_it_loses_it() {
        let mut given = Given::default();
        given.note(0, BTreeMap::from([(0, 70)]));
        given.note(1, BTreeMap::from([(0, 70), (1, 71)]));
        // The file was truncated, and got another block there later.
        given.note(3, BTreeMap::from([(0, 70)]));
        given.note(5, BTreeMap::from([(0, 70), (1, 90)]));
        let versions = |block, oldest| -> Vec<usize> {
            let all = oldest..7;
            all.filter(|version| given.was_given(block, oldest, *version))
                .collect()
        };
        assert_eq!(versions(1, 0), [1, 2, 5, 6]);
        // The file had this block all along.
        assert!(versions(0, 0).is_empty());
        // A version that is on stable storage shows what was written.
        assert_eq!(versions(1, 1), [5, 6]);
        assert!(versions(1, 5).is_empty());
    }

    #[test]
    fn a_block_that_moves_is_given_anew() {
        let mut given = Given::default();
        given.note(0, BTreeMap::from([(0, 70)]));
        given.note(1, BTreeMap::from([(0, 80)]));
        assert!(given.was_given(0, 0, 1));
        given.settle();
        assert!(!given.was_given(0, 0, 1));
    }
}
