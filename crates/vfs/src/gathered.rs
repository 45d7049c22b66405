//! What is kept as bytes until what follows it has come.

use std::time::Duration;

use backstitch_layout::{InodeNumber, Timestamp};
use rustc_hash::FxHashMap;

use crate::taken::Taken;
use crate::{Error, Result};

/// What was written and is not yet in any block.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The file, and where in it a write has to begin to follow the one before.
    pub(crate) follows: Option<(InodeNumber, u64)>,
    /// What has been written last, or a place for what will be.
    pub(crate) taken: Option<Taken>,
    /// When the first of it came, by the engine's clock, and when the last, by the file system's.
    pub(crate) since: Duration,
    pub(crate) last: Timestamp,
    /// Files that lost what was gathered of them, and why.
    pub(crate) lost: FxHashMap<InodeNumber, Error>,
}

impl Gathered {
    /// Whether some of it belongs to this file.
    pub(crate) fn is_of(&self, inode: InodeNumber) -> bool {
        self.len() > 0 && self.follows.is_some_and(|(of, _)| of == inode)
    }

    /// A write was done at once: what follows it may be gathered, unless somebody else's is.
    pub(crate) fn begin_after(&mut self, inode: InodeNumber, end_bytes: u64) {
        if self.len() == 0 {
            self.follows = Some((inode, end_bytes));
        }
    }

    /// Whether the next write may be gathered, or some were.
    pub(crate) fn is_under_way(&self) -> bool {
        self.follows.is_some()
    }

    /// The file that the gathered bytes belong to, and where in it they begin.
    pub(crate) fn place(&self) -> Option<(InodeNumber, u64)> {
        let (inode, end_bytes) = self.follows?;
        Some((inode, end_bytes.checked_sub(self.len() as u64)?))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.taken.as_ref().map_or(&[], Taken::bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// The number is a new file's.
    pub(crate) fn forget_loss(&mut self, inode: InodeNumber) {
        if !self.lost.is_empty() {
            self.lost.remove(&inode);
        }
    }

    /// What became of what was gathered of a file: told once, but each time where the device failed
    /// for good.
    pub(crate) fn take_loss(&mut self, inode: InodeNumber) -> Result<()> {
        if self.lost.is_empty() {
            return Ok(());
        }
        match self.lost.get(&inode) {
            Some(error @ Error::Latched(_)) => Err(error.clone()),
            _ => self.lost.remove(&inode).map_or(Ok(()), Err),
        }
    }
}
