//! Open files, so that `fsync` can report a loss once to each.
//!
//! After a write or a flush failed for good, the changes of a file that are not on stable storage
//! never will be. As with the kernel's own file systems (its `errseq_t`), this is reported once to
//! each open file. One that is opened after the loss gets the report too, unless another one had it
//! before. After such a failure no file changes any more, so there is one loss for each inode at
//! most.

use std::sync::atomic::{AtomicBool, Ordering};

use backstitch_layout::InodeNumber;

use crate::engine::Engine;
use crate::{Error, Result};

/// An open file; see [`Engine::open`].
#[derive(Debug)]
pub struct OpenFile {
    inode: InodeNumber,
    /// Whether the loss was reported to it.
    was_told: AtomicBool,
}

impl OpenFile {
    /// The file's inode.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }
}

impl Engine {
    /// Opens a file, for callers that want a loss reported once ([`report_once`](Self::report_once)).
    /// Takes no reference on the inode.
    pub fn open(&self, inode: InodeNumber) -> OpenFile {
        let core = self.core.lock();
        OpenFile {
            inode,
            was_told: AtomicBool::new(core.told_of_loss.contains(&inode)),
        }
    }

    /// Turns the result of an fsync into the one to report for this open file.
    ///
    /// # Errors
    /// The given error, unless it is a loss that was reported for this open file before.
    pub fn report_once(&self, file: &OpenFile, synced: Result<()>) -> Result<()> {
        if let Err(Error::Latched(_)) = &synced {
            if file.was_told.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            self.core.lock().told_of_loss.insert(file.inode);
        }
        synced
    }
}
