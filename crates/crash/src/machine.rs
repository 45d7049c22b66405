//! Runs a workload on a mount, and keeps the model of what was done and promised.

mod changes;
mod full;
mod learning;
mod lives;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher};
use backstitch_crash_core::operation::{Operation, Path};
use backstitch_layout::{
    Error, FileType, InodeNumber, RenameMode, Result, SetAttributes, Timestamp,
};
use backstitch_ordering::GroupError;

use crate::model::{Model, ObjectId};
pub(crate) use lives::prepared;

/// A mount with what was done on it.
pub(crate) struct Machine {
    pub(crate) mount: Mount,
    model: Rc<RefCell<Model>>,
    engine: Engine,
    /// The number of operations begun. The bytes that an operation writes depend on its number.
    begun: Cell<usize>,
    /// Owner, group and permissions of new objects.
    maker: (u32, u32, u16),
    /// A crash came before, and the reclaim may not have decided yet which of a directory's two
    /// names is right.
    is_unsettled: bool,
}

/// Access control lists, by their names as attributes.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

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

    /// As `new`, without reading what the image holds.
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

    /// The engine's options.
    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    /// What was done and promised so far.
    pub(crate) fn model(&self) -> Rc<RefCell<Model>> {
        self.model.clone()
    }

    /// Does one operation in memory. [`answer`](Self::answer) does what its caller waits for.
    ///
    /// # Errors
    /// The file system's answer, if it is an error; nothing was changed then. A workload may
    /// contain operations that fail.
    pub(crate) fn apply(&mut self, operation: &Operation, watcher: &mut dyn Watcher) -> Result<()> {
        let number = self.begun.get();
        self.begun.set(number + 1);
        let done = self.apply_one(operation, number, watcher);
        self.look_whether_settled()?;
        self.look_again()?;
        done
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
            Operation::Tmpfile(path, label) => self.make_unnamed(path, *label, watcher),
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
                // Without a log, a single step would leave the file with a size that nobody asked
                // for.
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
                    // Programs can set flags only of what they can open, and nothing else can be
                    // opened.
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
            // `answer` does these, or the workload goes on with another machine.
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

    /// Does what the caller of an operation waits for, and notes in the model what that promises.
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
}
