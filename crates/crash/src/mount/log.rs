//! Mounts with a journal: what the engine's writer does there is done here between operations, in this thread.

use backstitch_device::BlockDevice;
use backstitch_formats::journal_host;
use backstitch_journal::JournalMechanism;
use backstitch_journal::recovery::Damage;
use backstitch_layout::{Error, FileSystem, Result, Timestamp};
use backstitch_ordering::{Log, LogState, Mechanism, MechanismKind, Operation, Soft, VolumeId};
use backstitch_session::journal;

use super::{Mount, START_SECONDS, Watcher};
use crate::image::{Fork, ForkDevice};

/// So often a transaction that does not fit waits for others to go home before that counts as a fault.
const ROUNDS: usize = 64;

/// The mechanism of a mount, once the journal, where there is one, is replayed.
pub(super) fn mechanism(
    device: &ForkDevice,
    ordering: MechanismKind,
    read_only: bool,
) -> Result<Box<dyn Mechanism>> {
    let MechanismKind::Journal(mode) = ordering else {
        return ordering.make().ok_or(Error::Invalid);
    };
    let (home, journal) = device.parts();
    let journal = journal.as_ref().map(|journal| journal as &dyn BlockDevice);
    replay(&home, journal)?;
    if read_only {
        return Ok(Box::new(Soft));
    }
    let setup = journal::setup(&home, journal, journal_host()).map_err(from_engine)?;
    let setup = setup.map_err(Error::Unsupported)?;
    Ok(Box::new(JournalMechanism::new(setup, mode)))
}

/// The image with everything that its journal holds at home.
pub(crate) fn replayed(fork: &Fork) -> Result<Fork> {
    let device = ForkDevice::new(fork.clone());
    let (home, journal) = device.parts();
    let journal = journal.as_ref().map(|journal| journal as &dyn BlockDevice);
    replay(&home, journal)?;
    Ok(device.fork())
}

/// Brings home what the journal of a file system holds.
pub(crate) fn replay(home: &dyn BlockDevice, journal: Option<&dyn BlockDevice>) -> Result<()> {
    let now = Timestamp {
        seconds: START_SECONDS,
        nanoseconds: 0,
    };
    let done = journal::recover(home, journal, journal_host(), now, Damage::Refuse);
    done.map(drop).map_err(from_engine)
}

fn from_engine(error: backstitch_session::Error) -> Error {
    Error::corrupt("journal", error.to_string())
}

/// The log that changes go through, and its volume: the mechanism's, or that of a file system inside this one.
pub(super) fn log_of<'m>(
    mechanism: &'m mut dyn Mechanism,
    fs: &'m mut dyn FileSystem,
    volume: VolumeId,
) -> Option<(&'m mut dyn Log, VolumeId)> {
    match mechanism.log() {
        Some(log) => Some((log, volume)),
        None => fs.log(),
    }
}

impl Mount {
    /// Whether changes go through a log.
    pub(crate) fn has_log(&mut self) -> bool {
        self.log().is_some()
    }

    fn log(&mut self) -> Option<(&mut dyn Log, VolumeId)> {
        log_of(&mut *self.mechanism, &mut *self.fs, self.volume)
    }

    fn log_state(&mut self) -> Option<LogState> {
        let (log, _) = log_of(&mut *self.mechanism, &mut *self.fs, self.volume)?;
        Some(log.state(&self.store))
    }

    /// Whether older transactions must go home before another one fits.
    pub(super) fn is_log_full(&mut self) -> bool {
        self.log_state().is_some_and(|s| s.is_full)
    }

    /// From here on changes go through the log.
    pub(super) fn start_log(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let is_read_only = self.fs.read_only_reason().is_some();
        let Some(log) = self.mechanism.log().filter(|_| !is_read_only) else {
            return Ok(());
        };
        let started = log.start(&mut self.store, self.volume);
        watcher.at_rest(self);
        self.sync(&[started], watcher)
    }

    /// Everything is on stable storage: ends the log.
    pub(super) fn end_log(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let now = self.now();
        let log = log_of(&mut *self.mechanism, &mut *self.fs, self.volume);
        let Some((log, volume)) = log else {
            return Ok(());
        };
        let ended = log.finish(&mut self.store, volume, now);
        watcher.at_rest(self);
        self.sync(&[ended], watcher)?;
        if let Some((log, _)) = self.log() {
            log.stop();
        }
        Ok(())
    }

    /// Sees that a further operation fits.
    pub(super) fn make_room(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        while let Some(state) = self.log_state().filter(|s| s.is_full || s.is_large) {
            if state.is_dirty {
                self.commit(watcher)?;
            } else if state.is_full {
                self.free_log(watcher)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Ends the running transaction, and writes nothing of it. False where it was empty.
    pub(crate) fn commit(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        if !self.log_state().is_some_and(|s| s.is_dirty) {
            return Ok(false);
        }
        for _ in 0..ROUNDS {
            if let Some((log, _)) = self.log() {
                log.begin_close();
            }
            let background = Operation::Background;
            while self
                .until_there(|m| m.step(background, &mut |fs, v, now| fs.background(v, now)))?
            {
            }
            let administration = Operation::Administration;
            self.until_there(|m| {
                m.step(administration, &mut |fs, v, now| fs.prepare_commit(v, now))
            })?;
            let (now, seconds) = (self.now(), START_SECONDS as u64 + self.clock / 50);
            let log = log_of(&mut *self.mechanism, &mut *self.fs, self.volume);
            let Some((log, volume)) = log else {
                return Ok(false);
            };
            if log
                .close(&mut self.store, volume, now, (seconds, 7))
                .is_ok()
            {
                watcher.at_rest(self);
                return Ok(true);
            }
            self.free_log(watcher)?;
        }
        Err(Error::Unsupported("the journal has no room".to_owned()))
    }

    /// A step that nobody else comes between, again after each miss.
    fn until_there<T>(&mut self, mut step: impl FnMut(&mut Mount) -> Result<T>) -> Result<T> {
        loop {
            match step(self) {
                Err(Error::Miss) => {
                    backstitch_store::drive::read_wanted(&mut self.store, &self.devices)?;
                }
                other => return other,
            }
        }
    }

    /// Moves the log's tail, or brings home what keeps it where it is.
    pub(crate) fn free_log(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let now = self.now();
        let log = log_of(&mut *self.mechanism, &mut *self.fs, self.volume);
        let Some((log, volume)) = log else {
            return Ok(());
        };
        let mut targets = Vec::new();
        match log.move_tail(&mut self.store, volume, now) {
            Some(tail) => targets.push(tail),
            None => log.home(&self.store, &mut targets),
        }
        watcher.at_rest(self);
        self.write_out(backstitch_store::Goal::Patches(&targets), watcher)
            .map(drop)
    }

    /// Where there is a log: what its owner does from time to time, one thing or another.
    pub(crate) fn tend_log(&mut self, what: u64, watcher: &mut dyn Watcher) -> Result<()> {
        match what % 3 {
            0 => self.commit(watcher).map(drop),
            1 => self.free_log(watcher),
            _ => Ok(()),
        }
    }
}
