//! Stacks: file systems in files of file systems, served as one tree by one engine over one store
//! (Frost et al., SOSP 2007, §6.4 and figure 8).
//!
//! A [`Stack`] is a kind of layout. It opens the file system of the device, finds in it the files
//! that hold others, opens those, and so on. The result is one
//! [`FileSystem`](backstitch_layout::FileSystem), in which the root of an inner file system shows
//! in place of a directory of another one, as with a mount. So engines, fronts and explorers serve
//! a stack without knowing of it.
//!
//! # Rules
//!
//! * **No dependency is copied.** A file system inside is on a volume whose blocks *are* blocks of
//!   the device (`backstitch_store::Store::add_volume_on`): what it states is stated in the one
//!   graph, between the very blocks that the host writes.
//! * **What the host states holds too.** A block that has no place in the host's file gets one when
//!   it is first changed, by an ordinary write of zeros to the host; whatever is written into it is
//!   on stable storage only once the host's pointers to it are
//!   (`backstitch_store::Store::shown_by`). That happens before the operation inside changes
//!   anything: where the host has no space, the operation fails with `ENOSPC`, and nothing was
//!   changed.
//! * A file that holds a volume keeps its size, its blocks and its name while it is in use:
//!   operations that would change them fail with `EBUSY`.
//! * A host keeps order itself (`soft`, `sync`). A host with a journal would have to put every
//!   block of the inner file system into it.
//! * Blocks have one size in the whole stack.
//! * Patchgroups may span the file systems. Changes under a journal come after those elsewhere
//!   through the commit record (`backstitch_ordering::Log::come_after`). Changes elsewhere come
//!   after those under a journal through the transaction's hold.
//! * One file system of a stack may have a journal, inside it or in another file of the stack. Its
//!   files are given all their blocks when the stack is opened: a replay after a crash must find a
//!   place for every block.

mod device;
mod file_system;
mod members;
mod open;

use std::time::Duration;

use backstitch_device::BlockDevice;
use backstitch_layout::{JournalHost, LayoutKind, OpenRequest, Opened, Result, Step, Timestamp};
use backstitch_mechanisms::{Ordering, make_without_log};
use backstitch_ordering::{Operation, Volume};
use backstitch_store::{Limits, Optimisations, Store};

/// A path inside a file system that comes earlier in the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerPath {
    /// Which file system, by its place in the stack.
    pub volume: usize,
    /// The path from its root.
    pub path: Vec<u8>,
}

/// A file system of a stack.
#[derive(Clone)]
pub struct StackVolume {
    /// What it is called in messages.
    pub name: String,
    /// Its layout.
    pub layout: &'static dyn LayoutKind,
    /// The file that holds it; `None` for the first, which is on the device.
    pub file: Option<InnerPath>,
    /// The file that holds its journal, where that is not inside it.
    pub journal: Option<InnerPath>,
    /// Its mechanism. `None`: through its journal if it has one that can be written, else soft
    /// updates. The first file system's is the engine's.
    pub ordering: Option<Ordering>,
    /// The directory in whose place it shows.
    pub at: Option<InnerPath>,
}

/// File systems in files of file systems, as a kind of layout; see the module's documentation.
#[derive(Clone)]
pub struct Stack {
    /// The file systems, each after those that hold its files.
    pub volumes: Vec<StackVolume>,
    /// The file system whose root is the stack's root.
    pub front: usize,
}

/// Facts about a file system of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its layout.
    pub layout: &'static str,
    /// The mechanism that a mount would have.
    pub ordering: Ordering,
    /// Its size in blocks, without its journal's file.
    pub blocks: u64,
    /// The size of a block.
    pub block_bytes: u32,
    /// Blocks that have no place in the files that hold it, its journal's included.
    pub holes: u64,
    /// Whether a crash left it.
    pub recovery_needed: bool,
}

impl Stack {
    /// Looks at the file systems of a stack, changing nothing.
    ///
    /// # Errors
    /// Where one of them cannot be opened.
    pub fn inspect(&self, device: &dyn BlockDevice, now: Timestamp) -> Result<Vec<VolumeInfo>> {
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(self.block_bytes(device)?);
        let mut mechanism = make_without_log();
        let mut v = Volume::new(&mut store, &mut *mechanism, volume, Duration::ZERO);
        let request = OpenRequest {
            read_only: true,
            now,
            ..OpenRequest::default()
        };
        self.check()?;
        open::Opening::new(self, &mut v, device, &request).inspect()
    }
}

impl LayoutKind for Stack {
    fn block_bytes(&self, device: &dyn BlockDevice) -> Result<u32> {
        self.first()?.layout.block_bytes(device)
    }

    fn journal_host(&self) -> Option<&dyn JournalHost> {
        self.first().ok()?.layout.journal_host()
    }

    fn open(
        &self,
        volume: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened> {
        self.check()?;
        volume.begin(Operation::Administration);
        let opened = open::Opening::new(self, volume, device, request).run();
        let mut nobody_waits = Vec::new();
        volume.end(&mut nobody_waits);
        Ok(opened?)
    }
}
