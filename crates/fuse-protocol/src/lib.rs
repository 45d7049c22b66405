//! Linux's FUSE protocol, from the side of the file system: requests of the kernel are parsed and
//! handed to a [`Filesystem`], whose replies go back.
//!
//! [`mount()`] mounts, [`Session::start`] negotiates with the kernel and serves.
//!
//! # Two transports
//!
//! * `device`: each request is one `read` of `/dev/fuse`, each reply one `writev`. Every kernel has
//!   it.
//! * `ring`: FUSE over io_uring (Linux 6.14 and later, where `/sys/module/fuse/parameters/enable_uring`
//!   is on). There is a queue of requests for each processor, whose threads stay there. `FORGET` and
//!   `INTERRUPT` still come by the device, and so does what the file system tells the kernel.
//!
//! What differs lies in these two modules. A [`Filesystem`] can tell them apart by
//! [`Reply::keeps_thread`], and by when a [`Reply`] leaves.
//!
//! # Sources
//!
//! `linux/fuse.h` (by the crate `fuse-abi`), `Documentation/filesystems/fuse/fuse-io-uring.rst`
//! and `fuse(4)`.

mod answer;
mod device;
mod directory;
mod dispatch;
mod filesystem;
mod mount;
mod notify;
mod request;
mod ring;
mod session;

pub use answer::{
    Attributes, Created, Data, Directory, Empty, Entry, Errno, Ioctl, Offset, Open, Reply, Statfs,
    Statx, Written, Xattr,
};
pub use directory::DirectoryList;
pub use filesystem::{Filesystem, Offer};
pub use fuse_abi::linux as abi;
pub use mount::{MountOptions, mount};
pub use notify::Notifier;
pub use request::{NodeId, REQUESTS, Request};
pub use ring::run_anywhere;
pub use session::{IoUring, Session, SessionOptions, Started, Transport};
