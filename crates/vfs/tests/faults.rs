//! A failing device: every single read, write and flush of a workload fails in turn, and the
//! promises are checked.
//!
//! `BACKSTITCH_FAULTS=all` takes every request; otherwise a run takes a few dozen of each kind,
//! spread over the workload.

use crate::support::workload::{OnError, Workload};
use crate::support::{Disk, check, mount, new_image};
use backstitch_device::{BlockDevice, Fault, FaultCounts, FaultKind, FaultLength, Loss};

/// How many moments of each kind a short run takes.
const SHORT: u64 = 15;

/// The moments of a sweep over `count` requests.
fn moments(count: u64) -> impl Iterator<Item = u64> {
    let all = std::env::var("BACKSTITCH_FAULTS").is_ok_and(|v| v == "all");
    let stride = if all { 1 } else { (count / SHORT).max(1) };
    // The distance from one moment to the next varies, since some requests come in regular groups.
    (1..=count).filter(move |n| n % stride == n / stride % stride)
}

/// What becomes of what was not flushed, in turn.
fn loss_of(number: u64) -> Loss {
    [Loss::Everything, Loss::Half, Loss::Nothing][number as usize % 3]
}

/// An image that was in use and unmounted, and what is on it.
struct Aged {
    image: Vec<u8>,
    workload: Workload,
}

impl Aged {
    fn new() -> Aged {
        let disk = Disk::new(new_image(3 << 20, 256), Loss::Half);
        let mut workload = Workload::new(OnError::GoOn);
        run_without_faults(&disk, &mut workload);
        Aged {
            image: disk.memory.snapshot(),
            workload,
        }
    }
}

/// Runs the workload from the mount to the unmount, and returns the requests that the device got.
fn run_without_faults(disk: &Disk, workload: &mut Workload) -> FaultCounts {
    let engine = disk.mount().unwrap();
    workload.run(&engine);
    workload.expect_everything(&engine);
    assert!(workload.failures.is_empty(), "{:?}", workload.failures);
    assert!(workload.promises() > 3, "the workload promises too little");
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
    disk.fault.counts()
}

/// One failure that does not come again: nothing is lost, and only a failed read is reported.
fn transient(aged: &Aged, kind: FaultKind, number: u64) -> bool {
    let disk = Disk::new(aged.image.clone(), loss_of(number));
    disk.fault.inject(Fault {
        kind,
        number,
        length: FaultLength::Once,
    });
    let Ok(engine) = disk.mount() else {
        // The mount itself failed; the next one finds everything in order.
        disk.fault.reset_after_failure();
        let again = disk.mount().unwrap();
        aged.workload.expect_everything(&again);
        again.unmount().unwrap();
        assert!(check(&*disk.memory).is_clean(), "{kind:?} {number}");
        return true;
    };
    let mut workload = aged.workload.after_unmount(OnError::Repeat);
    workload.run(&engine);
    workload.expect_everything(&engine);
    if kind != FaultKind::Read {
        assert!(workload.failures.is_empty(), "{:?}", workload.failures);
    }
    let ended = engine.unmount();
    let hit = disk.fault.counts().failures > 0;
    if kind != FaultKind::Read {
        // There may be several retries, if the writer's thread had a batch in flight too.
        assert_eq!(engine.stats().write_retries > 0, hit);
    }
    drop(engine);
    match ended {
        Ok(()) => assert!(check(&*disk.memory).is_clean(), "{kind:?} {number}"),
        Err(error) => {
            // A read for the unmount failed: the image is as after a crash, and nothing is lost.
            assert_eq!(kind, FaultKind::Read, "{error}");
            assert!(check(&*disk.memory).is_consistent());
        }
    }
    let again = mount(disk.memory.clone()).unwrap();
    workload.expect_everything(&again);
    again.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean(), "{kind:?} {number}");
    hit
}

/// The device is gone from that moment on. What was acknowledged is there, and what is in memory
/// can be read once the device is back.
fn lasting(aged: &Aged, kind: FaultKind, number: u64) -> bool {
    let disk = Disk::new(aged.image.clone(), loss_of(number));
    disk.fault.inject(Fault {
        kind,
        number,
        length: FaultLength::Gone,
    });
    let mut workload = aged.workload.after_unmount(OnError::GoOn);
    if let Ok(engine) = disk.mount() {
        workload.run(&engine);
        disk.fault.comes_back();
        if disk.fault.counts().failures > 0 {
            workload.expect_everything(&engine);
        }
        let latched = engine.read_only_reason();
        let ended = engine.unmount();
        if let Some(reason) = latched {
            assert!(reason.contains("injected failure"), "{reason}");
            assert_eq!(ended.unwrap_err().errno(), 5);
        } else if let Err(error) = ended {
            assert_eq!(error.errno(), 5, "{error}");
            assert!(disk.fault.counts().failures > 0, "{error}");
        }
    }
    let report = check(&*disk.memory);
    assert!(
        report.is_consistent(),
        "{kind:?} {number}: {:?}",
        report.findings
    );
    let again = mount(disk.memory.clone()).unwrap();
    workload.expect_promises(&again);
    again.unmount().unwrap();
    let report = check(&*disk.memory);
    assert!(
        report.is_clean(),
        "{kind:?} {number}: {:?}",
        report.findings
    );
    disk.fault.counts().failures > 0
}

/// Sweeps over all moments of a kind, with failures that last and failures that do not.
fn sweep(kind: FaultKind, count_of: fn(FaultCounts) -> u64) {
    let aged = Aged::new();
    let disk = Disk::new(aged.image.clone(), Loss::Half);
    let mut workload = aged.workload.after_unmount(OnError::GoOn);
    let count = count_of(run_without_faults(&disk, &mut workload));
    let (mut runs, mut hits) = (0, 0);
    for number in moments(count) {
        for run in [transient, lasting] {
            runs += 1;
            hits += u64::from(run(&aged, kind, number));
        }
    }
    println!("{kind:?}: {count} moments, {runs} runs, {hits} with a failure");
    // The number of reads depends on when the writer's thread has its turns, so the last moments
    // may not come.
    assert!(hits * 2 > runs, "{hits} of {runs} runs had a failure");
}

#[test]
fn each_read_fails() {
    sweep(FaultKind::Read, |counts| counts.reads);
}

#[test]
fn each_write_fails() {
    sweep(FaultKind::Write, |counts| counts.writes);
}

#[test]
fn each_flush_fails() {
    sweep(FaultKind::Flush, |counts| counts.flushes);
}
