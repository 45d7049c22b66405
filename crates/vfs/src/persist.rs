//! Writing a batch so that it is on stable storage afterwards, and trying again where the device failed.
//!
//! After a failed write or flush the host has forgotten what was dirty: flushing once more would succeed and prove nothing. So
//! everything that no flush covers is written again. What no flush covers belongs to batches in flight, and whoever has a batch in
//! flight holds its bytes: each writes its own again. For that nobody may have the device forget a failure before all others saw
//! it: batches share the [`Retrier`]'s lock, and whoever resets the device holds it alone.

use std::time::Duration;

use backstitch_device::{BlockDevice, DeviceError, WriteRequest};
use backstitch_store::VolumeId;
use parking_lot::RwLock;

/// How long to wait before each new attempt. A cable that was bumped is back within these; a device that is gone for longer is
/// taken for lost, rather than let everybody who waits hang.
const PAUSES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(100),
];

/// Writes batches for several threads, each again after a failure.
#[derive(Default)]
pub(crate) struct Retrier {
    epoch: RwLock<()>,
}

impl Retrier {
    /// Writes a batch and flushes it, in as many attempts as it takes up to a bound. Returns how many were repeated, beside what
    /// came of the last.
    pub(crate) fn perform(
        &self,
        device: &dyn BlockDevice,
        writes: &[(VolumeId, Vec<WriteRequest>)],
    ) -> (u64, Result<(), DeviceError>) {
        let mut result = {
            let _shared = self.epoch.read();
            attempt(device, writes)
        };
        for (repeated, pause) in (0..).zip(PAUSES) {
            match &result {
                Err(error) if is_worth_repeating(error) => {
                    tracing::warn!("{error}; writing everything since the last flush again");
                }
                _ => return (repeated, result),
            }
            std::thread::sleep(pause);
            let _alone = self.epoch.write();
            device.reset_after_failure();
            result = attempt(device, writes);
        }
        (PAUSES.len() as u64, result)
    }
}

fn attempt(
    device: &dyn BlockDevice,
    writes: &[(VolumeId, Vec<WriteRequest>)],
) -> Result<(), DeviceError> {
    for (_, requests) in writes {
        device.submit(requests)?;
    }
    device.flush()
}

/// Whether the same might succeed next time.
fn is_worth_repeating(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Write { .. } | DeviceError::Flush { .. })
}
