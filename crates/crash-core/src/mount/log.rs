//! Mounts with a journal: its recovery, and what the engine's writer does there between operations.

use backstitch_device::BlockDevice;
use backstitch_journal::recovery::Damage;
use backstitch_layout::{Error, JournalHost, Result, Timestamp};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{LogPlace, Mechanism};
use backstitch_session::{Outcome, Task, journal};

use super::{Mount, START_SECONDS, Watcher};
use crate::device::ForkDevice;
use crate::image::Fork;

/// The mechanism of a mount, once the journal, where there is one, is replayed.
pub(super) fn mechanism(
    device: &ForkDevice,
    host: &dyn JournalHost,
    ordering: Ordering,
    read_only: bool,
) -> Result<Box<dyn Mechanism>> {
    if !ordering.has_log() {
        return ordering.make(None).map_err(|_| Error::Invalid);
    }
    let (home, journal) = device.parts();
    let journal = journal.as_ref().map(|journal| journal as &dyn BlockDevice);
    replay(&home, journal, host)?;
    if read_only {
        return Ok(ordering.make_read_only());
    }
    let setup = journal::setup(&home, journal, host).map_err(from_engine)?;
    let setup = setup.map_err(Error::Unsupported)?;
    let made = ordering.make(Some(LogPlace::new(setup)));
    made.map_err(|error| Error::Unsupported(error.to_string()))
}

/// The image with everything that its journal holds at home.
///
/// # Errors
/// Where the journal cannot be replayed.
pub fn replayed(fork: &Fork) -> Result<Fork> {
    let device = ForkDevice::new(fork.clone());
    let (home, journal) = device.parts();
    let journal = journal.as_ref().map(|journal| journal as &dyn BlockDevice);
    replay(&home, journal, fork.kind.journal_host())?;
    Ok(device.fork())
}

/// Brings home what the journal of a file system holds.
pub(crate) fn replay(
    home: &dyn BlockDevice,
    journal: Option<&dyn BlockDevice>,
    host: &dyn JournalHost,
) -> Result<()> {
    let now = Timestamp {
        seconds: START_SECONDS,
        nanoseconds: 0,
    };
    let done = journal::recover(home, journal, host, now, Damage::Refuse);
    done.map(drop).map_err(from_engine)
}

fn from_engine(error: backstitch_session::Error) -> Error {
    Error::corrupt("journal", error.to_string())
}

impl Mount {
    /// Whether changes go through a log.
    pub fn has_log(&mut self) -> bool {
        self.log_state().is_some()
    }

    /// Ends the running transaction, and writes nothing of it. False where it was empty.
    pub fn commit(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        Ok(self.drive(Task::commit(), watcher)? == Outcome::Worked)
    }

    /// Moves the log's tail, or brings home what keeps it where it is.
    pub fn free_log(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.drive(Task::free_log(), watcher).map(drop)
    }

    /// Where there is a log: what its owner does from time to time, one thing or another.
    pub fn tend_log(&mut self, what: u64, watcher: &mut dyn Watcher) -> Result<()> {
        match what % 3 {
            0 => self.commit(watcher).map(drop),
            1 => self.free_log(watcher),
            _ => Ok(()),
        }
    }
}
