//! The real device: an image file or a raw disk.
//!
//! Writes go to the host's page cache with `pwritev`, long ones around it (`direct`); a flush is
//! one `fdatasync`. The host forgets which pages were dirty once a flush has failed, so the failure
//! is latched: every later write and flush fails with the same error until the caller says, through
//! [`reset_after_failure`](crate::BlockDevice::reset_after_failure), that it will write everything
//! again.

use crate::ahead::Ahead;
use crate::direct::{Direct, write_all_at};
use crate::holder::writer;
use crate::host::{next_data, reason_of};
use crate::lock::Lock;
use crate::{BlockDevice, Buffer, DeviceError, Result, WriteRequest, check_range};
use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// How to open a [`FileDevice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for reading: writes are refused, and other readers are let in.
    pub read_only: bool,
    /// Do not flush. **A crash of the host may then lose or reorder anything**; a crash of the
    /// process alone may not.
    pub unsafe_no_flush: bool,
    /// With [`read_only`](Self::read_only): do not lock, so that another program may write
    /// meanwhile. Only for formats in which a reader can tell which parts are whole.
    pub beside_writers: bool,
}

/// An image file or a block device.
///
/// While it is open it is locked against a second opener: exclusively by one that writes, shared by
/// ones that read. A block device opened for writing is also claimed (`O_EXCL`), so that the kernel
/// cannot mount it meanwhile.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The way around the page cache for long transfers, where the host has one.
    direct: Option<Direct>,
    /// Zeros ahead of small writes that follow each other, where the host allows it. Disks have no
    /// holes, and need none.
    ahead: Option<Ahead>,
    /// The same file opened once more, for reads with the host's own read-ahead; `None` where it
    /// cannot be opened again.
    contents: Option<File>,
    name: String,
    size_bytes: u64,
    options: OpenOptions,
    /// Whether `failure` is set; every write checks this without the lock.
    failed: AtomicBool,
    failure: Mutex<Option<DeviceError>>,
    /// Held across a flush.
    flushing: Mutex<()>,
}

impl FileDevice {
    /// Opens an image file or a block device and locks it.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] if the host refuses or the path is neither, [`DeviceError::Busy`] with
    /// the holder's name if another program has it open.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        Self::open_as(path, options, false)
    }

    /// As [`open`](Self::open), for using parts of it, each of which must be [claimed](Self::claim)
    /// first. Other programs may use other parts meanwhile; none may write the whole.
    ///
    /// The first of several such writers claims a block device (`O_EXCL`) as long as it has it
    /// open.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_for_parts(path: &Path, options: OpenOptions) -> Result<Self> {
        Self::open_as(path, options, true)
    }

    /// Keeps other programs off a part of a device that was [opened for its
    /// parts](Self::open_for_parts): off every part that overlaps with it, if one of the two is for
    /// writing.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Busy`] with the holder's name, [`DeviceError::OutOfRange`] where the device
    /// ends before the part does.
    pub fn claim(&self, part: Range<u64>) -> Result<()> {
        let length = part.end.saturating_sub(part.start);
        check_range(&self.name, self.size_bytes, part.start, length)?;
        match length {
            0 => Ok(()),
            _ => self.lock().part(part),
        }
    }

    fn lock(&self) -> Lock<'_> {
        Lock {
            file: &self.file,
            name: &self.name,
            read_only: self.options.read_only,
        }
    }

    fn open_as(path: &Path, options: OpenOptions, for_parts: bool) -> Result<Self> {
        let name = path.display().to_string();
        let cannot = |reason: String| DeviceError::Open {
            device: name.clone(),
            reason,
        };
        let kind = std::fs::metadata(path)
            .map_err(|error| cannot(reason_of(&error)))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(cannot(
                "neither a regular file nor a block device".to_owned(),
            ));
        }
        let mut how = std::fs::OpenOptions::new();
        how.read(true).write(!options.read_only);
        let claims = kind.is_block_device() && !options.read_only;
        if claims {
            how.custom_flags(OFlags::EXCL.bits() as i32);
        }
        let opened = how.open(path);
        let is_busy =
            |error: &std::io::Error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        let is_taken = opened.as_ref().is_err_and(is_busy);
        let opened = match is_taken && for_parts {
            true => how.custom_flags(0).open(path),
            false => opened,
        };
        let file = opened.map_err(|error| match is_busy(&error) {
            true => in_the_kernel(&name),
            false => cannot(reason_of(&error)),
        })?;
        let lock = Lock {
            file: &file,
            name: &name,
            read_only: options.read_only,
        };
        if claims && for_parts && lock.is_claimed_by_us() != is_taken {
            return Err(in_the_kernel(&name));
        }
        match for_parts {
            _ if options.read_only && options.beside_writers => {}
            true => lock.parts()?,
            false => lock.whole()?,
        }
        Self::from_locked(file, name, options)
    }

    /// Makes a sparse image file of `size_bytes`, or cuts or extends an existing one, and opens it
    /// for writing. The contents of an existing file are kept as far as they fit; a block device is
    /// opened as it is.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); also when the file cannot be made or given that size.
    pub fn create(path: &Path, size_bytes: u64) -> Result<Self> {
        if std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device()) {
            return Self::open(path, OpenOptions::default());
        }
        let mut device = Self::open_or_make(path)?;
        device.resize(size_bytes)?;
        Ok(device)
    }

    /// Opens an image file for writing. A new one is empty; an existing one is not changed.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); also when the file cannot be made.
    pub fn open_or_make(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let cannot = |error: std::io::Error| DeviceError::Open {
            device: name.clone(),
            reason: reason_of(&error),
        };
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(cannot)?;
        // Locked before it is resized: it may be an image that another program has mounted.
        let options = OpenOptions::default();
        let lock = Lock {
            file: &file,
            name: &name,
            read_only: options.read_only,
        };
        lock.whole()?;
        Self::from_locked(file, name, options)
    }

    /// Cuts or extends an image file.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] where the host refuses.
    pub fn resize(&mut self, size_bytes: u64) -> Result<()> {
        let set = self.file.set_len(size_bytes);
        set.map_err(|error| DeviceError::Open {
            device: self.name.clone(),
            reason: reason_of(&error),
        })?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Describes another process that has this file open for writing, locked or not, as far as the
    /// host lets us find out.
    pub fn other_writer(&self) -> Option<String> {
        self.file.metadata().ok().as_ref().and_then(writer)
    }

    fn from_locked(mut file: File, name: String, options: OpenOptions) -> Result<Self> {
        let size_bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|error| DeviceError::Open {
                device: name.clone(),
                reason: reason_of(&error),
            })?;
        Ok(Self {
            direct: Direct::to(&file, options.read_only),
            ahead: Ahead::of(&file),
            contents: File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok(),
            file,
            name,
            size_bytes,
            options,
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            flushing: Mutex::new(()),
        })
    }

    fn check_latched(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(DeviceError::ReadOnly {
                device: self.name.clone(),
            });
        }
        self.check_latched()
    }

    /// Remembers the first failure and returns the one given.
    fn latch(&self, error: DeviceError) -> DeviceError {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.failed.store(true, Ordering::Release);
        error
    }

    /// Fills a buffer. Short reads use this descriptor, through the page cache.
    fn read_through(&self, file: &File, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(
            &self.name,
            self.size_bytes,
            offset_bytes,
            buffer.len() as u64,
        )?;
        let len_bytes = buffer.len() as u64;
        let around = match &self.direct {
            Some(direct) => direct.read(offset_bytes, buffer),
            None => Ok(0),
        };
        around
            .and_then(|done| {
                let rest = &mut buffer[done..];
                file.read_exact_at(rest, offset_bytes + done as u64)
            })
            .map_err(|error| DeviceError::Read {
                device: self.name.clone(),
                offset_bytes,
                len_bytes,
                reason: match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => "the file has become shorter".to_owned(),
                    _ => reason_of(&error),
                },
            })
    }

    fn failed_to_write(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        error: &std::io::Error,
    ) -> DeviceError {
        self.latch(DeviceError::Write {
            device: self.name.clone(),
            offset_bytes,
            len_bytes,
            reason: reason_of(error),
        })
    }

    /// Writes a request through the page cache.
    fn write_request(&self, request: &WriteRequest) -> std::io::Result<()> {
        let stretches = Buffer::stretches(&request.buffers);
        let mut slices: Vec<IoSlice<'_>> = stretches.map(IoSlice::new).collect();
        write_all_at(&self.file, &mut slices, request.offset_bytes)
    }
}

fn in_the_kernel(name: &str) -> DeviceError {
    DeviceError::Busy {
        device: name.to_owned(),
        holder: "the kernel (mounted, or part of another device)".to_owned(),
    }
}

impl BlockDevice for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_through(&self.file, offset_bytes, buffer)
    }

    fn read_contents(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let file = self.contents.as_ref().unwrap_or(&self.file);
        self.read_through(file, offset_bytes, buffer)
    }

    fn read_at_once(&self, offset_bytes: u64, buffer: &mut [u8]) -> bool {
        let len_bytes = buffer.len();
        let is_inside =
            check_range(&self.name, self.size_bytes, offset_bytes, len_bytes as u64).is_ok();
        // Only bytes that the host has in memory; file systems that cannot tell refuse.
        let mut into = [IoSliceMut::new(buffer)];
        is_inside
            && rustix::io::preadv2(&self.file, &mut into, offset_bytes, ReadWriteFlags::NOWAIT)
                == Ok(len_bytes)
    }

    fn reads_are_scattered(&self) {
        // Otherwise the host takes blocks of a table that are read one after the other for a
        // sequential read of a file. It then reads ahead in vain, into large folios, and each later
        // small write and flush handles the whole of one.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
    }

    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        let Some(len_bytes) = NonZeroU64::new(len_bytes) else {
            return;
        };
        // A hint only: errors show when the bytes are read.
        let _ = rustix::fs::fadvise(&self.file, offset_bytes, Some(len_bytes), Advice::WillNeed);
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let len_bytes = bytes.len() as u64;
        check_range(&self.name, self.size_bytes, offset_bytes, len_bytes)?;
        let _writing = self.ahead.as_ref().map(|ahead| ahead.writing.read());
        let written = self.file.write_all_at(bytes, offset_bytes);
        written.map_err(|error| self.failed_to_write(offset_bytes, len_bytes, &error))
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.check_writable()?;
        let mut batch_bytes = 0;
        for request in batch {
            // A caller's mistake, not the device's failure: nothing is latched.
            let len_bytes = request.len_bytes();
            check_range(&self.name, self.size_bytes, request.offset_bytes, len_bytes)?;
            batch_bytes += len_bytes;
        }
        // Without flushes nothing waits for the host's notes.
        if let Some(ahead) = &self.ahead
            && !self.options.unsafe_no_flush
        {
            ahead.prepare(&self.file, self.size_bytes, batch, batch_bytes);
        }
        let _writing = self.ahead.as_ref().map(|ahead| ahead.writing.read());
        let direct = self.direct.as_ref().filter(|d| d.is_worth(batch));
        if let Some(direct) = direct {
            direct
                .write(batch)
                .map_err(|f| self.failed_to_write(f.offset_bytes, f.len_bytes, &f.error))?;
        }
        for request in batch {
            if direct.is_some_and(|d| d.takes(request)) {
                continue;
            }
            self.write_request(request).map_err(|error| {
                self.failed_to_write(request.offset_bytes, request.len_bytes(), &error)
            })?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.options.read_only || self.options.unsafe_no_flush {
            return self.check_latched();
        }
        // One flush at a time: the host reports a lost write once for each open file, to the first
        // caller. A second flush at the same time could return success in spite of the loss, before
        // the first one has latched it.
        let _one_at_a_time = self.flushing.lock();
        self.check_latched()?;
        rustix::fs::fdatasync(&self.file).map_err(|error| {
            let reason = reason_of(&error.into());
            self.latch(DeviceError::Flush {
                device: self.name.clone(),
                reason,
            })
        })
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.check_writable()?;
        check_range(&self.name, self.size_bytes, offset_bytes, len_bytes)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, hole, offset_bytes, len_bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(error) => Err(self.latch(DeviceError::Write {
                device: self.name.clone(),
                offset_bytes,
                len_bytes,
                reason: reason_of(&error.into()),
            })),
        }
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        if offset_bytes >= self.size_bytes {
            return Ok(None);
        }
        Ok(match next_data(&self.file, offset_bytes) {
            // The range may be empty, if the host has dropped pages between two calls; the caller
            // then asks again behind it.
            Ok(Some(data)) if data.start < self.size_bytes => {
                Some(data.start..data.end.min(self.size_bytes))
            }
            Ok(_) => None,
            // Disks, and hosts that cannot tell.
            Err(_) => Some(offset_bytes..self.size_bytes),
        })
    }

    fn reset_after_failure(&self) {
        let mut failure = self.failure.lock();
        *failure = None;
        self.failed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
