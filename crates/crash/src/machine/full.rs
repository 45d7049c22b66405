//! Images that are nearly full: what is freed in them is used again at once.

use std::cell::RefCell;

use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Nobody};
use backstitch_crash_core::operation::{Operation, Path};
use backstitch_device::Buffer;
use backstitch_layout::steps::{self, Steps};
use backstitch_layout::{Allocate, FileSystemStatistics, Result};
use backstitch_mechanisms::Ordering;
use backstitch_rules::watch;
use backstitch_store::Optimisations;

use super::Machine;

/// The file that holds the blocks. What it shows is no part of what is judged.
pub(super) const NAME: &[u8] = b".full";

/// What filling an image changed of it.
struct Filled {
    start: Fork,
    ordering: Ordering,
    left: u32,
    changed: Vec<(u64, Buffer)>,
}

thread_local! {
    /// Of the image that was filled last: workloads share it.
    static FILLED: RefCell<Option<Filled>> = const { RefCell::new(None) };
}

/// The image with all of its blocks in use but about `left`.
///
/// It is the same one whatever is tried on it: every rule holds while it is filled, with the
/// optimisations and the steps of a mount.
///
/// # Errors
/// The engine's.
pub(super) fn with_few_blocks(image: Fork, left: u32, engine: Engine) -> Result<Fork> {
    let is_known = |filled: &Filled| {
        filled.left == left
            && filled.ordering == engine.ordering
            && filled.start.has_base_of(&image)
            && filled.start.fingerprint() == image.fingerprint()
    };
    let known = FILLED.with_borrow(|filled| {
        let filled = filled.as_ref().filter(|filled| is_known(filled))?;
        Some(filled.changed.clone())
    });
    let changed = match known {
        Some(changed) => changed,
        None => {
            let start = image.clone();
            let changed = fill_as_usual(image.clone(), left.into(), engine.ordering)?;
            let known = changed.clone();
            FILLED.set(Some(Filled {
                start,
                ordering: engine.ordering,
                left,
                changed: known,
            }));
            changed
        }
    };
    let mut full = image;
    for (block, bytes) in changed {
        full.set_block(block, bytes);
    }
    Ok(full)
}

/// Fills an image as a mount would, whatever this thread has switched off or changed.
fn fill_as_usual(image: Fork, left: u64, ordering: Ordering) -> Result<Vec<(u64, Buffer)>> {
    let engine = Engine {
        ordering,
        optimisations: Optimisations::BOTH,
        unit_bytes: None,
    };
    let records = watch::records();
    watch::record(false);
    let steps = steps::set(Steps::Usual);
    let changed = watch::with_every_rule(|| fill(image, left, engine));
    steps::set(steps);
    watch::record(records);
    changed
}

/// Reserves blocks for the file, as many as there are, and unmounts; what is changed then.
fn fill(image: Fork, left: u64, engine: Engine) -> Result<Vec<(u64, Buffer)>> {
    let mut machine = Machine::new(image, engine, &mut Nobody)?;
    let path = Path::plain(std::str::from_utf8(NAME).expect("a plain name"));
    let mut apply = |operation: Operation| -> Result<FileSystemStatistics> {
        machine.apply(&operation, &mut Nobody)?;
        machine.answer(&operation, &mut Nobody)?;
        Ok(machine.mount.fs.statistics())
    };
    let mut now = apply(Operation::Create(path.clone(), None))?;
    let mut bytes = 0;
    while now.free_blocks > left {
        // With the blocks that lead to them.
        let more = now.free_blocks - left;
        let more = (more - more / 128).saturating_sub(3).max(1) * u64::from(now.block_size_bytes);
        let reserve = Allocate::Reserve { keep_size: false };
        now = apply(Operation::Allocate(path.clone(), reserve, bytes, more))?;
        bytes += more;
    }
    machine.mount.unmount(&mut Nobody)?;
    let full = machine.mount.fork();
    let changed = full.changed_blocks();
    Ok(changed
        .map(|(block, bytes)| (block, bytes.clone()))
        .collect())
}
