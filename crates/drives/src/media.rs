//! What a drive's inside is asked, and what it reports.

use crate::request::{Kind, RequestId, Service};

/// A request as it reaches the drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) kind: Kind,
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    /// Something that must be on the medium before it is not: it is taken up once
    /// [released](crate::disk::Disk::release).
    pub(crate) is_blocked: bool,
}

/// What happens inside a drive at a time that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request is on the medium.
    Stable(RequestId),
    /// A request is done.
    Done(RequestId, Parts),
    /// The inside is to be called again.
    Wake,
}

/// A [`Service`] that can be put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parts {
    pub(crate) seek_ns: u64,
    pub(crate) rotation_ns: u64,
    pub(crate) transfer_ns: u64,
}

impl From<Parts> for Service {
    fn from(parts: Parts) -> Service {
        Service {
            seek_ns: parts.seek_ns,
            rotation_ns: parts.rotation_ns,
            transfer_ns: parts.transfer_ns,
        }
    }
}

/// Events with the times at which they happen.
pub(crate) type Events = Vec<(u64, Event)>;
