//! The inside of a flash drive: a processor for commands, a link to the host, channels, dies, and a
//! volatile cache for writes.
//!
//! Each of these does one thing at a time, in the order of the requests; a read waits for a die
//! that is erasing. Writes go through the cache: they are joined to whole pages, which the dies
//! program in turn. A page that is not full waits for more bytes, for a flush, or for a request
//! that needs it on the medium.
//!
//! Collection of erase blocks: the drive is in a steady state, in which every die has one block of
//! free pages. When that is full, the die moves the pages of another block that are still valid,
//! and erases the block. How many are valid follows from the fill: with random writes and the
//! oldest block collected first, the share `u` that is still valid satisfies `fill = (u - 1) / ln
//! u` (Menon, "A performance comparison of RAID-5 and log-structured arrays", 1995). Pages that
//! were written in order are overwritten together, which empties whole blocks: nothing has to be
//! moved.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::geometry::ns_of_bytes;
use crate::media::{Event, Events, Job, Parts};
use crate::request::{Kind, RequestId, SECTOR_BYTES};
use crate::spec::FlashSpec;

/// Nanoseconds of a time in microseconds.
fn ns_of_us(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// A die.
struct Die {
    free_ns: u64,
    /// Pages that can be programmed before a block has to be collected.
    free_pages: u32,
    /// How many of the pages programmed since then belong to random writes.
    random_pages: u32,
}

/// A page that is being filled.
#[derive(Default)]
struct Page {
    bytes: u64,
    /// When its last bytes came over the link.
    filled_ns: u64,
    /// Writes whose last byte is in it.
    ids: Vec<RequestId>,
    is_random: bool,
}

/// A flash drive.
pub(crate) struct Flash {
    spec: FlashSpec,
    page_bytes: u64,
    processor_free_ns: u64,
    link_free_ns: u64,
    channels_free_ns: Vec<u64>,
    dies: Vec<Die>,
    /// The die that programs the next page.
    next_die: usize,
    page: Page,
    /// Pages that are being programmed: when they are done, and their bytes.
    programming: BinaryHeap<Reverse<(u64, u64)>>,
    cached_bytes: u64,
    /// When everything sent to the dies so far is programmed.
    stable_ns: u64,
    /// The sector behind the last write.
    write_end: u64,
    /// The share of a block that is valid when it is collected.
    valid: f64,
    /// Writes that wait for others to be on the medium.
    blocked: Vec<Job>,
}

impl Flash {
    pub(crate) fn new(spec: &FlashSpec) -> Flash {
        let mut random = spec.seed ^ 0x9e37_79b9_7f4a_7c15;
        let dies = (0..spec.dies).map(|_| Die {
            free_ns: 0,
            free_pages: 1 + (next(&mut random) % u64::from(spec.block_pages)) as u32,
            random_pages: 0,
        });
        Flash {
            page_bytes: u64::from(spec.page_kib) * 1024,
            processor_free_ns: 0,
            link_free_ns: 0,
            channels_free_ns: vec![0; spec.channels as usize],
            dies: dies.collect(),
            next_die: 0,
            page: Page::default(),
            programming: BinaryHeap::new(),
            cached_bytes: 0,
            stable_ns: 0,
            write_end: u64::MAX,
            valid: valid_share(spec.fill),
            blocked: Vec::new(),
            spec: spec.clone(),
        }
    }

    /// A request arrives.
    pub(crate) fn arrive(&mut self, job: Job, now_ns: u64, events: &mut Events) {
        if job.is_blocked {
            self.blocked.push(job);
            return;
        }
        match job.kind {
            Kind::Read => self.read(&job, now_ns, events),
            Kind::Write | Kind::WriteThrough => self.write(&job, now_ns, events),
            Kind::Flush => {
                let page_ns = self.program(now_ns, events);
                let done_ns = self.stable_ns.max(page_ns) + ns_of_us(self.spec.flush_us);
                events.push((done_ns, Event::Done(job.id, Parts::default())));
            }
        }
    }

    /// Everything that a request waited for is on the medium.
    pub(crate) fn release(&mut self, id: RequestId, now_ns: u64, events: &mut Events) {
        if let Some(index) = self.blocked.iter().position(|job| job.id == id) {
            let mut job = self.blocked.remove(index);
            job.is_blocked = false;
            self.arrive(job, now_ns, events);
        }
    }

    /// A request waits for a write in the cache: its page is programmed without waiting for more
    /// bytes.
    pub(crate) fn press(&mut self, now_ns: u64, events: &mut Events) {
        self.program(now_ns, events);
    }

    /// Handles a command in the processor. Returns when that is done.
    fn command(&mut self, is_write: bool, now_ns: u64) -> u64 {
        let (command_us, overhead_us) = match is_write {
            true => (self.spec.write_command_us, self.spec.write_overhead_us),
            false => (self.spec.read_command_us, self.spec.read_overhead_us),
        };
        self.processor_free_ns = self.processor_free_ns.max(now_ns) + ns_of_us(command_us);
        self.processor_free_ns + ns_of_us(overhead_us)
    }

    fn carry(&mut self, bytes: u64, from_ns: u64) -> u64 {
        let link_ns = ns_of_bytes(bytes, self.spec.link_mb_s);
        self.link_free_ns = self.link_free_ns.max(from_ns) + link_ns;
        self.link_free_ns
    }

    fn carry_on_channel(&mut self, die: usize, bytes: u64, from_ns: u64) -> u64 {
        let channels = self.channels_free_ns.len();
        let free_ns = &mut self.channels_free_ns[die % channels];
        *free_ns = (*free_ns).max(from_ns) + ns_of_bytes(bytes, self.spec.channel_mb_s);
        *free_ns
    }

    /// The die of a page of the host's addresses. Neighbours are on different dies, so that they
    /// are read in parallel; each stripe over the dies has an order of its own.
    fn die_of(&self, page: u64) -> usize {
        let dies = self.dies.len() as u64;
        let mut stripe = page / dies;
        ((page % dies + next(&mut stripe) % dies) % dies) as usize
    }

    fn read(&mut self, job: &Job, now_ns: u64, events: &mut Events) {
        let ready_ns = self.command(false, now_ns);
        let (mut at, end) = (
            job.sector * SECTOR_BYTES,
            (job.sector + u64::from(job.sectors)) * SECTOR_BYTES,
        );
        let mut done_ns = ready_ns;
        while at < end {
            let page = at / self.page_bytes;
            let page_end = ((page + 1) * self.page_bytes).min(end);
            let die = self.die_of(page);
            let start_ns = self.dies[die].free_ns.max(ready_ns);
            let cell_ns = start_ns + ns_of_us(self.spec.read_us);
            self.dies[die].free_ns = cell_ns;
            let channel_ns = self.carry_on_channel(die, page_end - at, cell_ns);
            done_ns = done_ns.max(self.carry(page_end - at, channel_ns));
            at = page_end;
        }
        let parts = Parts {
            transfer_ns: done_ns - ready_ns,
            ..Parts::default()
        };
        events.push((done_ns, Event::Done(job.id, parts)));
    }

    fn write(&mut self, job: &Job, now_ns: u64, events: &mut Events) {
        let is_random = job.sector != self.write_end;
        self.write_end = job.sector + u64::from(job.sectors);
        let ready_ns = self.command(true, now_ns);
        let mut left = u64::from(job.sectors) * SECTOR_BYTES;
        let mut done_ns = ready_ns;
        while left > 0 {
            let some = left.min(self.page_bytes - self.page.bytes);
            let room_ns = self.room_for(some, ready_ns);
            done_ns = self.carry(some, room_ns);
            left -= some;
            self.page.bytes += some;
            self.page.filled_ns = done_ns;
            self.page.is_random |= is_random;
            self.cached_bytes += some;
            if left == 0 {
                self.page.ids.push(job.id);
            }
            if self.page.bytes == self.page_bytes {
                self.program(now_ns, events);
            }
        }
        let is_through = self.spec.cache_kib == 0 || job.kind == Kind::WriteThrough;
        if is_through {
            self.program(now_ns, events);
            done_ns = done_ns.max(self.stable_ns);
        }
        let parts = Parts {
            transfer_ns: done_ns - ready_ns,
            ..Parts::default()
        };
        events.push((done_ns, Event::Done(job.id, parts)));
    }

    /// When the cache has room for this many bytes more.
    fn room_for(&mut self, bytes: u64, now_ns: u64) -> u64 {
        let most = (u64::from(self.spec.cache_kib) * 1024).max(self.page_bytes);
        let mut at_ns = now_ns;
        while let Some(&Reverse((there_ns, programmed))) = self.programming.peek()
            && (there_ns <= at_ns || self.cached_bytes + bytes > most)
        {
            self.programming.pop();
            self.cached_bytes -= programmed;
            at_ns = at_ns.max(there_ns);
        }
        at_ns
    }

    /// The die for the next page: the next one in turn that is free at that time, else the one that
    /// is free first.
    fn choose_die(&mut self, at_ns: u64) -> usize {
        let dies = self.dies.len();
        let in_turn = (0..dies).map(|n| (self.next_die + n) % dies);
        let wait_ns = |die: &usize| self.dies[*die].free_ns.saturating_sub(at_ns);
        let free = in_turn.clone().find(|die| wait_ns(die) == 0);
        let die = free.or_else(|| in_turn.min_by_key(wait_ns)).unwrap_or(0);
        self.next_die = (die + 1) % dies;
        die
    }

    /// Sends the page that is being filled to the next die, full or not. Returns when it is
    /// programmed.
    fn program(&mut self, now_ns: u64, events: &mut Events) -> u64 {
        if self.page.bytes == 0 {
            return now_ns;
        }
        let page = std::mem::take(&mut self.page);
        let from_ns = page.filled_ns.max(now_ns);
        let die = self.choose_die(from_ns);
        let channel_ns = self.carry_on_channel(die, self.page_bytes, from_ns);
        let program_ns = ns_of_us(self.spec.program_us);
        let state = &mut self.dies[die];
        state.free_ns = state.free_ns.max(channel_ns) + program_ns;
        state.free_pages -= 1;
        state.random_pages += u32::from(page.is_random);
        let there_ns = state.free_ns;
        self.collect(die);
        self.programming.push(Reverse((there_ns, page.bytes)));
        self.stable_ns = self.stable_ns.max(there_ns);
        events.extend(
            page.ids
                .into_iter()
                .map(|id| (self.stable_ns, Event::Stable(id))),
        );
        there_ns
    }

    /// Makes free pages on a die that has none left: moves the valid pages of another block, and
    /// erases that.
    fn collect(&mut self, die: usize) {
        let pages = self.spec.block_pages;
        let page_ns = ns_of_us(self.spec.read_us) + ns_of_us(self.spec.program_us);
        let erase_ns = ns_of_us(self.spec.erase_us);
        let state = &mut self.dies[die];
        while state.free_pages == 0 {
            let moved = (self.valid * f64::from(state.random_pages.min(pages))) as u32;
            let moved = moved.min(pages - 1);
            state.free_ns += u64::from(moved) * page_ns + erase_ns;
            state.free_pages = pages - moved;
            state.random_pages = moved.min(state.random_pages);
        }
    }
}

/// The share of a block that is valid when it is collected, by the fill.
fn valid_share(fill: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let u: f64 = (low + high) / 2.0;
        if (u - 1.0) / u.ln() < fill {
            low = u;
        } else {
            high = u;
        }
    }
    low
}

/// Steele, Lea and Flood's splitmix64: small, and good from any seed.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valid_share_grows_with_the_fill() {
        for (fill, valid) in [(0.0, 0.0), (0.5, 0.203), (0.8, 0.629), (0.9, 0.811)] {
            assert!(
                (valid_share(fill) - valid).abs() < 0.01,
                "{fill}: {}",
                valid_share(fill)
            );
        }
    }
}
