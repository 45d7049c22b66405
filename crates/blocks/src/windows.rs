//! Space that is reserved in memory for files that grow.

use backstitch_layout::{BlockNumber, InodeNumber};
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::runs::Run;

/// Files that have space reserved in memory at once: more would only fragment what is left for
/// others.
const WINDOWS_MAX: usize = 64;

/// Which space is reserved: others keep out while there is space elsewhere.
#[derive(Debug, Default)]
pub struct Windows {
    /// By their starts. There are few: a search in them beats any tree.
    by_start: Vec<Window>,
    by_inode: FxHashMap<InodeNumber, BlockNumber>,
    order: VecDeque<InodeNumber>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: BlockNumber,
    end: BlockNumber,
    inode: InodeNumber,
}

impl Windows {
    /// The space that a file has reserved.
    pub fn of(&self, inode: InodeNumber) -> Option<Run> {
        let start = *self.by_inode.get(&inode)?;
        let window = self.by_start.get(self.first_from(start))?;
        debug_assert_eq!((window.start, window.inode), (start, inode));
        Some(Run {
            start,
            len: window.end - start,
        })
    }

    /// Whether a file has space reserved.
    pub fn is_there(&self, inode: InodeNumber) -> bool {
        self.by_inode.contains_key(&inode)
    }

    /// A file has none reserved any more.
    pub fn drop_of(&mut self, inode: InodeNumber) {
        if let Some(start) = self.by_inode.remove(&inode) {
            self.by_start.remove(self.first_from(start));
        }
    }

    /// A file has this space reserved, and no other.
    pub fn set(&mut self, inode: InodeNumber, run: Run) {
        self.drop_of(inode);
        if run.len == 0 {
            return;
        }
        let at = self.first_from(run.start);
        let window = Window {
            start: run.start,
            end: run.end(),
            inode,
        };
        match self.by_start.get_mut(at) {
            // Where nothing else was left somebody else's space was taken.
            Some(there) if there.start == run.start => {
                self.by_inode.remove(&there.inode);
                *there = window;
            }
            _ => self.by_start.insert(at, window),
        }
        self.by_inode.insert(inode, run.start);
        self.order.push_back(inode);
        while self.order.len() > WINDOWS_MAX {
            if let Some(oldest) = self.order.pop_front()
                && !self.order.contains(&oldest)
            {
                self.drop_of(oldest);
            }
        }
    }

    /// The place of the first window that starts at `block` or behind it.
    fn first_from(&self, block: BlockNumber) -> usize {
        self.by_start.partition_point(|w| w.start < block)
    }

    /// The windows of others than `inode`, from `block` on; without an inode none keeps out.
    pub fn pass(&self, block: BlockNumber, inode: Option<InodeNumber>) -> Passing<'_> {
        Passing {
            windows: inode.map_or(&[], |_| &self.by_start),
            next: inode.map_or(0, |_| self.first_from(block)),
            inode: inode.unwrap_or_default(),
        }
    }

    /// Where the next window of somebody else begins, after `block`.
    pub fn next_foreign_start(&self, block: BlockNumber, inode: InodeNumber) -> BlockNumber {
        self.by_start[self.first_from(block)..]
            .iter()
            .find(|w| w.inode != inode)
            .map_or(BlockNumber::MAX, |w| w.start)
    }
}

/// Windows that a search passes from one block to a later one: it finds many of finished files
/// beside each other.
pub struct Passing<'a> {
    windows: &'a [Window],
    /// The first one that begins behind the block looked at last.
    next: usize,
    inode: InodeNumber,
}

impl Passing<'_> {
    /// The end of the window of somebody else that contains `block`, which is behind the one looked
    /// at before.
    pub fn foreign_end(&mut self, block: BlockNumber) -> Option<BlockNumber> {
        let rest = &self.windows[self.next..];
        self.next += rest.iter().take_while(|w| w.start <= block).count();
        let window = self.windows[..self.next].last()?;
        (window.end > block && window.inode != self.inode).then_some(window.end)
    }

    /// Where the next window of somebody else begins, after the block looked at last.
    pub fn next_foreign_start(&self) -> BlockNumber {
        let mut rest = self.windows[self.next..].iter();
        let next = rest.find(|window| window.inode != self.inode);
        next.map_or(BlockNumber::MAX, |window| window.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_passes_the_windows_that_it_would_find_one_by_one() {
        let mut windows = Windows::default();
        for (inode, start, len) in [(7, 10, 5), (8, 15, 8), (9, 30, 2), (8, 40, 4), (7, 60, 9)] {
            let start = BlockNumber(start);
            windows.set(InodeNumber(inode), Run { start, len });
        }
        let left = [(9, 30, 32), (8, 40, 44), (7, 60, 69)];
        for inode in [None, Some(0), Some(7), Some(8), Some(9)] {
            let inode = inode.map(InodeNumber);
            let foreign: Vec<_> = (left.iter())
                .filter(|(of, ..)| inode.is_some_and(|inode| inode.0 != *of))
                .collect();
            for (first, step) in [(1, 1), (30, 1), (31, 7), (44, 3), (70, 1)] {
                let mut passing = windows.pass(BlockNumber(first), inode);
                for block in (first..75).step_by(step) {
                    let within = foreign.iter().find(|w| (w.1..w.2).contains(&block));
                    assert_eq!(
                        passing.foreign_end(BlockNumber(block)),
                        within.map(|w| BlockNumber(w.2))
                    );
                    let next = foreign.iter().find(|w| w.1 > block).map(|w| w.1);
                    assert_eq!(passing.next_foreign_start().0, next.unwrap_or(u64::MAX));
                }
            }
        }
    }
}
