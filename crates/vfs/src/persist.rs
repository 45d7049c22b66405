//! Writing a batch and flushing it, and trying again where the device failed.
//!
//! After a failed write or flush the host has forgotten what was dirty: flushing once more would
//! succeed and prove nothing. So everything that no flush covers is written again. That belongs to
//! batches in flight, and the thread that has a batch in flight holds its bytes: each thread writes
//! its own again. No thread may reset the device before all others have seen the failure. So
//! threads share the [`Retrier`]'s lock while they write, and hold it alone to reset the device.

use std::time::Duration;

use backstitch_device::{BlockDevice, DeviceError, WriteRequest};
use backstitch_store::VolumeId;
use parking_lot::RwLock;

/// The pauses before each new attempt. A cable that was bumped is back within them. A device that
/// is gone for longer is taken for lost, so that callers do not hang.
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
    /// Writes a batch and flushes it, in as many attempts as needed up to a bound. Returns the
    /// number of repeated attempts, and the result of the last.
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

/// Whether the same request might succeed next time.
fn is_worth_repeating(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Write { .. } | DeviceError::Flush { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::{
        Fault, FaultDevice, FaultKind, FaultLength, Loss, MemoryDevice, SlowFlushDevice,
    };
    use std::sync::Arc;

    fn write_of(offset_bytes: u64, value: u8) -> [(VolumeId, Vec<WriteRequest>); 1] {
        let buffers = vec![[value; 512].into()];
        let request = WriteRequest {
            offset_bytes,
            buffers,
        };
        [(VolumeId(0), vec![request])]
    }

    #[test]
    fn nobody_is_told_that_a_write_is_there_which_another_ones_failure_took_along() {
        const THREADS: u64 = 4;
        let memory = Arc::new(MemoryDevice::new(512 * THREADS as usize));
        let fault = Arc::new(FaultDevice::new(memory.clone(), Loss::Everything));
        // Other threads submit and fail during this flush.
        let device = SlowFlushDevice::new(fault.clone(), Duration::from_micros(300));
        let retrier = Retrier::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (memory, fault, device, retrier) = (&memory, &fault, &device, &retrier);
                scope.spawn(move || {
                    for round in 0..60 {
                        if round % 3 == 0 {
                            fault.inject(Fault {
                                kind: FaultKind::Flush,
                                number: fault.counts().flushes + 2,
                                length: FaultLength::Once,
                            });
                        }
                        let (_, result) = retrier.perform(device, &write_of(thread * 512, round));
                        let mut found = [0; 512];
                        memory.read(thread * 512, &mut found).unwrap();
                        assert!(
                            result.is_err() || found == [round; 512],
                            "lost in round {round}"
                        );
                    }
                });
            }
        });
        assert!(fault.counts().failures > 5);
    }

    #[test]
    fn gives_up_after_a_few_attempts_and_at_once_where_there_is_no_hope() {
        let device = FaultDevice::new(Arc::new(MemoryDevice::new(1024)), Loss::Half);
        let retrier = Retrier::default();
        let (repeated, result) = retrier.perform(&device, &write_of(4096, 1));
        assert!(matches!(result, Err(DeviceError::OutOfRange { .. })));
        assert_eq!(repeated, 0);
        device.vanish();
        let (repeated, result) = retrier.perform(&device, &write_of(0, 1));
        assert!(matches!(result, Err(DeviceError::Write { .. })));
        assert_eq!((repeated, device.counts().writes), (3, 4));
        // It stays latched for all later callers.
        device.comes_back();
        assert!(device.flush().is_err());
    }
}
