//! Copies of the mounted file system, asked for through an extended attribute of the mount's root:
//! setting it to a path begins, reading it tells how far it is.

use backstitch_device::FileDevice;
use backstitch_vfs::{Engine, LayoutError, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Setting this attribute of a mount's root to the absolute path of an empty file, as root or as
/// the user who runs the mount, begins a copy into it. Reading it gives [`SnapshotProgress`] as
/// JSON.
pub const SNAPSHOT_XATTR: &str = "system.backstitch.snapshot";

/// Time after which a copy that nobody asks about is given up: its client is gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// How far a copy is.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotProgress {
    /// None has been asked for.
    None,
    /// The part that is done, 0 to 1.
    Running(f64),
    /// It is on stable storage, as after a crash.
    Done,
    /// Why it was given up.
    Failed(String),
}

/// The copies of one mount: one at a time.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Mutex<Shared>>);

struct Shared {
    progress: SnapshotProgress,
    asked: Instant,
}

impl Snapshots {
    pub(crate) fn new() -> Snapshots {
        Snapshots(Arc::new(Mutex::new(Shared {
            progress: SnapshotProgress::None,
            asked: Instant::now(),
        })))
    }

    /// Begins a copy.
    ///
    /// # Errors
    /// `EINVAL` for a path that is not absolute, `EEXIST` where another copy is under way.
    pub(crate) fn begin(&self, engine: &Arc<Engine>, path: &[u8]) -> Result<()> {
        let path = PathBuf::from(OsStr::from_bytes(path));
        if !path.is_absolute() {
            return Err(LayoutError::Invalid.into());
        }
        let mut shared = self.0.lock();
        if matches!(shared.progress, SnapshotProgress::Running(_)) {
            return Err(LayoutError::Exists.into());
        }
        shared.progress = SnapshotProgress::Running(0.0);
        shared.asked = Instant::now();
        drop(shared);
        let (copies, engine) = (self.clone(), engine.clone());
        std::thread::spawn(move || {
            backstitch_fuse_protocol::run_anywhere();
            let done = copies.copy(&engine, &path);
            copies.0.lock().progress = match done {
                Ok(()) => SnapshotProgress::Done,
                Err(why) => SnapshotProgress::Failed(why),
            };
        });
        Ok(())
    }

    fn copy(&self, engine: &Engine, path: &Path) -> std::result::Result<(), String> {
        let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
        if !is_file {
            return Err(format!("{}: not a file", path.display()));
        }
        let out = FileDevice::create(path, engine.device_bytes()).map_err(|e| e.to_string())?;
        let mut go_on = |part: f64| {
            let mut shared = self.0.lock();
            shared.progress = SnapshotProgress::Running(part);
            shared.asked.elapsed() < PATIENCE
        };
        engine
            .snapshot(Arc::new(out), &mut go_on)
            .map_err(|error| error.to_string())
    }

    /// What reading the attribute gives.
    pub(crate) fn document(&self) -> Vec<u8> {
        let mut shared = self.0.lock();
        shared.asked = Instant::now();
        let (state, part, error) = match &shared.progress {
            SnapshotProgress::None => ("none", 0.0, Value::Null),
            SnapshotProgress::Running(part) => ("running", *part, Value::Null),
            SnapshotProgress::Done => ("done", 1.0, Value::Null),
            SnapshotProgress::Failed(why) => ("failed", 0.0, why.as_str().into()),
        };
        let document = json!({"state": state, "done_fraction": part, "error": error});
        document.to_string().into_bytes()
    }
}

/// Begins a copy of what is mounted at `dir` into the empty file `path`, an absolute path.
///
/// # Errors
///
/// What the system says: `EOPNOTSUPP` where `dir` is no root of a mount of ours, `EPERM` for who is
/// neither root nor runs the mount, `EEXIST` where another copy is under way.
pub fn begin_snapshot(dir: &Path, path: &Path) -> std::io::Result<()> {
    let value = path.as_os_str().as_bytes();
    let flags = rustix::fs::XattrFlags::empty();
    Ok(rustix::fs::setxattr(dir, SNAPSHOT_XATTR, value, flags)?)
}

/// How far the copy of what is mounted at `dir` is. A copy that nobody asks after is given up.
///
/// # Errors
///
/// What the system says, `ENOTCONN` where the mount is gone.
pub fn snapshot_progress(dir: &Path) -> std::io::Result<SnapshotProgress> {
    let mut buffer = vec![0_u8; 4096];
    let len = rustix::fs::getxattr(dir, SNAPSHOT_XATTR, &mut buffer[..])?;
    let found: Value = serde_json::from_slice(&buffer[..len])?;
    Ok(match found["state"].as_str().unwrap_or_default() {
        "running" => SnapshotProgress::Running(found["done_fraction"].as_f64().unwrap_or(0.0)),
        "done" => SnapshotProgress::Done,
        "failed" => {
            let why = found["error"].as_str().unwrap_or_default();
            SnapshotProgress::Failed(why.to_owned())
        }
        _ => SnapshotProgress::None,
    })
}
