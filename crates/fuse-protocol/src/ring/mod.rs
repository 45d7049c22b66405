//! FUSE over io_uring: replies and the wait for requests are system calls of a ring.
//!
//! The kernel has a queue of requests for each processor, and puts a request into the queue of the
//! processor that its caller runs on. Each thread here has a ring of its own with one [`Slot`] in
//! one queue, and several threads serve a queue. The kernel takes the slot that was given back
//! last: so one thread answers everything as long as nothing waits, and where one waits for the
//! disk, the next request goes to another.
//!
//! A request comes as a header (`fuse_uring_req_header`) and a payload: what has no fixed size. The
//! reply goes into the same memory, and leaves with the submission of `COMMIT_AND_FETCH`.

mod leftovers;
mod places;
mod prepared;
mod slot;

pub(crate) use leftovers::Leftovers;
pub(crate) use places::Plan;
pub use places::run_anywhere;
pub(crate) use prepared::{Prepared, prepare};
pub(crate) use slot::Slot;

use crate::abi::{fuse_in_header, fuse_out_header};
use crate::answer::Sender;
use crate::dispatch::dispatch;
use crate::filesystem::Filesystem;
use crate::request::{self as kind, Parts};
use io_uring::cqueue;
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs};
use io_uring::{EnterFlags, IoUring, opcode};
use memmap2::MmapMut;
use places::follow;
use slot::Answer;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// `FUSE_OVER_IO_URING` of `INIT`'s flags.
pub(crate) const CAPABILITY: u64 = 1 << 41;

/// `FUSE_IO_URING_CMD_REGISTER`: a slot is there, and takes a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: a slot has a reply, and takes the next request.
const COMMIT_AND_FETCH: u32 = 2;

/// `struct fuse_uring_ent_in_out`.
#[derive(Clone, Copy, FromBytes, IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
#[repr(C)]
struct EntryHeader {
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// `struct fuse_uring_req_header`: what the kernel and we tell each other besides payloads.
#[derive(FromBytes, IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
#[repr(C)]
struct Headers {
    /// `fuse_in_header`, and in a reply `fuse_out_header`.
    in_out: [u8; 128],
    /// The structure of the kind of request.
    structure: [u8; 128],
    entry: EntryHeader,
}

/// `struct fuse_uring_cmd_req`, in a submission.
#[derive(IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
}

/// `struct iovec` in a form that any thread may hold.
#[derive(Clone, Copy)]
#[repr(C)]
struct Space {
    at: usize,
    bytes: usize,
}

type Ring = IoUring<Entry128, cqueue::Entry>;

/// A thread's part of the connection: a ring, and a slot in a queue.
pub(crate) struct Server {
    ring: Ring,
    queue: u16,
    slot: Arc<Slot>,
    leftovers: Arc<Leftovers>,
    headers: MmapMut,
    /// Where the memory is, as the kernel is told when the slot is registered.
    spaces: Box<[Space; 2]>,
    /// Copies of what requests have besides contents, so that replies may overwrite it.
    names: Vec<u8>,
}

impl Server {
    /// To be made by the thread that is to [`serve`](Self::serve). When this returns, the slot is
    /// registered.
    ///
    /// # Errors
    ///
    /// The system's: the kernel does not take the slot.
    pub(crate) fn new(leftovers: Arc<Leftovers>, prepared: Prepared) -> io::Result<Server> {
        let Prepared {
            queue,
            ring,
            headers,
            payload,
        } = prepared;
        let spaces = Box::new([&headers, &payload].map(|memory| Space {
            at: memory.as_ptr().expose_provenance(),
            bytes: memory.len(),
        }));
        let mut server = Server {
            ring,
            queue,
            slot: Arc::new(Slot::new(payload)),
            leftovers,
            headers,
            spaces,
            names: Vec::new(),
        };
        follow(queue);
        server.ring.submitter().register_enable_rings()?;
        server.register()?;
        Ok(server)
    }

    fn register(&mut self) -> io::Result<()> {
        let at = self.spaces.as_ptr().expose_provenance() as u64;
        let entry = self.command(REGISTER, 0).addr(Some(at)).build();
        let entry = with_len(entry, self.spaces.len() as u32);
        self.push(entry);
        self.ring.submit()?;
        match self.ring.completion().next() {
            Some(done) if done.result() < 0 => Err(io::Error::from_raw_os_error(-done.result())),
            _ => Ok(()),
        }
    }

    fn command(&self, what: u32, commit_id: u64) -> opcode::UringCmd80 {
        let command = Command {
            flags: 0,
            commit_id,
            queue: self.queue,
            padding: [0; 6],
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        // Not a file that is registered with the ring: those are dropped when the ring is freed, some
        // time after a process that was killed, and the connection would last as long.
        let device = Fd(self.leftovers.device.as_fd().as_raw_fd());
        opcode::UringCmd80::new(device, what).cmd(bytes)
    }

    fn push(&mut self, entry: Entry128) {
        // SAFETY: the memory that a submission names is `headers`, `spaces` and the slot's payload,
        // which live as long as this thread serves. With `DEFER_TASKRUN` the kernel copies to and from
        // them only while this very thread is inside `io_uring_enter`, when nobody here looks.
        #[allow(
            unsafe_code,
            reason = "the kernel's side cannot be seen by the compiler"
        )]
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "there is one submission at a time");
    }

    /// Answers requests until the mount is gone.
    pub(crate) fn serve(mut self, files: &impl Filesystem) {
        loop {
            match self.send_and_wait() {
                Err(error) if is_passing(&error) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "requests cannot be waited for");
                    return;
                }
                Ok(()) => {}
            }
            let Some(done) = self.ring.completion().next() else {
                continue;
            };
            if done.result() < 0 {
                let error = io::Error::from_raw_os_error(-done.result());
                tracing::debug!(%error, queue = self.queue, "the end of a queue");
                return;
            }
            let commit_id = self.answer(files);
            let entry = self.command(COMMIT_AND_FETCH, commit_id).build();
            self.push(entry);
        }
    }

    /// Sends the reply, and waits for the next request. These are two calls on purpose: the caller whose
    /// reply it is mostly runs on this processor, and has asked again by the time that this thread is
    /// back from the first. In one call this thread would be put to sleep, and have to be woken.
    fn send_and_wait(&mut self) -> io::Result<()> {
        self.ring.submit()?;
        if !self.ring.completion().is_empty() {
            return Ok(());
        }
        match self.ring.params().is_feature_no_iowait() {
            // Else an idle mount looks like one that waits for its disk.
            true => self.ring.submitter().submit_with_args_and_flags(
                1,
                &SubmitArgs::new(),
                EnterFlags::NO_IOWAIT,
            )?,
            false => self.ring.submit_and_wait(1)?,
        };
        Ok(())
    }

    /// Has the request answered that lies in the slot, and puts the answer there. Returns the number
    /// by which the kernel knows the request.
    fn answer(&mut self, files: &impl Filesystem) -> u64 {
        let entry_at = offset_of!(Headers, entry);
        let structure_at = offset_of!(Headers, structure);
        let entry: EntryHeader = at(&self.headers, entry_at);
        let header: fuse_in_header = at(&self.headers, 0);
        self.leftovers.take_likely(files);
        let bytes = entry.payload_bytes as usize;
        let structure = &self.headers[structure_at..entry_at];
        let sender = Sender::Ring(self.slot.clone());
        {
            let held;
            let rest = if matches!(header.opcode, kind::WRITE | kind::SETXATTR) {
                // These are answered in a few words, so nobody waits for the payload.
                held = self.slot.payload.lock();
                &held[..bytes.min(held.len())]
            } else {
                let payload = self.slot.payload.lock();
                self.names.clear();
                self.names
                    .extend_from_slice(&payload[..bytes.min(payload.len())]);
                &self.names
            };
            let parts = Parts {
                header,
                structure,
                rest,
            };
            dispatch(files, &parts, sender);
        }
        let answer = self.slot.wait();
        let removes = matches!(
            header.opcode,
            kind::UNLINK | kind::RMDIR | kind::RENAME | kind::RENAME2
        );
        if removes {
            self.leftovers.expect();
        }
        self.put(header.unique, entry, &answer);
        entry.commit_id
    }

    fn put(&mut self, unique: u64, entry: EntryHeader, answer: &Answer) {
        let out = fuse_out_header {
            len: (size_of::<fuse_out_header>() + answer.bytes) as u32,
            error: answer.error,
            unique,
        };
        self.headers[..size_of::<fuse_out_header>()].copy_from_slice(out.as_bytes());
        let entry = EntryHeader {
            payload_bytes: answer.bytes as u32,
            ..entry
        };
        self.headers[offset_of!(Headers, entry)..][..size_of::<EntryHeader>()]
            .copy_from_slice(entry.as_bytes());
        if let Some(small) = &answer.small {
            self.slot.payload.lock()[..answer.bytes].copy_from_slice(&small[..answer.bytes]);
        }
    }
}

/// Whether it may be tried again: a signal, or memory is short for a moment.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::NOMEM];
    let number = error.raw_os_error();
    passing
        .iter()
        .any(|errno| number == Some(errno.raw_os_error()))
}

/// What lies in `memory` from `offset` on, which it is large enough for.
fn at<T: FromBytes>(memory: &[u8], offset: usize) -> T {
    T::read_from_prefix(&memory[offset..]).map_or_else(|_| T::new_zeroed(), |(found, _)| found)
}

/// A submission that says how many pieces of memory it names.
fn with_len(entry: Entry128, len: u32) -> Entry128 {
    /// `len` of `struct io_uring_sqe`.
    const LEN_AT: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: an `Entry128` is the kernel's structure, of integers without padding, of which any
    // bytes are a value. The crate has no setter for this field.
    #[allow(unsafe_code, reason = "io-uring 0.7 cannot set the field")]
    unsafe {
        let mut bytes: [u8; 128] = std::mem::transmute(entry);
        bytes[LEN_AT..LEN_AT + 4].copy_from_slice(&len.to_ne_bytes());
        std::mem::transmute(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<EntryHeader>(), 32);
        assert_eq!(size_of::<Headers>(), 288);
        assert_eq!(size_of::<Command>(), 24);
        assert_eq!(size_of::<Space>(), 16);
    }

    /// A file system that answers nothing.
    struct Silent;

    impl Filesystem for Silent {
        fn negotiate(&mut self, _offer: &crate::Offer) -> u64 {
            0
        }

        fn readlink(&self, _request: &crate::Request, reply: crate::Reply<crate::Data>) {
            reply.read(100, |_| panic!("a fault, as this test wants it"));
        }
    }

    /// What a thread would wait for in vain is answered all the same.
    #[test]
    fn a_panic_is_an_error_and_a_forget_is_done() {
        for (opcode, error) in [
            (kind::READLINK, -5),
            (kind::FORGET, 0),
            (kind::BATCH_FORGET, 0),
        ] {
            let header = fuse_in_header {
                opcode,
                ..Default::default()
            };
            let parts = Parts {
                header,
                structure: &[0; 16],
                rest: &[],
            };
            let slot = Arc::new(Slot::new(MmapMut::map_anon(8192).unwrap()));
            dispatch(&Silent, &parts, Sender::Ring(slot.clone()));
            assert_eq!(slot.wait().error, error, "opcode {opcode}");
        }
    }
}
