//! Runs a workload on a mount, and keeps the model beside it.

mod full;
mod lives;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher};
use backstitch_crash_core::nesting::Nesting;
use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_layout::operations;
use backstitch_layout::{
    Allocate, Attributes, DirectoryEntry, Error, FileSystem, FileType, InodeNumber, NewInode,
    Rename, RenameMode, Result, SetAttributes, SetXattrMode, Stop, Timestamp,
};
use backstitch_ordering::rules::heed_flush;
use backstitch_ordering::{GroupError, Operation as Scope, Volume};

use crate::contents::Contents;
use crate::model::{Model, New, ObjectId, ROOT};
use crate::promises::read_file;
pub(crate) use lives::prepared;

/// A mount with what was done on it.
pub(crate) struct Machine {
    pub(crate) mount: Mount,
    model: Rc<RefCell<Model>>,
    engine: Engine,
    /// The number of operations begun, which tells what each of them wrote.
    begun: Cell<usize>,
    /// Owner, group and permissions of what is made.
    maker: (u32, u32, u16),
    /// A crash came before, and which of two names of a directory is the right one may be
    /// undecided.
    is_unsettled: bool,
}

/// Access control lists, by their names as attributes.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The largest file that the model keeps.
pub(crate) const MOST_BYTES: u64 = 128 << 20;

impl Machine {
    /// Mounts an image. What it holds counts as on stable storage.
    ///
    /// # Errors
    /// Where it cannot be mounted.
    pub(crate) fn new(fork: Fork, engine: Engine, watcher: &mut dyn Watcher) -> Result<Machine> {
        let nesting = fork.nesting().cloned();
        let mount = Mount::open(fork, engine, false, watcher)?;
        let mut machine = Machine::with(mount, engine);
        machine.learn_all_of(nesting.as_deref(), watcher)?;
        Ok(machine)
    }

    /// The same, that has not looked at what the image holds.
    fn over(fork: Fork, engine: Engine) -> Result<Machine> {
        let mount = Mount::open(fork, engine, false, &mut Nobody)?;
        if let Some(reason) = mount.fs.read_only_reason() {
            return Err(Error::Unsupported(reason));
        }
        Ok(Machine::with(mount, engine))
    }

    fn with(mount: Mount, engine: Engine) -> Machine {
        Machine {
            mount,
            model: Rc::default(),
            engine,
            begun: Cell::new(0),
            maker: (0, 0, 0o755),
            is_unsettled: false,
        }
    }

    /// What the image holds counts as on stable storage.
    fn learn_all(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.learn_all_of(None, watcher)
    }

    fn learn_all_of(&mut self, nesting: Option<&Nesting>, watcher: &mut dyn Watcher) -> Result<()> {
        let root = self.mount.fs.root();
        let root = self.learn(root, watcher)?;
        debug_assert_eq!(root, ROOT);
        self.learn_directory(root, nesting, watcher)?;
        // The clock of a life goes on from the one before.
        if let Some(newest) = self.model.borrow().newest_time() {
            self.mount.come_after(newest);
        }
        self.model.borrow_mut().promise_all();
        Ok(())
    }

    /// How it runs.
    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    fn attributes(&mut self, inode: InodeNumber) -> Result<Attributes> {
        self.mount.look(|fs, v, _| fs.attributes(v, inode))
    }

    /// The attributes that a model knows: those of programs, and access control lists.
    fn xattrs(&mut self, inode: InodeNumber) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.mount.look(|fs, v, _| {
            let names = fs.list_xattrs(v, inode)?;
            let names = names.split(|byte| *byte == 0);
            let known = names.filter(|name| name.starts_with(b"user.") || ACLS.contains(name));
            let mut found = Vec::new();
            for name in known {
                found.push((name.to_vec(), fs.xattr(v, inode, name)?));
            }
            Ok(found)
        })
    }

    fn learn(&mut self, inode: InodeNumber, watcher: &mut dyn Watcher) -> Result<ObjectId> {
        let attributes = self.attributes(inode)?;
        let contents = match attributes.file_type {
            FileType::Regular => read_file(&mut self.mount, inode, 0..attributes.size_bytes)?,
            _ => Contents::default(),
        };
        let target = match attributes.file_type {
            FileType::Symlink => self.mount.run(Scope::Administration, watcher, |fs, v, _| {
                fs.read_link(v, inode)
            })?,
            _ => Vec::new(),
        };
        let new = New {
            attributes,
            xattrs: self.xattrs(inode)?,
            target,
            contents,
        };
        Ok(self.model.borrow_mut().add(new, None))
    }

    /// A file that was found by another name already.
    fn known(&mut self, inode: InodeNumber) -> Result<Option<ObjectId>> {
        let attributes = self.attributes(inode)?;
        let model = self.model.borrow();
        Ok(model.identify(inode, attributes.generation))
    }

    /// The names in a directory, and what they stand for.
    fn names_in(
        &mut self,
        directory: InodeNumber,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<(Vec<u8>, InodeNumber)>> {
        self.mount.run(Scope::Administration, watcher, |fs, v, _| {
            let mut names = Vec::new();
            let mut emit = |entry: &DirectoryEntry<'_>| {
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.inode));
                }
                true
            };
            fs.read_directory(v, directory, 0, &mut emit)?;
            Ok(names)
        })
    }

    /// What a directory of the image holds from the start.
    fn learn_directory(
        &mut self,
        id: ObjectId,
        nesting: Option<&Nesting>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let inode = self.model.borrow().inode(id);
        let names = self.names_in(inode, watcher)?;
        for (name, inode) in names {
            if nesting.is_some_and(|nesting| nesting.holds(&name)) || name == full::NAME {
                self.model.borrow_mut().foreign.insert(inode);
                continue;
            }
            let known = self.known(inode)?;
            let child = match known {
                Some(child) => child,
                None => self.learn(inode, watcher)?,
            };
            self.model.borrow_mut().enter(id, &name, child);
            if known.is_some() {
                continue;
            }
            if self.model.borrow().object(child).kind == FileType::Directory {
                self.learn_directory(child, None, watcher)?;
            }
        }
        Ok(())
    }

    /// Takes names away that are not there any more: what a directory had beside its right name.
    fn forget_missing_names(&mut self) -> Result<()> {
        let directories = self.model.borrow().directories();
        for (id, inode, known) in directories {
            let names = self.names_in(inode, &mut Nobody)?;
            for name in known {
                if !names.iter().any(|(there, _)| *there == name) {
                    self.model.borrow_mut().take_away(id, &name);
                }
            }
        }
        Ok(())
    }

    /// What was done and promised so far.
    pub(crate) fn model(&self) -> Rc<RefCell<Model>> {
        self.model.clone()
    }

    /// Does one operation in memory. What its caller waits for is done by [`answer`](Self::answer).
    ///
    /// # Errors
    /// What the file system says to it; nothing was changed then. A workload may contain such
    /// operations.
    pub(crate) fn apply(&mut self, operation: &Operation, watcher: &mut dyn Watcher) -> Result<()> {
        let number = self.begun.get();
        self.begun.set(number + 1);
        let done = self.apply_one(operation, number, watcher);
        self.look_whether_settled()?;
        self.look_again()?;
        done
    }

    /// What operations did to owners, permissions, times and access control lists.
    fn look_again(&mut self) -> Result<()> {
        let objects = self.model.borrow().objects.len();
        for id in 0..objects {
            let (inode, lists) = {
                let model = self.model.borrow();
                let object = model.object(id);
                if object.names.is_empty() && id != ROOT {
                    continue;
                }
                let names = object.xattrs.keys();
                let lists = names.filter(|name| ACLS.contains(&&name[..])).cloned();
                (object.inode, lists.collect::<Vec<_>>())
            };
            let attributes = self.attributes(inode)?;
            self.model.borrow_mut().note_attributes(id, &attributes);
            for name in lists {
                let all = self.xattrs(inode)?;
                let value = all.into_iter().find(|(n, _)| *n == name).map(|(_, v)| v);
                let mut model = self.model.borrow_mut();
                if *model.object(id).xattrs[&name].current() != value {
                    model.set_xattr(id, &name, value.as_deref());
                }
            }
        }
        Ok(())
    }

    fn apply_one(
        &mut self,
        operation: &Operation,
        number: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        match operation {
            Operation::Create(path, label) => {
                self.make(path, FileType::Regular, &[], *label, watcher)
            }
            Operation::Mkdir(path, label) => {
                self.make(path, FileType::Directory, &[], *label, watcher)
            }
            Operation::Symlink(target, path, label) => {
                self.make(path, FileType::Symlink, target, *label, watcher)
            }
            Operation::Write(path, at, data) => self.write(path, *at, data, number, watcher),
            Operation::Append(path, data) => {
                let id = self.regular(path)?;
                let end = self.model.borrow().object(id).contents.current().len();
                self.write(path, end, data, number, watcher)
            }
            Operation::Truncate(path, size) => self.truncate(path, *size, true, watcher),
            Operation::TruncateStep(path, size) => {
                // Elsewhere the file has a size for a while that nobody asked for.
                let is_whole = !self.engine.ordering.has_log();
                self.truncate(path, *size, is_whole, watcher)
            }
            Operation::Allocate(path, how, at, len) => {
                self.allocate(path, *how, *at, *len, watcher)
            }
            Operation::Link(from, to) => self.link(from, to, watcher),
            Operation::Unlink(path) => self.remove(path, false, watcher),
            Operation::Rmdir(path) => self.remove(path, true, watcher),
            Operation::Rename(from, to) => self.rename(from, to, RenameMode::Replace, watcher),
            Operation::Exchange(one, other) => {
                self.rename(one, other, RenameMode::Exchange, watcher)
            }
            Operation::Chmod(path, bits) => {
                let permissions = Some(*bits);
                let set = SetAttributes {
                    permissions,
                    ..SetAttributes::default()
                };
                self.set_attributes(path, &set, watcher)
            }
            Operation::Utimes(path, accessed, modified) => {
                let at = |seconds: &u32| {
                    Some(Timestamp {
                        seconds: (*seconds).into(),
                        nanoseconds: 0,
                    })
                };
                let set = SetAttributes {
                    accessed: at(accessed),
                    modified: at(modified),
                    ..SetAttributes::default()
                };
                self.set_attributes(path, &set, watcher)
            }
            Operation::Chown(path, uid, gid) => {
                let (uid, gid) = (Some(*uid), Some(*gid));
                let set = SetAttributes {
                    uid,
                    gid,
                    ..SetAttributes::default()
                };
                self.set_attributes(path, &set, watcher)
            }
            Operation::Chattr(path, flags) => {
                let id = self.find(path)?;
                let kind = self.model.borrow().object(id).kind;
                if !matches!(kind, FileType::Regular | FileType::Directory) {
                    // No program can open anything else to set flags of it.
                    return Err(Error::Invalid);
                }
                let set = SetAttributes {
                    flags: Some(*flags),
                    ..SetAttributes::default()
                };
                self.set_attributes(path, &set, watcher)?;
                self.model.borrow_mut().set_flags(id, *flags);
                Ok(())
            }
            Operation::As(uid, gid, bits) => {
                self.maker = (*uid, *gid, *bits);
                Ok(())
            }
            Operation::Said(_) => Ok(()),
            Operation::Engage(_) | Operation::Disengage(_) | Operation::Depend(..) => {
                self.change_groups(operation).map_err(|_| Error::Invalid)
            }
            Operation::SetXattr(path, name, value) => {
                self.set_xattr(path, name, Some(value), watcher)
            }
            Operation::RemoveXattr(path, name) => self.set_xattr(path, name, None, watcher),
            Operation::SetAcl(path) => self.set_acl(path, watcher),
            Operation::Open(path) => {
                let inode = self.inode_at(path)?;
                self.mount.fs.hold(inode);
                Ok(())
            }
            Operation::Close(path) => {
                let inode = self.inode_at(path)?;
                self.mount.fs.release(inode);
                Ok(())
            }
            Operation::Work => self.mount.work(watcher).map(drop),
            Operation::LogClose => self.mount.commit(watcher).map(drop),
            Operation::Round => self.mount.round(watcher),
            Operation::Reclaim(steps) => self.mount.reclaim_steps(*steps, watcher),
            Operation::LogTail => self.mount.free_log(watcher),
            Operation::Fsync(path) | Operation::Fdatasync(path) => self.find(path).map(drop),
            // The caller waits for these, or goes on with another machine.
            Operation::Sync
            | Operation::SyncGroup(_)
            | Operation::Crash(_)
            | Operation::Cut
            | Operation::Remount(_)
            | Operation::LogBlocks(_)
            | Operation::LogSequence(_)
            | Operation::FewBlocks(_) => Ok(()),
        }
    }

    /// Does what the caller of an operation waits for; what that promises counts from here on.
    ///
    /// # Errors
    /// The engine's; a device's, for example.
    pub(crate) fn answer(
        &mut self,
        operation: &Operation,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        self.mount.settle_waiting(watcher)?;
        match operation {
            Operation::Fsync(path) => self.fsync(path, false, watcher)?,
            Operation::Fdatasync(path) => self.fsync(path, true, watcher)?,
            Operation::Sync => {
                self.mount.fs.retry_deferred();
                self.mount.drain(watcher)?;
                self.model.borrow_mut().promise_all();
            }
            Operation::SyncGroup(number) => {
                self.mount.sync_group(*number, watcher)?;
                self.model.borrow_mut().promise_group(*number);
            }
            _ => {}
        }
        if self.engine.ordering.promises().answers_once_stable {
            self.model.borrow_mut().promise_metadata();
        }
        if self.is_unsettled {
            self.model.borrow_mut().doubt_second_names();
        }
        Ok(())
    }

    fn change_groups(&mut self, operation: &Operation) -> std::result::Result<(), GroupError> {
        self.mount.change_groups(operation)?;
        let mut model = self.model.borrow_mut();
        if let Operation::Depend(after, before) = *operation {
            model.comes_after.insert((after, before));
        }
        model.under = self.mount.engaged_numbers().collect();
        Ok(())
    }

    fn inode_at(&self, path: &Path) -> Result<InodeNumber> {
        let id = self.find(path)?;
        Ok(self.model.borrow().inode(id))
    }

    fn find(&self, path: &Path) -> Result<ObjectId> {
        self.model.borrow().find(path).ok_or(Error::NotFound)
    }

    fn regular(&self, path: &Path) -> Result<ObjectId> {
        let id = self.find(path)?;
        match self.model.borrow().object(id).kind {
            FileType::Regular => Ok(id),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    fn parent<'p>(&self, path: &'p Path) -> Result<(ObjectId, InodeNumber, &'p [u8])> {
        let model = self.model.borrow();
        let (directory, name) = model.parent(path).ok_or(Error::NotFound)?;
        Ok((directory, model.inode(directory), name))
    }

    fn make(
        &mut self,
        path: &Path,
        kind: FileType,
        target: &[u8],
        label: Option<u32>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let (directory, parent, name) = self.parent(path)?;
        let new = NewInode {
            file_type: kind,
            permissions: self.maker.2,
            umask: 0,
            uid: self.maker.0,
            gid: self.maker.1,
            device_number: 0,
            target,
        };
        let scope = operations::create(parent, name, &new);
        let (inode, attributes) = self.mount.run(scope, watcher, |fs, v, now| {
            let inode = fs.create(v, parent, name, &new, now)?;
            Ok((inode, fs.attributes(v, inode)))
        })?;
        let attributes = attributes.map_err(Stop::into_error)?;
        let new = New {
            xattrs: self.xattrs(inode)?,
            attributes,
            contents: Contents::default(),
            target: target.to_vec(),
        };
        let id = self.model.borrow_mut().add(new, label);
        self.model.borrow_mut().enter(directory, name, id);
        Ok(())
    }

    fn write(
        &mut self,
        path: &Path,
        at: u64,
        data: &Data,
        number: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let id = self.regular(path)?;
        check_end(at, data.len() as u64)?;
        let bytes = data.bytes(number, at);
        let inode = self.model.borrow().inode(id);
        let mut done = 0;
        while done < bytes.len() {
            let scope = operations::write(inode, at + done as u64, &bytes[done..]);
            let written = self.mount.run(scope, watcher, |fs, v, now| {
                fs.write(v, inode, at + done as u64, &bytes[done..], now)
            });
            match written {
                Ok(count) => {
                    self.note_written(id, at + done as u64, &bytes[done..done + count]);
                    done += count;
                }
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note_written(&mut self, id: ObjectId, at: u64, bytes: &[u8]) {
        let mut model = self.model.borrow_mut();
        let mut contents = model.object(id).contents.current().clone();
        contents.write(at, bytes);
        model.set_contents(id, contents);
    }

    fn truncate(
        &mut self,
        path: &Path,
        size: u64,
        is_whole: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let id = self.regular(path)?;
        if size > MOST_BYTES {
            return Err(Error::FileTooLarge);
        }
        let inode = self.model.borrow().inode(id);
        let kept = size / u64::from(self.mount.block_bytes());
        self.model.borrow_mut().give_back(id, kept..u64::MAX);
        let set = SetAttributes {
            size_bytes: Some(size),
            ..SetAttributes::default()
        };
        let before = self.model.borrow().object(id).contents.clone();
        let is_shorter = size < self.model.borrow().object(id).contents.current().len();
        if is_shorter {
            // A long one is done in steps, and a crash may come between them.
            self.note_truncated(id, size);
        }
        let mut body = |fs: &mut dyn FileSystem, v: &mut Volume<'_>, now| {
            fs.set_attributes(v, inode, &set, now).map(drop)
        };
        let scope = operations::set_attributes(inode, &set);
        let done = match is_whole {
            true => self.mount.run(scope, watcher, body),
            false => (self.mount).run_step(scope, watcher, &mut body).map(drop),
        };
        if let Err(error) = done {
            self.model.borrow_mut().objects[id].contents = before;
            return Err(error);
        }
        if !is_shorter {
            self.note_truncated(id, size);
        }
        Ok(())
    }

    fn note_truncated(&mut self, id: ObjectId, size: u64) {
        let block_bytes = u64::from(self.mount.block_bytes());
        let mut contents = self.model.borrow().object(id).contents.current().clone();
        let mut model = self.model.borrow_mut();
        // The pointers go before the size does: in between, zeros stand where whole blocks were.
        let whole = size.next_multiple_of(block_bytes);
        if whole < contents.len() {
            contents.clear(whole..contents.len());
            model.set_contents(id, contents.clone());
        }
        contents.resize(size);
        model.set_contents(id, contents);
    }

    fn allocate(
        &mut self,
        path: &Path,
        how: Allocate,
        at: u64,
        len: u64,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let id = self.regular(path)?;
        check_end(at, len)?;
        let inode = self.model.borrow().inode(id);
        let before = self.model.borrow().object(id).contents.current().clone();
        let mut contents = before.clone();
        let grows = matches!(
            how,
            Allocate::Reserve { keep_size: false } | Allocate::ZeroRange { keep_size: false }
        );
        if grows && contents.len() < at + len {
            contents.resize(at + len);
        }
        if !matches!(how, Allocate::Reserve { .. }) {
            contents.clear(at..at + len);
        }
        let block_bytes = u64::from(self.mount.block_bytes());
        let is_reserve = matches!(how, Allocate::Reserve { .. });
        if !is_reserve {
            let blocks = at / block_bytes..(at + len).div_ceil(block_bytes);
            self.model.borrow_mut().give_back(id, blocks);
        }
        // A long one is done in steps, and a crash may come between them.
        let end = (at + len).min(contents.len());
        self.model.borrow_mut().set_contents(id, contents);
        let scope = operations::allocate(inode, how, at, len);
        let done = self.mount.run(scope, watcher, |fs, v, now| {
            fs.allocate(v, inode, how, at, len, now)
        });
        let mut model = self.model.borrow_mut();
        if done.is_err() {
            model.set_contents(id, before);
        } else if is_reserve {
            model.reserve(id, at / block_bytes..end.div_ceil(block_bytes));
        }
        done.map(drop)
    }

    fn link(&mut self, from: &Path, to: &Path, watcher: &mut dyn Watcher) -> Result<()> {
        let id = self.find(from)?;
        let inode = self.model.borrow().inode(id);
        let (directory, parent, name) = self.parent(to)?;
        let scope = operations::link(inode, parent, name);
        self.mount.run(scope, watcher, |fs, v, now| {
            fs.link(v, inode, parent, name, now)
        })?;
        self.model.borrow_mut().enter(directory, name, id);
        Ok(())
    }

    fn remove(&mut self, path: &Path, directory: bool, watcher: &mut dyn Watcher) -> Result<()> {
        let (parent, inode, name) = self.parent(path)?;
        let scope = operations::remove(inode, name, directory);
        self.mount.run(scope, watcher, |fs, v, now| {
            if directory {
                fs.remove_directory(v, inode, name, now)
            } else {
                fs.unlink(v, inode, name, now)
            }
        })?;
        self.model.borrow_mut().remove(parent, name);
        Ok(())
    }

    fn set_attributes(
        &mut self,
        path: &Path,
        set: &SetAttributes,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let inode = self.inode_at(path)?;
        let scope = operations::set_attributes(inode, set);
        self.mount.run(scope, watcher, |fs, v, now| {
            fs.set_attributes(v, inode, set, now).map(drop)
        })
    }

    fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        mode: RenameMode,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let id = self.find(from)?;
        let (from_directory, from_inode, from_name) = self.parent(from)?;
        let (to_directory, to_inode, to_name) = self.parent(to)?;
        let rename = Rename {
            from: from_inode,
            from_name,
            to: to_inode,
            to_name,
            mode,
        };
        let moved = [Some(id), self.model.borrow().child(to_directory, to_name)];
        let mut are_new = [false; 2];
        for (is_new, id) in are_new.iter_mut().zip(moved) {
            *is_new = match id {
                Some(id) => self.is_new_file(id),
                None => false,
            };
        }
        let scope = operations::rename(&rename);
        self.mount
            .run(scope, watcher, |fs, v, now| fs.rename(v, &rename, now))?;
        // Two names of one file: a rename of the one to the other does nothing.
        let other = self.model.borrow().child(to_directory, to_name);
        if other != Some(id) {
            let mut model = self.model.borrow_mut();
            let (from, to) = ((from_directory, from_name), (to_directory, to_name));
            if mode == RenameMode::Exchange {
                model.exchange(from, to);
                if are_new[1] {
                    model.note_moved_new(from.0, from.1);
                }
            } else {
                model.enter(to.0, to.1, id);
                model.remove(from.0, from.1);
                model.note_arrival(to.0, from);
            }
            if are_new[0] {
                model.note_moved_new(to.0, to.1);
            }
        }
        Ok(())
    }

    /// Whether nothing of a regular file is on the disk, which then has no inode for it.
    fn is_new_file(&mut self, id: ObjectId) -> bool {
        let (kind, inode) = {
            let model = self.model.borrow();
            (model.object(id).kind, model.inode(id))
        };
        let fork = self.mount.fork();
        let is_ordered = self.engine.ordering.promises().keeps_order_in_place();
        if kind != FileType::Regular || !is_ordered || fork.nesting().is_some() {
            return false;
        }
        let Ok(here) = self.attributes(inode) else {
            return false;
        };
        let Ok(mut disk) = Mount::open(fork, self.engine, true, &mut Nobody) else {
            return false;
        };
        let there = disk.look(|fs, v, _| fs.attributes(v, inode));
        !there.is_ok_and(|there| there.generation == here.generation)
    }

    fn set_xattr(
        &mut self,
        path: &Path,
        name: &[u8],
        value: Option<&[u8]>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let id = self.find(path)?;
        let inode = self.model.borrow().inode(id);
        let scope = operations::set_xattr(inode, name, value);
        self.mount.run(scope, watcher, |fs, v, now| {
            fs.set_xattr(v, inode, name, value, SetXattrMode::Any, now)
        })?;
        self.model.borrow_mut().set_xattr(id, name, value);
        Ok(())
    }

    fn set_acl(&mut self, path: &Path, watcher: &mut dyn Watcher) -> Result<()> {
        let inode = self.inode_at(path)?;
        let acl = inherited_acl();
        let name = b"system.posix_acl_default";
        let scope = operations::set_xattr(inode, name, Some(&acl));
        self.mount.run(scope, watcher, |fs, v, now| {
            fs.set_xattr(v, inode, name, Some(&acl), SetXattrMode::Any, now)
        })?;
        let id = self.find(path)?;
        self.model.borrow_mut().set_xattr(id, name, Some(&acl));
        Ok(())
    }

    fn fsync(&mut self, path: &Path, data_only: bool, watcher: &mut dyn Watcher) -> Result<()> {
        let id = self.find(path)?;
        let inode = self.model.borrow().inode(id);
        let targets = self.mount.run(Scope::Administration, watcher, |fs, v, _| {
            let mut targets = Vec::new();
            fs.flush_targets(v, inode, data_only, &mut targets);
            Ok(targets)
        })?;
        heed_flush(self.mount.store.graph(), &targets);
        self.mount.sync(&targets, watcher)?;
        self.model.borrow_mut().promise(id, data_only);
        Ok(())
    }
}

/// Refuses what would make a file larger than the model keeps.
fn check_end(at: u64, len: u64) -> Result<()> {
    match at.checked_add(len) {
        Some(end) if end <= MOST_BYTES => Ok(()),
        _ => Err(Error::FileTooLarge),
    }
}

/// Read and write for the owner, the group, everybody, and user 1: more than permission bits can
/// say.
fn inherited_acl() -> Vec<u8> {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, id) in [
        (1u16, u32::MAX),
        (2, 1),
        (4, u32::MAX),
        (16, u32::MAX),
        (32, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(6u16.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}
