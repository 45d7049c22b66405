//! An image's tree.

use super::{Meta, Preserve, Source, Target, Xattr};
use crate::error::Result;
use crate::image::{Held, Image, joined};
use backstitch_vfs::{
    Attributes, FileType, LayoutError, NewInode, Seek, SetAttributes, SetXattrMode, Timestamp,
};

/// The tree of an image that is open in process.
pub(crate) struct ImageTree<'a> {
    pub(crate) image: &'a Image,
    umask: u16,
}

/// A file in an image, with the path by which it was reached.
pub(crate) struct ImageNode {
    pub(crate) held: Held,
    pub(crate) path: Vec<u8>,
}

impl<'a> ImageTree<'a> {
    /// The tree of `image`; new files lose the permissions that the caller's umask names.
    pub(crate) fn new(image: &'a Image) -> ImageTree<'a> {
        ImageTree {
            image,
            umask: super::host::umask(),
        }
    }

    /// The file at a path.
    pub(crate) fn node(&self, path: &[u8], follow: bool) -> Result<ImageNode> {
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
        Ok(meta(&node.held.attributes))
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
    type Node = ImageNode;

    fn name(&self, dir: &ImageNode, name: &[u8]) -> String {
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

    fn modified(&self, node: &ImageNode) -> Result<Timestamp> {
        Ok(node.held.attributes.modified)
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
        let made = self.image.engine.create(dir.held.inode(), name, &new);
        Ok(ImageNode {
            held: self.image.hold(self.at(&path, made)?),
            path,
        })
    }

    fn link(&self, node: &ImageNode, dir: &ImageNode, name: &[u8]) -> Result<()> {
        let path = joined(&dir.path, name);
        let made = self
            .image
            .engine
            .link(node.held.inode(), dir.held.inode(), name);
        drop(self.image.hold(self.at(&path, made)?));
        Ok(())
    }

    fn remove(&self, dir: &ImageNode, name: &[u8]) -> Result<()> {
        let path = joined(&dir.path, name);
        self.at(&path, self.image.engine.unlink(dir.held.inode(), name))
    }

    fn write(&self, node: &ImageNode, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let wrote = self
                .image
                .engine
                .write(node.held.inode(), at, &data[done..]);
            match self.at(&node.path, wrote)? {
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
        self.at(
            &node.path,
            self.image.engine.set_attributes(node.held.inode(), &set),
        )?;
        Ok(())
    }

    fn set_xattr(&self, node: &ImageNode, (name, value): &Xattr) -> Result<bool> {
        let inode = node.held.inode();
        match self
            .image
            .engine
            .set_xattr(inode, name, value, SetXattrMode::Any)
        {
            Ok(()) => Ok(true),
            Err(backstitch_vfs::Error::Layout(LayoutError::NotSupported)) => Ok(false),
            Err(error) => Err(self.image.error(&node.path, error)),
        }
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
            self.at(
                &node.path,
                self.image.engine.set_attributes(node.held.inode(), &set),
            )?;
        }
        Ok(())
    }
}
