//! Long transfers around the host's page cache.
//!
//! Writes through the page cache are copied there, and written from there when a flush asks for it:
//! for long runs that takes several times as long as the transfer itself. So these go to the disk
//! at once, several at a time, so that the disk always has the next one. The disk reads parts of
//! slabs in place; unaligned bytes are copied to aligned memory first. Short writes still go
//! through the page cache, which joins many of them into few requests. The host keeps both views
//! consistent, and one `fdatasync` covers both.

use crate::aligned::Aligned;
use crate::{Buffer, SECTOR_BYTES, WriteRequest};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;

/// Offsets and lengths, and addresses of copies, are multiples of this, which is enough for any
/// disk.
const ALIGNMENT: usize = 4096;
/// The shortest write that goes around the page cache.
const LEAST_WRITE_BYTES: u64 = 32 << 10;
/// The fewest bytes of a batch in such writes. A commit that a caller waits for is shorter. With
/// all of it in the page cache its flush waits for everything at once, not for one write after the
/// other.
const LEAST_BATCH_BYTES: u64 = 256 << 10;
/// The shortest read that goes around the page cache. Shorter ones profit more from the host's
/// read-ahead.
const LEAST_READ_BYTES: usize = 128 << 10;
/// The longest single transfer.
const PIECE_BYTES: usize = 1 << 20;
/// The most buffers that the host takes in one call (`IOV_MAX` on Linux).
pub(crate) const MAX_BUFFERS: usize = 1024;
/// Transfers of a batch at a time.
const WRITERS: usize = 4;

/// A second way to a file, around the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    file: File,
    /// Whether the host has refused a transfer: none is tried then.
    refused: AtomicBool,
    /// Whether the host has refused a transfer from memory aligned to sectors only: then all bytes
    /// are copied.
    copies: AtomicBool,
    /// Memory for copies, kept from past transfers.
    buffers: Mutex<Vec<Aligned>>,
}

fn new_copies() -> Aligned {
    Aligned::new(PIECE_BYTES, ALIGNMENT)
}

/// A write that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) error: std::io::Error,
}

/// A part of a request that is one transfer.
struct Piece<'a> {
    offset_bytes: u64,
    len_bytes: usize,
    /// The buffers from the one in which the piece begins, and the offset there.
    buffers: &'a [Buffer],
    skip_bytes: usize,
}

impl<'a> Piece<'a> {
    /// Its bytes, in as few slices as possible.
    fn slices(&self) -> Vec<&'a [u8]> {
        let (mut skip, mut left) = (self.skip_bytes, self.len_bytes);
        let mut stretches = Buffer::stretches(self.buffers);
        let mut slices = Vec::new();
        while left > 0
            && let Some(stretch) = stretches.next()
        {
            let stretch = &stretch[skip..];
            let slice = &stretch[..stretch.len().min(left)];
            left -= slice.len();
            skip = 0;
            if !slice.is_empty() {
                slices.push(slice);
            }
        }
        slices
    }
}

/// The source of a part of a piece.
enum Part<'a> {
    InPlace(&'a [u8]),
    /// From this range of the copies.
    Copied(Range<usize>),
}

/// Whether the disk can read this memory by itself.
fn is_aligned(slice: &[u8]) -> bool {
    slice.as_ptr().addr().is_multiple_of(SECTOR_BYTES)
}

/// Writes slices one after the other, all of them.
pub(crate) fn write_all_at(
    file: &File,
    slices: &mut [IoSlice<'_>],
    mut offset_bytes: u64,
) -> std::io::Result<()> {
    let mut rest = slices;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let group = rest.len().min(MAX_BUFFERS);
        match rustix::io::pwritev(file, &rest[..group], offset_bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset_bytes += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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
            copies: AtomicBool::new(false),
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

    /// Whether enough of a batch goes around the page cache.
    pub(crate) fn is_worth(&self, batch: &[WriteRequest]) -> bool {
        let mut left_bytes = LEAST_BATCH_BYTES;
        batch.iter().any(|request| {
            if self.takes(request) {
                left_bytes = left_bytes.saturating_sub(request.len_bytes());
            }
            left_bytes == 0
        })
    }

    /// Writes those requests of a batch that [go around](Self::takes) the page cache, in any order.
    /// If the host refuses, `takes` is false from then on, and the caller has to write all of them
    /// through the page cache.
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
                if let Err(failure) = self.write_piece(piece, &mut buffer) {
                    // No other thread begins another one either.
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
            // If the host starts no more threads, fewer do the work.
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

    fn take_buffer(&self) -> Aligned {
        self.buffers.lock().pop().unwrap_or_else(new_copies)
    }

    /// Writes a piece: from where its bytes are, where the disk can read them there, else from a
    /// copy in `spare`.
    fn write_piece(&self, piece: &Piece<'_>, spare: &mut Option<Aligned>) -> Result<(), Failure> {
        let slices = piece.slices();
        let in_place = !self.copies.load(Ordering::Relaxed)
            && slices.len() <= MAX_BUFFERS
            && slices.iter().all(|s| s.len().is_multiple_of(SECTOR_BYTES));
        let mut written = self.write_copied(piece, &slices, spare, |s| !in_place || !is_aligned(s));
        if in_place && written.as_ref().is_err_and(is_refusal) {
            // Some disks need a larger alignment of addresses.
            self.copies.store(true, Ordering::Relaxed);
            written = self.write_copied(piece, &slices, spare, |_| true);
        }
        match written {
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

    /// Writes the slices of a piece; those for which `is_copied` holds, from a copy.
    fn write_copied(
        &self,
        piece: &Piece<'_>,
        slices: &[&[u8]],
        spare: &mut Option<Aligned>,
        is_copied: impl Fn(&[u8]) -> bool,
    ) -> std::io::Result<()> {
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(slices.len());
        let mut filled = 0;
        for slice in slices {
            if !is_copied(slice) {
                parts.push(Part::InPlace(slice));
                continue;
            }
            let copies = spare.get_or_insert_with(|| self.take_buffer());
            let end = filled + slice.len();
            copies[filled..end].copy_from_slice(slice);
            match parts.last_mut() {
                Some(Part::Copied(range)) => range.end = end,
                _ => parts.push(Part::Copied(filled..end)),
            }
            filled = end;
        }
        let copies = spare.as_mut().map_or(&[][..], |spare| spare);
        let slices = parts.into_iter().map(|part| match part {
            Part::InPlace(slice) => IoSlice::new(slice),
            Part::Copied(range) => IoSlice::new(&copies[range]),
        });
        let mut slices: Vec<IoSlice<'_>> = slices.collect();
        write_all_at(&self.file, &mut slices, piece.offset_bytes)
    }

    /// Reads the first part of `buffer`, if that is long and aligned, and returns its length. The
    /// rest has to go through the page cache.
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

/// Whether the error says that the host does not take such transfers: the file system cannot do
/// them, or the disk has larger sectors.
fn is_refusal(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::INVAL.raw_os_error()) || code == Some(Errno::OPNOTSUPP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slabs;
    use std::sync::Arc;

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
            Buffer::from_iter((0..*len).map(|i| ((i + at) % 251) as u8))
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
        // First through the page cache, then around it, in pieces that do not divide the buffer
        // evenly.
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
        // And the other way round.
        file.write_all_at(&[7; 100], 4196).unwrap();
        let mut memory = new_copies();
        let buffer = &mut memory[..LEAST_READ_BYTES];
        let read = direct.read(4096, buffer).unwrap();
        file.read_exact_at(&mut buffer[read..], 4096 + read as u64)
            .unwrap();
        assert_eq!(buffer[100..200], [7; 100]);
        assert_eq!(buffer[200..], long.buffers.concat()[200..LEAST_READ_BYTES]);
    }

    #[test]
    fn parts_of_slabs_go_from_where_they_are_and_the_rest_from_a_copy() {
        let (_dir, file) = file_of(8 << 20);
        let Some(direct) = Direct::to(&file, false) else {
            return;
        };
        let mut slab = Slabs::new(0).take(3 << 19);
        (slab.iter_mut().enumerate()).for_each(|(i, byte)| *byte = (i / 7) as u8);
        let slab = Arc::new(slab);
        let part = |from: usize, to: usize| Buffer::part(&slab, &slab[from..to]).unwrap();
        let own = |len: usize, byte: u8| Buffer::from(vec![byte; len]);
        let long = WriteRequest {
            offset_bytes: 8192,
            buffers: vec![
                part(512, 1024),
                own(512, 3),
                own(1024, 4),
                part(2048, 4096),
                part(4096, 1 << 20),
                own(4096, 5),
                part(1 << 20, 3 << 19),
                own(4096, 6),
            ],
        };
        assert!(direct.takes(&long));
        direct.write(std::slice::from_ref(&long)).unwrap();
        if !direct.takes(&long) {
            return; // The host refused.
        }
        let mut found = vec![0; long.len_bytes() as usize];
        file.read_exact_at(&mut found, 8192).unwrap();
        assert!(found == long.buffers.concat());
        // Everything that could not be written in place is at the front of one copy.
        let copied: usize = 512 + 1024 + 4096 + 4096;
        let mut kept = direct.buffers.lock();
        let in_place = !direct.copies.load(Ordering::Relaxed);
        assert!(!in_place || kept.iter_mut().all(|b| b[copied..].iter().all(|b| *b == 0)));
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
        let mut aligned = new_copies();
        assert_eq!(direct.read(0, &mut aligned[..4096]).unwrap(), 0);
        assert_eq!(direct.read(512, &mut aligned).unwrap(), 0);
        assert_eq!(direct.read(0, &mut aligned[16..]).unwrap(), 0);
    }
}
