//! Extended attributes, ACLs among them.

use crate::convert::errno;
use crate::front::Front;
use crate::privileges::{self, Caller};
use crate::snapshot::SNAPSHOT_XATTR;
use crate::stats::{self, STATS_XATTR, SYNC_XATTR};
use crate::trace::TRACE_XATTR;
use backstitch_fuse_protocol::{Reply, Xattr};
use backstitch_vfs::{InodeNumber, LayoutError, Result, SetAttributes, SetXattrMode};
use patchgroup::protocol::SOCKET_XATTR;

/// The name under which the kernel hands on a file's access ACL.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// The same for the ACL that new files in a directory get.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Refuses names as the kernel's own file systems do: a namespace alone is none, and of `system.`
/// there are only the ACLs.
fn check_name(name: &[u8]) -> Result<()> {
    let spaces: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
    if spaces.contains(&name) {
        return Err(LayoutError::Invalid.into());
    }
    if name.starts_with(b"system.") && name != ACCESS_ACL && name != DEFAULT_ACL {
        return Err(LayoutError::NotSupported.into());
    }
    Ok(())
}

impl Front {
    /// An attribute's value, or the mount's counters where their name is asked of the root.
    pub(crate) fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        if name == STATS_XATTR.as_bytes() && inode == self.engine.root() {
            return Ok(stats::document(
                &self.engine,
                &self.image,
                self.stack.as_deref(),
                self.transport.get(),
                &self.requests,
            ));
        }
        if name == SNAPSHOT_XATTR.as_bytes() && inode == self.engine.root() {
            return Ok(self.snapshots.document());
        }
        if name == TRACE_XATTR.as_bytes()
            && inode == self.engine.root()
            && let Some(socket) = self.traces.socket_name()
        {
            return Ok(socket);
        }
        if name == SOCKET_XATTR.as_bytes()
            && let Some(socket) = self.control.socket_name()
        {
            return Ok(socket.to_vec());
        }
        check_name(name)?;
        self.check_acl_shows(name)?;
        self.engine.get_xattr(inode, name)
    }

    /// The names of an inode's attributes, those that `caller` may see.
    pub(crate) fn xattr_names(&self, caller: Caller, inode: InodeNumber) -> Result<Vec<u8>> {
        let mut names = self.engine.list_xattrs(inode)?;
        if !caller.is_privileged() {
            // The kernel refuses everybody else their values already.
            names = without(&names, |name| name.starts_with(b"trusted."));
        }
        if self.hides_acls() {
            names = without(&names, |name| name.starts_with(b"system."));
        }
        Ok(names)
    }

    fn check_acl_shows(&self, name: &[u8]) -> Result<()> {
        match name.starts_with(b"system.") && self.hides_acls() {
            true => Err(LayoutError::NotSupported.into()),
            false => Ok(()),
        }
    }

    /// Not `ENOSYS`, for the kernel would not pass on any further request of the kind then, and
    /// [`SYNC_XATTR`] is one.
    fn check_there_are_some(&self) -> Result<()> {
        match self.xattrs {
            true => Ok(()),
            false => Err(LayoutError::NotSupported.into()),
        }
    }

    /// Takes an attribute away.
    pub(crate) fn remove_xattr(
        &self,
        caller: Caller,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.check_there_are_some()?;
        check_name(name)?;
        self.check_acl_shows(name)?;
        let engine = self.engine.for_user(Some(caller.user()));
        engine.remove_xattr(inode, name)
    }

    /// Sets an attribute. An access ACL set from outside the file's group takes set-group-ID with
    /// it.
    pub(crate) fn set_xattr(
        &self,
        caller: Caller,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        let mode = match flags.cast_signed() {
            0 => SetXattrMode::Any,
            libc::XATTR_CREATE => SetXattrMode::Create,
            libc::XATTR_REPLACE => SetXattrMode::Replace,
            _ => return Err(LayoutError::Invalid.into()),
        };
        if name == SYNC_XATTR.as_bytes() {
            return self.engine.sync();
        }
        self.check_there_are_some()?;
        if name == SNAPSHOT_XATTR.as_bytes() && inode == self.engine.root() {
            let ours = rustix::process::geteuid().as_raw();
            if !caller.is_privileged() && caller.uid != ours {
                return Err(LayoutError::NotPermitted.into());
            }
            return self.snapshots.begin(&self.engine, value);
        }
        check_name(name)?;
        self.check_acl_shows(name)?;
        let engine = self.engine.for_user(Some(caller.user()));
        engine.set_xattr(inode, name, value, mode)?;
        if name == ACCESS_ACL
            && let Some(permissions) =
                privileges::after_acl(&self.engine.attributes(inode)?, caller)
        {
            let set = SetAttributes {
                permissions: Some(permissions),
                ..Default::default()
            };
            self.engine.set_attributes(inode, &set)?;
        }
        Ok(())
    }

    /// Answers with a value, of which the caller takes `most` bytes.
    pub(crate) fn reply_xattr(
        operation: &str,
        inode: InodeNumber,
        value: Result<Vec<u8>>,
        most: u32,
        reply: Reply<Xattr>,
    ) {
        match value {
            Ok(value) => reply.value(most, &value),
            Err(error) => reply.error(errno(operation, inode, &error)),
        }
    }
}

/// A list of names without some of them.
fn without(names: &[u8], is_hidden: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    names
        .split_inclusive(|byte| *byte == 0)
        .filter(|name| !is_hidden(name))
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out() {
        let names = b"user.a\0trusted.b\0system.c\0";
        let rest = without(names, |name| name.starts_with(b"trusted."));
        assert_eq!(rest, b"user.a\0system.c\0");
    }

    #[test]
    fn names() {
        let errno = |name: &str| check_name(name.as_bytes()).err().map(|error| error.errno());
        assert_eq!(errno("user.a"), None);
        assert_eq!(errno("system.posix_acl_default"), None);
        assert_eq!(errno("user."), Some(libc::EINVAL));
        assert_eq!(errno("system.foo"), Some(libc::EOPNOTSUPP));
        assert_eq!(errno(STATS_XATTR), Some(libc::EOPNOTSUPP));
    }
}
