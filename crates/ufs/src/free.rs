//! The map of free fragments of a group, or a part of it, as a search for a place sees it.

use std::ops::Range;

use backstitch_unixfs::bitmap;
use backstitch_unixfs::format::Picks;

use crate::format::group::{FRAGMENTS_MAX, block_fragments, find_run, fragment_runs, full_block};

/// The free fragments of a group, but for those that are picked already.
pub(crate) struct Free<'a> {
    /// A set bit is free.
    pub(crate) map: &'a [u8],
    /// The first fragment that the map tells of, a multiple of eight.
    pub(crate) base: u32,
    /// The group's first fragment.
    pub(crate) first: u64,
    pub(crate) fragments: u32,
    pub(crate) per_block: u32,
    pub(crate) picks: &'a Picks,
}

impl Free<'_> {
    /// The free fragments of a block, a bit for each.
    fn of_block(&self, start: u32) -> u8 {
        let free = block_fragments(
            self.map,
            start - self.base,
            self.per_block,
            self.fragments - self.base,
        );
        let (first, end) = (
            self.first + u64::from(start),
            self.first + u64::from(start + self.per_block),
        );
        self.picks.0.iter().fold(free, |free, pick| {
            let (from, to) = (pick.start.0.max(first), pick.end().0.min(end));
            match to.checked_sub(from) {
                None | Some(0) => free,
                Some(len) => free & !(full_block(len as u32) << (from - first)),
            }
        })
    }

    /// The first fragment from a multiple of eight on near which there may be a run of one of these
    /// lengths, a bit for each, in a block that is used in part.
    fn skip_to(&self, from: u32, lengths: u8) -> u32 {
        if !self.picks.0.is_empty() {
            // What is picked has its bits yet.
            return from;
        }
        let at = (from - self.base) as usize / 8;
        let rest = self.map.get(at..).unwrap_or(&[]);
        let skipped = find_run(rest, self.per_block, lengths).unwrap_or(rest.len().max(1));
        from + skipped as u32 * u8::BITS
    }

    /// Fewer fragments than a block has, in a block of which others are used: the first run of one of
    /// these lengths (a bit for each) that is no longer than the tightest one; else the first one of
    /// the shortest.
    pub(crate) fn tail(&self, lengths: u8, tightest: u32, range: Range<u32>) -> Option<(u32, u32)> {
        let whole = full_block(self.per_block);
        let mut best: Option<(u32, u32)> = None;
        let mut start = range.start;
        while start < range.end {
            if start.is_multiple_of(u8::BITS)
                && let next = self.skip_to(start, lengths)
                && next > start
            {
                start = next;
                continue;
            }
            let bits = self.of_block(start);
            let runs = (bits != whole).then(|| fragment_runs(bits));
            for (offset, len) in runs.into_iter().flatten() {
                if lengths >> len & 1 != 0 && best.is_none_or(|(_, best)| len < best) {
                    best = Some((start + offset, len));
                }
            }
            if best.is_some_and(|(_, len)| len <= tightest) {
                break;
            }
            start += self.per_block;
        }
        best
    }

    /// How many runs of free fragments there are in blocks of a range that are used in part, by their
    /// length.
    pub(crate) fn sums(&self, range: Range<u32>) -> [u32; FRAGMENTS_MAX] {
        let whole = full_block(self.per_block);
        let mut sums = [0; FRAGMENTS_MAX];
        for start in range.step_by(self.per_block as usize) {
            let bits = self.of_block(start);
            let runs = (bits != whole && bits != 0).then(|| fragment_runs(bits));
            for (_, length) in runs.into_iter().flatten() {
                sums[length as usize] += 1;
            }
        }
        sums
    }

    /// Whole blocks one behind the other: the first run that is as long as is wanted, else the
    /// longest. Where less than a block is wanted, the beginning of one.
    pub(crate) fn blocks(&self, want: u32, range: Range<u32>) -> Option<(u32, u32)> {
        let whole = full_block(self.per_block);
        let mut best: Option<(u32, u32)> = None;
        let mut at = (range.start - self.base) as usize;
        let last = (range.end - self.base) as usize;
        while let Some(free) = bitmap::find_set(self.map, at, last) {
            let start = (free as u32 + self.base).next_multiple_of(self.per_block);
            let mut end = start;
            while end - start < want && end < range.end && self.of_block(end) == whole {
                end += self.per_block;
            }
            let len = (end - start).min(want);
            if len == want {
                return Some((start, len));
            }
            if best.is_none_or(|(_, best)| len > best) && len > 0 {
                best = Some((start, len));
            }
            at = (end + self.per_block - self.base) as usize;
        }
        best
    }
}
