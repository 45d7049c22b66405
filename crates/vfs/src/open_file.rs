//! Open files, as far as `fsync` has to know them: what was lost is reported once to each.
//!
//! After a write or a flush failed for good, the changes of a file that are not on stable storage
//! never will be. As with the kernel's own file systems (its `errseq_t`), each open file is told
//! once, and afterwards no more; one that is opened after the loss is told too, unless somebody was
//! told of it before. A file is changed no more once that has happened, so there is one loss for
//! each inode at most.

use std::sync::atomic::{AtomicBool, Ordering};

use backstitch_layout::InodeNumber;

use crate::engine::Engine;
use crate::{Error, Result};

/// An open file; see [`Engine::open`].
#[derive(Debug)]
pub struct OpenFile {
    inode: InodeNumber,
    /// Its user knows what was lost.
    was_told: AtomicBool,
}

impl OpenFile {
    /// The file's inode.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }
}

impl Engine {
    /// Opens a file, for those who want a loss reported once ([`fsync_open`](Self::fsync_open)).
    /// Takes no reference on the inode.
    pub fn open(&self, inode: InodeNumber) -> OpenFile {
        let core = self.core.lock();
        OpenFile {
            inode,
            was_told: AtomicBool::new(core.told_of_loss.contains(&inode)),
        }
    }

    /// As [`fsync`](Self::fsync), but that the device failed is an error once for each open file.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fsync_open(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let synced = self.fsync(file.inode, data_only);
        self.report_once(file, synced)
    }

    /// What to tell the user of an open file, given what came of putting it onto stable storage.
    ///
    /// # Errors
    /// What is given, unless it is a loss that the user was told of already.
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
