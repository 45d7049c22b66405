//! Hashes of states, so that states with the same bytes are found before anything is written.
//!
//! The hash of a state is a sum of one term for each sector that differs from the base. A sum does
//! not depend on the order of its terms, so only the changed sectors have to be hashed.

use crate::error::ScheduleResult;
use crate::recording::SECTOR_BYTES;
use crate::recording::{Moment, Recording};
use crate::scratch::data_ranges;
use crate::variant::Variant;
use backstitch_crash_core::error::at;
use rustc_hash::FxHashMap;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use twox_hash::XxHash3_128;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

type Sectors = Rc<Vec<(u64, u128)>>;

/// The contents of the image at the last flush, and the changes after that.
pub(crate) struct Contents<'a> {
    recording: &'a Recording,
    zeros: u128,
    /// The hashes of the base's sectors, for those that some change touches.
    base: FxHashMap<u64, u128>,
    /// The hashes of the sectors that were changed up to `stable`.
    now: FxHashMap<u64, u128>,
    total: u128,
    stable: usize,
    /// The changes of the current epoch: sectors and their hashes.
    loaded: FxHashMap<usize, Sectors>,
}

impl<'a> Contents<'a> {
    pub(crate) fn new(recording: &'a Recording) -> Self {
        Self {
            recording,
            zeros: XxHash3_128::oneshot(&[0; SECTOR_BYTES as usize]),
            base: FxHashMap::default(),
            now: FxHashMap::default(),
            total: 0,
            stable: 0,
            loaded: FxHashMap::default(),
        }
    }

    /// The hash of a state. Moments must come in the log's order.
    pub(crate) fn state(&mut self, moment: &Moment, variant: &Variant) -> ScheduleResult<u128> {
        self.advance(moment.stable)?;
        let mut over: FxHashMap<u64, u128> = FxHashMap::default();
        for step in variant.steps(self.recording, moment) {
            self.apply(step.change, step.mask, &mut over)?;
        }
        let mut total = self.total;
        for (sector, hash) in over {
            let before = self.now.get(&sector).copied();
            let before = before.map_or(0, |hash| self.term(sector, hash));
            total = total.wrapping_sub(before);
            total = total.wrapping_add(self.term(sector, hash));
        }
        Ok(total)
    }

    fn advance(&mut self, stable: usize) -> ScheduleResult<()> {
        if stable <= self.stable {
            return Ok(());
        }
        let mut over = FxHashMap::default();
        for change in self.stable..stable {
            self.apply(change, None, &mut over)?;
            self.loaded.remove(&change);
        }
        for (sector, hash) in over {
            if let Some(before) = self.now.insert(sector, hash) {
                self.total = self.total.wrapping_sub(self.term(sector, before));
            }
            self.total = self.total.wrapping_add(self.term(sector, hash));
        }
        self.stable = stable;
        Ok(())
    }

    /// What a sector adds to the sum: nothing if it is the same as in the base.
    fn term(&self, sector: u64, hash: u128) -> u128 {
        if self.base.get(&sector) == Some(&hash) {
            return 0;
        }
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&sector.to_le_bytes());
        bytes[8..].copy_from_slice(&hash.to_le_bytes());
        XxHash3_128::oneshot(&bytes)
    }

    fn apply(
        &mut self,
        change: usize,
        mask: Option<&[bool]>,
        over: &mut FxHashMap<u64, u128>,
    ) -> ScheduleResult<()> {
        let sectors = self.load(change)?;
        let described = &self.recording.changes()[change];
        if described.is_discard() {
            let range = described.start() / SECTOR_BYTES..described.end() / SECTOR_BYTES;
            for (sector, hash) in over.iter_mut() {
                if range.contains(sector) {
                    *hash = self.zeros;
                }
            }
        }
        for (at, &(sector, hash)) in sectors.iter().enumerate() {
            if mask.is_none_or(|mask| mask.get(at) == Some(&true)) {
                over.insert(sector, hash);
            }
        }
        Ok(())
    }

    fn load(&mut self, change: usize) -> ScheduleResult<Sectors> {
        if let Some(sectors) = self.loaded.get(&change) {
            return Ok(sectors.clone());
        }
        let described = &self.recording.changes()[change];
        let (start, end) = (described.start(), described.end());
        let mut sectors = Vec::new();
        if described.is_discard() {
            let ranges = data_ranges(self.recording.base(), start, end)
                .map_err(at("cannot search the base", self.recording.base_path()))?;
            for (from, to) in ranges {
                self.read_base(from / SECTOR_BYTES * SECTOR_BYTES, to)?;
                let last = to.div_ceil(SECTOR_BYTES).min(end / SECTOR_BYTES);
                let range = (from / SECTOR_BYTES).max(start / SECTOR_BYTES)..last;
                sectors.extend(range.map(|sector| (sector, self.zeros)));
            }
            // Sectors changed since then. They stay the same until the epoch ends, when this is
            // unloaded.
            let range = start / SECTOR_BYTES..end / SECTOR_BYTES;
            let changed = self.now.keys().filter(|sector| range.contains(sector));
            sectors.extend(changed.map(|&sector| (sector, self.zeros)));
        } else {
            self.read_base(start, end)?;
            let mut buffer = vec![0; CHUNK_BYTES.min((end - start) as usize)];
            let mut from = start;
            while from < end {
                let len = buffer.len().min((end - from) as usize);
                let log = self.recording.log();
                log.read_data(&described.entry, from - start, &mut buffer[..len])?;
                sectors.extend(hashes(from, &buffer[..len]));
                from += len as u64;
            }
        }
        let sectors = Rc::new(sectors);
        self.loaded.insert(change, sectors.clone());
        Ok(sectors)
    }

    /// Hashes the base's sectors in a range.
    fn read_base(&mut self, start: u64, end: u64) -> ScheduleResult<()> {
        let mut buffer = vec![0; CHUNK_BYTES.min((end - start) as usize)];
        let mut from = start;
        while from < end {
            let len = (buffer.len() as u64).min(end - from).min(self.rest(from)) as usize;
            if len == 0 {
                break;
            }
            let base = self.recording.base();
            base.read_exact_at(&mut buffer[..len], from)
                .map_err(at("cannot read the base", self.recording.base_path()))?;
            self.base.extend(hashes(from, &buffer[..len]));
            from += len as u64;
        }
        Ok(())
    }

    fn rest(&self, from: u64) -> u64 {
        self.recording.base_bytes().saturating_sub(from)
    }
}

fn hashes(from: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u128)> + '_ {
    let sectors = bytes.chunks(SECTOR_BYTES as usize);
    (from / SECTOR_BYTES..).zip(sectors.map(XxHash3_128::oneshot))
}
