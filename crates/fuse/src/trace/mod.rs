//! Recordings of a mount's patches, for programs that ask for one.
//!
//! The mount's root has an extended attribute, not listed, that holds the name of an abstract Unix
//! socket of streams. Who connects, as root or as the user who runs the mount, sends a version and
//! flags, and gets an error number (0 where there is none). Then the trace follows as frames: their
//! length in four bytes, little-endian, and the bytes. A frame of length 0 ends it, and a JSON
//! document follows: [`TraceEnd`]. Closing the connection for writing asks for the end; the mount's
//! end, and too slow a reader, bring it about too.
//!
//! **The mount's process opens no file for this**: it could lie in the mount itself, whose requests
//! nobody would serve then. It waits for the reader in threads that serve nobody else, and not for
//! long.

mod client;
mod server;

pub use client::{TraceEnd, TraceEnder, TraceStream, begin_trace};
pub(crate) use server::Traces;

/// The extended attribute of a mount's root that names the socket.
pub const TRACE_XATTR: &str = "system.backstitch.trace";

/// What is said on the socket is of this version.
const VERSION: u8 = 1;
/// The bytes of what is written are wanted too.
const WITH_CONTENTS: u8 = 1;
/// A request: the version and the flags.
const REQUEST_BYTES: usize = 2;
