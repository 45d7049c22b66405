//! File operations as workloads ask for them: on the engine in this process, or by system calls.

mod directory;
mod engine;

pub use directory::HostFiles;
pub use engine::EngineFiles;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backstitch_layout::{Attributes, FileType};
use backstitch_vfs::GroupId;

use crate::Result;
use crate::client::Clients;

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

/// What a look-up shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file or directory, to be closed.
    pub node: Node,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its length.
    pub size_bytes: u64,
}

impl From<Attributes> for Found {
    /// What the engine shows.
    fn from(found: Attributes) -> Found {
        Found {
            node: Node(found.inode.0.into()),
            is_directory: found.file_type == FileType::Directory,
            size_bytes: found.size_bytes,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Whether it is a directory's.
    pub is_directory: bool,
}

/// Something that workloads run on. Every node that is handed out stays open until
/// [`close`](Self::close).
///
/// # Errors
///
/// Every method fails where the file system does.
pub trait Files {
    /// Where the workload is to work; stays open.
    fn root(&self) -> Node;

    /// The time by the clock that the workload's time is measured with.
    fn now(&self) -> Duration;

    /// A program of the workload computes what takes so long at
    /// [reference speed](crate::REFERENCE_HOST).
    fn compute(&mut self, work: Duration) -> Result<()>;

    /// Makes a directory.
    fn make_directory(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node>;

    /// Makes an empty file that must not be there yet.
    fn create(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node>;

    /// Makes a symlink.
    fn symlink(&mut self, parent: Node, name: &str, target: &str) -> Result<()>;

    /// What a symlink points to.
    fn read_link(&mut self, parent: Node, name: &str) -> Result<Vec<u8>>;

    /// Gives a file another name.
    fn link(&mut self, file: Node, parent: Node, name: &str) -> Result<()>;

    /// Gives what has a name in a directory another one there, which may be somebody else's.
    fn rename(&mut self, parent: Node, from: &str, to: &str) -> Result<()>;

    /// How many blocks are free, as `statvfs` shows it.
    fn free_blocks(&mut self) -> Result<u64>;

    /// Opens what is there.
    fn lookup(&mut self, parent: Node, name: &str) -> Result<Found>;

    /// A name's attributes, without opening it; returns the length.
    fn stat(&mut self, parent: Node, name: &str) -> Result<u64> {
        let found = self.lookup(parent, name)?;
        self.close(found.node)?;
        Ok(found.size_bytes)
    }

    /// Writes all of `data`.
    fn write(&mut self, node: Node, offset_bytes: u64, data: &[u8]) -> Result<()>;

    /// Reads at most `len_bytes` into `into`, replacing what it held.
    fn read(
        &mut self,
        node: Node,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()>;

    /// Sets a file's length.
    fn truncate(&mut self, node: Node, size_bytes: u64) -> Result<()>;

    /// Sets the permission bits.
    fn set_permissions(&mut self, node: Node, permissions: u16) -> Result<()>;

    /// Sets access and modification time.
    fn set_times(&mut self, node: Node, seconds: i64) -> Result<()>;

    /// The names in a directory, but for `.` and `..`, in the directory's own order.
    fn list(&mut self, directory: Node) -> Result<Vec<Entry>>;

    /// Removes a file's name.
    fn unlink(&mut self, parent: Node, name: &str) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&mut self, parent: Node, name: &str) -> Result<()>;

    /// Gives a node back.
    fn close(&mut self, node: Node) -> Result<()>;

    /// Puts a file onto stable storage, so that it can be found there.
    fn fsync(&mut self, node: Node) -> Result<()>;

    /// Puts everything onto stable storage.
    fn sync(&mut self) -> Result<()>;

    /// Begins a patchgroup that comes after `before`, which is closed. What this thread asks for
    /// next is done under it, until [`end_group`](Self::end_group).
    ///
    /// # Errors
    /// Also where there are no patchgroups.
    fn begin_group(&mut self, before: Option<GroupId>) -> Result<GroupId>;

    /// Nothing more is done under the patchgroup that was begun.
    fn end_group(&mut self, group: GroupId) -> Result<()>;

    /// Puts what was done under a patchgroup onto stable storage, and what it comes after.
    fn sync_group(&mut self, group: GroupId) -> Result<()>;

    /// Forgets a patchgroup.
    fn close_group(&mut self, group: GroupId) -> Result<()>;

    /// Runs clients beside each other, each in the directory `root`, until all have come to their
    /// ends.
    fn run_clients(&mut self, root: Node, clients: &Arc<Clients>) -> Result<()>;
}

/// This thread computes for so long.
fn spin(work: Duration) {
    let started = Instant::now();
    while started.elapsed() < work {
        std::hint::spin_loop();
    }
}

/// The clock of targets that are not simulated: any beginning, the same for all.
fn host_now() -> Duration {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    BEGINNING.get_or_init(Instant::now).elapsed()
}
