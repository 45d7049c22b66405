//! Checking a UFS1 or UFS2 image, reading only.
//!
//! Works on `format` alone and shares nothing with the layout's write path, so that a fault in one
//! is not hidden by the other. The rules are those of FreeBSD's fsck_ffs(8); each finding is
//! classified by what soft updates may leave behind, which is what `fsck_ffs -p` repairs.
//!
//! # The passes
//!
//! 0. `superblock`, `groups`: the superblock, the copy in the last group, the groups' headers. What
//!    is wrong with the superblock may end the check, since all else depends on it. Where a group's
//!    header is damaged, its inodes are looked at as far as they look like inodes.
//! 1. `inodes`, with `pointers`: every inode, every pointer. Gathers which fragments are used, which
//!    inodes are in use and what they are, the blocks of directories.
//! 2. `directories`: every entry. Gathers who names what.
//! 3. `tree`: which directories hang together, and the link counts.
//! 4. `bitmaps`: each group's block against the one that its maps give, the maps against what is
//!    used, and the summaries.
//!
//! # Bounds
//!
//! Nothing on the image makes the check run or grow without end: every indirect block is followed
//! once and every directory block parsed once, for the first inode that claims it; findings are
//! limited; what is allocated depends on the device's size, inodes in use and directory blocks
//! only.

mod bitmaps;
mod directories;
mod groups;
mod inodes;
mod pointers;
pub(crate) mod state;
pub(crate) mod superblock;
mod tree;

use backstitch_device::BlockDevice;
use backstitch_layout::tools::{Findings, Summary};
use backstitch_ufs::format::Superblock;
use state::{Context, Gathered, Group};

pub(crate) use backstitch_layout::tools::tree::Names;

pub use backstitch_layout::tools::{
    CheckError, CheckOptions as Options, Code, DeviceSource, EXIT_CLEAN, EXIT_OPERATIONAL,
    EXIT_UNCORRECTED, Finding, Kind, Location, Report, SliceSource, Source,
};

/// Checks the UFS on a device. Writes nothing.
///
/// # Errors
/// [`CheckError::Format`] where it is none, or one with features that we cannot check;
/// [`CheckError::Device`] where reading fails. A damaged file system is no error but a report.
pub fn check(device: &dyn BlockDevice, options: &Options) -> Result<Report, CheckError> {
    check_source(&DeviceSource(device), options)
}

/// Checks a file system wherever its bytes are.
///
/// # Errors
/// As [`check`].
pub fn check_source<S: Source + ?Sized>(
    source: &S,
    options: &Options,
) -> Result<Report, CheckError> {
    Ok(survey(source, options)?.report)
}

/// A check's report and what it gathered, for the repair.
pub(crate) type Survey = backstitch_layout::tools::rounds::Survey<Facts>;

/// What a check knows of an image.
pub(crate) struct Facts {
    pub(crate) sb: Superblock,
    pub(crate) groups: Vec<Group>,
    pub(crate) gathered: Gathered,
    pub(crate) names: Names,
}

/// Checks, and keeps what was gathered.
pub(crate) fn survey<S: Source + ?Sized>(
    source: &S,
    options: &Options,
) -> Result<Survey, CheckError> {
    let mut findings = Findings::new(options.max_findings);
    let mut notes = Findings::new(options.max_findings);
    let Some(sb) = superblock::read(source, &mut findings)? else {
        let report = Report::new(findings, notes, Summary::default(), true);
        return Ok(Survey {
            report,
            facts: None,
        });
    };
    superblock::check(&sb, &mut findings);
    superblock::note_state(&sb, &mut notes);
    let mut context = Context::new(source, &sb);
    if options.check_backups {
        superblock::check_copy(&context, &mut findings)?;
    }
    context.groups = groups::read(&context, &mut findings)?;
    let gathered = inodes::scan(&context, &mut findings)?;
    let names = directories::scan(&context, &gathered, &mut findings)?;
    tree::check(&context, &gathered, &names, &mut findings);
    let summary = bitmaps::check(&context, &gathered, &mut findings)?;
    let groups = context.groups;
    Ok(Survey {
        report: Report::new(findings, notes, summary, false),
        facts: Some(Facts {
            sb,
            groups,
            gathered,
            names,
        }),
    })
}
