//! Trees of files on either side of a copy: the host's, and an image's.

mod copy;
mod host;
mod image;
mod staged;

pub use copy::{Copy, CopyOptions, Existing, Preserve};
pub use host::{HostNode, HostTree, umask};
pub use image::ImageTree;
pub(crate) use staged::{Staged, link};

use crate::error::Result;
use backstitch_vfs::{FileType, Timestamp};

/// What a copy needs to know of a file.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    pub(crate) file_type: FileType,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size_bytes: u64,
    /// In the kernel's 32-bit encoding.
    pub(crate) device_number: u32,
    pub(crate) links: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    /// Identifies the file: two names with the same identity are one file.
    pub(crate) identity: (u64, u64),
}

/// The attribute that holds a file's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// An extended attribute.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// A tree that is read. Nodes are files in it.
pub trait Source {
    /// A file.
    type Node;
    /// Whether no directory can be reached by two names, unless the tree is corrupt.
    const STRICT: bool;
    /// The node's name for people.
    fn name(&self, node: &Self::Node) -> String;
    /// Attributes of the node.
    fn meta(&self, node: &Self::Node) -> Result<Meta>;
    /// The names in a directory, without `.` and `..`.
    fn names(&self, node: &Self::Node) -> Result<Vec<Vec<u8>>>;
    /// The file behind a name; symbolic links are not followed.
    fn child(&self, dir: &Self::Node, name: &[u8]) -> Result<Self::Node>;
    /// The symbolic link's target.
    fn read_link(&self, node: &Self::Node) -> Result<Vec<u8>>;
    /// The next stretch of stored bytes from `offset` on, as start and end.
    fn next_data(&self, node: &Self::Node, offset: u64, size: u64) -> Result<Option<(u64, u64)>>;
    /// Appends up to `len` bytes from `offset` on.
    fn read(&self, node: &Self::Node, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()>;
    /// All extended attributes of the node.
    fn xattrs(&self, node: &Self::Node) -> Result<Vec<Xattr>>;
}

/// A tree that can be written and read.
pub trait Target: Source {
    /// A directory's entry in words, for people.
    fn place(&self, dir: &Self::Node, name: &[u8]) -> String;
    /// The file that already has a name; symbolic links are not followed.
    fn find(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<(Self::Node, FileType)>>;
    /// The directory and the name that a symbolic link leads to, through further links; `None`
    /// where the name is no link.
    fn through(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<(Self::Node, Vec<u8>)>>;
    /// Makes a file of any type, owned by the user of the command.
    fn create(
        &self,
        dir: &Self::Node,
        name: &[u8],
        meta: &Meta,
        link_target: &[u8],
    ) -> Result<Self::Node>;
    /// Makes a regular file elsewhere for the contents of a file whose directory takes no new
    /// files. `None` where there is no other place.
    fn spool(&self) -> Result<Option<Self::Node>>;
    /// Opens a special file, or the link of an open file, to write to it; `None` where the tree has
    /// nothing of the kind.
    fn stream(&self, node: &Self::Node) -> Result<Option<Self::Node>>;
    /// Whether the command's user may change the contents of a file.
    fn may_write(&self, node: &Self::Node) -> bool;
    /// Gives the node another name in the directory.
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Result<Self::Node>;
    /// Removes a file that is not a directory.
    fn remove(&self, node: &Self::Node) -> Result<()>;
    /// Moves a file to another name, replacing a file there, in one step that no crash divides.
    /// False where the command's user may not.
    fn rename(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Result<bool>;
    /// Writes the bytes at the offset, in bytes.
    fn write(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<()>;
    /// Cuts or extends the file to the size, in bytes.
    fn set_size(&self, node: &Self::Node, size: u64) -> Result<()>;
    /// Reserves space for the first `size` bytes of a file, so that writing them cannot fail for
    /// lack of it.
    fn reserve(&self, node: &Self::Node, size: u64) -> Result<()>;
    /// Makes a range read as zeros.
    fn punch(&self, node: &Self::Node, start: u64, end: u64) -> Result<()>;
    /// The file of the host that holds the tree; `None` for the host's own tree.
    fn image_file(&self) -> Option<(u64, u64)>;
    /// From now on [`sync`](Self::sync) has an effect.
    fn begin_order(&self) -> Result<()>;
    /// Makes what was done to a file reach stable storage before what is done next.
    fn sync(&self, node: &Self::Node) -> Result<()>;
    /// Ends the order that [`begin_order`](Self::begin_order) began.
    fn end_order(&self);
    /// Sets an attribute. Returns whether the tree can store it at all.
    fn set_xattr(&self, node: &Self::Node, xattr: &Xattr) -> Result<bool>;
    /// Gives a file the owner, the permissions and the extended attributes of another one. False
    /// where some of them could not be set.
    fn take_after(&self, node: &Self::Node, other: &Self::Node) -> Result<bool>;
    /// Sets the attributes that `preserve` names, as the last step for a file.
    fn finish(&self, node: &Self::Node, meta: &Meta, preserve: Preserve) -> Result<()>;
}
