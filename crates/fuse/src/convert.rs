//! Between the engine's types and FUSE's.

use backstitch_vfs::{Allocate, Attributes, Error, FileType, InodeNumber, RenameMode, Timestamp};
use fuser::{Errno, FileAttr, Generation, INodeNo, RenameFlags};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may keep what it is told: longer than any mount lives.
pub const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

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
    pub fn inode(self, node: INodeNo) -> InodeNumber {
        InodeNumber(u32::try_from(self.swap(node.0)).unwrap_or(0))
    }

    /// The node id of an inode.
    pub fn node(self, inode: InodeNumber) -> INodeNo {
        INodeNo(self.swap(u64::from(inode.0)))
    }
}

/// FUSE's name for a file type.
pub fn file_type(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// A moment as the standard library has it. Moments it cannot hold become 1970.
pub fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let seconds = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    seconds
        .and_then(|t| t.checked_add(Duration::from_nanos(u64::from(time.nanoseconds))))
        .unwrap_or(UNIX_EPOCH)
}

/// The moment that a request states.
///
/// fuser 0.18 makes of the kernel's (−2 s, +0.8 s) the moment −2.8 s instead of −1.2 s; this takes
/// it back, so that times before 1970 keep their fraction.
pub fn requested_time(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (
            i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            after.subsec_nanos(),
        ),
        Err(before) => {
            let before = before.duration();
            (
                0_i64.saturating_sub_unsigned(before.as_secs()),
                before.subsec_nanos(),
            )
        }
    };
    Timestamp {
        seconds,
        nanoseconds,
    }
}

/// What `stat` is to show, under the node id that FUSE knows the inode by.
pub fn file_attributes(node: INodeNo, attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: node,
        size: attributes.size_bytes,
        blocks: attributes.sectors,
        atime: system_time(attributes.accessed),
        mtime: system_time(attributes.modified),
        ctime: system_time(attributes.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(attributes.file_type),
        perm: attributes.permissions,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device_number,
        blksize: attributes.block_size_bytes,
        flags: 0,
    }
}

/// The inode's generation, as entry replies want it.
pub fn generation(attributes: &Attributes) -> Generation {
    Generation(u64::from(attributes.generation))
}

/// A reply's attributes that say "no such name, and remember that": a node id of 0.
pub fn no_entry() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The error number for a reply; errors that are no caller's fault are logged.
pub fn errno(operation: &str, inode: InodeNumber, error: &Error) -> Errno {
    let number = error.errno();
    if matches!(number, libc::EIO | libc::EUCLEAN) {
        tracing::error!(%inode, %error, "{operation} failed");
    }
    Errno::from_i32(number)
}

/// What `renameat2` flags ask for; `None` if nothing we know.
pub fn rename_mode(flags: RenameFlags) -> Option<RenameMode> {
    match flags {
        f if f.is_empty() => Some(RenameMode::Replace),
        RenameFlags::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        RenameFlags::RENAME_EXCHANGE => Some(RenameMode::Exchange),
        _ => None,
    }
}

/// What `fallocate` modes ask for; `None` if nothing we know.
pub fn allocation(mode: i32) -> Option<Allocate> {
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

    #[test]
    fn the_root_and_one_are_swapped() {
        let nodes = Nodes::new(InodeNumber(2));
        assert_eq!(nodes.node(InodeNumber(2)), INodeNo(1));
        assert_eq!(nodes.inode(INodeNo(1)), InodeNumber(2));
        assert_eq!(nodes.node(InodeNumber(1)), INodeNo(2));
        assert_eq!(nodes.inode(INodeNo(2)), InodeNumber(1));
        assert_eq!(nodes.node(InodeNumber(11)), INodeNo(11));
        assert_eq!(nodes.inode(INodeNo(u64::MAX)), InodeNumber(0));
    }

    #[test]
    fn times_before_1970_keep_their_fraction() {
        let time = Timestamp {
            seconds: -2,
            nanoseconds: 800_000_000,
        };
        let shown = system_time(time);
        assert_eq!(
            UNIX_EPOCH.duration_since(shown).unwrap(),
            Duration::from_millis(1200)
        );
        // What fuser makes of a request with (-2, 800,000,000).
        let from_fuser = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(requested_time(from_fuser), time);
    }

    #[test]
    fn extreme_times_do_not_panic() {
        for seconds in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            for nanoseconds in [0, 999_999_999] {
                let _ = requested_time(system_time(Timestamp {
                    seconds,
                    nanoseconds,
                }));
            }
        }
    }

    #[test]
    fn rename_flags() {
        assert_eq!(rename_mode(RenameFlags::empty()), Some(RenameMode::Replace));
        assert_eq!(
            rename_mode(RenameFlags::RENAME_NOREPLACE),
            Some(RenameMode::NoReplace)
        );
        assert_eq!(
            rename_mode(RenameFlags::RENAME_EXCHANGE),
            Some(RenameMode::Exchange)
        );
        let both = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        assert_eq!(rename_mode(both), None);
        assert_eq!(rename_mode(RenameFlags::RENAME_WHITEOUT), None);
    }

    #[test]
    fn allocation_modes() {
        let (keep, punch) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
        assert_eq!(allocation(0), Some(Allocate::Reserve { keep_size: false }));
        assert_eq!(
            allocation(keep),
            Some(Allocate::Reserve { keep_size: true })
        );
        assert_eq!(allocation(keep | punch), Some(Allocate::PunchHole));
        assert_eq!(allocation(punch), None);
        let zero = libc::FALLOC_FL_ZERO_RANGE;
        assert_eq!(
            allocation(zero),
            Some(Allocate::ZeroRange { keep_size: false })
        );
        assert_eq!(
            allocation(zero | keep),
            Some(Allocate::ZeroRange { keep_size: true })
        );
        assert_eq!(allocation(libc::FALLOC_FL_COLLAPSE_RANGE), None);
    }
}
