//! What comes by the device although requests come by rings.

use crate::device::{Device, answer_next, cannot_be_read, request_bytes};
use crate::filesystem::Filesystem;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Time between two looks at the device while forgets come, so that several are taken together.
const PAUSE: Duration = Duration::from_millis(10);

/// Requests after a removal that look for its forget.
const LOOKS: u32 = 4;

/// Forgets and interrupts, which come by the device while requests come by rings.
///
/// A thread that waited for forgets at the device would be woken for each file that is removed. So the
/// thread that answers a request after a removal takes them first. (Where one program removes a file and
/// then needs its space, the forget is there before that request.) The thread at the device takes the
/// rest now and then.
#[derive(Debug)]
pub(crate) struct Leftovers {
    pub(super) device: Arc<Device>,
    buffer: Mutex<Vec<u8>>,
    /// How many of the next requests are to look for forgets: the one of a removal comes after its
    /// reply, or not at all.
    looks: AtomicU32,
    taken: AtomicU64,
}

impl Leftovers {
    /// Of a device that nobody reads otherwise.
    pub(crate) fn new(device: Arc<Device>, max_write_bytes: u32) -> io::Result<Leftovers> {
        device.stop_waiting()?;
        Ok(Leftovers {
            device,
            buffer: Mutex::new(vec![0; request_bytes(max_write_bytes)]),
            looks: AtomicU32::new(0),
            taken: AtomicU64::new(0),
        })
    }

    /// Has all that is there answered; `false` once the mount is gone.
    fn take(&self, files: &impl Filesystem) -> bool {
        let mut buffer = self.buffer.lock();
        loop {
            match answer_next(files, &self.device, &mut buffer) {
                Ok(true) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                }
                Ok(false) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => {
                    cannot_be_read(&error);
                    return false;
                }
            }
        }
    }

    /// Takes what is likely to be there because of the request before.
    pub(super) fn take_likely(&self, files: &impl Filesystem) {
        let looks = self.looks.load(Ordering::Acquire);
        if looks == 0 {
            return;
        }
        let before = self.taken.load(Ordering::Relaxed);
        self.take(files);
        let found = self.taken.load(Ordering::Relaxed) != before;
        let rest = if found { 0 } else { looks - 1 };
        // Another removal may have begun meanwhile: its number stays.
        let _ = self
            .looks
            .compare_exchange(looks, rest, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A name is being removed: the kernel may give back an inode once it has the reply.
    pub(super) fn expect(&self) {
        self.looks.store(LOOKS, Ordering::Release);
    }

    /// Looks after them until the mount is gone.
    pub(crate) fn serve(&self, files: &impl Filesystem) {
        let mut before = 0;
        while self.take(files) {
            let taken = self.taken.load(Ordering::Relaxed);
            if taken != before {
                before = taken;
                std::thread::sleep(PAUSE);
                continue;
            }
            let mut watched = [PollFd::new(&*self.device, PollFlags::IN)];
            // What went wrong shows when it is read.
            let _ = poll(&mut watched, None);
        }
    }
}
