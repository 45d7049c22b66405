//! The file systems that benchmarks make: on a device in memory, in an image, on a simulated disk,
//! with their logs.

use std::path::Path;
use std::sync::Arc;

use backstitch_device::{BlockDevice, FileDevice, MemoryDevice, OpenOptions};
use backstitch_drives::{DriveSpec, SimulatedDevice, VirtualClock};
use backstitch_formats::Layout;
use backstitch_layout::tools::{Mkfs, MkfsJournal};
use backstitch_mechanisms::logs;
use backstitch_vfs::Ordering;
use backstitch_wafs::Wafs;

use crate::Result;
use crate::disk::Disk;
use crate::machine::START_SECONDS;

/// When images are made: an arbitrary time, the same for all.
const MADE_SECONDS: u64 = START_SECONDS as u64;
/// The UUID of the file systems that benchmarks make.
pub const IMAGE_UUID: [u8; 16] = [0xb5; 16];
/// The UUID of the separate journals that benchmarks make.
pub const JOURNAL_UUID: [u8; 16] = [0x1b; 16];

/// What a bit of a map stands for where nobody says otherwise: a block of ext, a fragment of UFS. It is
/// the one of large file systems, whatever the size of the one that is made.
const UNIT_BYTES: u32 = 4096;

/// The size that mkfs gives a journal in 4 GiB, and that of the papers' journals.
const JOURNAL_BYTES: u64 = 64 << 20;
/// The size of a separate log of operations, as in Seltzer et al. 2000 (table 3).
const LOG_BYTES: u64 = 128 << 20;

/// How a file system for a run is made.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    pub(crate) layout: Layout,
    /// The mechanism that will run on it: the file system has the log that this one needs.
    pub(crate) ordering: Ordering,
    /// The size of a block, or of a fragment where blocks are divided; the usual one where `None`.
    pub(crate) unit_bytes: Option<u32>,
    /// The size of the log; the usual one where `None`.
    pub(crate) log_bytes: Option<u64>,
    /// Files and directories that must find room at the same time. The file system has the usual
    /// number of inodes unless these are more.
    pub(crate) files: u64,
}

impl Making {
    /// With a log and inodes as usual.
    pub(crate) fn new(layout: Layout, ordering: Ordering) -> Making {
        Making {
            layout,
            ordering,
            unit_bytes: None,
            log_bytes: None,
            files: 0,
        }
    }

    /// Makes the file system, with its log inside if it has one.
    pub(crate) fn make(self, device: &dyn BlockDevice, device_is_zero: bool) -> Result<()> {
        let wanted = Mkfs {
            journal_bytes: self.log_bytes,
            ..self.wanted(device.size_bytes(), device_is_zero)?
        };
        self.layout.make(&wanted, device)?;
        Ok(())
    }

    /// Makes the file system, with its log on a device of its own.
    pub(crate) fn make_apart(
        self,
        (device, device_is_zero): (&dyn BlockDevice, bool),
        (log, log_is_zero): (&dyn BlockDevice, bool),
    ) -> Result<()> {
        let wanted = self.wanted(device.size_bytes(), device_is_zero)?;
        if self.ordering.needs_log_device() {
            self.layout.make(&wanted, device)?;
            let made_nanoseconds = MADE_SECONDS * 1_000_000_000;
            return Ok(Wafs::make(log, JOURNAL_UUID, made_nanoseconds)?);
        }
        let made = MkfsJournal {
            block_size: Some(UNIT_BYTES),
            device_is_zero: log_is_zero,
            ..MkfsJournal::new(JOURNAL_UUID, MADE_SECONDS)
        };
        let uuid = self.layout.make_journal(&made, log)?.uuid;
        let wanted = Mkfs {
            journal_uuid: Some(uuid),
            ..wanted
        };
        self.layout.make(&wanted, device)?;
        self.layout.attach_journal(log, wanted.uuid)?;
        Ok(())
    }

    /// Makes it on an empty device in memory. Returns the device of the log, where the mechanism
    /// needs one.
    pub(crate) fn in_memory(self, device: &MemoryDevice) -> Result<Option<Arc<dyn BlockDevice>>> {
        if !self.ordering.needs_log_device() {
            return self.make(device, true).map(|()| None);
        }
        let log = MemoryDevice::new(self.bytes_of_log_apart() as usize);
        self.make_apart((device, true), (&log, true))?;
        Ok(Some(Arc::new(log)))
    }

    /// Makes it, with its log in a file or on a block device, which is overwritten and returned.
    pub(crate) fn with_log_at(
        self,
        path: &Path,
        device: &dyn BlockDevice,
        device_is_zero: bool,
    ) -> Result<Arc<dyn BlockDevice>> {
        let (log, log_is_zero) = emptied(path, self.bytes_of_log_apart())?;
        self.make_apart((device, device_is_zero), (&log, log_is_zero))?;
        Ok(Arc::new(log))
    }

    /// Makes it on a simulated disk. Also returns the disk for its log alone, if there is one.
    pub(crate) fn on_disk(
        self,
        disk: &Disk,
        clock: &Arc<VirtualClock>,
    ) -> Result<(Arc<SimulatedDevice>, Option<Arc<SimulatedDevice>>)> {
        let device = SimulatedDevice::new(&disk.drive, disk.size_bytes, clock.clone());
        let log = self
            .log_drive(disk)
            .map(|drive| SimulatedDevice::new(drive, self.bytes_of_log_apart(), clock.clone()));
        match &log {
            Some(log) => self.make_apart((&device, true), (log, true))?,
            None => self.make(&device, true)?,
        }
        Ok((Arc::new(device), log.map(Arc::new)))
    }

    /// The drive for a mechanism's log alone on a simulated disk, if it has one.
    fn log_drive(self, disk: &Disk) -> Option<&DriveSpec> {
        let stated = disk.log_drive.as_ref();
        match self.ordering.needs_log_device() {
            true => stated.or(Some(&disk.drive)),
            false => stated,
        }
    }

    /// The size of a log on a device of its own.
    fn bytes_of_log_apart(self) -> u64 {
        self.log_bytes
            .unwrap_or(match self.ordering.needs_log_device() {
                true => LOG_BYTES,
                false => JOURNAL_BYTES,
            })
    }

    /// The options of a new file system in this many bytes. The ordering decides whether it has a
    /// log, not the type.
    fn wanted(self, size_bytes: u64, device_is_zero: bool) -> Result<Mkfs> {
        let is_of_log = |word: &&str| logs().iter().any(|kind| kind.features().contains(word));
        let of_type = self.layout.type_features().iter().copied();
        let of_type = of_type.filter(|word| !is_of_log(word)).map(str::to_owned);
        let unit = Some(self.unit_bytes.unwrap_or(UNIT_BYTES));
        let (block_size, fragment_size) = match self.layout.divides_blocks() {
            true => (None, unit),
            false => (unit, None),
        };
        let usual = Mkfs {
            features: of_type.chain(self.ordering.image_features()).collect(),
            block_size,
            fragment_size,
            device_is_zero,
            ..Mkfs::new(IMAGE_UUID, [0x5b; 16], MADE_SECONDS)
        };
        // A few inodes are the file system's own, and its log may be a file.
        let needed = self.files + 64;
        let inodes = match self.layout.planned_inodes(&usual, size_bytes)? < needed {
            true => Some(u32::try_from(needed).unwrap_or(u32::MAX)),
            false => None,
        };
        Ok(Mkfs { inodes, ..usual })
    }
}

/// Whether a layout can host what an ordering needs, in a file system of this size.
pub fn can_make(layout: Layout, ordering: Ordering, size_bytes: u64) -> bool {
    Making::new(layout, ordering)
        .wanted(size_bytes, true)
        .is_ok()
}

/// An emptied file, in which the host must allocate all blocks again; or a block device. Also
/// whether it is known to hold zeros.
pub(crate) fn emptied(path: &Path, size_bytes: u64) -> Result<(FileDevice, bool)> {
    use std::os::unix::fs::FileTypeExt;
    let is_disk = std::fs::metadata(path).is_ok_and(|seen| seen.file_type().is_block_device());
    if is_disk {
        let device = FileDevice::open(path, OpenOptions::default())?;
        return Ok((device, false));
    }
    // Both calls take a lock, so an image that is mounted is not touched.
    drop(FileDevice::create(path, 0)?);
    Ok((FileDevice::create(path, size_bytes)?, true))
}

#[cfg(test)]
mod tests {
    use backstitch_mechanisms::usual_for;

    use super::*;

    #[test]
    fn what_is_made_is_of_the_type_that_was_asked_for() {
        for (asked, has_journal, made) in [
            ("ufs1", false, "ufs1"),
            ("ufs2", false, "ufs2"),
            ("ext2", false, "ext2"),
            ("ext2", true, "ext3"),
            ("ext3", false, "ext2"),
        ] {
            let layout: Layout = asked.parse().unwrap();
            let device = MemoryDevice::new(64 << 20);
            let making = Making::new(layout, usual_for(has_journal));
            making.make(&device, true).unwrap();
            let found = layout.info(&device).unwrap().type_name;
            assert_eq!(found, made, "{asked}, {has_journal}");
        }
    }

    #[test]
    fn there_is_an_inode_for_each_file() {
        const BYTES: u64 = 64 << 20;
        for asked in ["ext2", "ufs1", "ufs2"] {
            let layout: Layout = asked.parse().unwrap();
            let usual = Making::new(layout, usual_for(false));
            let of = |files: u64| {
                let wanted = Making { files, ..usual }.wanted(BYTES, true).unwrap();
                layout.planned_inodes(&wanted, BYTES).unwrap()
            };
            let few = of(0);
            assert_eq!(of(few / 2), few, "{asked}: the usual number is enough");
            // UFS has no more than one for each fragment, less than twice as many.
            let many = few / 2 * 3;
            assert!(of(many) >= many, "{asked}: {} inodes", of(many));
        }
    }
}
