//! Files by system calls, in a directory of any mounted file system, so that other file systems can
//! do the same work.

use std::collections::HashMap;
use std::fs::{File, FileTimes, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backstitch_vfs::GroupId;

use crate::client::{Clients, on_threads};
use crate::files::{Entry, Files, Found, Node, host_now, spin};
use crate::{Error, Result};

struct Open {
    path: PathBuf,
    file: File,
}

/// Files below a directory of the host.
pub struct HostFiles {
    open: HashMap<u64, Open>,
    next: u64,
}

const ROOT: Node = Node(0);

impl HostFiles {
    /// The files below `directory`, which must be there.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened.
    pub fn new(directory: &Path) -> Result<HostFiles> {
        let mut files = HostFiles {
            open: HashMap::new(),
            next: 0,
        };
        let file = File::open(directory).map_err(Error::at(directory))?;
        files.add(directory.to_owned(), file);
        Ok(files)
    }

    fn add(&mut self, path: PathBuf, file: File) -> Node {
        let node = Node(self.next);
        self.next += 1;
        self.open.insert(node.0, Open { path, file });
        node
    }

    fn get(&self, node: Node) -> Result<&Open> {
        self.open.get(&node.0).ok_or_else(|| Error::Host {
            path: PathBuf::from(format!("node {}", node.0)),
            error: std::io::Error::from(std::io::ErrorKind::NotFound),
        })
    }

    fn path(&self, parent: Node, name: &str) -> Result<PathBuf> {
        Ok(self.get(parent)?.path.join(name))
    }
}

impl Files for HostFiles {
    fn root(&self) -> Node {
        ROOT
    }

    fn now(&self) -> Duration {
        host_now()
    }

    fn compute(&mut self, work: Duration) -> Result<()> {
        spin(work);
        Ok(())
    }

    fn make_directory(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node> {
        let path = self.path(parent, name)?;
        std::fs::DirBuilder::new()
            .mode(permissions.into())
            .create(&path)
            .map_err(Error::at(&path))?;
        let file = File::open(&path).map_err(Error::at(&path))?;
        Ok(self.add(path, file))
    }

    fn create(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node> {
        let path = self.path(parent, name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(permissions.into())
            .open(&path)
            .map_err(Error::at(&path))?;
        Ok(self.add(path, file))
    }

    fn symlink(&mut self, parent: Node, name: &str, target: &str) -> Result<()> {
        let path = self.path(parent, name)?;
        std::os::unix::fs::symlink(target, &path).map_err(Error::at(&path))
    }

    fn read_link(&mut self, parent: Node, name: &str) -> Result<Vec<u8>> {
        let path = self.path(parent, name)?;
        let target = std::fs::read_link(&path).map_err(Error::at(&path))?;
        Ok(target.into_os_string().into_encoded_bytes())
    }

    fn link(&mut self, file: Node, parent: Node, name: &str) -> Result<()> {
        let path = self.path(parent, name)?;
        std::fs::hard_link(&self.get(file)?.path, &path).map_err(Error::at(&path))
    }

    fn rename(&mut self, parent: Node, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path(parent, from)?, self.path(parent, to)?);
        std::fs::rename(&from, to).map_err(Error::at(&from))
    }

    fn free_blocks(&mut self) -> Result<u64> {
        let root = self.get(ROOT)?;
        let seen = rustix::fs::fstatvfs(&root.file);
        let seen = seen.map_err(|error| Error::at(&root.path)(error.into()))?;
        Ok(seen.f_bfree)
    }

    fn lookup(&mut self, parent: Node, name: &str) -> Result<Found> {
        let path = self.path(parent, name)?;
        let seen = std::fs::symlink_metadata(&path).map_err(Error::at(&path))?;
        let file = OpenOptions::new()
            .read(true)
            .write(!seen.is_dir())
            .open(&path)
            .map_err(Error::at(&path))?;
        Ok(Found {
            node: self.add(path, file),
            is_directory: seen.is_dir(),
            size_bytes: seen.len(),
        })
    }

    fn stat(&mut self, parent: Node, name: &str) -> Result<u64> {
        let path = self.path(parent, name)?;
        let seen = std::fs::symlink_metadata(&path).map_err(Error::at(&path))?;
        Ok(seen.len())
    }

    fn write(&mut self, node: Node, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let open = self.get(node)?;
        open.file
            .write_all_at(data, offset_bytes)
            .map_err(Error::at(&open.path))
    }

    fn read(
        &mut self,
        node: Node,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let open = self.get(node)?;
        into.resize(len_bytes, 0);
        let read = open
            .file
            .read_at(into, offset_bytes)
            .map_err(Error::at(&open.path))?;
        into.truncate(read);
        Ok(())
    }

    fn truncate(&mut self, node: Node, size_bytes: u64) -> Result<()> {
        let open = self.get(node)?;
        open.file.set_len(size_bytes).map_err(Error::at(&open.path))
    }

    fn set_permissions(&mut self, node: Node, permissions: u16) -> Result<()> {
        let open = self.get(node)?;
        open.file
            .set_permissions(Permissions::from_mode(permissions.into()))
            .map_err(Error::at(&open.path))
    }

    fn set_times(&mut self, node: Node, seconds: i64) -> Result<()> {
        let open = self.get(node)?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64);
        let times = FileTimes::new().set_accessed(time).set_modified(time);
        open.file.set_times(times).map_err(Error::at(&open.path))
    }

    fn list(&mut self, directory: Node) -> Result<Vec<Entry>> {
        let path = &self.get(directory)?.path;
        let entries = std::fs::read_dir(path).map_err(Error::at(path))?;
        let names = entries.map(|entry| {
            let entry = entry?;
            Ok(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_directory: entry.file_type()?.is_dir(),
            })
        });
        names
            .collect::<std::io::Result<_>>()
            .map_err(Error::at(path))
    }

    fn unlink(&mut self, parent: Node, name: &str) -> Result<()> {
        let path = self.path(parent, name)?;
        std::fs::remove_file(&path).map_err(Error::at(&path))
    }

    fn remove_directory(&mut self, parent: Node, name: &str) -> Result<()> {
        let path = self.path(parent, name)?;
        std::fs::remove_dir(&path).map_err(Error::at(&path))
    }

    fn close(&mut self, node: Node) -> Result<()> {
        self.open.remove(&node.0);
        Ok(())
    }

    fn fsync(&mut self, node: Node) -> Result<()> {
        let open = self.get(node)?;
        open.file.sync_all().map_err(Error::at(&open.path))
    }

    fn sync(&mut self) -> Result<()> {
        let root = self.get(ROOT)?;
        // Linux does not pass syncfs on to our mounts. On other file systems this call fails.
        let ours = "system.backstitch.sync";
        if rustix::fs::fsetxattr(&root.file, ours, &[], rustix::fs::XattrFlags::empty()).is_ok() {
            return Ok(());
        }
        rustix::fs::syncfs(&root.file).map_err(|error| Error::Host {
            path: root.path.clone(),
            error: error.into(),
        })
    }

    fn begin_group(&mut self, _before: Option<GroupId>) -> Result<GroupId> {
        Err(Error::NoPatchgroups)
    }

    fn end_group(&mut self, _group: GroupId) -> Result<()> {
        Err(Error::NoPatchgroups)
    }

    fn sync_group(&mut self, _group: GroupId) -> Result<()> {
        Err(Error::NoPatchgroups)
    }

    fn close_group(&mut self, _group: GroupId) -> Result<()> {
        Err(Error::NoPatchgroups)
    }

    fn run_clients(&mut self, root: Node, clients: &Arc<Clients>) -> Result<()> {
        let path = &self.get(root)?.path;
        on_threads(clients, || Ok(Box::new(HostFiles::new(path)?)))
    }
}
