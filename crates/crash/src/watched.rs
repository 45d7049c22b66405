//! A script on a mount that a watcher of the store sees: nothing crashes, nothing is judged.
//!
//! What is written when is up to the script (`round`, `fsync`, `sync`, `log-close`), and the time goes
//! on by a step with each operation. So the same script tells its watcher the same every time.

use std::sync::Arc;

use backstitch_crash_core::geography::Blocks;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Nobody};
use backstitch_crash_core::operation::Operation;
use backstitch_layout::{Error as LayoutError, InodeNumber};
use backstitch_store::Watcher;
use thiserror::Error;

use crate::machine::{Machine, prepared};

/// Why a script was not run to its end.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// The image.
    #[error("the image cannot be mounted: {0}")]
    NotMounted(LayoutError),
    /// An operation that ends the mount.
    #[error("operation {number}, '{operation}', ends the mount, and one mount is watched")]
    EndsMount {
        /// Its number, from 1 on.
        number: usize,
        /// The operation, as scripts have it.
        operation: String,
    },
    /// What the file system said to an operation.
    #[error("operation {number}, '{operation}': {error}")]
    Refused {
        /// Its number, from 1 on.
        number: usize,
        /// The operation, as scripts have it.
        operation: String,
        /// Why.
        error: LayoutError,
    },
}

/// Runs operations on a mount of an image, which ends without an unmount. Once the mount is ready,
/// `watch` is given the root directory and what the blocks of the image are for, and names the
/// watcher.
///
/// # Errors
/// Where the image cannot be mounted; the first operation that fails, before which nothing is undone.
pub fn run_watched(
    image: &Fork,
    engine: Engine,
    operations: &[Operation],
    watch: impl FnOnce(InodeNumber, &Blocks) -> Arc<dyn Watcher>,
) -> Result<(), ScriptError> {
    let numbered = operations.iter().enumerate();
    let numbered = numbered.map(|(at, operation)| (at + 1, operation));
    if let Some((number, operation)) = numbered.clone().find(|(_, o)| ends_mount(o)) {
        return Err(ScriptError::EndsMount {
            number,
            operation: operation.to_string(),
        });
    }
    let image = prepared(image, operations, engine).map_err(ScriptError::NotMounted)?;
    let blocks = Blocks::of(&[&image]);
    let mut machine =
        Machine::new(image.clone(), engine, &mut Nobody).map_err(ScriptError::NotMounted)?;
    let watcher = watch(machine.mount.fs.root(), &blocks);
    machine.mount.store.watch(Some(watcher));
    for (number, operation) in numbered {
        let done = machine.apply(operation, &mut Nobody);
        let done = done.and_then(|()| machine.answer(operation, &mut Nobody));
        done.map_err(|error| ScriptError::Refused {
            number,
            operation: operation.to_string(),
            error,
        })?;
    }
    Ok(())
}

fn ends_mount(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Crash(_) | Operation::Cut | Operation::Remount(_)
    )
}
