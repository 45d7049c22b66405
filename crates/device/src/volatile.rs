//! A drive with a volatile write cache, played in front of another device.
//!
//! Killing a process leaves everything it wrote in the host's page cache, so it cannot show a
//! missing flush. Through this device it can: what was submitted waits in the memory *of the
//! process* until the flush, except for a part, chosen by a seed, that goes to the device behind at
//! once and so overtakes what was submitted before it. `kill -9` is then a power cut.
//!
//! The fault model: until a flush returns, any subset of the sectors written since the last one may
//! have reached the device, in any order between different sectors; a sector never goes back to an
//! older version.

use crate::{BlockDevice, Buffer, Result, WriteRequest, check_range};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The unit that is cached or not.
const SECTOR_BYTES: usize = 512;
/// Sectors are kept in chunks of this size, a page.
const CHUNK_BYTES: usize = 4096;
/// The most chunks that are cached (64 MiB), more than any drive has; beyond this the drive writes
/// some by itself.
const MAX_CHUNKS: usize = 16 * 1024;

/// A page of cached sectors.
struct Chunk {
    bytes: Box<[u8; CHUNK_BYTES]>,
    /// Bit `n` is set if sector `n` is cached; the others' bytes mean nothing.
    cached: u8,
}

/// What the drive has in its memory.
struct Cache {
    chunks: BTreeMap<u64, Chunk>,
    random: Xorshift,
}

/// Marsaglia's xorshift: the smallest generator that makes a run repeatable from its seed.
struct Xorshift(u64);

impl Xorshift {
    fn new(seed: u64) -> Self {
        // Spread the seed, so that small ones differ, and avoid the one state that never changes.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn one_in(&mut self, n: u64) -> bool {
        (self.next() >> 11).is_multiple_of(n)
    }
}

/// A drive with a volatile write cache in front of another device; the module's head says what it
/// may do.
pub struct VolatileDevice {
    inner: Arc<dyn BlockDevice>,
    name: String,
    size_bytes: u64,
    cache: Mutex<Cache>,
}

impl VolatileDevice {
    /// Puts an empty cache in front of `inner`. The same seed and the same calls give the same
    /// choices.
    pub fn new(inner: Arc<dyn BlockDevice>, seed: u64) -> Self {
        let (name, size_bytes) = (inner.name(), inner.size_bytes());
        let cache = Mutex::new(Cache {
            chunks: BTreeMap::new(),
            random: Xorshift::new(seed),
        });
        Self {
            inner,
            name,
            size_bytes,
            cache,
        }
    }

    /// Reads through the cache.
    fn read_cached(&self, cache: &Cache, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset_bytes, buffer)?;
        let end_bytes = offset_bytes + buffer.len() as u64;
        let first = offset_bytes / CHUNK_BYTES as u64;
        for (number, chunk) in cache
            .chunks
            .range(first..end_bytes.div_ceil(CHUNK_BYTES as u64))
        {
            for sector in (0..8).filter(|sector| chunk.cached & (1 << sector) != 0) {
                let within = sector * SECTOR_BYTES;
                let at = number * CHUNK_BYTES as u64 + within as u64;
                let from = at.max(offset_bytes);
                let to = (at + SECTOR_BYTES as u64).min(end_bytes);
                if from < to {
                    let source = within + (from - at) as usize;
                    let target = (from - offset_bytes) as usize;
                    let len = (to - from) as usize;
                    buffer[target..target + len]
                        .copy_from_slice(&chunk.bytes[source..source + len]);
                }
            }
        }
        Ok(())
    }

    /// Widens a write to whole sectors, so that the cache never holds a part of one.
    fn widened(&self, cache: &Cache, offset_bytes: u64, bytes: &[u8]) -> Result<(u64, Vec<u8>)> {
        let sector = SECTOR_BYTES as u64;
        let start = offset_bytes / sector * sector;
        let end_bytes = offset_bytes + bytes.len() as u64;
        let end = (end_bytes.div_ceil(sector) * sector).min(self.size_bytes);
        let mut whole = vec![0; (end - start) as usize];
        if start != offset_bytes || end != end_bytes {
            self.read_cached(cache, start, &mut whole)?;
        }
        let within = (offset_bytes - start) as usize;
        whole[within..within + bytes.len()].copy_from_slice(bytes);
        Ok((start, whole))
    }

    /// One buffer arrives: it stays in the cache, or goes to the device behind at once.
    fn take(&self, cache: &mut Cache, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, whole) = self.widened(cache, offset_bytes, bytes)?;
        let at_once = cache.random.one_in(4);
        for (number, sector) in whole.chunks(SECTOR_BYTES).enumerate() {
            cache.set_sector(start / SECTOR_BYTES as u64 + number as u64, sector);
        }
        if at_once {
            let sectors = start / SECTOR_BYTES as u64..(start + whole.len() as u64).div_ceil(512);
            self.inner.write(start, &whole)?;
            sectors.for_each(|sector| cache.drop_sector(sector));
        }
        while cache.chunks.len() > MAX_CHUNKS {
            let Some(number) = cache.pick() else { break };
            self.inner
                .submit(&self.requests(cache, number..number + 1))?;
            cache.chunks.remove(&number);
        }
        Ok(())
    }

    /// The cached sectors of a range of chunks as requests, one for each run.
    fn requests(&self, cache: &Cache, chunks: std::ops::Range<u64>) -> Vec<WriteRequest> {
        let mut requests: Vec<WriteRequest> = Vec::new();
        let mut end_bytes = None;
        for (number, chunk) in cache.chunks.range(chunks) {
            for run in runs(chunk.cached) {
                let at = number * CHUNK_BYTES as u64 + (run.start * SECTOR_BYTES) as u64;
                // The device's last sector may be a short one.
                let len = (run.len() * SECTOR_BYTES).min((self.size_bytes - at) as usize);
                let from = run.start * SECTOR_BYTES;
                let buffer = Buffer::from(&chunk.bytes[from..from + len]);
                match requests.last_mut() {
                    Some(last) if end_bytes == Some(at) => last.buffers.push(buffer),
                    _ => requests.push(WriteRequest {
                        offset_bytes: at,
                        buffers: vec![buffer],
                    }),
                }
                end_bytes = Some(at + len as u64);
            }
        }
        requests
    }
}

impl Cache {
    fn set_sector(&mut self, sector: u64, bytes: &[u8]) {
        let chunk = self.chunks.entry(sector / 8).or_insert_with(|| Chunk {
            bytes: Box::new([0; CHUNK_BYTES]),
            cached: 0,
        });
        let within = (sector % 8) as usize * SECTOR_BYTES;
        chunk.bytes[within..within + bytes.len()].copy_from_slice(bytes);
        chunk.cached |= 1 << (sector % 8);
    }

    fn drop_sector(&mut self, sector: u64) {
        if let Some(chunk) = self.chunks.get_mut(&(sector / 8)) {
            chunk.cached &= !(1 << (sector % 8));
            if chunk.cached == 0 {
                self.chunks.remove(&(sector / 8));
            }
        }
    }

    /// Picks a cached chunk at random.
    fn pick(&mut self) -> Option<u64> {
        let last = *self.chunks.last_key_value()?.0;
        let from = self.random.next() % (last + 1);
        self.chunks.range(from..).next().map(|(number, _)| *number)
    }
}

/// The runs of set bits.
fn runs(bits: u8) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = (at..8).find(|bit| bits & (1 << bit) != 0)?;
        let end = (start..8).find(|bit| bits & (1 << bit) == 0).unwrap_or(8);
        at = end;
        Some(start..end)
    })
}

impl BlockDevice for VolatileDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.inner.atomic_unit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(
            &self.name,
            self.size_bytes,
            offset_bytes,
            buffer.len() as u64,
        )?;
        self.read_cached(&self.cache.lock(), offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        if self.inner.is_read_only() {
            // The device behind reports the error.
            return self.inner.submit(batch);
        }
        let mut cache = self.cache.lock();
        for request in batch {
            let mut at = request.offset_bytes;
            check_range(&self.name, self.size_bytes, at, request.len_bytes())?;
            for buffer in &request.buffers {
                self.take(&mut cache, at, buffer)?;
                at += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut cache = self.cache.lock();
        // The cache is kept until the device behind has taken it: after a failure the next flush
        // tries again.
        self.inner.submit(&self.requests(&cache, 0..u64::MAX))?;
        self.inner.flush()?;
        cache.chunks.clear();
        Ok(())
    }

    fn reset_after_failure(&self) {
        self.inner.reset_after_failure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, Record, RecordingDevice};
    use proptest::prelude::*;

    const SIZE_BYTES: usize = 20_000;

    fn behind(seed: u64) -> (VolatileDevice, Arc<MemoryDevice>) {
        let memory = Arc::new(MemoryDevice::new(SIZE_BYTES));
        (VolatileDevice::new(memory.clone(), seed), memory)
    }

    #[test]
    fn runs_of_bits() {
        assert_eq!(runs(0).count(), 0);
        assert_eq!(runs(0xff).next(), Some(0..8));
        assert_eq!(runs(0b1011_0010).collect::<Vec<_>>(), [1..2, 4..6, 7..8]);
    }

    #[test]
    fn loses_and_reorders_what_was_not_flushed() {
        let (mut lost, mut overtaken) = (0, 0);
        for seed in 0..100 {
            let (device, memory) = behind(seed);
            device.write(0, &[1; 512]).unwrap();
            device.write(4096, &[2; 512]).unwrap();
            let (first, second) = (memory.snapshot()[0] == 1, memory.snapshot()[4096] == 2);
            lost += usize::from(!first);
            overtaken += usize::from(second && !first);
            device.flush().unwrap();
            assert_eq!((memory.snapshot()[0], memory.snapshot()[4096]), (1, 2));
        }
        assert!(
            (60..90).contains(&lost),
            "{lost} of 100 first writes stayed in the cache"
        );
        assert!(
            overtaken > 5,
            "{overtaken} of 100 second writes overtook the first"
        );
    }

    #[test]
    fn a_flush_reaches_the_device_behind() {
        let recording = Arc::new(RecordingDevice::new(Arc::new(MemoryDevice::new(
            SIZE_BYTES,
        ))));
        let device = VolatileDevice::new(recording.clone(), 7);
        device.write(100, b"abc").unwrap();
        device.flush().unwrap();
        assert_eq!(recording.records().last(), Some(&Record::Flush));
    }

    #[test]
    fn the_cache_is_bounded() {
        let memory = Arc::new(MemoryDevice::new((MAX_CHUNKS + 20_000) * CHUNK_BYTES));
        let device = VolatileDevice::new(memory, 3);
        for number in 0..MAX_CHUNKS as u64 + 20_000 {
            device
                .write(number * CHUNK_BYTES as u64, &[1; 512])
                .unwrap();
        }
        assert_eq!(device.cache.lock().chunks.len(), MAX_CHUNKS);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, Vec<u8>),
        Flush,
    }

    fn step() -> impl Strategy<Value = Step> {
        let write = (0..SIZE_BYTES, 1..5000usize, any::<u8>())
            .prop_map(|(at, len, byte)| Step::Write(at, vec![byte; len.min(SIZE_BYTES - at)]));
        prop_oneof![6 => write, 1 => Just(Step::Flush)]
    }

    proptest! {
        /// Readers see plain memory; on the device behind, every sector is one of its versions
        /// since the last flush.
        #[test]
        fn looks_like_memory(seed: u64, steps in prop::collection::vec(step(), 1..40)) {
            let (device, memory) = behind(seed);
            let mut model = vec![0; SIZE_BYTES];
            let mut versions = vec![vec![0; SIZE_BYTES]];
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        device.write(at as u64, &bytes).unwrap();
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                        versions.push(model.clone());
                    }
                    Step::Flush => {
                        device.flush().unwrap();
                        prop_assert_eq!(&memory.snapshot(), &model);
                        versions = vec![model.clone()];
                    }
                }
                let mut seen = vec![0; SIZE_BYTES];
                device.read(0, &mut seen).unwrap();
                prop_assert_eq!(&seen, &model);
                let behind = memory.snapshot();
                for at in (0..SIZE_BYTES).step_by(SECTOR_BYTES) {
                    let sector = at..(at + SECTOR_BYTES).min(SIZE_BYTES);
                    let known = versions.iter().any(|v| v[sector.clone()] == behind[sector.clone()]);
                    prop_assert!(known, "the sector at {} was never written so", at);
                }
            }
        }

        #[test]
        fn reads_any_range(seed: u64, at in 0..SIZE_BYTES, len in 0..SIZE_BYTES) {
            let (device, _) = behind(seed);
            let bytes: Vec<u8> = (0..SIZE_BYTES).map(|n| (n / 7) as u8).collect();
            for (number, part) in bytes.chunks(700).enumerate() {
                device.write(number as u64 * 700, part).unwrap();
            }
            let len = len.min(SIZE_BYTES - at);
            let mut buffer = vec![0; len];
            device.read(at as u64, &mut buffer).unwrap();
            prop_assert_eq!(&buffer, &bytes[at..at + len]);
        }
    }
}
