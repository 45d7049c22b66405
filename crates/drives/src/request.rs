//! Requests to a drive, and completions.

/// The unit of addresses and lengths, in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// Names a request of one drive. A later request has a larger number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sectors are read.
    Read,
    /// Sectors are written; with a write cache they may be lost until a flush.
    Write,
    /// Sectors are written and stable when the request completes, whatever the cache.
    WriteThrough,
    /// Everything that completed before is stable when this completes.
    Flush,
}

impl Kind {
    /// Whether sectors change.
    pub fn is_write(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteThrough)
    }

    /// The name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::WriteThrough => "fua",
            Kind::Flush => "flush",
        }
    }
}

/// What a flagged (ordered) write means for the requests around it: Ganger and Patt, "Metadata
/// update performance in file systems", OSDI 1994. Reads take no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Later writes wait for the flagged one. Earlier writes may be overtaken.
    Part,
    /// Later writes wait for the flagged one and for all before it.
    Back,
    /// As [`Back`](Flag::Back), and the flagged write itself waits for all before it: an ordered
    /// tag of SCSI.
    Full,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub kind: Kind,
    /// The first sector; nothing for a flush.
    pub sector: u64,
    /// The number of sectors; nothing for a flush.
    pub sectors: u32,
    /// Requests that must be on the medium before this one may be (chains).
    pub predecessors: Vec<RequestId>,
    /// What the write means for all requests around it (flags).
    pub flag: Option<Flag>,
}

impl Request {
    /// A request without any order.
    pub fn new(kind: Kind, sector: u64, sectors: u32) -> Request {
        Request {
            kind,
            sector,
            sectors,
            predecessors: Vec::new(),
            flag: None,
        }
    }

    /// A read.
    pub fn read(sector: u64, sectors: u32) -> Request {
        Request::new(Kind::Read, sector, sectors)
    }

    /// A write.
    pub fn write(sector: u64, sectors: u32) -> Request {
        Request::new(Kind::Write, sector, sectors)
    }

    /// A flush.
    pub fn flush() -> Request {
        Request::new(Kind::Flush, 0, 0)
    }

    /// The same, after others.
    pub fn after(mut self, predecessors: &[RequestId]) -> Request {
        self.predecessors.extend_from_slice(predecessors);
        self
    }

    /// The same, flagged.
    pub fn flagged(mut self, flag: Flag) -> Request {
        self.flag = Some(flag);
        self
    }
}

/// Where the time of a request went, in nanoseconds. The rest of the time between submission and
/// completion is the wait in queues and the overhead of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The arm moved and settled, or another head was selected.
    pub seek_ns: u64,
    /// The first sector came under the head.
    pub rotation_ns: u64,
    /// The transfer itself: by the head, the flash cells, or only the bus for what was in a buffer.
    pub transfer_ns: u64,
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub id: RequestId,
    /// What was asked for.
    pub kind: Kind,
    /// The first sector.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u32,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// When it was done.
    pub completed_ns: u64,
    /// Where the time went.
    pub service: Service,
}

impl Completion {
    /// Time in the queues of host and drive, with the overhead of the command.
    pub fn queue_ns(&self) -> u64 {
        let s = self.service;
        (self.completed_ns - self.submitted_ns)
            .saturating_sub(s.seek_ns + s.rotation_ns + s.transfer_ns)
    }
}
