//! The costs of a mechanism, in writes for each call and in time after a crash, to compare with its
//! promises. Measured on a simulated disk, so the results are the same everywhere.

use std::sync::Arc;

use backstitch_drives::SimulatedDevice;
use backstitch_formats::Layout;
use backstitch_vfs::{MountOptions, Ordering};

use crate::Result;
use crate::disk::{Disk, DiskOptions};
use crate::files::Files;
use crate::image::Making;
use crate::machine::MachineFiles;

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
    let (device, log) = Making::new(layout, ordering).on_disk(disk, &clock)?;
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
    let making = Making {
        log_bytes: log_mib.map(|mib| mib << 20),
        ..Making::new(layout, ordering)
    };
    let (device, log) = making.on_disk(disk, &Arc::default())?;
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
