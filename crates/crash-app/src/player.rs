//! Repeats a trace in this thread, under a schedule of write-back, and calls an audience at every
//! moment at which a crash may come.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Recorder, Watcher};
use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_crash_core::schedule::Schedule;
use backstitch_layout::operations;
use backstitch_layout::{
    DirectoryEntry, Error, FileType, InodeNumber, NewInode, Rename, RenameMode, Result,
    SetAttributes, SetXattrMode,
};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Operation as Scope;
use backstitch_store::{Batch, Goal};
use rustc_hash::FxHashMap;

use fastrand::Rng as Random;

use crate::error::{AppError, AppResult};
use crate::trace::Trace;
use crate::tree::Tree;
use crate::variant::{Variant, WriteBack};

/// A moment at which a crash may come.
pub(crate) struct Moment<'a> {
    /// Its number, from the start of the run.
    pub(crate) number: usize,
    /// Operations that have begun.
    pub(crate) begun: usize,
    /// Lines that the program had said.
    pub(crate) said: usize,
    pub(crate) mount: &'a Mount,
    /// The names of the files.
    pub(crate) tree: &'a Tree,
    /// The recorder of the run's patches, if there is one.
    pub(crate) recorder: Option<&'a Recorder>,
}

/// Called at each moment. False ends the run.
pub(crate) type Audience<'a> = &'a mut dyn FnMut(&Moment<'_>) -> bool;

/// Runs a trace from an image on. Returns the errors with which operations failed.
pub(crate) fn play(
    image: &Fork,
    trace: &Trace,
    ordering: Ordering,
    variant: &Variant,
    audience: Audience<'_>,
) -> AppResult<Vec<String>> {
    play_with(image, trace, (ordering, variant), false, audience)
}

/// As [`play`], and records what happens in the patch graph.
pub(crate) fn play_recorded(
    image: &Fork,
    trace: &Trace,
    ordering: Ordering,
    variant: &Variant,
    audience: Audience<'_>,
) -> AppResult<()> {
    play_with(image, trace, (ordering, variant), true, audience).map(drop)
}

fn play_with(
    image: &Fork,
    trace: &Trace,
    (ordering, variant): (Ordering, &Variant),
    is_recorded: bool,
    audience: Audience<'_>,
) -> AppResult<Vec<String>> {
    let engine = Engine {
        ordering,
        optimisations: variant.optimisations,
        unit_bytes: None,
    };
    let failed = |number: usize| {
        move |error: Error| AppError::Replay {
            number,
            operation: match number {
                0 => "mount".to_owned(),
                _ => shortened(&trace.operations[number - 1]),
            },
            error,
        }
    };
    let mut player = Player::new(image, engine).map_err(failed(0))?;
    let recorder = is_recorded.then(|| player.mount.record());
    let mut stage = Stage {
        recorder,
        number: 0,
        begun: 0,
        said: 0,
        unseen: match variant.write_back {
            WriteBack::Always(..) => trace.setup,
            // The moments up to there are those of a run in which nothing is written.
            WriteBack::Once(number) => trace.setup.max(number),
        },
        over: false,
        tree: player.tree.clone(),
        audience,
    };
    let mut random = Random::with_seed(variant.seed() ^ 0x5ca1_ab1e);
    let mut refused = Vec::new();
    for (at, operation) in trace.operations.iter().enumerate() {
        stage.begun = at + 1;
        if let Operation::Said(said) = operation {
            stage.said += said.len();
        }
        match player.perform(operation, &mut stage) {
            Ok(()) => {}
            Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
                return Err(failed(at + 1)(error));
            }
            Err(error) => refused.push(format!("{}: {error}", shortened(operation))),
        }
        if changes(operation) {
            let schedule = variant.schedule_after(at + 1);
            write_back(&mut player.mount, schedule, &mut random, &mut stage)
                .map_err(failed(at + 1))?;
        }
        if stage.over {
            return Ok(refused);
        }
    }
    let last = trace.operations.len();
    player.mount.drain(&mut stage).map_err(failed(last))?;
    Ok(refused)
}

/// An operation without the bytes that it writes.
pub(crate) fn shortened(operation: &Operation) -> String {
    match operation {
        Operation::Write(path, at, Data::Bytes(bytes)) => {
            format!("write {path} {at} {}", bytes.len())
        }
        other => other.to_string(),
    }
}

/// The bytes that a write puts into a file. A trace that somebody edited may ask for more than fits
/// in memory.
fn bytes_of(data: &Data, at: u64) -> Result<Vec<u8>> {
    const MOST_BYTES: usize = 1 << 30;
    match data {
        Data::Pattern(len) if *len > MOST_BYTES || at.checked_add(*len as u64).is_none() => {
            Err(Error::FileTooLarge)
        }
        data => Ok(data.bytes(0, at)),
    }
}

/// Whether an operation changes anything of which a crash may lose a part.
pub(crate) fn changes(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::Open(_)
            | Operation::Close(_)
            | Operation::As(..)
            | Operation::Said(_)
            | Operation::Engage(_)
            | Operation::Disengage(_)
            | Operation::Depend(..)
    )
}

/// What the schedule writes between two operations.
fn write_back(
    mount: &mut Mount,
    schedule: Schedule,
    random: &mut Random,
    stage: &mut Stage<'_, '_>,
) -> Result<()> {
    match schedule {
        Schedule::Nothing => drop(mount.work(stage)?),
        Schedule::Everything => mount.drain(stage)?,
        Schedule::Partial => {
            if random.usize(..2) == 0 {
                mount.work(stage)?;
            }
            if random.usize(..2) == 0 {
                let mut some = Vec::new();
                mount.store.uncommitted(&mut some);
                let wanted = 1 + random.usize(..3);
                while some.len() > wanted {
                    some.swap_remove(random.usize(..some.len()));
                }
                mount.write_out(Goal::Patches(&some), stage)?;
            }
        }
    }
    Ok(())
}

/// Watches the engine, counts the moments, and calls the audience.
struct Stage<'a, 'b> {
    recorder: Option<Arc<Recorder>>,
    number: usize,
    begun: usize,
    said: usize,
    /// The operations at the beginning whose moments the audience does not see.
    unseen: usize,
    over: bool,
    tree: Rc<RefCell<Tree>>,
    audience: &'a mut (dyn FnMut(&Moment<'_>) -> bool + 'b),
}

impl Watcher for Stage<'_, '_> {
    /// No moment of its own: any part of a batch is also a set of patches of the moment before it.
    fn in_flight(&mut self, _mount: &Mount, _batch: &Batch) {}

    fn at_rest(&mut self, mount: &Mount) {
        if self.begun <= self.unseen || self.over {
            return;
        }
        self.number += 1;
        let moment = Moment {
            number: self.number,
            begun: self.begun,
            said: self.said,
            mount,
            tree: &self.tree.borrow(),
            recorder: self.recorder.as_deref(),
        };
        self.over = !(self.audience)(&moment);
    }
}

struct Player {
    mount: Mount,
    /// The inodes here, by their numbers in the recording.
    labels: FxHashMap<u32, InodeNumber>,
    tree: Rc<RefCell<Tree>>,
    /// Owner, group and permissions of new objects.
    maker: (u32, u32, u16),
}

impl Player {
    fn new(image: &Fork, engine: Engine) -> Result<Player> {
        let mount = Mount::open(image.clone(), engine, false, &mut Nobody)?;
        let root = mount.fs.root();
        let mut player = Player {
            mount,
            labels: FxHashMap::default(),
            tree: Rc::new(RefCell::new(Tree::new(root))),
            maker: (0, 0, 0o755),
        };
        player.learn(root)?;
        Ok(player)
    }

    /// Learns the names that the image has from the start.
    fn learn(&mut self, root: InodeNumber) -> Result<()> {
        let mut stack = vec![root];
        while let Some(directory) = stack.pop() {
            let found = self
                .mount
                .run(Scope::Administration, &mut Nobody, |fs, v, _| {
                    let mut found = Vec::new();
                    let mut emit = |entry: &DirectoryEntry<'_>| {
                        if entry.name != b"." && entry.name != b".." {
                            let is_directory = entry.file_type == Some(FileType::Directory);
                            found.push((entry.name.to_vec(), entry.inode, is_directory));
                        }
                        true
                    };
                    fs.read_directory(v, directory, 0, &mut emit)?;
                    Ok(found)
                })?;
            for (name, inode, is_directory) in found {
                self.tree.borrow_mut().enter(directory, &name, inode);
                if is_directory {
                    stack.push(inode);
                }
            }
        }
        Ok(())
    }

    /// Does an operation, and what its caller waits for.
    fn perform(&mut self, operation: &Operation, stage: &mut Stage<'_, '_>) -> Result<()> {
        self.apply(operation, stage)?;
        if changes(operation) || matches!(operation, Operation::Said(_)) {
            stage.at_rest(&self.mount);
        }
        self.mount.settle_waiting(stage)?;
        match operation {
            Operation::Fsync(path) => self.fsync(path, false, stage),
            Operation::Fdatasync(path) => self.fsync(path, true, stage),
            Operation::Sync => self.mount.drain(stage),
            Operation::SyncGroup(number) => self.mount.sync_group(*number, stage),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, operation: &Operation, w: &mut dyn Watcher) -> Result<()> {
        match operation {
            Operation::Write(path, at, data) => self.write(path, *at, &bytes_of(data, *at)?, w),
            Operation::Append(path, data) => {
                let inode = self.find(path)?;
                let end = self.mount.run(Scope::Administration, w, |fs, v, _| {
                    Ok(fs.attributes(v, inode)?.size_bytes)
                })?;
                self.write(path, end, &bytes_of(data, end)?, w)
            }
            Operation::Truncate(path, size) => {
                let inode = self.find(path)?;
                self.set(inode, w, |set| set.size_bytes = Some(*size))
            }
            Operation::Chmod(path, bits) => {
                let inode = self.find(path)?;
                self.set(inode, w, |set| set.permissions = Some(*bits))
            }
            Operation::Chattr(path, flags) => {
                let inode = self.find(path)?;
                self.set(inode, w, |set| set.flags = Some(*flags))
            }
            Operation::Chown(path, uid, gid) => {
                let inode = self.find(path)?;
                self.set(inode, w, |set| {
                    (set.uid, set.gid) = (Some(*uid), Some(*gid))
                })
            }
            Operation::Allocate(path, how, at, len) => {
                let inode = self.find(path)?;
                let scope = operations::allocate(inode, *how, *at, *len);
                self.mount.run(scope, w, |fs, v, now| {
                    fs.allocate(v, inode, *how, *at, *len, now)
                })
            }
            Operation::Open(path) => {
                let inode = self.find(path)?;
                self.mount.fs.hold(inode);
                Ok(())
            }
            Operation::Close(path) => {
                let inode = self.find(path)?;
                self.mount.fs.release(inode);
                Ok(())
            }
            Operation::SetXattr(path, name, value) => self.set_xattr(path, name, Some(value), w),
            Operation::RemoveXattr(path, name) => self.set_xattr(path, name, None, w),
            other => self.apply_to_names(other, w),
        }
    }

    /// Does operations that change names, and all others that are left.
    fn apply_to_names(&mut self, operation: &Operation, w: &mut dyn Watcher) -> Result<()> {
        match operation {
            Operation::Create(path, label) => self.make(path, FileType::Regular, &[], *label, w),
            Operation::Tmpfile(path, label) => self.make_unnamed(path, *label, w),
            Operation::Mkdir(path, label) => self.make(path, FileType::Directory, &[], *label, w),
            Operation::Symlink(target, path, label) => {
                self.make(path, FileType::Symlink, target, *label, w)
            }
            Operation::Link(from, to) => self.link(from, to, w),
            Operation::Unlink(path) => self.remove(path, false, w),
            Operation::Rmdir(path) => self.remove(path, true, w),
            Operation::Rename(from, to) => self.rename(from, to, RenameMode::Replace, w),
            Operation::Exchange(one, other) => self.rename(one, other, RenameMode::Exchange, w),
            Operation::As(uid, gid, bits) => {
                self.maker = (*uid, *gid, *bits);
                Ok(())
            }
            Operation::Work => self.mount.work(w).map(drop),
            Operation::Engage(_) | Operation::Disengage(_) | Operation::Depend(..) => {
                let done = self.mount.change_groups(operation);
                done.map_err(|_| Error::Invalid)
            }
            // Only generated workloads have this.
            Operation::SetAcl(_) => Err(Error::NotSupported),
            // These do nothing, or their caller waits for them in `perform`.
            _ => Ok(()),
        }
    }

    fn find(&mut self, path: &Path) -> Result<InodeNumber> {
        let mut inode = match path.label {
            None => self.mount.fs.root(),
            // Inodes of the image have the same number here as in the recording.
            Some(label) => *self.labels.get(&label).unwrap_or(&InodeNumber(label)),
        };
        for name in &path.names {
            inode = self
                .mount
                .run(Scope::Administration, &mut Nobody, |fs, v, _| {
                    fs.lookup(v, inode, name)
                })?;
        }
        Ok(inode)
    }

    /// The directory in which a path ends, and the name there.
    fn entry<'p>(&mut self, path: &'p Path) -> Result<(InodeNumber, &'p [u8])> {
        let (name, names) = path.names.split_last().ok_or(Error::Invalid)?;
        let directory = Path {
            label: path.label,
            names: names.to_vec(),
        };
        Ok((self.find(&directory)?, name))
    }

    fn make(
        &mut self,
        path: &Path,
        kind: FileType,
        target: &[u8],
        label: Option<u32>,
        w: &mut dyn Watcher,
    ) -> Result<()> {
        let (directory, name) = self.entry(path)?;
        let new = self.new_inode(kind, target);
        let scope = operations::create(directory, name, &new);
        let inode = self.mount.run(scope, w, |fs, v, now| {
            let inode = fs.create(v, directory, name, &new, now)?;
            v.tell_made(inode.0.into());
            Ok(inode)
        })?;
        if let Some(label) = label {
            self.labels.insert(label, inode);
        }
        self.tree.borrow_mut().enter(directory, name, inode);
        Ok(())
    }

    fn make_unnamed(&mut self, path: &Path, label: Option<u32>, w: &mut dyn Watcher) -> Result<()> {
        let directory = self.find(path)?;
        let new = self.new_inode(FileType::Regular, &[]);
        let scope = operations::create_unnamed(directory, &new);
        let inode = self.mount.run(scope, w, |fs, v, now| {
            let inode = fs.create_unnamed(v, directory, &new, now)?;
            v.tell_made(inode.0.into());
            fs.hold(inode);
            Ok(inode)
        })?;
        if let Some(label) = label {
            self.labels.insert(label, inode);
        }
        Ok(())
    }

    /// What the current maker makes.
    fn new_inode<'t>(&self, file_type: FileType, target: &'t [u8]) -> NewInode<'t> {
        let (uid, gid, permissions) = self.maker;
        NewInode {
            file_type,
            permissions,
            umask: 0,
            uid,
            gid,
            device_number: 0,
            target,
        }
    }

    fn write(&mut self, path: &Path, at: u64, bytes: &[u8], w: &mut dyn Watcher) -> Result<()> {
        let inode = self.find(path)?;
        let mut done = 0;
        while done < bytes.len() {
            let scope = operations::write(inode, at + done as u64, &bytes[done..]);
            done += self.mount.run(scope, w, |fs, v, now| {
                fs.write(v, inode, at + done as u64, &bytes[done..], now)
            })?;
        }
        Ok(())
    }

    fn set(
        &mut self,
        inode: InodeNumber,
        w: &mut dyn Watcher,
        what: impl FnOnce(&mut SetAttributes),
    ) -> Result<()> {
        let mut set = SetAttributes::default();
        what(&mut set);
        let scope = operations::set_attributes(inode, &set);
        self.mount.run(scope, w, |fs, v, now| {
            fs.set_attributes(v, inode, &set, now).map(drop)
        })
    }

    fn set_xattr(
        &mut self,
        path: &Path,
        name: &[u8],
        value: Option<&[u8]>,
        w: &mut dyn Watcher,
    ) -> Result<()> {
        let inode = self.find(path)?;
        let scope = operations::set_xattr(inode, name, value);
        self.mount.run(scope, w, |fs, v, now| {
            fs.set_xattr(v, inode, name, value, SetXattrMode::Any, now)
        })
    }

    fn link(&mut self, from: &Path, to: &Path, w: &mut dyn Watcher) -> Result<()> {
        let inode = self.find(from)?;
        let (directory, name) = self.entry(to)?;
        let scope = operations::link(inode, directory, name);
        self.mount.run(scope, w, |fs, v, now| {
            fs.link(v, inode, directory, name, now)
        })?;
        self.tree.borrow_mut().enter(directory, name, inode);
        Ok(())
    }

    fn remove(&mut self, path: &Path, is_directory: bool, w: &mut dyn Watcher) -> Result<()> {
        let (directory, name) = self.entry(path)?;
        let scope = operations::remove(directory, name, is_directory);
        self.mount.run(scope, w, |fs, v, now| {
            match is_directory {
                true => fs.remove_directory(v, directory, name, now),
                false => fs.unlink(v, directory, name, now),
            }
            .map(drop)
        })?;
        self.tree.borrow_mut().remove(directory, name);
        Ok(())
    }

    fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        mode: RenameMode,
        w: &mut dyn Watcher,
    ) -> Result<()> {
        let (from, from_name) = self.entry(from)?;
        let (to, to_name) = self.entry(to)?;
        let rename = Rename {
            from,
            from_name,
            to,
            to_name,
            mode,
        };
        self.mount
            .run(operations::rename(&rename), w, |fs, v, now| {
                fs.rename(v, &rename, now).map(drop)
            })?;
        self.tree.borrow_mut().moved(&rename);
        Ok(())
    }

    fn fsync(&mut self, path: &Path, data_only: bool, w: &mut dyn Watcher) -> Result<()> {
        let inode = self.find(path)?;
        let targets = self.mount.run(Scope::Administration, w, |fs, v, _| {
            let mut targets = Vec::new();
            fs.flush_targets(v, inode, data_only, &mut targets);
            Ok(targets)
        })?;
        self.mount.sync(&targets, w)
    }
}
