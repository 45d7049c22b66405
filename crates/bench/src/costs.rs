//! The costs of a mechanism, in writes for each call and in time after a crash, to compare with its
//! promises. Measured on a simulated disk, so the results are the same everywhere.

use std::sync::Arc;

use backstitch_drives::{SimulatedDevice, VirtualClock};
use backstitch_formats::Layout;
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::{MountOptions, Ordering};

use crate::Result;
use crate::disk::{Disk, DiskOptions};
use crate::files::Files;
use crate::machine::MachineFiles;
use crate::measure::{make_apart, make_on_disk, wanted};

/// The costs of a mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The mechanism.
    pub ordering: Ordering,
    /// Write requests for each file made in one directory, including the sync at the end.
    pub creates: f64,
    /// The same for each file renamed there.
    pub renames: f64,
    /// The same for each file removed there.
    pub removals: f64,
    /// Seconds from a crash until files can be used, with the length of the log in MiB. Without a
    /// log one time without a length.
    pub recoveries: Vec<(Option<u64>, f64)>,
}

/// Files in the measurement of writes.
const FILES: u64 = 1_000;
/// The lengths of logs, in MiB.
const LOG_MIB: [u64; 3] = [4, 16, 64];
/// Files made before the crash for each MiB of the log. Without a log, as many as for the longest.
const FILES_BY_MIB: u64 = 500;
const SIZE_BYTES: u64 = 8 << 30;

/// Measures a mechanism on a drive.
///
/// # Errors
/// If something fails.
pub fn measure_costs(layout: Layout, ordering: Ordering, disk: &str) -> Result<Costs> {
    let disk = Disk::named(disk, SIZE_BYTES, &DiskOptions::default())?;
    let writes = writes(layout, ordering, &disk)?;
    let mut recoveries = Vec::new();
    let lens: &[Option<u64>] = match ordering.has_log() {
        true => &LOG_MIB.map(Some),
        false => &[None],
    };
    for len in lens {
        recoveries.push((*len, recovery_seconds(layout, ordering, &disk, *len)?));
    }
    Ok(Costs {
        ordering,
        creates: writes[0],
        renames: writes[1],
        removals: writes[2],
        recoveries,
    })
}

fn options(ordering: Ordering, disk: &Disk) -> MountOptions {
    MountOptions {
        ordering,
        cache_bytes: disk.buffer_bytes.unwrap_or(256 << 20),
        changes_bytes: disk.changes_bytes.unwrap_or(0),
        ..MountOptions::default()
    }
}

fn writes(layout: Layout, ordering: Ordering, disk: &Disk) -> Result<[f64; 3]> {
    let clock = Arc::default();
    let (device, log) = make_on_disk(layout, ordering, disk, &clock)?;
    let options = options(ordering, disk);
    let mut files = MachineFiles::mount(device, log, layout.layout(), &options, disk)?;
    let machine = files.machine().clone();
    let at = files.make_directory(files.root(), "files", 0o755)?;
    files.sync()?;
    let mut before = machine.stats().write_requests;
    let mut counted = |files: &mut MachineFiles| -> Result<f64> {
        files.sync()?;
        let after = machine.stats().write_requests;
        let count = after - std::mem::replace(&mut before, after);
        Ok(count as f64 / FILES as f64)
    };
    for number in 0..FILES {
        let file = files.create(at, &format!("{number}"), 0o644)?;
        files.close(file)?;
    }
    let creates = counted(&mut files)?;
    for number in 0..FILES {
        files.rename(at, &format!("{number}"), &format!("to {number}"))?;
    }
    let renames = counted(&mut files)?;
    for number in 0..FILES {
        files.unlink(at, &format!("to {number}"))?;
    }
    let removals = counted(&mut files)?;
    files.unmount()?;
    Ok([creates, renames, removals])
}

/// Makes files, cuts the power, of both drives where the log has its own, and returns how long the
/// mount of what is left takes.
fn recovery_seconds(
    layout: Layout,
    ordering: Ordering,
    disk: &Disk,
    log_mib: Option<u64>,
) -> Result<f64> {
    let (device, log) = make_with_log(layout, ordering, disk, log_mib)?;
    let options = options(ordering, disk);
    let mut files =
        MachineFiles::mount(device.clone(), log.clone(), layout.layout(), &options, disk)?;
    let mib = log_mib.unwrap_or(LOG_MIB[LOG_MIB.len() - 1]);
    let at = files.make_directory(files.root(), "files", 0o755)?;
    for number in 0..mib * FILES_BY_MIB {
        let file = files.create(at, &format!("{number}"), 0o644)?;
        files.close(file)?;
    }
    let clock = Arc::default();
    let rest = |device: &SimulatedDevice| {
        let cut = device.power_cut();
        Arc::new(device.after_power_cut(&disk.drive, &cut, Arc::clone(&clock), &|_| false))
    };
    let (device, log) = (rest(&device), log.as_deref().map(rest));
    let files = MachineFiles::mount(device, log, layout.layout(), &options, disk)?;
    Ok(files.machine().now().as_secs_f64())
}

/// A new file system with a log of that length, which some mechanisms have on a drive of its own.
fn make_with_log(
    layout: Layout,
    ordering: Ordering,
    disk: &Disk,
    log_mib: Option<u64>,
) -> Result<(Arc<SimulatedDevice>, Option<Arc<SimulatedDevice>>)> {
    let clock = Arc::<VirtualClock>::default();
    let drive = |len| Arc::new(SimulatedDevice::new(&disk.drive, len, clock.clone()));
    let device = drive(SIZE_BYTES);
    let log_bytes = log_mib.map(|mib| mib << 20);
    if let (true, Some(bytes)) = (ordering.needs_log_device(), log_bytes) {
        let log = drive(bytes);
        make_apart((layout, ordering), (&*device, true), (&*log, true))?;
        return Ok((device, Some(log)));
    }
    let made = Mkfs {
        journal_bytes: log_bytes,
        ..wanted(layout, true, ordering)
    };
    layout.make(&made, &*device)?;
    Ok((device, None))
}
