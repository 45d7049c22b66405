//! The FUSE front: an [`Engine`] as a mounted file system.
//!
//! [`spawn`] mounts and serves. The protocol itself, and the ways that requests come, are
//! `fuse-protocol`'s. This crate depends on `vfs` and knows no layout, no device (but for [`disk`],
//! which shows one as a file) and no mechanism. All state is the engine's: the front
//! itself keeps none between two requests, and takes no lock.
//!
//! # What the kernel keeps, and why it may
//!
//! Nobody else changes the image, so names (also names that do not exist), attributes, directory
//! contents and pages are cached without a time limit. The kernel itself drops what an operation
//! that passes through it changes: the attributes of a file that loses a name, of the directories
//! of a rename, the size after a write. What remains is ours:
//!
//! * An operation that changes attributes as a side effect (clearing set-user-ID on a write) only
//!   ever happens in answer to a request after which the kernel asks again; see [`privileges`].
//! * What background work changes is told to the kernel by an [`Invalidator`].
//! * `copy_file_range` and `fallocate` are followed by an invalidation in the kernel.
//! * A direct write (`O_DIRECT`) goes around the pages, and the kernel drops those that were read
//!   meanwhile once it is done: but only where it waits for the write. With `FUSE_ASYNC_DIO` it
//!   does not wait for one that was submitted with `io_submit`, and a page that read-ahead fetched
//!   beside it stays, with what was there before. So this capability is never asked for. (Telling
//!   the kernel ourselves, before the answer, is no way: it would wait for reads of these pages,
//!   which may wait for a free place among the requests in the background, all of which may be such
//!   writes.) What it costs is that `io_submit` waits; io_uring has threads of its own for files
//!   like ours.
//!
//! # Lifetimes
//!
//! A reply that names an inode is one reference to it; `FORGET` gives references back. An open file
//! keeps its inode in the kernel, and the kernel forgets an inode only when it drops it, so open
//! files hold a reference without being counted: a file without names lives until its last user
//! closes it. This lets the front answer `OPEN`, `OPENDIR` and `CREATE` with `ENOSYS`, after which
//! the kernel opens files without asking (it creates by `MKNOD`), closes them without telling, and
//! keeps caches over opens (but with `report_once`, where losses are reported to open files).
//! `O_TRUNC` then arrives as a `SETATTR` of the size.
//!
//! # Permissions
//!
//! The kernel checks them (`default_permissions`), with POSIX ACLs, unless root alone may use the
//! mount; the umask is left to the layout, which knows whether a default ACL replaces it. Locks are
//! the kernel's own.
//!
//! With `uid=`, `gid=` or a mask ([`Squash`]) it checks what is shown, and ACLs are left out.
//!
//! # Flags of inodes
//!
//! An immutable or append-only inode is refused every change that it forbids, by the layout. The
//! kernel does not know of the flags of a FUSE file, and does not ask when one is opened: so
//! opening such a file for writing succeeds, and the write fails. With `check_open` (and with
//! `writeback_cache`) it asks, and opening fails, as with the kernel's own file systems. A change
//! through a shared mapping is refused when the kernel writes it back; the page is then dropped, so
//! that nobody reads what is not there.
//!
//! # Access times
//!
//! `relatime`, as Linux does by default: a read that reaches the front moves the access time only
//! if it is not newer than the last change, or older than a day. Reads that the kernel answers from
//! its caches never reach the front and move nothing, also with `strictatime`.
//!
//! # Numbers
//!
//! FUSE calls the root 1; the layouts have other numbers for it. [`convert::Nodes`] swaps the two.
//! What `stat` and `readdir` show are always the layout's own numbers.

mod control;
pub mod convert;
mod directories;
pub mod disk;
mod flagged;
mod front;
mod ioctl;
mod open_files;
pub mod privileges;
mod request_counts;
mod requests;
mod session;
mod snapshot;
mod squash;
mod stats;
mod trace;
mod turns;
mod waiters;
mod xattrs;

pub use backstitch_fuse_protocol::IoUring;
pub use backstitch_vfs::Engine;
pub use control::Control;
pub use session::{
    AccessPolicy, Ender, FrontOptions, Invalidator, MountError, Mounted, Unmounter, run, spawn,
};
pub use snapshot::{SNAPSHOT_XATTR, SnapshotProgress, begin_snapshot, snapshot_progress};
pub use squash::Squash;
pub use stats::{STATS_XATTR, SYNC_XATTR, stats_of, sync_of};
pub use trace::{TRACE_XATTR, TraceEnd, TraceEnder, TraceStream, begin_trace};
