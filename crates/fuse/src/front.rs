//! The engine with what its requests share: replies, attribute changes, the negotiation with the
//! kernel.

use crate::control::Control;
use crate::convert::{FOREVER_SECONDS, Nodes, entry, errno, file_attributes};
use crate::flagged::Flagged;
use crate::open_files::OpenFiles;
use crate::privileges::{self, Caller};
use crate::request_counts::RequestCounts;
use crate::session::{AccessPolicy, FrontOptions, Invalidator};
use crate::snapshot::Snapshots;
use crate::squash::Squash;
use crate::trace::Traces;
use crate::turns::Turns;
use crate::waiters::Waiters;
use backstitch_fuse_protocol::abi::{
    self, FUSE_WRITE_CACHE, FUSE_WRITE_KILL_SUIDGID, fuse_attr, fuse_attr_out, fuse_entry_out,
    fuse_write_in,
};
use backstitch_fuse_protocol::{self as protocol, Empty, Entry, Offer, Reply, Request, Transport};
use backstitch_vfs::{
    Attributes, Engine, FileType, InodeNumber, LayoutError, NewInode, OpenFile, Result,
    SetAttributes, User, flags,
};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

/// The engine behind FUSE's requests.
pub(crate) struct Front {
    pub(crate) engine: Arc<Engine>,
    pub(crate) nodes: Nodes,
    pub(crate) snapshots: Snapshots,
    pub(crate) traces: Traces,
    pub(crate) control: Control,
    waiters: Waiters,
    /// Which threads read requests, where the kernel does not hand them out to few by itself.
    pub(crate) turns: Option<Arc<Turns>>,
    /// What `stats` calls the image.
    pub(crate) image: String,
    pub(crate) stack: Option<String>,
    pub(crate) access_times: AccessPolicy,
    synchronous: bool,
    synchronous_names: bool,
    pub(crate) group_of_directory: bool,
    squash: Squash,
    check_open: bool,
    pub(crate) flagged: Flagged,
    /// What drops pages of the kernel, once the mount is there.
    pub(crate) invalidator: Arc<OnceLock<Invalidator>>,
    /// How requests come, once the mount is there.
    pub(crate) transport: Arc<OnceLock<Transport>>,
    /// How often what was asked.
    pub(crate) requests: RequestCounts,
    /// Whether the kernel checks permissions.
    check_permissions: bool,
    /// Whether the kernel may keep written data for itself for a while.
    pub(crate) writeback_cache: bool,
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
    pub(crate) ended: Sender<()>,
}

impl Front {
    pub(crate) fn new(engine: Arc<Engine>, options: &FrontOptions, ended: Sender<()>) -> Front {
        engine.on_wait(Turns::hand_over);
        Front {
            nodes: Nodes::new(engine.root()),
            control: Control::new(engine.clone(), options.writeback_cache),
            traces: Traces::new(engine.clone(), &options.image),
            engine,
            snapshots: Snapshots::new(),
            waiters: Waiters::default(),
            turns: Some(Arc::default()),
            writeback_cache: options.writeback_cache,
            xattrs: options.xattrs,
            image: options.image.clone(),
            stack: options.stack.clone(),
            access_times: options.access_times,
            synchronous: options.synchronous,
            synchronous_names: options.synchronous || options.synchronous_names,
            group_of_directory: options.group_of_directory,
            squash: options.squash,
            // What it gathers it takes for written, the size too, and shows it although it is
            // refused in the end.
            check_open: options.check_open || options.writeback_cache,
            flagged: Flagged::default(),
            invalidator: Arc::default(),
            transport: Arc::default(),
            requests: RequestCounts::default(),
            check_permissions: options.check_permissions,
            umask_is_ours: false,
            no_open: false,
            no_opendir: false,
            open_files: options.report_once.then(OpenFiles::default),
            ended,
        }
    }

    pub(crate) fn reply_entry(&self, reply: Reply<Entry>, attributes: &Attributes) {
        reply.entry(&self.entry_of(attributes));
    }

    /// An inode that the kernel gets to know.
    pub(crate) fn entry_of(&self, attributes: &Attributes) -> fuse_entry_out {
        let node = self.nodes.node(attributes.inode);
        let shown = self.show(node.0, attributes);
        entry(node, attributes.generation, shown)
    }

    /// The attributes that the kernel is told, which it will ask about.
    pub(crate) fn show(&self, number: u64, attributes: &Attributes) -> fuse_attr {
        self.flagged.note(attributes);
        file_attributes(number, &self.squash.shown(attributes))
    }

    /// Attributes of an inode that the kernel knows already: with the layout's own number.
    pub(crate) fn reply_attributes(
        &self,
        reply: Reply<protocol::Attributes>,
        attributes: &Attributes,
    ) {
        reply.attributes(&fuse_attr_out {
            attr_valid: FOREVER_SECONDS,
            attr_valid_nsec: 0,
            dummy: 0,
            attr: self.show(u64::from(attributes.inode.0), attributes),
        });
    }

    /// What came of a change, once it is on stable storage where the mount or a flag asks for that:
    /// the inodes changed themselves, the directories their names.
    pub(crate) fn in_sync<T>(
        &self,
        inodes: &[InodeNumber],
        directories: &[InodeNumber],
        done: Result<T>,
    ) -> Result<T> {
        let value = done?;
        let of_names = |dir: &InodeNumber| {
            self.synchronous_names || self.flagged.of(*dir) & (flags::SYNC | flags::DIRSYNC) != 0
        };
        let names = directories.iter().any(of_names);
        for directory in directories.iter().filter(|dir| of_names(dir)) {
            self.engine.fsync(*directory, false)?;
        }
        for inode in inodes {
            if names || self.synchronous || self.flagged.of(*inode) & flags::SYNC != 0 {
                self.engine.fsync(*inode, false)?;
            }
        }
        Ok(value)
    }

    /// Whether a file may be opened so.
    pub(crate) fn check_open(&self, inode: InodeNumber, flags: u32) -> Result<()> {
        let flags = flags.cast_signed();
        let noted = self.flagged.of(inode);
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let cuts = flags & libc::O_TRUNC != 0;
        let appends = flags & libc::O_APPEND != 0;
        let is_refused = noted & flags::IMMUTABLE != 0 && (writes || cuts)
            || noted & flags::APPEND != 0 && (writes && !appends || cuts);
        match is_refused {
            true => Err(LayoutError::NotPermitted.into()),
            false => Ok(()),
        }
    }

    /// What the kernel wrote back from a shared mapping was refused: the page must not go on
    /// showing it.
    pub(crate) fn drop_pages_later(&self, inode: InodeNumber) {
        if let Some(invalidator) = self.invalidator.get().cloned() {
            // Not in a thread that the kernel may need for what it waits for.
            std::thread::spawn(move || {
                protocol::run_anywhere();
                invalidator.contents(inode);
            });
        }
    }

    pub(crate) fn reply_created(
        &self,
        operation: &str,
        dir: InodeNumber,
        made: Result<Attributes>,
        reply: Reply<Entry>,
    ) {
        let made =
            made.and_then(|attributes| self.in_sync(&[attributes.inode], &[dir], Ok(attributes)));
        match made {
            Ok(attributes) => self.reply_entry(reply, &attributes),
            Err(error) => reply.error(errno(operation, dir, &error)),
        }
    }

    pub(crate) fn reply_empty(
        operation: &str,
        inode: InodeNumber,
        done: Result<()>,
        reply: Reply<Empty>,
    ) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(operation, inode, &error)),
        }
    }

    /// Answers once an inode is on stable storage. Where that takes waiting, other requests get
    /// their turn meanwhile.
    pub(crate) fn fsync_and_reply(
        &self,
        operation: &'static str,
        inode: InodeNumber,
        file: Option<Arc<OpenFile>>,
        data_only: bool,
        reply: Reply<Empty>,
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
        let keeps_thread = reply.keeps_thread();
        let engine = self.engine.clone();
        let end = move || {
            let mut synced = engine.end_fsync(rest);
            if let Some(file) = file {
                synced = engine.report_once(&file, synced);
            }
            Self::reply_empty(operation, inode, synced, reply);
        };
        match keeps_thread {
            true => end(),
            false => self.waiters.run(end),
        }
    }

    /// Refuses what an append-only inode forbids and the layout cannot tell from what it allows.
    pub(crate) fn check_append_only(&self, inode: InodeNumber, is_forbidden: bool) -> Result<()> {
        match is_forbidden && self.flagged.of(inode) & flags::APPEND != 0 {
            true => Err(LayoutError::NotPermitted.into()),
            false => Ok(()),
        }
    }

    /// Applies a `SETATTR`, with the clearing of set-user-ID and set-group-ID that goes with it, or
    /// that the kernel asks for.
    pub(crate) fn change_attributes(
        &self,
        inode: InodeNumber,
        mut set: SetAttributes,
        caller: Caller,
        clears_privileges: bool,
    ) -> Result<Attributes> {
        let is_chown = set.uid.is_some() || set.gid.is_some();
        // The kernel's word for "clear the bits, whatever else": nothing is set at all. A `chown`
        // that names neither owner nor group comes like this too, and moves the time of change.
        let is_empty = set == SetAttributes::default();
        if set.permissions.is_none() && (is_chown || is_empty || clears_privileges) {
            let before = self.engine.attributes(inode)?;
            set.permissions = privileges::after_change(&before, caller);
        }
        let engine = self.engine.for_user(Some(caller.user()));
        let done = engine.set_attributes(inode, &set);
        self.in_sync(&[inode], &[], done)
    }

    /// Clears set-user-ID and set-group-ID after the contents were changed by somebody who may not
    /// keep them.
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
    ///
    /// Pages that the kernel writes out of its cache are nobody's: it does not say who changed
    /// them, and that program was told long ago that they are written. So these may take what is
    /// reserved for root, as they may where Linux's own ext2 writes a hole of a mapped file.
    pub(crate) fn write_with_flags(
        &self,
        user: User,
        inode: InodeNumber,
        write: &fuse_write_in,
        data: &[u8],
    ) -> Result<usize> {
        let (offset_bytes, flags) = (write.offset, write.flags.cast_signed());
        let is_mapped = write.write_flags & FUSE_WRITE_CACHE != 0;
        let noted = self.flagged.of(inode);
        let written = match noted & flags::APPEND != 0 {
            true if is_mapped => self.append_from_pages(inode, offset_bytes, data)?,
            true if flags & libc::O_APPEND == 0 => {
                return Err(LayoutError::NotPermitted.into());
            }
            _ => {
                let engine = self.engine.for_user((!is_mapped).then_some(user));
                engine.write(inode, offset_bytes, data)?
            }
        };
        if write.write_flags & FUSE_WRITE_KILL_SUIDGID != 0 {
            self.clear_after_write(inode)?;
        }
        // The kernel follows a synchronous write with FSYNC, but not one that went around its
        // cache, and it does not know of flags.
        let asks = flags & libc::O_DSYNC != 0 || self.synchronous;
        if flags & libc::O_DIRECT != 0 && asks || noted & flags::SYNC != 0 && !is_mapped {
            let data_only = flags & libc::O_SYNC != libc::O_SYNC;
            self.engine.fsync(inode, data_only)?;
        }
        Ok(written)
    }

    /// Pages that the kernel gathered of an append-only file: what is there already has to be the
    /// same.
    fn append_from_pages(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        let end = self.engine.attributes(inode)?.size_bytes;
        let there = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let there = there.min(data.len());
        let mut found = vec![0; there];
        let read = self.engine.read_into(inode, offset, &mut found)?;
        if read != there || found != data[..there] {
            return Err(LayoutError::NotPermitted.into());
        }
        match data[there..].is_empty() {
            true => Ok(data.len()),
            false => Ok(there
                + self
                    .engine
                    .write(inode, offset + there as u64, &data[there..])?),
        }
    }

    pub(crate) fn new_inode<'a>(
        &self,
        request: &Request,
        directory: InodeNumber,
        file_type: FileType,
        mode: u32,
        umask: u32,
        target: &'a [u8],
    ) -> NewInode<'a> {
        let of_directory = self
            .group_of_directory
            .then(|| self.engine.attributes(directory).ok())
            .flatten();
        NewInode {
            file_type,
            permissions: (mode & 0o7777) as u16,
            umask: if self.umask_is_ours {
                (umask & 0o777) as u16
            } else {
                0
            },
            uid: request.uid,
            gid: of_directory.map_or(request.gid, |dir| dir.gid),
            device_number: 0,
            target,
        }
    }

    /// What the kernel is asked for, of what it offers.
    pub(crate) fn choose(&mut self, offer: &Offer) -> u64 {
        let mut wanted = abi::FUSE_DONT_MASK
            | abi::FUSE_HANDLE_KILLPRIV_V2
            | abi::FUSE_DO_READDIRPLUS
            | abi::FUSE_READDIRPLUS_AUTO
            | abi::FUSE_PARALLEL_DIROPS
            | abi::FUSE_CACHE_SYMLINKS
            | abi::FUSE_EXPLICIT_INVAL_DATA
            | abi::FUSE_NO_OPEN_SUPPORT
            | abi::FUSE_EXPORT_SUPPORT
            | abi::FUSE_NO_OPENDIR_SUPPORT;
        if self.check_permissions && self.xattrs && !self.squash.is_any() {
            // It switches the kernel's checks on, whatever the mount options say.
            wanted |= abi::FUSE_POSIX_ACL;
        }
        if self.writeback_cache {
            wanted |= abi::FUSE_WRITEBACK_CACHE;
        }
        let has = |flag: u32| offer.flags & u64::from(flag) != 0;
        self.umask_is_ours = has(abi::FUSE_DONT_MASK);
        let is_told = self.open_files.is_some();
        self.no_open = !is_told && !self.check_open && has(abi::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = !is_told && has(abi::FUSE_NO_OPENDIR_SUPPORT);
        if offer.over_io_uring {
            self.turns = None;
        }
        u64::from(wanted)
    }
}

impl Front {
    /// Moves the access time after a read, where the policy says so.
    pub(crate) fn touch(&self, inode: InodeNumber) {
        if let Some(rule) = self.access_times.rule {
            self.engine.touch_accessed(inode, rule);
        }
    }

    /// The same for a directory.
    pub(crate) fn touch_directory(&self, inode: InodeNumber) {
        if self.access_times.of_directories {
            self.touch(inode);
        }
    }

    /// Whether ACLs are left out: they would say otherwise than what is shown.
    pub(crate) fn hides_acls(&self) -> bool {
        self.squash.is_any()
    }
}
