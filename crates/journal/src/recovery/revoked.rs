//! The second pass: which blocks were freed after they were logged.

use rustc_hash::FxHashMap;

use super::{Journal, Scan};
use crate::format::{Sequence, revoke};
use crate::rules::{Rule, holds};
use crate::{Error, Fault, Result};

/// For each revoked block the last transaction that revoked it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    by_block: FxHashMap<u64, Sequence>,
}

impl Revoked {
    /// Reads the revoke blocks of complete transactions.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where one claims to be longer than a block; the device's.
    pub fn read(journal: &Journal<'_>, scan: &Scan) -> Result<Revoked> {
        let sb = journal.superblock();
        let mut revoked = Revoked::default();
        for (position, sequence) in &scan.revokes {
            let block = journal.read(*position)?;
            let Some(records) = revoke::records(&block, sb.features, &sb.checksums()) else {
                let fault = Fault::RevokeTooLong {
                    sequence: *sequence,
                };
                return Err(Error::corrupt(*position, fault));
            };
            for block in records {
                revoked.add(block, *sequence);
            }
        }
        Ok(revoked)
    }

    fn add(&mut self, block: u64, sequence: Sequence) {
        let known = self.by_block.entry(block).or_insert(sequence);
        if sequence.is_after(*known) && holds(Rule::LastRevocationCounts) {
            *known = sequence;
        }
    }

    /// Whether a copy of this block in this transaction must not come home: the block was revoked
    /// then or later.
    pub fn covers(&self, block: u64, sequence: Sequence) -> bool {
        let revoked = self.by_block.get(&block);
        revoked.is_some_and(|revoked| {
            holds(Rule::RevokesAreHeeded)
                && !(sequence.is_after(*revoked) && holds(Rule::RevokesCountForOlderCopies))
        })
    }

    /// How many blocks are revoked.
    pub fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_up_to_the_last_revocation_are_covered() {
        let mut revoked = Revoked::default();
        revoked.add(5, Sequence(u32::MAX));
        revoked.add(5, Sequence(1));
        revoked.add(5, Sequence(0));
        assert!(revoked.covers(5, Sequence(u32::MAX)) && revoked.covers(5, Sequence(1)));
        assert!(!revoked.covers(5, Sequence(2)));
        assert!(!revoked.covers(6, Sequence(0)));
        assert_eq!((revoked.len(), revoked.is_empty()), (1, false));
    }
}
