//! The kernel's switch for FUSE over io_uring.

use std::fs;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch as a test wants it, for as long as this lives. Whoever has a scratch directory is the
/// only one to turn it.
#[derive(Debug)]
pub struct Switch {
    before: String,
}

impl Switch {
    /// Turns it on or off.
    ///
    /// # Panics
    ///
    /// If there is none, or the caller is not root.
    pub fn turned(on: bool) -> Switch {
        let before = fs::read_to_string(SWITCH).expect("no switch");
        fs::write(SWITCH, if on { "Y" } else { "N" }).expect("cannot turn the switch");
        Switch { before }
    }

    /// Whether there is one.
    pub fn exists() -> bool {
        fs::metadata(SWITCH).is_ok()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // It stays as it is for whoever has turned it before.
        let _ = fs::write(SWITCH, &self.before);
    }
}
