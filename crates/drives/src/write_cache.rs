//! A disk's memory for writes.

use std::collections::BTreeMap;

use crate::request::RequestId;

/// Adjacent sectors of one or more writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    /// The writes that it holds.
    pub(crate) ids: Vec<RequestId>,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + self.sectors
    }
}

/// Sectors that were written and are not on the medium.
#[derive(Debug)]
pub(crate) struct WriteCache {
    extents: BTreeMap<u64, Extent>,
    sectors: u64,
    max_sectors: u64,
}

/// The most sectors that are written to the medium at a time: a mebibyte, so that reads get their
/// turn.
const RUN_SECTORS: u64 = 2048;

impl WriteCache {
    pub(crate) fn new(max_sectors: u64) -> WriteCache {
        WriteCache {
            extents: BTreeMap::new(),
            sectors: 0,
            max_sectors,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Whether this many sectors more fit. A write larger than the memory fits when that is empty.
    pub(crate) fn has_room(&self, sectors: u64) -> bool {
        self.extents.is_empty() || self.sectors + sectors <= self.max_sectors
    }

    /// Whether the cache is more than three quarters full: its contents are then written before
    /// anything else.
    pub(crate) fn is_pressing(&self) -> bool {
        self.sectors * 4 > self.max_sectors * 3
    }

    /// Whether all of these sectors are there.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let last = self.extents.range(..=start).next_back();
        last.is_some_and(|(_, extent)| end <= extent.end())
    }

    /// Adds a write, and joins it with the extents that it overlaps.
    pub(crate) fn absorb(&mut self, id: RequestId, start: u64, sectors: u64) {
        let (mut start, mut end, mut ids) = (start, start + sectors, Vec::new());
        while let Some((&key, extent)) = self.extents.range(..end).next_back() {
            if extent.end() <= start {
                break;
            }
            (start, end) = (start.min(key), end.max(extent.end()));
            if let Some(old) = self.extents.remove(&key) {
                self.sectors -= old.sectors;
                ids.extend(old.ids);
            }
        }
        ids.push(id);
        ids.sort_unstable();
        let sectors = end - start;
        self.sectors += sectors;
        self.extents.insert(
            start,
            Extent {
                start,
                sectors,
                ids,
            },
        );
    }

    /// Takes out the next run for the medium: the first extent upwards from a sector, else the
    /// lowest, with all extents right behind it.
    pub(crate) fn next_run(&mut self, from: u64) -> Option<Extent> {
        let first = self.extents.range(from..).next().map(|(key, _)| *key);
        let first = first.or_else(|| self.extents.keys().next().copied())?;
        let mut run = self.extents.remove(&first)?;
        while run.sectors < RUN_SECTORS
            && let Some(next) = self.extents.remove(&run.end())
        {
            run.sectors += next.sectors;
            run.ids.extend(next.ids);
        }
        run.ids.sort_unstable();
        self.sectors -= run.sectors;
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_is_one_write_and_neighbours_are_one_run() {
        let mut cache = WriteCache::new(100);
        cache.absorb(RequestId(0), 10, 8);
        cache.absorb(RequestId(1), 18, 8);
        cache.absorb(RequestId(2), 10, 8);
        cache.absorb(RequestId(3), 50, 8);
        assert_eq!(cache.sectors, 24);
        assert!(cache.covers(12, 16) && !cache.covers(12, 20));
        assert!(cache.has_room(76) && !cache.has_room(77));
        let run = cache.next_run(5).unwrap();
        assert_eq!((run.start, run.sectors, run.ids.len()), (10, 16, 3));
        assert_eq!(
            cache.next_run(51).unwrap().start,
            50,
            "from the lowest again"
        );
        assert!(cache.is_empty() && cache.sectors == 0);
    }
}
