//! Does random operations below a root, and returns the answer to each.

use crate::acl;
use crate::operations::{Operation, SLOTS};
use crate::random::Random;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Does operations below a root.
#[derive(Debug)]
pub struct Player {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS as usize],
}

impl Player {
    /// Starts below `root`, with nothing open.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            slots: [const { None }; SLOTS as usize],
        }
    }

    /// Does an operation, and returns the answer as text for comparison.
    pub fn play(&mut self, operation: &Operation) -> String {
        match self.on_open(operation).or_else(|| self.on_names(operation)) {
            Some(result) => answer(result),
            None => answer(self.on_attributes(operation)),
        }
    }

    /// Closes all open files.
    pub fn close_all(&mut self) {
        self.slots = [const { None }; SLOTS as usize];
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn slot(&self, slot: u64) -> Result<&OwnedFd, Errno> {
        self.slots[slot as usize].as_ref().ok_or(Errno::BADF)
    }

    fn on_open(&mut self, operation: &Operation) -> Option<Result<String, Errno>> {
        use Operation as O;
        Some(match operation {
            O::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                // Opening a fifo would wait for its other end.
                let flags = *flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = rustix::fs::open(self.at(path), flags, Mode::from_raw_mode(*mode));
                file.map(|file| {
                    self.slots[*slot as usize] = Some(file);
                    done()
                })
            }
            O::Close { slot } => {
                self.slots[*slot as usize] = None;
                Ok(done())
            }
            O::Write {
                slot,
                at,
                len,
                fill,
            } => self.slot(*slot).and_then(|file| {
                let bytes = Random::new(*fill).bytes(*len as usize);
                rustix::io::pwrite(file, &bytes, *at).map(|written| written.to_string())
            }),
            O::Read { slot, at, len } => self.slot(*slot).and_then(|file| read(file, *at, *len)),
            O::TruncateOpen { slot, size } => self
                .slot(*slot)
                .and_then(|file| rustix::fs::ftruncate(file, *size))
                .map(|()| done()),
            O::PunchHole { slot, at, len } => self.slot(*slot).and_then(|file| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, *at, *len).map(|()| done())
            }),
            O::SeekData { slot, at, hole } => self.slot(*slot).and_then(|file| {
                // Positions in a directory depend on its index.
                let stat = rustix::fs::fstat(file)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Ok("not a file".to_owned());
                }
                let from = if *hole {
                    SeekFrom::Hole(*at)
                } else {
                    SeekFrom::Data(*at)
                };
                rustix::fs::seek(file, from).map(|found| found.to_string())
            }),
            O::CopyRange {
                from,
                at,
                to,
                to_at,
                len,
            } => self.slot(*from).and_then(|source| {
                let target = self.slot(*to)?;
                let (mut at, mut to_at) = (*at, *to_at);
                let copied = rustix::fs::copy_file_range(
                    source,
                    Some(&mut at),
                    target,
                    Some(&mut to_at),
                    *len as usize,
                );
                copied.map(|copied| copied.to_string())
            }),
            O::Sync { slot } => self
                .slot(*slot)
                .and_then(rustix::fs::fsync)
                .map(|()| done()),
            O::StatOpen { slot } => self
                .slot(*slot)
                .and_then(rustix::fs::fstat)
                .map(|stat| describe(&stat)),
            _ => return None,
        })
    }

    fn on_names(&mut self, operation: &Operation) -> Option<Result<String, Errno>> {
        use Operation as O;
        let result = match operation {
            O::Truncate { path, size } => rustix::fs::open(
                self.at(path),
                OFlags::WRONLY | OFlags::NONBLOCK,
                Mode::empty(),
            )
            .and_then(|file| rustix::fs::ftruncate(file, *size)),
            O::Mkdir { path, mode } => rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(*mode)),
            O::Rmdir { path } => rustix::fs::rmdir(self.at(path)),
            O::Unlink { path } => rustix::fs::unlink(self.at(path)),
            O::Link { from, to } => rustix::fs::link(self.at(from), self.at(to)),
            O::Symlink { target, path } => rustix::fs::symlink(target.as_str(), self.at(path)),
            O::Mknod {
                path,
                kind,
                mode,
                device,
            } => {
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::mknodat(CWD, self.at(path), *kind, mode, *device)
            }
            O::Rename { from, to, flags } => {
                rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), *flags)
            }
            O::Stat { path } => {
                return Some(rustix::fs::lstat(self.at(path)).map(|stat| describe(&stat)));
            }
            O::ReadLink { path } => {
                let target = rustix::fs::readlink(self.at(path), Vec::new());
                return Some(target.map(|target| target.to_string_lossy().into_owned()));
            }
            O::List { path } => return Some(list(&self.at(path))),
            _ => return None,
        };
        Some(result.map(|()| done()))
    }

    fn on_attributes(&mut self, operation: &Operation) -> Result<String, Errno> {
        use Operation as O;
        match operation {
            O::Chmod { path, mode } => {
                rustix::fs::chmod(self.at(path), Mode::from_raw_mode(*mode)).map(|()| done())
            }
            O::Chown { path, user, group } => {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(CWD, self.at(path), user, group, flags).map(|()| done())
            }
            O::SetTimes {
                path,
                accessed,
                modified,
            } => {
                let one = |tv_sec: &i64| Timespec {
                    tv_sec: *tv_sec,
                    tv_nsec: 0,
                };
                let times = Timestamps {
                    last_access: one(accessed),
                    last_modification: one(modified),
                };
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::utimensat(CWD, self.at(path), &times, flags).map(|()| done())
            }
            O::SetAttribute {
                path,
                name,
                len,
                fill,
                flags,
            } => {
                let value = Random::new(*fill).bytes(*len as usize);
                rustix::fs::lsetxattr(self.at(path), name.as_str(), &value, *flags).map(|()| done())
            }
            O::SetAcl {
                path,
                default,
                mode,
                named,
            } => {
                let name = if *default { acl::DEFAULT } else { acl::ACCESS };
                let value = acl::with_named(*mode, 1000, 1001, *named);
                rustix::fs::setxattr(self.at(path), name, &value, XattrFlags::empty())
                    .map(|()| done())
            }
            O::GetAttribute { path, name } => {
                let mut value = vec![0; 64 << 10];
                rustix::fs::lgetxattr(self.at(path), name.as_str(), &mut value[..])
                    .map(|len| hashed(&value[..len]))
            }
            O::ListAttributes { path } => {
                let mut names = vec![0; 64 << 10];
                let len = rustix::fs::llistxattr(self.at(path), &mut names[..])?;
                let text = String::from_utf8_lossy(&names[..len]).into_owned();
                let mut names: Vec<&str> = text.split('\0').collect();
                names.sort_unstable();
                Ok(names.join(" "))
            }
            O::RemoveAttribute { path, name } => {
                rustix::fs::lremovexattr(self.at(path), name.as_str()).map(|()| done())
            }
            _ => unreachable!("every operation is on an open file, names or attributes"),
        }
    }
}

fn answer(result: Result<String, Errno>) -> String {
    result.unwrap_or_else(|error| format!("error: {error}"))
}

fn done() -> String {
    "done".to_owned()
}

fn hashed(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} bytes, {:016x}", bytes.len(), hasher.finish())
}

fn read(file: &OwnedFd, at: u64, len: u64) -> Result<String, Errno> {
    let mut bytes = vec![0; len as usize];
    let found = rustix::io::pread(file, &mut bytes, at)?;
    Ok(hashed(&bytes[..found]))
}

fn describe(stat: &rustix::fs::Stat) -> String {
    let directory = stat.st_mode & 0o170_000 == 0o040_000;
    let size = if directory { 0 } else { stat.st_size };
    format!(
        "mode {:o}, {} links, owner {}:{}, {size} bytes, device {}",
        stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_rdev
    )
}

fn list(path: &Path) -> Result<String, Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        names.push(format!("{:?} {kind:?}", entry.file_name()));
    }
    names.sort();
    Ok(hashed(names.join("\n").as_bytes()))
}
