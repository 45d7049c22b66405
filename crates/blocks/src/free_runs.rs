//! Blocks that have been free since some moment, and blocks that were freed since one.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::runs::Run;

/// Runs of free blocks, by their first.
#[derive(Debug, Default)]
pub struct FreeRuns {
    runs: BTreeMap<u64, u64>,
}

impl FreeRuns {
    /// Notes blocks that are free.
    pub fn note(&mut self, range: Range<u64>) {
        if range.start < range.end {
            self.runs.insert(range.start, range.end);
        }
    }

    /// Takes out blocks that are not free any more.
    pub fn cross_off(&mut self, run: Run) {
        if self.runs.is_empty() {
            return;
        }
        let (first, end_of_run) = (run.start.0, run.end().0);
        let hit = self.runs.range(..end_of_run).rev();
        let hit: Vec<(u64, u64)> = hit
            .take_while(|(_, end)| **end > first)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (start, end) in hit {
            self.runs.remove(&start);
            self.note(start..first);
            self.note(end_of_run..end);
        }
    }

    /// Takes the first run, at most `most` blocks of it.
    pub fn take(&mut self, most: u64) -> Option<Range<u64>> {
        let (start, end) = self.runs.pop_first()?;
        let cut = end.min(start.saturating_add(most));
        self.note(cut..end);
        Some(start..cut)
    }
}

/// The most runs of freed blocks that are remembered, 16 bytes each. Where more are freed, near
/// ones are joined, and the blocks between them are looked at as well.
const MOST_FREED_RUNS: usize = 1 << 16;

/// Runs of blocks that were freed.
#[derive(Debug, Default)]
pub struct Freed {
    runs: Vec<Range<u64>>,
}

impl Freed {
    /// Notes blocks that were freed.
    pub fn add(&mut self, run: Run) {
        let run = run.start.0..run.end().0;
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            Some(last) if run.end == last.start => last.start = run.start,
            _ => self.runs.push(run),
        }
        if self.runs.len() > MOST_FREED_RUNS {
            self.join(0);
            let mut gap = 1;
            while self.runs.len() > MOST_FREED_RUNS / 2 {
                self.join(gap);
                gap *= 2;
            }
        }
    }

    /// Sorts the runs, and makes one of those that have no more than `gap` blocks between them.
    fn join(&mut self, gap: u64) {
        self.runs.sort_unstable_by_key(|run| run.start);
        self.runs.dedup_by(|next, run| {
            let is_near = next.start <= run.end.saturating_add(gap);
            if is_near {
                run.end = run.end.max(next.end);
            }
            is_near
        });
    }

    /// All of them, sorted; none is left.
    pub fn take(&mut self) -> Vec<Range<u64>> {
        self.join(0);
        std::mem::take(&mut self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_layout::BlockNumber;

    #[test]
    fn what_was_freed_is_a_bounded_list_of_runs() {
        let mut freed = Freed::default();
        for start in [10, 11, 9, 40, 20, 41, 10] {
            freed.add(Run::one(BlockNumber(start)));
        }
        assert_eq!(freed.take(), [9..12, 20..21, 40..42]);
        assert_eq!(freed.take(), []);
        let scattered = (0..3 * MOST_FREED_RUNS as u64).map(|n| n * 7 % 1_000_003 * 3);
        let all: Vec<u64> = scattered.collect();
        for start in &all {
            freed.add(Run::one(BlockNumber(*start)));
            assert!(freed.runs.len() <= MOST_FREED_RUNS);
        }
        let taken = freed.take();
        for block in all {
            let before = taken.partition_point(|run| run.start <= block);
            assert!(taken[before - 1].contains(&block));
        }
    }

    fn run(start: u64, len: u64) -> Run {
        Run {
            start: BlockNumber(start),
            len,
        }
    }

    #[test]
    fn what_is_allocated_is_crossed_off() {
        let mut free = FreeRuns::default();
        free.note(10..20);
        free.note(30..40);
        free.note(50..60);
        free.cross_off(run(15, 20));
        free.cross_off(run(52, 1));
        free.cross_off(run(0, 10));
        free.cross_off(run(60, 9));
        let mut rest = Vec::new();
        while let Some(run) = free.take(4) {
            rest.push(run);
        }
        assert_eq!(
            rest,
            [10..14, 14..15, 35..39, 39..40, 50..52, 53..57, 57..60]
        );
    }
}
