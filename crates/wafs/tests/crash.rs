//! Crashes at any moment, with any part of what was not flushed lost or torn, after work, process
//! deaths and earlier crashes. The same with each rule switched off, which must be noticed.

use backstitch_device::{BlockDevice, MemoryDevice, RecordingDevice, materialise_torn};
use backstitch_rules::Site;
use backstitch_rules::watch::{self, Form};
use backstitch_wafs::rules::Rule;
use backstitch_wafs::{Clock, Log, Lsn, Wafs, WafsError, check};
use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of a device whose log turns every few dozen records.
const SHORT_BYTES: usize = 2 * 4096 + 6 * 4096;
/// The same for long records, which are written from the caller's memory.
const LONG_BYTES: usize = 2 * 4096 + 160 * 4096;
/// Payload lengths: few, so that records left by a crash often lie where the next record ends. With
/// its header a record of the second half takes a sector, two, or a block.
const LENGTHS: [usize; 8] = [0, 24, 1000, 4000, 472, 472, 984, 4056];
const LONG_LENGTHS: [usize; 4] = [24, 4056, 131_072, 140_000];
/// Disks write sectors wholly or not at all, memory words.
const UNITS_BYTES: [usize; 2] = [512, 8];

/// What is known of a log.
#[derive(Clone, Default)]
struct Known {
    /// All records that may be on the device, from the oldest that may be kept on.
    records: Vec<(Lsn, Vec<u8>)>,
    /// The earliest and the latest place where the log may begin.
    earliest_start: Lsn,
    latest_start: Lsn,
    /// Everything before it is on the device.
    stable: Lsn,
    /// Behind the last record.
    end: Lsn,
}

type Wrong = String;

fn expect(is_right: bool, what: impl FnOnce() -> Wrong) -> Result<(), Wrong> {
    if is_right { Ok(()) } else { Err(what()) }
}

/// Compares a log with what is known, and returns what is known after that.
fn compare(device: &dyn BlockDevice, known: &Known) -> Result<Known, Wrong> {
    let report = check(device).map_err(|error| error.to_string())?;
    // A crash may leave a torn superblock.
    let damage = report
        .damage
        .iter()
        .find(|d| !d.starts_with("one superblock"));
    expect(damage.is_none(), || format!("{damage:?}"))?;
    let log = Log::open(device).map_err(|error| error.to_string())?;
    let (start, end) = (log.start(), log.end());
    let starts = known.earliest_start..=known.latest_start;
    expect(starts.contains(&start), || {
        format!("begins at {start}, not in {starts:?}")
    })?;
    expect(end >= known.stable.max(start), || {
        format!("ends at {end}, stable was {}", known.stable)
    })?;
    expect(end <= known.end, || {
        format!("ends at {end}, appended was {}", known.end)
    })?;
    let kept: Vec<_> = (known.records.iter())
        .filter(|(lsn, _)| (start..end).contains(lsn))
        .cloned()
        .collect();
    let mut found = log.records(start).map_err(|error| error.to_string())?;
    for (lsn, payload) in &kept {
        let record = found.next().map_err(|error| error.to_string())?;
        let record = record.ok_or_else(|| format!("no record at {lsn}"))?;
        expect(record.lsn == *lsn, || {
            format!("{} stands for {lsn}", record.lsn)
        })?;
        expect(record.payload == payload, || {
            format!("another payload at {lsn}")
        })?;
    }
    let more = found.next().map_err(|error| error.to_string())?;
    expect(more.is_none(), || format!("nobody appended {more:?}"))?;
    expect(log.last() == kept.last().map(|(lsn, _)| *lsn), || {
        format!("{:?} is said to be the last", log.last())
    })?;
    Ok(Known {
        records: kept,
        earliest_start: start,
        latest_start: start,
        stable: end,
        end,
    })
}

/// A life of a log: a device, what was done to it, and what was known at each point.
struct Life {
    device: Arc<RecordingDevice>,
    base: Vec<u8>,
    /// What was known at each length of the recording.
    moments: Vec<(usize, Known)>,
    known: Known,
    clock: Clock,
    lengths: &'static [usize],
}

impl Life {
    fn new(base: Vec<u8>, known: Known, clock: Clock) -> Life {
        let inner = Arc::new(MemoryDevice::from_bytes(base.clone()));
        let device = Arc::new(RecordingDevice::new(inner));
        let moments = vec![(0, known.clone())];
        Life {
            device,
            base,
            moments,
            known,
            clock,
            lengths: &LENGTHS,
        }
    }

    fn remember(&mut self) {
        self.moments.push((self.device.len(), self.known.clone()));
    }

    /// One mount with some work. Without an unmount the process dies.
    fn work(&mut self, rng: &mut Rng) -> Result<(), Wrong> {
        let wrong = |error: WafsError| error.to_string();
        let wafs = Wafs::mount(self.device.clone(), self.clock.clone()).map_err(wrong)?;
        self.known.stable = self.known.end;
        self.remember();
        for _ in 0..rng.usize(1..30) {
            match rng.u8(0..10) {
                0 => {
                    let count = self.known.records.len();
                    let to = rng.usize(count / 2..=count);
                    let start = self.known.records.get(to).map_or(self.known.end, |r| r.0);
                    // The new start may be on the device as soon as the checkpoint begins, and is
                    // once it returns.
                    self.known.latest_start = start;
                    self.remember();
                    wafs.checkpoint(start).map_err(wrong)?;
                    self.known.earliest_start = start;
                    self.known.stable = self.known.stable.max(start);
                    self.known.records.drain(..to);
                }
                1 | 2 => {
                    let end = wafs.sync_all().map_err(wrong)?;
                    expect(end == self.known.end, || format!("ends at {end}"))?;
                    self.known.stable = end;
                }
                _ => self.append(&wafs, rng)?,
            }
            self.remember();
        }
        if rng.bool() {
            wafs.unmount().map_err(wrong)?;
            self.known.stable = self.known.end;
            self.remember();
        }
        Ok(())
    }

    fn append(&mut self, wafs: &Wafs, rng: &mut Rng) -> Result<(), Wrong> {
        let mut payload = vec![0; self.lengths[rng.usize(..self.lengths.len())]];
        rng.fill(&mut payload);
        let free = wafs.free_bytes();
        let needed = backstitch_wafs::format::record_bytes(payload.len() as u64);
        match wafs.append(&payload) {
            Ok(lsn) => {
                expect(lsn == self.known.end, || format!("appended at {lsn}"))?;
                self.known.records.push((lsn, payload));
                self.known.end = wafs.end();
                Ok(())
            }
            Err(WafsError::Full { .. }) if needed > free => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The device after a power cut, and what is known of it.
    fn power_cut(&self, rng: &mut Rng) -> (Vec<u8>, Known) {
        let records = self.device.records();
        let cut = rng.usize(0..=records.len());
        let mut bytes = self.base.clone();
        let share = rng.f64();
        let tears = rng.bool();
        let mut whole = 0;
        let mut is_kept = false;
        let unit_bytes = UNITS_BYTES[rng.usize(..2)];
        materialise_torn(
            &mut bytes,
            &records,
            cut,
            unit_bytes,
            &mut |record, unit| {
                if tears || unit == 0 || record != whole {
                    (whole, is_kept) = (record, rng.f64() < share);
                }
                is_kept
            },
        );
        // What was promised before the cut must be there; what was begun before the next moment may
        // be.
        let after = self.moments.partition_point(|(at, _)| *at <= cut);
        let mut known = self.moments[after - 1].1.clone();
        if let Some((_, next)) = self.moments.get(after) {
            known.latest_start = next.latest_start.max(known.latest_start);
            let new = next.records.iter().filter(|(lsn, _)| *lsn >= known.end);
            known.records.extend(new.cloned());
            known.end = next.end;
        }
        (bytes, known)
    }
}

/// Several lives, each on the device that the crash of the one before left.
fn lives(seed: u64, count: usize) -> Result<(), Wrong> {
    let mut rng = Rng::with_seed(seed);
    // Lengths of whole sectors: records end where those before a crash did.
    let (size_bytes, lengths) = match seed % 8 {
        7 => (LONG_BYTES, &LONG_LENGTHS[..]),
        _ => (SHORT_BYTES, &LENGTHS[rng.usize(..2) * 4..]),
    };
    let time = AtomicU64::new(1);
    let clock: Clock = Arc::new(move || time.fetch_add(1, Ordering::Relaxed));
    let mut base = vec![0; size_bytes];
    let mut known = Known::default();
    // First another log on the device: its records must never count.
    for uuid in 0..2 {
        let device = MemoryDevice::from_bytes(base);
        Wafs::make(&device, [uuid; 16], 0).map_err(|error| error.to_string())?;
        let mut life = Life::new(device.snapshot(), Known::default(), clock.clone());
        life.lengths = lengths;
        for _ in 0..if uuid == 0 { 2 } else { 0 } {
            life.work(&mut rng)?;
            life.known = compare(&*life.device, &life.known)?;
        }
        let mut whole = life.base.clone();
        life.device
            .read(0, &mut whole)
            .map_err(|error| error.to_string())?;
        base = whole;
    }
    for _ in 0..count {
        let mut life = Life::new(base, known, clock.clone());
        life.lengths = lengths;
        for _ in 0..rng.usize(1..4) {
            life.work(&mut rng)?;
            life.known = compare(&*life.device, &life.known).map(|found| Known {
                // The writes of a process that died are there; a power cut may still lose them.
                stable: life.known.stable,
                ..found
            })?;
            life.remember();
        }
        for _ in 0..20 {
            let (bytes, known) = life.power_cut(&mut rng);
            compare(&MemoryDevice::from_bytes(bytes), &known)?;
        }
        let (bytes, promised) = life.power_cut(&mut rng);
        known = compare(&MemoryDevice::from_bytes(bytes.clone()), &promised)?;
        base = bytes;
    }
    Ok(())
}

#[test]
fn every_crash_leaves_what_was_acknowledged_and_a_beginning_of_the_rest() {
    for seed in 0..150 {
        if let Err(wrong) = lives(seed, 6) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn each_rule_is_needed() {
    let mut unseen = Vec::new();
    for Site { id, ident, .. } in Rule::SITES {
        watch::switch_off(Some((*id, Form::Whole)));
        let found = (0..600).find_map(|seed| lives(seed, 6).err().map(|wrong| (seed, wrong)));
        watch::switch_off(None);
        match found {
            Some((seed, wrong)) => println!("{ident}: seed {seed}: {wrong}"),
            None => unseen.push(*ident),
        }
    }
    assert!(
        unseen.is_empty(),
        "nobody sees that these are off: {unseen:?}"
    );
}
