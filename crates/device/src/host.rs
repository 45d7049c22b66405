//! Questions to the host about a file, and its reasons for refusing.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{SeekFrom as At, seek};
use rustix::io::Errno;

/// The host's words without the number that the standard library adds.
pub(crate) fn reason_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// The first stretch of contents from an offset of a file on, as far as the host can tell.
pub(crate) fn next_data(file: &File, offset_bytes: u64) -> rustix::io::Result<Option<Range<u64>>> {
    // This moves the file's position, which no read or write uses.
    match seek(file, At::Data(offset_bytes)) {
        Ok(start) => Ok(Some(start..seek(file, At::Hole(start))?)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}
