//! The state of an open file system: plain data, which the operations in the modules above change.
//!
//! Nothing here reads or writes a block.

pub(crate) mod deferred;
pub(crate) mod inode;
pub(crate) mod left_places;
pub(crate) mod patches;
pub(crate) mod recent;
pub(crate) mod reclaim;
pub(crate) mod spares;

use backstitch_blocks::free_runs::{FreeRuns, Freed};
use backstitch_blocks::references::References;
use backstitch_layout::{Awaited, Changed, Error, InodeNumber, Step, Stop, Timestamp};
use rustc_hash::FxHashMap;

use crate::format::Format;
use deferred::Deferred;
use inode::InodeState;
use left_places::LeftPlaces;
use reclaim::Reclaim;
use spares::Spares;

/// An open file system.
pub struct UnixFs<F: Format> {
    /// How it looks on the disk, where it has free space, and what only its format keeps in memory.
    pub format: F,
    pub(crate) spares: Spares,
    pub(crate) left_places: LeftPlaces,
    /// How often somebody above refers to an inode; 0 is not in here. Apart from the rest, for the
    /// kernel refers to many.
    pub(crate) references: References,
    /// What is known in memory of inodes with changes not yet on disk, or that have no name any
    /// more.
    pub(crate) inodes: FxHashMap<InodeNumber, Box<InodeState>>,
    /// What the indexes in `inodes` take.
    pub(crate) index_bytes: u64,
    pub(crate) deferred: Deferred,
    /// What inodes had that are [cleared](Format::CLEARS_FREED), until all of it is free.
    pub(crate) cleared: FxHashMap<InodeNumber, F::Inode>,
    pub(crate) read_only: Option<String>,
    /// A crash left leaks that nobody has looked for yet: the image must not be called clean.
    pub(crate) has_leaks: bool,
    /// The search for them, until it is over.
    pub(crate) reclaim: Option<Box<Reclaim>>,
    /// How many blocks and inodes it has freed when it was over.
    pub(crate) reclaimed: (u64, u64),
    /// What it changed and nobody above has been told yet.
    pub(crate) changed: Vec<Changed>,
    /// The inodes without names, or with a truncation under way, that the disk lists, the first one
    /// first.
    pub(crate) orphans: Vec<InodeNumber>,
    pub(crate) free_epoch: u64,
    /// Where contents that fill a part of a new block only are put together.
    pub(crate) partial_block: Vec<u8>,
    /// What has been free since somebody asked.
    pub(crate) noted_free: FreeRuns,
    /// What was freed since somebody asked, where that is remembered.
    pub(crate) freed: Option<Freed>,
    /// Makes generations that differ.
    pub(crate) next_generation: u32,
}

impl<F: Format> UnixFs<F> {
    /// A file system of which nothing was changed. Its format was read; `read_only` says why it
    /// must not be changed. Leaks that a crash left (`has_leaks`) are looked for.
    pub fn new(format: F, read_only: Option<String>, has_leaks: bool, now: Timestamp) -> UnixFs<F> {
        let reclaim = (has_leaks && read_only.is_none()).then(|| Box::new(Reclaim::new(&format)));
        UnixFs {
            format,
            spares: Default::default(),
            left_places: Default::default(),
            references: Default::default(),
            inodes: Default::default(),
            index_bytes: 0,
            deferred: Deferred::default(),
            cleared: Default::default(),
            read_only,
            has_leaks,
            reclaim,
            reclaimed: (0, 0),
            changed: Vec::new(),
            orphans: Vec::new(),
            free_epoch: 0,
            partial_block: Vec::new(),
            noted_free: Default::default(),
            freed: None,
            next_generation: (now.seconds as u32).wrapping_mul(0x9e37_79b9) ^ now.nanoseconds,
        }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.format.block_size() as usize
    }

    /// Units of 512 bytes of a block.
    pub fn sectors_per_block(&self) -> u64 {
        u64::from(self.format.block_size() / 512)
    }

    /// Refuses changes to what is read-only.
    pub(crate) fn check_writable(&self) -> Step<()> {
        if self.read_only.is_some() {
            Err(Error::ReadOnly.into())
        } else {
            Ok(())
        }
    }

    /// Refuses changes to what is read-only, and to a file that a log of ours is in: what changes
    /// that is the log.
    pub(crate) fn check_changeable(&self, inode: InodeNumber) -> Step<()> {
        self.check_writable()?;
        match self.format.is_log(inode) {
            true => Err(Error::NotPermitted.into()),
            false => Ok(()),
        }
    }

    /// There is no space for blocks: final, or is some on its way? What is kept ready is asked
    /// back.
    pub fn no_blocks(&mut self) -> Stop {
        match self.left_places.ask_back() {
            true => Stop::WaitFor(Awaited::Frees),
            false => self.nothing_free(),
        }
    }

    /// There is no free inode or block: final, or is one on its way?
    pub(crate) fn nothing_free(&self) -> Stop {
        if !self.deferred.is_empty() {
            Stop::WaitFor(Awaited::Frees)
        } else if self.reclaim.is_some() {
            Stop::WaitFor(Awaited::Reclaim)
        } else {
            Error::NoSpace.into()
        }
    }
}
