//! A device that keeps some of its callers waiting.

use std::sync::{Arc, Condvar, Mutex};

use backstitch_device::{BlockDevice, Result, WriteRequest};

/// What waits while the gate is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// All flushes.
    Flushes,
    /// Reads and flushes of the thread with this name.
    Thread(&'static str),
}

/// A device in front of another one, behind a gate that is open or closed.
pub(crate) struct Gate {
    below: Arc<dyn BlockDevice>,
    held: Held,
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new(below: Arc<dyn BlockDevice>, held: Held, is_closed: bool) -> Arc<Gate> {
        Arc::new(Gate {
            below,
            held,
            is_closed: Mutex::new(is_closed),
            opened: Condvar::new(),
        })
    }

    pub(crate) fn set(&self, closed: bool) {
        *self.is_closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    /// Returns once the gate is open, or at once for a request that is not held.
    fn pass(&self, is_flush: bool) {
        let is_held = match self.held {
            Held::Flushes => is_flush,
            Held::Thread(name) => std::thread::current().name() == Some(name),
        };
        if is_held {
            let closed = self.is_closed.lock().unwrap();
            drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
        }
    }
}

impl BlockDevice for Gate {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.pass(false);
        self.below.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.below.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.pass(true);
        self.below.flush()
    }

    fn reset_after_failure(&self) {
        self.below.reset_after_failure();
    }
}
