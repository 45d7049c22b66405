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

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The open file or directory. The caller closes it.
    pub node: Node,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its length.
    pub size_bytes: u64,
}

impl From<Attributes> for Found {
    /// From what the engine returns.
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
    /// Whether it is the name of a directory.
    pub is_directory: bool,
}

/// A file system for workloads. Every node that is returned stays open until
/// [`close`](Self::close).
///
/// # Errors
///
/// Every method fails where the file system does.
pub trait Files {
    /// The directory in which the workload works. It stays open.
    fn root(&self) -> Node;

    /// The time, by the clock with which the workload is measured.
    fn now(&self) -> Duration;

    /// How long a simulated processor has been busy; zero where none is simulated.
    fn processor_busy(&self) -> Duration {
        Duration::ZERO
    }

    /// Computes for this long at [reference speed](crate::REFERENCE_HOST), as a program of the
    /// workload would.
    fn compute(&mut self, work: Duration) -> Result<()>;

    /// The same for a program whose time would hide that of the file system: only a simulated
    /// processor does it.
    fn compute_if_simulated(&mut self, _work: Duration) -> Result<()> {
        Ok(())
    }

    /// Makes a directory.
    fn make_directory(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node>;

    /// Makes an empty file that must not be there yet.
    fn create(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node>;

    /// Makes a symlink.
    fn symlink(&mut self, parent: Node, name: &str, target: &str) -> Result<()>;

    /// The target of a symlink.
    fn read_link(&mut self, parent: Node, name: &str) -> Result<Vec<u8>>;

    /// Gives a file another name.
    fn link(&mut self, file: Node, parent: Node, name: &str) -> Result<()>;

    /// Renames within a directory. The new name may exist; then it is replaced.
    fn rename(&mut self, parent: Node, from: &str, to: &str) -> Result<()>;

    /// How many blocks are free, as `statvfs` shows it.
    fn free_blocks(&mut self) -> Result<u64>;

    /// Opens an existing file or directory.
    fn lookup(&mut self, parent: Node, name: &str) -> Result<Found>;

    /// Reads the attributes of a name without opening it; returns the length.
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

    /// The names in a directory without `.` and `..`, in the directory's own order.
    fn list(&mut self, directory: Node) -> Result<Vec<Entry>>;

    /// Removes a file's name.
    fn unlink(&mut self, parent: Node, name: &str) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&mut self, parent: Node, name: &str) -> Result<()>;

    /// Closes a node.
    fn close(&mut self, node: Node) -> Result<()>;

    /// Puts a file and its name onto stable storage.
    fn fsync(&mut self, node: Node) -> Result<()>;

    /// Puts everything onto stable storage.
    fn sync(&mut self) -> Result<()>;

    /// Begins a patchgroup that comes after `before`, which is closed. What this thread does until
    /// [`end_group`](Self::end_group) belongs to it.
    ///
    /// # Errors
    /// Also if there are no patchgroups.
    fn begin_group(&mut self, before: Option<GroupId>) -> Result<GroupId>;

    /// Ends the patchgroup that was begun: later changes do not belong to it.
    fn end_group(&mut self, group: GroupId) -> Result<()>;

    /// Puts what was done under a patchgroup, and what that comes after, onto stable storage.
    fn sync_group(&mut self, group: GroupId) -> Result<()>;

    /// Forgets a patchgroup.
    fn close_group(&mut self, group: GroupId) -> Result<()>;

    /// Runs clients at the same time, each in the directory `root`, until all are done.
    fn run_clients(&mut self, root: Node, clients: &Arc<Clients>) -> Result<()>;
}

/// Keeps this thread computing for this long.
fn spin(work: Duration) {
    let started = Instant::now();
    while started.elapsed() < work {
        std::hint::spin_loop();
    }
}

/// The clock of targets that are not simulated: the time since its first use.
fn host_now() -> Duration {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    BEGINNING.get_or_init(Instant::now).elapsed()
}
