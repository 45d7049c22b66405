//! Simulated drives in virtual time: the same numbers on every machine.
//!
//! A [`Drive`] is a machine: requests go in at times that the caller states, completions come out
//! with the times at which they happen. It has no threads, reads no clock, and takes random numbers
//! only from a seed. [`DriveSpec`] describes one: a preset after a drive that was sold
//! ([`DriveSpec::preset`]), or a TOML file of the user's ([`DriveSpec::parse`]). Each figure of a
//! preset has its source in the file, and unknown figures are marked as assumed.
//!
//! It is a crate of its own, above `device`: mounting an image needs neither it nor the code that
//! reads descriptions.
//!
//! | module | what |
//! |---|---|
//! | `request` | what a drive is asked for and answers |
//! | `spec`, `presets/` | descriptions |
//! | `queue` | the host's queue: elevators, and what has to wait for what |
//! | `drive` | the machine: agenda, tags, trace |
//! | `disk`, `geometry`, `track_buffer`, `write_cache` | the inside of a rotating disk |
//! | `flash` | the inside of a flash drive |
//! | `device`, `content` | a drive as a [`BlockDevice`](backstitch_device::BlockDevice) with bytes, and what a power cut leaves |
//! | `trace` | requests as lines of JSON |
//!
//! # Invariants
//!
//! * A write is on the medium after everything that it has to follow, whatever the caches do.
//! * The same calls give the same completions.
//! * Time never goes back.

mod content;
mod device;
mod disk;
mod drive;
mod flash;
mod geometry;
mod media;
mod queue;
mod request;
mod spec;
mod trace;
mod track_buffer;
mod write_cache;

pub use device::{OpenWrite, PowerCut, SimulatedDevice, VirtualClock};
pub use drive::Drive;
pub use request::{Completion, Flag, Kind, Request, RequestId, SECTOR_BYTES, Service};
pub use spec::{
    DriveSpec, FlashSpec, HostSpec, Policy, Published, QueueSpec, RotatingSpec, SpecError, ZoneSpec,
};
pub use trace::write_json_lines;
