//! The file that a recording goes to.

use super::COMMAND;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::foreign;
use backstitch_files::named::Named;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An open output. What it had is lost once [`begin`](Self::begin) is called; a file that was made
/// for it goes again if that never happens.
pub(super) struct Output {
    path: PathBuf,
    file: File,
    is_new: bool,
    has_begun: bool,
}

/// What an output must not be.
pub(super) struct Taken {
    /// The device number of the recorded mount. What lies in it would itself be recorded, and has
    /// the mount wait for what the recording does.
    pub(super) device: Option<u64>,
    /// The image, or a part of one, as it was named.
    pub(super) image: Option<PathBuf>,
}

impl Output {
    /// Opens an output, and refuses what is none.
    pub(super) fn open(path: &Path, taken: &Taken) -> Result<Output> {
        let failed = |error: std::io::Error| Error::at_path(COMMAND, path, host(&error));
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let within = std::fs::metadata(directory).map_err(failed)?.dev();
        if taken.device == Some(within) {
            return Err(Error::at_path(COMMAND, path, IN_THE_MOUNT));
        }
        // A symlink is not followed by this. What is recorded is for nobody else to read.
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        let is_new = made.is_ok();
        let file = match made {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => open_old(path),
            other => other,
        };
        let output = Output {
            path: path.to_owned(),
            file: file.map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => Error::at_path(COMMAND, path, "it is a symbolic link"),
                _ => failed(error),
            })?,
            is_new,
            has_begun: false,
        };
        let seen = output.file.metadata().map_err(failed)?;
        if let Some(why) = refusal(&seen, taken) {
            return Err(Error::at_path(COMMAND, path, why));
        }
        if seen.is_file() {
            output.lock()?;
            foreign::refuse_locked_output(COMMAND, path)?;
        }
        Ok(output)
    }

    /// Whoever uses an image has a lock on its file, also where it is only a part of that, or a
    /// journal. Nothing that somebody uses is emptied.
    fn lock(&self) -> Result<()> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let why = "it is in use: as an image, or for another recording";
                Err(Error::at_path(COMMAND, &self.path, why))
            }
            Err(TryLockError::Error(error)) => {
                Err(Error::at_path(COMMAND, &self.path, host(&error)))
            }
        }
    }

    /// Empties it; the file to write to.
    pub(super) fn begin(&mut self) -> Result<File> {
        let failed = |error: std::io::Error| Error::at_path(COMMAND, &self.path, host(&error));
        if self.file.metadata().map_err(failed)?.is_file() {
            self.file.set_len(0).map_err(failed)?;
        }
        self.has_begun = true;
        self.file.try_clone().map_err(failed)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new && !self.has_begun {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens an output that is there already. A link to a file could be somebody else's trap; one to a
/// pipe or a terminal, as `/dev/stdout` is, empties nothing.
fn open_old(path: &Path) -> std::io::Result<File> {
    let follows = std::fs::metadata(path).is_ok_and(|seen| !seen.is_file());
    let flags = if follows { 0 } else { libc::O_NOFOLLOW };
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(flags).open(path)?;
    // It may have become another one meanwhile.
    if follows && file.metadata()?.is_file() {
        return Err(std::io::Error::from_raw_os_error(libc::ELOOP));
    }
    Ok(file)
}

const IN_THE_MOUNT: &str = "it lies in the mount that is to be recorded";

/// Why what was opened is not written to.
fn refusal(seen: &Metadata, taken: &Taken) -> Option<&'static str> {
    let kind = seen.file_type();
    if !(kind.is_file() || kind.is_fifo() || kind.is_char_device()) {
        return Some("not a file");
    }
    if taken.device == Some(seen.dev()) {
        return Some(IN_THE_MOUNT);
    }
    let image = taken.image.as_ref();
    let image = image.and_then(|image| Named::of(COMMAND, image).ok());
    let image = image.and_then(|image| image.file.metadata().ok());
    let is_image = image.is_some_and(|of| (of.dev(), of.ino()) == (seen.dev(), seen.ino()));
    is_image.then_some("it is the mounted image itself")
}
