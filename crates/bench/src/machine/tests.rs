//! What a power cut at any moment leaves of a machine's disk.

use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_drives::{DriveSpec, PowerCut, SimulatedDevice};
use backstitch_formats::usual;
use backstitch_layout::tools::{CheckOptions, DeviceSource, Kind};
use backstitch_layout::{LayoutKind, Timestamp};
use backstitch_session::{Access, log};
use backstitch_vfs::{MountOptions, Ordering};
use fastrand::Rng;

use super::MachineFiles;
use crate::disk::{Disk, DiskOptions};
use crate::files::Files;
use crate::image::Making;

const SIZE_BYTES: u64 = 8 << 20;

/// A random choice of open writes that leaves out none that a chosen one must follow.
fn some_of(cut: &PowerCut, rng: &mut Rng) -> Vec<bool> {
    let share = rng.f64();
    let mut there: Vec<bool> = cut.open.iter().map(|_| rng.f64() < share).collect();
    for at in 0..there.len() {
        there[at] &= cut.open[at].befores.iter().all(|before| there[*before]);
    }
    there
}

/// The first corruption that a check finds after recovery, from the log's drive too if there is one.
fn worst(
    device: SimulatedDevice,
    log: Option<SimulatedDevice>,
    ordering: Ordering,
    layout: &dyn LayoutKind,
) -> Option<String> {
    let access = Access {
        read_only: false,
        now: Timestamp::default(),
        without_journal: false,
        ordering,
    };
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let log: Option<Arc<dyn BlockDevice>> = log.map(|log| Arc::new(log) as _);
    let prepared = log::prepare(device, log, layout, &access).unwrap();
    let source = DeviceSource(&*prepared.device);
    let report = usual().check(&source, &CheckOptions::default()).unwrap();
    let damage = report.findings.iter().find(|f| f.kind == Kind::Corruption);
    damage.map(ToString::to_string)
}

/// Whether a file is in the root directory after a mount.
fn is_found(
    device: SimulatedDevice,
    log: Option<SimulatedDevice>,
    name: &str,
    options: &MountOptions,
    disk: &Disk,
) -> bool {
    let layout = usual().layout();
    let log = log.map(Arc::new);
    let mut files = MachineFiles::mount(Arc::new(device), log, layout, options, disk).unwrap();
    let root = files.root();
    files.lookup(root, name).is_ok()
}

/// Works on a disk, and cuts the power again and again. Returns the number of states checked, how
/// many of them had writes on their way, and the first damage.
fn cuts(ordering: Ordering, drive: &DriveSpec, seed: u64) -> (u64, u64, Option<String>) {
    let mut rng = Rng::with_seed(seed);
    let disk = Disk {
        drive: drive.clone(),
        ..Disk::named("viking", SIZE_BYTES, &DiskOptions::default()).unwrap()
    };
    let making = Making::new(usual(), ordering);
    let (device, log) = making.on_disk(&disk, &Arc::default()).unwrap();
    let is_at_rest = || {
        let drives = [Some(&device), log.as_ref()].into_iter().flatten();
        drives
            .map(|drive| drive.power_cut().open.len())
            .sum::<usize>()
            == 0
    };
    let options = MountOptions {
        ordering,
        cache_bytes: 1 << 20,
        ..MountOptions::default()
    };
    let layout = usual().layout();
    let mut files =
        MachineFiles::mount(device.clone(), log.clone(), layout, &options, &disk).unwrap();
    let root = files.root();
    let mut names: Vec<String> = Vec::new();
    let (mut states, mut on_their_way) = (0, 0);
    for number in 0..150 {
        match rng.u8(0..6) {
            0 if !names.is_empty() => {
                let name = names.swap_remove(rng.usize(..names.len()));
                files.unlink(root, &name).unwrap();
            }
            1 if !names.is_empty() => {
                let at = rng.usize(..names.len());
                let name = &mut names[at];
                let to = format!("moved {number}");
                files.rename(root, name, &to).unwrap();
                *name = to;
            }
            2 => drop(
                files
                    .make_directory(root, &format!("d{number}"), 0o755)
                    .unwrap(),
            ),
            _ => {
                let name = format!("a file with a long name {number}");
                let file = files.create(root, &name, 0o644).unwrap();
                files
                    .write(file, 0, &vec![7; rng.usize(1..20_000)])
                    .unwrap();
                if rng.u8(0..8) == 0 {
                    files.fsync(file).unwrap();
                    let clock = Arc::default();
                    let cut = |device: &SimulatedDevice| {
                        let cut = device.power_cut();
                        device.after_power_cut(drive, &cut, Arc::clone(&clock), &|_| false)
                    };
                    let (after, log_after) = (cut(&device), log.as_deref().map(cut));
                    let found = is_found(after, log_after, &name, &options, &disk);
                    assert!(found, "{ordering}: {name} is not there after fsync");
                }
                files.close(file).unwrap();
                names.push(name);
            }
        }
        for _ in 0..3 {
            on_their_way += u64::from(!is_at_rest());
            let clock = Arc::default();
            let mut after = |device: &SimulatedDevice| {
                let cut = device.power_cut();
                let there = some_of(&cut, &mut rng);
                device.after_power_cut(drive, &cut, Arc::clone(&clock), &|at| there[at])
            };
            let (after, log_after) = (after(&device), log.as_deref().map(&mut after));
            states += 1;
            if let Some(damage) = worst(after, log_after, ordering, layout) {
                return (states, on_their_way, Some(damage));
            }
        }
    }
    files.unmount().unwrap();
    assert!(is_at_rest(), "{ordering}: after the unmount");
    (states, on_their_way, None)
}

fn cached(name: &str) -> DriveSpec {
    let mut drive = DriveSpec::preset(name).unwrap();
    drive.rotating.as_mut().unwrap().write_cache = true;
    drive
}

#[test]
fn a_power_cut_leaves_no_damage_where_order_is_kept() {
    for ordering in [
        Ordering::SOFT,
        Ordering::SYNC,
        Ordering::SCHEDULER,
        Ordering::INTERBUFFER,
        Ordering::AMOM_IMMEDIATE,
        Ordering::JOURNAL_ORDERED,
        // The log has 64 blocks here, and the shortest step of a removal may change 14 of them.
        Ordering::LFFS_FILE,
        Ordering::LFFS_WAFS_1ASYNC,
        Ordering::LFFS_WAFS_1SYNC,
        Ordering::LFFS_WAFS_2SYNC,
        Ordering::LFFS_WAFS_2ASYNC,
    ] {
        for drive in [DriveSpec::preset("viking").unwrap(), cached("viking")] {
            let (states, on_their_way, damage) = cuts(ordering, &drive, 5);
            assert_eq!(damage, None, "{ordering}, state {states}");
            println!("{ordering}: {on_their_way} of {states} states with writes on their way");
            let is_queued = ordering == Ordering::SCHEDULER;
            assert!(
                on_their_way * 4 > states || !is_queued,
                "{on_their_way} of {states}"
            );
        }
    }
}

/// Chains are as long as the drive's queue only now and then.
#[test]
fn chains_leave_no_damage_either() {
    let drive = DriveSpec::preset("viking").unwrap();
    for seed in 6..16 {
        let (states, _, damage) = cuts(Ordering::SCHEDULER, &drive, seed);
        assert_eq!(damage, None, "seed {seed}, state {states}");
    }
}

#[test]
fn without_order_it_does() {
    let drive = DriveSpec::preset("viking").unwrap();
    let found = (0..20).find(|seed| cuts(Ordering::ASYNC, &drive, *seed).2.is_some());
    assert!(found.is_some(), "async leaves no damage: are the cuts any?");
}
