//! The engine with what its requests share: replies, attribute changes, the negotiation with the kernel.

use crate::control::Control;
use crate::convert::{FOREVER, Nodes, errno, file_attributes, generation};
use crate::open_files::OpenFiles;
use crate::privileges::{self, Caller};
use crate::session::FrontOptions;
use crate::snapshot::Snapshots;
use crate::turns::Turns;
use crate::waiters::Waiters;
use backstitch_vfs::{
    Attributes, Engine, FileType, InodeNumber, NewInode, OpenFile, Result, SetAttributes,
};
use fuser::{
    INodeNo, InitFlags, KernelConfig, OpenFlags, ReplyAttr, ReplyEmpty, ReplyEntry, Request,
    WriteFlags,
};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The largest write that the kernel may send in one request.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How many requests nobody waits for (read-ahead, write-back) may be under way at once.
const MAX_BACKGROUND: u16 = 64;

/// The engine behind FUSE's requests.
pub(crate) struct Front {
    pub(crate) engine: Arc<Engine>,
    pub(crate) nodes: Nodes,
    pub(crate) snapshots: Snapshots,
    pub(crate) control: Control,
    waiters: Waiters,
    /// Which threads read requests.
    pub(crate) turns: Arc<Turns>,
    /// What `stats` calls the image.
    pub(crate) image: String,
    pub(crate) stack: Option<String>,
    /// Whether reads move access times (`relatime`).
    pub(crate) update_accessed: bool,
    /// Whether the kernel checks permissions.
    check_permissions: bool,
    /// Whether the kernel may keep written data for itself for a while.
    writeback_cache: bool,
    /// Whether there are extended attributes.
    pub(crate) xattrs: bool,
    /// Whether the kernel leaves the umask to us.
    pub(crate) umask_is_ours: bool,
    /// Whether the kernel can do without `OPEN` and `OPENDIR`.
    pub(crate) no_open: bool,
    pub(crate) no_opendir: bool,
    /// The open files, where losses are reported once to each.
    pub(crate) open_files: Option<OpenFiles>,
    /// Told when the last request has been answered.
    pub(crate) ended: Option<Sender<()>>,
}

impl Front {
    pub(crate) fn new(engine: Arc<Engine>, options: &FrontOptions, ended: Sender<()>) -> Front {
        engine.on_wait(Turns::hand_over);
        Front {
            nodes: Nodes::new(engine.root()),
            control: Control::new(engine.clone(), options.writeback_cache),
            engine,
            snapshots: Snapshots::new(),
            waiters: Waiters::default(),
            turns: Arc::default(),
            writeback_cache: options.writeback_cache,
            xattrs: options.xattrs,
            image: options.image.clone(),
            stack: options.stack.clone(),
            update_accessed: options.update_accessed,
            check_permissions: options.check_permissions,
            umask_is_ours: false,
            no_open: false,
            no_opendir: false,
            open_files: options.report_once.then(OpenFiles::default),
            ended: Some(ended),
        }
    }

    pub(crate) fn reply_entry(&self, reply: ReplyEntry, attributes: &Attributes) {
        let shown = file_attributes(self.nodes.node(attributes.inode), attributes);
        reply.entry(&FOREVER, &shown, generation(attributes));
    }

    /// Attributes of an inode that the kernel knows already: with the layout's own number.
    pub(crate) fn reply_attributes(reply: ReplyAttr, attributes: &Attributes) {
        let own_number = INodeNo(u64::from(attributes.inode.0));
        reply.attr(&FOREVER, &file_attributes(own_number, attributes));
    }

    pub(crate) fn reply_created(
        &self,
        operation: &str,
        dir: InodeNumber,
        made: Result<Attributes>,
        reply: ReplyEntry,
    ) {
        match made {
            Ok(attributes) => self.reply_entry(reply, &attributes),
            Err(error) => reply.error(errno(operation, dir, &error)),
        }
    }

    pub(crate) fn reply_empty(
        operation: &str,
        inode: InodeNumber,
        done: Result<()>,
        reply: ReplyEmpty,
    ) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(operation, inode, &error)),
        }
    }

    /// Answers once an inode is on stable storage. Where that takes waiting, other requests get their turn meanwhile.
    pub(crate) fn fsync_and_reply(
        &self,
        operation: &'static str,
        inode: InodeNumber,
        file: Option<Arc<OpenFile>>,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let rest = match self.engine.begin_fsync(inode, data_only) {
            Ok(Some(rest)) => rest,
            Ok(None) => return reply.ok(),
            Err(error) => {
                let failed = Err(error);
                let told = match file {
                    Some(file) => self.engine.report_once(&file, failed),
                    None => failed,
                };
                return Self::reply_empty(operation, inode, told, reply);
            }
        };
        let engine = self.engine.clone();
        self.waiters.run(move || {
            let mut synced = engine.end_fsync(rest);
            if let Some(file) = file {
                synced = engine.report_once(&file, synced);
            }
            Self::reply_empty(operation, inode, synced, reply);
        });
    }

    /// Applies a `SETATTR`, with the clearing of set-user-ID and set-group-ID that goes with it.
    pub(crate) fn change_attributes(
        &self,
        inode: InodeNumber,
        mut set: SetAttributes,
        caller: Caller,
    ) -> Result<Attributes> {
        let is_chown = set.uid.is_some() || set.gid.is_some();
        // The kernel's word for "clear the bits, whatever else": nothing is set at all.
        let is_empty = set == SetAttributes::default();
        let is_truncation = set.size_bytes.is_some() && !caller.is_privileged();
        if set.permissions.is_none() && (is_chown || is_empty || is_truncation) {
            let before = self.engine.attributes(inode)?;
            set.permissions = privileges::after_change(&before, caller);
            if is_empty && set.permissions.is_none() {
                return Ok(before);
            }
        }
        self.engine.set_attributes(inode, &set)
    }

    /// Clears set-user-ID and set-group-ID after the contents were changed by somebody who may not keep them.
    pub(crate) fn clear_after_write(&self, inode: InodeNumber) -> Result<()> {
        let attributes = self.engine.attributes(inode)?;
        if let Some(permissions) = privileges::after_write(&attributes) {
            let set = SetAttributes {
                permissions: Some(permissions),
                ..Default::default()
            };
            self.engine.set_attributes(inode, &set)?;
        }
        Ok(())
    }

    /// A write with what its flags ask for besides.
    pub(crate) fn write_with_flags(
        &self,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
    ) -> Result<usize> {
        let written = self.engine.write(inode, offset_bytes, data)?;
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.clear_after_write(inode)?;
        }
        // The kernel follows a synchronous write with FSYNC, but not one that went around its cache.
        if flags.0 & libc::O_DIRECT != 0 && flags.0 & libc::O_DSYNC != 0 {
            let data_only = flags.0 & libc::O_SYNC != libc::O_SYNC;
            self.engine.fsync(inode, data_only)?;
        }
        Ok(written)
    }

    pub(crate) fn new_inode<'a>(
        &self,
        request: &Request,
        file_type: FileType,
        mode: u32,
        umask: u32,
        target: &'a [u8],
    ) -> NewInode<'a> {
        NewInode {
            file_type,
            permissions: (mode & 0o7777) as u16,
            umask: if self.umask_is_ours {
                (umask & 0o777) as u16
            } else {
                0
            },
            uid: request.uid(),
            gid: request.gid(),
            device_number: 0,
            target,
        }
    }

    pub(crate) fn negotiate(&mut self, config: &mut KernelConfig) {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if self.check_permissions && self.xattrs {
            // It switches the kernel's checks on, whatever the mount options say.
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        if self.writeback_cache {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        for (_, flag) in wanted.iter_names() {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel does not offer it");
            }
        }
        self.umask_is_ours = offered.contains(InitFlags::FUSE_DONT_MASK);
        let is_told = self.open_files.is_some();
        self.no_open = !is_told && offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = !is_told && offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // None of these can fail: the values are within what fuser takes, and the last one is the most the kernel offers.
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
    }
}

impl Front {
    /// Moves the access time after a read, where the policy says so.
    pub(crate) fn touch(&self, inode: InodeNumber) {
        if self.update_accessed {
            self.engine.touch_accessed(inode);
        }
    }
}
