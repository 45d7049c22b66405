//! The inside of a rotating disk: an arm, a spindle, a bus, and memory.
//!
//! The heads do one thing at a time. Meanwhile requests that the memory can serve are served, one
//! transfer after the other on the bus. When the heads are free, they turn to, in this order:
//!
//! 1. writes that a flush waits for, and writes that must leave the cache to make room;
//! 2. the request that the scheduler chooses;
//! 3. the rest of the write cache, upwards by address and then again from the lowest;
//! 4. reading ahead.
//!
//! Not modelled: reading a track from its middle ("zero latency"), spares, retries, recalibration.

use crate::geometry::{Geometry, Place, ns_of_bytes, ns_of_ms};
use crate::media::{Event, Events, Job, Parts};
use crate::request::{Kind, RequestId, SECTOR_BYTES};
use crate::spec::{Policy, QueueSpec, RotatingSpec};
use crate::track_buffer::{Found, TrackBuffer};
use crate::write_cache::{Extent, WriteCache};

/// A request that waits for the heads.
struct Waiting {
    job: Job,
    place: Place,
    /// When it arrived.
    arrived_ns: u64,
    /// When the command is decoded and, for a write, the data have come over the bus.
    ready_ns: u64,
}

/// What the heads work on.
enum Busy {
    Request(Job),
    Cache(Extent),
}

/// A rotating disk.
pub(crate) struct Disk {
    pub(crate) geometry: Geometry,
    policy: Policy,
    age_limit_ns: u64,
    write_settle_ns: u64,
    command_ns: u64,
    bus_mb_s: f64,
    /// Where the heads are.
    head: Place,
    head_sector: u64,
    waiting: Vec<Waiting>,
    busy: Option<Busy>,
    buffer: TrackBuffer,
    cache: Option<WriteCache>,
    flushes: Vec<RequestId>,
    /// Whether a request waits for cached writes to get to the medium.
    is_pressed: bool,
    bus_free_ns: u64,
}

impl Disk {
    pub(crate) fn new(spec: &RotatingSpec, queue: &QueueSpec) -> Disk {
        let geometry = Geometry::new(spec);
        // Half of the memory is for writes, if these are cached.
        let sectors = u64::from(spec.buffer_kib) * 1024 / SECTOR_BYTES;
        let share = if spec.write_cache { 2 } else { 1 };
        let segment = sectors / u64::from(share * spec.segments);
        Disk {
            head: geometry.place(0),
            head_sector: 0,
            geometry,
            policy: queue.scheduler,
            age_limit_ns: ns_of_ms(queue.age_limit_ms),
            write_settle_ns: ns_of_ms(spec.write_settle_ms),
            command_ns: ns_of_ms(spec.command_ms),
            bus_mb_s: spec.bus_mb_s,
            waiting: Vec::new(),
            busy: None,
            buffer: TrackBuffer::new(spec.segments, segment, spec.read_ahead),
            cache: spec.write_cache.then(|| WriteCache::new(sectors / 2)),
            flushes: Vec::new(),
            is_pressed: false,
            bus_free_ns: 0,
        }
    }

    /// The time until the first sector is under the head, for the host's scheduler. The arm starts
    /// when the command is decoded.
    pub(crate) fn positioning_ns(&self, sector: u64, is_write: bool, now_ns: u64) -> u64 {
        let place = self.geometry.place(sector);
        let seek_ns = self.seek_ns(&place, is_write);
        let arrived_ns = now_ns + self.command_ns + seek_ns;
        seek_ns + self.geometry.rotation(&place, arrived_ns)
    }

    fn seek_ns(&self, place: &Place, is_write: bool) -> u64 {
        match self.geometry.seek(&self.head, place) {
            0 => 0,
            ns if is_write => ns + self.write_settle_ns,
            ns => ns,
        }
    }

    fn bus_ns(&self, sectors: u64) -> u64 {
        ns_of_bytes(sectors * SECTOR_BYTES, self.bus_mb_s)
    }

    /// Carries sectors over the bus as soon as that is free. Returns when they have arrived.
    fn carry(&mut self, sectors: u64, from_ns: u64) -> u64 {
        self.bus_free_ns = self.bus_free_ns.max(from_ns) + self.bus_ns(sectors);
        self.bus_free_ns
    }

    /// A request arrives.
    pub(crate) fn arrive(&mut self, job: Job, now_ns: u64, events: &mut Events) {
        if job.kind == Kind::Flush {
            self.flushes.push(job.id);
        } else if !self.serve_from_memory(&job, now_ns, events) {
            let mut ready_ns = now_ns + self.command_ns;
            if job.kind.is_write() {
                ready_ns = self.carry(job.sectors.into(), ready_ns);
            }
            self.waiting.push(Waiting {
                place: self.geometry.place(job.sector),
                job,
                arrived_ns: now_ns,
                ready_ns,
            });
        }
        self.start(now_ns, events);
    }

    /// Everything that a request waited for is on the medium.
    pub(crate) fn release(&mut self, id: RequestId, now_ns: u64, events: &mut Events) {
        if let Some(waiting) = self.waiting.iter_mut().find(|w| w.job.id == id) {
            waiting.job.is_blocked = false;
        }
        self.absorb_waiting(now_ns, events);
        self.start(now_ns, events);
    }

    /// Another request waits for a write that may be in the cache: the cache is emptied before
    /// anything else.
    pub(crate) fn press(&mut self, now_ns: u64, events: &mut Events) {
        self.is_pressed = self.cache.as_ref().is_some_and(|cache| !cache.is_empty());
        self.start(now_ns, events);
    }

    /// The heads have finished their work.
    pub(crate) fn wake(&mut self, now_ns: u64, events: &mut Events) {
        match self.busy.take() {
            Some(Busy::Cache(run)) => {
                events.extend(run.ids.iter().map(|&id| (now_ns, Event::Stable(id))));
                self.absorb_waiting(now_ns, events);
            }
            Some(Busy::Request(job)) if job.kind == Kind::Read => {
                let (start, end) = (job.sector, job.sector + u64::from(job.sectors));
                self.buffer.has_read(&self.geometry, start, end, now_ns);
            }
            Some(Busy::Request(_)) | None => {}
        }
        self.start(now_ns, events);
    }

    /// Serves a read of what is in memory, or a write into the cache, without the heads.
    fn serve_from_memory(&mut self, job: &Job, now_ns: u64, events: &mut Events) -> bool {
        let (start, end) = (job.sector, job.sector + u64::from(job.sectors));
        let is_there = match job.kind {
            Kind::Read => {
                let is_cached = self.cache.as_ref().is_some_and(|c| c.covers(start, end));
                // While the heads are elsewhere, no read-ahead is coming.
                is_cached
                    || matches!(
                        self.buffer.find(&self.geometry, start, end, now_ns),
                        Found::All
                    )
            }
            Kind::Write => self.absorb(job, now_ns),
            Kind::WriteThrough | Kind::Flush => false,
        };
        if is_there {
            let done_ns = self.carry(job.sectors.into(), now_ns + self.command_ns);
            let transfer_ns = self.bus_ns(job.sectors.into());
            let parts = Parts {
                transfer_ns,
                ..Parts::default()
            };
            events.push((done_ns, Event::Done(job.id, parts)));
        }
        is_there
    }

    /// Takes a write into the cache if it may go there. During a flush none may.
    fn absorb(&mut self, job: &Job, now_ns: u64) -> bool {
        let sectors = u64::from(job.sectors);
        let may = !job.is_blocked && self.flushes.is_empty();
        let Some(cache) = self.cache.as_mut().filter(|c| may && c.has_room(sectors)) else {
            return false;
        };
        cache.absorb(job.id, job.sector, sectors);
        let end = job.sector + sectors;
        self.buffer.forget(&self.geometry, job.sector, end, now_ns);
        true
    }

    /// Takes writes into the cache that had no room there before, as far as there is room now.
    fn absorb_waiting(&mut self, now_ns: u64, events: &mut Events) {
        let mut index = 0;
        while self.cache.is_some() && index < self.waiting.len() {
            let job = self.waiting[index].job;
            if job.kind == Kind::Write && self.absorb(&job, now_ns) {
                let ready_ns = self.waiting.remove(index).ready_ns;
                let parts = Parts {
                    transfer_ns: self.bus_ns(job.sectors.into()),
                    ..Parts::default()
                };
                events.push((ready_ns.max(now_ns), Event::Done(job.id, parts)));
            } else {
                index += 1;
            }
        }
    }

    /// Gives the free heads their next work.
    fn start(&mut self, now_ns: u64, events: &mut Events) {
        if self.busy.is_some() {
            return;
        }
        let is_clean = self.cache.as_ref().is_none_or(WriteCache::is_empty);
        if is_clean && !self.flushes.is_empty() {
            let done_ns = now_ns + self.command_ns;
            for id in self.flushes.drain(..) {
                events.push((done_ns, Event::Done(id, Parts::default())));
            }
            self.absorb_waiting(now_ns, events);
        }
        let wants_room = |w: &Waiting| w.job.kind == Kind::Write && !w.job.is_blocked;
        self.is_pressed &= !is_clean;
        let is_urgent = self.is_pressed
            || !self.flushes.is_empty()
            || self.cache.as_ref().is_some_and(WriteCache::is_pressing)
            || self.cache.is_some() && self.waiting.iter().any(wants_room);
        if is_urgent && self.destage(now_ns, events) {
            return;
        }
        match self.choose(now_ns) {
            Some(index) => {
                let waiting = self.waiting.swap_remove(index);
                self.serve(&waiting, now_ns, events);
            }
            None => {
                self.destage(now_ns, events);
            }
        }
    }

    /// The request that is next for the heads.
    fn choose(&self, now_ns: u64) -> Option<usize> {
        let (mut best, mut oldest) = ((u64::MAX, RequestId(0), 0), None);
        for (index, w) in self.waiting.iter().enumerate() {
            let is_cached = self.cache.is_some() && w.job.kind == Kind::Write;
            if w.job.is_blocked || is_cached {
                continue;
            }
            if oldest.is_none_or(|(id, _)| w.job.id < id) {
                oldest = Some((w.job.id, index));
            }
            let at_ns = now_ns.max(w.ready_ns);
            let seek_ns = self.seek_ns(&w.place, w.job.kind.is_write());
            // The rotation is computed only if the arm alone is not too late already.
            if self.policy == Policy::Sptf && at_ns - now_ns + seek_ns <= best.0 {
                let rotation_ns = self.geometry.rotation(&w.place, at_ns + seek_ns);
                best = best.min((at_ns - now_ns + seek_ns + rotation_ns, w.job.id, index));
            }
        }
        let (_, oldest) = oldest?;
        let is_old = now_ns - self.waiting[oldest].arrived_ns > self.age_limit_ns;
        match self.policy == Policy::Sptf && !is_old {
            true => Some(best.2),
            false => Some(oldest),
        }
    }

    /// The heads begin with a request.
    fn serve(&mut self, waiting: &Waiting, now_ns: u64, events: &mut Events) {
        let job = waiting.job;
        let sectors = u64::from(job.sectors);
        let (start, end) = (job.sector, job.sector + sectors);
        let mut parts = Parts::default();
        let end_ns;
        let from_ns = now_ns.max(waiting.ready_ns);
        let found = match job.kind {
            Kind::Read => self.buffer.find(&self.geometry, start, end, from_ns),
            _ => Found::Nothing,
        };
        match found {
            Found::All => end_ns = from_ns,
            Found::Coming(at_ns) => {
                end_ns = at_ns.max(from_ns);
                parts.transfer_ns = end_ns - from_ns;
            }
            Found::Nothing => {
                self.leave_for(&job, now_ns);
                parts = self.access(&waiting.place, sectors, job.kind.is_write(), from_ns);
                end_ns = from_ns + parts.seek_ns + parts.rotation_ns + parts.transfer_ns;
            }
        }
        self.move_to(end);
        let done_ns = match job.kind {
            Kind::Read => {
                // The bus starts with the first sector; the slower of the two counts.
                let media_ns = parts.transfer_ns.max(self.bus_ns(1));
                let bus_ns = self.carry(sectors, end_ns.saturating_sub(media_ns));
                bus_ns.max(end_ns)
            }
            _ => end_ns,
        };
        parts.transfer_ns += done_ns - end_ns;
        if job.kind.is_write() {
            events.push((done_ns, Event::Stable(job.id)));
        }
        events.push((done_ns, Event::Done(job.id, parts)));
        self.busy = Some(Busy::Request(job));
        events.push((end_ns, Event::Wake));
    }

    /// The heads stop reading ahead.
    fn leave_for(&mut self, job: &Job, now_ns: u64) {
        self.buffer.stop(&self.geometry, now_ns);
        if job.kind.is_write() {
            let end = job.sector + u64::from(job.sectors);
            self.buffer.forget(&self.geometry, job.sector, end, now_ns);
        }
    }

    /// How the time of an access is divided.
    fn access(&self, place: &Place, sectors: u64, is_write: bool, from_ns: u64) -> Parts {
        let seek_ns = self.seek_ns(place, is_write);
        Parts {
            seek_ns,
            rotation_ns: self.geometry.rotation(place, from_ns + seek_ns),
            transfer_ns: self.geometry.stream(place, sectors),
        }
    }

    fn move_to(&mut self, sector: u64) {
        self.head_sector = sector;
        self.head = self.geometry.place(sector - 1);
    }

    /// Writes a part of the cache. False where the cache is empty.
    fn destage(&mut self, now_ns: u64, events: &mut Events) -> bool {
        let from = self.head_sector;
        let Some(run) = self.cache.as_mut().and_then(|cache| cache.next_run(from)) else {
            return false;
        };
        self.buffer.stop(&self.geometry, now_ns);
        let place = self.geometry.place(run.start);
        let parts = self.access(&place, run.sectors, true, now_ns);
        self.move_to(run.start + run.sectors);
        let end_ns = now_ns + parts.seek_ns + parts.rotation_ns + parts.transfer_ns;
        self.busy = Some(Busy::Cache(run));
        events.push((end_ns, Event::Wake));
        true
    }
}
