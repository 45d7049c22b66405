//! Trees of files on either side of a copy: the host's, and an image's.

mod copy;
mod host;
mod image;

pub(crate) use copy::{Copy, CopyOptions, Existing, Preserve};
pub(crate) use host::{HostNode, HostTree, umask};
pub(crate) use image::ImageTree;

use crate::error::Result;
use backstitch_vfs::{FileType, Timestamp};

/// What a copy needs to know of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) file_type: FileType,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size_bytes: u64,
    /// As the kernel's 32-bit encoding has it.
    pub(crate) device_number: u32,
    pub(crate) links: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    /// Two names with the same identity are one file.
    pub(crate) identity: (u64, u64),
}

/// An extended attribute.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// A tree that is read. Nodes are files in it.
pub(crate) trait Source {
    /// A file.
    type Node;
    /// Whether no directory can be reached by two names, unless the tree is corrupt.
    const STRICT: bool;
    /// What a person calls it.
    fn name(&self, node: &Self::Node) -> String;
    fn meta(&self, node: &Self::Node) -> Result<Meta>;
    /// The names in a directory, without `.` and `..`.
    fn names(&self, node: &Self::Node) -> Result<Vec<Vec<u8>>>;
    /// The file behind a name; symbolic links are not followed.
    fn child(&self, dir: &Self::Node, name: &[u8]) -> Result<Self::Node>;
    fn read_link(&self, node: &Self::Node) -> Result<Vec<u8>>;
    /// The next stretch of stored bytes from `offset` on, as start and end.
    fn next_data(&self, node: &Self::Node, offset: u64, size: u64) -> Result<Option<(u64, u64)>>;
    /// Appends up to `len` bytes from `offset` on.
    fn read(&self, node: &Self::Node, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()>;
    fn xattrs(&self, node: &Self::Node) -> Result<Vec<Xattr>>;
}

/// A tree that is written.
pub(crate) trait Target {
    /// A file.
    type Node;
    /// What a person calls a name in a directory.
    fn name(&self, dir: &Self::Node, name: &[u8]) -> String;
    /// What is there already; symbolic links are not followed.
    fn find(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<(Self::Node, FileType)>>;
    /// When the contents of what is there were changed last.
    fn modified(&self, node: &Self::Node) -> Result<Timestamp>;
    /// Makes a file of any type, owned by the user of the command.
    fn create(
        &self,
        dir: &Self::Node,
        name: &[u8],
        meta: &Meta,
        link_target: &[u8],
    ) -> Result<Self::Node>;
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Result<()>;
    /// Removes a file that is not a directory.
    fn remove(&self, dir: &Self::Node, name: &[u8]) -> Result<()>;
    fn write(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<()>;
    fn set_size(&self, node: &Self::Node, size: u64) -> Result<()>;
    /// Whether the attribute could be stored at all.
    fn set_xattr(&self, node: &Self::Node, xattr: &Xattr) -> Result<bool>;
    /// Sets what `preserve` names, as the last thing done to a file.
    fn finish(&self, node: &Self::Node, meta: &Meta, preserve: Preserve) -> Result<()>;
}
