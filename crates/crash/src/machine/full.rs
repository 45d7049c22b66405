//! Images that are nearly full, so that freed blocks are used again at once.

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

/// The file that takes the blocks. Its contents are not judged.
pub(super) const NAME: &[u8] = b".full";

/// The blocks that filling an image changed.
struct Filled {
    start: Fork,
    ordering: Ordering,
    left: u32,
    changed: Vec<(u64, Buffer)>,
}

thread_local! {
    /// The image that was filled last, since many workloads use the same.
    static FILLED: RefCell<Option<Filled>> = const { RefCell::new(None) };
}

/// The image with all of its blocks in use but about `left`.
///
/// The result does not depend on what is being tried: the image is filled with every rule on, and
/// with the optimisations and step sizes of a usual mount.
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

/// Fills an image as a mount would, whatever rules and step sizes this thread has changed.
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

/// Reserves blocks for the file until about `left` are free, and unmounts. Returns the blocks that
/// changed.
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
        // Leaves room for the indirect blocks that these blocks need.
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
