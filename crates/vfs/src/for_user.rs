//! The operations that may take space, for a user or for nobody.
//!
//! Blocks that the file system reserves are not for all users. Who asks goes with an operation to
//! the place where blocks are picked, as a part of its steps' [`Volume`]. What the engine does by
//! itself, and what is called without a user (tools, tests), may take all blocks.

use backstitch_layout::operations;
use backstitch_layout::{
    Allocate, Attributes, FileSystem, FileType, InodeNumber, NewInode, Rename, RenameMode,
    SetAttributes, SetXattrMode, Step, Timestamp,
};
use backstitch_ordering::{Operation, User, Volume};
use parking_lot::MutexGuard;

use crate::Result;
use crate::engine::{Core, Engine};
use crate::taken::Taken;
use crate::transfer::{COPY_BYTES, LONG_BYTES};

/// The engine's operations that may take space, done for one user.
pub struct ForUser<'e> {
    engine: &'e Engine,
    user: Option<User>,
}

impl Engine {
    /// The operations that may take space, for a user; `None`: for nobody, with all blocks.
    pub fn for_user(&self, user: Option<User>) -> ForUser<'_> {
        ForUser { engine: self, user }
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// `EFBIG`, `EROFS`, …
    pub fn set_attributes(&self, inode: InodeNumber, set: &SetAttributes) -> Result<Attributes> {
        self.for_user(None).set_attributes(inode, set)
    }

    /// Makes an inode of any type with a name, and takes a reference on it.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`, …
    pub fn create(
        &self,
        directory: InodeNumber,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes> {
        self.for_user(None).create(directory, name, new)
    }

    /// Makes a regular file without a name, and takes a reference on it: it is freed when nobody
    /// refers to it any more, unless [`link`](Self::link) has given it a name.
    ///
    /// # Errors
    /// `ENOSPC`, …
    pub fn create_unnamed(&self, directory: InodeNumber, new: &NewInode<'_>) -> Result<Attributes> {
        self.for_user(None).create_unnamed(directory, new)
    }

    /// Gives an inode another name, and takes a reference on it.
    ///
    /// # Errors
    /// `EEXIST`, `EMLINK`, `EPERM` for directories, …
    pub fn link(
        &self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Attributes> {
        self.for_user(None).link(inode, directory, name)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As rename(2) has them.
    pub fn rename(
        &self,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.for_user(None)
            .rename(from, from_name, to, to_name, mode)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `ENOSPC`, `EOPNOTSUPP`.
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<()> {
        self.for_user(None).set_xattr(inode, name, value, mode)
    }

    /// Takes an extended attribute away.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`.
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        self.for_user(None).remove_xattr(inode, name)
    }

    /// Writes into a file, all of `data`, or fewer bytes where space ran out on the way.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EROFS`, where nothing could be written.
    pub fn write(&self, inode: InodeNumber, offset_bytes: u64, data: &[u8]) -> Result<usize> {
        self.for_user(None).write(inode, offset_bytes, data)
    }

    /// Reserves, punches or zeroes a range.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EOPNOTSUPP`.
    pub fn allocate(
        &self,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<()> {
        self.for_user(None)
            .allocate(inode, how, offset_bytes, len_bytes)
    }

    /// Copies a range from one file to another (or within one). Returns how much, less than asked
    /// at the end of `from`.
    ///
    /// # Errors
    /// As reading and writing, where nothing could be copied.
    pub fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        len_bytes: u64,
    ) -> Result<u64> {
        self.for_user(None)
            .copy_range(from, from_offset, to, to_offset, len_bytes)
    }
}

impl ForUser<'_> {
    /// Changes attributes.
    ///
    /// # Errors
    /// `EFBIG`, `EROFS`, …
    pub fn set_attributes(&self, inode: InodeNumber, set: &SetAttributes) -> Result<Attributes> {
        self.run(operations::set_attributes(inode, set), |fs, v, now| {
            fs.set_attributes(v, inode, set, now)
        })
    }

    /// Makes an inode of any type with a name, and takes a reference on it.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`, …
    pub fn create(
        &self,
        directory: InodeNumber,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes> {
        self.make(
            directory,
            operations::create(directory, name, new),
            |fs, v, now| fs.create(v, directory, name, new, now),
        )
    }

    /// Makes a regular file without a name, and takes a reference on it: it is freed when nobody
    /// refers to it any more, unless [`link`](Self::link) has given it a name.
    ///
    /// # Errors
    /// `ENOSPC`, …
    pub fn create_unnamed(&self, directory: InodeNumber, new: &NewInode<'_>) -> Result<Attributes> {
        self.make(
            directory,
            operations::create_unnamed(directory, new),
            |fs, v, now| fs.create_unnamed(v, directory, new, now),
        )
    }

    /// Makes an inode by `body`, and takes a reference on it.
    fn make(
        &self,
        directory: InodeNumber,
        operation: Operation<'_>,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<InodeNumber>,
    ) -> Result<Attributes> {
        self.engine.bound_chain(directory)?;
        let mut core = self.engine.core.lock();
        self.engine.end_gathering(&mut core);
        let (made, is_unread) = self.run_in(&mut core, operation, |fs, v, now| {
            let inode = body(fs, v, now)?;
            v.tell_made(u64::from(inode.0));
            fs.hold(inode);
            let made = fs.attributes(v, inode)?;
            let is_file = made.file_type == FileType::Regular;
            Ok((made, is_file && fs.finds_place_unread(v, inode)))
        })?;
        // A loss of the file that had this number before does not concern the new one.
        core.gathered.forget_loss(made.inode);
        if is_unread {
            // A small file that is written in pieces gets its place once, when it is known how long
            // it is.
            core.gathered.begin_after(made.inode, 0);
        }
        Ok(made)
    }

    /// Gives an inode another name, and takes a reference on it.
    ///
    /// # Errors
    /// `EEXIST`, `EMLINK`, `EPERM` for directories, …
    pub fn link(
        &self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Attributes> {
        self.engine.bound_chain(directory)?;
        self.run(operations::link(inode, directory, name), |fs, v, now| {
            fs.link(v, inode, directory, name, now)?;
            fs.hold(inode);
            fs.attributes(v, inode)
        })
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As rename(2) has them.
    pub fn rename(
        &self,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let rename = Rename {
            from,
            from_name,
            to,
            to_name,
            mode,
        };
        self.engine.bound_chain(from)?;
        self.engine.bound_chain(to)?;
        self.run(operations::rename(&rename), |fs, v, now| {
            fs.rename(v, &rename, now)
        })
        .map(drop)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `ENOSPC`, `EOPNOTSUPP`.
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<()> {
        let operation = operations::set_xattr(inode, name, Some(value));
        self.run(operation, |fs, v, now| {
            fs.set_xattr(v, inode, name, Some(value), mode, now)
        })
    }

    /// Takes an extended attribute away.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`.
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        let mode = SetXattrMode::Replace;
        let operation = operations::set_xattr(inode, name, None);
        self.run(operation, |fs, v, now| {
            fs.set_xattr(v, inode, name, None, mode, now)
        })
    }

    /// Writes into a file, all of `data`, or fewer bytes where space ran out on the way.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EROFS`, where nothing could be written.
    pub fn write(&self, inode: InodeNumber, offset_bytes: u64, data: &[u8]) -> Result<usize> {
        let mut core = self.engine.core.lock();
        if self.engine.gather(&mut core, inode, offset_bytes, data) {
            return Ok(data.len());
        }
        let mut done = 0;
        let mut taken: Option<Taken> = None;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let rest = &data[done..];
            let step = &rest[..rest.len().min(self.engine.write_step_bytes)];
            let operation = operations::write(inode, at, step);
            let written = self.run_in(&mut core, operation, |fs, v, now| {
                if taken.is_none() && step.len() >= LONG_BYTES {
                    // Taken only now, when there is room in memory.
                    taken = Some(Taken::new(
                        &self.engine.slabs,
                        self.engine.block_bytes,
                        at,
                        step,
                        0,
                    ));
                }
                match &taken {
                    Some(taken) => taken.lend(v, |v, step| fs.write(v, inode, at, step, now)),
                    None => fs.write(v, inode, at, step, now),
                }
            });
            match written {
                Ok(0) => break,
                Ok(written) => {
                    core.note_written(inode, at, written);
                    done += written;
                    taken = taken.and_then(|taken| taken.without(written));
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if done < data.len() {
                // A long write takes turns with others.
                MutexGuard::bump(&mut core);
            } else {
                let end_bytes = offset_bytes.saturating_add(done as u64);
                core.gathered.begin_after(inode, end_bytes);
            }
        }
        Ok(done)
    }

    /// Reserves, punches or zeroes a range.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EOPNOTSUPP`.
    pub fn allocate(
        &self,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<()> {
        let operation = operations::allocate(inode, how, offset_bytes, len_bytes);
        self.run(operation, |fs, v, now| {
            fs.allocate(v, inode, how, offset_bytes, len_bytes, now)
        })
    }

    /// Copies a range from one file to another (or within one). Returns how much, less than asked
    /// at the end of `from`.
    ///
    /// # Errors
    /// As reading and writing, where nothing could be copied.
    pub fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        len_bytes: u64,
    ) -> Result<u64> {
        let mut buffer = Vec::new();
        let mut done = 0;
        while done < len_bytes {
            buffer.clear();
            let len = usize::try_from(len_bytes - done)
                .unwrap_or(COPY_BYTES)
                .min(COPY_BYTES);
            self.engine
                .read(from, from_offset + done, len, &mut buffer)?;
            if buffer.is_empty() {
                break;
            }
            match self.write(to, to_offset + done, &buffer) {
                Ok(written) => {
                    done += written as u64;
                    if written < buffer.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// As the engine's `run`.
    fn run<T>(
        &self,
        operation: Operation<'_>,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        let mut core = self.engine.core.lock();
        self.engine.end_gathering(&mut core);
        self.run_in(&mut core, operation, body)
    }

    /// As the engine's `run_in`.
    fn run_in<T>(
        &self,
        core: &mut MutexGuard<'_, Core>,
        operation: Operation<'_>,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        self.engine.run_in(core, Some(operation), |fs, v, now| {
            v.set_user(self.user);
            body(fs, v, now)
        })
    }
}
