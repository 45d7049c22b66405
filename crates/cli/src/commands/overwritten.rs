//! What is on a device that something is about to be made on.

use backstitch_device::{BlockDevice, DeviceError, FileDevice, signature};
use backstitch_files::error::{Error, Result};
use backstitch_files::size;
use std::path::Path;

/// What is there before something is made: it is lost only where that is asked for.
pub(super) struct Overwritten<'a> {
    /// The command.
    pub(super) what: &'static str,
    /// The file or disk.
    pub(super) path: &'a Path,
    /// What is made, in words.
    pub(super) made: &'static str,
    /// What is there is to be lost.
    pub(super) is_forced: bool,
    /// The names of what stays in any case.
    pub(super) kept: &'static [&'static str],
}

impl Overwritten<'_> {
    fn failed(&self, why: impl std::fmt::Display) -> Error {
        Error::at_path(self.what, self.path, why)
    }

    /// Refuses a device that holds something, unless that is to be lost. Somebody who has the file
    /// open for writing counts where there is something in it.
    pub(super) fn refuse(
        &self,
        device: &dyn BlockDevice,
        other_writer: Option<String>,
    ) -> Result<()> {
        if self.is_forced {
            return Ok(());
        }
        let failed = |error: DeviceError| self.failed(error);
        let refused = |why: String| {
            let made = self.made;
            let hint = format!("--force makes the {made} anyway; what is there is then lost");
            self.failed(why).hint(hint)
        };
        let mut found = signature::find(device).map_err(failed)?;
        found.retain(|found| !self.kept.contains(&found.signature.name));
        let names: Vec<&str> = found.iter().map(|found| found.signature.name).collect();
        if !names.is_empty() {
            let names = names.join(" and ");
            return Err(refused(format!("it holds {names}; nothing was changed")));
        }
        match other_writer {
            Some(who) if device.next_data(0).map_err(failed)?.is_some() => Err(refused(format!(
                "{who} has it open for writing; nothing was changed"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses to make a file shorter that holds something behind its new end, unless that is to be
    /// lost.
    pub(super) fn refuse_to_cut(&self, file: &FileDevice, size: u64) -> Result<()> {
        if self.is_forced || size >= file.size_bytes() {
            return Ok(());
        }
        let rest = file.next_data(size);
        match rest.map_err(|error| self.failed(error))? {
            None => Ok(()),
            Some(_) => {
                let why = format!(
                    "it has {}, and holds something behind the first {}; nothing was changed",
                    size::show(file.size_bytes()),
                    size::show(size)
                );
                let error = self.failed(why);
                Err(error.hint("--force cuts it off; what is there is then lost"))
            }
        }
    }

    /// Erases the signatures of what is to be lost, so that nobody takes what comes for it.
    pub(super) fn erase(&self, device: &dyn BlockDevice) -> Result<()> {
        if self.is_forced {
            let erased = signature::erase_but(device, self.kept);
            erased.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }
}
