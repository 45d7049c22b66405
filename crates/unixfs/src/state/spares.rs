//! Inodes that are marked as used ahead, and whether any should be.

use std::collections::VecDeque;

use backstitch_layout::{GroupNumber, InodeNumber, Timestamp};
use backstitch_ordering::PatchId;

/// How many of the next changes one flush lets us expect to be flushed, and all flushes at most.
const NEXT_PER_FLUSH: u8 = 2;
const NEXT_MAX: u8 = 16;
/// Seconds without use after which what is kept ready is given back.
const UNUSED_SECONDS: i64 = 2;

/// Whether somebody will probably wait for the next change of a kind, as for the last ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expectation {
    /// How many of the next changes it is expected of.
    next: u8,
    /// When the last change was made of which it was expected, by the file system's clock.
    done_seconds: i64,
}

impl Expectation {
    pub(crate) fn holds(self) -> bool {
        self.next > 0
    }

    /// A change was made; that it will be waited for is not known yet.
    pub(crate) fn note_done(&mut self, now: Timestamp) {
        if self.holds() {
            self.next -= 1;
            self.done_seconds = now.seconds;
        }
    }

    /// Nothing was done for so long that what is kept ready is kept for nothing.
    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        now.seconds >= self.done_seconds.saturating_add(UNUSED_SECONDS)
    }

    /// Somebody waited for a change.
    pub(crate) fn note_flushed(&mut self) {
        self.next = NEXT_MAX.min(self.next + NEXT_PER_FLUSH);
    }
}

/// An inode that is marked as used ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) inode: InodeNumber,
    /// The patch that marks it.
    pub(crate) marked: PatchId,
}

/// Inodes marked ahead, and whether there should be any.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// Whether the next new file will probably be flushed.
    pub(crate) expected: Expectation,
    /// By their group.
    pub(crate) groups: Vec<(GroupNumber, VecDeque<Spare>)>,
    /// All are to be given back.
    pub(crate) is_asked_back: bool,
}

impl Spares {
    pub(crate) fn of_group(&self, group: GroupNumber) -> Option<&VecDeque<Spare>> {
        let found = self.groups.iter().find(|(g, _)| *g == group);
        found.map(|(_, spares)| spares)
    }

    pub(crate) fn of_group_mut(&mut self, group: GroupNumber) -> &mut VecDeque<Spare> {
        let at = match self.groups.iter().position(|(g, _)| *g == group) {
            Some(at) => at,
            None => {
                self.groups.push((group, VecDeque::new()));
                self.groups.len() - 1
            }
        };
        &mut self.groups[at].1
    }

    /// How many there are: as good as free.
    pub(crate) fn count(&self) -> usize {
        self.groups.iter().map(|(_, spares)| spares.len()).sum()
    }

    /// Has all given back with the next deferred work.
    pub(crate) fn ask_back(&mut self) {
        self.is_asked_back = self.count() > 0;
    }

    /// A spare was given to a file.
    pub(crate) fn remove(&mut self, group: GroupNumber, spare: Spare) {
        let spares = self.of_group_mut(group);
        spares.retain(|other| other.inode != spare.inode);
        if spares.is_empty() {
            self.groups.retain(|(g, _)| *g != group);
        }
    }

    /// Any spare, of whatever group.
    pub(crate) fn any(&self) -> Option<Spare> {
        let mut all = self.groups.iter().flat_map(|(_, spares)| spares);
        all.next().copied()
    }
}
