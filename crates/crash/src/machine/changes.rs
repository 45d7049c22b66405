//! Each operation: the call on the mount, and the change of the model.

use std::collections::BTreeMap;

use backstitch_crash_core::mount::{Mount, Nobody, Watcher};
use backstitch_crash_core::operation::{Data, Path};
use backstitch_layout::operations;
use backstitch_layout::{
    Allocate, Attributes, Error, FileSystem, FileType, NewInode, Rename, RenameMode, Result,
    SetAttributes, SetXattrMode, Stop,
};
use backstitch_ordering::rules::heed_flush;
use backstitch_ordering::{Operation as Scope, Volume};

use super::Machine;
use crate::contents::Contents;
use crate::model::{Model, New, ObjectId};
use backstitch_crash_workloads::MOST_BYTES;

impl Machine {
    pub(super) fn make(
        &mut self,
        path: &Path,
        kind: FileType,
        target: &[u8],
        label: Option<u32>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let (directory, parent, name) = self.parent(path)?;
        let new = self.new_inode(kind, target);
        let scope = operations::create(parent, name, &new);
        let attributes = self.mount.run(scope, watcher, |fs, v, now| {
            let inode = fs.create(v, parent, name, &new, now)?;
            v.tell_made(u64::from(inode.0));
            Ok(fs.attributes(v, inode))
        })?;
        let attributes = attributes.map_err(Stop::into_error)?;
        let id = self.note_made(attributes, target, label)?;
        self.model.borrow_mut().enter(directory, name, id);
        Ok(())
    }

    pub(super) fn make_unnamed(
        &mut self,
        path: &Path,
        label: Option<u32>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let directory = self.inode_at(path)?;
        let new = self.new_inode(FileType::Regular, &[]);
        let scope = operations::create_unnamed(directory, &new);
        let attributes = self.mount.run(scope, watcher, |fs, v, now| {
            let inode = fs.create_unnamed(v, directory, &new, now)?;
            v.tell_made(u64::from(inode.0));
            fs.hold(inode);
            Ok(fs.attributes(v, inode))
        })?;
        let attributes = attributes.map_err(Stop::into_error)?;
        self.note_made(attributes, &[], label).map(drop)
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

    /// Adds what was made to the model.
    fn note_made(
        &mut self,
        attributes: Attributes,
        target: &[u8],
        label: Option<u32>,
    ) -> Result<ObjectId> {
        let new = New {
            xattrs: self.xattrs(attributes.inode)?,
            attributes,
            contents: Contents::default(),
            target: target.to_vec(),
        };
        Ok(self.model.borrow_mut().add(new, label))
    }

    pub(super) fn write(
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
                    self.note_places(id)?;
                    done += count;
                }
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn note_written(&mut self, id: ObjectId, at: u64, bytes: &[u8]) {
        let mut model = self.model.borrow_mut();
        let mut contents = model.object(id).contents.current().clone();
        contents.write(at, bytes);
        model.set_contents(id, contents);
    }

    pub(super) fn truncate(
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
            // A long truncation is done in steps, and a crash may come between them.
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
        self.note_places(id)
    }

    pub(super) fn note_truncated(&mut self, id: ObjectId, size: u64) {
        let block_bytes = u64::from(self.mount.block_bytes());
        let mut contents = self.model.borrow().object(id).contents.current().clone();
        let mut model = self.model.borrow_mut();
        // The pointers are cleared before the size shrinks: in between, whole blocks show zeros.
        let whole = size.next_multiple_of(block_bytes);
        if whole < contents.len() && !self.mount.cuts_are_atomic {
            contents.clear(whole..contents.len());
            model.set_contents(id, contents.clone());
        }
        contents.resize(size);
        model.set_contents(id, contents);
    }

    /// Notes in the model where the blocks of a file are since its newest version.
    pub(super) fn note_places(&mut self, id: ObjectId) -> Result<()> {
        let mut model = self.model.borrow_mut();
        let version = model.newest_version(id);
        note_places(&mut self.mount, &mut model, id, version)
    }

    pub(super) fn allocate(
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
        let end = (at + len).min(contents.len());
        self.model.borrow_mut().set_contents(id, contents.clone());
        let version = self.model.borrow().newest_version(id);
        let scope = operations::allocate(inode, how, at, len);
        let body = |fs: &mut dyn FileSystem, v: &mut Volume<'_>, now| {
            fs.allocate(v, inode, how, at, len, now)
        };
        // A long allocation is done in steps, and a crash may come between them: it may leave the
        // size of any step.
        let model = &self.model;
        let after_step = |mount: &mut Mount| {
            if grows {
                let size = mount.look(|fs, v, _| fs.attributes(v, inode))?.size_bytes;
                let mut so_far = contents.clone();
                so_far.resize(size);
                model.borrow_mut().note_step(id, so_far);
            }
            note_places(mount, &mut model.borrow_mut(), id, version)
        };
        let done = self.mount.run_stepwise(scope, watcher, body, after_step);
        let reached = match done {
            Err(_) if grows => self.attributes(inode)?.size_bytes,
            _ => 0,
        };
        let mut model = self.model.borrow_mut();
        note_places(&mut self.mount, &mut model, id, version)?;
        if done.is_err() {
            // As on Linux's own file systems, what was reserved before the error stays, with the
            // size.
            let mut left = before;
            left.resize(reached.max(left.len()));
            model.set_contents(id, left);
        } else if is_reserve {
            model.reserve(id, at / block_bytes..end.div_ceil(block_bytes));
        }
        done.map(drop)
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path, watcher: &mut dyn Watcher) -> Result<()> {
        let id = self.find(from)?;
        let inode = self.model.borrow().inode(id);
        let (directory, parent, name) = self.parent(to)?;
        let attributes = self.attributes(inode)?;
        let scope = operations::link(inode, parent, name);
        self.mount.run(scope, watcher, |fs, v, now| {
            fs.link(v, inode, parent, name, now)
        })?;
        let mut model = self.model.borrow_mut();
        let promises = self.engine.ordering.promises();
        if attributes.links == 0 && promises.keeps_order() {
            model.promise_whole(id, !promises.contents_may_be_stale);
        }
        model.enter(directory, name, id);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        path: &Path,
        directory: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
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

    pub(super) fn set_attributes(
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

    pub(super) fn rename(
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
        // If both are names of one file, the rename does nothing.
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

    /// Whether a regular file is not on the disk at all: the disk has no inode for it yet.
    pub(super) fn is_new_file(&mut self, id: ObjectId) -> bool {
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

    pub(super) fn set_xattr(
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

    pub(super) fn set_acl(&mut self, path: &Path, watcher: &mut dyn Watcher) -> Result<()> {
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

    pub(super) fn fsync(
        &mut self,
        path: &Path,
        data_only: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
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

/// Notes where the blocks of a file are since a version. Blocks that it was given since it was
/// flushed may show their old contents; no other blocks may.
fn note_places(mount: &mut Mount, model: &mut Model, id: ObjectId, version: usize) -> Result<()> {
    if !mount.contents_may_be_stale {
        return Ok(());
    }
    let (inode, block_bytes) = (model.inode(id), u64::from(mount.block_bytes()));
    let places = mount.look(|fs, v, _| {
        let blocks = fs.attributes(v, inode)?.size_bytes.div_ceil(block_bytes);
        let (mut places, mut at) = (BTreeMap::new(), 0);
        while at < blocks {
            let (start, count) = fs.extent(v, inode, at, blocks - at)?;
            let count = count.clamp(1, blocks - at);
            if let Some(start) = start {
                places.extend((0..count).map(|block| (at + block, start.0 + block)));
            }
            at += count;
        }
        Ok(places)
    })?;
    model.note_places(id, version, places);
    Ok(())
}

/// Refuses operations that make a file larger than the model supports.
fn check_end(at: u64, len: u64) -> Result<()> {
    match at.checked_add(len) {
        Some(end) if end <= MOST_BYTES => Ok(()),
        _ => Err(Error::FileTooLarge),
    }
}

/// Read and write permission for the owner, the group, everybody, and user 1, which permission bits
/// cannot express.
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
