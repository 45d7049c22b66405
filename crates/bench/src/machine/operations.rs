//! The operations on names and inodes, and what makes them stable.

use backstitch_layout::{
    Attributes, FileSystemStatistics, FileType, InodeNumber, NewInode, Rename, SetAttributes, Stop,
    operations,
};
use backstitch_session::Task;

use super::cpu::Work;
use super::schedule::Event;
use super::{Machine, engine};
use crate::Result;
use crate::files::Entry;

/// Rounds of a sync: for changes, for the frees that follow, and for what those change.
const SYNC_ROUNDS: usize = 3;

impl Machine {
    /// Looks a name up, and takes a reference on its inode.
    pub(super) async fn lookup(&self, directory: InodeNumber, name: &str) -> Result<Attributes> {
        self.run(Work::Lookup, None, |fs, v, _| {
            let inode = fs.lookup(v, directory, name.as_bytes())?;
            let attributes = fs.attributes(v, inode)?;
            fs.hold(inode);
            Ok(attributes)
        })
        .await
    }

    /// Makes an inode and its name, and takes a reference on it.
    pub(super) async fn create(
        &self,
        directory: InodeNumber,
        name: &str,
        new: &NewInode<'_>,
    ) -> Result<InodeNumber> {
        let work = match new.file_type {
            FileType::Directory => Work::Directory,
            _ => Work::Create,
        };
        let name = name.as_bytes();
        let operation = Some(operations::create(directory, name, new));
        self.run(work, operation, |fs, v, now| {
            let inode = fs.create(v, directory, name, new, now)?;
            fs.hold(inode);
            Ok(inode)
        })
        .await
    }

    /// Gives an inode another name.
    pub(super) async fn link(
        &self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &str,
    ) -> Result<()> {
        let name = name.as_bytes();
        let operation = Some(operations::link(inode, directory, name));
        self.run(Work::Create, operation, |fs, v, now| {
            fs.link(v, inode, directory, name, now)
        })
        .await
    }

    /// The target of a symlink.
    pub(super) async fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        self.run(Work::Lookup, None, |fs, v, _| fs.read_link(v, inode))
            .await
    }

    /// Moves a name within a directory.
    pub(super) async fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        let operation = Some(operations::rename(rename));
        self.run(Work::Remove, operation, |fs, v, now| {
            fs.rename(v, rename, now)
        })
        .await
        .map(drop)
    }

    /// Removes a file's name.
    pub(super) async fn unlink(&self, directory: InodeNumber, name: &str) -> Result<()> {
        // The kernel looks a name up before it asks to remove it, and forgets the inode afterwards.
        let found = self.lookup(directory, name).await?.inode;
        let name = name.as_bytes();
        let operation = Some(operations::remove(directory, name, false));
        self.run(Work::Remove, operation, |fs, v, now| {
            fs.unlink(v, directory, name, now)
        })
        .await?;
        self.forget(found).await
    }

    /// Removes an empty directory.
    pub(super) async fn remove_directory(&self, parent: InodeNumber, name: &str) -> Result<()> {
        let name = name.as_bytes();
        let operation = Some(operations::remove(parent, name, true));
        self.run(Work::Directory, operation, |fs, v, now| {
            fs.remove_directory(v, parent, name, now)
        })
        .await
        .map(drop)
    }

    /// Changes attributes.
    pub(super) async fn set_attributes(
        &self,
        inode: InodeNumber,
        set: &SetAttributes,
    ) -> Result<()> {
        let operation = Some(operations::set_attributes(inode, set));
        self.run(Work::Attributes, operation, |fs, v, now| {
            fs.set_attributes(v, inode, set, now)
        })
        .await
        .map(drop)
    }

    /// The names in a directory, without `.` and `..`.
    pub(super) async fn list(&self, directory: InodeNumber) -> Result<Vec<Entry>> {
        let mut names = Vec::new();
        self.run(Work::List(0), None, |fs, v, _| {
            names.clear();
            fs.read_directory(v, directory, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(Entry {
                        name: String::from_utf8_lossy(entry.name).into_owned(),
                        is_directory: entry.file_type == Some(FileType::Directory),
                    });
                }
                true
            })
        })
        .await?;
        let listed = Work::List(names.len());
        self.cpu.work(&self.schedule, listed).await;
        Ok(names)
    }

    /// Gives a reference back.
    pub(super) async fn forget(&self, inode: InodeNumber) -> Result<()> {
        self.cpu.work(&self.schedule, Work::Close).await;
        if self.core.borrow().gathered.is_of(inode) {
            self.end_gathering().await?;
        }
        let core = &mut *self.core.borrow_mut();
        core.cached.forget(inode);
        let session = &mut core.session;
        session.fs.release(inode);
        while session.fs.deferred().ready > 0 {
            match session.free_ready(&mut self.time()) {
                Ok(true) => continue,
                // The writer does what needs a block from the drive.
                Err(Stop::Miss) => self.schedule.tell(Event::Writer),
                Ok(false) | Err(_) => {}
            }
            break;
        }
        Ok(())
    }

    /// The result of `statfs`.
    pub(super) async fn statistics(&self) -> Result<FileSystemStatistics> {
        self.cpu.work(&self.schedule, Work::Lookup).await;
        self.end_gathering().await?;
        Ok(self.core.borrow().session.fs.statistics())
    }

    /// Puts a file onto stable storage.
    pub(super) async fn fsync(&self, inode: InodeNumber) -> Result<()> {
        let mut targets = Vec::new();
        self.run(Work::Sync, None, |fs, v, _| {
            targets.clear();
            fs.flush_targets(v, inode, false, &mut targets);
            Ok(())
        })
        .await?;
        self.make_stable(targets).await
    }

    /// Puts all changes made before the call onto stable storage, and does the deferred work that
    /// follows.
    pub(super) async fn sync(&self) -> Result<()> {
        self.cpu.work(&self.schedule, Work::Sync).await;
        self.end_gathering().await?;
        {
            let fs = &mut self.core.borrow_mut().session.fs;
            fs.retry_deferred();
        }
        // Files that were removed before they reached the disk need not be written.
        self.drive(Task::work()).await?;
        self.drive(Task::commit()).await?;
        let logged = {
            let session = &mut self.core.borrow_mut().session;
            let log = session.log_state();
            session.log_is_for_all().then(|| {
                let mut targets: Vec<_> = log.map(|log| log.last).into_iter().collect();
                session.store.uncommitted_contents(&mut targets);
                targets
            })
        };
        if let Some(targets) = logged {
            return self.make_stable(targets).await;
        }
        for _ in 0..SYNC_ROUNDS {
            let mut targets = Vec::new();
            {
                let session = &self.core.borrow().session;
                if !session.store.is_dirty() && session.fs.deferred().pending == 0 {
                    break;
                }
                session.store.uncommitted(&mut targets);
            }
            self.make_stable(targets).await?;
            self.drive(Task::work()).await?;
        }
        self.settle().await;
        let latched = self.core.borrow().session.latched.clone();
        latched.map_or(Ok(()), |error| {
            Err(engine(backstitch_vfs::Error::Latched(error)))
        })
    }
}
