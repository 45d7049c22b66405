//! What every kind of map can be asked.

use backstitch_layout::Result;
use backstitch_ordering::Volume;

use crate::state::runs::Run;

/// What a stretch of a file is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// Adjacent blocks on the disk.
    Blocks(Run),
    /// A number of blocks of nothing (at least; more may follow).
    Hole(u64),
}

/// The map of a file's blocks, to be read.
pub(crate) trait BlockMap {
    /// What the file's blocks from `logical` on are mapped to, at most `max` of them: one run of
    /// either kind.
    ///
    /// # Errors
    ///
    /// [`Miss`](backstitch_layout::Error::Miss) where blocks of the map are missing; [`Corrupt`](backstitch_layout::Error::Corrupt) for a map that leads
    /// where no file's blocks are, or to itself.
    fn map(&self, v: &mut Volume<'_>, logical: u64, max: u64) -> Result<Mapped>;
}
