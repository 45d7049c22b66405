//! Images opened in process: no mount, no root.

use crate::error::{Error, Result};
use crate::foreign;
use crate::named::Named;
use crate::paths::{ImagePath, components, joined, split_last};
use crate::pattern;
use backstitch_device::{BlockDevice, OpenOptions, SlowFlushDevice, VolatileDevice};
use backstitch_layout::JournalLocation;
use backstitch_mechanisms::usual_for;
use backstitch_vfs::{
    Attributes, Engine, FileType, InodeNumber, LayoutError, LayoutKind, MountOptions, Ordering,
    Structure, Timestamp,
};
use std::collections::{HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many symbolic links a path may lead through, as in Linux.
pub(crate) const SYMLINKS_MAX: usize = 40;

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    /// Whether the file is opened read-only and writes are refused.
    pub read_only: bool,
    /// Completes writes without a flush (`-o unsafe`).
    pub unsafe_no_flush: bool,
    /// See [`OpenOptions::beside_writers`].
    pub beside_writers: bool,
    /// The seed of a simulated cache that loses what was not flushed; for tests.
    pub volatile_seed: Option<u64>,
    /// How much longer each flush takes.
    pub flush_delay: Option<Duration>,
}

/// Opens the device that an `IMAGE` operand names.
pub fn open_device(
    what: &str,
    path: &Path,
    options: DeviceOptions,
) -> Result<Arc<dyn BlockDevice>> {
    if path.as_os_str().as_bytes().starts_with(b"nbd://") {
        return Err(Error::at_path(
            what,
            path,
            "network block devices are not implemented",
        ));
    }
    let open = OpenOptions {
        read_only: options.read_only,
        unsafe_no_flush: options.unsafe_no_flush,
        beside_writers: options.beside_writers,
    };
    let named = Named::of(what, path)?;
    let (device, part) = named.open(what, open)?;
    let device: Arc<dyn BlockDevice> = match options.volatile_seed {
        Some(seed) => Arc::new(VolatileDevice::new(Arc::new(device), seed)),
        None => Arc::new(device),
    };
    let device: Arc<dyn BlockDevice> = match options.flush_delay {
        Some(delay) => Arc::new(SlowFlushDevice::new(device, delay)),
        None => device,
    };
    let Some(part) = part else {
        return Ok(device);
    };
    let device = part.on(device);
    Ok(Arc::new(device.map_err(|error| {
        Error::at_path(what, &named.file, error)
    })?))
}

/// The time now.
pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

/// Converts the standard library's time.
pub fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let whole = 0_i64.saturating_sub_unsigned(before.as_secs());
            match before.subsec_nanos() {
                0 => Timestamp {
                    seconds: whole,
                    nanoseconds: 0,
                },
                n => Timestamp {
                    seconds: whole.saturating_sub(1),
                    nanoseconds: 1_000_000_000 - n,
                },
            }
        }
    }
}

/// The access that a command needs to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads; changes no byte.
    Read,
    /// Writes.
    Write,
}

/// An image that is open in process.
pub struct Image {
    what: &'static str,
    name: PathBuf,
    pub(crate) engine: Arc<Engine>,
}

/// Opens `image`, calls `work`, and brings everything to the disk, even if `work` fails.
pub(crate) fn with_image<T>(
    what: &'static str,
    image: &Path,
    access: Access,
    work: impl FnOnce(&Image) -> Result<T>,
) -> Result<T> {
    let read_only = access == Access::Read;
    let device = open_device(
        what,
        image,
        DeviceOptions {
            read_only,
            ..Default::default()
        },
    )?;
    on_device(what, image, device, access, work)
}

/// Calls `work` for each file that the operands stand for, patterns included. Successive operands
/// in one image share one opening of it.
pub(crate) fn with_files(
    what: &'static str,
    access: Access,
    operands: &[ImagePath],
    mut work: impl FnMut(&Image, &[u8]) -> Result<()>,
) -> Result<()> {
    for same in operands.chunk_by(|a, b| a.image == b.image) {
        with_image(what, &same[0].image, access, |image| {
            for operand in same {
                for path in image.expand(&operand.path)? {
                    work(image, &path)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// As [`with_image`], for a device that is already open.
pub(crate) fn on_device<T>(
    what: &'static str,
    name: &Path,
    device: Arc<dyn BlockDevice>,
    access: Access,
    work: impl FnOnce(&Image) -> Result<T>,
) -> Result<T> {
    on_fresh_device(what, name, (device, None), access, false, work)
}

/// The ordering where none is stated: see [`backstitch_vfs::default_ordering`]. A device without a
/// readable file system is reported only when it is opened.
pub fn default_ordering(
    what: &'static str,
    name: &Path,
    device: &dyn BlockDevice,
    journal_device: Option<&dyn BlockDevice>,
) -> Result<Ordering> {
    let layout = backstitch_formats::of(device).layout();
    match backstitch_vfs::default_ordering(device, journal_device, layout) {
        Err(_) if layout.block_bytes(device).is_err() => Ok(usual_for(false)),
        found => found.map_err(|error| foreign::explained(what, name, device, error)),
    }
}

/// As `on_device`; with `without_journal` the journal is not used, for a new image that no other
/// program knows yet.
pub fn on_fresh_device<T>(
    what: &'static str,
    name: &Path,
    (device, journal_device): (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>),
    access: Access,
    without_journal: bool,
    work: impl FnOnce(&Image) -> Result<T>,
) -> Result<T> {
    let ordering = match without_journal || access == Access::Read {
        true => usual_for(false),
        false => default_ordering(what, name, &*device, journal_device.as_deref())?,
    };
    let options = MountOptions {
        read_only: access == Access::Read,
        ordering,
        mount_time: now(),
        without_journal,
        ..MountOptions::default()
    };
    let failed = |error: backstitch_vfs::Error| Error::at_path(what, name, error);
    let layout = backstitch_formats::of(&*device).layout();
    let needs_other = access == Access::Write && !without_journal && journal_device.is_none();
    if needs_other && has_journal_elsewhere(&*device, layout) {
        let why = "cannot be written: its journal is on another device";
        let hint = "mount it with -o journal_dev=DEVICE, and write there";
        return Err(Error::at_path(what, name, why).hint(hint));
    }
    let engine = Engine::mount_with_journal(device.clone(), journal_device, layout, &options)
        .map_err(|error| foreign::explained(what, name, &*device, error))?;
    drop(device);
    let image = Image {
        what,
        name: name.to_owned(),
        engine,
    };
    let mut is_begun = false;
    let done = match image.engine.read_only_reason() {
        Some(reason) if access == Access::Write => Err(Error::at_path(
            what,
            name,
            format!("cannot be written: {reason}"),
        )),
        _ => {
            is_begun = true;
            work(&image)
        }
    };
    match (done, image.engine.unmount()) {
        // The device's failure is the cause of the other errors, and says more.
        (_, Err(backstitch_vfs::Error::Latched(error))) if is_begun => {
            let error = Error::at_path(what, name, error);
            Err(error.hint("what was written before is there, as after a crash; run it again when the cause is gone"))
        }
        (done, closed) => done.and_then(|done| closed.map_err(failed).map(|()| done)),
    }
}

/// Whether a file system's journal is on a device of its own.
fn has_journal_elsewhere(device: &dyn BlockDevice, layout: &dyn LayoutKind) -> bool {
    let place = (layout.journal_host()).and_then(|host| host.place(device).ok().flatten());
    place.is_some_and(|place| matches!(place.location, JournalLocation::Outside(_)))
}

/// A reference to an inode, given back when this is dropped.
pub(crate) struct Held {
    engine: Arc<Engine>,
    /// The attributes when the reference was taken.
    pub(crate) attributes: Attributes,
    counted: bool,
}

impl Held {
    /// The inode.
    pub(crate) fn inode(&self) -> InodeNumber {
        self.attributes.inode
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.attributes.file_type == FileType::Directory
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.counted {
            self.engine.forget(self.attributes.inode, 1);
        }
    }
}

impl Image {
    /// An error of this command at a path of this image.
    pub(crate) fn error(&self, path: &[u8], why: impl std::fmt::Display) -> Error {
        Error::failed(self.what, self.place(path), why)
    }

    /// The file of the host that holds the image.
    pub fn file(&self) -> Option<(u64, u64)> {
        let named = Named::of(self.what, &self.name).ok()?;
        let seen = std::fs::metadata(named.file).ok()?;
        Some((seen.dev(), seen.ino()))
    }

    /// A path of this image as the command line names it.
    pub(crate) fn place(&self, path: &[u8]) -> ImagePath {
        ImagePath {
            image: self.name.clone(),
            path: path.to_vec(),
        }
    }

    /// The paths that a shell pattern stands for, sorted. A path that exists stands for itself, and
    /// so does a pattern without a match.
    pub(crate) fn expand(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        if !pattern::is_pattern(path) || self.is_there(path)? {
            return Ok(vec![path.to_vec()]);
        }
        let mut found = vec![b"/".to_vec()];
        for component in components(path) {
            let mut next = Vec::new();
            for dir in found {
                self.expand_in(&dir, &component, &mut next)?;
            }
            found = next;
        }
        if path.ends_with(b"/") {
            found.iter_mut().for_each(|path| path.push(b'/'));
            let mut dirs = Vec::new();
            for path in found {
                if self.is_there(&path)? {
                    dirs.push(path);
                }
            }
            found = dirs;
        }
        match found.is_empty() {
            true => Ok(vec![path.to_vec()]),
            false => Ok(found),
        }
    }

    /// Adds the names in `dir` that match one component of a pattern.
    fn expand_in(&self, dir: &[u8], component: &[u8], found: &mut Vec<Vec<u8>>) -> Result<()> {
        if !pattern::is_pattern(component) {
            let path = joined(dir, component);
            if self.is_there(&path)? {
                found.push(path);
            }
            return Ok(());
        }
        // Below a file nothing matches.
        let as_dir = joined(dir, b"");
        if !self.is_there(&as_dir)? {
            return Ok(());
        }
        let held = self.resolve(dir, true)?;
        let names = self.names(held.inode());
        let mut names = names.map_err(|error| self.error(dir, error))?;
        names.sort_unstable();
        let is_hidden = |name: &[u8]| name.starts_with(b".") && !component.starts_with(b".");
        found.extend(
            names
                .iter()
                .filter(|name| !is_hidden(name) && pattern::matches(component, name))
                .map(|name| joined(dir, name)),
        );
        Ok(())
    }

    /// Whether a path leads to a file. A path through a file that is no directory does not.
    fn is_there(&self, path: &[u8]) -> Result<bool> {
        use backstitch_vfs::Error::Layout;
        match self.try_resolve(path, false) {
            Ok(_) => Ok(true),
            Err(Layout(LayoutError::NotFound | LayoutError::NotADirectory | LayoutError::Loop)) => {
                Ok(false)
            }
            Err(error) => Err(self.error(path, error)),
        }
    }

    /// Takes over the reference that came with `attributes`.
    pub(crate) fn hold(&self, attributes: Attributes) -> Held {
        Held {
            engine: self.engine.clone(),
            attributes,
            counted: true,
        }
    }

    fn root(&self) -> backstitch_vfs::Result<Held> {
        let attributes = self.engine.attributes(self.engine.root())?;
        Ok(Held {
            engine: self.engine.clone(),
            attributes,
            counted: false,
        })
    }

    /// The file that a path leads to. With `follow` a symbolic link at its end is followed.
    pub(crate) fn resolve(&self, path: &[u8], follow: bool) -> Result<Held> {
        self.try_resolve(path, follow)
            .map_err(|error| self.error(path, error))
    }

    /// As [`resolve`](Self::resolve); `None` where there is no such file.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> Result<Option<Held>> {
        match self.try_resolve(path, follow) {
            Ok(held) => Ok(Some(held)),
            Err(backstitch_vfs::Error::Layout(LayoutError::NotFound)) => Ok(None),
            Err(error) => Err(self.error(path, error)),
        }
    }

    /// The directory that holds a path's last name, and that name.
    pub(crate) fn resolve_parent<'a>(&self, path: &'a [u8]) -> Result<(Held, &'a [u8])> {
        let (parent, name) = split_last(path);
        if name.is_empty() || name == b"." || name == b".." {
            let why = match components(path).is_empty() {
                true => "the root directory stays where it is",
                false => "'.' and '..' cannot be made, moved or removed",
            };
            return Err(self.error(path, why));
        }
        let dir = self.resolve(parent, true)?;
        if !dir.is_directory() {
            return Err(self.error(parent, LayoutError::NotADirectory));
        }
        Ok((dir, name))
    }

    fn try_resolve(&self, path: &[u8], follow: bool) -> backstitch_vfs::Result<Held> {
        let follow = follow || path.ends_with(b"/");
        let mut left: VecDeque<Vec<u8>> = components(path);
        let mut way = vec![self.root()?];
        let mut symlinks = 0;
        while let Some(name) = left.pop_front() {
            if name == b".." {
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let Some(here) = way.last() else { break };
            let found = self.hold(self.engine.lookup(here.inode(), &name)?);
            if found.attributes.file_type != FileType::Symlink || (left.is_empty() && !follow) {
                way.push(found);
                continue;
            }
            symlinks += 1;
            if symlinks > SYMLINKS_MAX {
                return Err(LayoutError::Loop.into());
            }
            let target = self.engine.read_link(found.inode())?;
            if target.starts_with(b"/") {
                way.truncate(1);
            }
            for name in components(&target).into_iter().rev() {
                left.push_front(name);
            }
        }
        let end = way.pop().ok_or(LayoutError::NotFound)?;
        if path.ends_with(b"/") && !end.is_directory() {
            return Err(LayoutError::NotADirectory.into());
        }
        Ok(end)
    }

    /// The names in a directory, without `.` and `..`.
    pub(crate) fn names(&self, dir: InodeNumber) -> backstitch_vfs::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut is_sound = true;
        let mut cookie = 0;
        loop {
            // The engine returns a directory in parts.
            let from = cookie;
            self.engine.read_directory(dir, from, &mut |entry| {
                is_sound = !entry.name.iter().any(|&byte| byte == b'/' || byte == 0);
                cookie = entry.next_cookie;
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name.to_vec());
                }
                is_sound
            })?;
            if cookie == from || !is_sound {
                break;
            }
        }
        // With such a name a copy would leave its tree.
        if !is_sound {
            return Err(LayoutError::corrupt(Structure::Directory(dir), Fault::UnsafeName).into());
        }
        Ok(names)
    }
}

/// A fault that a command meets in an image.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
enum Fault {
    #[error("a name with a slash or NUL in it")]
    UnsafeName,
    #[error("it lies below itself")]
    BelowItself,
}

/// Whether `dir` is `ancestor` or is below it.
pub(crate) fn is_inside(
    image: &Image,
    ancestor: &Held,
    dir: &Held,
) -> backstitch_vfs::Result<bool> {
    let root = image.engine.root();
    let mut seen = HashSet::new();
    let mut here = dir.inode();
    while here != root {
        if here == ancestor.inode() {
            return Ok(true);
        }
        if !seen.insert(here) {
            return Err(
                LayoutError::corrupt(Structure::Directory(here), Fault::BelowItself).into(),
            );
        }
        here = image.hold(image.engine.lookup(here, b"..")?).inode();
    }
    Ok(ancestor.inode() == root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_before_1970_round_down() {
        let time = UNIX_EPOCH - std::time::Duration::from_millis(1200);
        assert_eq!(
            timestamp(time),
            Timestamp {
                seconds: -2,
                nanoseconds: 800_000_000
            }
        );
    }
}
