//! The side of the socket of who wants a recording.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{TRACE_XATTR, VERSION, WITH_CONTENTS};

/// A mount's process that says nothing for so long is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// The longest name of an abstract socket.
const MOST_NAME_BYTES: usize = 107;
/// The longest description of a recording's end.
const MOST_END_BYTES: u64 = 64 << 10;

/// A recording of a mount that is under way.
#[derive(Debug)]
pub struct TraceStream(UnixStream);

/// Ends a recording, from any thread.
#[derive(Debug)]
pub struct TraceEnder(UnixStream);

/// What a recording came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEnd {
    /// The length of the trace.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Where it does not have all of the recording, because events came faster than the reader took
    /// them: how many are missing at least. The trace ends before them.
    pub lost_events: Option<u64>,
}

/// Begins a recording of what is mounted at `dir`; with the bytes of everything that is written,
/// where those are wanted.
///
/// # Errors
///
/// What the system says: `EOPNOTSUPP` or `ENODATA` where `dir` is no root of a mount of ours, `EPERM`
/// for who is neither root nor runs the mount, `EBUSY` where another recording is under way,
/// `ECONNREFUSED` where the mount's process is in another network namespace, `EPROTO` where it is of
/// another version.
pub fn begin_trace(dir: &Path, with_contents: bool) -> io::Result<TraceStream> {
    let mut name = [0_u8; MOST_NAME_BYTES];
    let len = rustix::fs::getxattr(dir, TRACE_XATTR, &mut name[..])?;
    let address = SocketAddr::from_abstract_name(&name[..len])?;
    let mut socket = UnixStream::connect_addr(&address)?;
    let flags = if with_contents { WITH_CONTENTS } else { 0 };
    // A refusal can come before that, and then it cannot be written.
    let asked = socket.write_all(&[VERSION, flags]);
    socket.set_read_timeout(Some(ANSWER_PATIENCE))?;
    let mut errno = [0; 4];
    if let Err(error) = socket.read_exact(&mut errno) {
        let error = match error.kind() {
            // That is how the system says it of sockets.
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        };
        return Err(asked.err().unwrap_or(error));
    }
    // The trace itself comes when something happens.
    socket.set_read_timeout(None)?;
    match i32::from_le_bytes(errno) {
        0 => Ok(TraceStream(socket)),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl TraceStream {
    /// Something that can end the recording.
    ///
    /// # Errors
    ///
    /// The system's, where it gives us no descriptor.
    pub fn ender(&self) -> io::Result<TraceEnder> {
        self.0.try_clone().map(TraceEnder)
    }

    /// Waits for the next piece of the trace, which replaces what is in `piece`; or how it ended.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` where the mount's process has died or given us up as too slow.
    pub fn next(&mut self, piece: &mut Vec<u8>) -> io::Result<Option<TraceEnd>> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len);
        piece.clear();
        if len > 0 {
            let read = (&mut self.0).take(len.into()).read_to_end(piece)?;
            return match read == len as usize {
                true => Ok(None),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        (&mut self.0).take(MOST_END_BYTES).read_to_end(piece)?;
        let found: Value = serde_json::from_slice(piece)?;
        let number = |key: &str| found[key].as_u64().unwrap_or(0);
        Ok(Some(TraceEnd {
            bytes: number("bytes"),
            records: number("records"),
            lost_events: found["lost_events"].as_u64(),
        }))
    }
}

impl TraceEnder {
    /// Asks for the end. What was recorded up to now still comes.
    pub fn end(&self) {
        // It has ended already: then there is nobody to ask.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}
