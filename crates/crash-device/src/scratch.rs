//! An image file that becomes one state after the other.
//!
//! There are two sparse copies of the base: `stable`, as it is after the last flush, and `image`,
//! which becomes each state in turn. A state costs the changes of its epoch: they are written into
//! `image`, and afterwards copied back from `stable`.
//!
//! The check may write to the image too (`e2fsck -y` does). Every write changes a file's time of
//! modification, also through a loop device or a mapping. So before the check runs, that time is
//! set to a moment long ago. If it is unchanged afterwards, nothing was written, and only the
//! changes are copied back. Otherwise both files are compared wherever either holds data, and what
//! differs is copied. That costs the data of the image, not its size. (On hosts that can clone
//! files, such as XFS and btrfs, the two copies are free. But no host tells which blocks of a file
//! were written, so the comparison is needed in general. [`overlay`](super::overlay) needs neither
//! the copies nor the comparison, but a mount.)

use crate::error::ScheduleResult;
use crate::recording::SECTOR_BYTES;
use crate::recording::{Change, Moment, Recording};
use crate::variant::Variant;
use backstitch_crash_core::error::at;
use rustix::fs::{FallocateFlags, SeekFrom as Find, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied or compared at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of the pieces in which differences within a chunk are found.
const PIECE_BYTES: usize = 4096;
/// The time of modification of an image that the check has not written to: 2001-09-09.
const LONG_AGO: i64 = 1_000_000_000;

/// A file that becomes one state after the other.
pub(crate) trait Stage: Send {
    /// The path of the state.
    fn path(&self) -> &Path;

    /// Makes the file a state of this moment. Moments must come in the log's order.
    fn build(&mut self, moment: &Moment, variant: &Variant) -> ScheduleResult<()>;

    /// Undoes the state, and what the check wrote. Returns whether the check wrote anything.
    fn restore(&mut self) -> ScheduleResult<bool>;
}

/// A directory with the image that becomes each state.
pub(crate) struct Scratch {
    recording: Arc<Recording>,
    path: PathBuf,
    image: File,
    stable: File,
    /// The number of changes that are in `stable`.
    changes: usize,
    /// The ranges in which `image` differs from `stable` because of the state.
    dirty: Vec<(u64, u64)>,
}

impl Scratch {
    /// Copies the base into a directory, twice.
    pub(crate) fn new(dir: &Path, recording: Arc<Recording>) -> ScheduleResult<Self> {
        let (path, stable_path) = (dir.join("state.img"), dir.join("stable"));
        let copy = |to: &Path| {
            copy_sparse(recording.base_path(), to)
                .and_then(|()| File::options().read(true).write(true).open(to))
                .map_err(at("cannot copy the base", to))
        };
        let (stable, image) = (copy(&stable_path)?, copy(&path)?);
        Ok(Self {
            recording,
            path,
            image,
            stable,
            changes: 0,
            dirty: Vec::new(),
        })
    }

    fn put(&self, file: &File, change: &Change, mask: Option<&[bool]>) -> ScheduleResult<()> {
        let failed = at("cannot write a state", &self.path);
        let (start, end) = (change.start(), change.end());
        if change.is_discard() {
            zero(file, start, end).map_err(failed)?;
            return Ok(());
        }
        let mut buffer = vec![0; CHUNK_BYTES.min(end - start) as usize];
        let mut from = start;
        while from < end {
            let len = (buffer.len() as u64).min(end - from) as usize;
            let log = self.recording.log();
            log.read_data(&change.entry, from - start, &mut buffer[..len])?;
            let Some(mask) = mask else {
                file.write_all_at(&buffer[..len], from).map_err(&failed)?;
                from += len as u64;
                continue;
            };
            let first = ((from - start) / SECTOR_BYTES) as usize;
            for (at, sector) in buffer[..len].chunks(SECTOR_BYTES as usize).enumerate() {
                if mask.get(first + at) == Some(&true) {
                    let place = from + at as u64 * SECTOR_BYTES;
                    file.write_all_at(sector, place).map_err(&failed)?;
                }
            }
            from += len as u64;
        }
        Ok(())
    }

    fn is_untouched(&self) -> Touched {
        let (Ok(ours), Ok(there)) = (self.image.metadata(), self.path.metadata()) else {
            return Touched::Replaced;
        };
        if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
            return Touched::Replaced;
        }
        let same = there.mtime() == LONG_AGO
            && there.mtime_nsec() == 0
            && there.len() == self.recording.base_bytes();
        if same { Touched::No } else { Touched::Written }
    }
}

impl Stage for Scratch {
    fn path(&self) -> &Path {
        &self.path
    }

    fn build(&mut self, moment: &Moment, variant: &Variant) -> ScheduleResult<()> {
        for change in self.changes..moment.stable {
            let change = &self.recording.changes()[change];
            self.put(&self.stable, change, None)?;
            self.put(&self.image, change, None)?;
        }
        self.changes = self.changes.max(moment.stable);
        for step in variant.steps(&self.recording, moment) {
            let change = &self.recording.changes()[step.change];
            self.dirty.push((change.start(), change.end()));
            self.put(&self.image, change, step.mask)?;
        }
        let long_ago = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: LONG_AGO,
                tv_nsec: 0,
            },
        };
        rustix::fs::futimens(&self.image, &long_ago)
            .map_err(std::io::Error::from)
            .map_err(at("cannot set its times", &self.path))?;
        Ok(())
    }

    fn restore(&mut self) -> ScheduleResult<bool> {
        let failed = at("cannot restore the image", &self.path);
        let dirty = std::mem::take(&mut self.dirty);
        let written = match self.is_untouched() {
            Touched::No => {
                for (start, end) in dirty {
                    copy_back(&self.stable, &self.image, start, end).map_err(&failed)?;
                }
                false
            }
            Touched::Written => {
                let bytes = self.recording.base_bytes();
                self.image.set_len(bytes).map_err(&failed)?;
                compare_back(&self.stable, &self.image, bytes).map_err(&failed)?;
                true
            }
            Touched::Replaced => {
                let stable = self.path.with_file_name("stable");
                let _ = std::fs::remove_file(&self.path);
                copy_sparse(&stable, &self.path).map_err(&failed)?;
                let image = File::options().read(true).write(true).open(&self.path);
                self.image = image.map_err(&failed)?;
                true
            }
        };
        Ok(written)
    }
}

enum Touched {
    No,
    Written,
    /// The image's name is another file's now, or no file's.
    Replaced,
}

/// Copies a file or a block device. The copy has holes for its holes and for long runs of zeros.
/// Where the host can clone the file, that is done instead.
///
/// # Errors
///
/// The host's.
pub fn copy_sparse(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut source = File::open(from)?;
    let bytes = source.seek(SeekFrom::End(0))?;
    let target = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    target.set_len(bytes)?;
    copy_data(&source, &target, 0, bytes)
}

/// Copies the data of a file in a range into a file that has a hole there.
fn copy_data(source: &File, target: &File, start: u64, end: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES.min(end - start) as usize];
    for (mut from, to) in data_ranges(source, start, end)? {
        while from < to {
            let len = (buffer.len() as u64).min(to - from) as usize;
            source.read_exact_at(&mut buffer[..len], from)?;
            if buffer[..len].iter().any(|&byte| byte != 0) {
                target.write_all_at(&buffer[..len], from)?;
            }
            from += len as u64;
        }
    }
    Ok(())
}

/// Copies a range, holes included.
fn copy_back(stable: &File, image: &File, start: u64, end: u64) -> std::io::Result<()> {
    if end - start > CHUNK_BYTES {
        zero(image, start, end)?;
        return copy_data(stable, image, start, end);
    }
    let mut buffer = vec![0; (end - start) as usize];
    stable.read_exact_at(&mut buffer, start)?;
    image.write_all_at(&buffer, start)
}

/// Makes `image` equal to `stable`, comparing only where one of them holds data.
fn compare_back(stable: &File, image: &File, bytes: u64) -> std::io::Result<()> {
    let mut ranges = data_ranges(stable, 0, bytes)?;
    ranges.extend(data_ranges(image, 0, bytes)?);
    ranges.sort_unstable();
    let mut done = 0;
    let (mut ours, mut theirs) = (vec![0; CHUNK_BYTES as usize], vec![0; CHUNK_BYTES as usize]);
    for (start, end) in ranges {
        let mut from = start.max(done);
        while from < end {
            let len = CHUNK_BYTES.min(end - from) as usize;
            stable.read_exact_at(&mut ours[..len], from)?;
            image.read_exact_at(&mut theirs[..len], from)?;
            if ours[..len] != theirs[..len] {
                copy_pieces(image, from, &ours[..len], &theirs[..len])?;
            }
            from += len as u64;
        }
        done = done.max(end);
    }
    Ok(())
}

fn copy_pieces(image: &File, from: u64, wanted: &[u8], there: &[u8]) -> std::io::Result<()> {
    let pieces = wanted.chunks(PIECE_BYTES).zip(there.chunks(PIECE_BYTES));
    for (at, (wanted, there)) in pieces.enumerate() {
        if wanted == there {
            continue;
        }
        let start = from + (at * PIECE_BYTES) as u64;
        if wanted.iter().all(|&byte| byte == 0) {
            zero(image, start, start + wanted.len() as u64)?;
        } else {
            image.write_all_at(wanted, start)?;
        }
    }
    Ok(())
}

/// Fills a range with zeros; makes it a hole if the host can.
fn zero(file: &File, start: u64, end: u64) -> std::io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if start >= end || rustix::fs::fallocate(file, hole, start, end - start).is_ok() {
        return Ok(());
    }
    let zeros = vec![0; CHUNK_BYTES.min(end - start) as usize];
    let mut from = start;
    while from < end {
        let len = (zeros.len() as u64).min(end - from) as usize;
        file.write_all_at(&zeros[..len], from)?;
        from += len as u64;
    }
    Ok(())
}

/// The ranges in which a file holds data, between two offsets; the whole range if the host cannot
/// tell.
pub(crate) fn data_ranges(file: &File, start: u64, end: u64) -> std::io::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut at = start;
    while at < end {
        let from = match rustix::fs::seek(file, Find::Data(at)) {
            Ok(from) if from < end => from,
            // The rest is a hole.
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                ranges.push((at, end));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let to = rustix::fs::seek(file, Find::Hole(from))
            .unwrap_or(end)
            .min(end);
        ranges.push((from, to));
        at = to;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let file = File::create(&one).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"somewhere", 700 << 20).unwrap();
        copy_sparse(&one, &two).unwrap();
        let copy = File::open(&two).unwrap();
        let mut buffer = [0; 9];
        copy.read_exact_at(&mut buffer, 700 << 20).unwrap();
        assert_eq!(&buffer, b"somewhere");
        let metadata = copy.metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 30);
        assert!(metadata.blocks() < 8192, "{}", metadata.blocks());
    }

    #[test]
    fn whatever_was_written_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let make = |path: &Path| {
            File::create(path).unwrap();
            let file = File::options().read(true).write(true).open(path).unwrap();
            file.set_len(4 << 20).unwrap();
            file.write_all_at(&[1; 10_000], 5000).unwrap();
            file
        };
        let (stable, image) = (make(&one), make(&two));
        image.write_all_at(&[2; 3], 14_999).unwrap();
        image.write_all_at(&[3; 9000], 3 << 20).unwrap();
        zero(&image, 5000, 6000).unwrap();
        compare_back(&stable, &image, 4 << 20).unwrap();
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
        image.write_all_at(&[9; 100], 0).unwrap();
        copy_back(&stable, &image, 0, 3 << 20).unwrap();
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
    }
}
