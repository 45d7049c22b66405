//! What an operation is about, for mechanisms that go by that: a logical log writes a record of it,
//! others delay some kinds of it.
//!
//! Objects are inodes, named by their numbers. An operation is stated before it is known to be
//! possible: where it fails nothing is changed.

use std::time::Duration;

use backstitch_store::{Happening, Scope, Store};

/// A moment: seconds since 1970, and nanoseconds.
pub type Moment = (i64, u32);

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The directory.
    pub directory: u64,
    /// The name there.
    pub name: &'a [u8],
}

/// What a new object is to be. Its number is not chosen yet when the operation is stated; the patches
/// have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New<'a> {
    /// Its type and permissions, as `st_mode` has them.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The number of a device.
    pub device_number: u32,
    /// What a symlink points to.
    pub target: &'a [u8],
}

/// The attributes of an object that change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// The permissions.
    pub permissions: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length: the rest is cut off, or reads as zeros.
    pub size_bytes: Option<u64>,
    /// The access time.
    pub accessed: Option<Moment>,
    /// The modification time.
    pub modified: Option<Moment>,
    /// The flags.
    pub flags: Option<u32>,
}

/// What becomes of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// It gets blocks, and reads as before.
    Reserved,
    /// It loses its blocks, and reads as zeros.
    Punched,
    /// It reads as zeros.
    Zeroed,
}

/// An operation with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// An object is made.
    Create {
        /// Its name.
        at: Place<'a>,
        /// What it is to be.
        new: New<'a>,
    },
    /// A file is made without a name.
    CreateUnnamed {
        /// The directory that it is made in, in whose names it is not.
        directory: u64,
        /// What it is to be.
        new: New<'a>,
    },
    /// An object gets another name, or its first one.
    Link {
        /// The object.
        object: u64,
        /// The name.
        at: Place<'a>,
    },
    /// A name is removed, and with it an object that has no other name.
    Remove {
        /// The name.
        at: Place<'a>,
        /// The name is that of a directory.
        is_directory: bool,
    },
    /// A name moves.
    Rename {
        /// From here.
        from: Place<'a>,
        /// To here; what was there goes.
        to: Place<'a>,
        /// What was there moves to `from` instead.
        is_exchange: bool,
    },
    /// Attributes change.
    SetAttributes {
        /// Whose.
        object: u64,
        /// To what.
        set: NewAttributes,
    },
    /// The access time moves, because the object was read.
    Touch {
        /// The object.
        object: u64,
    },
    /// An extended attribute changes.
    SetXattr {
        /// Whose.
        object: u64,
        /// Which one.
        name: &'a [u8],
        /// To what; `None`: it goes.
        value: Option<&'a [u8]>,
    },
    /// Contents are written.
    Write {
        /// The file.
        object: u64,
        /// From here on.
        offset_bytes: u64,
        /// What.
        bytes: &'a [u8],
    },
    /// A range of a file is reserved, punched or zeroed.
    Allocate {
        /// The file.
        object: u64,
        /// From here on.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
        /// What becomes of it.
        range: Range,
        /// The file's length stays as it is.
        keeps_size: bool,
    },
    /// The length of a file follows what was written to it: nobody waits for that.
    Resize {
        /// The file.
        object: u64,
        /// The length.
        size_bytes: u64,
    },
    /// Deferred frees and other work that nobody waits for.
    Background,
    /// Mounting, recovery, unmounting, and looking at what there is.
    Administration,
}

impl Operation<'_> {
    /// The words by which watchers of a store know operations.
    pub const WORDS: [&'static str; 14] = [
        "create",
        "link",
        "remove",
        "rename",
        "set-attributes",
        "touch",
        "set-xattr",
        "write",
        "allocate",
        "resize",
        "background",
        "administration",
        "exchange",
        "create-unnamed",
    ];

    /// The word for it.
    pub fn word(&self) -> &'static str {
        let index = match self {
            Operation::Create { .. } => 0,
            Operation::Link { .. } => 1,
            Operation::Remove { .. } => 2,
            Operation::Rename {
                is_exchange: false, ..
            } => 3,
            Operation::SetAttributes { .. } => 4,
            Operation::Touch { .. } => 5,
            Operation::SetXattr { .. } => 6,
            Operation::Write { .. } => 7,
            Operation::Allocate { .. } => 8,
            Operation::Resize { .. } => 9,
            Operation::Background => 10,
            Operation::Administration => 11,
            Operation::Rename {
                is_exchange: true, ..
            } => 12,
            Operation::CreateUnnamed { .. } => 13,
        };
        Self::WORDS[index]
    }

    /// Whether a caller asked for the change: the patchgroups that the caller has engaged hold for
    /// it.
    pub fn is_asked_for(&self) -> bool {
        !matches!(self, Operation::Background | Operation::Administration)
    }

    /// Whether it is about contents of a file, and the pointers to them.
    pub fn is_of_contents(&self) -> bool {
        matches!(
            self,
            Operation::Write { .. } | Operation::Allocate { .. } | Operation::Resize { .. }
        )
    }
}

impl Operation<'_> {
    /// Tells the store's watcher that it begins.
    #[inline]
    pub(crate) fn tell(&self, store: &Store, now: Duration) {
        if store.is_watched() {
            self.tell_watcher(store, now);
        }
    }

    #[cold]
    fn tell_watcher(&self, store: &Store, now: Duration) {
        let (objects, names, range_bytes): (&[u64], &[&[u8]], _) = match *self {
            Operation::Create { at, .. } | Operation::Remove { at, .. } => {
                (&[at.directory], &[at.name], (0, 0))
            }
            Operation::CreateUnnamed { directory, .. } => (&[directory], &[], (0, 0)),
            Operation::Link { object, at } => (&[at.directory, object], &[at.name], (0, 0)),
            Operation::Rename { from, to, .. } => (
                &[from.directory, to.directory],
                &[from.name, to.name],
                (0, 0),
            ),
            Operation::SetAttributes { object, .. }
            | Operation::Touch { object }
            | Operation::SetXattr { object, .. } => (&[object], &[], (0, 0)),
            Operation::Write {
                object,
                offset_bytes,
                bytes,
            } => (&[object], &[], (offset_bytes, bytes.len() as u64)),
            Operation::Allocate {
                object,
                offset_bytes,
                len_bytes,
                ..
            } => (&[object], &[], (offset_bytes, len_bytes)),
            Operation::Resize { object, size_bytes } => (&[object], &[], (size_bytes, 0)),
            Operation::Background | Operation::Administration => (&[], &[], (0, 0)),
        };
        store.tell(|| {
            let scope = Scope {
                word: self.word(),
                objects,
                names,
                range_bytes,
            };
            Happening::Begin(now, scope)
        });
    }
}
