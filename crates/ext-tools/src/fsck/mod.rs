//! Checking an ext2 image, reading only.
//!
//! Works on `format` alone and shares nothing with the layout's write path, so that a fault in one
//! is not hidden by the other. The verdict, *clean or not*, is that of `e2fsck -fn`'s exit status;
//! each finding is classified by what soft updates may leave behind. Where e2fsck's own status
//! contradicts what it prints, or it does not look:
//!
//! * free counters of the superblock alone, the clean flag, and pointers of the resize inode to
//!   wrong but existing blocks are notes here, since e2fsck's status is 0;
//! * a resize inode that does not fit its feature, and a name that is in two blocks of one
//!   directory, are findings here.
//!
//! # The passes
//!
//! 0. `superblock`: superblock, descriptors, resize inode. What is wrong here may end the check,
//!    since all else depends on it.
//! 1. `inodes`, with `blocks` and `attributes`: every inode, every block pointer. Gathers which
//!    blocks are used, which inodes are in use and what they are, the blocks of directories, the
//!    users of attribute blocks.
//! 2. `directories`, with `index`: every directory entry. Gathers which directory names which
//!    inode.
//! 3. `tree`: which directories can be reached from the root, and the link counts.
//! 4. `bitmaps`: what is marked against what is used, and the counters.
//!
//! Passes 1 and 2 are split over threads where the image is large. Each thread has its own findings
//! and its own bitmap, joined in the order of the inodes, so that the report does not depend on the
//! number of threads.
//!
//! # Bounds
//!
//! Nothing on the image makes the check run or grow without end: every indirect block is followed
//! once and every directory block parsed once, for the first inode that claims it; findings are
//! limited; what is allocated depends on the numbers of blocks, inodes in use and directory blocks
//! only.

mod attributes;
mod bitmaps;
mod blocks;
pub(crate) mod directories;
mod index;
mod inodes;
pub(crate) mod journal;
pub(crate) mod kinds;
mod reserved;
pub(crate) mod state;
pub(crate) mod superblock;
mod tree;

pub(crate) use attributes::block_fault;
use backstitch_device::BlockDevice;
use backstitch_ext::format::GroupDescriptor;
use backstitch_ext::format::superblock::Superblock;
use state::{Context, Gathered, InodeInfo};
use std::sync::atomic::Ordering;

pub(crate) use backstitch_layout::tools::tree::Names;

pub use backstitch_layout::tools::{
    CheckError, CheckOptions as Options, Code, DeviceSource, EXIT_CLEAN, EXIT_OPERATIONAL,
    EXIT_UNCORRECTED, Finding, Kind, Location, Report, SliceSource, Source,
};
use backstitch_layout::tools::{Findings, Summary};

/// Checks the ext2 file system on a device. Writes nothing.
///
/// # Errors
///
/// [`CheckError::Format`] where it is none, or one with features that we cannot check;
/// [`CheckError::Device`] where reading fails. A damaged file system is no error but a report.
pub fn check(device: &dyn BlockDevice, options: &Options) -> Result<Report, CheckError> {
    check_source(&DeviceSource(device), options)
}

/// Checks a file system wherever its bytes are.
///
/// # Errors
///
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
    pub(crate) groups: Vec<GroupDescriptor>,
    pub(crate) gathered: Gathered,
    pub(crate) names: Names,
}

impl Facts {
    /// Inodes in use that some directory has a name for.
    pub(crate) fn named_inodes(&self) -> u64 {
        let infos = self.gathered.inodes.iter().flatten().flatten();
        let named = |info: &&InodeInfo| info.is_used && info.names.load(Ordering::Relaxed) > 0;
        infos.filter(named).count() as u64
    }
}

/// Checks, and keeps what was gathered.
pub(crate) fn survey<S: Source + ?Sized>(
    source: &S,
    options: &Options,
) -> Result<Survey, CheckError> {
    let mut findings = Findings::new(options.max_findings);
    let mut notes = Findings::new(options.max_findings);
    let Some(sb) = superblock::read(source, &mut findings)? else {
        return Ok(ended_early(findings, notes));
    };
    let Some(groups) = superblock::read_groups(source, &sb, &mut findings)? else {
        return Ok(ended_early(findings, notes));
    };
    let mut context = Context::new(source, &sb, &groups, options);
    superblock::note_state(&sb, &mut notes);
    if options.check_backups {
        superblock::check_backups(&context, &mut notes)?;
    }
    context.resize_blocks = reserved::check_resize_inode(&context, &mut findings, &mut notes)?;
    journal::check(&context, &mut findings, &mut notes)?;
    let mut gathered = inodes::scan(&context, &mut findings)?;
    attributes::check_blocks(&context, &mut gathered, &mut findings, &mut notes)?;
    let names = directories::scan(&context, &gathered, &mut findings)?;
    superblock::check_large_file(&sb, gathered.has_large_file, &mut findings);
    tree::check(&context, &gathered, &names, &mut findings);
    let summary = bitmaps::check(&context, &gathered, &mut findings, &mut notes)?;
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

fn ended_early(findings: Findings, notes: Findings) -> Survey {
    Survey {
        report: Report::new(findings, notes, Summary::default(), true),
        facts: None,
    }
}
