//! The inodes with flags (`chattr`) that the front itself has to obey.
//!
//! The layout refuses what an immutable or append-only inode forbids, to every user. Three things
//! only the front can do: it sees how a file was opened, it waits for the disk where a flag asks
//! for synchronous changes, and it knows which request sets which time. Every request names an
//! inode that an earlier answer made known to the kernel, so the flags are noted with these
//! answers. Most mounts have no such inode, and pay one atomic load.

use backstitch_vfs::{Attributes, InodeNumber, flags};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flags that are noted.
const NOTED: u32 = flags::IMMUTABLE | flags::APPEND | flags::SYNC | flags::DIRSYNC;

/// The flags of the inodes that the kernel knows.
#[derive(Default)]
pub(crate) struct Flagged {
    any: AtomicBool,
    known: RwLock<HashMap<InodeNumber, u32>>,
}

impl Flagged {
    /// The kernel is about to be told of an inode.
    pub(crate) fn note(&self, attributes: &Attributes) {
        let noted = attributes.flags & NOTED;
        if noted == 0 && !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut known = self.known.write();
        match noted {
            0 => drop(known.remove(&attributes.inode)),
            noted => drop(known.insert(attributes.inode, noted)),
        }
        self.any.store(!known.is_empty(), Ordering::Release);
    }

    /// The flags of an inode that the kernel was told of, as far as they are noted.
    pub(crate) fn of(&self, inode: InodeNumber) -> u32 {
        match self.any.load(Ordering::Acquire) {
            true => self.known.read().get(&inode).copied().unwrap_or(0),
            false => 0,
        }
    }
}
