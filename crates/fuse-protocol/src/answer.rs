//! Replies: each can say what its kind of request wants to hear, or an error.

use crate::abi::{
    fuse_attr_out, fuse_entry_out, fuse_getxattr_out, fuse_ioctl_out, fuse_kstatfs, fuse_lseek_out,
    fuse_open_out, fuse_statfs_out, fuse_statx_out, fuse_write_out,
};
use crate::device::Device;
use crate::directory::DirectoryList;
use crate::ring::Slot;
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// An error number, as a caller of the system gets it.
pub use rustix::io::Errno;

/// Kind of reply: done, nothing to say.
#[derive(Debug)]
pub enum Empty {}
/// Kind of reply: an inode that a name leads to.
#[derive(Debug)]
pub enum Entry {}
/// Kind of reply: what `stat` shows.
#[derive(Debug)]
pub enum Attributes {}
/// Kind of reply: what `statx` shows.
#[derive(Debug)]
pub enum Statx {}
/// Kind of reply: bytes of a file or of a link.
#[derive(Debug)]
pub enum Data {}
/// Kind of reply: entries of a directory.
#[derive(Debug)]
pub enum Directory {}
/// Kind of reply: an open file.
#[derive(Debug)]
pub enum Open {}
/// Kind of reply: an inode that was made, and is open.
#[derive(Debug)]
pub enum Created {}
/// Kind of reply: how many bytes were written.
#[derive(Debug)]
pub enum Written {}
/// Kind of reply: what `statfs` shows.
#[derive(Debug)]
pub enum Statfs {}
/// Kind of reply: the value of an extended attribute or the names of them, or only their size.
#[derive(Debug)]
pub enum Xattr {}
/// Kind of reply: what an `ioctl` gives back.
#[derive(Debug)]
pub enum Ioctl {}
/// Kind of reply: a place in a file.
#[derive(Debug)]
pub enum Offset {}

/// How a reply reaches the kernel.
#[derive(Debug)]
pub(crate) enum Sender {
    Device(Arc<Device>),
    Ring(Arc<Slot>),
}

impl Sender {
    /// The request is one without a reply.
    pub(crate) fn nothing(&self) {
        if let Sender::Ring(slot) = self {
            slot.reply(0, [&[], &[]]);
        }
    }
}

/// The reply to one request, of a kind `K`. It can be given from any thread. One that is dropped
/// says `EIO`.
///
/// By the device it leaves at once. By io_uring it leaves when the method that got the request
/// returns: so nothing that needs the caller to go on may come between.
#[derive(Debug)]
pub struct Reply<K> {
    unique: u64,
    sender: Option<Sender>,
    kind: PhantomData<fn() -> K>,
}

thread_local! {
    /// Where a thread puts together what it sends through the device.
    static BUFFER: RefCell<PageBuffer> = const { RefCell::new(PageBuffer::new()) };
}

impl<K> Reply<K> {
    pub(crate) fn new(unique: u64, sender: Sender) -> Reply<K> {
        Reply {
            unique,
            sender: Some(sender),
            kind: PhantomData,
        }
    }

    /// Whether the thread that got the request is blocked until the reply: to have another thread wait
    /// in its place gains nothing then.
    pub fn keeps_thread(&self) -> bool {
        matches!(self.sender, Some(Sender::Ring(_)))
    }

    /// The request failed.
    pub fn error(mut self, errno: Errno) {
        self.send(-errno.raw_os_error(), [&[], &[]]);
    }

    /// Tells the kernel an error (negative) or success (0) and what goes with it.
    fn send(&mut self, error: i32, parts: [&[u8]; 2]) {
        let sent = match self.sender.take() {
            Some(Sender::Device(device)) => device.reply(self.unique, error, parts),
            Some(Sender::Ring(slot)) => {
                slot.reply(error, parts);
                Ok(())
            }
            None => Ok(()),
        };
        note(sent);
    }

    /// Sends what `write` puts into a space of `most` bytes: as many of them as it says.
    fn fill(mut self, most: usize, write: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        // It stays until that is written: if `write` panics, the reply is dropped, and says so.
        match &self.sender {
            Some(Sender::Device(device)) => BUFFER.with_borrow_mut(|buffer| {
                let space = buffer.of(most);
                let (error, len) = result_of(write(space));
                note(device.reply(self.unique, error, [&space[..len], &[]]));
            }),
            Some(Sender::Ring(slot)) => slot.fill(most, |space| result_of(write(space))),
            None => {}
        }
        self.sender = None;
    }
}

/// An error number (negative, or 0) and how many bytes go with it.
fn result_of(written: Result<usize, Errno>) -> (i32, usize) {
    match written {
        Ok(len) => (0, len),
        Err(errno) => (-errno.raw_os_error(), 0),
    }
}

/// `ENOENT`: the request was given up meanwhile, or the mount is gone.
fn note(sent: io::Result<()>) {
    if let Err(error) = sent
        && error.raw_os_error() != Some(Errno::NOENT.raw_os_error())
    {
        tracing::debug!(%error, "the kernel does not take a reply");
    }
}

impl<K> Drop for Reply<K> {
    fn drop(&mut self) {
        self.send(-Errno::IO.raw_os_error(), [&[], &[]]);
    }
}

impl Reply<Empty> {
    /// It is done.
    pub fn ok(mut self) {
        self.send(0, [&[], &[]]);
    }
}

impl Reply<Entry> {
    /// The inode, which the kernel has one more reference to from now on.
    pub fn entry(mut self, entry: &fuse_entry_out) {
        self.send(0, [entry.as_bytes(), &[]]);
    }
}

impl Reply<Attributes> {
    /// What `stat` shows.
    pub fn attributes(mut self, attributes: &fuse_attr_out) {
        self.send(0, [attributes.as_bytes(), &[]]);
    }
}

impl Reply<Statx> {
    /// What `statx` shows.
    pub fn statx(mut self, statx: &fuse_statx_out) {
        self.send(0, [statx.as_bytes(), &[]]);
    }
}

impl Reply<Data> {
    /// These bytes.
    pub fn data(mut self, bytes: &[u8]) {
        self.send(0, [bytes, &[]]);
    }

    /// What `read` puts into `most` bytes, which begin at a page: as many of them as it says.
    pub fn read(self, most: usize, read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        self.fill(most, read);
    }
}

impl Reply<Directory> {
    /// The entries that `list` adds, as far as they go into `most` bytes.
    pub fn entries(
        self,
        most: usize,
        list: impl FnOnce(&mut DirectoryList<'_>) -> Result<(), Errno>,
    ) {
        self.fill(most, |space| {
            let mut entries = DirectoryList::new(space);
            list(&mut entries)?;
            Ok(entries.len())
        });
    }
}

fn open_as(handle: u64, flags: u32) -> fuse_open_out {
    fuse_open_out {
        fh: handle,
        open_flags: flags,
        backing_id: 0,
    }
}

impl Reply<Open> {
    /// It is open under the number `handle`, with `FOPEN_…` flags.
    pub fn opened(mut self, handle: u64, flags: u32) {
        self.send(0, [open_as(handle, flags).as_bytes(), &[]]);
    }
}

impl Reply<Created> {
    /// The inode, which the kernel has one more reference to from now on. It is open under the number
    /// `handle`, with `FOPEN_…` flags.
    pub fn created(mut self, entry: &fuse_entry_out, handle: u64, flags: u32) {
        self.send(0, [entry.as_bytes(), open_as(handle, flags).as_bytes()]);
    }
}

impl Reply<Written> {
    /// So many bytes.
    pub fn written(mut self, bytes: u32) {
        let written = fuse_write_out {
            size: bytes,
            padding: 0,
        };
        self.send(0, [written.as_bytes(), &[]]);
    }
}

impl Reply<Statfs> {
    /// What `statfs` shows.
    pub fn statfs(mut self, statistics: fuse_kstatfs) {
        let statfs = fuse_statfs_out { st: statistics };
        self.send(0, [statfs.as_bytes(), &[]]);
    }
}

impl Reply<Xattr> {
    /// A value, of which the caller takes `most` bytes; with 0 it wants to hear the size.
    pub fn value(mut self, most: u32, value: &[u8]) {
        match most {
            0 => {
                let size = fuse_getxattr_out {
                    size: value.len() as u32,
                    padding: 0,
                };
                self.send(0, [size.as_bytes(), &[]]);
            }
            most if value.len() > most as usize => self.error(Errno::RANGE),
            _ => self.send(0, [value, &[]]),
        }
    }
}

impl Reply<Ioctl> {
    /// What the call returns, and the bytes for the caller's memory.
    pub fn ioctl(mut self, result: i32, bytes: &[u8]) {
        let ioctl = fuse_ioctl_out {
            result,
            flags: 0,
            in_iovs: 0,
            out_iovs: 0,
        };
        self.send(0, [ioctl.as_bytes(), bytes]);
    }
}

impl Reply<Offset> {
    /// The place, in bytes.
    pub fn offset(mut self, offset: u64) {
        let lseek = fuse_lseek_out { offset };
        self.send(0, [lseek.as_bytes(), &[]]);
    }
}

/// Memory that begins at a page, used again and again.
struct PageBuffer {
    bytes: Vec<u8>,
}

impl PageBuffer {
    const PAGE_BYTES: usize = 4096;

    const fn new() -> PageBuffer {
        PageBuffer { bytes: Vec::new() }
    }

    /// The first `len` bytes of it, with whatever was there before.
    fn of(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + Self::PAGE_BYTES {
            self.bytes = vec![0; len.next_power_of_two() + Self::PAGE_BYTES];
        }
        let start = self.bytes.as_ptr().align_offset(Self::PAGE_BYTES);
        // Where the address cannot be told, any other will do.
        let start = start.min(Self::PAGE_BYTES);
        &mut self.bytes[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page_and_grows() {
        let mut buffer = PageBuffer::new();
        for len in [0, 1, 4096, 100_000, 1 << 20] {
            let bytes = buffer.of(len);
            assert_eq!(bytes.len(), len);
            assert_eq!(bytes.as_ptr() as usize % 4096, 0);
        }
    }
}
