//! Adding to the model what an image holds, and side effects of operations.

use backstitch_crash_core::mount::{Nobody, Watcher};
use backstitch_crash_core::nesting::Nesting;
use backstitch_layout::{Attributes, DirectoryEntry, FileType, InodeNumber, Result};
use backstitch_ordering::Operation as Scope;

use super::{ACLS, Machine};
use crate::contents::Contents;
use crate::model::{New, ObjectId, ROOT};
use crate::promises::read_file;

impl Machine {
    /// Adds all that the image holds to the model, as on stable storage.
    pub(super) fn learn_all(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.learn_all_of(None, watcher)
    }

    pub(super) fn learn_all_of(
        &mut self,
        nesting: Option<&Nesting>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let root = self.mount.fs.root();
        let root = self.learn(root, watcher)?;
        debug_assert_eq!(root, ROOT);
        self.learn_directory(root, nesting, watcher)?;
        // The clock must not be behind the times of an earlier life.
        if let Some(newest) = self.model.borrow().newest_time() {
            self.mount.come_after(newest);
        }
        self.model.borrow_mut().promise_all();
        Ok(())
    }

    pub(super) fn attributes(&mut self, inode: InodeNumber) -> Result<Attributes> {
        self.mount.look(|fs, v, _| fs.attributes(v, inode))
    }

    /// The attributes that the model covers: those of programs, and access control lists.
    pub(super) fn xattrs(&mut self, inode: InodeNumber) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
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

    pub(super) fn learn(
        &mut self,
        inode: InodeNumber,
        watcher: &mut dyn Watcher,
    ) -> Result<ObjectId> {
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
        let is_regular = attributes.file_type == FileType::Regular;
        let new = New {
            attributes,
            xattrs: self.xattrs(inode)?,
            target,
            contents,
        };
        let id = self.model.borrow_mut().add(new, None);
        if is_regular {
            self.note_places(id)?;
        }
        Ok(id)
    }

    /// The file of an inode that was already found by another name.
    pub(super) fn known(&mut self, inode: InodeNumber) -> Result<Option<ObjectId>> {
        let attributes = self.attributes(inode)?;
        let model = self.model.borrow();
        Ok(model.identify(inode, attributes.generation))
    }

    /// The names in a directory, and what they stand for.
    pub(super) fn names_in(
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

    /// Adds what a directory of the image holds to the model.
    pub(super) fn learn_directory(
        &mut self,
        id: ObjectId,
        nesting: Option<&Nesting>,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let inode = self.model.borrow().inode(id);
        let names = self.names_in(inode, watcher)?;
        for (name, inode) in names {
            if nesting.is_some_and(|nesting| nesting.holds(&name)) || name == super::full::NAME {
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

    /// The reclaim has decided which of a directory's several names is right. Removes the others
    /// from the model. Anything else that is missing must still be there.
    pub(super) fn settle_second_names(&mut self) -> Result<()> {
        let directories = self.model.borrow().directories();
        for (id, inode, mut known) in directories {
            let names = self.names_in(inode, &mut Nobody)?;
            known.retain(|name| names.iter().all(|(there, _)| there != name));
            self.model.borrow_mut().settle_names(id, &known);
        }
        Ok(())
    }

    /// Adds what operations did to owners, permissions, times and access control lists to the
    /// model.
    pub(super) fn look_again(&mut self) -> Result<()> {
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
}
