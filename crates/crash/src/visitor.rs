//! Uses a file system while the reclaim works on what a crash left of it: random operations on
//! whatever is there.

use backstitch_crash_core::mount::{Mount, Watcher};
use backstitch_layout::operations;
use backstitch_layout::{
    DirectoryEntry, Error, FileSystem, FileType, InodeNumber, NewInode, Rename, RenameMode, Result,
    SetAttributes, SetXattrMode, Timestamp,
};
use backstitch_ordering::{Operation, Volume};
use fastrand::Rng as Random;

/// How deep the visitor goes into the tree.
const DEPTH: u32 = 4;

/// A name in a directory.
struct Name {
    directory: InodeNumber,
    name: Vec<u8>,
    inode: InodeNumber,
    is_directory: bool,
}

/// Does random operations: the same ones for the same seed and file system.
pub(crate) struct Visitor {
    random: Random,
    made: u32,
}

impl Visitor {
    pub(crate) fn new(seed: u64) -> Visitor {
        Visitor {
            random: Random::with_seed(seed),
            made: 0,
        }
    }

    /// Does a few operations, or none. Operations that POSIX refuses are allowed; other errors are
    /// returned.
    pub(crate) fn act(&mut self, mount: &mut Mount, watcher: &mut dyn Watcher) -> Result<()> {
        let mut acted = false;
        while self.random.bool() {
            let done = self.choose(mount, watcher);
            if let Err(Error::Corrupt(_) | Error::Device(_) | Error::ReadOnly) = done {
                return done;
            }
            acted = true;
        }
        if acted {
            watcher.at_rest(mount);
        }
        Ok(())
    }

    fn choose(&mut self, mount: &mut Mount, watcher: &mut dyn Watcher) -> Result<()> {
        let choice = self.random.u8(0..16);
        if choice == 0 {
            return mount.work(watcher).map(drop);
        }
        if choice == 1 {
            mount.fs.release_all();
            return Ok(());
        }
        let (directory, names) = self.somewhere(mount, watcher)?;
        // Often the last name, so that much happens to one object.
        let some = match names.len() {
            0 => None,
            len if self.random.bool() => names.get(len - 1),
            len => names.get(self.random.usize(..len)),
        };
        match (choice, some) {
            (2 | 3, _) => self.make(mount, watcher, directory, FileType::Regular),
            (4, _) => self.make(mount, watcher, directory, FileType::Directory),
            (5..=7, Some(name)) => remove(mount, watcher, name),
            (8 | 9, Some(name)) => self.rename(mount, watcher, name),
            (10, Some(name)) => {
                let new = self.new_name();
                let scope = operations::link(name.inode, directory, &new);
                run(mount, watcher, scope, |fs, v, now| {
                    fs.link(v, name.inode, directory, &new, now)
                })
            }
            (11 | 12, Some(name)) => self.write(mount, watcher, name.inode),
            (13, Some(name)) => self.truncate(mount, watcher, name.inode),
            (14, Some(name)) => self.set_attribute(mount, watcher, name.inode),
            (_, Some(name)) => {
                mount.fs.hold(name.inode);
                Ok(())
            }
            (_, None) => self.make(mount, watcher, directory, FileType::Regular),
        }
    }

    /// A random directory, and what is in it.
    fn somewhere(
        &mut self,
        mount: &mut Mount,
        watcher: &mut dyn Watcher,
    ) -> Result<(InodeNumber, Vec<Name>)> {
        let mut directory = mount.fs.root();
        for _ in 0..DEPTH {
            let names = names_in(mount, watcher, directory)?;
            let below: Vec<&Name> = names.iter().filter(|name| name.is_directory).collect();
            if below.is_empty() || self.random.bool() {
                return Ok((directory, names));
            }
            directory = below[self.random.usize(..below.len())].inode;
        }
        let names = names_in(mount, watcher, directory)?;
        Ok((directory, names))
    }

    fn new_name(&mut self) -> Vec<u8> {
        self.made += 1;
        format!("visitor{}", self.made).into_bytes()
    }

    fn make(
        &mut self,
        mount: &mut Mount,
        watcher: &mut dyn Watcher,
        directory: InodeNumber,
        file_type: FileType,
    ) -> Result<()> {
        let name = self.new_name();
        let new = NewInode {
            file_type,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: &[],
        };
        let scope = operations::create(directory, &name, &new);
        run(mount, watcher, scope, |fs, v, now| {
            fs.create(v, directory, &name, &new, now).map(drop)
        })
    }

    /// Renames within a directory or to another one, sometimes over an existing name.
    fn rename(&mut self, mount: &mut Mount, watcher: &mut dyn Watcher, name: &Name) -> Result<()> {
        let (to, there) = self.somewhere(mount, watcher)?;
        let over = there
            .iter()
            .find(|other| other.is_directory == name.is_directory);
        let to_name = match over {
            Some(over) if self.random.bool() => over.name.clone(),
            _ => self.new_name(),
        };
        let rename = Rename {
            from: name.directory,
            from_name: &name.name,
            to,
            to_name: &to_name,
            mode: RenameMode::Replace,
        };
        run(mount, watcher, operations::rename(&rename), |fs, v, now| {
            fs.rename(v, &rename, now).map(drop)
        })
    }

    fn write(
        &mut self,
        mount: &mut Mount,
        watcher: &mut dyn Watcher,
        inode: InodeNumber,
    ) -> Result<()> {
        let offset = self.random.u64(0..40_000);
        let data = vec![b'v'; self.random.usize(1..6000)];
        let scope = operations::write(inode, offset, &data);
        run(mount, watcher, scope, |fs, v, now| {
            fs.write(v, inode, offset, &data, now).map(drop)
        })
    }

    fn truncate(
        &mut self,
        mount: &mut Mount,
        watcher: &mut dyn Watcher,
        inode: InodeNumber,
    ) -> Result<()> {
        let size_bytes = self.random.u64(0..40_000);
        let set = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        let object = inode.0.into();
        let scope = Operation::Resize { object, size_bytes };
        run(mount, watcher, scope, |fs, v, now| {
            fs.set_attributes(v, inode, &set, now).map(drop)
        })
    }

    fn set_attribute(
        &mut self,
        mount: &mut Mount,
        watcher: &mut dyn Watcher,
        inode: InodeNumber,
    ) -> Result<()> {
        // Few different values, so that attribute blocks are shared.
        let value = [b'0' + self.random.u8(0..3)];
        let value = self.random.bool().then_some(&value[..]);
        let scope = operations::set_xattr(inode, b"user.a", value);
        run(mount, watcher, scope, |fs, v, now| {
            fs.set_xattr(v, inode, b"user.a", value, SetXattrMode::Any, now)
        })
    }
}

fn remove(mount: &mut Mount, watcher: &mut dyn Watcher, name: &Name) -> Result<()> {
    let scope = operations::remove(name.directory, &name.name, name.is_directory);
    run(mount, watcher, scope, |fs, v, now| {
        if name.is_directory {
            fs.remove_directory(v, name.directory, &name.name, now)
        } else {
            fs.unlink(v, name.directory, &name.name, now)
        }
        .map(drop)
    })
}

fn run(
    mount: &mut Mount,
    watcher: &mut dyn Watcher,
    operation: Operation,
    body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> backstitch_layout::Step<()>,
) -> Result<()> {
    mount.run(operation, watcher, body)?;
    mount.settle_waiting(watcher)
}

fn names_in(
    mount: &mut Mount,
    watcher: &mut dyn Watcher,
    directory: InodeNumber,
) -> Result<Vec<Name>> {
    mount.run(Operation::Administration, watcher, |fs, v, _| {
        let mut found = Vec::new();
        let mut emit = |entry: &DirectoryEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                found.push((entry.name.to_vec(), entry.inode));
            }
            true
        };
        fs.read_directory(v, directory, 0, &mut emit)?;
        let mut names = Vec::with_capacity(found.len());
        for (name, inode) in found {
            let attributes = fs.attributes(v, inode)?;
            names.push(Name {
                directory,
                name,
                inode,
                is_directory: attributes.file_type == FileType::Directory,
            });
        }
        Ok(names)
    })
}
