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

use crate::abi::{fuse_in_header, fuse_out_header};
use crate::answer::Sender;
use crate::device::{Device, request_bytes};
use crate::dispatch::dispatch;
use crate::filesystem::Filesystem;
use crate::request::{self as kind, Parts};
use io_uring::cqueue;
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs};
use io_uring::{EnterFlags, IoUring, opcode};
use memmap2::MmapMut;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// `FUSE_OVER_IO_URING` of `INIT`'s flags.
pub(crate) const CAPABILITY: u64 = 1 << 41;

/// `FUSE_IO_URING_CMD_REGISTER`: a slot is there, and takes a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: a slot has a reply, and takes the next request.
const COMMIT_AND_FETCH: u32 = 2;

/// Requests that one thread's ring holds: its own, and a little room.
const RING_ENTRIES: u32 = 2;

/// Requests of one processor that can be under way at once, at least and at most.
const LEAST_AT_ONCE: usize = 8;
const MOST_AT_ONCE: usize = 16;

/// Time between two looks at the device while forgets come, so that several are taken together.
const PAUSE: Duration = Duration::from_millis(10);

/// Requests after a removal that look for its forget.
const LOOKS: u32 = 4;

/// The largest reply that is not written into a payload as it comes into being: `fuse_statx_out`
/// with room to spare.
const SMALL_BYTES: usize = 320;

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

/// Forgets and interrupts, which come by the device while requests come by rings.
///
/// A thread that waited for forgets at the device would be woken for each file that is removed. So the
/// thread that answers a request after a removal takes them first. (Where one program removes a file and
/// then needs its space, the forget is there before that request.) The thread at the device takes the
/// rest now and then.
#[derive(Debug)]
pub(crate) struct Leftovers {
    device: Arc<Device>,
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
            match self.device.receive(&mut buffer) {
                Ok(Some(bytes)) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    if let Some(parts) = Parts::of(bytes) {
                        dispatch(files, &parts, Sender::Device(self.device.clone()));
                    }
                }
                Ok(None) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => {
                    tracing::error!(%error, "/dev/fuse cannot be read");
                    return false;
                }
            }
        }
    }

    /// Takes what is likely to be there because of the request before.
    fn take_likely(&self, files: &impl Filesystem) {
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

/// Where the reply to the request that a thread has taken is put.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Held by the thread that serves while a request's contents lie there.
    payload: Mutex<MmapMut>,
    answer: Mutex<Option<Answer>>,
    /// A thread that did not get the request has put an answer there.
    given: Condvar,
}

#[derive(Debug)]
struct Answer {
    error: i32,
    bytes: usize,
    /// The bytes, if they are not in the payload yet.
    small: Option<[u8; SMALL_BYTES]>,
}

impl Slot {
    /// Takes a reply: an error (negative) or success (0), and what goes with it.
    pub(crate) fn reply(&self, error: i32, parts: [&[u8]; 2]) {
        let bytes = parts[0].len() + parts[1].len();
        let mut small = None;
        if bytes <= SMALL_BYTES {
            let space = small.insert([0; SMALL_BYTES]);
            put(space, parts);
        } else {
            put(&mut self.payload.lock(), parts);
        }
        self.give(Answer {
            error,
            bytes,
            small,
        });
    }

    /// Takes a reply that `write` writes: into `most` bytes, which begin at a page. It returns an
    /// error number and how many bytes there are.
    pub(crate) fn fill(&self, most: usize, write: impl FnOnce(&mut [u8]) -> (i32, usize)) {
        let mut payload = self.payload.lock();
        let most = most.min(payload.len());
        let (error, bytes) = write(&mut payload[..most]);
        drop(payload);
        self.give(Answer {
            error,
            bytes,
            small: None,
        });
    }

    fn give(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.given.notify_one();
    }

    fn wait(&self) -> Answer {
        let mut answer = self.answer.lock();
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => self.given.wait(&mut answer),
            }
        }
    }
}

/// Writes `parts` one behind the other, as far as there is room.
fn put(space: &mut [u8], parts: [&[u8]; 2]) {
    let mut rest = space;
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len().min(rest.len()));
        here.copy_from_slice(&part[..here.len()]);
        rest = behind;
    }
}

type Ring = IoUring<Entry128, cqueue::Entry>;

fn build() -> io::Result<Ring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .build(RING_ENTRIES)
}

/// Which threads serve which queues.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The queue of each thread.
    queues: Vec<u16>,
    at_once: usize,
}

impl Plan {
    /// About `threads` threads: as many for each processor that is there, and one for each that may
    /// come to be.
    ///
    /// # Errors
    ///
    /// The system's, where it lets us have no rings, or does not say which processors it has. Whether
    /// the kernel serves FUSE by rings it says at `INIT`.
    pub(crate) fn new(threads: usize) -> io::Result<Plan> {
        build()?;
        let (online, possible) = (processors("online")?, processors("possible")?);
        Ok(Plan::over(&online, possible.len(), threads))
    }

    fn over(online: &[u16], possible: usize, threads: usize) -> Plan {
        let at_once = (threads / online.len().max(1)).clamp(LEAST_AT_ONCE, MOST_AT_ONCE);
        let of_queue = |queue: &u16| match online.contains(queue) {
            true => at_once,
            false => 1,
        };
        // The kernel numbers them without gaps.
        let all = 0..u16::try_from(possible).unwrap_or(u16::MAX);
        let queues = all.flat_map(|queue| vec![queue; of_queue(&queue)]);
        Plan {
            queues: queues.collect(),
            at_once,
        }
    }

    /// Requests of one processor that can be under way at once.
    pub(crate) fn at_once(&self) -> usize {
        self.at_once
    }

    pub(crate) fn queues(&self) -> &[u16] {
        &self.queues
    }
}

/// The processors of this system that are `online`, or are `possible`: the kernel has a queue for
/// each of the latter.
fn processors(which: &str) -> io::Result<Vec<u16>> {
    let path = format!("/sys/devices/system/cpu/{which}");
    let found = std::fs::read_to_string(&path).map(|list| numbers_of(&list));
    found?.ok_or_else(|| io::Error::other(format!("{path} is no list of processors")))
}

/// The numbers of a list like `0-3,5`.
fn numbers_of(list: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

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
    /// The system's: no ring, or the kernel does not take the slot.
    pub(crate) fn new(
        leftovers: Arc<Leftovers>,
        queue: u16,
        payload_bytes: usize,
    ) -> io::Result<Server> {
        let ring = build()?;
        let headers = MmapMut::map_anon(size_of::<Headers>())?;
        let payload = MmapMut::map_anon(payload_bytes)?;
        let spaces = Box::new([&headers, &payload].map(|memory| Space {
            at: memory.as_ptr().expose_provenance(),
            bytes: memory.len(),
        }));
        let slot = Slot {
            payload: Mutex::new(payload),
            answer: Mutex::new(None),
            given: Condvar::new(),
        };
        let mut server = Server {
            ring,
            queue,
            slot: Arc::new(slot),
            leftovers,
            headers,
            spaces,
            names: Vec::new(),
        };
        follow(queue);
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
        let unique = header.unique;
        self.leftovers.take_likely(files);
        let carries_contents = matches!(header.opcode, kind::WRITE | kind::SETXATTR);
        let bytes = entry.payload_bytes as usize;
        let structure = &self.headers[structure_at..entry_at];
        let sender = Sender::Ring(self.slot.clone());
        if carries_contents {
            // These are answered in a few words, so nobody waits for the payload.
            let payload = self.slot.payload.lock();
            let rest = &payload[..bytes.min(payload.len())];
            dispatch(
                files,
                &Parts {
                    header,
                    structure,
                    rest,
                },
                sender,
            );
        } else {
            self.names.clear();
            let payload = self.slot.payload.lock();
            self.names
                .extend_from_slice(&payload[..bytes.min(payload.len())]);
            drop(payload);
            let rest = &self.names[..];
            dispatch(
                files,
                &Parts {
                    header,
                    structure,
                    rest,
                },
                sender,
            );
        }
        let answer = self.slot.wait();
        let removes = matches!(
            header.opcode,
            kind::UNLINK | kind::RMDIR | kind::RENAME | kind::RENAME2
        );
        if removes {
            self.leftovers.looks.store(LOOKS, Ordering::Release);
        }
        self.put(unique, entry, &answer);
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

/// The thread runs where the requests of its queue come from: then nobody has to wake another
/// processor. Where that is not allowed it runs where it may.
fn follow(queue: u16) {
    let cpu = usize::from(queue);
    let Some(allowed) = everywhere() else {
        return;
    };
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        return;
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    if let Err(error) = sched_setaffinity(None, &one) {
        tracing::debug!(%error, cpu, "a thread does not follow its queue");
    }
}

/// Where this process may run, as it was when it was first asked for.
fn everywhere() -> Option<CpuSet> {
    static EVERYWHERE: OnceLock<Option<CpuSet>> = OnceLock::new();
    *EVERYWHERE.get_or_init(|| sched_getaffinity(None).ok())
}

/// Lets this thread run on any processor, although a request started it: it inherits the place of the
/// thread that answered the request.
pub fn run_anywhere() {
    if let Some(all) = everywhere()
        && let Err(error) = sched_setaffinity(None, &all)
    {
        tracing::debug!(%error, "a thread stays on its processor");
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

    #[test]
    fn lists_of_processors() {
        assert_eq!(numbers_of("0-3\n"), Some(vec![0, 1, 2, 3]));
        assert_eq!(numbers_of("0\n"), Some(vec![0]));
        assert_eq!(numbers_of("0-1,8-9"), Some(vec![0, 1, 8, 9]));
        assert_eq!(numbers_of(""), None);
    }

    #[test]
    fn every_queue_has_a_thread() {
        let plan = Plan::over(&[1], 3, 9);
        assert_eq!(plan.queues(), [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        let many: Vec<u16> = (0..100).collect();
        let at_least = 100 * LEAST_AT_ONCE;
        assert_eq!(Plan::over(&many, 100, 64).queues().len(), at_least);
        assert_eq!(Plan::over(&[0], 1, 64).at_once(), MOST_AT_ONCE);
    }

    #[test]
    fn every_queue_of_this_system_has_one() {
        let Ok(here) = Plan::new(1) else {
            return;
        };
        assert!(
            processors("possible")
                .unwrap()
                .iter()
                .all(|queue| here.queues().contains(queue))
        );
    }

    fn slot() -> Arc<Slot> {
        Arc::new(Slot {
            payload: Mutex::new(MmapMut::map_anon(8192).unwrap()),
            answer: Mutex::new(None),
            given: Condvar::new(),
        })
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
            let slot = slot();
            dispatch(&Silent, &parts, Sender::Ring(slot.clone()));
            assert_eq!(slot.wait().error, error, "opcode {opcode}");
        }
    }

    #[test]
    fn an_answer_may_come_from_elsewhere() {
        let slot = slot();
        let other = slot.clone();
        let thread = std::thread::spawn(move || other.reply(0, [b"ab", b"c"]));
        let answer = slot.wait();
        thread.join().unwrap();
        assert_eq!((answer.error, answer.bytes), (0, 3));
        assert_eq!(&answer.small.unwrap()[..3], b"abc");
        let long = [7; 5000];
        slot.reply(-5, [&long, &[]]);
        let answer = slot.wait();
        assert_eq!((answer.error, answer.bytes), (-5, 5000));
        assert_eq!(slot.payload.lock()[..5000], long);
    }
}
