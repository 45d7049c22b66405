//! Places that indirect blocks have left, and whether there should be any.

use backstitch_layout::{BlockNumber, InodeNumber};
use backstitch_ordering::PatchId;

use super::spares::Expectation;

/// A place that an indirect block has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// The file whose block it was.
    pub(crate) inode: InodeNumber,
    pub(crate) block: BlockNumber,
    /// Once this is on the disk nothing there leads to it.
    pub(crate) left: PatchId,
}

/// Places that indirect blocks have left, and whether there should be any.
#[derive(Debug, Default)]
pub(crate) struct LeftPlaces {
    /// Whether the next append will probably be flushed.
    pub(crate) expected: Expectation,
    pub(crate) list: Vec<Left>,
    /// All are to be given back.
    pub(crate) is_asked_back: bool,
}

impl LeftPlaces {
    /// How many there are: as good as free.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Has all given back with the next deferred work. False where there are none.
    pub(crate) fn ask_back(&mut self) -> bool {
        self.is_asked_back = !self.list.is_empty();
        self.is_asked_back
    }
}
