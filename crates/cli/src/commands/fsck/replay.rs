//! Journals and logs before a check: what they hold is brought home, or it is said why not.

use super::super::journal::journal_host;
use backstitch_device::{BlockDevice, OverlayDevice};
use backstitch_files::error::Error;
use backstitch_files::image::now;
use backstitch_formats::of;
use backstitch_layout::tools::{CheckError, ReplaySuperblock};
use backstitch_layout::{LogDamage, LogReport, LogSite, RecoveryMark};
use backstitch_mechanisms::logs;
use backstitch_vfs::LayoutError;
use std::path::Path;
use std::sync::Arc;

/// Why a log was not brought home.
pub(super) fn unreplayed(
    image: &Path,
    device: &dyn BlockDevice,
    error: backstitch_vfs::Error,
) -> Error {
    let is_elsewhere = matches!(
        error,
        backstitch_vfs::Error::Layout(LayoutError::LogElsewhere(_))
    );
    let shown = Error::at_path("fsck", image, error);
    if !is_elsewhere {
        return shown;
    }
    let note = journal_host(device).and_then(|host| host.log_note(device).ok().flatten());
    let names_it = "-j LOG names it; nothing was changed";
    match note.is_some_and(|note| note.place.is_some()) {
        true => shown.hint(format!(
            "{names_it}. If that device is lost: fsck -y --give-up-log repairs what is here"
        )),
        false => shown.hint(names_it),
    }
}

/// The logs of a file system that is to be checked.
#[derive(Clone, Copy)]
pub(super) struct Logs<'d> {
    /// The device of one, where one was named.
    pub(super) device: Option<&'d dyn BlockDevice>,
    /// What is done where one cannot be believed.
    pub(super) damage: LogDamage,
    /// One that is not at hand is given up.
    pub(super) gives_up_missing: bool,
}

/// Replays the journal, and says what was done. A superblock that makes no sense is left to the
/// check; with [`LogDamage::GiveUp`] its backups may lead to the journal.
pub(super) fn replay(
    device: &Arc<dyn BlockDevice>,
    logs: Logs<'_>,
) -> backstitch_vfs::Result<Vec<String>> {
    let damage = logs.damage;
    let below = &**device;
    // What cannot be checked is left alone, its journal too.
    let (layout, host) = (of(below).layout(), journal_host(below));
    let cannot_mount = host.is_some_and(|host| host.check_replayable(below).is_err());
    let is_unusable = cannot_mount || layout.block_bytes(below).is_err();
    if is_unusable && damage == LogDamage::Refuse {
        return Ok(Vec::new());
    }
    let recovered = match is_unusable {
        true => Ok(None),
        false => recover(below, logs),
    };
    let error = match recovered.map_err(backstitch_vfs::Error::from) {
        Ok(Some(report)) => return Ok(report.actions),
        Ok(None) if !is_unusable && !may_look_further(below, damage)? => return Ok(Vec::new()),
        Ok(None) => None,
        Err(error @ backstitch_vfs::Error::Layout(LayoutError::Corrupt(_)))
            if damage == LogDamage::GiveUp =>
        {
            Some(error)
        }
        Err(error) => return Err(error),
    };
    if let Some(actions) = replay_under_another(device, is_unusable)? {
        return Ok(actions);
    }
    let Some(error) = error else {
        let given_up = readable(of(below).give_up_replay(below))?.unwrap_or(false);
        let why = "gave up the journal: no superblock leads to transactions";
        return Ok(given_up.then(|| why.to_owned()).into_iter().collect());
    };
    let mark = RecoveryMark {
        is_damaged: true,
        ..RecoveryMark::default()
    };
    set_recovery(below, mark)?;
    Ok(vec![format!("gave up the journal: {error}")])
}

/// Recovers the log of a file system, of whatever kind it is; `None` where it has none.
fn recover(
    device: &dyn BlockDevice,
    wanted: Logs<'_>,
) -> backstitch_layout::Result<Option<LogReport>> {
    let host = journal_host(device);
    let site = LogSite {
        device,
        log_device: wanted.device,
        host,
    };
    for kind in logs() {
        let Some(mut report) = kind.recover(site, now(), wanted.damage)? else {
            continue;
        };
        // A log that is not at hand, with what the file system lacks.
        let is_missed = report.not_empty.is_some() && kind.needs_recovery(site)? == Some(true);
        if let Some(why) = report.not_empty.take_if(|_| is_missed) {
            if !wanted.gives_up_missing {
                return Err(LayoutError::LogElsewhere(why));
            }
            report.actions.push(format!("gave the log up: {why}"));
        }
        return Ok(Some(report));
    }
    Ok(None)
}

pub(super) fn set_recovery(
    device: &dyn BlockDevice,
    mark: RecoveryMark,
) -> backstitch_layout::Result<()> {
    journal_host(device).map_or(Ok(()), |host| host.set_recovery(device, mark))
}

/// `None` of what cannot be understood.
fn readable<T>(found: std::result::Result<T, CheckError>) -> backstitch_vfs::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(CheckError::Format(_)) => Ok(None),
        Err(CheckError::Device(error)) => Err(error.into()),
    }
}

/// Whether a superblock that names no journal is to be believed less than its mark that one must be
/// replayed.
fn may_look_further(device: &dyn BlockDevice, damage: LogDamage) -> backstitch_vfs::Result<bool> {
    let lacks = readable(of(device).lacks_its_journal(device))?;
    Ok(lacks.unwrap_or(false) && damage == LogDamage::GiveUp)
}

/// Replays the journal that another superblock leads to, if there is anything in it: the one in
/// place with fields derived from its other fields, or a backup, which then stays in place. `None`
/// where none helps.
fn replay_under_another(
    device: &Arc<dyn BlockDevice>,
    is_unusable: bool,
) -> backstitch_vfs::Result<Option<Vec<String>>> {
    let superblocks = of(&**device).superblocks_for_replay(&**device, is_unusable);
    let superblocks = readable(superblocks)?.unwrap_or_default();
    let inside = Logs {
        device: None,
        damage: LogDamage::GiveUp,
        gives_up_missing: false,
    };
    let replays = |on: &dyn BlockDevice, superblock: &ReplaySuperblock| {
        superblock.put(on)?;
        let report = recover(on, inside)?;
        superblock.restore_former(on)?;
        Ok::<_, backstitch_vfs::Error>(report)
    };
    for superblock in superblocks {
        // First in memory: one that leads nowhere changes nothing.
        let trial = OverlayDevice::new(device.clone());
        let replayed = replays(&trial, &superblock).ok().flatten();
        if replayed.is_none_or(|report| report.replayed == 0) {
            continue;
        }
        let report = replays(&**device, &superblock)?.unwrap_or_default();
        let mut actions = vec![superblock.source.to_owned()];
        actions.extend(report.actions);
        return Ok(Some(actions));
    }
    Ok(None)
}
