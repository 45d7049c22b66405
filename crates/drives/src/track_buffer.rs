//! A disk's memory for reads: parts of the medium that were read, and the part that is being read
//! ahead.

use crate::geometry::Geometry;

/// A part of the medium in memory.
#[derive(Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    /// The number of the use of the buffer that was its last.
    used: u64,
}

/// A read-ahead: the head goes on behind a read.
#[derive(Clone, Copy)]
struct Ahead {
    segment: usize,
    /// The sector that was under the head at `since_ns`.
    from: u64,
    since_ns: u64,
    /// Where it stops, because the segment is full of sectors that the host has not asked for.
    limit: u64,
}

/// What the memory can do for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All of it is there.
    All,
    /// The head is on its way there and passes the last sector at this time.
    Coming(u64),
    /// Nothing that helps.
    Nothing,
}

/// The memory for reads.
pub(crate) struct TrackBuffer {
    segments: Vec<Segment>,
    segment_sectors: u64,
    reads_ahead: bool,
    ahead: Option<Ahead>,
    uses: u64,
}

impl TrackBuffer {
    pub(crate) fn new(segments: u32, segment_sectors: u64, reads_ahead: bool) -> TrackBuffer {
        let empty = Segment {
            start: 0,
            end: 0,
            used: 0,
        };
        TrackBuffer {
            segments: vec![empty; segments as usize],
            segment_sectors,
            reads_ahead,
            ahead: None,
            uses: 0,
        }
    }

    /// Looks a read up at this time.
    pub(crate) fn find(&mut self, g: &Geometry, start: u64, end: u64, now_ns: u64) -> Found {
        self.catch_up(g, now_ns);
        self.uses += 1;
        let hit = |s: &Segment| s.start <= start && end <= s.end;
        if let Some(index) = self.segments.iter().position(hit) {
            self.segments[index].used = self.uses;
            self.slide(g, index, end, now_ns);
            return Found::All;
        }
        let Some(ahead) = self.ahead else {
            return Found::Nothing;
        };
        let segment = self.segments[ahead.segment];
        if start < segment.start || start > segment.end {
            return Found::Nothing;
        }
        self.segments[ahead.segment].used = self.uses;
        self.slide(g, ahead.segment, end, now_ns);
        let ahead = self.ahead.unwrap_or(ahead);
        let place = g.place(ahead.from);
        Found::Coming(ahead.since_ns + g.stream(&place, end - ahead.from))
    }

    /// The host has read up to `end` in the segment that is being read ahead: the head may go
    /// further.
    fn slide(&mut self, g: &Geometry, index: usize, end: u64, now_ns: u64) {
        let Some(ahead) = self.ahead.as_mut().filter(|a| a.segment == index) else {
            return;
        };
        let limit = (end + self.segment_sectors).min(g.capacity_sectors);
        let reached = self.segments[index].end;
        if reached == ahead.limit && limit > reached {
            // The head had stopped: the sector has to come round again.
            let place = g.place(reached);
            (ahead.from, ahead.since_ns) = (reached, now_ns + g.rotation(&place, now_ns));
        }
        ahead.limit = ahead.limit.max(limit);
    }

    /// Notes what the head has read ahead until now.
    fn catch_up(&mut self, g: &Geometry, now_ns: u64) {
        let Some(ahead) = self.ahead else { return };
        let elapsed_ns = now_ns.saturating_sub(ahead.since_ns);
        let (passed, _) = g.streamed(&g.place(ahead.from), ahead.limit - ahead.from, elapsed_ns);
        let segment = &mut self.segments[ahead.segment];
        segment.end = segment.end.max(ahead.from + passed);
        segment.start = segment
            .start
            .max(segment.end.saturating_sub(self.segment_sectors));
    }

    /// Ends the read-ahead: the head goes elsewhere.
    pub(crate) fn stop(&mut self, g: &Geometry, now_ns: u64) {
        self.catch_up(g, now_ns);
        self.ahead = None;
    }

    /// Notes that the head has read these sectors, the last of them now, and begins to read ahead.
    pub(crate) fn has_read(&mut self, g: &Geometry, start: u64, end: u64, now_ns: u64) {
        self.catch_up(g, now_ns);
        let follows = |a: &Ahead| (a.from..=self.segments[a.segment].end).contains(&end);
        if self.ahead.as_ref().is_some_and(follows) {
            return;
        }
        self.uses += 1;
        let oldest = (0..self.segments.len()).min_by_key(|&i| self.segments[i].used);
        let Some(segment) = oldest else { return };
        self.segments[segment] = Segment {
            start: start.max(end.saturating_sub(self.segment_sectors)),
            end,
            used: self.uses,
        };
        let limit = (end + self.segment_sectors).min(g.capacity_sectors);
        self.ahead = (self.reads_ahead && limit > end).then_some(Ahead {
            segment,
            from: end,
            since_ns: now_ns,
            limit,
        });
    }

    /// Drops sectors that are being written: their bytes in memory are old.
    pub(crate) fn forget(&mut self, g: &Geometry, start: u64, end: u64, now_ns: u64) {
        self.catch_up(g, now_ns);
        if self
            .ahead
            .is_some_and(|a| start < a.limit && self.segments[a.segment].start < end)
        {
            self.ahead = None;
        }
        for segment in &mut self.segments {
            if segment.start < end && start < segment.end {
                segment.end = segment.start.max(start);
            }
        }
    }
}
