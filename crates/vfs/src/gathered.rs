//! Small writes that are kept as bytes until more follow.

use std::time::Duration;

use backstitch_layout::{InodeNumber, Timestamp};
use rustc_hash::FxHashMap;

use crate::taken::Taken;
use crate::{Error, Result};

/// Bytes that were written and are not in any block yet.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The file that was written last, and the offset at which the next write follows.
    pub(crate) follows: Option<(InodeNumber, u64)>,
    /// The gathered bytes; empty, room for the next ones.
    pub(crate) taken: Option<Taken>,
    /// When the first of the bytes came, by the engine's clock, and when the last, by the file
    /// system's.
    pub(crate) since: Duration,
    pub(crate) last: Timestamp,
    /// Files whose gathered bytes were lost, and why.
    pub(crate) lost: FxHashMap<InodeNumber, Error>,
}

impl Gathered {
    /// Whether there are gathered bytes of this file.
    pub(crate) fn is_of(&self, inode: InodeNumber) -> bool {
        self.len() > 0 && self.follows.is_some_and(|(of, _)| of == inode)
    }

    /// Notes a write that was done at once: the next one may be gathered, unless another file's
    /// bytes are gathered now.
    pub(crate) fn begin_after(&mut self, inode: InodeNumber, end_bytes: u64) {
        if self.len() == 0 {
            self.follows = Some((inode, end_bytes));
        }
    }

    /// Whether writes were gathered, or the next one may be.
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

    /// Forgets a loss: the number is now a new file's.
    pub(crate) fn forget_loss(&mut self, inode: InodeNumber) {
        if !self.lost.is_empty() {
            self.lost.remove(&inode);
        }
    }

    /// The error by which gathered bytes of a file were lost. It is reported once, but each time if
    /// the device failed for good.
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
