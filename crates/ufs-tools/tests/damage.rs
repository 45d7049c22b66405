//! A table of damages, made by hand, on images of both versions and byte orders: what our check
//! says about each, and that our repair leaves nothing of it.

use crate::support::damages::{DIRECTORIES, GROUPS, INODES, Row, SUPERBLOCK, good_images};
use crate::support::have;
use crate::support::probe::Probe;
use backstitch_device::MemoryDevice;
use backstitch_ufs_tools::fsck::{self, CheckError, Kind, Options, Report, SliceSource};
use backstitch_ufs_tools::repair::{Mode, Options as RepairOptions, Outcome, repair};

fn check(bytes: &[u8]) -> Report {
    fsck::check_source(&SliceSource(bytes), &Options::default()).unwrap()
}

fn repaired(bytes: &[u8], mode: Mode) -> Result<(Outcome, Vec<u8>), CheckError> {
    let device = MemoryDevice::from_bytes(bytes.to_vec());
    let options = RepairOptions {
        mode,
        guess_geometry: false,
        now_seconds: 1_700_000_000,
        check: Options::default(),
    };
    let outcome = repair(&device, &options)?;
    Ok((outcome, device.snapshot()))
}

/// What is wrong with a report of a damage.
fn fault_of_check(row: &Row, report: &Report) -> Option<String> {
    let (_, _, code, kind) = row;
    let is_found = report.findings.iter().any(|finding| finding.code == *code);
    let is_right = is_found && report.worst() == Some(*kind);
    (!is_right).then(|| {
        format!(
            "{code:?} found: {is_found}, worst {:?}, expected {kind:?}: {:#?}",
            report.worst(),
            report.findings
        )
    })
}

/// What is wrong after a repair.
fn fault_of_repair(damaged: &[u8]) -> Option<String> {
    let (outcome, bytes) = match repaired(damaged, Mode::All) {
        Ok(result) => result,
        Err(error) => return Some(error.to_string()),
    };
    let report = check(&bytes);
    if !report.is_clean() || !report.notes.is_empty() || outcome.exit_status() != 1 {
        return Some(format!(
            "exit {}, repairs {:#?}, left {:#?}",
            outcome.exit_status(),
            outcome.repairs,
            report.findings
        ));
    }
    let (again, same) = repaired(&bytes, Mode::All).unwrap();
    let is_same = again.repairs.is_empty() && same == bytes;
    (!is_same).then(|| format!("repaired twice: {:#?}", again.repairs))
}

/// Preening repairs what is no corruption, and leaves corruption as it is.
fn fault_of_preening(damaged: &[u8], kind: Kind) -> Option<String> {
    let Ok((outcome, bytes)) = repaired(damaged, Mode::Preen) else {
        return None;
    };
    if outcome.after.is_none() {
        let is_unchanged = bytes == damaged && outcome.exit_status() == 4;
        return (!is_unchanged).then(|| "changed by preening".to_owned());
    }
    let is_right = kind != Kind::Corruption && outcome.is_clean() && check(&bytes).is_clean();
    (!is_right).then(|| format!("preened: {:#?}", outcome.repairs))
}

fn table(rows: &[Row], least: usize) {
    if !have("makefs", "makefs") {
        return;
    }
    let (mut failures, mut tried) = (Vec::new(), 0);
    for (image, good) in good_images().iter().enumerate() {
        for row in rows {
            let (name, damage, _, kind) = row;
            let mut probe = Probe::new(good.clone());
            if !damage(&mut probe) {
                continue;
            }
            tried += 1;
            assert!(probe.bytes != *good, "{name}: nothing was damaged");
            let faults = [
                fault_of_check(row, &check(&probe.bytes)),
                fault_of_repair(&probe.bytes),
                fault_of_preening(&probe.bytes, *kind),
            ];
            let faults = faults.into_iter().flatten();
            failures.extend(faults.map(|fault| format!("image {image}, {name}: {fault}")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    assert!(tried >= least, "only {tried} damages");
}

#[test]
fn superblocks() {
    table(SUPERBLOCK, 60);
}

#[test]
fn groups() {
    table(GROUPS, 100);
}

#[test]
fn inodes() {
    table(INODES, 120);
}

#[test]
fn directories() {
    table(DIRECTORIES, 100);
}
