//! Files through the engine in this process, by the calls that the FUSE front end makes, without
//! the kernel.

use std::sync::Arc;
use std::time::Duration;

use backstitch_vfs::{
    AccessTimes, Engine, FileType, GroupId, InodeNumber, LayoutError, NewInode, RenameMode,
    SetAttributes, Timestamp, Under,
};

use crate::Result;
use crate::client::{Clients, on_threads};
use crate::files::{Entry, Files, Found, Node, host_now, spin};

/// Files of a mounted engine.
pub struct EngineFiles {
    engine: Arc<Engine>,
    root: Node,
    /// The patchgroup, while one is engaged.
    under: Option<Under>,
}

impl EngineFiles {
    /// The files of `engine`, below its root.
    pub fn new(engine: Arc<Engine>) -> EngineFiles {
        let root = Node(engine.root().0.into());
        EngineFiles {
            engine,
            root,
            under: None,
        }
    }

    /// The inode of a node of [`EngineFiles`].
    pub(crate) fn inode(node: Node) -> InodeNumber {
        // All these nodes were made from inode numbers.
        InodeNumber(node.0 as u32)
    }

    fn make(
        &self,
        parent: Node,
        name: &str,
        file_type: FileType,
        permissions: u16,
    ) -> Result<Node> {
        self.make_with(parent, name, file_type, permissions, &[])
    }

    fn make_with(
        &self,
        parent: Node,
        name: &str,
        file_type: FileType,
        permissions: u16,
        target: &[u8],
    ) -> Result<Node> {
        let new = NewInode {
            file_type,
            permissions,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target,
        };
        let made = self.engine.create(inode(parent), name.as_bytes(), &new)?;
        Ok(Node(made.inode.0.into()))
    }

    fn set(&self, node: Node, set: SetAttributes) -> Result<()> {
        self.engine.set_attributes(inode(node), &set)?;
        Ok(())
    }
}

fn inode(node: Node) -> InodeNumber {
    EngineFiles::inode(node)
}

impl Files for EngineFiles {
    fn root(&self) -> Node {
        self.root
    }

    fn now(&self) -> Duration {
        host_now()
    }

    fn compute(&mut self, work: Duration) -> Result<()> {
        spin(work);
        Ok(())
    }

    fn make_directory(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node> {
        self.make(parent, name, FileType::Directory, permissions)
    }

    fn create(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node> {
        self.make(parent, name, FileType::Regular, permissions)
    }

    fn symlink(&mut self, parent: Node, name: &str, target: &str) -> Result<()> {
        let target = target.as_bytes();
        let made = self.make_with(parent, name, FileType::Symlink, 0o777, target)?;
        self.close(made)
    }

    fn read_link(&mut self, parent: Node, name: &str) -> Result<Vec<u8>> {
        let found = self.lookup(parent, name)?.node;
        let target = self.engine.read_link(inode(found))?;
        self.close(found)?;
        Ok(target)
    }

    fn link(&mut self, file: Node, parent: Node, name: &str) -> Result<()> {
        let linked = (self.engine).link(inode(file), inode(parent), name.as_bytes())?;
        self.close(Node(linked.inode.0.into()))
    }

    fn rename(&mut self, parent: Node, from: &str, to: &str) -> Result<()> {
        let (parent, from, to) = (inode(parent), from.as_bytes(), to.as_bytes());
        let mode = RenameMode::default();
        Ok(self.engine.rename(parent, from, parent, to, mode)?)
    }

    fn free_blocks(&mut self) -> Result<u64> {
        Ok(self.engine.statistics()?.free_blocks)
    }

    fn lookup(&mut self, parent: Node, name: &str) -> Result<Found> {
        Ok(self.engine.lookup(inode(parent), name.as_bytes())?.into())
    }

    fn write(&mut self, node: Node, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            match self.engine.write(inode(node), at, &data[done..])? {
                0 => return Err(backstitch_vfs::Error::from(LayoutError::NoSpace).into()),
                written => done += written,
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        node: Node,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        into.clear();
        self.engine
            .read(inode(node), offset_bytes, len_bytes, into)?;
        self.engine
            .touch_accessed(inode(node), AccessTimes::Relative);
        Ok(())
    }

    fn truncate(&mut self, node: Node, size_bytes: u64) -> Result<()> {
        let size_bytes = Some(size_bytes);
        self.set(
            node,
            SetAttributes {
                size_bytes,
                ..SetAttributes::default()
            },
        )
    }

    fn set_permissions(&mut self, node: Node, permissions: u16) -> Result<()> {
        let permissions = Some(permissions);
        self.set(
            node,
            SetAttributes {
                permissions,
                ..SetAttributes::default()
            },
        )
    }

    fn set_times(&mut self, node: Node, seconds: i64) -> Result<()> {
        let time = Some(Timestamp {
            seconds,
            nanoseconds: 0,
        });
        self.set(
            node,
            SetAttributes {
                accessed: time,
                modified: time,
                ..SetAttributes::default()
            },
        )
    }

    fn list(&mut self, directory: Node) -> Result<Vec<Entry>> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let before = cookie;
            self.engine
                .read_directory(inode(directory), cookie, &mut |entry| {
                    cookie = entry.next_cookie;
                    if entry.name != b"." && entry.name != b".." {
                        names.push(Entry {
                            name: String::from_utf8_lossy(entry.name).into_owned(),
                            is_directory: entry.file_type == Some(FileType::Directory),
                        });
                    }
                    true
                })?;
            if cookie == before {
                return Ok(names);
            }
        }
    }

    fn unlink(&mut self, parent: Node, name: &str) -> Result<()> {
        // The kernel looks a name up before it asks to remove it, and forgets the inode afterwards.
        let found = self.lookup(parent, name)?;
        self.engine.unlink(inode(parent), name.as_bytes())?;
        self.close(found.node)
    }

    fn remove_directory(&mut self, parent: Node, name: &str) -> Result<()> {
        Ok(self.engine.rmdir(inode(parent), name.as_bytes())?)
    }

    fn close(&mut self, node: Node) -> Result<()> {
        self.engine.forget(inode(node), 1);
        Ok(())
    }

    fn fsync(&mut self, node: Node) -> Result<()> {
        Ok(self.engine.fsync(inode(node), false)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    fn begin_group(&mut self, before: Option<GroupId>) -> Result<GroupId> {
        let group = self.engine.group_create()?;
        if let Some(before) = before {
            self.engine.group_depend(group, before)?;
            self.engine.group_close(before);
        }
        self.engine.group_engage(group)?;
        self.under = Some(self.engine.enter(&[group]));
        Ok(group)
    }

    fn end_group(&mut self, group: GroupId) -> Result<()> {
        self.under = None;
        Ok(self.engine.group_disengage(group)?)
    }

    fn sync_group(&mut self, group: GroupId) -> Result<()> {
        Ok(self.engine.group_sync(group)?)
    }

    fn close_group(&mut self, group: GroupId) -> Result<()> {
        self.engine.group_close(group);
        Ok(())
    }

    fn run_clients(&mut self, root: Node, clients: &Arc<Clients>) -> Result<()> {
        let engine = &self.engine;
        on_threads(clients, || {
            Ok(Box::new(EngineFiles {
                root,
                ..EngineFiles::new(engine.clone())
            }))
        })
    }
}
