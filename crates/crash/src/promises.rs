//! Whether what a mounted image shows is what the workload was promised.

mod versions;

use std::ops::Range;

use backstitch_crash_core::mount::{Mount, Nobody};
use backstitch_layout::flags::{APPEND, IMMUTABLE, SETTABLE};
use backstitch_layout::operations;
use backstitch_layout::{
    Attributes, DirectoryEntry, Error, FileSystem, FileType, InodeNumber, LOG_FILE_NAME, Piece,
    Result, SetAttributes, Timestamp,
};
use backstitch_ordering::{Operation, Volume};

use crate::contents::Contents;
use crate::model::{Model, Object, ObjectId, Owner, ROOT, Times};
use twox_hash::xxhash3_128::Hasher;
use versions::{first_foreign, is_size_of};

/// The most findings that are collected.
const MOST: usize = 8;

/// The promises that were not kept, in words; empty if all were. Also a fingerprint of all that was
/// looked at: whatever shows the same keeps the same promises.
///
/// `mapped_behind` are the inodes that map blocks beyond their ends. A growing file may, since its
/// blocks come before the size. A truncated one may not, since its blocks go before the size
/// shrinks.
pub(crate) fn broken(
    mount: &mut Mount,
    model: &Model,
    mapped_behind: &[InodeNumber],
) -> (Vec<String>, u128) {
    let mut check = Check {
        mount,
        model,
        mapped_behind,
        seen: vec![false; model.objects.len()],
        broken: Vec::new(),
        shown: Hasher::new(),
    };
    for inode in mapped_behind {
        check.shown.write(&inode.0.to_le_bytes());
    }
    check.directory(ROOT, "");
    for (id, object) in model.objects.iter().enumerate() {
        if object.must_exist && !check.seen[id] && id != ROOT {
            let what = format!(
                "inode {} was on stable storage, nobody removed it, and no name leads to it",
                object.inode
            );
            check.note(what);
        }
    }
    (check.broken, check.shown.finish_128())
}

struct Check<'a> {
    mount: &'a mut Mount,
    model: &'a Model,
    mapped_behind: &'a [InodeNumber],
    seen: Vec<bool>,
    broken: Vec<String>,
    /// A hash of everything that is seen, in the order of the walk.
    shown: Hasher,
}

/// A name as a directory shows it.
struct Shown {
    name: Vec<u8>,
    inode: InodeNumber,
}

impl Check<'_> {
    fn note(&mut self, what: String) {
        if self.broken.len() < MOST {
            self.broken.push(what);
        }
    }

    fn saw(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.shown.write(&number.to_le_bytes());
        }
    }

    fn saw_bytes(&mut self, bytes: &[u8]) {
        self.saw(&[bytes.len() as u64]);
        self.shown.write(bytes);
    }

    fn run<T>(
        &mut self,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> backstitch_layout::Step<T>,
    ) -> Result<T> {
        self.mount.run(Operation::Administration, &mut Nobody, body)
    }

    /// Checks everything from a directory on.
    fn directory(&mut self, id: ObjectId, path: &str) {
        if std::mem::replace(&mut self.seen[id], true) {
            return;
        }
        let model = self.model;
        let directory = &model.objects[id];
        let names = match self.names(directory.inode) {
            Ok(names) => names,
            Err(error) => return self.note(format!("{path}/: cannot be listed: {error}")),
        };
        self.saw(&[names.len() as u64]);
        for shown in &names {
            self.entry(id, shown, path);
        }
        for (name, entry) in &directory.entries {
            let there = names.iter().any(|shown| shown.name == *name);
            if !there && !entry.allowed().contains(&None) {
                let name = String::from_utf8_lossy(name);
                self.note(format!("{path}/{name}: the name is missing"));
            }
        }
    }

    fn names(&mut self, inode: InodeNumber) -> Result<Vec<Shown>> {
        self.run(|fs, v, _| {
            let mut names = Vec::new();
            let mut emit = |entry: &DirectoryEntry<'_>| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(Shown {
                        name: entry.name.to_vec(),
                        inode: entry.inode,
                    });
                }
                true
            };
            fs.read_directory(v, inode, 0, &mut emit)?;
            Ok(names)
        })
    }

    fn entry(&mut self, holder: ObjectId, shown: &Shown, path: &str) {
        let directory = &self.model.objects[holder];
        let path = format!("{path}/{}", String::from_utf8_lossy(&shown.name));
        let inode = shown.inode;
        if self.model.foreign.contains(&inode) {
            return;
        }
        let attributes = match self.run(|fs, v, _| fs.attributes(v, inode)) {
            Ok(attributes) => attributes,
            Err(error) => return self.note(format!("{path}: inode {inode}: {error}")),
        };
        self.saw_bytes(&shown.name);
        let kind = attributes.file_type as u64;
        self.saw(&[inode.0.into(), attributes.generation.into(), kind]);
        let Some(id) = self.model.identify(inode, attributes.generation) else {
            let what = format!("{path}: shows inode {inode}, which was never made");
            return self.note(what);
        };
        let entry = directory.entries.get(&shown.name);
        if !entry.is_some_and(|entry| entry.allowed().contains(&Some(id))) {
            self.note(format!("{path}: must not be inode {inode} (any more)"));
        }
        let model = self.model;
        let object = &model.objects[id];
        if object.kind != attributes.file_type {
            let what = format!(
                "{path}: is a {:?}, was made as a {:?}",
                attributes.file_type, object.kind
            );
            return self.note(what);
        }
        let flags = attributes.flags & SETTABLE;
        if !object.flags.allowed().contains(&flags) {
            let allowed = object.flags.allowed();
            self.note(format!(
                "{path}: has flags {flags:#x}, promised were {allowed:x?}"
            ));
        }
        let written = object.moved_new.get(&(holder, shown.name.clone()));
        if let Some(written) = written.filter(|written| attributes.size_bytes < **written) {
            let size = attributes.size_bytes;
            self.note(format!(
                "{path}: has {size} bytes, and {written} were written before it got this name"
            ));
        }
        self.owner(object, &attributes, &path);
        self.xattrs(object, &path);
        if object.kind == FileType::Directory {
            return self.directory(id, &path);
        }
        if std::mem::replace(&mut self.seen[id], true) {
            return;
        }
        match object.kind {
            FileType::Regular => {
                self.contents(object, &attributes, &path);
                self.reserved(object, &path);
                self.end(object, &attributes, &path);
            }
            FileType::Symlink => self.target(object, &path),
            _ => {}
        }
    }

    fn owner(&mut self, object: &Object, attributes: &Attributes, path: &str) {
        let (owner, times) = (Owner::of(attributes), Times::of(attributes));
        self.saw(&[owner.permissions.into(), owner.uid.into(), owner.gid.into()]);
        self.saw(&[times.accessed as u64, times.modified as u64]);
        // Each of these is changed by itself.
        let given = object.owner.allowed();
        let is_given = given.iter().any(|o| o.permissions == owner.permissions)
            && given.iter().any(|o| o.uid == owner.uid)
            && given.iter().any(|o| o.gid == owner.gid);
        if !is_given {
            let Owner {
                permissions,
                uid,
                gid,
            } = owner;
            self.note(format!(
                "{path}: belongs to {uid}:{gid} with permissions {permissions:o}, which is not what it was given"
            ));
        }
        let allowed = object.times.allowed();
        let oldest = allowed[0];
        // If an operation is done in steps, its time may be there before it is done. That time is
        // not before the object got the oldest times that a crash may leave.
        let is_time = |time: i64, of: &dyn Fn(&Times) -> i64| {
            allowed.iter().any(|known| of(known) == time) || time >= oldest.since.max(of(&oldest))
        };
        for (what, time, is_known) in [
            (
                "access",
                times.accessed,
                is_time(times.accessed, &|t| t.accessed),
            ),
            (
                "change",
                times.modified,
                is_time(times.modified, &|t| t.modified),
            ),
        ] {
            if !is_known {
                self.note(format!(
                    "{path}: {time} is no time of its last {what} (any more)"
                ));
            }
        }
    }

    /// Checks that blocks whose reservation was flushed are mapped.
    fn reserved(&mut self, object: &Object, path: &str) {
        let inode = object.inode;
        for block in &object.must_be_mapped {
            let found = self.run(|fs, v, _| fs.extent(v, inode, *block, 1));
            let is_mapped = matches!(found, Ok((Some(_), _)));
            self.saw(&[is_mapped.into()]);
            if !is_mapped {
                return self.note(format!("{path}: block {block} was reserved, and is a hole"));
            }
        }
    }

    /// Checks that nothing is left beyond the end of a file that was truncated and flushed: another
    /// driver that makes the file longer would show it.
    fn end(&mut self, object: &Object, attributes: &Attributes, path: &str) {
        let block_bytes = u64::from(self.mount.block_bytes());
        let within = (attributes.size_bytes % block_bytes) as usize;
        if !object.ends_in_zeros || within == 0 {
            return;
        }
        let (inode, last) = (object.inode, attributes.size_bytes / block_bytes);
        let is_zero = self.run(|fs, v, _| match fs.extent(v, inode, last, 1)? {
            (Some(block), _) => Ok(v.read(block)?[within..].iter().all(|byte| *byte == 0)),
            (None, _) => Ok(true),
        });
        self.saw(&[u64::from(is_zero == Ok(true))]);
        if is_zero == Ok(false) {
            self.note(format!("{path}: its last block holds what was cut off"));
        }
    }

    fn target(&mut self, object: &Object, path: &str) {
        let inode = object.inode;
        match self.run(|fs, v, _| fs.read_link(v, inode)) {
            Ok(target) if target == object.target => self.saw_bytes(&target),
            Ok(_) => self.note(format!("{path}: the symlink points elsewhere")),
            Err(error) => self.note(format!("{path}: the symlink cannot be read: {error}")),
        }
    }

    fn xattrs(&mut self, object: &Object, path: &str) {
        let inode = object.inode;
        match self.run(|fs, v, _| fs.list_xattrs(v, inode)) {
            Ok(names) => {
                self.saw_bytes(&names);
                let own = names.split(|byte| *byte == 0);
                for name in own.filter(|name| name.starts_with(b"user.")) {
                    let given = object.xattrs.get(name);
                    if !given.is_some_and(|given| given.allowed().iter().any(Option::is_some)) {
                        let name = String::from_utf8_lossy(name);
                        self.note(format!(
                            "{path}: has attribute {name}, which it was not given"
                        ));
                    }
                }
            }
            Err(error) => {
                return self.note(format!("{path}: attributes cannot be listed: {error}"));
            }
        }
        for (name, history) in &object.xattrs {
            let value = match self.run(|fs, v, _| fs.xattr(v, inode, name)) {
                Ok(value) => Some(value),
                Err(Error::NoAttribute) => None,
                Err(error) => {
                    let what = format!("{path}: attributes cannot be read: {error}");
                    return self.note(what);
                }
            };
            self.saw(&[value.is_some().into()]);
            self.saw_bytes(value.as_deref().unwrap_or_default());
            if !history.allowed().contains(&value) {
                let name = String::from_utf8_lossy(name);
                self.note(format!("{path}: attribute {name} has a wrong value"));
            }
        }
    }

    fn contents(&mut self, object: &Object, attributes: &Attributes, path: &str) {
        // The log's file changes whenever the log is written.
        if path.strip_prefix('/') == Some(LOG_FILE_NAME) {
            return;
        }
        let allowed = object.contents.allowed();
        let size = attributes.size_bytes;
        let cuts_are_atomic = self.mount.cuts_are_atomic;
        if !is_size_of(allowed, size, cuts_are_atomic) {
            let sizes: Vec<u64> = allowed.iter().map(Contents::len).collect();
            let what = format!("{path}: has {size} bytes, promised were {sizes:?}");
            return self.note(what);
        }
        let grew_later = |at: usize| allowed[at..].iter().any(|version| version.len() > size);
        let sized = allowed.iter().position(|version| version.len() == size);
        let is_behind = self.mapped_behind.contains(&object.inode)
            && !self.model.maps_behind.contains(&object.inode);
        if is_behind && !sized.is_none_or(grew_later) {
            self.note(format!(
                "{path}: maps blocks behind the end to which it was cut"
            ));
        }
        let shown = match read_file(self.mount, object.inode, 0..size) {
            Ok(shown) => shown,
            Err(error) => return self.note(format!("{path}: cannot be read: {error}")),
        };
        shown.hash_into(&mut self.shown);
        if allowed.iter().rev().any(|version| *version == shown) {
            return;
        }
        let block_bytes = u64::from(self.mount.block_bytes());
        let may_be_stale = self.mount.contents_may_be_stale;
        // Under these mechanisms what is written beyond the end reaches the disk in any order with
        // the size. So a block that the file had all along may show what it held there: zeros, or
        // what an earlier crash left.
        let was_behind =
            |version: usize, at: u64| allowed[..=version].iter().any(|v| v.len() <= at);
        let is_excused = |version: usize, at: u64, byte: u8| {
            let is_given = object.was_given(at / block_bytes, version);
            let was_held = byte == 0 || object.was_left_behind(at, block_bytes);
            may_be_stale && (is_given || was_held && was_behind(version, at))
        };
        let foreign = first_foreign(&shown, allowed, cuts_are_atomic, is_excused);
        if let Some((at, byte)) = foreign {
            let what = format!(
                "{path}: byte {at} is {byte:#04x}, which it was not given (or not any more)"
            );
            self.note(what);
        }
    }
}

/// A range of a file's bytes, as contents that begin at offset 0.
pub(crate) fn read_file(
    mount: &mut Mount,
    inode: InodeNumber,
    range: Range<u64>,
) -> Result<Contents> {
    let mut pieces = Vec::new();
    let len = range.end - range.start;
    mount.run(Operation::Administration, &mut Nobody, |fs, v, _| {
        pieces.clear();
        fs.map(v, inode, range.start, len as usize, &mut pieces)
    })?;
    let mut contents = Contents::default();
    let mut at = 0;
    let mut read = Vec::new();
    for piece in pieces {
        at += match piece {
            Piece::Hole { len_bytes } => len_bytes as u64,
            Piece::Buffer {
                data,
                start,
                len_bytes,
            } => {
                contents.write(at, &data[start..start + len_bytes]);
                len_bytes as u64
            }
            Piece::Device {
                offset_bytes,
                len_bytes,
            } => {
                read.resize(len_bytes, 0);
                mount.read_device(offset_bytes, &mut read)?;
                contents.write(at, &read);
                len_bytes as u64
            }
        };
    }
    contents.resize(at);
    Ok(contents)
}

/// By how much files are grown to see what lies beyond their ends.
const GROWTH_BYTES: u64 = 40_000;

/// The attributes of an object; `None` if its inode is another object's by now or has no links.
fn attributes_of(mount: &mut Mount, model: &Model, id: ObjectId) -> Option<Attributes> {
    let inode = model.objects[id].inode;
    let administration = Operation::Administration;
    let attributes = mount.run(administration, &mut Nobody, |fs, v, _| {
        fs.attributes(v, inode)
    });
    let attributes = attributes.ok()?;
    let known = model.identify(inode, attributes.generation);
    (known == Some(id) && attributes.links != 0).then_some(attributes)
}

/// Grows every file that can be found: what comes to light must be zeros. Returns what is not, in
/// words.
pub(crate) fn behind_the_ends(mount: &mut Mount, model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    let objects = model.objects.iter().enumerate();
    for (id, object) in objects.filter(|(_, object)| object.kind == FileType::Regular) {
        let inode = object.inode;
        let Some(attributes) = attributes_of(mount, model, id) else {
            continue;
        };
        let size = attributes.size_bytes;
        let mut set = |set: &SetAttributes| {
            mount.run(
                operations::set_attributes(inode, set),
                &mut Nobody,
                |fs, v, now| fs.set_attributes(v, inode, set, now).map(drop),
            )
        };
        let mut freed = Ok(());
        if attributes.flags & (IMMUTABLE | APPEND) != 0 {
            freed = set(&SetAttributes {
                flags: Some(0),
                ..SetAttributes::default()
            });
        }
        let longer = SetAttributes {
            size_bytes: Some(size + GROWTH_BYTES),
            ..SetAttributes::default()
        };
        let grown = freed
            .and_then(|()| set(&longer))
            .and_then(|()| read_file(mount, inode, size..size + GROWTH_BYTES));
        match grown {
            Ok(behind) if behind.written().next().is_none() => {}
            Ok(_) => found.push(format!(
                "inode {inode}: once it grows, it shows what lay behind its end"
            )),
            // The file of a log cannot be changed.
            Err(Error::NotPermitted) if attributes.flags & IMMUTABLE != 0 => {}
            // If growth takes space and there is none, it waits for the reclaim, which removes
            // objects without a name.
            Err(_) if attributes_of(mount, model, id).is_none() => {}
            // A last block in fragments may have to move to a whole block, and the free space may
            // be in fragments only.
            Err(Error::NoSpace) if mount.fs.statistics().free_in_whole_blocks == 0 => {}
            Err(error) => found.push(format!("inode {inode}: cannot grow: {error}")),
        }
    }
    found
}
