//! Loop devices, for foreign tools that need a block device.

use std::path::Path;

use crate::command::{run, tool};

/// A loop device over a file, detached when this is dropped.
#[derive(Debug)]
pub struct LoopDevice(String);

impl LoopDevice {
    /// Attaches one.
    ///
    /// # Panics
    ///
    /// If none can be attached.
    pub fn over(file: &Path) -> Self {
        let mut command = tool("losetup");
        let attached = run(command.args(["--find", "--show"]).arg(file)).expect_success();
        Self(attached.text().trim().to_owned())
    }

    /// Its name below `/dev`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(tool("losetup").arg("-d").arg(&self.0));
    }
}
