//! An image's tree.

use super::{CAPABILITY, Meta, Preserve, Source, Target, Xattr};
use crate::error::Result;
use crate::image::{Held, Image, SYMLINKS_MAX};
use crate::paths::{joined, split_last};
use backstitch_vfs::{
    Allocate, Attributes, Engine, FileType, GroupId, LayoutError, NewInode, RenameMode, Seek,
    SetAttributes, SetXattrMode,
};
use std::cell::Cell;

/// The tree of an image that is open in process.
pub struct ImageTree<'a> {
    pub(crate) image: &'a Image,
    umask: u16,
    /// The group under which operations are done now: a file's contents are then on the disk before
    /// its name.
    order: Cell<Option<GroupId>>,
}

/// A file in an image, with the path by which it was reached.
pub struct ImageNode {
    pub(crate) held: Held,
    pub(crate) path: Vec<u8>,
}

impl<'a> ImageTree<'a> {
    /// The tree of `image`; new files get their permissions less the caller's umask.
    pub fn new(image: &'a Image) -> ImageTree<'a> {
        ImageTree {
            image,
            umask: super::host::umask(),
            order: Cell::new(None),
        }
    }

    /// Runs an operation in the order that was begun.
    fn run<R>(
        &self,
        path: &[u8],
        work: impl FnOnce(&Engine) -> backstitch_vfs::Result<R>,
    ) -> Result<R> {
        let engine = &self.image.engine;
        let done = match self.order.get() {
            Some(group) => engine.under(&[group], || work(engine)),
            None => work(engine),
        };
        self.at(path, done)
    }

    /// The file at a path.
    pub fn node(&self, path: &[u8], follow: bool) -> Result<ImageNode> {
        Ok(ImageNode {
            held: self.image.resolve(path, follow)?,
            path: path.to_vec(),
        })
    }

    fn at<T>(&self, path: &[u8], done: backstitch_vfs::Result<T>) -> Result<T> {
        done.map_err(|error| self.image.error(path, error))
    }
}

fn meta(attributes: &Attributes) -> Meta {
    Meta {
        file_type: attributes.file_type,
        permissions: attributes.permissions,
        uid: attributes.uid,
        gid: attributes.gid,
        size_bytes: attributes.size_bytes,
        device_number: attributes.device_number,
        links: attributes.links,
        accessed: attributes.accessed,
        modified: attributes.modified,
        identity: (0, u64::from(attributes.inode.0)),
    }
}

impl Source for ImageTree<'_> {
    type Node = ImageNode;
    const STRICT: bool = true;

    fn name(&self, node: &ImageNode) -> String {
        self.image.place(&node.path).to_string()
    }

    fn meta(&self, node: &ImageNode) -> Result<Meta> {
        let attributes = self.image.engine.attributes(node.held.inode());
        Ok(meta(&self.at(&node.path, attributes)?))
    }

    fn names(&self, node: &ImageNode) -> Result<Vec<Vec<u8>>> {
        self.at(&node.path, self.image.names(node.held.inode()))
    }

    fn child(&self, dir: &ImageNode, name: &[u8]) -> Result<ImageNode> {
        let path = joined(&dir.path, name);
        let attributes = self.at(&path, self.image.engine.lookup(dir.held.inode(), name))?;
        Ok(ImageNode {
            held: self.image.hold(attributes),
            path,
        })
    }

    fn read_link(&self, node: &ImageNode) -> Result<Vec<u8>> {
        self.at(&node.path, self.image.engine.read_link(node.held.inode()))
    }

    fn next_data(&self, node: &ImageNode, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let inode = node.held.inode();
        let start = match self.image.engine.seek(inode, offset, Seek::Data) {
            Err(backstitch_vfs::Error::Layout(LayoutError::NoSuchAddress)) => return Ok(None),
            other => self.at(&node.path, other)?,
        };
        let end = self.at(&node.path, self.image.engine.seek(inode, start, Seek::Hole))?;
        Ok((start < end).then_some((start, end)))
    }

    fn read(&self, node: &ImageNode, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        self.at(
            &node.path,
            self.image.engine.read(node.held.inode(), offset, len, into),
        )
    }

    fn xattrs(&self, node: &ImageNode) -> Result<Vec<Xattr>> {
        let inode = node.held.inode();
        let names = match self.image.engine.list_xattrs(inode) {
            Err(backstitch_vfs::Error::Layout(LayoutError::NotSupported)) => Vec::new(),
            other => self.at(&node.path, other)?,
        };
        let names = names
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty());
        let value = |name: &[u8]| self.at(&node.path, self.image.engine.get_xattr(inode, name));
        names
            .map(|name| Ok((name.to_vec(), value(name)?)))
            .collect()
    }
}

impl Target for ImageTree<'_> {
    fn place(&self, dir: &ImageNode, name: &[u8]) -> String {
        self.image.place(&joined(&dir.path, name)).to_string()
    }

    fn find(&self, dir: &ImageNode, name: &[u8]) -> Result<Option<(ImageNode, FileType)>> {
        let path = joined(&dir.path, name);
        match self.image.engine.lookup(dir.held.inode(), name) {
            Ok(attributes) => {
                let held = self.image.hold(attributes);
                Ok(Some((ImageNode { held, path }, attributes.file_type)))
            }
            Err(backstitch_vfs::Error::Layout(LayoutError::NotFound)) => Ok(None),
            Err(error) => Err(self.image.error(&path, error)),
        }
    }

    fn create(
        &self,
        dir: &ImageNode,
        name: &[u8],
        meta: &Meta,
        link_target: &[u8],
    ) -> Result<ImageNode> {
        let path = joined(&dir.path, name);
        let is_symlink = meta.file_type == FileType::Symlink;
        let new = NewInode {
            file_type: meta.file_type,
            permissions: if is_symlink {
                0o777
            } else {
                meta.permissions & 0o777
            },
            umask: if is_symlink { 0 } else { self.umask },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            device_number: meta.device_number,
            target: link_target,
        };
        let made = self.run(&path, |engine| engine.create(dir.held.inode(), name, &new))?;
        Ok(ImageNode {
            held: self.image.hold(made),
            path,
        })
    }

    fn through(&self, dir: &ImageNode, name: &[u8]) -> Result<Option<(ImageNode, Vec<u8>)>> {
        let link = joined(&dir.path, name);
        let mut path = link.clone();
        let Some((mut found, FileType::Symlink)) = self.find(dir, name)? else {
            return Ok(None);
        };
        for _ in 0..SYMLINKS_MAX {
            let target = self.read_link(&found)?;
            path = match target.starts_with(b"/") {
                true => target,
                false => joined(split_last(&path).0, &target),
            };
            let (parent, name) = split_last(&path);
            let parent = self.node(parent, true)?;
            match self.find(&parent, name)? {
                Some((next, FileType::Symlink)) => found = next,
                Some(_) => return Ok(Some((parent, name.to_vec()))),
                None => {
                    let why = "the symbolic link leads to nothing";
                    return Err(self.image.error(&link, why));
                }
            }
        }
        Err(self.image.error(&path, LayoutError::Loop))
    }

    fn spool(&self) -> Result<Option<ImageNode>> {
        Ok(None)
    }

    fn stream(&self, _: &ImageNode) -> Result<Option<ImageNode>> {
        Ok(None)
    }

    fn may_write(&self, _: &ImageNode) -> bool {
        true
    }

    fn link(&self, node: &ImageNode, dir: &ImageNode, name: &[u8]) -> Result<ImageNode> {
        let path = joined(&dir.path, name);
        let made = self.run(&path, |engine| {
            engine.link(node.held.inode(), dir.held.inode(), name)
        })?;
        Ok(ImageNode {
            held: self.image.hold(made),
            path,
        })
    }

    fn remove(&self, node: &ImageNode) -> Result<()> {
        let (dir, name) = self.image.resolve_parent(&node.path)?;
        self.run(&node.path, |engine| engine.unlink(dir.inode(), name))
    }

    fn rename(&self, node: &ImageNode, dir: &ImageNode, name: &[u8]) -> Result<bool> {
        let (from, old) = self.image.resolve_parent(&node.path)?;
        self.run(&joined(&dir.path, name), |engine| {
            engine.rename(
                from.inode(),
                old,
                dir.held.inode(),
                name,
                RenameMode::Replace,
            )
        })?;
        Ok(true)
    }

    fn write(&self, node: &ImageNode, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let wrote = self.run(&node.path, |engine| {
                engine.write(node.held.inode(), at, &data[done..])
            });
            match wrote? {
                0 => return Err(self.image.error(&node.path, LayoutError::NoSpace)),
                n => done += n,
            }
        }
        Ok(())
    }

    fn set_size(&self, node: &ImageNode, size: u64) -> Result<()> {
        let set = SetAttributes {
            size_bytes: Some(size),
            ..SetAttributes::default()
        };
        self.run(&node.path, |engine| {
            engine.set_attributes(node.held.inode(), &set)
        })?;
        Ok(())
    }

    fn reserve(&self, node: &ImageNode, size: u64) -> Result<()> {
        let free = self.at(&node.path, self.image.engine.statistics())?;
        let needed = size.div_ceil(free.block_size_bytes.into());
        match needed <= free.free_blocks {
            true => Ok(()),
            false => Err(self.image.error(&node.path, LayoutError::NoSpace)),
        }
    }

    fn punch(&self, node: &ImageNode, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        self.run(&node.path, |engine| {
            engine.allocate(node.held.inode(), Allocate::PunchHole, start, end - start)
        })
    }

    fn image_file(&self) -> Option<(u64, u64)> {
        self.image.file()
    }

    fn begin_order(&self) -> Result<()> {
        let engine = &self.image.engine;
        let group = self.at(b"/", engine.group_create())?;
        self.at(b"/", engine.group_engage(group))?;
        self.order.set(Some(group));
        Ok(())
    }

    fn sync(&self, node: &ImageNode) -> Result<()> {
        if let Some(group) = self.order.get() {
            let next = self.image.engine.group_advance(group, true);
            self.order.set(Some(self.at(&node.path, next)?));
        }
        Ok(())
    }

    fn end_order(&self) {
        if let Some(group) = self.order.take() {
            // The group is ours, and engaged once: neither call can fail.
            let _ = self.image.engine.group_disengage(group);
            self.image.engine.group_close(group);
        }
    }

    fn set_xattr(&self, node: &ImageNode, (name, value): &Xattr) -> Result<bool> {
        let inode = node.held.inode();
        let set = |engine: &Engine| match engine.set_xattr(inode, name, value, SetXattrMode::Any) {
            Ok(()) => Ok(true),
            Err(backstitch_vfs::Error::Layout(LayoutError::NotSupported)) => Ok(false),
            Err(error) => Err(error),
        };
        self.run(&node.path, set)
    }

    fn take_after(&self, node: &ImageNode, other: &ImageNode) -> Result<bool> {
        let kept = Preserve {
            mode: true,
            owner: true,
            ..Preserve::default()
        };
        let owner = Preserve {
            mode: false,
            ..kept
        };
        let meta = self.meta(other)?;
        // The owner first: a change of owner removes capabilities and set-user-ID.
        self.finish(node, &meta, owner)?;
        for xattr in self.xattrs(other)? {
            // Capabilities were given to the old contents, and go with them.
            if xattr.0 != CAPABILITY {
                self.set_xattr(node, &xattr)?;
            }
        }
        self.finish(node, &meta, kept)?;
        Ok(true)
    }

    fn finish(&self, node: &ImageNode, meta: &Meta, preserve: Preserve) -> Result<()> {
        let is_symlink = meta.file_type == FileType::Symlink;
        let set = SetAttributes {
            permissions: (preserve.mode && !is_symlink).then_some(meta.permissions),
            uid: preserve.owner.then_some(meta.uid),
            gid: preserve.owner.then_some(meta.gid),
            size_bytes: None,
            accessed: preserve.times.then_some(meta.accessed),
            modified: preserve.times.then_some(meta.modified),
            flags: None,
        };
        if set != SetAttributes::default() {
            self.run(&node.path, |engine| {
                engine.set_attributes(node.held.inode(), &set)
            })?;
        }
        Ok(())
    }
}
