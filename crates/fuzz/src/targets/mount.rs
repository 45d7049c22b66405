//! A mount of a damaged image, and all operations on it.
//!
//! The input is the number of a base image, the ordering (1 byte), the number of operations and for
//! each its kind and two choices (3 bytes), and damages. With no operations a fixed list of all
//! kinds is done.

use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_formats::Layout;
use backstitch_vfs::{
    AccessTimes, Allocate, Engine, FileType, InodeNumber, RenameMode, Seek, SetAttributes,
    SetXattrMode, Timestamp,
};

use super::fsck;
use crate::base::{self, Base, mount_options, new_inode};
use crate::{Input, damage};

/// The most operations of one input.
const OPERATIONS: u8 = 48;
/// The most directories that are listed, and the most names of each that are followed.
const DIRECTORIES: usize = 24;
const NAMES: usize = 64;
/// Bytes of a read.
const READ_BYTES: usize = 16 << 10;
const KINDS: u8 = 26;

/// Nothing panics, and an image without faults has none after an orderly unmount.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    of_base(Base::chosen(&mut input), &mut input);
}

/// The same for this base image, with the rest of the input.
pub(crate) fn of_base(base: &Base, input: &mut Input<'_>) {
    let how = input.byte();
    let operations = operations(input);
    let device = base.device();
    damage::all(input, base, &*device);
    let was_clean = fsck::check(base.layout, &*device).is_some_and(|report| report.is_clean());
    let mut options = mount_options(base::ordering(how, base.has_journal));
    options.read_only = how >= 0xf0;
    let Ok(engine) = Engine::mount(device.clone(), base.layout.layout(), &options) else {
        return;
    };
    // An ordering that does not write the image's journal makes it read-only too.
    let is_writable = engine.read_only_reason().is_none();
    let mut session = Session::new(&engine);
    session.walk();
    for operation in operations {
        session.perform(operation);
    }
    drop(session);
    let gave_up = engine.read_only_reason().filter(|_| is_writable);
    let unmounted = engine.unmount();
    drop(engine);
    if was_clean {
        assert_eq!(gave_up, None, "of a clean image");
    }
    if let (true, Ok(())) = (was_clean, unmounted) {
        clean(base.layout, &*device);
    }
}

fn clean(layout: Layout, device: &dyn BlockDevice) {
    let report = fsck::check(layout, device).expect("a clean image can be checked again");
    let first = report.findings.first();
    assert!(
        report.is_clean(),
        "clean, mounted, unmounted, and: {first:?}"
    );
}

/// A kind, and two choices.
type Operation = [u8; 3];

fn operations(input: &mut Input<'_>) -> Vec<Operation> {
    let count = input.byte() % OPERATIONS;
    if count > 0 {
        return (0..count)
            .map(|_| [input.byte(), input.byte(), input.byte()])
            .collect();
    }
    (0..2 * KINDS)
        .map(|number| [number, number.wrapping_mul(37), number.wrapping_mul(91)])
        .collect()
}

/// An object that was found by a name.
#[derive(Clone)]
struct Object {
    inode: InodeNumber,
    directory: InodeNumber,
    name: Vec<u8>,
    is_directory: bool,
}

/// A user of the mount. Every answer is right, but there must be one.
struct Session<'e> {
    engine: &'e Arc<Engine>,
    objects: Vec<Object>,
    made: u32,
}

impl<'e> Session<'e> {
    fn new(engine: &'e Arc<Engine>) -> Session<'e> {
        let root = Object {
            inode: engine.root(),
            directory: engine.root(),
            name: b".".to_vec(),
            is_directory: true,
        };
        Session {
            engine,
            objects: vec![root],
            made: 0,
        }
    }

    /// Reads everything that can be reached, and remembers it.
    fn walk(&mut self) {
        let mut seen = vec![self.engine.root()];
        let mut next = 0;
        while let Some(directory) = seen.get(next).copied().filter(|_| next < DIRECTORIES) {
            next += 1;
            for name in self.names(directory, 0) {
                let Ok(found) = self.engine.lookup(directory, &name) else {
                    continue;
                };
                let is_directory = found.file_type == FileType::Directory;
                if is_directory && !seen.contains(&found.inode) {
                    seen.push(found.inode);
                }
                self.look_at(found.inode);
                self.objects.push(Object {
                    inode: found.inode,
                    directory,
                    name,
                    is_directory,
                });
            }
        }
        let _ = self.engine.statistics();
    }

    fn names(&self, directory: InodeNumber, cookie: u64) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let _ = self.engine.read_directory(directory, cookie, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            names.len() < NAMES
        });
        names
    }

    fn look_at(&self, inode: InodeNumber) {
        let engine = self.engine;
        let Ok(attributes) = engine.attributes(inode) else {
            return;
        };
        let _ = engine.read_link(inode);
        let listed = engine.list_xattrs(inode).unwrap_or_default();
        for name in listed.split(|byte| *byte == 0).filter(|n| !n.is_empty()) {
            let _ = engine.get_xattr(inode, name);
        }
        let size = attributes.size_bytes;
        for at in [0, size / 2, size.saturating_sub(100)] {
            let _ = engine.read(inode, at, READ_BYTES, &mut Vec::new());
            let _ = engine.seek(inode, at, Seek::Data);
            let _ = engine.seek(inode, at, Seek::Hole);
        }
    }

    fn object(&self, choice: u8) -> Object {
        self.objects[usize::from(choice) % self.objects.len()].clone()
    }

    fn directory(&self, choice: u8) -> InodeNumber {
        let object = self.object(choice);
        match object.is_directory {
            true => object.inode,
            false => object.directory,
        }
    }

    fn new_name(&mut self, choice: u8) -> Vec<u8> {
        self.made += 1;
        let mut name = format!("new {}", self.made).into_bytes();
        name.resize(name.len() + usize::from(choice), b'n');
        name.truncate(255);
        name
    }

    fn create(&mut self, file_type: FileType, at: u8, choice: u8) {
        let (directory, name) = (self.directory(at), self.new_name(choice));
        let target = match file_type {
            FileType::Symlink => vec![b't'; 1 + usize::from(choice)],
            _ => Vec::new(),
        };
        let new = new_inode(file_type, &target);
        let Ok(made) = self.engine.create(directory, &name, &new) else {
            return;
        };
        self.objects.push(Object {
            inode: made.inode,
            directory,
            name,
            is_directory: file_type == FileType::Directory,
        });
    }

    fn perform(&mut self, [kind, one, other]: Operation) {
        match kind % KINDS {
            0..=12 => self.change_names(kind % KINDS, one, other),
            kind => self.change_contents(kind, one, other),
        }
    }

    fn change_names(&mut self, kind: u8, one: u8, other: u8) {
        let engine = self.engine;
        let object = self.object(one);
        let Object {
            inode,
            directory,
            ref name,
            ..
        } = object;
        match kind {
            0 => self.create(FileType::Regular, one, other),
            1 => self.create(FileType::Directory, one, other),
            2 => self.create(FileType::Symlink, one, other),
            3 => self.create(FileType::Fifo, one, other),
            4 => {
                let (to, name) = (self.directory(other), self.new_name(other));
                let _ = engine.link(inode, to, &name);
            }
            5 | 6 => drop(engine.unlink(directory, name)),
            7 => drop(engine.rmdir(directory, name)),
            8 => {
                let (to, new) = (self.directory(other), self.new_name(other));
                let _ = engine.rename(directory, name, to, &new, RenameMode::NoReplace);
            }
            9 | 10 => {
                let to = self.object(other);
                let mode = match kind {
                    9 => RenameMode::Replace,
                    _ => RenameMode::Exchange,
                };
                let _ = engine.rename(directory, name, to.directory, &to.name, mode);
            }
            // Makes an index grow.
            11 => (0..other % 40).for_each(|n| self.create(FileType::Regular, one, 150 + n)),
            _ => engine.forget(inode, 1),
        }
    }

    fn change_contents(&mut self, kind: u8, one: u8, other: u8) {
        let engine = self.engine;
        let inode = self.object(one).inode;
        let at = offset(other);
        match kind {
            13 => drop(engine.write(inode, at, &vec![other; usize::from(other) * 61])),
            14 => {
                let set = SetAttributes {
                    size_bytes: Some(at),
                    ..SetAttributes::default()
                };
                let _ = engine.set_attributes(inode, &set);
            }
            15 => self.set_attribute(inode, one, other),
            16 => {
                let listed = engine.list_xattrs(inode).unwrap_or_default();
                let name = listed.split(|byte| *byte == 0).next();
                let _ = engine.remove_xattr(inode, name.unwrap_or_default());
            }
            17 => drop(engine.allocate(inode, allocation(one), at, u64::from(other) * 77)),
            18 => drop(engine.fsync(inode, one & 1 == 0)),
            19 => drop(engine.sync()),
            20 => {
                let to = self.object(other).inode;
                let _ = engine.copy_range(inode, 0, to, at, 3000);
            }
            21 => {
                let set = SetAttributes {
                    permissions: Some(u16::from(other)),
                    uid: Some(one.into()),
                    modified: Some(Timestamp {
                        seconds: i64::from(other) << 28,
                        nanoseconds: 7,
                    }),
                    ..SetAttributes::default()
                };
                let _ = engine.set_attributes(inode, &set);
            }
            22 => self.look_at(inode),
            23 => drop(self.names(inode, at)),
            24 => self.order(inode, other),
            _ => {
                engine.touch_accessed(inode, AccessTimes::Relative);
                let _ = (engine.stats(), engine.statistics_at(inode));
            }
        }
    }

    fn set_attribute(&self, inode: InodeNumber, one: u8, other: u8) {
        let (name, value): (&[u8], Vec<u8>) = match other % 4 {
            0 => (b"user.one", vec![other; usize::from(other) * 3]),
            1 => (b"user.new", vec![one; usize::from(other)]),
            2 => (b"trusted.new", Vec::new()),
            _ => {
                let head = 2_u32.to_le_bytes();
                let entry = |tag, bits| [tag, 0, bits & 7, 0, 255, 255, 255, 255];
                let list = [entry(1, one), entry(4, other), entry(32, one)].concat();
                (b"system.posix_acl_access", [&head[..], &list].concat())
            }
        };
        let _ = (self.engine).set_xattr(inode, name, &value, SetXattrMode::Any);
    }

    /// Writes to a file under a patchgroup that comes after another one.
    fn order(&self, inode: InodeNumber, other: u8) {
        let engine = self.engine;
        let (Ok(before), Ok(after)) = (engine.group_create(), engine.group_create()) else {
            return;
        };
        let _ = engine.group_depend(after, before);
        for group in [before, after] {
            let _ = engine.group_engage(group);
            let _ = engine.under(&[group], || engine.write(inode, offset(other), b"ordered"));
            let _ = engine.group_disengage(group);
        }
        if other & 1 == 0 {
            let _ = engine.group_sync(after);
        }
        engine.group_close(before);
        engine.group_close(after);
    }
}

/// An offset that some level of the map covers, or one beyond all.
fn offset(choice: u8) -> u64 {
    let below = u64::from(choice >> 3);
    match choice % 8 {
        0 | 1 => below * 100,
        2 => below * 1024,
        3 => 12 * 1024 + below * 512,
        4 => (12 + 256) * 1024 + below * 1000,
        5 => (12 + 256 + 65_536) * 1024 + below * 1024,
        6 => (1 << 32) + below,
        _ => u64::MAX >> below,
    }
}

fn allocation(choice: u8) -> Allocate {
    let keep_size = choice & 8 != 0;
    match choice % 3 {
        0 => Allocate::Reserve { keep_size },
        1 => Allocate::PunchHole,
        _ => Allocate::ZeroRange { keep_size },
    }
}
