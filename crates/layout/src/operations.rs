//! What callers ask a file system for, as the mechanism is told of it.

use backstitch_ordering::{New, NewAttributes, Operation, Place, Range};

use crate::{Allocate, InodeNumber, NewInode, Rename, RenameMode, SetAttributes, Timestamp};

fn place(directory: InodeNumber, name: &[u8]) -> Place<'_> {
    Place {
        directory: directory.0.into(),
        name,
    }
}

fn made<'a>(new: &NewInode<'a>) -> New<'a> {
    let permissions = new.permissions & !new.umask;
    New {
        mode: new.file_type.mode_bits() | u32::from(permissions),
        uid: new.uid,
        gid: new.gid,
        device_number: new.device_number,
        target: new.target,
    }
}

/// An inode is made.
pub fn create<'a>(directory: InodeNumber, name: &'a [u8], new: &NewInode<'a>) -> Operation<'a> {
    Operation::Create {
        at: place(directory, name),
        new: made(new),
    }
}

/// A file is made without a name.
pub fn create_unnamed<'a>(directory: InodeNumber, new: &NewInode<'a>) -> Operation<'a> {
    Operation::CreateUnnamed {
        directory: directory.0.into(),
        new: made(new),
    }
}

/// An inode gets another name.
pub fn link(inode: InodeNumber, directory: InodeNumber, name: &[u8]) -> Operation<'_> {
    Operation::Link {
        object: inode.0.into(),
        at: place(directory, name),
    }
}

/// A name goes.
pub fn remove(directory: InodeNumber, name: &[u8], is_directory: bool) -> Operation<'_> {
    Operation::Remove {
        at: place(directory, name),
        is_directory,
    }
}

/// A name moves.
pub fn rename<'a>(rename: &Rename<'a>) -> Operation<'a> {
    Operation::Rename {
        from: place(rename.from, rename.from_name),
        to: place(rename.to, rename.to_name),
        is_exchange: rename.mode == RenameMode::Exchange,
    }
}

/// Attributes change.
pub fn set_attributes(inode: InodeNumber, set: &SetAttributes) -> Operation<'static> {
    let moment = |time: Timestamp| (time.seconds, time.nanoseconds);
    Operation::SetAttributes {
        object: inode.0.into(),
        set: NewAttributes {
            permissions: set.permissions,
            uid: set.uid,
            gid: set.gid,
            size_bytes: set.size_bytes,
            accessed: set.accessed.map(moment),
            modified: set.modified.map(moment),
            flags: set.flags,
        },
    }
}

/// The access time moves.
pub fn touch_accessed(inode: InodeNumber) -> Operation<'static> {
    Operation::Touch {
        object: inode.0.into(),
    }
}

/// An extended attribute is set, or goes.
pub fn set_xattr<'a>(inode: InodeNumber, name: &'a [u8], value: Option<&'a [u8]>) -> Operation<'a> {
    Operation::SetXattr {
        object: inode.0.into(),
        name,
        value,
    }
}

/// Contents are written.
pub fn write(inode: InodeNumber, offset_bytes: u64, bytes: &[u8]) -> Operation<'_> {
    Operation::Write {
        object: inode.0.into(),
        offset_bytes,
        bytes,
    }
}

/// A range is reserved, punched or zeroed.
pub fn allocate(
    inode: InodeNumber,
    how: Allocate,
    offset_bytes: u64,
    len_bytes: u64,
) -> Operation<'static> {
    let (range, keeps_size) = match how {
        Allocate::Reserve { keep_size } => (Range::Reserved, keep_size),
        Allocate::PunchHole => (Range::Punched, true),
        Allocate::ZeroRange { keep_size } => (Range::Zeroed, keep_size),
    };
    Operation::Allocate {
        object: inode.0.into(),
        offset_bytes,
        len_bytes,
        range,
        keeps_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileType;

    #[test]
    fn what_is_asked_for_is_told_whole() {
        let new = NewInode {
            file_type: FileType::Symlink,
            permissions: 0o666,
            umask: 0o022,
            uid: 1,
            gid: 2,
            device_number: 3,
            target: b"t",
        };
        let Operation::Create { at, new } = create(InodeNumber(2), b"n", &new) else {
            panic!("a creation");
        };
        assert_eq!((at.directory, at.name), (2, &b"n"[..]));
        assert_eq!((new.mode, new.uid, new.gid), (0o120_644, 1, 2));
        assert_eq!((new.device_number, new.target), (3, &b"t"[..]));
        let moved = Rename {
            from: InodeNumber(2),
            from_name: b"a",
            to: InodeNumber(11),
            to_name: b"b",
            mode: RenameMode::Exchange,
        };
        let told = Operation::Rename {
            from: place(InodeNumber(2), b"a"),
            to: place(InodeNumber(11), b"b"),
            is_exchange: true,
        };
        assert_eq!(rename(&moved), told);
        for (how, range, keeps_size) in [
            (
                Allocate::Reserve { keep_size: false },
                Range::Reserved,
                false,
            ),
            (Allocate::PunchHole, Range::Punched, true),
            (Allocate::ZeroRange { keep_size: true }, Range::Zeroed, true),
        ] {
            let told = Operation::Allocate {
                object: 11,
                offset_bytes: 5,
                len_bytes: 6,
                range,
                keeps_size,
            };
            assert_eq!(allocate(InodeNumber(11), how, 5, 6), told);
        }
        let times = SetAttributes {
            size_bytes: Some(9),
            modified: Some(Timestamp {
                seconds: 4,
                nanoseconds: 5,
            }),
            ..SetAttributes::default()
        };
        let set = NewAttributes {
            size_bytes: Some(9),
            modified: Some((4, 5)),
            ..NewAttributes::default()
        };
        let told = set_attributes(InodeNumber(11), &times);
        assert_eq!(told, Operation::SetAttributes { object: 11, set });
        assert!(told.is_asked_for() && !told.is_of_contents());
        assert!(write(InodeNumber(11), 0, b"x").is_of_contents());
        assert!(!Operation::Background.is_asked_for());
    }
}
