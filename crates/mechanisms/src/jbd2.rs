//! The journals of jbd2 behind [`LogKind`]: found, recovered, and handed to their mechanisms.
//!
//! Here a layout's [`JournalHost`], which knows where the journal is, meets the journal's own
//! recovery, which knows what is in it.
//!
//! # Steps
//!
//! 1. The journal is replayed, flushed and marked as empty.
//! 2. The orphans are dealt with, some at a time: what changes goes into the journal as one
//!    transaction, and is replayed as if a crash had come. So an orphan is there or wholly gone,
//!    and nothing leaks.
//! 3. The superblock's mark that the journal must be replayed goes last.
//!
//! A crash at any point leaves an image that this brings to the same state.

mod shown;

use std::ops::Range;
use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_journal::format::{ExternalJournal, Sequence};
use backstitch_journal::recovery::{Damage, Ending, Home, Outcome};
use backstitch_journal::{
    Error as JournalError, Fault, Journal, JournalDevice, Setup, Transaction,
};
use backstitch_layout::tools::{JournalFeatures, uuid_text};
use backstitch_layout::{
    Error, Findable, FoundLog, JournalHost, JournalLocation, JournalPlace, LogDamage, LogDevice,
    LogKind, LogRecord, LogReport, LogSite, LogTrial, RecoveryMark, Result, Structure, Timestamp,
};
use backstitch_ordering::LogPlace;
use serde_json::{Map, Value};

/// Commit records have a checksum of their transaction and need not come after it: what Linux
/// sets with `-o journal_async_commit` where the file system has no checksums of its own.
pub const ASYNC_COMMIT: JournalFeatures = &["journal_checksum", "journal_async_commit"];

/// Blocks, about, that the orphans of one transaction change, or a quarter of what the journal
/// holds.
const ORPHAN_BLOCKS: usize = 1024;

/// For layouts whose images never have one.
const NO_HOST: &str = "file systems of this type have no journal; choose another ordering";
const NOT_EMPTY: &str = "its journal is not empty, though the superblock says so: run fsck";

/// The journals of ext3, in the file system or on a device of their own.
pub struct Jbd2;

impl LogKind for Jbd2 {
    fn name(&self) -> &'static str {
        "jbd2"
    }

    fn features(&self) -> &'static [&'static str] {
        &["has_journal"]
    }

    fn needs_recovery(&self, site: LogSite<'_>) -> Result<Option<bool>> {
        Ok(place(site)?.map(|place| place.needs_recovery))
    }

    fn is_writable(&self, site: LogSite<'_>) -> Result<bool> {
        match place(site)? {
            Some(place) if !is_outside(&place) || site.log_device.is_some() => {
                let journal = open(site.device, site.log_device, &place)?;
                Ok(journal.superblock().features.unwritable().is_empty())
            }
            _ => Ok(false),
        }
    }

    fn recover(
        &self,
        site: LogSite<'_>,
        now: Timestamp,
        damage: LogDamage,
    ) -> Result<Option<LogReport>> {
        let Some(host) = site.host else {
            return Ok(None);
        };
        let damage = match damage {
            LogDamage::Refuse => Damage::Refuse,
            LogDamage::GiveUp => Damage::Skip,
        };
        let Some(report) = recover(site.device, site.log_device, host, now, damage)? else {
            return Ok(None);
        };
        // A damaged journal that cannot be found was given up by the recovery.
        let place = host.place(site.device).ok().flatten();
        let is_missing = site.log_device.is_none() && place.is_some_and(|p| is_outside(&p));
        let why = match is_missing {
            true => {
                "its journal is on another device: -o nojournal needs journal_dev= to see that it \
                 is empty"
            }
            false => NOT_EMPTY,
        };
        Ok(Some(LogReport {
            actions: report.actions(),
            not_empty: (!report.is_empty).then(|| why.to_owned()),
            replayed: report.replay.map_or(0, |replay| replay.transactions.into()),
        }))
    }

    fn find(&self, site: LogSite<'_>) -> Result<Findable> {
        let Some(host) = site.host else {
            return Ok(Err(NO_HOST.to_owned()));
        };
        let is_on_log_device = host
            .place(site.device)?
            .is_some_and(|place| is_outside(&place));
        let setup = setup(site.device, site.log_device, host)?;
        Ok(setup.map(|setup| FoundLog {
            place: LogPlace::new(setup),
            is_on_log_device,
        }))
    }

    fn blocks(&self, site: LogSite<'_>) -> Vec<Range<u64>> {
        let setup = site
            .host
            .map(|host| setup(site.device, site.log_device, host));
        let Some(Ok(Ok(setup))) = setup else {
            return Vec::new();
        };
        let (first, end) = (setup.superblock.first, setup.superblock.end);
        let runs = setup.map.runs().iter().map(|run| {
            let start = run.position.max(first);
            let end = (run.position + run.blocks).min(end);
            let at = |position: u32| run.block.0 + u64::from(position - run.position);
            at(start)..at(end.max(start))
        });
        runs.filter(|run| !run.is_empty()).collect()
    }

    fn device(&self, device: &dyn BlockDevice) -> Result<Option<LogDevice>> {
        let found = ExternalJournal::read(device).map_err(from_journal)?;
        Ok(found.map(|found| LogDevice {
            uuid: found.uuid,
            block_bytes: found.block_bytes,
            blocks: found.blocks,
        }))
    }

    fn describe(&self, site: LogSite<'_>) -> Result<Option<Map<String, Value>>> {
        shown::describe(site)
    }

    fn records(&self, site: LogSite<'_>, show: &mut dyn FnMut(LogRecord)) -> Result<bool> {
        shown::records(site, show)
    }

    fn one_flush_features(&self) -> JournalFeatures {
        ASYNC_COMMIT
    }

    fn trial(&self, site: LogSite<'_>, trial: LogTrial) -> Result<Option<(u64, Vec<u8>)>> {
        let setup = site
            .host
            .map(|host| setup(site.device, site.log_device, host))
            .transpose()?;
        let Some(Ok(setup)) = setup else {
            return Ok(None);
        };
        let Some(place) = setup.map.block(setup.map.superblock()) else {
            return Ok(None);
        };
        let mut superblock = setup.superblock;
        match trial {
            LogTrial::Blocks(blocks) => {
                superblock.set_first(superblock.end.saturating_sub(blocks).max(1));
            }
            LogTrial::Sequence(number) => superblock.set_tail(0, Sequence(number)),
        }
        let mut block = vec![0; superblock.block_bytes as usize];
        let bytes = superblock.encode();
        block[..bytes.len()].copy_from_slice(&bytes);
        Ok(Some((place.0, block)))
    }
}

fn place(site: LogSite<'_>) -> Result<Option<JournalPlace>> {
    site.host.map_or(Ok(None), |host| host.place(site.device))
}

fn is_outside(place: &JournalPlace) -> bool {
    matches!(place.location, JournalLocation::Outside(_))
}

/// What was found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What the replay did; `None` where none was needed.
    pub replay: Option<Outcome>,
    /// Orphans that were freed.
    pub orphans_freed: u64,
    /// Orphans whose truncation was finished.
    pub orphans_truncated: u64,
    /// Why the list of orphans was given up, with [`Damage::Skip`].
    pub orphans_dropped: Option<String>,
    /// What was wrong with the journal's superblock, with [`Damage::Skip`].
    pub corrections: Vec<String>,
    /// Whether the journal is empty now.
    pub is_empty: bool,
}

impl Report {
    /// What was done, in words.
    pub fn actions(&self) -> Vec<String> {
        let mut actions = Vec::new();
        for correction in &self.corrections {
            actions.push(format!("corrected the journal's superblock: {correction}"));
        }
        if let Some(replay) = &self.replay {
            let (transactions, blocks) = (replay.transactions, replay.blocks);
            actions.push(format!(
                "replayed {transactions} transactions of the journal: {blocks} blocks"
            ));
            if replay.ending == Ending::Checksum {
                actions.push("a torn transaction at the journal's end does not count".to_string());
            }
            if replay.skipped > 0 {
                let count = replay.skipped;
                actions.push(format!("left out {count} damaged blocks of the journal"));
            }
            if let Some(why) = &replay.cut_short {
                actions.push(format!("gave up the rest of the journal: {why}"));
            }
        }
        let (freed, truncated) = (self.orphans_freed, self.orphans_truncated);
        if freed + truncated > 0 {
            actions.push(format!(
                "freed {freed} orphans, finished {truncated} truncations"
            ));
        }
        if let Some(why) = &self.orphans_dropped {
            actions.push(format!("gave up the list of orphans: {why}"));
        }
        actions
    }
}

/// The journal of a file system, as `place` has it.
///
/// # Errors
/// Where it is on another device that is not given, or given wrongly; where its superblock cannot
/// be believed.
pub fn open<'d>(
    device: &'d dyn BlockDevice,
    journal_device: Option<&'d dyn BlockDevice>,
    place: &JournalPlace,
) -> Result<Journal<'d>> {
    let blocks = match (&place.location, journal_device) {
        (JournalLocation::Inside(map), None) => {
            JournalDevice::new(device, place.block_bytes, map.clone())
        }
        (JournalLocation::Inside(_), Some(other)) => {
            let name = other.name();
            return Err(unsupported(format!(
                "its journal is inside the image, not on {name}"
            )));
        }
        (JournalLocation::Outside(uuid), None) => {
            return Err(Error::LogElsewhere(format!(
                "its journal is on another device, {}, which was not named",
                uuid_text(uuid)
            )));
        }
        (JournalLocation::Outside(uuid), Some(other)) => external(other, uuid, place)?,
    };
    let journal = Journal::open(blocks).map_err(from_journal)?;
    let users = &journal.superblock().users;
    let is_outside = matches!(place.location, JournalLocation::Outside(_));
    if is_outside && !users.contains(&place.file_system) {
        return Err(unsupported(
            "the journal's device does not name this file system as its user".to_string(),
        ));
    }
    Ok(journal)
}

/// A journal on a device of its own, which must be the one that the file system names.
fn external<'d>(
    device: &'d dyn BlockDevice,
    uuid: &[u8; 16],
    place: &JournalPlace,
) -> Result<JournalDevice<'d>> {
    let name = device.name();
    let found = ExternalJournal::read(device).map_err(from_journal)?;
    let found = found.ok_or_else(|| unsupported(format!("{name} holds no journal")))?;
    if found.uuid != *uuid {
        return Err(unsupported(format!(
            "{name} is journal {}, {} is expected",
            uuid_text(&found.uuid),
            uuid_text(uuid)
        )));
    }
    if found.block_bytes != place.block_bytes {
        return Err(unsupported(format!(
            "{name} has blocks of {} bytes, the file system of {}",
            found.block_bytes, place.block_bytes
        )));
    }
    let map = Arc::new(found.map);
    Ok(JournalDevice::new(device, place.block_bytes, map))
}

fn unsupported(what: String) -> Error {
    Error::Unsupported(what)
}

/// An error of the journal as one of the file system.
pub fn from_journal(error: JournalError) -> Error {
    match error {
        JournalError::Device(error) => error.into(),
        JournalError::Corrupt { position, fault } => {
            Error::corrupt(Structure::JournalBlock { position }, fault)
        }
        JournalError::NotAJournal(fault) => Error::corrupt(Structure::JOURNAL, fault),
        error @ JournalError::Incompatible { .. } => unsupported(error.to_string()),
    }
}

/// Replays the journal of the file system on `device` and deals with its orphans, where there is
/// anything to be done; nothing may be mounted on it. `None` where it has no journal.
///
/// # Errors
/// Where the journal cannot be found or replayed; nothing was written then. With [`Damage::Skip`]
/// what cannot be replayed is given up instead, and the file system marked as one that must be
/// checked.
pub fn recover(
    device: &dyn BlockDevice,
    journal_device: Option<&dyn BlockDevice>,
    host: &dyn JournalHost,
    now: Timestamp,
    damage: Damage,
) -> Result<Option<Report>> {
    let found = match damage {
        Damage::Refuse => found(device, journal_device, host)?,
        Damage::Skip => found_damaged(device, journal_device, host)?,
    };
    let Some(Found {
        mut place,
        journal,
        corrections,
    }) = found
    else {
        return Ok(None);
    };
    let Some(mut journal) = journal else {
        return Ok(Some(Report::default()));
    };
    // The superblock may be one of long ago, taken from a backup: a repair believes the log.
    let is_unannounced = damage == Damage::Skip && !journal.superblock().is_empty();
    place.needs_recovery |= is_unannounced;
    let mut recovery = Recovery {
        device,
        host,
        place: &place,
        now,
        damage,
        report: Report {
            corrections,
            ..Report::default()
        },
        mark: RecoveryMark {
            needed: place.needs_recovery,
            ..RecoveryMark::default()
        },
    };
    let superblock = journal.superblock();
    let error_number = superblock.error_number;
    if damage == Damage::Skip && error_number != 0 {
        let note = format!("error {error_number}, noted by a mount, is cleared");
        recovery.report.corrections.push(note);
    }
    let is_replayable = !superblock.is_empty() || superblock.features.unreplayable().is_empty();
    if place.needs_recovery && (is_replayable || damage == Damage::Refuse) {
        recovery.replay(&mut journal)?;
    } else if !recovery.report.corrections.is_empty() {
        let (start, sequence) = (journal.superblock().start, journal.superblock().sequence);
        journal.write_tail(start, sequence).map_err(from_journal)?;
    }
    // A log that the superblock does not speak of was left by somebody who ignored it: it is no
    // longer the file system's.
    if journal.superblock().is_empty() {
        recovery.orphans(&mut journal)?;
    }
    let (mark, mut report) = (recovery.mark, recovery.report);
    if mark != RecoveryMark::default() {
        let needed = false;
        host.set_recovery(device, RecoveryMark { needed, ..mark })?;
    }
    report.is_empty = journal.superblock().is_empty();
    Ok(Some(report))
}

/// A journal and where it was found.
struct Found<'d> {
    place: JournalPlace,
    /// `None` where it is on another device, which is not given and not needed.
    journal: Option<Journal<'d>>,
    /// What was wrong with its superblock, and is not any more.
    corrections: Vec<String>,
}

fn found<'d>(
    device: &'d dyn BlockDevice,
    journal_device: Option<&'d dyn BlockDevice>,
    host: &dyn JournalHost,
) -> Result<Option<Found<'d>>> {
    let Some(place) = host.place(device)? else {
        return Ok(None);
    };
    let is_outside = matches!(place.location, JournalLocation::Outside(_));
    let is_needed = place.needs_recovery || !is_outside || journal_device.is_some();
    let journal = match is_needed {
        true => Some(open(device, journal_device, &place)?),
        false => None,
    };
    Ok(Some(Found {
        place,
        journal,
        corrections: Vec::new(),
    }))
}

/// The journal of a damaged file system: of all that could be it, the one in which most can be
/// replayed.
fn found_damaged<'d>(
    device: &'d dyn BlockDevice,
    journal_device: Option<&'d dyn BlockDevice>,
    host: &dyn JournalHost,
) -> Result<Option<Found<'d>>> {
    let mut best: Option<(u32, Found<'d>)> = None;
    let mut first_error = None;
    let places = host.damaged_places(device)?;
    let has_places = !places.is_empty();
    for place in places {
        let JournalLocation::Inside(map) = &place.location else {
            return found(device, journal_device, host);
        };
        let map = map.clone();
        let blocks = JournalDevice::new(device, place.block_bytes, map.clone());
        let tried = Journal::open_damaged(blocks).and_then(|(journal, corrections)| {
            // An empty log is no hindrance, whatever features it has: nothing is replayed.
            let transactions = match journal.superblock().is_empty() {
                true => 0,
                false => {
                    let scan = journal.scan_with(place.home_blocks, Damage::Skip)?;
                    scan.end.distance(scan.first)
                }
            };
            Ok((transactions, journal, corrections))
        });
        match tried {
            Ok((transactions, journal, corrections)) => {
                if best.as_ref().is_none_or(|(most, _)| transactions > *most) {
                    let found = Found {
                        place,
                        journal: Some(journal),
                        corrections,
                    };
                    best = Some((transactions, found));
                }
            }
            Err(error @ JournalError::Device(_)) => return Err(from_journal(error)),
            // Beside damage, a feature that nobody knows is damage too: no other tool replays this
            // log.
            Err(JournalError::Incompatible { features }) if map.has_gaps() => {
                let fault = Fault::UnknownFeatures(features);
                let error = JournalError::corrupt(map.superblock(), fault);
                first_error.get_or_insert(error);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    match (best, first_error) {
        (Some((_, found)), _) => Ok(Some(found)),
        (None, Some(error)) => Err(from_journal(error)),
        // Its inode and the copy of that are lost.
        (None, None) if !has_places => found(device, journal_device, host),
        (None, None) => Ok(None),
    }
}

/// A recovery under way.
struct Recovery<'r> {
    device: &'r dyn BlockDevice,
    host: &'r dyn JournalHost,
    place: &'r JournalPlace,
    now: Timestamp,
    damage: Damage,
    report: Report,
    /// What the superblock will be told, and whether it says now that recovery is needed.
    mark: RecoveryMark,
}

impl Recovery<'_> {
    fn home(&self) -> Home<'_> {
        Home {
            device: self.device,
            blocks: self.place.home_blocks,
            contents: self.host,
        }
    }

    fn replay(&mut self, journal: &mut Journal<'_>) -> Result<()> {
        self.mark.has_errors = journal.superblock().error_number != 0;
        let outcome = journal
            .recover(&self.home(), self.damage)
            .map_err(from_journal)?;
        if outcome.is_damaged() {
            self.mark.is_damaged = true;
        }
        self.report.replay = Some(outcome);
        Ok(())
    }

    /// Deals with the orphans, some at a time, through the journal.
    fn orphans(&mut self, journal: &mut Journal<'_>) -> Result<()> {
        if self.mark.is_damaged || self.mark.has_errors {
            return Ok(());
        }
        // They change through the journal. Where that cannot be written a repair deals with them.
        let is_writable = journal.superblock().features.unwritable().is_empty();
        if !is_writable && self.damage == Damage::Skip {
            return Ok(());
        }
        let most = (journal.capacity() / 4).clamp(1, ORPHAN_BLOCKS);
        loop {
            let orphans = match self.host.next_orphans(self.device, self.now, most) {
                Ok(orphans) => orphans,
                Err(error @ Error::Corrupt(_)) if self.damage == Damage::Skip => {
                    self.host.drop_orphans(self.device)?;
                    self.mark.is_damaged = true;
                    self.report.orphans_dropped = Some(error.to_string());
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if orphans.blocks.is_empty() {
                return Ok(());
            }
            if !self.mark.needed {
                self.mark.needed = true;
                self.host.set_recovery(self.device, self.mark)?;
                // Looked at again: the blocks above were read before the mark was set.
                continue;
            }
            self.report.orphans_freed += orphans.freed;
            self.report.orphans_truncated += orphans.truncated;
            let transaction = Transaction {
                copies: orphans
                    .blocks
                    .into_iter()
                    .map(|(block, bytes)| (block.0, bytes))
                    .collect(),
                revokes: Vec::new(),
                time: (self.now.seconds.max(0) as u64, self.now.nanoseconds),
            };
            journal.write_alone(&transaction).map_err(from_journal)?;
            let home = self.home();
            journal
                .recover(&home, Damage::Refuse)
                .map_err(from_journal)?;
        }
    }
}

/// What a mechanism needs to write the journal of a file system, which was replayed; or why it
/// cannot be written. A journal on another device is written through both as one.
///
/// # Errors
/// Where the journal cannot be found, or its superblock cannot be believed.
pub fn setup(
    device: &dyn BlockDevice,
    journal_device: Option<&dyn BlockDevice>,
    host: &dyn JournalHost,
) -> Result<std::result::Result<Setup, String>> {
    let Some(place) = host.place(device)? else {
        return Ok(Err(match host.journal_maker() {
            Some(command) => format!(
                "the image has no journal: make one with {command}, or choose another ordering"
            ),
            None => NO_HOST.to_owned(),
        }));
    };
    if matches!(place.location, JournalLocation::Outside(_)) && journal_device.is_none() {
        let reason = "its journal is on another device: name it with -o journal_dev=";
        return Ok(Err(reason.to_string()));
    }
    let journal = open(device, journal_device, &place)?;
    let superblock = journal.superblock().clone();
    let unwritable = superblock.features.unwritable();
    if !unwritable.is_empty() {
        let names = unwritable.join(", ");
        return Ok(Err(format!(
            "its journal uses {names}, which this version does not write"
        )));
    }
    if !superblock.is_empty() {
        return Ok(Err(NOT_EMPTY.to_string()));
    }
    let map = match &place.location {
        JournalLocation::Inside(map) => map.clone(),
        JournalLocation::Outside(_) => {
            let before = device.size_bytes() / u64::from(place.block_bytes);
            Arc::new(journal.device().map().behind(before))
        }
    };
    Ok(Ok(Setup { superblock, map }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::MemoryDevice;

    #[test]
    fn a_layout_without_journals_is_not_told_to_make_one() {
        let device = MemoryDevice::new(1 << 16);
        let site = LogSite {
            device: &device,
            log_device: None,
            host: None,
        };
        let why = Jbd2.find(site).unwrap().err().unwrap();
        assert_eq!(why, NO_HOST);
        assert!(!why.contains("tune2fs"));
    }
}
