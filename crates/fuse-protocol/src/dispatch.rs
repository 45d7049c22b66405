//! From a request's parts to the method that answers it.

use crate::abi::{
    FUSE_FSYNC_FDATASYNC, fuse_batch_forget_in, fuse_forget_in, fuse_forget_one, fuse_fsync_in,
    fuse_getxattr_in, fuse_ioctl_in, fuse_link_in, fuse_open_in, fuse_release_in, fuse_rename_in,
    fuse_rename2_in, fuse_write_in,
};
use crate::answer::{Empty, Errno, Reply, Sender};
use crate::filesystem::Filesystem;
use crate::request::{self as kind, NodeId, Parts, Request, SETXATTR_BYTES, name_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use zerocopy::FromBytes;

/// Has a request answered. What is not known gets `ENOSYS`, what is cut short `EINVAL`, and what
/// panics `EIO`: the thread has to serve on, for a request may be under way that nobody else would
/// answer.
pub(crate) fn dispatch(files: &impl Filesystem, parts: &Parts<'_>, sender: Sender) {
    let answer = AssertUnwindSafe(|| answer(files, parts, sender));
    if catch_unwind(answer).is_err() {
        let opcode = parts.header.opcode;
        tracing::error!(opcode, "a request failed by a fault of this program");
    }
}

fn answer(files: &impl Filesystem, parts: &Parts<'_>, sender: Sender) {
    files.received(parts.header.opcode);
    let call = Call {
        files,
        request: Request::new(&parts.header),
        parts,
    };
    let mut sender = Some(sender);
    let done = match parts.header.opcode {
        kind::FORGET | kind::BATCH_FORGET => {
            let _ = call.forget();
            sender.take().inspect(Sender::nothing);
            None
        }
        kind::LOOKUP
        | kind::MKNOD
        | kind::MKDIR
        | kind::UNLINK
        | kind::RMDIR
        | kind::SYMLINK
        | kind::LINK
        | kind::RENAME
        | kind::RENAME2
        | kind::TMPFILE => call.names(&mut sender),
        kind::OPEN
        | kind::OPENDIR
        | kind::RELEASE
        | kind::RELEASEDIR
        | kind::FLUSH
        | kind::FSYNC
        | kind::FSYNCDIR
        | kind::READDIR
        | kind::READDIRPLUS => call.files(&mut sender),
        kind::READ
        | kind::WRITE
        | kind::READLINK
        | kind::FALLOCATE
        | kind::LSEEK
        | kind::COPY_FILE_RANGE => call.contents(&mut sender),
        kind::GETATTR
        | kind::SETATTR
        | kind::STATX
        | kind::STATFS
        | kind::SETXATTR
        | kind::GETXATTR
        | kind::LISTXATTR
        | kind::REMOVEXATTR
        | kind::IOCTL => call.attributes(&mut sender),
        _ => None,
    };
    if let Some(sender) = sender {
        let errno = match (done, kind::is_known(parts.header.opcode)) {
            (None, true) => Errno::INVAL,
            _ => Errno::NOSYS,
        };
        Reply::<Empty>::new(parts.header.unique, sender).error(errno);
    }
}

/// A request on its way to the file system. The methods take the sender once the request is whole,
/// and return `None` if it is not.
struct Call<'a, F> {
    files: &'a F,
    request: Request,
    parts: &'a Parts<'a>,
}

impl<F: Filesystem> Call<'_, F> {
    fn reply<K>(&self, sender: &mut Option<Sender>) -> Option<Reply<K>> {
        Some(Reply::new(self.request.unique, sender.take()?))
    }

    fn forget(&self) -> Option<()> {
        if self.parts.header.opcode == kind::BATCH_FORGET {
            return self.forget_several();
        }
        let forget: fuse_forget_in = self.parts.structure()?;
        self.files.forget(self.request.node, forget.nlookup);
        Some(())
    }

    fn forget_several(&self) -> Option<()> {
        let batch: fuse_batch_forget_in = self.parts.structure()?;
        let mut rest = self.parts.rest;
        for _ in 0..batch.count {
            let (one, behind) = fuse_forget_one::read_from_prefix(rest).ok()?;
            self.files.forget(NodeId(one.nodeid), one.nlookup);
            rest = behind;
        }
        Some(())
    }

    fn names(&self, sender: &mut Option<Sender>) -> Option<()> {
        let (files, request, parts) = (self.files, &self.request, self.parts);
        let (name, rest) = parts.name()?;
        match parts.header.opcode {
            kind::LOOKUP => files.lookup(request, name, self.reply(sender)?),
            kind::UNLINK => files.unlink(request, name, self.reply(sender)?),
            kind::RMDIR => files.rmdir(request, name, self.reply(sender)?),
            kind::MKNOD => {
                files.mknod(request, &parts.structure()?, name, self.reply(sender)?);
            }
            kind::MKDIR => {
                files.mkdir(request, &parts.structure()?, name, self.reply(sender)?);
            }
            kind::SYMLINK => {
                let (target, _) = name_of(rest)?;
                files.symlink(request, name, target, self.reply(sender)?);
            }
            kind::TMPFILE => files.tmpfile(request, &parts.structure()?, self.reply(sender)?),
            kind::LINK => {
                let link: fuse_link_in = parts.structure()?;
                let node = NodeId(link.oldnodeid);
                files.link(request, node, name, self.reply(sender)?);
            }
            _ => {
                let (new_name, _) = name_of(rest)?;
                let (dir, flags) = match parts.header.opcode {
                    kind::RENAME => (parts.structure::<fuse_rename_in>()?.newdir, 0),
                    _ => {
                        let rename: fuse_rename2_in = parts.structure()?;
                        (rename.newdir, rename.flags)
                    }
                };
                let reply = self.reply(sender)?;
                files.rename(request, name, NodeId(dir), new_name, flags, reply);
            }
        }
        Some(())
    }

    fn files(&self, sender: &mut Option<Sender>) -> Option<()> {
        let (files, request, parts) = (self.files, &self.request, self.parts);
        match parts.header.opcode {
            kind::OPEN => {
                let open: fuse_open_in = parts.structure()?;
                files.open(request, open.flags, self.reply(sender)?);
            }
            kind::OPENDIR => files.opendir(request, self.reply(sender)?),
            kind::FLUSH => files.flush(request, self.reply(sender)?),
            kind::READDIR => files.readdir(request, &parts.structure()?, self.reply(sender)?),
            kind::READDIRPLUS => {
                files.readdirplus(request, &parts.structure()?, self.reply(sender)?);
            }
            kind::RELEASE | kind::RELEASEDIR => {
                let release: fuse_release_in = parts.structure()?;
                let reply = self.reply(sender)?;
                match parts.header.opcode {
                    kind::RELEASE => files.release(request, release.fh, reply),
                    _ => files.releasedir(request, release.fh, reply),
                }
            }
            _ => {
                let fsync: fuse_fsync_in = parts.structure()?;
                let data_only = fsync.fsync_flags & FUSE_FSYNC_FDATASYNC != 0;
                let reply = self.reply(sender)?;
                match parts.header.opcode {
                    kind::FSYNC => files.fsync(request, fsync.fh, data_only, reply),
                    _ => files.fsyncdir(request, fsync.fh, data_only, reply),
                }
            }
        }
        Some(())
    }

    fn contents(&self, sender: &mut Option<Sender>) -> Option<()> {
        let (files, request, parts) = (self.files, &self.request, self.parts);
        match parts.header.opcode {
            kind::READ => files.read(request, &parts.structure()?, self.reply(sender)?),
            kind::WRITE => {
                let write: fuse_write_in = parts.structure()?;
                let data = parts.rest.get(..write.size as usize)?;
                files.write(request, &write, data, self.reply(sender)?);
            }
            kind::READLINK => files.readlink(request, self.reply(sender)?),
            kind::FALLOCATE => {
                files.fallocate(request, &parts.structure()?, self.reply(sender)?);
            }
            kind::LSEEK => files.lseek(request, &parts.structure()?, self.reply(sender)?),
            _ => files.copy_file_range(request, &parts.structure()?, self.reply(sender)?),
        }
        Some(())
    }

    fn attributes(&self, sender: &mut Option<Sender>) -> Option<()> {
        let (files, request, parts) = (self.files, &self.request, self.parts);
        match parts.header.opcode {
            kind::GETATTR => files.getattr(request, self.reply(sender)?),
            kind::SETATTR => files.setattr(request, &parts.structure()?, self.reply(sender)?),
            kind::STATX => files.statx(request, &parts.structure()?, self.reply(sender)?),
            kind::STATFS => files.statfs(request, self.reply(sender)?),
            kind::REMOVEXATTR => {
                let (name, _) = parts.name()?;
                files.removexattr(request, name, self.reply(sender)?);
            }
            kind::SETXATTR => {
                let sizes: [u32; SETXATTR_BYTES / 4] = parts.structure()?;
                let [size, flags] = sizes;
                let (name, rest) = parts.name()?;
                let value = rest.get(..size as usize)?;
                files.setxattr(request, name, value, flags, self.reply(sender)?);
            }
            kind::GETXATTR => {
                let get: fuse_getxattr_in = parts.structure()?;
                let (name, _) = parts.name()?;
                files.getxattr(request, name, get.size, self.reply(sender)?);
            }
            kind::LISTXATTR => {
                let list: fuse_getxattr_in = parts.structure()?;
                files.listxattr(request, list.size, self.reply(sender)?);
            }
            _ => {
                let ioctl: fuse_ioctl_in = parts.structure()?;
                let data = parts.rest.get(..ioctl.in_size as usize)?;
                files.ioctl(request, &ioctl, data, self.reply(sender)?);
            }
        }
        Some(())
    }
}
