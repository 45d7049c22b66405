//! The logs of `lffs-file` and `lffs-wafs` behind [`LogKind`]: found, recovered, and handed to their
//! mechanisms.
//!
//! # Whose log it is
//!
//! The superblock says where the log is, and the mount record that a mount wrote it. The log counts
//! where that mount is the last one and did not end. Where the file system is marked as clean,
//! somebody has repaired or unmounted it since: what the log holds is older than the file system,
//! and is dropped.
//!
//! A log elsewhere has a name, which the file system notes. Before a file system that was unmounted
//! is written through a log that it has not noted, the log gets a new name, and the file system notes
//! that: what the log holds from now on is nobody else's. A log that was not unmounted keeps its name,
//! for it may be what another file system needs.
//!
//! # Steps
//!
//! 1. What the log holds is brought home, and flushed.
//! 2. The orphans are dealt with, some at a time: what changes goes into the log as one group, and is
//!    brought home as if a crash had come.
//! 3. The log is marked as empty, and then the file system as clean.
//!
//! A crash at any point leaves an image that this brings to the same state.

mod shown;

use std::ops::Range;
use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    Error, Findable, FoundLog, JournalHost, Left, LogDamage, LogKind, LogNote, LogReport, LogSite,
    NotedPlace, Result, Structure, Timestamp,
};
use backstitch_lffs::rules::Rule;
use backstitch_lffs::{Error as LogError, Home, LogMap, Setup, Unmounted};
use backstitch_ordering::LogPlace;
use backstitch_rules::holds;
use backstitch_wafs::format::{BLOCK_BYTES, LEAST_LOG_BYTES, LOG_OFFSET_BYTES};
use backstitch_wafs::{Wafs, WafsError};
use serde_json::{Map, Value};

/// Blocks, about, that the orphans of one group change, or a quarter of what the log holds.
const ORPHAN_BLOCKS: u64 = 1024;
/// The largest blocks that a log can lie in: its two superblocks must be in different ones.
const MOST_BLOCK_BYTES: u32 = BLOCK_BYTES as u32;

const LOG: Structure = Structure::Sole("the log");
const NO_FILE: &str = "the image has no log in a file: make it with mkfs -O lffs_log, or choose \
                       another ordering";
const NO_LOG: &str = "there is no write-ahead log: make one behind the file system with mkfs -O \
                      wafs_log, or on another device with wafs mkfs and name that with \
                      -o log_device=";
/// For layouts that have no place for a note of their log.
const NO_HOST: &str =
    "file systems of this type have no log of operations; choose another ordering";
const NO_LOG_DEVICE: &str = "its log is on another device: make a write-ahead log there with wafs \
                             mkfs, and name it with -o log_device=";
const OTHER_LOG: &str = "the image was left by a crash, and this is not the log that has the rest";
const LOG_IS_ELSEWHERE: &str = "the image was left by a crash, and the log that has the rest is on \
                                another device, which was not named";
const OTHERS_LOG: &str = "the log is of another file system, which was not unmounted: recover that one \
                          first, or make the log anew with wafs mkfs";
const IS_IN_FILE: &str = "the image's log is in a file: choose lffs-file";
const HAS_JOURNAL: &str = "the image has a journal: choose an ordering that writes it, or remove \
                           it with tune2fs -O ^has_journal";

/// What a recovery reports that drops the contents of a log because nothing needs them any more.
pub const DROPPED: &str = "dropped what was in the log: the file system was repaired or written by \
                           something else since";

/// The log of `lffs-file`.
pub struct LffsFile;

/// The log of `lffs-wafs`.
pub struct LffsWafs {
    is_other: bool,
}

impl LffsWafs {
    /// Behind the file system, or on the device that is named for it.
    pub const SAME: LffsWafs = LffsWafs { is_other: false };
    /// On the device that is named for it.
    pub const OTHER: LffsWafs = LffsWafs { is_other: true };
}

/// Where a log was found.
struct Place<'s> {
    host: &'s dyn JournalHost,
    note: LogNote,
    /// The device that it is on, and where it is there.
    device: &'s dyn BlockDevice,
    map: Arc<LogMap>,
    /// It is on the log's own device.
    is_on_log_device: bool,
}

impl LogKind for LffsFile {
    fn name(&self) -> &'static str {
        "lffs-file"
    }

    fn features(&self) -> &'static [&'static str] {
        &["lffs_log"]
    }

    fn needs_recovery(&self, site: LogSite<'_>) -> Result<Option<bool>> {
        let is_here = |note: &LogNote| {
            let place = note.place.as_ref();
            place.is_some_and(|p| matches!(p, NotedPlace::File(_) | NotedPlace::Lost(_)))
        };
        let note = note(site)?.filter(is_here);
        Ok(note.map(|note| note.left == Left::InUse))
    }

    fn is_writable(&self, site: LogSite<'_>) -> Result<bool> {
        Ok(self.find(site)?.is_ok())
    }

    fn recover(
        &self,
        site: LogSite<'_>,
        now: Timestamp,
        damage: LogDamage,
    ) -> Result<Option<LogReport>> {
        if let Some(place) = in_file(site)? {
            return place.recover(site, now, damage).map(Some);
        }
        let (Some(host), Some((left, why))) = (site.host, lost(site)?) else {
            return Ok(None);
        };
        let action = match (left, damage) {
            (Left::InUse, LogDamage::Refuse) => return Err(Error::Unsupported(why)),
            (_, LogDamage::Refuse) => format!("left the log alone: {why}"),
            (_, LogDamage::GiveUp) => {
                host.forget_log(site.device)?;
                format!("gave the log up: {why}")
            }
        };
        Ok(Some(LogReport {
            actions: vec![action],
            ..LogReport::default()
        }))
    }

    fn find(&self, site: LogSite<'_>) -> Result<Findable> {
        if site.host.is_none() {
            return Ok(Err(NO_HOST.to_owned()));
        }
        match (in_file(site)?, lost(site)?) {
            (Some(place), _) => place.find(site),
            (None, Some((_, why))) => Ok(Err(why)),
            (None, None) => Ok(Err(NO_FILE.to_owned())),
        }
    }

    fn blocks(&self, site: LogSite<'_>) -> Vec<Range<u64>> {
        let place = in_file(site).ok().flatten();
        place.map_or_else(Vec::new, |place| place.blocks(site))
    }

    fn describe(&self, site: LogSite<'_>) -> Result<Option<Map<String, Value>>> {
        match (in_file(site)?, lost(site)?) {
            (Some(place), _) => place.describe(self.name()).map(Some),
            (None, Some((_, why))) => Err(Error::Unsupported(why)),
            (None, None) => Ok(None),
        }
    }
}

impl LogKind for LffsWafs {
    fn name(&self) -> &'static str {
        match self.is_other {
            false => "lffs-wafs=1",
            true => "lffs-wafs=2",
        }
    }

    fn features(&self) -> &'static [&'static str] {
        match self.is_other {
            false => &["wafs_log"],
            true => &[],
        }
    }

    fn needs_recovery(&self, site: LogSite<'_>) -> Result<Option<bool>> {
        let note = note(site)?.filter(|note| noted_uuid(note).is_some() && !self.is_other);
        Ok(note.map(|note| note.left == Left::InUse))
    }

    fn is_writable(&self, site: LogSite<'_>) -> Result<bool> {
        Ok(self.find(site)?.is_ok())
    }

    fn recover(
        &self,
        site: LogSite<'_>,
        now: Timestamp,
        damage: LogDamage,
    ) -> Result<Option<LogReport>> {
        let Some(note) = note(site)?.filter(|_| !self.is_other) else {
            // The one on the same device brings home what any of them has left.
            return Ok(None);
        };
        let Some(noted) = noted_uuid(&note) else {
            return Ok(None);
        };
        let is_needed = note.left == Left::InUse;
        let why = match elsewhere(site, note) {
            Ok(Some((place, uuid))) if uuid == noted => {
                return place.recover(site, now, damage).map(Some);
            }
            Err(error @ Error::Device(_)) => return Err(error),
            Err(error) if is_needed && damage == LogDamage::Refuse => return Err(error),
            Err(error) => {
                let what = match is_needed {
                    true => "gave the log up",
                    false => "left the log alone",
                };
                return Ok(Some(LogReport {
                    actions: vec![format!("{what}: {error}")],
                    ..LogReport::default()
                }));
            }
            Ok(None) if site.log_device.is_none() => LOG_IS_ELSEWHERE,
            Ok(_) => OTHER_LOG,
        };
        // The mount is told: the layout trusts no image that was left so.
        Ok(Some(LogReport {
            not_empty: is_needed.then(|| why.to_owned()),
            ..LogReport::default()
        }))
    }

    fn find(&self, site: LogSite<'_>) -> Result<Findable> {
        if site.host.is_none() {
            return Ok(Err(NO_HOST.to_owned()));
        }
        if self.is_other && site.log_device.is_none() {
            return Ok(Err(NO_LOG_DEVICE.to_owned()));
        }
        let Some(note) = note(site)? else {
            return Ok(Err(NO_LOG.to_owned()));
        };
        if matches!(note.place, Some(NotedPlace::File(_) | NotedPlace::Lost(_))) {
            return Ok(Err(IS_IN_FILE.to_owned()));
        }
        let (noted, left) = (noted_uuid(&note), note.left);
        match elsewhere(site, note)? {
            Some((_, uuid)) if noted != Some(uuid) && left == Left::InUse => {
                Ok(Err(OTHER_LOG.to_owned()))
            }
            Some((place, uuid)) if noted != Some(uuid) => match place.open()?.is_clean() {
                true => place.find(site),
                false => Ok(Err(OTHERS_LOG.to_owned())),
            },
            Some((place, _)) => place.find(site),
            None => Ok(Err(NO_LOG.to_owned())),
        }
    }

    fn claim(&self, site: LogSite<'_>) -> Result<()> {
        let Some(note) = note(site)?.filter(|note| note.left == Left::Clean) else {
            return Ok(());
        };
        if self.find(site)?.is_err() {
            return Ok(());
        }
        let noted = noted_uuid(&note);
        let Some((place, uuid)) = elsewhere(site, note)? else {
            return Ok(());
        };
        if noted != Some(uuid) {
            let renamed = place.open()?.rename().map_err(from_log)?;
            place.host.note_log(site.device, renamed)?;
        }
        if place.is_on_log_device {
            // Programs that keep logs see it there, and are to leave it alone.
            let given = Wafs::give_to_file_system(place.device);
            given.map_err(|error| from_log(error.into()))?;
        }
        Ok(())
    }

    fn is_claimed(&self) -> bool {
        true
    }

    fn blocks(&self, site: LogSite<'_>) -> Vec<Range<u64>> {
        let note = note(site).ok().flatten();
        let place = note.and_then(|note| elsewhere(site, note).ok().flatten());
        place.map_or_else(Vec::new, |(place, _)| place.blocks(site))
    }

    /// The one on the same device tells of all.
    fn describe(&self, site: LogSite<'_>) -> Result<Option<Map<String, Value>>> {
        let is_elsewhere = |note: &LogNote| {
            matches!(note.place, None | Some(NotedPlace::Elsewhere(_))) && !self.is_other
        };
        let Some(note) = note(site)?.filter(is_elsewhere) else {
            return Ok(None);
        };
        let (noted, left) = (noted_uuid(&note), note.left);
        match elsewhere(site, note)? {
            Some((place, uuid)) if noted.is_none_or(|noted| noted == uuid) => {
                let kind = match place.is_on_log_device {
                    true => LffsWafs::OTHER,
                    false => LffsWafs::SAME,
                };
                place.describe(kind.name()).map(Some)
            }
            _ => Ok(noted.map(|uuid| shown::not_at_hand(uuid, left))),
        }
    }
}

fn note(site: LogSite<'_>) -> Result<Option<LogNote>> {
    site.host
        .map_or(Ok(None), |host| host.log_note(site.device))
}

/// What names a log that lies elsewhere.
fn noted_uuid(note: &LogNote) -> Option<[u8; 16]> {
    match note.place {
        Some(NotedPlace::Elsewhere(uuid)) => Some(uuid),
        _ => None,
    }
}

fn in_file(site: LogSite<'_>) -> Result<Option<Place<'_>>> {
    let (Some(host), Some(note)) = (site.host, note(site)?) else {
        return Ok(None);
    };
    let Some(NotedPlace::File(file)) = &note.place else {
        return Ok(None);
    };
    Ok(Some(Place {
        host,
        device: site.device,
        map: Arc::new(LogMap::new(note.block_bytes, file.iter().cloned())),
        is_on_log_device: false,
        note,
    }))
}

/// How a file system was left whose log is in a file that cannot be read as one, and why it cannot.
fn lost(site: LogSite<'_>) -> Result<Option<(Left, String)>> {
    Ok(note(site)?.and_then(|note| match note.place {
        Some(NotedPlace::Lost(why)) => Some((
            note.left,
            format!("the file of the log cannot be read: {why}"),
        )),
        _ => None,
    }))
}

/// A log on the device for it, or behind the file system; and what names it.
fn elsewhere<'s>(site: LogSite<'s>, note: LogNote) -> Result<Option<(Place<'s>, [u8; 16])>> {
    let Some(host) = site.host else {
        return Ok(None);
    };
    let block_bytes = u64::from(note.block_bytes);
    let (device, first) = match site.log_device {
        Some(device) => (device, 0),
        None => {
            let end = note.home_blocks.checked_mul(block_bytes);
            let Some(end) = end.filter(|end| *end < site.device.size_bytes()) else {
                return Ok(None);
            };
            (site.device, behind(end) / block_bytes)
        }
    };
    let blocks = first..device.size_bytes() / block_bytes;
    if blocks.end.saturating_sub(first) * block_bytes < LOG_OFFSET_BYTES + LEAST_LOG_BYTES {
        return Ok(None);
    }
    let map = Arc::new(LogMap::new(note.block_bytes, [blocks]));
    let uuid = match Unmounted::uuid_of(device, &map) {
        Ok(uuid) => uuid,
        Err(LogError::Log(WafsError::NotALog { .. })) => return Ok(None),
        Err(error) => return Err(from_log(error)),
    };
    let place = Place {
        host,
        note,
        device,
        map,
        is_on_log_device: site.log_device.is_some(),
    };
    Ok(Some((place, uuid)))
}

/// Where a log lies behind a file system that ends here.
pub fn behind(end_bytes: u64) -> u64 {
    end_bytes.next_multiple_of(BLOCK_BYTES)
}

impl Place<'_> {
    fn is_in_file(&self) -> bool {
        matches!(self.note.place, Some(NotedPlace::File(_))) && !self.is_on_log_device
    }

    fn open(&self) -> Result<Unmounted<'_>> {
        Unmounted::open(self.device, &self.map).map_err(from_log)
    }

    fn find(&self, site: LogSite<'_>) -> Result<Findable> {
        if self.host.place(site.device)?.is_some() {
            return Ok(Err(HAS_JOURNAL.to_owned()));
        }
        let block_bytes = self.note.block_bytes;
        if block_bytes > MOST_BLOCK_BYTES {
            return Ok(Err(format!(
                "the image has blocks of {block_bytes} bytes; a log of this kind needs \
                 {MOST_BLOCK_BYTES} at most"
            )));
        }
        let log = self.open()?;
        if !log.is_empty() {
            return Ok(Err("its log is not empty".to_owned()));
        }
        let (log_bytes, least_bytes) = log.lengths();
        if log_bytes < least_bytes {
            return Ok(Err(format!(
                "its log of {log_bytes} bytes is too short: with blocks of {block_bytes} bytes it \
                 needs {least_bytes}"
            )));
        }
        let before = match self.is_on_log_device {
            true => site.device.size_bytes() / u64::from(block_bytes),
            false => 0,
        };
        let setup = Setup {
            pen: log.into_pen(),
            map: Arc::new(self.map.behind(before)),
            is_inside: self.is_in_file(),
        };
        Ok(Ok(FoundLog {
            place: LogPlace::new(setup),
            is_on_log_device: self.is_on_log_device,
        }))
    }

    fn blocks(&self, site: LogSite<'_>) -> Vec<Range<u64>> {
        let block_bytes = u64::from(self.note.block_bytes);
        let before = match self.is_on_log_device {
            true => site.device.size_bytes() / block_bytes,
            false => 0,
        };
        // The superblocks are before the log.
        let mut skip = LOG_OFFSET_BYTES / block_bytes;
        let mut found = Vec::new();
        for run in self.map.runs() {
            let left_out = skip.min(run.end - run.start);
            skip -= left_out;
            found.push(run.start + before + left_out..run.end + before);
        }
        found.retain(|run| !run.is_empty());
        found
    }

    fn recover(&self, site: LogSite<'_>, now: Timestamp, damage: LogDamage) -> Result<LogReport> {
        let mut report = LogReport::default();
        let is_of_this = self.note.left == Left::InUse || !holds(Rule::LogIsOfThisMount);
        match self.try_recover(site, now, is_of_this, &mut report) {
            Err(error @ Error::Device(_)) => Err(error),
            Err(error) if is_of_this && damage == LogDamage::Refuse => Err(error),
            Err(error) => {
                let what = match is_of_this {
                    true => "gave the log up",
                    false => "left the log alone",
                };
                report.actions.push(format!("{what}: {error}"));
                Ok(report)
            }
            Ok(()) => Ok(report),
        }
    }

    fn try_recover(
        &self,
        site: LogSite<'_>,
        now: Timestamp,
        is_of_this: bool,
        report: &mut LogReport,
    ) -> Result<()> {
        let mut log = self.open()?;
        if !is_of_this {
            if !log.is_empty() {
                report.actions.push(DROPPED.to_owned());
            }
            return match log.is_clean() {
                true => Ok(()),
                false => log.empty(true).map_err(from_log),
            };
        }
        let home = Home {
            device: site.device,
            block_bytes: self.note.block_bytes,
            blocks: self.note.home_blocks,
            has_log: self.is_in_file(),
        };
        if !log.is_empty() {
            let done = log.replay(&home).map_err(from_log)?;
            report.replayed += done.groups;
            let (records, groups, blocks) = (done.records, done.groups, done.blocks);
            report.actions.push(format!(
                "brought home {records} records in {groups} groups of the log: {blocks} blocks"
            ));
            if done.undone > 0 {
                let undone = done.undone;
                let what = format!("dropped {undone} records of a group that was not whole");
                report.actions.push(what);
            }
        }
        self.orphans(&home, &mut log, now, report)?;
        // All is at home: between these two steps a crash leaves a log that is empty, or, were they
        // the other way round, one that is dropped.
        log.empty(true).map_err(from_log)?;
        self.host.log_is_home(site.device)
    }

    /// Frees what has no name any more, and finishes truncations.
    fn orphans(
        &self,
        home: &Home<'_>,
        log: &mut Unmounted<'_>,
        now: Timestamp,
        report: &mut LogReport,
    ) -> Result<()> {
        let blocks = self.map.bytes() / u64::from(self.note.block_bytes) / 4;
        let most = blocks.min(ORPHAN_BLOCKS) as usize;
        let (mut freed, mut truncated) = (0, 0);
        loop {
            let found = self.host.next_orphans(home.device, now, most)?;
            if found.blocks.is_empty() {
                break;
            }
            let blocks: Vec<(u64, Vec<u8>)> = (found.blocks.into_iter())
                .map(|(block, bytes)| (block.0, bytes))
                .collect();
            log.write_alone(&blocks).map_err(from_log)?;
            if log.replay(home).map_err(from_log)?.groups == 0 {
                // Otherwise the same orphans would be found again and again.
                let what = "what was written into it does not come back";
                return Err(Error::Unsupported(format!("{LOG}: {what}")));
            }
            (freed, truncated) = (freed + found.freed, truncated + found.truncated);
        }
        if freed > 0 {
            report
                .actions
                .push(format!("freed {freed} files without a name"));
        }
        if truncated > 0 {
            let what = format!("finished the truncation of {truncated} files");
            report.actions.push(what);
        }
        Ok(())
    }
}

fn from_log(error: LogError) -> Error {
    match error {
        LogError::Device(error) => error.into(),
        error => Error::Unsupported(format!("{}: {error}", LOG)),
    }
}
