//! The host's tree.

use super::{CAPABILITY, Meta, Preserve, Source, Target, Xattr};
use crate::error::{Error, Result, host};
use crate::image::SYMLINKS_MAX;
use backstitch_vfs::{FileType, Timestamp};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType as HostType, Gid, Mode, SeekFrom, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::Errno;
use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The largest value that an extended attribute can have on Linux.
const XATTR_MAX_BYTES: usize = 65536;

/// The number of zeros that are written at a time.
const ZEROS_BYTES: usize = 1 << 16;

/// The host's files, for the command `what`.
pub struct HostTree {
    what: &'static str,
    /// The image on the other side of the copy, which must not be overwritten.
    image: Option<(u64, u64)>,
}

/// A file of the host.
pub struct HostNode {
    path: PathBuf,
    file: OnceCell<File>,
    /// Whether a symbolic link at the path's end stands for its target: the path is from the
    /// command line.
    follow: bool,
    /// For a stream: the bytes written so far.
    streamed: Option<Cell<u64>>,
}

impl HostNode {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>, follow: bool) -> HostNode {
        HostNode {
            path: path.into(),
            file: OnceCell::new(),
            follow,
            streamed: None,
        }
    }

    fn child(&self, name: &[u8]) -> HostNode {
        HostNode::new(self.path.join(OsStr::from_bytes(name)), false)
    }
}

/// The caller's umask.
pub fn umask() -> u16 {
    // The umask can only be read by setting it; no other thread runs yet.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    (umask.bits() & 0o777) as u16
}

impl HostTree {
    /// A tree whose errors name the command `what`.
    pub fn new(what: &'static str) -> HostTree {
        HostTree { what, image: None }
    }

    /// The host's tree for a copy out of an image, which must not be overwritten.
    pub(crate) fn beside(what: &'static str, image: Option<(u64, u64)>) -> HostTree {
        HostTree { what, image }
    }

    fn at<T>(&self, path: &Path, done: io::Result<T>) -> Result<T> {
        done.map_err(|error| Error::at_path(self.what, path, host(&error)))
    }

    /// The opened file: opened once for reading, unless we have created it.
    fn file<'a>(&self, node: &'a HostNode) -> Result<&'a File> {
        if let Some(file) = node.file.get() {
            return Ok(file);
        }
        let flags = if node.follow { 0 } else { libc::O_NOFOLLOW };
        let opened = File::options()
            .read(true)
            .custom_flags(flags)
            .open(&node.path);
        let file = self.at(&node.path, opened)?;
        Ok(node.file.get_or_init(|| file))
    }

    fn value(path: &Path, name: &OsStr) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0_u8; XATTR_MAX_BYTES];
        let len = rustix::fs::lgetxattr(path, name, &mut buffer[..])?;
        buffer.truncate(len);
        Ok(buffer)
    }
}

/// The kernel's 32-bit encoding of a device number: 12 bits of major between 8 and 12 bits of
/// minor.
fn encode_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

fn decode_device(number: u32) -> u64 {
    let (major, minor) = (
        number >> 8 & 0xfff,
        (number & 0xff) | (number >> 12 & 0xfff00),
    );
    rustix::fs::makedev(major, minor)
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    }
}

/// Whether a path is a link of the kernel's to an open file, such as `/dev/fd/3`.
fn is_descriptor(path: &Path) -> bool {
    let seen = path.parent().map(rustix::fs::statfs);
    let is_proc = matches!(seen, Some(Ok(seen)) if seen.f_type == rustix::fs::PROC_SUPER_MAGIC);
    is_proc && path.is_symlink()
}

/// Whether a rename failed because the user may not do it here.
fn is_refused(error: &io::Error) -> bool {
    let number = error.raw_os_error().unwrap_or(0);
    [libc::EACCES, libc::EPERM, libc::EBUSY, libc::EXDEV].contains(&number)
}

fn is_unsupported(error: &io::Error) -> bool {
    let number = error.raw_os_error().unwrap_or(0);
    [libc::EOPNOTSUPP, libc::EPERM, libc::ENODATA].contains(&number)
}

impl Source for HostTree {
    type Node = HostNode;
    const STRICT: bool = false;

    fn name(&self, node: &HostNode) -> String {
        node.path.display().to_string()
    }

    fn meta(&self, node: &HostNode) -> Result<Meta> {
        let read = if node.follow {
            node.path.metadata()
        } else {
            node.path.symlink_metadata()
        };
        let m = self.at(&node.path, read)?;
        let file_type = FileType::from_mode(m.mode());
        let file_type = file_type
            .ok_or_else(|| Error::at_path(self.what, &node.path, "a file of an unknown type"))?;
        let is_device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
        Ok(Meta {
            file_type,
            permissions: (m.mode() & 0o7777) as u16,
            uid: m.uid(),
            gid: m.gid(),
            size_bytes: m.size(),
            device_number: if is_device {
                encode_device(m.rdev())
            } else {
                0
            },
            links: u32::try_from(m.nlink()).unwrap_or(u32::MAX),
            accessed: Timestamp {
                seconds: m.atime(),
                nanoseconds: m.atime_nsec() as u32,
            },
            modified: Timestamp {
                seconds: m.mtime(),
                nanoseconds: m.mtime_nsec() as u32,
            },
            identity: (m.dev(), m.ino()),
        })
    }

    fn names(&self, node: &HostNode) -> Result<Vec<Vec<u8>>> {
        let read = std::fs::read_dir(&node.path).and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name().as_bytes().to_vec()))
                .collect()
        });
        let mut names: Vec<Vec<u8>> = self.at(&node.path, read)?;
        // The host's order means nothing, and differs between machines.
        names.sort_unstable();
        Ok(names)
    }

    fn child(&self, dir: &HostNode, name: &[u8]) -> Result<HostNode> {
        Ok(dir.child(name))
    }

    fn read_link(&self, node: &HostNode) -> Result<Vec<u8>> {
        let target = self.at(&node.path, std::fs::read_link(&node.path))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }

    fn next_data(&self, node: &HostNode, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let file = self.file(node)?;
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // This file system does not tell where holes are.
            Err(_) => return Ok(Some((offset, size))),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
        let end = end.min(size);
        Ok((start < end).then_some((start, end)))
    }

    fn read(&self, node: &HostNode, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        let begin = into.len();
        into.resize(begin + len, 0);
        let read = self.file(node)?.read_at(&mut into[begin..], offset);
        let read = self.at(&node.path, read)?;
        into.truncate(begin + read);
        Ok(())
    }

    fn xattrs(&self, node: &HostNode) -> Result<Vec<Xattr>> {
        let mut buffer = vec![0_u8; XATTR_MAX_BYTES];
        let len = match rustix::fs::llistxattr(&node.path, &mut buffer[..]) {
            Ok(len) => len,
            Err(error) if is_unsupported(&error.into()) => return Ok(Vec::new()),
            Err(error) => return self.at(&node.path, Err(error.into())),
        };
        let names = buffer[..len]
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty());
        let mut found = Vec::new();
        for name in names {
            match Self::value(&node.path, OsStr::from_bytes(name)) {
                Ok(value) => found.push((name.to_vec(), value)),
                // The attribute was removed meanwhile, or the user may not read it.
                Err(error) if is_unsupported(&error) => {}
                Err(error) => return self.at(&node.path, Err(error)),
            }
        }
        Ok(found)
    }
}

impl HostTree {
    fn create_node(path: &Path, meta: &Meta, link_target: &[u8]) -> io::Result<Option<File>> {
        let mode = Mode::from_raw_mode(u32::from(meta.permissions & 0o777));
        let host_type = match meta.file_type {
            FileType::Regular => {
                let mut options = File::options();
                options.read(true).write(true).create_new(true);
                return options.mode(mode.bits()).open(path).map(Some);
            }
            FileType::Symlink => {
                return std::os::unix::fs::symlink(OsStr::from_bytes(link_target), path)
                    .map(|()| None);
            }
            FileType::Directory => {
                // The owner must be able to make files in it.
                let filled = mode | Mode::RWXU;
                return Ok(rustix::fs::mkdir(path, filled).map(|()| None)?);
            }
            FileType::Fifo => HostType::Fifo,
            FileType::Socket => HostType::Socket,
            FileType::CharacterDevice => HostType::CharacterDevice,
            FileType::BlockDevice => HostType::BlockDevice,
        };
        let device = decode_device(meta.device_number);
        Ok(rustix::fs::mknodat(CWD, path, host_type, mode, device).map(|()| None)?)
    }

    /// Writes zeros to a stream up to `offset`.
    fn fill_stream(&self, node: &HostNode, offset: u64) -> Result<()> {
        let Some(streamed) = &node.streamed else {
            return Ok(());
        };
        let mut file = self.file(node)?;
        let zeros = [0; ZEROS_BYTES];
        while streamed.get() < offset {
            let len = (offset - streamed.get()).min(ZEROS_BYTES as u64);
            self.at(&node.path, file.write_all(&zeros[..len as usize]))?;
            streamed.set(streamed.get() + len);
        }
        Ok(())
    }

    /// Gives a file its owner. Returns the permissions to set: without set-user-ID and set-group-ID
    /// if the file did not get the owner.
    fn give_owner(&self, node: &HostNode, meta: &Meta) -> Result<u16> {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(CWD, &node.path, Some(uid), Some(gid), flags) {
            Ok(()) => Ok(meta.permissions),
            Err(Errno::PERM) => Ok(meta.permissions & !0o6000),
            Err(error) => self.at(&node.path, Err(error.into())),
        }
    }
}

impl Target for HostTree {
    fn place(&self, dir: &HostNode, name: &[u8]) -> String {
        dir.path.join(OsStr::from_bytes(name)).display().to_string()
    }

    fn find(&self, dir: &HostNode, name: &[u8]) -> Result<Option<(HostNode, FileType)>> {
        let node = dir.child(name);
        match node.path.symlink_metadata() {
            Ok(metadata) => {
                if self.image == Some((metadata.dev(), metadata.ino())) {
                    let why = "this is the image that is copied from";
                    let error = Error::at_path(self.what, &node.path, why);
                    return Err(error.hint("a path in an image is written IMAGE:/path"));
                }
                let kind = FileType::from_mode(metadata.mode()).unwrap_or(FileType::Regular);
                Ok(Some((node, kind)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => self.at(&node.path, Err(error)),
        }
    }

    fn create(
        &self,
        dir: &HostNode,
        name: &[u8],
        meta: &Meta,
        link_target: &[u8],
    ) -> Result<HostNode> {
        let node = dir.child(name);
        let made = Self::create_node(&node.path, meta, link_target);
        if let Some(file) = self.at(&node.path, made)? {
            let _ = node.file.set(file);
        }
        Ok(node)
    }

    fn through(&self, dir: &HostNode, name: &[u8]) -> Result<Option<(HostNode, Vec<u8>)>> {
        let Some((node, FileType::Symlink)) = self.find(dir, name)? else {
            return Ok(None);
        };
        let mut path = node.path.clone();
        for _ in 0..SYMLINKS_MAX {
            let target = match std::fs::read_link(&path) {
                // A descriptor's file is written to, not replaced.
                Ok(_) if is_descriptor(&path) => break,
                Ok(target) => target,
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let why = "the symbolic link leads to nothing";
                    return Err(Error::at_path(self.what, &node.path, why));
                }
                Err(error) => return self.at(&path, Err(error)),
            };
            path = path.parent().unwrap_or(Path::new("/")).join(target);
        }
        let (parent, name) = (path.parent(), path.file_name());
        let Some((parent, name)) = parent.zip(name) else {
            return Ok(None);
        };
        Ok(Some((
            HostNode::new(parent, true),
            name.as_bytes().to_vec(),
        )))
    }

    fn spool(&self) -> Result<Option<HostNode>> {
        let mut number = std::process::id();
        loop {
            let name = format!("backstitch-{}-{number}", self.what);
            let node = HostNode::new(std::env::temp_dir().join(name), false);
            let mut options = File::options();
            let made = options.read(true).write(true).create_new(true).mode(0o600);
            match made.open(&node.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                made => {
                    let _ = node.file.set(self.at(&node.path, made)?);
                    return Ok(Some(node));
                }
            }
        }
    }

    fn stream(&self, node: &HostNode) -> Result<Option<HostNode>> {
        let mut options = File::options();
        let file = match is_descriptor(&node.path) {
            true => options.append(true).open(&node.path),
            false => options.write(true).open(&node.path),
        };
        let file = self.at(&node.path, file)?;
        let stream = HostNode {
            streamed: Some(Cell::new(0)),
            ..HostNode::new(&node.path, true)
        };
        let _ = stream.file.set(file);
        Ok(Some(stream))
    }

    fn may_write(&self, node: &HostNode) -> bool {
        let open = |read| {
            let mut options = File::options();
            options.read(read).write(true);
            options.custom_flags(libc::O_NOFOLLOW).open(&node.path)
        };
        match open(true).or_else(|_| open(false)) {
            Ok(file) => node.file.set(file).is_ok(),
            Err(_) => false,
        }
    }

    fn link(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> Result<HostNode> {
        let linked = dir.child(name);
        self.at(&linked.path, std::fs::hard_link(&node.path, &linked.path))?;
        Ok(linked)
    }

    fn remove(&self, node: &HostNode) -> Result<()> {
        self.at(&node.path, std::fs::remove_file(&node.path))
    }

    fn rename(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> Result<bool> {
        let to = dir.child(name);
        match std::fs::rename(&node.path, &to.path) {
            Ok(()) => Ok(true),
            // The directory or the file belongs to others, or is on another file system.
            Err(error) if is_refused(&error) => Ok(false),
            Err(error) => self.at(&to.path, Err(error)),
        }
    }

    fn write(&self, node: &HostNode, offset: u64, data: &[u8]) -> Result<()> {
        let file = self.file(node)?;
        let Some(streamed) = &node.streamed else {
            return self.at(&node.path, file.write_all_at(data, offset));
        };
        self.fill_stream(node, offset)?;
        self.at(&node.path, (&*file).write_all(data))?;
        streamed.set(offset + data.len() as u64);
        Ok(())
    }

    fn set_size(&self, node: &HostNode, size: u64) -> Result<()> {
        match node.streamed {
            Some(_) => self.fill_stream(node, size),
            None => self.at(&node.path, self.file(node)?.set_len(size)),
        }
    }

    fn reserve(&self, node: &HostNode, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let file = self.file(node)?;
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size) {
            // Not every file system can reserve; then the complete new contents beside the file are
            // the safeguard.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => self.at(&node.path, Err(error.into())),
        }
    }

    fn punch(&self, node: &HostNode, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let file = self.file(node)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(file, flags, start, end - start).is_ok() {
            return Ok(());
        }
        let zeros = [0; ZEROS_BYTES];
        let mut at = start;
        while at < end {
            let len = (end - at).min(ZEROS_BYTES as u64);
            self.at(&node.path, file.write_all_at(&zeros[..len as usize], at))?;
            at += len;
        }
        Ok(())
    }

    fn image_file(&self) -> Option<(u64, u64)> {
        None
    }

    fn begin_order(&self) -> Result<()> {
        Ok(())
    }

    fn sync(&self, node: &HostNode) -> Result<()> {
        match node.file.get() {
            Some(file) => self.at(&node.path, file.sync_all()),
            None => Ok(()),
        }
    }

    fn end_order(&self) {}

    fn set_xattr(&self, node: &HostNode, (name, value): &Xattr) -> Result<bool> {
        let name = OsStr::from_bytes(name);
        match rustix::fs::lsetxattr(&node.path, name, value, XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(error) if is_unsupported(&error.into()) => Ok(false),
            Err(error) => self.at(&node.path, Err(error.into())),
        }
    }

    fn take_after(&self, node: &HostNode, other: &HostNode) -> Result<bool> {
        let seen = self.at(&other.path, other.path.symlink_metadata())?;
        let made = self.at(&node.path, node.path.symlink_metadata())?;
        let (uid, gid) = (Uid::from_raw(seen.uid()), Gid::from_raw(seen.gid()));
        if (made.uid(), made.gid()) != (seen.uid(), seen.gid())
            && rustix::fs::chownat(
                CWD,
                &node.path,
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .is_err()
        {
            return Ok(false);
        }
        for xattr in self.xattrs(other)? {
            // Capabilities were given to the old contents, and go with them.
            if xattr.0 != CAPABILITY && !self.set_xattr(node, &xattr)? {
                return Ok(false);
            }
        }
        // As the kernel does when a user other than root writes to a file.
        let kept = match rustix::process::geteuid().is_root() {
            true => 0o7777,
            false => 0o1777,
        };
        let set = std::fs::Permissions::from_mode(seen.mode() & kept);
        Ok(std::fs::set_permissions(&node.path, set).is_ok())
    }

    fn finish(&self, node: &HostNode, meta: &Meta, preserve: Preserve) -> Result<()> {
        let permissions = match preserve.owner {
            true => self.give_owner(node, meta)?,
            false => meta.permissions,
        };
        if preserve.mode && meta.file_type != FileType::Symlink {
            let set = std::fs::Permissions::from_mode(u32::from(permissions));
            self.at(&node.path, std::fs::set_permissions(&node.path, set))?;
        }
        if preserve.times {
            let times = Timestamps {
                last_access: timespec(meta.accessed),
                last_modification: timespec(meta.modified),
            };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let set = rustix::fs::utimensat(CWD, &node.path, &times, flags);
            self.at(&node.path, set.map_err(io::Error::from))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_the_kernels() {
        for (major, minor) in [(8, 1), (259, 300), (0xfff, 0xfffff), (1, 3)] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device(rustix::fs::makedev(8, 1)), 0x801);
        assert_eq!(encode_device(rustix::fs::makedev(1, 0x100)), 0x10_0100);
    }
}
