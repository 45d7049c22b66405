//! The classic transport: requests are read from `/dev/fuse`, replies written to it.

use crate::abi::fuse_out_header;
use crate::answer::{Errno, Sender};
use crate::dispatch::dispatch;
use crate::filesystem::Filesystem;
use crate::request::Parts;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{self, Opcode, Setter};
use std::io::{self, IoSlice};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

const PATH: &str = "/dev/fuse";

/// Room for the largest request besides what it writes: headers, and names of a rename.
const HEADERS_BYTES: usize = 4096;

/// A connection to the kernel, or one of several descriptors of it. A reply has to go by the
/// descriptor that its request came from.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    /// A descriptor that is no connection yet: a mount makes it one.
    pub(crate) fn open() -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(PATH, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                io::Error::other("there is no /dev/fuse; \"modprobe fuse\" as root may make it")
            }
            error => {
                let error = io::Error::from(error);
                io::Error::new(error.kind(), format!("{PATH}: {error}"))
            }
        })
    }

    pub(crate) fn new(connection: OwnedFd) -> Device {
        Device(connection)
    }

    /// A further descriptor of the connection, for another thread.
    pub(crate) fn another(&self) -> io::Result<Device> {
        /// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
        const CLONE: Opcode = ioctl::opcode::read::<u32>(229, 0);
        let new = Device::open()?;
        let ours = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: the call takes a pointer to a descriptor's number, as `Setter` hands one on.
        #[allow(unsafe_code, reason = "rustix has no call of its own for this ioctl")]
        unsafe {
            ioctl::ioctl(&new, Setter::<CLONE, u32>::new(ours))?;
        }
        Ok(Device(new))
    }

    /// From now on [`receive`](Self::receive) returns where there is no request.
    pub(crate) fn stop_waiting(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.0)?;
        rustix::fs::fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?;
        Ok(())
    }

    /// The next request, put into `buffer`; `None` once the mount is gone, `WouldBlock` where there
    /// is none and that is not to be waited for.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        loop {
            match rustix::io::read(&self.0, &mut buffer[..]) {
                Ok(len) => return Ok(Some(&buffer[..len])),
                Err(Errno::NODEV) => return Ok(None),
                // Given up by the caller before it was read, or interrupted by a signal.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a reply: an error (negative) or success (0), and what goes with it.
    pub(crate) fn reply(&self, unique: u64, error: i32, parts: [&[u8]; 2]) -> io::Result<()> {
        let len = size_of::<fuse_out_header>() + parts[0].len() + parts[1].len();
        let header = fuse_out_header {
            len: len as u32,
            error,
            unique,
        };
        let pieces = [header.as_bytes(), parts[0], parts[1]].map(IoSlice::new);
        rustix::io::writev(&self.0, &pieces)?;
        Ok(())
    }
}

/// The bytes that the largest request takes.
pub(crate) fn request_bytes(max_write_bytes: u32) -> usize {
    max_write_bytes as usize + HEADERS_BYTES
}

/// Has the next request answered, which is put into `buffer`; `false` once the mount is gone.
pub(crate) fn answer_next(
    files: &impl Filesystem,
    device: &Arc<Device>,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let Some(bytes) = device.receive(buffer)? else {
        return Ok(false);
    };
    match Parts::of(bytes) {
        Some(parts) => dispatch(files, &parts, Sender::Device(device.clone())),
        None => tracing::error!(bytes = bytes.len(), "a request is cut short"),
    }
    Ok(true)
}

pub(crate) fn cannot_be_read(error: &io::Error) {
    tracing::error!(%error, "{PATH} cannot be read");
}

/// Answers requests until the mount is gone.
pub(crate) fn serve(files: &impl Filesystem, device: &Arc<Device>, max_write_bytes: u32) {
    let mut buffer = vec![0; request_bytes(max_write_bytes)];
    loop {
        match answer_next(files, device, &mut buffer) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return cannot_be_read(&error),
        }
    }
}
