//! The check and the repair: `fsck -n`, `fsck -y`, and `fsck -n` again.
//!
//! The input is the number of a base image, and damages to it.

use backstitch_device::BlockDevice;
use backstitch_formats::{Layout, journal_host, usual};
use backstitch_layout::tools::{
    CheckOptions, DeviceSource, EXIT_UNCORRECTED, Mode, RepairOptions, Report,
};
use backstitch_layout::{LogDamage, LogKind, LogSite, RecoveryMark, Timestamp};
use backstitch_mechanisms::logs;

use crate::base::{Base, TIME_SECONDS};
use crate::{Input, damage};

/// The most findings that are shown.
const SHOWN: usize = 8;

/// A repaired image is clean, and a second repair has nothing to do. A preening that refuses
/// changes nothing.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    of_base(Base::chosen(&mut input), &mut input);
}

/// The same for this base image, with the rest of the input.
pub(crate) fn of_base(base: &Base, input: &mut Input<'_>) {
    let (layout, device) = (base.layout, base.device());
    damage::all(input, base, &*device);
    if layout.layout().journal_host().is_some() {
        replay(&*device);
    }
    preen(layout, &*device);
    let Ok(outcome) = layout.repair(&*device, &options(Mode::All)) else {
        return;
    };
    if !outcome.is_clean() {
        assert_ne!(outcome.exit_status() & EXIT_UNCORRECTED, 0);
        return;
    }
    let report = check(layout, &*device).expect("what was repaired can be checked");
    let shown = &report.findings[..report.findings.len().min(SHOWN)];
    assert!(report.is_clean(), "repaired, and yet: {shown:?}");
    let again = layout.repair(&*device, &options(Mode::All));
    let again = again.expect("what was repaired can be repaired again");
    let shown = &again.repairs[..again.repairs.len().min(SHOWN)];
    assert!(shown.is_empty(), "repaired again: {shown:?}");
}

/// The report of a check, if the image can be checked.
pub(crate) fn check(layout: Layout, device: &dyn BlockDevice) -> Option<Report> {
    let options = CheckOptions {
        threads: Some(1),
        ..CheckOptions::default()
    };
    layout.check(&DeviceSource(device), &options).ok()
}

fn options(mode: Mode) -> RepairOptions {
    RepairOptions {
        guess_geometry: false,
        mode,
        now_seconds: TIME_SECONDS,
        check: CheckOptions {
            threads: Some(1),
            ..CheckOptions::default()
        },
    }
}

/// Replays the journal, or gives it up, as the command does before it checks.
fn replay(device: &dyn BlockDevice) {
    if usual().layout().block_bytes(device).is_err()
        || journal_host().check_replayable(device).is_err()
    {
        return;
    }
    let now = Timestamp {
        seconds: TIME_SECONDS.into(),
        nanoseconds: 0,
    };
    let site = LogSite {
        device,
        log_device: None,
        host: Some(journal_host()),
    };
    let recover = |kind: &dyn LogKind| kind.recover(site, now, LogDamage::GiveUp);
    if logs().into_iter().any(|kind| recover(kind).is_err()) {
        let mark = RecoveryMark {
            is_damaged: true,
            ..RecoveryMark::default()
        };
        // If that fails too, the repair says why.
        let _ = journal_host().set_recovery(device, mark);
    }
}

fn preen(layout: Layout, device: &dyn BlockDevice) {
    let before = contents(device);
    let Ok(outcome) = layout.repair(device, &options(Mode::Preen)) else {
        assert!(
            contents(device) == before,
            "changed by a preening that failed"
        );
        return;
    };
    if outcome.after.is_none() {
        assert!(contents(device) == before, "changed where it may not be");
    }
    if outcome.is_clean() {
        let report = check(layout, device).expect("what was preened can be checked");
        assert!(
            report.is_clean(),
            "preened, and yet: {:?}",
            report.findings.first()
        );
    }
}

/// All bytes of a device.
pub(crate) fn contents(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read(0, &mut bytes).expect("memory does not fail");
    bytes
}
