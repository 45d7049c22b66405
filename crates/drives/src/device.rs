//! A simulated drive as a device: bytes in memory, time in a clock that moves with the drive.
//!
//! Writes are handed over without waiting. A flush waits until all of them are done and, if the
//! drive has a volatile cache, until that is empty. Waiting moves the [`VirtualClock`]: when the
//! call returns, the clock shows the time at which the drive was done. [`VirtualClock::pass`] adds
//! the time of the host's own work.
//!
//! The fault model, for a power cut at any moment ([`SimulatedDevice::power_cut`]): what was on the
//! medium stays. What the host still has in its queue is lost. Each write that the drive has, in its
//! queue, under its heads or in its cache, is there or not, and may be torn at a sector, but only
//! with all that it has to follow. Of two writes to one sector, the later one counts if both are
//! there: one that overlaps another in the queue follows it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, Record, Result, WriteRequest, check_range};
use parking_lot::Mutex;

use crate::content::Content;
use crate::drive::Drive;
use crate::request::{Completion, Flag, Request, RequestId, SECTOR_BYTES};
use crate::spec::DriveSpec;

/// The time that drives and host share.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// The time since the beginning, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Adds the time that the host's work takes.
    pub fn pass(&self, work: Duration) {
        self.0.fetch_add(work.as_nanos() as u64, Ordering::AcqRel);
    }

    /// Moves the clock to this time, if it is earlier.
    pub fn reach(&self, time_ns: u64) {
        self.0.fetch_max(time_ns, Ordering::AcqRel);
    }
}

/// A write that is not on the medium.
struct Open {
    offset_bytes: u64,
    buffers: Vec<Buffer>,
}

impl Open {
    /// The sectors that it touches.
    fn sectors(&self) -> Range<u64> {
        let len_bytes: u64 = self.buffers.iter().map(|b| b.len() as u64).sum();
        let end_bytes = self.offset_bytes + len_bytes;
        self.offset_bytes / SECTOR_BYTES..end_bytes.div_ceil(SECTOR_BYTES)
    }

    fn write_to(&self, content: &mut Content) {
        let mut at = self.offset_bytes;
        for buffer in &self.buffers {
            content.write(at, buffer);
            at += buffer.len() as u64;
        }
    }
}

struct State {
    drive: Drive,
    /// What readers see.
    newest: Content,
    /// What is on the medium.
    medium: Content,
    open: BTreeMap<RequestId, Open>,
    /// The same writes by first sector, with the sector behind the last.
    places: BTreeMap<(u64, RequestId), u64>,
    /// The longest write so far, in sectors: no write that begins further before a sector reaches
    /// it.
    longest: u64,
    /// Requests that are not done.
    pending: u64,
    /// Requests that were done, in which a wait finds its own. Writes are only here if a caller
    /// asked for them.
    done: Vec<Completion>,
    /// Whether a caller [takes](SimulatedDevice::take_done) what was done.
    notes_done: bool,
    /// Whether anything was written since the last flush of the drive's cache.
    is_cached: bool,
}

/// A simulated drive as a device.
pub struct SimulatedDevice {
    name: String,
    size_bytes: u64,
    has_cache: bool,
    clock: Arc<VirtualClock>,
    state: Mutex<State>,
}

/// A write that a power cut may keep or lose.
#[derive(Clone, Debug)]
pub struct OpenWrite {
    /// Where.
    pub offset_bytes: u64,
    /// What.
    pub bytes: Buffer,
    /// The writes that must be there if this one is: indices into [`PowerCut::open`].
    pub befores: Vec<usize>,
}

/// The state in which a power cut finds a drive.
pub struct PowerCut {
    medium: Content,
    /// The writes that may be there or not, each behind those that must be there before it.
    pub open: Vec<OpenWrite>,
}

impl PowerCut {
    /// Reads what is on the medium, without the open writes.
    pub fn read_medium(&self, offset_bytes: u64, buffer: &mut [u8]) {
        self.medium.read(offset_bytes, buffer);
    }

    /// The open writes as records of a recording device, for
    /// [`materialise`](backstitch_device::materialise) on the bytes of the medium.
    pub fn records(&self) -> Vec<Record> {
        let record = |write: &OpenWrite| Record::Write {
            offset_bytes: write.offset_bytes,
            bytes: write.bytes.clone(),
        };
        self.open.iter().map(record).collect()
    }

    /// Whether the drive can leave exactly this choice of the open writes.
    pub fn is_possible(&self, is_there: &dyn Fn(usize) -> bool) -> bool {
        let holds = |(index, write): (usize, &OpenWrite)| {
            !is_there(index) || write.befores.iter().all(|before| is_there(*before))
        };
        self.open.iter().enumerate().all(holds)
    }
}

impl SimulatedDevice {
    /// A drive of zeros, with `size_bytes` or the drive's capacity, whichever is less.
    pub fn new(spec: &DriveSpec, size_bytes: u64, clock: Arc<VirtualClock>) -> SimulatedDevice {
        let mut drive = Drive::new(spec);
        drive.note_stable();
        SimulatedDevice {
            name: spec.name.clone(),
            size_bytes: size_bytes.min(drive.capacity_sectors() * SECTOR_BYTES),
            has_cache: spec.rotating.as_ref().is_some_and(|r| r.write_cache)
                || spec.flash.as_ref().is_some_and(|f| f.cache_kib > 0),
            clock,
            state: Mutex::new(State {
                drive,
                newest: Content::default(),
                medium: Content::default(),
                open: BTreeMap::new(),
                places: BTreeMap::new(),
                longest: 0,
                pending: 0,
                done: Vec::new(),
                notes_done: false,
                is_cached: false,
            }),
        }
    }

    /// Whether writes that are done may be lost until a flush.
    pub fn has_cache(&self) -> bool {
        self.has_cache
    }

    /// The clock that it moves.
    pub fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// Records every request from now on.
    pub fn start_trace(&self) {
        self.state.lock().drive.start_trace();
    }

    /// The recorded requests.
    pub fn take_trace(&self) -> Vec<Completion> {
        self.state.lock().drive.take_trace()
    }

    /// Hands over a write that has to follow others, without waiting.
    ///
    /// # Errors
    /// Where it does not lie inside the device.
    ///
    /// # Panics
    /// If it is empty.
    pub fn submit_after(
        &self,
        request: &WriteRequest,
        predecessors: &[RequestId],
        flag: Option<Flag>,
    ) -> Result<RequestId> {
        let (offset, len) = (request.offset_bytes, request.len_bytes());
        check_range(&self.name, self.size_bytes, offset, len)?;
        let mut state = self.state.lock();
        state.settle(self.clock.now_ns());
        Ok(state.write(request, predecessors, flag, self.clock.now_ns()))
    }

    /// Requests a read, without waiting. The bytes can be [looked at](Self::peek) once the read is
    /// [done](Self::take_done).
    ///
    /// # Errors
    /// Where they do not lie inside the device.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn submit_read(&self, offset_bytes: u64, len_bytes: u64) -> Result<RequestId> {
        check_range(&self.name, self.size_bytes, offset_bytes, len_bytes)?;
        Ok(self
            .state
            .lock()
            .read(offset_bytes, len_bytes, self.clock.now_ns()))
    }

    /// Requests a flush, without waiting; `None` where the drive has no volatile cache, or
    /// everything written is on the medium.
    pub fn submit_flush(&self) -> Option<RequestId> {
        let mut state = self.state.lock();
        let now_ns = self.clock.now_ns();
        state.settle(now_ns);
        let is_needed = self.has_cache && !state.open.is_empty();
        is_needed.then(|| state.flush(now_ns))
    }

    /// From now on keeps what is done, for [`take_done`](Self::take_done).
    pub fn note_done(&self) {
        self.state.lock().notes_done = true;
    }

    /// Advances the drive to the clock's time. Returns what was done since the last call, in that
    /// order.
    pub fn take_done(&self) -> Vec<Completion> {
        let mut state = self.state.lock();
        state.settle(self.clock.now_ns());
        std::mem::take(&mut state.done)
    }

    /// When the next event in the drive happens, if nothing is submitted before.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.state.lock().drive.next_event_ns()
    }

    /// Reads the newest bytes, in no time: for bytes that the host has in memory.
    ///
    /// # Errors
    /// Where it does not lie inside the device.
    pub fn peek(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        check_range(&self.name, self.size_bytes, offset_bytes, len)?;
        self.state.lock().newest.read(offset_bytes, buffer);
        Ok(())
    }

    /// Whether a write is on the medium by now.
    pub fn is_stable(&self, id: RequestId) -> bool {
        let mut state = self.state.lock();
        state.settle(self.clock.now_ns());
        state.drive.is_stable(id)
    }

    /// Waits until something happens in the drive; false where nothing will happen.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        let next_ns = state.drive.next_event_ns();
        if let Some(next_ns) = next_ns {
            self.clock.reach(next_ns);
            state.settle(self.clock.now_ns());
        }
        next_ns.is_some()
    }

    /// The state in which a power cut now would find the drive. One that stops several drives on
    /// one clock is asked of each, with nothing done in between.
    pub fn power_cut(&self) -> PowerCut {
        let mut state = self.state.lock();
        state.settle(self.clock.now_ns());
        let mut places: BTreeMap<RequestId, Vec<usize>> = BTreeMap::new();
        let mut open = Vec::new();
        for (id, predecessors) in state.drive.undecided() {
            let Some(write) = state.open.get(&id) else {
                continue;
            };
            let known = |id: &RequestId| places.get(id).cloned().unwrap_or_default();
            let befores: Vec<usize> = predecessors.iter().flat_map(known).collect();
            let mut at = write.offset_bytes;
            let first = open.len();
            for bytes in &write.buffers {
                open.push(OpenWrite {
                    offset_bytes: at,
                    bytes: bytes.clone(),
                    befores: befores.clone(),
                });
                at += bytes.len() as u64;
            }
            places.insert(id, (first..open.len()).collect());
        }
        PowerCut {
            medium: state.medium.clone(),
            open,
        }
    }

    /// The device after a power cut that left exactly these of the open writes: at rest, with empty
    /// caches, on a clock that it may share with others.
    pub fn after_power_cut(
        &self,
        spec: &DriveSpec,
        cut: &PowerCut,
        clock: Arc<VirtualClock>,
        is_there: &dyn Fn(usize) -> bool,
    ) -> SimulatedDevice {
        let device = SimulatedDevice::new(spec, self.size_bytes, clock);
        let mut medium = cut.medium.clone();
        for (index, write) in cut.open.iter().enumerate() {
            if is_there(index) {
                medium.write(write.offset_bytes, &write.bytes);
            }
        }
        let mut state = device.state.lock();
        (state.newest, state.medium) = (medium.clone(), medium);
        drop(state);
        device
    }
}

impl State {
    /// Advances the drive to a time, and notes what it did.
    fn settle(&mut self, now_ns: u64) {
        self.drive.advance(now_ns);
        while let Some(completion) = self.drive.take_completion() {
            self.note(completion);
        }
        self.note_stable();
    }

    fn note(&mut self, completion: Completion) {
        self.pending -= 1;
        if self.notes_done || !completion.kind.is_write() {
            self.done.push(completion);
        }
    }

    fn note_stable(&mut self) {
        for id in self.drive.take_stable() {
            if let Some(open) = self.open.remove(&id) {
                self.places.remove(&(open.sectors().start, id));
                open.write_to(&mut self.medium);
            }
        }
    }

    fn write(
        &mut self,
        request: &WriteRequest,
        predecessors: &[RequestId],
        flag: Option<Flag>,
        now_ns: u64,
    ) -> RequestId {
        let open = Open {
            offset_bytes: request.offset_bytes,
            buffers: request.buffers.clone(),
        };
        let sectors = open.sectors();
        let count = sectors.end - sectors.start;
        let mut asked = Request::write(sectors.start, count as u32).after(predecessors);
        asked.flag = flag;
        let first = sectors.start.saturating_sub(self.longest);
        let near = (first, RequestId(0))..(sectors.end, RequestId(0));
        let overlapped = self
            .places
            .range(near)
            .filter(|(_, end)| **end > sectors.start);
        asked
            .predecessors
            .extend(overlapped.map(|((_, id), _)| *id));
        self.longest = self.longest.max(count);
        open.write_to(&mut self.newest);
        let id = self.drive.submit(&asked, now_ns);
        self.pending += 1;
        self.is_cached = true;
        self.places.insert((sectors.start, id), sectors.end);
        self.open.insert(id, open);
        id
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u64, now_ns: u64) -> RequestId {
        let sector = offset_bytes / SECTOR_BYTES;
        let sectors = (offset_bytes + len_bytes).div_ceil(SECTOR_BYTES) - sector;
        self.settle(now_ns);
        self.pending += 1;
        let asked = Request::read(sector, sectors as u32);
        self.drive.submit(&asked, now_ns)
    }

    fn flush(&mut self, now_ns: u64) -> RequestId {
        self.pending += 1;
        self.drive.submit(&Request::flush(), now_ns)
    }

    /// Advances time until a request that changes nothing is done. Returns when that was.
    fn wait_for(&mut self, id: RequestId) -> u64 {
        loop {
            if let Some(index) = self.done.iter().position(|c| c.id == id) {
                let completed_ns = self.done.swap_remove(index).completed_ns;
                self.note_stable();
                return completed_ns;
            }
            match self.drive.next_completion() {
                Some(completion) => self.note(completion),
                None => return self.drive.now_ns(),
            }
        }
    }
}

impl BlockDevice for SimulatedDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        check_range(&self.name, self.size_bytes, offset_bytes, len)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.newest.read(offset_bytes, buffer);
        let id = state.read(offset_bytes, len, self.clock.now_ns());
        let done_ns = state.wait_for(id);
        self.clock.reach(done_ns);
        Ok(())
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        for request in batch {
            let (offset, len) = (request.offset_bytes, request.len_bytes());
            check_range(&self.name, self.size_bytes, offset, len)?;
        }
        let mut state = self.state.lock();
        let now_ns = self.clock.now_ns();
        state.settle(now_ns);
        for request in batch.iter().filter(|request| request.len_bytes() > 0) {
            state.write(request, &[], None, now_ns);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.settle(self.clock.now_ns());
        while state.pending > 0 {
            let Some(completion) = state.drive.next_completion() else {
                break;
            };
            state.note(completion);
        }
        state.note_stable();
        if self.has_cache && std::mem::take(&mut state.is_cached) {
            let now_ns = state.drive.now_ns();
            let id = state.flush(now_ns);
            state.wait_for(id);
        }
        self.clock.reach(state.drive.now_ns());
        Ok(())
    }
}
