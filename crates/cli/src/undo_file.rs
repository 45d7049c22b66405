//! Where undo files go, and writing them before a repair.

use backstitch_device::undo::{self, Written};
use backstitch_device::{BlockDevice, StagedDevice};
use backstitch_files::error::{Error, Result};
use backstitch_files::image::timestamp;
use backstitch_files::named::Named;
use backstitch_files::{show, size};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The directory for undo files that e2fsprogs goes by, or `none`.
const DIRECTORY: &str = "E2FSPROGS_UNDO_DIR";
/// The most undo files of one second that get a name.
const MOST_NAMES: u32 = 1000;

/// Which undo file a repair writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// None.
    No,
    /// This one.
    Named(PathBuf),
    /// One with a name of its own: beside an image, in a directory of the state's for a device.
    Somewhere,
}

impl Wanted {
    /// What the options and the environment say.
    pub(crate) fn of(no_undo: bool, file: Option<&PathBuf>, by_default: bool) -> Wanted {
        match file {
            Some(file) => Wanted::Named(file.clone()),
            None if no_undo || !by_default => Wanted::No,
            None if std::env::var_os(DIRECTORY).is_some_and(|dir| dir == "none") => Wanted::No,
            None => Wanted::Somewhere,
        }
    }
}

/// `IMAGE.undo-20261124-174500`, with a number behind it where there is one already.
fn names(image: &Path) -> impl Iterator<Item = String> {
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    // What would name a part of an image.
    let name = name.replace(['#', '?'], "-");
    let now = show::time_long(timestamp(SystemTime::now()));
    let digits: String = now.chars().filter(char::is_ascii_digit).take(14).collect();
    let (date, time) = digits.split_at(digits.len().min(8));
    let name = format!("{name}.undo-{date}-{time}");
    (1..MOST_NAMES).map(move |n| match n {
        1 => name.clone(),
        n => format!("{name}-{n}"),
    })
}

/// Where undo files go that cannot be beside what they are for.
fn state_directory() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let is_root = rustix::process::geteuid().is_root();
    match (set("XDG_STATE_HOME"), set("HOME")) {
        (Some(state), _) => PathBuf::from(state).join("backstitch"),
        (None, Some(home)) if !is_root => PathBuf::from(home).join(".local/state/backstitch"),
        _ => "/var/lib/backstitch".into(),
    }
}

/// The directories to try, best first.
fn directories(image: &Path, file: &Path) -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return vec![dir.into()];
    }
    let is_disk = std::fs::metadata(file).is_ok_and(|seen| seen.file_type().is_block_device());
    if is_disk {
        return vec![state_directory()];
    }
    let beside = image.parent().map(Path::to_owned).unwrap_or_default();
    vec![beside, state_directory()]
}

/// Keeps the old contents of all that is to change on `device`. Returns where, and what; nothing
/// where nothing changes.
pub(crate) fn keep(
    what: &str,
    image: &Path,
    wanted: &Wanted,
    device: &StagedDevice,
    below: &dyn BlockDevice,
) -> Result<Option<(PathBuf, Written)>> {
    if *wanted == Wanted::No || device.is_unchanged() {
        return Ok(None);
    }
    let offset = Named::of(what, image)?.offset(what)?;
    let failed = |error: backstitch_device::DeviceError| {
        let needed = size::show(undo::needed_bytes(device));
        let why = format!("no undo file ({needed}) could be written: {error}; nothing was changed");
        Error::at_path(what, image, why)
            .hint("-z FILE writes it to another place, --no-undo goes without it")
    };
    let write = |path: PathBuf| match undo::write(&path, device, below, offset) {
        Ok(written) => Ok(Some((path, written))),
        Err(error) => Err(failed(error)),
    };
    if let Wanted::Named(path) = wanted {
        return write(path.clone());
    }
    let file = Named::of(what, image)?.file;
    let mut last = Ok(None);
    for dir in directories(image, &file) {
        // That it cannot be made shows when the file cannot.
        let _ = std::fs::create_dir_all(&dir);
        let free = names(image)
            .map(|name| dir.join(name))
            .find(|path| !path.exists());
        last = write(free.unwrap_or_else(|| dir.join("undo")));
        if last.is_ok() {
            break;
        }
    }
    last
}

/// What is said of an undo file: where it is, and how it is used.
pub(crate) fn announcement(image: &Path, file: &Path) -> String {
    let (image, file) = (image.display(), file.display());
    format!("undo file: {file} (`backstitch undo {file} {image}` takes the repair back)\n")
}
