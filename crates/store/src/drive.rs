//! Doing a store's I/O with one thread: for tools, tests and the crash explorer.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, DeviceError};

use crate::{Batch, BlockClass, Goal, PatchId, Store, VolumeId};

/// The largest batch that one turn puts together.
pub const BATCH_BYTES: u64 = 32 << 20;

/// Reads the blocks that look-ups missed. Returns whether there were any.
///
/// # Errors
/// The device's.
pub fn read_wanted(
    store: &mut Store,
    devices: &[Arc<dyn BlockDevice>],
) -> Result<bool, DeviceError> {
    let wanted = store.take_wanted();
    for (i, (volume, block)) in wanted.iter().enumerate() {
        let device = &*devices[volume.0 as usize];
        match read_block(device, store.block_bytes(*volume), *block) {
            Ok(data) => store.insert(*volume, *block, BlockClass::Metadata, data),
            Err(error) => {
                store.abandon(&wanted[i..]);
                return Err(error);
            }
        }
    }
    Ok(!wanted.is_empty())
}

/// Reads one block.
///
/// # Errors
/// The device's.
pub fn read_block(
    device: &dyn BlockDevice,
    block_bytes: u32,
    block: u64,
) -> Result<Buffer, DeviceError> {
    let mut data = Buffer::zeroed(block_bytes as usize);
    let buffer = (data.get_mut()).expect("a new buffer has one owner");
    device.read(block.saturating_mul(u64::from(block_bytes)), buffer)?;
    Ok(data)
}

/// Writes a batch and flushes every device that it touches. Afterwards it may be reported complete.
///
/// # Errors
/// The device's; the batch is not complete then.
pub fn perform(
    devices: &[Arc<dyn BlockDevice>],
    writes: &[(VolumeId, Vec<backstitch_device::WriteRequest>)],
) -> Result<(), DeviceError> {
    for (volume, requests) in writes {
        devices[volume.0 as usize].submit(requests)?;
    }
    for (volume, _) in writes {
        devices[volume.0 as usize].flush()?;
    }
    Ok(())
}

/// Writes batches for `goal` until there is nothing more that could be. Returns how many.
///
/// # Errors
/// The device's; what was in that batch stays in flight, because nobody knows what of it is on the
/// disk.
pub fn write_out(
    store: &mut Store,
    devices: &[Arc<dyn BlockDevice>],
    goal: Goal<'_>,
    now: Duration,
) -> Result<usize, DeviceError> {
    let mut batches = 0;
    loop {
        let batch: Batch = store.next_batch(goal, now, BATCH_BYTES);
        if batch.is_empty() {
            return Ok(batches);
        }
        perform(devices, &batch.writes)?;
        store.complete(batch, now);
        batches += 1;
    }
}

/// Puts `targets` and what they depend on onto stable storage.
///
/// # Errors
/// The device's.
pub fn sync(
    store: &mut Store,
    devices: &[Arc<dyn BlockDevice>],
    targets: &[PatchId],
    now: Duration,
) -> Result<(), DeviceError> {
    write_out(store, devices, Goal::Patches(targets), now)?;
    Ok(())
}
