//! The operations on names and inodes.

use backstitch_layout::operations;
use backstitch_layout::{AccessTimes, Attributes, FileSystemStatistics, InodeNumber};

use crate::engine::Engine;
use crate::{Result, under};

impl Engine {
    /// Looks a name up, and takes a reference on its inode.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, …
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes> {
        self.run(None, |fs, v, _| {
            let inode = fs.lookup(v, directory, name)?;
            let attributes = fs.attributes(v, inode)?;
            fs.hold(inode);
            Ok(attributes)
        })
    }

    /// Looks up an inode that a caller remembers from before, and takes a reference on it.
    ///
    /// # Errors
    /// `ENOENT` where the number is of no file, or not any more.
    pub fn find(&self, inode: InodeNumber) -> Result<Attributes> {
        self.run(None, |fs, v, _| {
            let attributes = fs.find(v, inode)?;
            fs.hold(inode);
            Ok(attributes)
        })
    }

    /// Takes a further reference on an inode that the caller has one on.
    pub fn hold(&self, inode: InodeNumber) {
        self.core.lock().fs.hold(inode);
    }

    /// Gives references back.
    pub fn forget(&self, inode: InodeNumber, references: u64) {
        let mut core = self.core.lock();
        if core.gathered.is_of(inode) {
            self.end_gathering(&mut core);
        }
        for _ in 0..references {
            core.fs.release(inode);
        }
        self.free_ready(&mut core);
    }

    /// An inode's attributes.
    ///
    /// # Errors
    /// `ENOENT` where it is not in use, `EIO`.
    pub fn attributes(&self, inode: InodeNumber) -> Result<Attributes> {
        self.run(None, |fs, v, _| fs.attributes(v, inode))
    }

    /// Moves an inode's access time after a read, where `rule` says so. An error is not reported to
    /// the caller.
    pub fn touch_accessed(&self, inode: InodeNumber, rule: AccessTimes) {
        // A read is under no patchgroup.
        let moved = under::without(|| {
            self.run(Some(operations::touch_accessed(inode)), |fs, v, now| {
                fs.touch_accessed(v, inode, rule, now)
            })
        });
        if let Err(error) = moved {
            tracing::debug!("access time of inode {inode}: {error}");
        }
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, …
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        self.bound_chain(directory)?;
        let operation = operations::remove(directory, name, false);
        self.run(Some(operation), |fs, v, now| {
            fs.unlink(v, directory, name, now)
        })
        .map(drop)
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, …
    pub fn rmdir(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        self.bound_chain(directory)?;
        let operation = operations::remove(directory, name, true);
        self.run(Some(operation), |fs, v, now| {
            fs.remove_directory(v, directory, name, now)
        })
        .map(drop)
    }

    /// What a symlink points to.
    ///
    /// # Errors
    /// `EINVAL` where it is none.
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        self.run(None, |fs, v, _| fs.read_link(v, inode))
    }

    /// An extended attribute's value.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`.
    pub fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.run(None, |fs, v, _| fs.xattr(v, inode, name))
    }

    /// The names of all extended attributes, each ended by a zero byte.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        self.run(None, |fs, v, _| fs.list_xattrs(v, inode))
    }

    /// What `statfs` shows.
    ///
    /// # Errors
    /// None today.
    pub fn statistics(&self) -> Result<FileSystemStatistics> {
        let mut core = self.core.lock();
        self.end_gathering(&mut core);
        Ok(core.fs.statistics())
    }

    /// What `statfs` shows of the volume that holds an inode.
    ///
    /// # Errors
    /// None today.
    pub fn statistics_at(&self, inode: InodeNumber) -> Result<FileSystemStatistics> {
        let mut core = self.core.lock();
        self.end_gathering(&mut core);
        Ok(core.fs.statistics_at(inode))
    }
}
