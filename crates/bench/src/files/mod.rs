//! File operations as workloads ask for them: on the engine in this process, or by system calls.

mod directory;
mod engine;

pub use directory::HostFiles;
pub use engine::EngineFiles;

use crate::Result;

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

    /// Makes a directory.
    fn make_directory(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node>;

    /// Makes an empty file that must not be there yet.
    fn create(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node>;

    /// Opens what is there.
    fn lookup(&mut self, parent: Node, name: &str) -> Result<Found>;

    /// A name's attributes, without opening it; returns the length.
    fn stat(&mut self, parent: Node, name: &str) -> Result<u64>;

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

    /// The same file system for another thread, whose root is a directory of this one's.
    fn another(&self, root: Node) -> Result<Box<dyn Files + Send>>;

    /// Puts everything onto stable storage.
    fn sync(&mut self) -> Result<()>;
}
