//! What a check is asked, and what it answers.

use backstitch_device::DeviceError;
use serde::Serialize;
use thiserror::Error;

use super::finding::{Finding, Findings, Kind};
use crate::FormatError;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The number of threads; where `None`, one for a small image and one per processor for a large
    /// one.
    pub threads: Option<usize>,
    /// Whether to look at the backups of superblock and descriptors.
    pub check_backups: bool,
    /// How many findings are kept; more are only counted.
    pub max_findings: usize,
}

impl CheckOptions {
    /// For small images of which many are checked, in a thread each.
    pub const QUICK: CheckOptions = CheckOptions {
        threads: Some(1),
        check_backups: false,
        max_findings: 1000,
    };
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            threads: None,
            check_backups: true,
            max_findings: 10_000,
        }
    }
}

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Inodes in use, the reserved ones included.
    pub used_inodes: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Blocks in use, the file system's own included.
    pub used_blocks: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub regular_files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Fifos, sockets and devices.
    pub special_files: u64,
}

/// What a check found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What is wrong, pass by pass.
    pub findings: Vec<Finding>,
    /// What is worth knowing but no fault in the eyes of `e2fsck -fn`: not unmounted, backups that
    /// differ, free counters of the superblock that differ from the descriptors'.
    pub notes: Vec<Finding>,
    /// How many findings were left out, beyond [`CheckOptions::max_findings`].
    pub omitted: u64,
    /// The worst kind among those left out.
    pub worst_omitted: Option<Kind>,
    /// Whether the check ended before its last pass, since superblock or descriptors cannot be
    /// trusted.
    pub ended_early: bool,
    /// What was counted.
    pub summary: Summary,
}

/// fsck(8)'s exit status: nothing is wrong.
pub const EXIT_CLEAN: i32 = 0;
/// fsck(8)'s exit status: errors were left as they are.
pub const EXIT_UNCORRECTED: i32 = 4;
/// fsck(8)'s exit status: the check could not be done.
pub const EXIT_OPERATIONAL: i32 = 8;

impl Report {
    /// What a check comes to. `ended_early`: it could not go on to its last pass.
    pub fn new(findings: Findings, notes: Findings, summary: Summary, ended_early: bool) -> Report {
        Report {
            findings: findings.list,
            notes: notes.list,
            omitted: findings.omitted,
            worst_omitted: findings.worst_omitted,
            ended_early,
            summary,
        }
    }

    /// Whether nothing is wrong, as `e2fsck -fn` sees it.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.omitted == 0
    }

    /// The worst kind found; `None` where the image is clean.
    pub fn worst(&self) -> Option<Kind> {
        self.findings
            .iter()
            .map(|finding| finding.kind)
            .max()
            .max(self.worst_omitted)
    }

    /// Whether soft updates may leave the image like this: nothing but leaks and counts.
    pub fn is_consistent(&self) -> bool {
        self.worst() != Some(Kind::Corruption)
    }

    /// How many findings of a kind were kept.
    pub fn count(&self, kind: Kind) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.kind == kind)
            .count()
    }

    /// fsck(8)'s exit status for a check that repairs nothing.
    pub fn exit_status(&self) -> i32 {
        if self.is_clean() {
            EXIT_CLEAN
        } else {
            EXIT_UNCORRECTED
        }
    }
}

/// Why an image could not be checked at all.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CheckError {
    /// Not a file system, or one with features that change what is right and wrong.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
