//! States without copies: a device that shows a state, put together from the base and the log while
//! it is read.
//!
//! What the check writes stays in memory and is dropped with the state. So a state costs what it
//! changes and what the check reads and writes, however much data the base holds. But the device
//! has to be shown as a file, and every read goes through it.

use crate::error::ScheduleResult;
use crate::recording::SECTOR_BYTES;
use crate::recording::{Moment, Recording};
use crate::scratch::{Stage, data_ranges};
use crate::variant::Variant;
use backstitch_crash_core::error::{StepError, at};
use backstitch_device::{BlockDevice, DeviceError, Result, WriteRequest};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The attempt that failed, in the [`StepError::Host`] of a failed [`Show`].
pub const CANNOT_SHOW: &str = "cannot show states there";

/// Where a sector's bytes are.
#[derive(Clone, Debug)]
enum Sector {
    Zeros,
    /// In the log: an index of a change, and an offset in its data.
    Log(usize, u64),
    /// What the check wrote.
    Written(Box<[u8; SECTOR_BYTES as usize]>),
}

type Sectors = BTreeMap<u64, Sector>;

#[derive(Debug, Default)]
struct Layers {
    /// The sectors of durable changes, and the number of these changes.
    stable: Sectors,
    changes: usize,
    /// The sectors that the state changes, and those that the check wrote.
    state: Sectors,
    written: bool,
}

/// A device that shows a state; see the head of this module.
#[derive(Debug)]
pub struct OverlayDevice {
    recording: Arc<Recording>,
    layers: Mutex<Layers>,
}

/// Something that shows an [`OverlayDevice`] as a file, until it is dropped.
pub trait Shown: Send {
    /// The file.
    fn path(&self) -> &Path;
}

/// Shows a device as a file somewhere in an empty directory, or says why not.
pub type Show = Arc<
    dyn Fn(Arc<OverlayDevice>, &Path) -> std::result::Result<Box<dyn Shown>, String> + Send + Sync,
>;

impl OverlayDevice {
    fn new(recording: Arc<Recording>) -> Self {
        let layers = Mutex::new(Layers::default());
        Self { recording, layers }
    }

    fn locked(&self) -> MutexGuard<'_, Layers> {
        // A panic leaves nothing half changed that the next state would see.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build(&self, moment: &Moment, variant: &Variant) -> ScheduleResult<()> {
        let mut layers = self.locked();
        let layers = &mut *layers;
        for change in layers.changes..moment.stable {
            self.apply(change, None, &Sectors::new(), &mut layers.stable)?;
        }
        layers.changes = layers.changes.max(moment.stable);
        for step in variant.steps(&self.recording, moment) {
            self.apply(step.change, step.mask, &layers.stable, &mut layers.state)?;
        }
        Ok(())
    }

    fn apply(
        &self,
        number: usize,
        mask: Option<&[bool]>,
        below: &Sectors,
        over: &mut Sectors,
    ) -> ScheduleResult<()> {
        let change = &self.recording.changes()[number];
        let sectors = change.start() / SECTOR_BYTES..change.end() / SECTOR_BYTES;
        if !change.is_discard() {
            let there = |at: &usize| mask.is_none_or(|mask| mask.get(*at) == Some(&true));
            let kept = sectors.enumerate().filter(|(at, _)| there(at));
            over.extend(
                kept.map(|(at, sector)| (sector, Sector::Log(number, at as u64 * SECTOR_BYTES))),
            );
            return Ok(());
        }
        // Only the parts that hold data, since the range may be the whole device.
        let base = data_ranges(self.recording.base(), change.start(), change.end())
            .map_err(at("cannot search the base", self.recording.base_path()))?;
        let base = base
            .into_iter()
            .flat_map(|(from, to)| from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES))
            .filter(|sector| sectors.contains(sector));
        let changed = below
            .range(sectors.clone())
            .chain(over.range(sectors.clone()));
        let changed: Vec<u64> = changed.map(|(&sector, _)| sector).chain(base).collect();
        over.extend(changed.into_iter().map(|sector| (sector, Sector::Zeros)));
        Ok(())
    }

    /// Drops the state. Returns whether the check wrote to it.
    fn restore(&self) -> bool {
        let mut layers = self.locked();
        layers.state.clear();
        std::mem::take(&mut layers.written)
    }

    fn read_with(&self, layers: &Layers, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let failed = |reason: String| DeviceError::Read {
            device: self.name(),
            offset_bytes,
            len_bytes: buffer.len() as u64,
            reason,
        };
        let end = offset_bytes.checked_add(buffer.len() as u64);
        let end = end
            .filter(|&end| end <= self.size_bytes())
            .ok_or_else(|| failed("it reaches past the end".to_owned()))?;
        let read = self.recording.base().read_exact_at(buffer, offset_bytes);
        read.map_err(|error| DeviceError::Read {
            device: self.name(),
            offset_bytes,
            len_bytes: end - offset_bytes,
            reason: error.to_string(),
        })?;
        let range = offset_bytes / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for layer in [&layers.stable, &layers.state] {
            for (&number, sector) in layer.range(range.clone()) {
                let bytes = self.sector(sector)?;
                let start = number * SECTOR_BYTES;
                let (from, to) = (start.max(offset_bytes), (start + SECTOR_BYTES).min(end));
                let into = (from - offset_bytes) as usize..(to - offset_bytes) as usize;
                buffer[into]
                    .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    fn sector(&self, sector: &Sector) -> Result<[u8; SECTOR_BYTES as usize]> {
        let mut bytes = [0; SECTOR_BYTES as usize];
        match sector {
            Sector::Zeros => {}
            Sector::Written(written) => bytes = **written,
            Sector::Log(change, from) => {
                let entry = &self.recording.changes()[*change].entry;
                let log = self.recording.log();
                log.read_data(entry, *from, &mut bytes)
                    .map_err(|error| DeviceError::Read {
                        device: self.name(),
                        offset_bytes: entry.offset_bytes + from,
                        len_bytes: SECTOR_BYTES,
                        reason: error.to_string(),
                    })?;
            }
        }
        Ok(bytes)
    }

    fn write_with(&self, layers: &mut Layers, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let end = offset_bytes.checked_add(data.len() as u64);
        let end = end.filter(|&end| end <= self.size_bytes());
        let end = end.ok_or_else(|| DeviceError::OutOfRange {
            device: self.name(),
            offset_bytes,
            len_bytes: data.len() as u64,
            size_bytes: self.size_bytes(),
        })?;
        layers.written = true;
        let mut from = offset_bytes;
        while from < end {
            let start = from / SECTOR_BYTES * SECTOR_BYTES;
            let to = (start + SECTOR_BYTES).min(end);
            let mut bytes = [0; SECTOR_BYTES as usize];
            let whole = from == start && to - start == SECTOR_BYTES;
            if !whole {
                let there = (self.size_bytes() - start).min(SECTOR_BYTES) as usize;
                self.read_with(layers, start, &mut bytes[..there])?;
            }
            let piece = &data[(from - offset_bytes) as usize..(to - offset_bytes) as usize];
            bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(piece);
            let written = Sector::Written(Box::new(bytes));
            layers.state.insert(start / SECTOR_BYTES, written);
            from = to;
        }
        Ok(())
    }
}

impl BlockDevice for OverlayDevice {
    fn size_bytes(&self) -> u64 {
        self.recording.base_bytes()
    }

    fn name(&self) -> String {
        format!("a state of {}", self.recording.base_path().display())
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_with(&self.locked(), offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut layers = self.locked();
        for request in batch {
            let mut at = request.offset_bytes;
            for buffer in &request.buffers {
                self.write_with(&mut layers, at, buffer)?;
                at += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// States shown as a device that is put together while it is read.
pub(crate) struct Overlay {
    device: Arc<OverlayDevice>,
    shown: Box<dyn Shown>,
    path: PathBuf,
}

impl Overlay {
    pub(crate) fn new(dir: &Path, recording: Arc<Recording>, show: &Show) -> ScheduleResult<Self> {
        let dir = dir.join("overlay");
        std::fs::create_dir(&dir).map_err(at("cannot make a directory", &dir))?;
        let device = Arc::new(OverlayDevice::new(recording));
        let shown = show(device.clone(), &dir).map_err(|reason| StepError::Host {
            place: dir.display().to_string(),
            what: CANNOT_SHOW,
            reason,
        })?;
        let path = shown.path().to_owned();
        Ok(Self {
            device,
            shown,
            path,
        })
    }
}

impl Stage for Overlay {
    fn path(&self) -> &Path {
        debug_assert_eq!(self.path, self.shown.path());
        &self.path
    }

    fn build(&mut self, moment: &Moment, variant: &Variant) -> ScheduleResult<()> {
        self.device.build(moment, variant)
    }

    fn restore(&mut self) -> ScheduleResult<bool> {
        Ok(self.device.restore())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::variant::StateId;
    use backstitch_device::write_log::{EntryFlags, LogWriter};

    /// A base of nine sectors with a hole in the middle, and a log with every kind of change.
    fn recording(dir: &Path) -> Arc<Recording> {
        let (base, log) = (dir.join("base"), dir.join("log"));
        let mut bytes = vec![b'.'; 9 * 512];
        bytes[1024..2048].fill(0);
        std::fs::write(&base, bytes).unwrap();
        let mut writer = LogWriter::create(&log).unwrap();
        let plain = EntryFlags::default();
        writer.write(512, &[b'a'; 1536], plain).unwrap();
        writer.flush().unwrap();
        writer.discard(1024, 2048).unwrap();
        writer.write(2560, &[b'b'; 1024], plain).unwrap();
        writer.write(3072, &[b'c'; 1024], EntryFlags::FUA).unwrap();
        writer.write(0, &[b'd'; 2048], plain).unwrap();
        drop(writer);
        Arc::new(Recording::open(&base, &log).unwrap())
    }

    #[test]
    fn shows_what_the_copy_holds() {
        let dir = tempfile::tempdir().unwrap();
        let recording = recording(dir.path());
        let device = OverlayDevice::new(recording.clone());
        let mut copy = Scratch::new(dir.path(), recording.clone()).unwrap();
        for name in [
            "1:1",
            "3:0",
            "3:1",
            "4:3",
            "4:3,o=1.0",
            "5i:3",
            "6:7",
            "6:4,t=2/5",
        ] {
            let state = StateId::parse(name, &recording).unwrap();
            device.build(&state.moment, &state.variant).unwrap();
            copy.build(&state.moment, &state.variant).unwrap();
            let mut shown = vec![0; 9 * 512];
            device.read(0, &mut shown).unwrap();
            assert!(shown == std::fs::read(copy.path()).unwrap(), "{name}");
            let mut part = [0; 700];
            device.read(1000, &mut part).unwrap();
            assert_eq!(part[..], shown[1000..1700], "{name}");
            device.write(1020, &[b'!'; 600]).unwrap();
            device.read(1000, &mut part).unwrap();
            assert_eq!(part[20..620], [b'!'; 600]);
            assert_eq!((part[19], part[620]), (shown[1019], shown[1620]));
            assert!(device.restore());
            assert!(!copy.restore().unwrap());
        }
        assert!(!device.restore(), "nobody wrote since");
        assert!(device.read(9 * 512 - 1, &mut [0; 2]).is_err());
        assert!(device.write(9 * 512 - 1, &[0; 2]).is_err());
    }
}
