//! Mechanisms that gather changes into transactions: how they are driven.
//!
//! The mechanism itself never writes and never waits. The mount asks what is to be done, closes
//! transactions between operations, and has the store write what they are waiting for.

mod transactions;

use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_store::{PatchId, Store, VolumeId};
use thiserror::Error;

pub use transactions::{Closed, LogRules, Logged, Running, Transactions};

/// The log has no room for the running transaction: older ones must go home first. Nothing was
/// changed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the journal has no room for a transaction of {needed} blocks: {free} are free")]
pub struct NoRoom {
    /// The blocks that it takes.
    pub needed: u32,
    /// The blocks that are free.
    pub free: u32,
}

/// Why a transaction cannot be closed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CloseError {
    /// Older transactions must go home first.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Its commit record would have to wait for a change that waits for the record itself. Only a
    /// damaged file system, in which a block has two uses, leads there. Nothing can be written any
    /// more; the transaction is as if it had never been.
    #[error("the transaction contradicts itself: {0}")]
    Contradiction(String),
}

/// How a log is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The running transaction changes something.
    pub is_dirty: bool,
    /// The patch that stands for the running transaction: on stable storage once its commit record
    /// is.
    pub running: Option<PatchId>,
    /// The same for the transaction before it.
    pub last: PatchId,
    /// The running transaction is as large as one should become.
    pub is_large: bool,
    /// A further operation may not fit into what is free of the log.
    pub is_full: bool,
    /// More than half of the log is in use.
    pub is_filling: bool,
    /// Transactions closed so far.
    pub commits: u64,
}

/// A log of transactions.
///
/// Its life: `start`, then any number of `begin_close` (the layout does what it has put off until
/// the transaction ends) and `close` or `cancel_close`, with `home` and `move_tail` whenever room is needed; in the
/// end, with everything written, `finish` and `stop`.
pub trait Log {
    /// How it is doing.
    fn state(&mut self, store: &Store) -> LogState;

    /// How long the running transaction stays open for other callers from the moment on at which
    /// the first one waits for it, so that one write of the log serves all of them. `None`: the
    /// mechanism sets no such time.
    fn gather_time(&self) -> Option<Duration> {
        None
    }

    /// Whether the patch cannot be on stable storage before the running transaction is closed.
    fn waits_for_running(&self, store: &Store, id: PatchId) -> bool;

    /// Whether the patch stands for changes of a transaction, the running one or an earlier one.
    fn is_of(&self, store: &Store, id: PatchId) -> bool;

    /// The running transaction is to be on stable storage after these patches of other volumes.
    /// False where one of them waits for the running transaction: that has to be closed first, and
    /// then asked for again.
    fn come_after(&mut self, store: &mut Store, patches: &[PatchId]) -> bool;

    /// From here on changes go through the log. Returns what must be on stable storage first.
    fn start(&mut self, store: &mut Store, volume: VolumeId) -> PatchId;

    /// The running transaction is about to be closed: what was put off until then is due.
    fn begin_close(&mut self);

    /// It was not [closed](Self::close) after all, and goes on running: what is put off from here on
    /// waits for its end again.
    fn cancel_close(&mut self);

    /// Closes the running transaction: makes its copies and its commit record, at `time` (seconds
    /// since 1970 and nanoseconds). What is returned is on stable storage once the transaction is.
    /// Must be called between scopes only.
    ///
    /// # Errors
    /// [`CloseError::NoRoom`]: nothing was changed. [`CloseError::Contradiction`]: the log must not be used again.
    fn close(
        &mut self,
        store: &mut Store,
        volume: VolumeId,
        now: Duration,
        time: (u64, u32),
    ) -> Result<PatchId, CloseError>;

    /// Appends what must be on stable storage before the log's tail can move past its oldest
    /// transactions, as many of them as free about half of what is in use. Empty where it can move
    /// already, or where there is nothing to move past.
    fn home(&mut self, store: &Store, into: &mut Vec<PatchId>);

    /// Moves the tail past everything that is at home. What is returned makes the room free once it
    /// is on stable storage; `None` where there is nothing to move past.
    fn move_tail(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> Option<PatchId>;

    /// Everything is at home: marks the log as empty. What is returned must be on stable storage
    /// before [`stop`](Self::stop).
    fn finish(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> PatchId;

    /// The number and the bytes of the log's first block as they would be if the log were empty.
    /// For a copy of the volume that is made from memory between two transactions: in the copy all
    /// of them are at home. `None` where the log is on another device.
    fn emptied(&self) -> Option<(u64, Buffer)>;

    /// From here on changes go past the log.
    fn stop(&mut self);
}
