//! Checking a whole log.

use crate::read::Log;
use crate::{Lsn, Result, WafsError};
use backstitch_device::BlockDevice;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// The oldest record that is kept.
    pub start: Lsn,
    /// Where the log ends.
    pub end: Lsn,
    /// Records that are whole.
    pub records: u64,
    /// The length of their payloads.
    pub payload_bytes: u64,
    /// Whether the last mount was unmounted.
    pub was_unmounted: bool,
    /// What is wrong, in words; a log that a crash interrupted has nothing wrong with it.
    pub damage: Vec<String>,
}

/// Reads all of a log.
///
/// # Errors
/// Where there is no log to be checked, or the device fails.
pub fn check(device: &dyn BlockDevice) -> Result<CheckReport> {
    let log = Log::open(device)?;
    let mut report = CheckReport {
        start: log.start(),
        end: log.end(),
        records: 0,
        payload_bytes: 0,
        was_unmounted: log.superblock().flags.get() & crate::format::IS_CLEAN != 0,
        damage: Vec::new(),
    };
    if let Some(wrong) = log.damaged_superblock() {
        report.damage.push(format!("one superblock: {wrong}"));
    }
    let mut records = log.records(log.start())?;
    let mut before: Option<(Lsn, u64)> = None;
    loop {
        let record = match records.next() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(report),
            Err(error @ WafsError::NotARecord { .. }) => {
                let lost = format!("{error}; nothing from there to the end can be read");
                report.damage.push(lost);
                return Ok(report);
            }
            Err(error) => return Err(error),
        };
        let lsn = record.lsn;
        if let Some((previous, time)) = before {
            if record.previous != Some(previous) {
                let wrong = format!("LSN {lsn}: does not name the record before it, {previous}");
                report.damage.push(wrong);
            }
            if record.time < time {
                report
                    .damage
                    .push(format!("LSN {lsn}: older than the record before it"));
            }
        }
        before = Some((lsn, record.time));
        report.records += 1;
        report.payload_bytes += record.payload.len() as u64;
    }
}
