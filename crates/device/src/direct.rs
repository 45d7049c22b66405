//! Long transfers around the host's page cache.
//!
//! What goes through the page cache is copied there, and written from there when the flush asks for it: for long runs that costs
//! several times what the transfer itself does. So these go to the disk at once, from buffers that are aligned as the host asks for it,
//! several at a time: while one is copied together others are on their way, and the disk always has the next one. What is short stays with the page cache, which gathers many of them into few requests. The host keeps both views in step, and
//! one `fdatasync` covers both.

use crate::WriteRequest;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;

/// Offsets, lengths and addresses are multiples of this: as much as any disk asks for.
const ALIGNMENT: usize = 4096;
/// The shortest write that goes around the page cache.
const LEAST_WRITE_BYTES: u64 = 32 << 10;
/// The shortest read that does. Shorter ones are better off with the host's read-ahead.
const LEAST_READ_BYTES: usize = 128 << 10;
/// The longest single transfer.
const PIECE_BYTES: usize = 1 << 20;
/// So many transfers of a batch are under way at a time.
const WRITERS: usize = 4;

/// A second way to a file, around the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    file: File,
    /// The host has refused a transfer: it is not tried again.
    refused: AtomicBool,
    /// Those of past transfers, for those to come.
    buffers: Mutex<Vec<Buffer>>,
}

/// Memory of which an aligned part is used.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Buffer {
        let bytes = vec![0; PIECE_BYTES + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { bytes, start }
    }

    fn aligned(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + PIECE_BYTES]
    }
}

/// A write that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) error: std::io::Error,
}

/// A part of a request that is written at once.
struct Piece<'a> {
    offset_bytes: u64,
    len_bytes: usize,
    /// The buffers from the one on that it begins in, and where in that.
    buffers: &'a [Arc<[u8]>],
    skip_bytes: usize,
}

/// A request in pieces.
fn pieces_of(request: &WriteRequest) -> impl Iterator<Item = Piece<'_>> {
    let end_bytes = request.offset_bytes + request.len_bytes();
    let mut offset_bytes = request.offset_bytes;
    let (mut buffers, mut skip_bytes) = (&request.buffers[..], 0);
    std::iter::from_fn(move || {
        if offset_bytes == end_bytes {
            return None;
        }
        let piece = Piece {
            offset_bytes,
            len_bytes: (end_bytes - offset_bytes).min(PIECE_BYTES as u64) as usize,
            buffers,
            skip_bytes,
        };
        offset_bytes += piece.len_bytes as u64;
        skip_bytes += piece.len_bytes;
        while let Some(first) = buffers.first()
            && first.len() <= skip_bytes
        {
            skip_bytes -= first.len();
            buffers = &buffers[1..];
        }
        Some(piece)
    })
}

impl Direct {
    /// A way around the page cache to an open file; `None` where the host has none.
    pub(crate) fn to(file: &File, read_only: bool) -> Option<Direct> {
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(!read_only)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(same)
            .ok()?;
        Some(Direct {
            file,
            refused: AtomicBool::new(false),
            buffers: Mutex::default(),
        })
    }

    fn is_usable(&self, offset_bytes: u64) -> bool {
        offset_bytes.is_multiple_of(ALIGNMENT as u64) && !self.refused.load(Ordering::Relaxed)
    }

    /// Whether a request goes around the page cache.
    pub(crate) fn takes(&self, request: &WriteRequest) -> bool {
        let len_bytes = request.len_bytes();
        len_bytes >= LEAST_WRITE_BYTES
            && len_bytes.is_multiple_of(ALIGNMENT as u64)
            && self.is_usable(request.offset_bytes)
    }

    /// Writes those requests of a batch that [go around](Self::takes) the page cache, in any order. Where the host refuses, nothing is
    /// taken any more, and all of them have to be written the other way.
    pub(crate) fn write(&self, batch: &[WriteRequest]) -> Result<(), Failure> {
        let taken = batch.iter().filter(|request| self.takes(request));
        let pieces: Vec<Piece<'_>> = taken.flat_map(pieces_of).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buffer = None;
            let result = loop {
                let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    break Ok(());
                };
                let buffer = buffer.get_or_insert_with(|| self.take_buffer());
                if let Err(failure) = self.write_piece(piece, buffer.aligned()) {
                    // Nor does anybody begin another one.
                    next.store(pieces.len(), Ordering::Relaxed);
                    break Err(failure);
                }
            };
            let mut kept = self.buffers.lock();
            if kept.len() < WRITERS {
                kept.extend(buffer);
            }
            drop(kept);
            result
        };
        std::thread::scope(|scope| {
            let helpers = WRITERS.min(pieces.len()).saturating_sub(1);
            // A host that has no more threads to give: fewer do it all.
            let helpers: Vec<_> = (0..helpers)
                .map_while(|_| Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let mut result = work();
            for helper in helpers {
                let done = helper.join();
                result = result.and(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            result
        })
    }

    fn take_buffer(&self) -> Buffer {
        self.buffers.lock().pop().unwrap_or_else(Buffer::new)
    }

    fn write_piece(&self, piece: &Piece<'_>, buffer: &mut [u8]) -> Result<(), Failure> {
        let buffer = &mut buffer[..piece.len_bytes];
        let mut filled = 0;
        let mut skip = piece.skip_bytes;
        for bytes in piece.buffers {
            let bytes = &bytes[skip..];
            let bytes = &bytes[..bytes.len().min(buffer.len() - filled)];
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            skip = 0;
            if filled == buffer.len() {
                break;
            }
        }
        match self.file.write_all_at(buffer, piece.offset_bytes) {
            Err(error) if is_refusal(&error) => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(())
            }
            written => written.map_err(|error| Failure {
                offset_bytes: piece.offset_bytes,
                len_bytes: piece.len_bytes as u64,
                error,
            }),
        }
    }

    /// Reads a first part of `buffer`, as much as is worth it, and returns how much; the rest has to go through the page cache.
    pub(crate) fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = buffer.len() & !(ALIGNMENT - 1);
        let is_aligned = buffer.as_ptr().align_offset(ALIGNMENT) == 0;
        if len < LEAST_READ_BYTES || !is_aligned || !self.is_usable(offset_bytes) {
            return Ok(0);
        }
        match self.file.read_at(&mut buffer[..len], offset_bytes) {
            Err(error) if is_refusal(&error) => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(0)
            }
            read => read,
        }
    }
}

/// The host does not take transfers of this kind, as file systems without this feature and disks with larger sectors.
fn is_refusal(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::INVAL.raw_os_error()) || code == Some(Errno::OPNOTSUPP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: u64) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("image"))
            .unwrap();
        file.set_len(bytes).unwrap();
        (dir, file)
    }

    fn request(offset_bytes: u64, pieces: &[usize]) -> WriteRequest {
        let mut at = 0;
        let piece = |len: &usize| {
            at += len;
            Arc::from_iter((0..*len).map(|i| ((i + at) % 251) as u8))
        };
        WriteRequest {
            offset_bytes,
            buffers: pieces.iter().map(piece).collect(),
        }
    }

    #[test]
    fn long_writes_and_page_cache_see_each_other() {
        let (_dir, file) = file_of(8 << 20);
        let Some(direct) = Direct::to(&file, false) else {
            return; // The host's file system has no way around its page cache.
        };
        // In the page cache first, then written around it, in pieces that do not fit the buffer evenly.
        file.write_all_at(&[9; 8192], 4096).unwrap();
        let long = request(
            4096,
            &[4096, 12288, PIECE_BYTES - 8192, 3 * PIECE_BYTES, 4096],
        );
        let short = request(0, &[4096]);
        assert!(direct.takes(&long) && !direct.takes(&short));
        direct.write(&[short, long.clone()]).unwrap();
        if !direct.takes(&long) {
            return; // The host refused.
        }
        let mut found = vec![0; long.len_bytes() as usize];
        file.read_exact_at(&mut found, 4096).unwrap();
        assert!(found == long.buffers.concat());
        // And the other way.
        file.write_all_at(&[7; 100], 4196).unwrap();
        let mut memory = Buffer::new();
        let buffer = &mut memory.aligned()[..LEAST_READ_BYTES];
        let read = direct.read(4096, buffer).unwrap();
        file.read_exact_at(&mut buffer[read..], 4096 + read as u64)
            .unwrap();
        assert_eq!(buffer[100..200], [7; 100]);
        assert_eq!(buffer[200..], long.buffers.concat()[200..LEAST_READ_BYTES]);
    }

    #[test]
    fn what_is_short_or_not_aligned_is_left_to_the_page_cache() {
        let (_dir, file) = file_of(8 << 20);
        let Some(direct) = Direct::to(&file, false) else {
            return;
        };
        for refused in [
            request(4096, &[4096]),
            request(512, &[1 << 20]),
            request(0, &[1 << 20, 512]),
        ] {
            assert!(!direct.takes(&refused));
        }
        let mut memory = Buffer::new();
        let aligned = memory.aligned();
        assert_eq!(direct.read(0, &mut aligned[..4096]).unwrap(), 0);
        assert_eq!(direct.read(512, aligned).unwrap(), 0);
        assert_eq!(direct.read(0, &mut aligned[16..]).unwrap(), 0);
    }
}
