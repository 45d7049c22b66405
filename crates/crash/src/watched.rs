//! Runs a script on a mount for a watcher of the store: nothing crashes, nothing is judged.
//!
//! The script says what is written when (`round`, `fsync`, `sync`, `log-close`), and each operation
//! takes one step of time. So the same script shows its watcher the same every time.

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
    /// The image cannot be mounted.
    #[error("the image cannot be mounted: {0}")]
    NotMounted(LayoutError),
    /// An operation would end the mount.
    #[error("operation {number}, '{operation}', ends the mount, and one mount is watched")]
    EndsMount {
        /// Its number, from 1 on.
        number: usize,
        /// The operation, as scripts write it.
        operation: String,
    },
    /// The file system answered an operation with an error.
    #[error("operation {number}, '{operation}': {error}")]
    Refused {
        /// Its number, from 1 on.
        number: usize,
        /// The operation, as scripts write it.
        operation: String,
        /// Why.
        error: LayoutError,
    },
}

/// Runs operations on a mount of an image, and ends without an unmount. When the mount is ready,
/// `watch` is called with the root directory, the uses of the image's blocks and their contents at
/// that moment, and returns the watcher.
///
/// # Errors
/// If the image cannot be mounted, or an operation fails. What was done before that is not undone.
pub fn run_watched(
    image: &Fork,
    engine: Engine,
    operations: &[Operation],
    watch: impl FnOnce(InodeNumber, &Blocks, &Fork) -> Arc<dyn Watcher>,
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
    let watcher = watch(machine.mount.fs.root(), &blocks, &machine.mount.fork());
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
