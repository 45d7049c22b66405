//! The processor of a simulated machine: the costs of calls, and who waits for it.

use std::cell::Cell;
use std::time::Duration;

use super::schedule::Schedule;

/// Work of the host, which takes the processor for some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Looking up a name or an inode's attributes.
    Lookup,
    /// Giving a file its name: create, link, symlink.
    Create,
    /// Making or removing a directory.
    Directory,
    /// Removing or moving a name.
    Remove,
    /// Changing attributes.
    Attributes,
    /// Writing, by the number of bytes.
    Write(usize),
    /// Reading, by the number of bytes.
    Read(usize),
    /// Listing, by the number of names.
    List(usize),
    /// Closing a file.
    Close,
    /// Finding out what must be put onto stable storage.
    Sync,
    /// Preparing a batch for the drive, by its number of blocks.
    Batch(usize),
    /// Handling metadata blocks that come from the drive, by their number.
    Blocks(usize),
}

impl Work {
    /// The cost at [reference speed](crate::REFERENCE_HOST), in nanoseconds. The figures are fitted
    /// to the processor time of `bench zero,micro-create,andrew,delete --memory`;
    /// docs/MEASUREMENTS.md compares both. They are the same under every mechanism, although
    /// `async` takes a little less and `soft` a little more.
    fn cost_ns(self) -> u64 {
        let pages = |bytes: usize, page_ns: u64| bytes as u64 * page_ns / 4096;
        match self {
            Work::Lookup => 500,
            Work::Create => 1_300,
            Work::Directory => 4_000,
            Work::Remove => 1_300,
            Work::Attributes => 500,
            Work::Write(bytes) => 1_500 + pages(bytes, 800),
            Work::Read(bytes) => 800 + pages(bytes, 300),
            Work::List(names) => 500 + 60 * names as u64,
            Work::Close => 150,
            Work::Sync => 1_000,
            Work::Batch(blocks) => 2_000 + 900 * blocks as u64,
            Work::Blocks(blocks) => 1_000 * blocks as u64,
        }
    }
}

/// The longest time that a program keeps the processor while others want it.
const SLICE_NS: u64 = 10_000_000;

/// One processor, which tasks use one after the other.
pub(super) struct Cpu {
    /// The speed, relative to the reference.
    speed: f64,
    free_from_ns: Cell<u64>,
    busy_ns: Cell<u64>,
}

impl Cpu {
    pub(super) fn new(speed: f64) -> Cpu {
        Cpu {
            speed,
            free_from_ns: Cell::new(0),
            busy_ns: Cell::new(0),
        }
    }

    /// How long it has been busy.
    pub(super) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.get())
    }

    /// Does some work for the running task, once the processor is free.
    pub(super) async fn work(&self, schedule: &Schedule, work: Work) {
        self.take(schedule, self.scaled_ns(work.cost_ns())).await;
    }

    /// Computes for a program, for this long at reference speed.
    pub(super) async fn compute(&self, schedule: &Schedule, work: Duration) {
        let mut left_ns = self.scaled_ns(work.as_nanos() as u64);
        while left_ns > 0 {
            let slice_ns = left_ns.min(SLICE_NS);
            self.take(schedule, slice_ns).await;
            left_ns -= slice_ns;
        }
    }

    fn scaled_ns(&self, reference_ns: u64) -> u64 {
        (reference_ns as f64 / self.speed) as u64
    }

    async fn take(&self, schedule: &Schedule, time_ns: u64) {
        if time_ns == 0 {
            return;
        }
        let begin_ns = self.free_from_ns.get().max(schedule.now_ns());
        self.free_from_ns.set(begin_ns + time_ns);
        self.busy_ns.set(self.busy_ns.get() + time_ns);
        schedule.until(begin_ns + time_ns).await;
    }
}
