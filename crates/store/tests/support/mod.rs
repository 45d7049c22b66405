//! A store over one volume in memory.

use std::sync::Arc;

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_store::{Limits, Optimisations, Store, VolumeId};

pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) volume: VolumeId,
    pub(crate) memory: Arc<MemoryDevice>,
    pub(crate) devices: Vec<Arc<dyn BlockDevice>>,
}

impl Bench {
    /// A store with this number of blocks; order is kept between the units of each.
    pub(crate) fn with(
        limits: Limits,
        block_bytes: usize,
        unit_bytes: usize,
        blocks: u64,
    ) -> Bench {
        let mut store = Store::new(limits, Optimisations::BOTH);
        let volume = store.add_volume_with_units(block_bytes as u32, unit_bytes as u32);
        let memory = Arc::new(MemoryDevice::new(blocks as usize * block_bytes));
        Bench {
            store,
            volume,
            devices: vec![memory.clone()],
            memory,
        }
    }
}
