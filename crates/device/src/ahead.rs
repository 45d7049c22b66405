//! Zeros ahead of what grows.
//!
//! The file system of the host notes which parts of a file were ever written. The first write to a
//! hole, or to space that is reserved without contents (as `mke2fs` leaves inode tables and
//! journals), changes that note, and the flush that follows pays for a commit of the host's
//! journal: on ext4 430 µs instead of 205. Small writes that are flushed one by one and follow each
//! other, as those to a log or to a growing file, would pay it every time. So where such a stream
//! comes to space that was never written, zeros are written ahead of it: the host then notes a
//! mebibyte at a time. The zeros change nothing that a reader could see.
//!
//! This relies on the host's answer to what was never written, which must take into account bytes
//! that are in its page cache only. The file systems named here do so. One behind FUSE, for
//! example, is asked without being told of such bytes.

use crate::WriteRequest;
use crate::host::next_data;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the largest batch that counts as small writes for which a caller waits.
const MOST_BATCH_BYTES: u64 = 256 << 10;
/// Streams that are told apart: a log, tables and some files.
const STREAMS: usize = 16;
/// The zeros in front of a stream, the first time; twice as many each time after.
const LEAST_AHEAD_BYTES: u64 = 64 << 10;
const MOST_AHEAD_BYTES: u64 = 1 << 20;
/// Free space of the host below which no zeros are written.
const LEAST_FREE_BYTES: u64 = 64 << 20;

/// `f_type` of host file systems that answer rightly what was never written, and on which this
/// saves time: ext2 to ext4, XFS.
const HOSTS: [u32; 2] = [0xef53, 0x5846_5342];

/// Zeros are written a page per call: the host would keep a longer write in one large folio, and
/// handle all of that with each later small write to it.
static ZEROS: [u8; 4096] = [0; 4096];

/// Writes that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the last of them ended.
    end_bytes: u64,
    /// The end of the space behind them that is known to need no zeros.
    known_until_bytes: u64,
    ahead_bytes: u64,
    /// The time of the last write, in writes; 0 for an unused entry.
    last_used: u64,
}

#[derive(Debug, Default)]
struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Streams {
    /// Notes a write. If the space behind it may never have been written, returns how far zeros are
    /// to go at most.
    fn note(&mut self, write: &Range<u64>) -> Option<u64> {
        self.clock += 1;
        let goes_on = |s: &&mut Stream| {
            s.last_used > 0 && write.start <= s.end_bytes && s.end_bytes <= write.end
        };
        if let Some(stream) = self.streams.iter_mut().find(goes_on) {
            stream.last_used = self.clock;
            let grows = write.end > stream.end_bytes;
            stream.end_bytes = write.end;
            let comes_to_new = grows && write.end >= stream.known_until_bytes;
            return comes_to_new.then(|| write.end + stream.next_ahead_bytes());
        }
        let oldest = self.streams.iter_mut().min_by_key(|s| s.last_used)?;
        *oldest = Stream {
            end_bytes: write.end,
            last_used: self.clock,
            ..Stream::default()
        };
        None
    }

    /// Notes that the stream whose last write ended at `end` needs no zeros up to `until`.
    fn note_known(&mut self, end: u64, until: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|s| s.end_bytes == end) {
            stream.ahead_bytes = stream.next_ahead_bytes();
            stream.known_until_bytes = until;
        }
    }
}

impl Stream {
    fn next_ahead_bytes(&self) -> u64 {
        (self.ahead_bytes * 2).clamp(LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES)
    }
}

/// What a device needs to write zeros ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    streams: Mutex<Streams>,
    /// Whether the host has refused zeros, because of a quota, for example. It gets no more then.
    refused: AtomicBool,
    /// Held for reading by each writer, so that no zeros overwrite what another thread is just
    /// writing.
    pub(crate) writing: RwLock<()>,
}

impl Ahead {
    /// For a file on a host where writing ahead is safe and saves time.
    pub(crate) fn of(file: &File) -> Option<Ahead> {
        let is_file = file.metadata().is_ok_and(|data| data.is_file());
        let host = fstatfs(file).ok()?;
        (is_file && HOSTS.contains(&(host.f_type as u32))).then(Ahead::default)
    }

    /// Looks at a batch of `batch_bytes` that is about to be written to a file of `size_bytes`, and
    /// writes the zeros ahead of it.
    pub(crate) fn prepare(
        &self,
        file: &File,
        size_bytes: u64,
        batch: &[WriteRequest],
        batch_bytes: u64,
    ) {
        if batch_bytes > MOST_BATCH_BYTES || self.refused.load(Ordering::Relaxed) {
            return;
        }
        for request in batch {
            let start = request.offset_bytes;
            let write = start..start + request.len_bytes();
            let until = self.streams.lock().note(&write);
            if let Some(until) = until
                && let Some(known) = self.write_zeros(file, write.end, until.min(size_bytes))
            {
                self.streams.lock().note_known(write.end, known);
            }
        }
    }

    /// Writes zeros from `start` to `end`, or to where the file has contents. Returns up to where
    /// no zeros are needed now; `None` where that is not known, and the stream's next write may ask
    /// again.
    fn write_zeros(&self, file: &File, start: u64, end: u64) -> Option<u64> {
        // During another thread's write it is not known where that writes.
        let _alone = self.writing.try_write()?;
        if start >= end {
            return Some(start);
        }
        let end = match next_data(file, start).ok()? {
            Some(data) if data.start == start => return Some(data.end),
            Some(data) => end.min(data.start),
            // Not beyond the end of a file that another program has cut.
            None => end.min(file.metadata().ok()?.len()),
        };
        if !has_room(file) {
            return None;
        }
        let mut at = start;
        while at < end {
            let page = ZEROS.len() as u64;
            let len = (end - at).min(page - at % page) as usize;
            match rustix::io::pwrite(file, &ZEROS[..len], at) {
                Ok(written) if written > 0 => at += written as u64,
                // What a quota has left is needed for real contents.
                _ => {
                    self.refused.store(true, Ordering::Relaxed);
                    if at > start {
                        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                        let _ = fallocate(file, hole, start, at - start);
                    }
                    return None;
                }
            }
        }
        Some(end)
    }
}

fn has_room(file: &File) -> bool {
    fstatvfs(file).is_ok_and(|host| host.f_bavail.saturating_mul(host.f_frsize) >= LEAST_FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockDevice, FileDevice};
    use rustix::fs::{SeekFrom, seek};
    use std::os::unix::fs::FileExt;

    fn file_of(bytes: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn request(offset_bytes: u64, len: usize) -> WriteRequest {
        WriteRequest {
            offset_bytes,
            buffers: vec![vec![7; len].into()],
        }
    }

    /// The first hole that a write from here on would come to.
    fn hole(file: &File, from: u64) -> u64 {
        seek(file, SeekFrom::Hole(from)).unwrap()
    }

    fn write(ahead: &Ahead, file: &File, requests: &[WriteRequest]) {
        let size_bytes = file.metadata().unwrap().len();
        let batch_bytes = requests.iter().map(WriteRequest::len_bytes).sum();
        ahead.prepare(file, size_bytes, requests, batch_bytes);
        for request in requests {
            file.write_all_at(&request.buffers.concat(), request.offset_bytes)
                .unwrap();
        }
    }

    #[test]
    fn a_stream_is_gone_ahead_of_further_and_further() {
        let (file, ahead) = (file_of(8 << 20), Ahead::default());
        write(&ahead, &file, &[request(0, 4096)]);
        if hole(&file, 0) != 4096 || !has_room(&file) {
            return; // A host that does not tell, or has no room.
        }
        write(&ahead, &file, &[request(4096, 4096)]);
        assert_eq!(hole(&file, 0), 8192 + LEAST_AHEAD_BYTES);
        let mut calls = 0;
        for block in 2..1500 {
            let before = hole(&file, 0);
            write(&ahead, &file, &[request(block * 4096, 4096)]);
            calls += u32::from(hole(&file, 0) != before);
        }
        // 64, 128, 256 and 512 KiB, then a MiB at a time.
        assert!((7..=10).contains(&calls), "{calls}");
        let mut found = vec![0; 1500 * 4096];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_does_not_follow_or_is_long_is_left_alone() {
        let (file, ahead) = (file_of(64 << 20), Ahead::default());
        for n in 0..40 {
            write(&ahead, &file, &[request(n << 20, 4096)]);
            write(&ahead, &file, &[request(n << 20, 4096)]);
        }
        let long = [request(50 << 20, 1 << 20), request(51 << 20, 1 << 20)];
        write(&ahead, &file, &long[..1]);
        write(&ahead, &file, &long[1..]);
        let used_bytes = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
        assert!(
            used_bytes <= (2 << 20) + 40 * 4096 + (64 << 10),
            "{used_bytes}"
        );
    }

    #[test]
    fn nothing_that_was_written_is_lost() {
        let (file, ahead) = (file_of(1 << 20), Ahead::default());
        // The file has contents ahead, and the batch writes more of it ahead.
        file.write_all_at(&[9; 4096], 32768).unwrap();
        write(&ahead, &file, &[request(0, 4096)]);
        write(&ahead, &file, &[request(4096, 4096), request(16384, 512)]);
        let mut found = vec![1; 1 << 20];
        file.read_exact_at(&mut found, 0).unwrap();
        let is = |range: Range<usize>, byte: u8| found[range].iter().all(|&b| b == byte);
        assert!(is(0..8192, 7) && is(16384..16896, 7) && is(32768..36864, 9));
        assert!(is(8192..16384, 0) && is(16896..32768, 0) && is(36864..1 << 20, 0));
        // At the file's end the zeros end, too.
        write(&ahead, &file, &[request((1 << 20) - 8192, 4096)]);
        write(&ahead, &file, &[request((1 << 20) - 4096, 4096)]);
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn hosts_that_cannot_tell_and_those_that_refuse_get_none() {
        if let Ok(in_memory) = tempfile::tempfile_in("/dev/shm") {
            assert!(Ahead::of(&in_memory).is_none());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        let (file, ahead) = (File::open(&path).unwrap(), Ahead::default());
        assert_eq!(ahead.write_zeros(&file, 0, 4096), None);
        assert!(ahead.refused.load(Ordering::Relaxed) || !has_room(&file));
    }

    #[test]
    fn nobody_waits_for_another_ones_write() {
        let (file, ahead) = (file_of(1 << 20), Ahead::default());
        let _other = ahead.writing.read();
        write(&ahead, &file, &[request(0, 4096)]);
        write(&ahead, &file, &[request(4096, 4096)]);
        assert!(hole(&file, 0) <= 8192 || hole(&file, 0) == 1 << 20);
    }

    #[test]
    fn writers_of_neighbouring_blocks_do_not_lose_them() {
        let dir = tempfile::tempdir().unwrap();
        let device = FileDevice::create(&dir.path().join("image"), 4 << 20).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let device = &device;
                scope.spawn(move || {
                    for n in 0..200 {
                        // Each writer's blocks are where zeros of the others would go.
                        let block = 4 * n + u64::from(writer);
                        device.write(block * 4096, &[writer + 1; 4096]).unwrap();
                    }
                });
            }
        });
        let mut found = vec![0; 800 * 4096];
        device.read(0, &mut found).unwrap();
        for (block, bytes) in found.chunks(4096).enumerate() {
            assert_eq!(bytes, [block as u8 % 4 + 1; 4096], "block {block}");
        }
    }
}
