//! Requests to a drive's inside, and the events that it reports.

use crate::request::{Kind, RequestId, Service};

/// A request as it reaches the drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) kind: Kind,
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    /// Whether a request that must be on the medium before it is not there yet. It is then taken up
    /// once it is [released](crate::disk::Disk::release).
    pub(crate) is_blocked: bool,
}

/// An event inside a drive whose time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request is on the medium.
    Stable(RequestId),
    /// A request is done.
    Done(RequestId, Parts),
    /// The drive's inside is to be called again.
    Wake,
}

/// A [`Service`] that can be compared.
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
