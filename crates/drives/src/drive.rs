//! The machine: requests go in, completions come out, and time is an argument.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::disk::Disk;
use crate::flash::Flash;
use crate::media::{Event, Events, Job, Parts};
use crate::queue::Queue;
use crate::request::{Completion, Kind, Request, RequestId};
use crate::spec::{DriveSpec, QueueSpec};

/// A drive's inside.
enum Media {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
    /// A drive that takes no time.
    Ideal,
}

/// A drive with the host's queue before it, in virtual time.
///
/// A machine without threads and clocks: the same calls with the same times give the same results.
/// Times are nanoseconds from a beginning that the caller chooses, and never go back.
pub struct Drive {
    spec: QueueSpec,
    capacity_sectors: u64,
    queue: Queue,
    media: Media,
    /// The coming events with their times; events at the same time happen in the order in which
    /// they were planned.
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    asked: u64,
    now_ns: u64,
    /// How many requests the drive has.
    tags_used: u32,
    /// Completions that were not taken yet.
    done: VecDeque<Completion>,
    /// Writes that have come onto the medium since the last call of `take_stable`, in that order.
    stable: Vec<RequestId>,
    notes_stable: bool,
    trace: Option<Vec<Completion>>,
    events: Events,
}

impl Drive {
    /// A drive at rest, its heads over the first cylinder, its caches empty.
    pub fn new(spec: &DriveSpec) -> Drive {
        let (media, capacity_sectors) = match (&spec.rotating, &spec.flash) {
            (Some(rotating), _) => {
                let disk = Disk::new(rotating, &spec.queue);
                let capacity_sectors = disk.geometry.capacity_sectors;
                (Media::Disk(Box::new(disk)), capacity_sectors)
            }
            (None, Some(flash)) => {
                let capacity_sectors = flash.capacity_sectors;
                (Media::Flash(Box::new(Flash::new(flash))), capacity_sectors)
            }
            (None, None) => (Media::Ideal, 1 << 54),
        };
        Drive {
            spec: spec.queue.clone(),
            capacity_sectors,
            queue: Queue::new(spec.queue.elevator),
            media,
            agenda: BinaryHeap::new(),
            asked: 0,
            now_ns: 0,
            tags_used: 0,
            done: VecDeque::new(),
            stable: Vec::new(),
            notes_stable: false,
            trace: None,
            events: Events::new(),
        }
    }

    /// The number of sectors.
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// The first sector of each zone of a rotating disk, and the end; for other drives, 0 and the
    /// end.
    pub fn zone_bounds(&self) -> Vec<u64> {
        match &self.media {
            Media::Disk(disk) => disk.geometry.zone_bounds(),
            Media::Flash(_) | Media::Ideal => vec![0, self.capacity_sectors],
        }
    }

    /// The average seek over all pairs of cylinders, in milliseconds; `None` for drives that do not
    /// seek.
    pub fn average_seek_ms(&self) -> Option<f64> {
        match &self.media {
            Media::Disk(disk) => Some(disk.geometry.average_seek_ns() / 1e6),
            Media::Flash(_) | Media::Ideal => None,
        }
    }

    /// The present time of the drive.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Records every request from now on.
    pub fn start_trace(&mut self) {
        self.trace.get_or_insert_default();
    }

    /// The recorded requests, in the order in which they were done. Recording ends.
    pub fn take_trace(&mut self) -> Vec<Completion> {
        self.trace.take().unwrap_or_default()
    }

    /// The direction of an elevator with two lists, true for upwards: it changes when one list is
    /// done. `None` for other elevators.
    pub fn is_upwards(&self) -> Option<bool> {
        self.queue.is_upwards()
    }

    /// Submits a request at a time. Everything before that time happens first.
    ///
    /// # Panics
    /// If the request reaches past the drive's end, or is a read or write of nothing.
    pub fn submit(&mut self, request: &Request, now_ns: u64) -> RequestId {
        let end = request.sector + u64::from(request.sectors);
        assert!(
            end <= self.capacity_sectors,
            "{request:?} reaches past the end"
        );
        let is_flush = request.kind == Kind::Flush;
        assert!(is_flush || request.sectors > 0, "{request:?} is of nothing");
        self.advance(now_ns);
        let id = self.queue.add(request, self.now_ns);
        let may_go = match self.spec.orders {
            true => self.queue.orders.is_sendable(id),
            false => self.queue.orders.is_free(id),
        };
        if may_go {
            self.queue.admit(id);
        }
        if !self.queue.orders.is_free(id) {
            self.press();
        }
        self.dispatch();
        id
    }

    /// When the next event happens, if nothing is submitted before.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.agenda.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Lets everything happen up to a time.
    pub fn advance(&mut self, until_ns: u64) {
        while self.next_event_ns().is_some_and(|at_ns| at_ns <= until_ns) {
            self.happen();
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// The next completion up to now.
    pub fn take_completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// The next completion; time advances as far as that needs.
    pub fn next_completion(&mut self) -> Option<Completion> {
        while self.done.is_empty() && !self.agenda.is_empty() {
            self.happen();
        }
        self.done.pop_front()
    }

    /// From now on notes which writes come onto the medium.
    pub fn note_stable(&mut self) {
        self.notes_stable = true;
    }

    /// What has come onto the medium since the last call, in that order.
    pub fn take_stable(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.stable)
    }

    /// Whether a write is on the medium. Also true for numbers that are no write's.
    pub fn is_stable(&self, id: RequestId) -> bool {
        self.queue
            .entries
            .get(&id.0)
            .is_none_or(|entry| entry.is_stable)
    }

    /// The writes that a power cut now may keep or lose, each with those that must be there before
    /// it: the writes in the drive's queue, under its heads or in its cache. Those that the host
    /// has not sent yet are not among them.
    pub fn undecided(&self) -> Vec<(RequestId, Vec<RequestId>)> {
        let entries = self.queue.entries.iter();
        let mut open: Vec<RequestId> = entries
            .filter(|(_, e)| e.kind.is_write() && e.is_dispatched && !e.is_stable)
            .map(|(id, _)| RequestId(*id))
            .collect();
        open.sort_unstable();
        let with = |id: RequestId| (id, self.queue.orders.predecessors(id));
        open.into_iter().map(with).collect()
    }

    /// Lets the next event happen.
    fn happen(&mut self) {
        let Some(Reverse((at_ns, _, event))) = self.agenda.pop() else {
            return;
        };
        self.now_ns = self.now_ns.max(at_ns);
        match event {
            Event::Wake => {
                if let Media::Disk(disk) = &mut self.media {
                    disk.wake(self.now_ns, &mut self.events);
                }
                self.schedule();
            }
            Event::Stable(id) => self.became_stable(id),
            Event::Done(id, parts) => self.became_done(id, parts),
        }
        self.dispatch();
    }

    /// Puts the events that the drive's inside has planned on the agenda.
    fn schedule(&mut self) {
        for (at_ns, event) in self.events.drain(..) {
            self.agenda.push(Reverse((at_ns, self.asked, event)));
            self.asked += 1;
        }
    }

    fn became_stable(&mut self, id: RequestId) {
        let Some(entry) = self.queue.entries.get_mut(&id.0) else {
            return;
        };
        entry.is_stable = true;
        if entry.is_done {
            self.queue.entries.remove(&id.0);
        }
        if self.notes_stable {
            self.stable.push(id);
        }
        self.freed(id);
    }

    /// Lets requests go on that waited for this one.
    fn freed(&mut self, id: RequestId) {
        self.queue.orders.stable(id);
        for id in std::mem::take(&mut self.queue.orders.free) {
            let is_dispatched = self
                .queue
                .entries
                .get(&id.0)
                .is_some_and(|e| e.is_dispatched);
            if !is_dispatched {
                // A drive that keeps the order has got it already.
                if !self.spec.orders {
                    self.queue.admit(id);
                }
                continue;
            }
            match &mut self.media {
                Media::Disk(disk) => disk.release(id, self.now_ns, &mut self.events),
                Media::Flash(flash) => flash.release(id, self.now_ns, &mut self.events),
                Media::Ideal => {
                    self.events.push((self.now_ns, Event::Stable(id)));
                    self.events
                        .push((self.now_ns, Event::Done(id, Parts::default())));
                }
            }
            self.schedule();
            if self.queue.orders.is_awaited(id) {
                self.press();
            }
        }
    }

    fn became_done(&mut self, id: RequestId, parts: Parts) {
        self.tags_used -= 1;
        let Some(entry) = self.queue.entries.get_mut(&id.0) else {
            return;
        };
        entry.is_done = true;
        let completion = Completion {
            id,
            kind: entry.kind,
            sector: entry.sector,
            sectors: entry.sectors,
            submitted_ns: entry.submitted_ns,
            completed_ns: self.now_ns,
            service: parts.into(),
        };
        if let Some(trace) = &mut self.trace {
            trace.push(completion);
        }
        self.done.push_back(completion);
        if entry.is_stable || !entry.kind.is_write() {
            self.queue.entries.remove(&id.0);
        }
        if !completion.kind.is_write() {
            self.freed(id);
        }
    }

    /// Sends requests to the drive as long as it accepts some.
    fn dispatch(&mut self) {
        while self.tags_used < self.spec.tags {
            let now_ns = self.now_ns;
            let media = &self.media;
            let cost = |sector, is_write| match media {
                Media::Disk(disk) => disk.positioning_ns(sector, is_write, now_ns),
                Media::Flash(_) | Media::Ideal => 0,
            };
            let Some(id) = self.queue.take(cost) else {
                return;
            };
            self.send(id);
        }
    }

    fn send(&mut self, id: RequestId) {
        let Some(entry) = self.queue.entries.get_mut(&id.0) else {
            return;
        };
        entry.is_dispatched = true;
        self.tags_used += 1;
        let job = Job {
            id,
            kind: entry.kind,
            sector: entry.sector,
            sectors: entry.sectors,
            is_blocked: !self.queue.orders.is_free(id),
        };
        match &mut self.media {
            Media::Disk(disk) => disk.arrive(job, self.now_ns, &mut self.events),
            Media::Flash(flash) => flash.arrive(job, self.now_ns, &mut self.events),
            Media::Ideal if job.is_blocked => {}
            Media::Ideal => {
                if job.kind.is_write() {
                    self.events.push((self.now_ns, Event::Stable(id)));
                }
                self.events
                    .push((self.now_ns, Event::Done(id, Parts::default())));
            }
        }
        self.schedule();
        if self.queue.orders.is_awaited(id) {
            self.press();
        }
        self.queue.orders.dispatched(id);
        for id in std::mem::take(&mut self.queue.orders.sendable) {
            if self.spec.orders {
                self.queue.admit(id);
            }
        }
    }

    /// A request waits for a write that may be in a cache.
    fn press(&mut self) {
        match &mut self.media {
            Media::Disk(disk) => disk.press(self.now_ns, &mut self.events),
            Media::Flash(flash) => flash.press(self.now_ns, &mut self.events),
            Media::Ideal => {}
        }
        self.schedule();
    }
}
