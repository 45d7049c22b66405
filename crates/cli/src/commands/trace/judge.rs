//! What the page of `trace serve` asks of file systems: the image that a recording began with, and
//! what a check and a mount find of a state.

use super::COMMAND;
use crate::commands::fsck;
use backstitch_device::{BlockDevice, OverlayDevice};
use backstitch_files::error::Result;
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::listing::{Listed, listing};
use backstitch_layout::tools::CheckOptions;
use backstitch_trace_page::{Devices, Judge, Judgement};
use backstitch_vfs::FileType;
use std::path::{Path, PathBuf};

/// Lines of a check that are told.
const MOST_FINDINGS: usize = 40;
/// Paths that are told.
const MOST_PATHS: usize = 120;

/// The tools of all layouts.
pub(super) struct ByTools {
    /// The image as it was when the recording began.
    pub(super) image: Option<PathBuf>,
    /// The same of its log's device, where it has one of its own.
    pub(super) log: Option<PathBuf>,
}

impl ByTools {
    /// Opens what was named.
    pub(super) fn open(&self) -> Result<Option<Devices>> {
        let options = DeviceOptions {
            read_only: true,
            ..DeviceOptions::default()
        };
        let open = |path: &PathBuf| open_device(COMMAND, path, options);
        let Some(image) = self.image.as_ref().map(open).transpose()? else {
            return Ok(None);
        };
        let log = self.log.as_ref().map(open).transpose()?;
        // Where there is no log it does not matter, and what cannot be mounted is said of each state.
        let layout = backstitch_formats::of(&*image).layout();
        let block_bytes = layout.block_bytes(&*image).unwrap_or(1);
        Ok(Some(Devices {
            image,
            log,
            block_bytes,
        }))
    }
}

impl Judge for ByTools {
    fn beginning(&self) -> std::result::Result<Option<Devices>, String> {
        self.open().map_err(|error| error.line().to_owned())
    }

    fn judge(&self, state: &Devices) -> Judgement {
        let name = Path::new("the state");
        let options = CheckOptions {
            max_findings: MOST_FINDINGS,
            ..CheckOptions::QUICK
        };
        // Both bring a log home in memory only: each for itself.
        let log = state.log.clone().map(OverlayDevice::new);
        let log = log.as_ref().map(|log| log as &dyn BlockDevice);
        let check = match fsck::examine(&state.image, name, log, &options) {
            Ok(report) => fsck::report_text("fsck", &report),
            Err(error) => error.line().to_owned(),
        };
        let found = listing(
            COMMAND,
            name,
            (state.image.clone(), state.log.clone()),
            MOST_PATHS,
        );
        Judgement {
            check: check.lines().map(str::to_owned).collect(),
            more_paths: found.count - found.listed.len(),
            tree: found.listed.iter().map(line).collect(),
            tree_error: found.error.map(|error| error.line().to_owned()),
        }
    }
}

fn line(of: &Listed) -> String {
    let kind = match of.file_type {
        FileType::Directory => "d",
        FileType::Regular => "-",
        FileType::Symlink => "l",
        _ => "other",
    };
    let mut path = String::new();
    for c in String::from_utf8_lossy(&of.path).chars() {
        match c.is_control() {
            true => path.extend(c.escape_default()),
            false => path.push(c),
        }
    }
    let names = match (of.links, of.file_type) {
        (1, _) | (_, FileType::Directory) => String::new(),
        (links, _) => format!(", {links} names"),
    };
    format!("{kind} {path} ({} bytes{names})", of.size_bytes)
}
