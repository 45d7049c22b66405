//! Mounts with a log: its recovery, and the work on it that the engine's writer does between
//! operations.

use backstitch_device::BlockDevice;
use backstitch_layout::{Error, JournalHost, LogDamage, LogSite, Result, Structure, Timestamp};
use backstitch_mechanisms::{Ordering, logs};
use backstitch_ordering::Mechanism;
use backstitch_session::{Outcome, Task};

use super::{Mount, START_SECONDS, Watcher};
use crate::device::ForkDevice;
use crate::image::Fork;

/// The mechanism of a mount. A log is replayed first.
pub(super) fn mechanism(
    device: &ForkDevice,
    host: Option<&dyn JournalHost>,
    ordering: Ordering,
    read_only: bool,
) -> Result<Box<dyn Mechanism>> {
    let Some(kind) = ordering.log_kind() else {
        return ordering.make(None).map_err(|_| Error::Invalid);
    };
    let (home, other) = device.parts();
    let site = site(&home, other.as_ref().map(|other| other as _), host);
    replay(site)?;
    if read_only {
        return Ok(ordering.make_read_only());
    }
    kind.claim(site)?;
    let found = kind.find(site)?.map_err(Error::Unsupported)?;
    let made = ordering.make(Some(found.place));
    made.map_err(|error| Error::Unsupported(error.to_string()))
}

/// The image after the replay of its journal.
///
/// # Errors
/// Where the journal cannot be replayed.
pub fn replayed(fork: &Fork) -> Result<Fork> {
    let device = ForkDevice::new(fork.clone());
    let (home, other) = device.parts();
    let other = other.as_ref().map(|other| other as _);
    replay(site(&home, other, fork.kind.journal_host()))?;
    Ok(device.fork())
}

/// Where the log of a file system may be.
pub(crate) fn site<'a>(
    home: &'a dyn BlockDevice,
    other: Option<&'a dyn BlockDevice>,
    host: Option<&'a dyn JournalHost>,
) -> LogSite<'a> {
    LogSite {
        device: home,
        log_device: other,
        host,
    }
}

/// Brings home what the logs of a file system hold.
pub(crate) fn replay(site: LogSite<'_>) -> Result<()> {
    let now = Timestamp {
        seconds: START_SECONDS,
        nanoseconds: 0,
    };
    for kind in logs() {
        let done = kind.recover(site, now, LogDamage::Refuse);
        done.map_err(|error| Error::corrupt(Structure::JOURNAL, error))?;
    }
    Ok(())
}

impl Mount {
    /// Whether changes go through a log.
    pub fn has_log(&mut self) -> bool {
        self.log_state().is_some()
    }

    /// Ends the running transaction, without writing any of it. False if it was empty.
    pub fn commit(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        Ok(self.drive(Task::commit(), watcher)? == Outcome::Worked)
    }

    /// Moves the log's tail, or writes home the blocks that keep it from moving.
    pub fn free_log(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.drive(Task::free_log(), watcher).map(drop)
    }

    /// Does one piece of the log's regular work, chosen by `what`; nothing where there is no log.
    pub fn tend_log(&mut self, what: u64, watcher: &mut dyn Watcher) -> Result<()> {
        match what % 3 {
            0 => self.commit(watcher).map(drop),
            1 => self.free_log(watcher),
            _ => Ok(()),
        }
    }
}
