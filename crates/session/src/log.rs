//! Logs before a mount: what they hold is brought home before the file system is opened, and the
//! mechanism is made with the one that it is to write.

use std::sync::Arc;

use backstitch_device::{BlockDevice, JoinedDevice, OverlayDevice};
use backstitch_layout::{Error, Findable, LayoutKind, LogDamage, LogSite, Result};
use backstitch_mechanisms::{Ordering, logs, usual_for};
use backstitch_ordering::Mechanism;

use crate::Access;

/// What [`prepare`] made of the devices.
pub struct Prepared {
    /// The device with everything at home; the log's behind it, where that is another one and is to
    /// be written.
    pub device: Arc<dyn BlockDevice>,
    /// What was done, in words.
    pub actions: Vec<String>,
    /// The log that the mechanism is to write, or why there is none.
    pub log: Findable,
}

/// What a mount does first: gives the device with everything at home, in memory only where nothing
/// may be written.
///
/// # Errors
/// Where the file system must not be mounted, or its log cannot be found or recovered.
pub fn prepare(
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    layout: &dyn LayoutKind,
    access: &Access,
) -> Result<Prepared> {
    let host = layout.journal_host();
    if let Some(host) = host {
        host.check_mountable(&*device)?;
    }
    let is_kept = host.is_some_and(|host| host.check_replayable(&*device).is_err());
    let is_read_only = access.read_only || device.is_read_only() || is_kept;
    let (device, log_device) = match is_read_only && has_log(&*device, layout)? {
        false => (device, log_device),
        // Orphans need not be dealt with where nothing is written, but it does no harm either.
        true => {
            let above = |below| Arc::new(OverlayDevice::new(below)) as Arc<dyn BlockDevice>;
            (above(device), log_device.map(above))
        }
    };
    let site = LogSite {
        device: &*device,
        log_device: log_device.as_deref(),
        host,
    };
    let mut actions = Vec::new();
    for kind in logs() {
        let Some(report) = kind.recover(site, access.now, LogDamage::Refuse)? else {
            continue;
        };
        if let Some(why) = report
            .not_empty
            .filter(|_| access.without_journal && !is_read_only)
        {
            return Err(Error::Unsupported(why));
        }
        actions.extend(report.actions);
    }
    if is_read_only && !actions.is_empty() {
        actions.push("in memory only: the image stays as it is".to_string());
    }
    // A mechanism without a log does not write the image's. The mount also says if no other could.
    let log_kind = (access.ordering.log_kind()).or_else(|| usual_for(true).log_kind());
    let is_written = access.ordering.has_log() && !is_read_only;
    if let Some(kind) = log_kind.filter(|_| is_written) {
        kind.claim(site)?;
    }
    let log = match log_kind {
        Some(kind) => kind.find(site)?,
        None => Err("this version writes no log".to_owned()),
    };
    let is_joined = is_written && log.as_ref().is_ok_and(|log| log.is_on_log_device);
    let device = match log_device {
        Some(log_device) if is_joined => {
            let block_bytes = layout.block_bytes(&*device)?;
            Arc::new(joined(device, log_device, block_bytes))
        }
        _ => device,
    };
    Ok(Prepared {
        device,
        actions,
        log,
    })
}

/// Whether the file system has a log of any kind.
fn has_log(device: &dyn BlockDevice, layout: &dyn LayoutKind) -> Result<bool> {
    let site = LogSite {
        device,
        log_device: None,
        host: layout.journal_host(),
    };
    for kind in logs() {
        if kind.needs_recovery(site)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A file system's device and that of its log as one: the log comes behind the last whole block of
/// the file system's.
pub fn joined(
    device: Arc<dyn BlockDevice>,
    log_device: Arc<dyn BlockDevice>,
    block_bytes: u32,
) -> JoinedDevice {
    JoinedDevice::new(vec![device, log_device], block_bytes)
}

/// The mechanism of a mount.
///
/// # Errors
/// Where changes are to go through a log that cannot be written.
pub fn mechanism(access: &Access, is_read_only: bool, log: Findable) -> Result<Box<dyn Mechanism>> {
    let ordering = access.ordering;
    if is_read_only {
        return Ok(ordering.make_read_only());
    }
    let place = match ordering.has_log() {
        false => None,
        true if access.without_journal => {
            let why = "-o nojournal excludes an ordering that writes the journal";
            return Err(Error::Unsupported(why.to_string()));
        }
        true => Some(log.map_err(Error::Unsupported)?.place),
    };
    let made = ordering.make(place);
    made.map_err(|error| Error::Unsupported(error.to_string()))
}

/// The ordering of a mount that states none: through the log where the image has one that can be
/// written.
///
/// # Errors
/// Where the image cannot be read.
pub fn default_ordering(
    device: &dyn BlockDevice,
    log_device: Option<&dyn BlockDevice>,
    layout: &dyn LayoutKind,
) -> Result<Ordering> {
    let site = LogSite {
        device,
        log_device,
        host: layout.journal_host(),
    };
    let with_log = usual_for(true);
    let is_writable = match with_log.log_kind() {
        Some(kind) => kind.is_writable(site)?,
        None => false,
    };
    Ok(usual_for(is_writable))
}
