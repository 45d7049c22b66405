//! What the file system tells the kernel without being asked.

use crate::abi::{fuse_notify_code, fuse_notify_inval_entry_out, fuse_notify_inval_inode_out};
use crate::device::Device;
use crate::request::NodeId;
use std::io;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Makes the kernel forget what it has been told. Never call it while a request waits for the
/// caller: the kernel may itself wait for that request.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<Device>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>) -> Notifier {
        Notifier { device }
    }

    /// The kernel forgets an inode's attributes, and its pages from `offset` on: `len` bytes of them,
    /// all with 0. A negative offset leaves the pages alone.
    ///
    /// # Errors
    ///
    /// The system's. That the kernel does not know the inode is none.
    pub fn invalidate_inode(&self, node: NodeId, offset: i64, len: i64) -> io::Result<()> {
        let what = fuse_notify_inval_inode_out {
            ino: node.0,
            off: offset,
            len,
        };
        let code = fuse_notify_code::FUSE_NOTIFY_INVAL_INODE;
        self.tell(code, [what.as_bytes(), &[]])
    }

    /// The kernel forgets what a name leads to.
    ///
    /// # Errors
    ///
    /// The system's. That the kernel does not know the name is none.
    pub fn invalidate_entry(&self, parent: NodeId, name: &[u8]) -> io::Result<()> {
        let what = fuse_notify_inval_entry_out {
            parent: parent.0,
            namelen: name.len() as u32,
            flags: 0,
        };
        let code = fuse_notify_code::FUSE_NOTIFY_INVAL_ENTRY;
        let name = [name, &[0]].concat();
        self.tell(code, [what.as_bytes(), &name])
    }

    /// A reply without a request, with a code where a reply has its error.
    fn tell(&self, code: fuse_notify_code, parts: [&[u8]; 2]) -> io::Result<()> {
        match self.device.reply(0, code as i32, parts) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}
