//! Signals to end (such as Ctrl-C), for commands that change something and can say where they
//! stopped.

use crate::error::{Error, Result, host};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the command was asked to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first such signal is only noted; the second one kills.
    pub fn catch(what: &str) -> Result<Interrupt> {
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_default(signal, told.clone())
                .and_then(|_| signal_hook::flag::register(signal, told.clone()))
                .map_err(|error| Error::failed(what, "signals", host(&error)))?;
        }
        Ok(Interrupt(told))
    }

    /// Whether a signal came.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
