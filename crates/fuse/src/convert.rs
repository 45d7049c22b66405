//! Between the engine's types and FUSE's.

use backstitch_fuse_protocol::abi::{fuse_attr, fuse_entry_out};
use backstitch_fuse_protocol::{Errno, NodeId};
use backstitch_vfs::{Allocate, Attributes, Error, InodeNumber, RenameMode, Timestamp};

/// How long the kernel may keep what it is told: longer than any mount lives.
pub const FOREVER_SECONDS: u64 = u32::MAX as u64;

/// Translates inode numbers to FUSE's node ids and back: the root is 1 there, whatever the layout
/// calls it.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    root: u64,
}

impl Nodes {
    /// A translation for a file system whose root is `root`.
    pub fn new(root: InodeNumber) -> Nodes {
        Nodes {
            root: u64::from(root.0),
        }
    }

    fn swap(self, number: u64) -> u64 {
        match number {
            1 => self.root,
            n if n == self.root => 1,
            n => n,
        }
    }

    /// The inode behind a node id. An id that no inode can have becomes inode 0, which no file
    /// system has.
    pub fn inode(self, node: NodeId) -> InodeNumber {
        InodeNumber(u32::try_from(self.swap(node.0)).unwrap_or(0))
    }

    /// The node id of an inode.
    pub fn node(self, inode: InodeNumber) -> NodeId {
        NodeId(self.swap(u64::from(inode.0)))
    }
}

/// The moment that a request states.
pub fn requested_time(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp {
        seconds: seconds.cast_signed(),
        nanoseconds,
    }
}

/// What `stat` is to show, under the number that it is to show the inode by.
pub fn file_attributes(number: u64, attributes: &Attributes) -> fuse_attr {
    let (accessed, modified, changed) =
        (attributes.accessed, attributes.modified, attributes.changed);
    fuse_attr {
        ino: number,
        size: attributes.size_bytes,
        blocks: attributes.sectors,
        atime: accessed.seconds.cast_unsigned(),
        mtime: modified.seconds.cast_unsigned(),
        ctime: changed.seconds.cast_unsigned(),
        atimensec: accessed.nanoseconds,
        mtimensec: modified.nanoseconds,
        ctimensec: changed.nanoseconds,
        mode: attributes.file_type.mode_bits() | u32::from(attributes.permissions),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device_number,
        blksize: attributes.block_size_bytes,
        flags: 0,
    }
}

/// What a name leads to, and may be remembered.
pub fn entry(node: NodeId, generation: u32, attributes: fuse_attr) -> fuse_entry_out {
    fuse_entry_out {
        nodeid: node.0,
        generation: u64::from(generation),
        entry_valid: FOREVER_SECONDS,
        attr_valid: FOREVER_SECONDS,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: attributes,
    }
}

/// That there is no such name, which may be remembered too.
pub fn no_entry() -> fuse_entry_out {
    fuse_entry_out {
        entry_valid: FOREVER_SECONDS,
        ..Default::default()
    }
}

/// The error number for a reply; errors that are no caller's fault are logged.
pub fn errno(operation: &str, inode: InodeNumber, error: &Error) -> Errno {
    let number = error.errno();
    if matches!(number, libc::EIO | libc::EUCLEAN) {
        tracing::error!(%inode, %error, "{operation} failed");
    }
    Errno::from_raw_os_error(number)
}

/// What `renameat2` flags ask for; `None` if nothing we know.
pub fn rename_mode(flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Some(RenameMode::Exchange),
        _ => None,
    }
}

/// What `fallocate` modes ask for; `None` if nothing we know.
pub fn allocation(mode: u32) -> Option<Allocate> {
    let mode = mode.cast_signed();
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Some(Allocate::Reserve { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Some(Allocate::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Some(Allocate::ZeroRange { keep_size }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::tests::file;
    use backstitch_vfs::FileType;

    #[test]
    fn the_root_and_one_are_swapped() {
        let nodes = Nodes::new(InodeNumber(2));
        assert_eq!(nodes.node(InodeNumber(2)), NodeId(1));
        assert_eq!(nodes.inode(NodeId(1)), InodeNumber(2));
        assert_eq!(nodes.node(InodeNumber(1)), NodeId(2));
        assert_eq!(nodes.inode(NodeId(2)), InodeNumber(1));
        assert_eq!(nodes.node(InodeNumber(11)), NodeId(11));
        assert_eq!(nodes.inode(NodeId(u64::MAX)), InodeNumber(0));
    }

    #[test]
    fn times_before_1970_keep_their_fraction() {
        let time = Timestamp {
            seconds: -2,
            nanoseconds: 800_000_000,
        };
        let attributes = Attributes {
            modified: time,
            ..attributes()
        };
        let shown = file_attributes(12, &attributes);
        assert_eq!(requested_time(shown.mtime, shown.mtimensec), time);
    }

    #[test]
    fn the_type_is_in_the_mode() {
        let shown = file_attributes(12, &attributes());
        assert_eq!((shown.ino, shown.mode), (12, 0o100_640));
        let found = entry(NodeId(12), 7, shown);
        assert_eq!((found.nodeid, found.generation), (12, 7));
        assert_eq!(no_entry().nodeid, 0);
    }

    fn attributes() -> Attributes {
        Attributes {
            generation: 7,
            ..file(0o640, FileType::Regular)
        }
    }

    #[test]
    fn rename_flags() {
        assert_eq!(rename_mode(0), Some(RenameMode::Replace));
        assert_eq!(
            rename_mode(libc::RENAME_NOREPLACE),
            Some(RenameMode::NoReplace)
        );
        assert_eq!(
            rename_mode(libc::RENAME_EXCHANGE),
            Some(RenameMode::Exchange)
        );
        let both = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
        assert_eq!(rename_mode(both), None);
        assert_eq!(rename_mode(libc::RENAME_WHITEOUT), None);
    }

    #[test]
    fn allocation_modes() {
        let number = i32::cast_unsigned;
        let keep = number(libc::FALLOC_FL_KEEP_SIZE);
        let punch = number(libc::FALLOC_FL_PUNCH_HOLE);
        assert_eq!(allocation(0), Some(Allocate::Reserve { keep_size: false }));
        assert_eq!(
            allocation(keep),
            Some(Allocate::Reserve { keep_size: true })
        );
        assert_eq!(allocation(keep | punch), Some(Allocate::PunchHole));
        assert_eq!(allocation(punch), None);
        let zero = number(libc::FALLOC_FL_ZERO_RANGE);
        assert_eq!(
            allocation(zero),
            Some(Allocate::ZeroRange { keep_size: false })
        );
        assert_eq!(
            allocation(zero | keep),
            Some(Allocate::ZeroRange { keep_size: true })
        );
        assert_eq!(allocation(number(libc::FALLOC_FL_COLLAPSE_RANGE)), None);
    }
}
