//! What has to be right before anything is mounted: the directory, and the kernel.

use backstitch_files::error::{Error, Result, host, warn_line};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The kernel's side of every FUSE mount.
const DEVICE: &str = "/dev/fuse";
/// Its major and minor number, which Linux has assigned to it.
const DEVICE_NUMBER: (u32, u32) = (10, 229);

/// The directory's full path.
pub(super) fn resolve(dir: &Path) -> Result<PathBuf> {
    let failed = |error: &io::Error| match error.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => {
            Error::at_path("mount", dir, "a FUSE mount is there whose daemon has died").hint(
                format!(
                    "clear it away first: backstitch umount {0}, or fusermount3 -u {0}",
                    dir.display()
                ),
            )
        }
        Some(libc::ENOENT) => Error::at_path("mount", dir, host(error))
            .hint(format!("the directory must exist: mkdir {}", dir.display())),
        _ => Error::at_path("mount", dir, host(error)),
    };
    // The kernel may remember the attributes of a mount whose daemon is dead, but it asks for this.
    rustix::fs::statfs(dir).map_err(|error| failed(&error.into()))?;
    let metadata = std::fs::metadata(dir).map_err(|error| failed(&error))?;
    if !metadata.is_dir() {
        return Err(Error::at_path("mount", dir, "not a directory"));
    }
    dir.canonicalize().map_err(|error| failed(&error))
}

/// Whether nothing is in the directory. What cannot be listed is for the mount itself to refuse.
fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut names| names.next().is_none())
}

/// A mount hides what is in its directory: that is asked for, or refused.
pub(super) fn check_empty(dir: &Path, may_hide: bool) -> Result<()> {
    if may_hide || is_empty(dir) {
        return Ok(());
    }
    let why = "not empty; the mount would hide what is in it";
    Err(Error::at_path("mount", dir, why).hint("-o nonempty mounts over it anyway"))
}

/// Whether a directory that mount(8) asks for is not empty, with a warning: mount(8) hides what is
/// there without a word, and entries of fstab rely on it.
pub(super) fn hides_for_helper(dir: &Path) -> bool {
    if is_empty(dir) {
        return false;
    }
    warn_line(&format!(
        "mount: {}: not empty; the mount hides what is in it",
        dir.display()
    ));
    true
}

/// Whether a file is the kernel's FUSE device.
fn is_fuse(file: &File) -> bool {
    let number = rustix::fs::makedev(DEVICE_NUMBER.0, DEVICE_NUMBER.1);
    file.metadata()
        .is_ok_and(|seen| seen.file_type().is_char_device() && seen.rdev() == number)
}

/// What an ordinary user whose mount was refused may have to change.
pub(super) fn refused_hint(allow_other: bool) -> Option<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    let opened = File::options().read(true).write(true).open(DEVICE);
    match opened {
        _ if is_root => None,
        Err(_) => Some(
            "this user cannot open /dev/fuse: see `ls -l /dev/fuse`; on most systems it has mode 666",
        ),
        Ok(_) if allow_other => Some("allow_other needs user_allow_other in /etc/fuse.conf"),
        Ok(_) => None,
    }
}

/// Whether there is FUSE at all. An ordinary user need not be able to open the device: fusermount3
/// does that for him.
pub(super) fn check_fuse() -> Result<()> {
    let error = match File::options().read(true).write(true).open(DEVICE) {
        Ok(file) if is_fuse(&file) => return Ok(()),
        Ok(_) => io::Error::from_raw_os_error(libc::ENODEV),
        Err(error) => error,
    };
    let is_missing = matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)
    );
    if !is_missing && !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::at_path("mount", Path::new(DEVICE), host(&error)).hint(
        "the kernel needs FUSE: modprobe fuse; a container needs --device /dev/fuse --cap-add SYS_ADMIN",
    ))
}
