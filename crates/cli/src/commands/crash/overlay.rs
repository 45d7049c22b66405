//! States shown through a FUSE mount.

use backstitch_crash_device::{OverlayDevice, Shown};
use backstitch_device::{BlockDevice, DeviceError, Result, WriteRequest};
use backstitch_fuse::Unmounter;
use backstitch_fuse::disk::{self, Disk, MountedDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a mount of states waits for what the check left running.
const PATIENCE: Duration = Duration::from_millis(200);

/// A state as a disk, which takes no marks.
struct State(Arc<OverlayDevice>);

impl BlockDevice for State {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.0.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

impl Disk for State {
    fn mark(&self, _text: &str) -> Result<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn entries(&self) -> u64 {
        0
    }
}

/// The mount, until it is dropped.
struct Mount {
    path: PathBuf,
    unmounter: Unmounter,
    mounted: Option<MountedDisk>,
}

impl Shown for Mount {
    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let taken_off = self.unmounter.unmount_within(PATIENCE);
        if taken_off.is_ok()
            && let Some(mounted) = self.mounted.take()
        {
            return mounted.wait();
        }
        // The check left something that uses it: out of the tree at least, so that the directory
        // can go.
        if let Err(error) = self.unmounter.detach() {
            tracing::warn!(%error, "a mount of states stays");
        }
    }
}

/// Mounts a state device below a directory.
pub(super) fn show(
    device: Arc<OverlayDevice>,
    dir: &Path,
) -> std::result::Result<Box<dyn Shown>, String> {
    let about = serde_json::json!({ "kind": "states", "pid": std::process::id() });
    let mounted = disk::spawn(Arc::new(State(device)), dir, "backstitch-states", about)
        .map_err(|error| error.to_string())?;
    let unmounter = mounted.unmounter();
    Ok(Box::new(Mount {
        path: dir.join(disk::DISK_NAME),
        unmounter,
        mounted: Some(mounted),
    }))
}
