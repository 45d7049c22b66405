//! Repairing an image off line, from the same facts as the check.
//!
//! # How
//!
//! The check runs over the device with the changes made so far in front of it
//! ([`Overlay`]); what it finds and what it gathered decide the
//! next step, the most basic damage first, and then it runs again:
//!
//! 1. `superblock`: the superblock, from a group's copy where it cannot be read, and its fields;
//! 2. `groups`: headers of groups that cannot be read;
//! 3. `inodes`, `pointers`: each inode by itself, every fragment to one owner;
//! 4. `directories`: entries;
//! 5. `tree`, `lost`: who contains what, and what nobody contains;
//! 6. `inodes`: links and sectors;
//! 7. `groups`: what is marked, and everything that is counted.
//!
//! So no step works with what another one has made untrue, and the last check, which finds nothing,
//! is the proof. A bound on the number of rounds ends it where a repair does not help; what is left
//! is then reported, and the image is marked as damaged.
//!
//! # Two kinds of repair
//!
//! *Preening* takes what soft updates may leave, and nothing else: where there is corruption it
//! changes nothing, as `fsck_ffs -p`. An image is *trusted* where a crash left it under a mechanism
//! that keeps order: a mount of ours with one, or FreeBSD's soft updates. Then what has no name never was promised to
//! anybody, or was removed, and is cleared. Elsewhere it goes to `lost+found`.
//!
//! # A crash in the middle
//!
//! Nothing is written before the last check. What is written goes out step by step, a flush after
//! each, in the order above, in which soft updates could have written it; so a preened image stays
//! what it was, and can be preened again. Repairing corruption first marks the image as damaged, so
//! that nobody trusts it before it is finished. The clean mark is the last write of all.

mod directories;
mod fixer;
mod groups;
mod inodes;
mod losses;
mod lost;
mod pointers;
mod raw;
mod superblock;
mod tree;

use crate::fsck::{self, CheckError, Code, Finding, Report, Survey};
use backstitch_device::BlockDevice;
use backstitch_layout::FormatError;
use backstitch_layout::tools::{Overlay, RepairLog as Log};
use fixer::Fixer;

pub use backstitch_layout::tools::{
    Location, Losses, Mode, Outcome, Repair, RepairOptions as Options,
};

/// More rounds than any damage needs, each of which settles a kind of it.
const MAX_ROUNDS: usize = 60;
/// Changes are kept and written in this unit: no fragment is smaller.
const UNIT_BYTES: usize = 512;
/// A round repairs this many findings; more come in the next one.
const MAX_FINDINGS: usize = 200_000;

/// Repairs the UFS on a device. Nothing is written before all is worked out and checked.
///
/// # Errors
/// [`CheckError::Format`] where it is none and no copy says otherwise, or where it has what we
/// cannot write; [`CheckError::Device`] where reading or writing fails. What cannot be repaired is
/// no error but told in the outcome.
pub fn repair(device: &dyn BlockDevice, options: &Options) -> Result<Outcome, CheckError> {
    let mut image = Overlay::new(device, UNIT_BYTES);
    let mut log = Log::default();
    let before = fsck::check_source(&image, &options.check);
    let is_damaged = !before.as_ref().is_ok_and(Report::is_consistent);
    if options.mode == Mode::Preen {
        let report = before?;
        let settled = match is_damaged || !may_preen(&image, &report)? {
            true => None,
            false => Some(settle(&mut image, &mut log, options, false)?),
        };
        return finish(image, log, Some(report), settled.map(|s| s.report), None);
    }
    let is_unreadable = before.as_ref().map_or(true, |report| report.ended_early);
    if is_unreadable && !superblock::restore(&mut image, &mut log)? {
        // Nothing tells what this is, or was.
        let report = before?;
        return finish(image, log, Some(report.clone()), Some(report), None);
    }
    refuse_unwritable(&image)?;
    let start = image.fork();
    if is_damaged {
        superblock::mark_damaged(&mut image)?;
    }
    let settled = settle(&mut image, &mut log, options, is_damaged)?;
    let mut losses = None;
    if let (true, Some(after)) = (is_damaged, &settled.facts) {
        let before = fsck::survey(&start, &options.check)?.facts;
        if let Some(before) = before {
            losses = Some(Losses {
                pointers_cleared: log.pointers_cleared,
                ..losses::compare((&start, &before), (&image, after))?
            });
        }
    }
    finish(image, log, before.ok(), Some(settled.report), losses)
}

/// Writes what was worked out, step by step, each stable before the next one.
fn finish(
    image: Overlay<'_>,
    log: Log,
    before: Option<Report>,
    after: Option<Report>,
    losses: Option<Losses>,
) -> Result<Outcome, CheckError> {
    if image.is_changed() {
        image.commit()?;
    }
    Ok(Outcome {
        before,
        repairs: log.list,
        omitted: log.omitted,
        after,
        losses,
    })
}

/// What we can check but not change.
fn refuse_unwritable(image: &Overlay<'_>) -> Result<(), CheckError> {
    let sb = fsck::superblock::find(image)?;
    let features = match (sb.is_old, sb.raw.fs_snapinum[0] != 0) {
        (true, _) => "a superblock from before UFS2",
        (_, true) => "snapshots",
        (false, false) => return Ok(()),
    };
    let features = features.to_owned();
    Err(FormatError::Incompatible { features }.into())
}

/// Whether preening can do all that is needed: what has no name can only be cleared where the image
/// is trusted.
fn may_preen(image: &Overlay<'_>, report: &Report) -> Result<bool, CheckError> {
    if refuse_unwritable(image).is_err() {
        return Ok(report.is_clean());
    }
    let is_unnamed = |code| matches!(code, Code::UnconnectedInode | Code::UnconnectedDirectory);
    let has_unnamed = report
        .findings
        .iter()
        .any(|finding| is_unnamed(finding.code));
    let sb = fsck::superblock::find(image)?;
    Ok(report.omitted == 0 && (!has_unnamed || sb.is_left_in_order()))
}

/// Repairs until nothing is left, or nothing helps.
fn settle(
    image: &mut Overlay<'_>,
    log: &mut Log,
    options: &Options,
    is_damaged: bool,
) -> Result<Survey, CheckError> {
    let check = fsck::Options {
        threads: Some(1),
        check_backups: true,
        max_findings: MAX_FINDINGS,
    };
    // Before the first step changes the superblock.
    let is_trusted = !is_damaged && fsck::superblock::find(image)?.is_left_in_order();
    for _ in 0..MAX_ROUNDS {
        let mut survey = fsck::survey(image, &check)?;
        let (report, Some(facts)) = (&mut survey.report, &survey.facts) else {
            return Ok(survey);
        };
        if report.is_clean() {
            superblock::finish(image, log, &facts.sb, report, options.now_seconds)?;
            report.notes.clear();
            return Ok(survey);
        }
        let known = log.len();
        let mut fixer = Fixer::new(image, log, facts, options.now_seconds, is_trusted);
        fixer.round(&report.findings)?;
        image.barrier();
        if log.len() == known {
            return Ok(survey);
        }
    }
    fsck::survey(image, &check)
}

/// The step that a finding is for: lower ones first.
fn step_of(finding: &Finding) -> Step {
    use Code::*;
    match finding.code {
        FieldNotZero if finding.location.inode.is_none() => Step::Superblock,
        SuperblockCorrupt | SuperblockField | BackupDiffers => Step::Superblock,
        GroupHeaderCorrupt | InodeNotInitialised => Step::Groups,
        RootInvalid | ModeInvalid | FieldNotZero | SpecialFileInvalid | SymlinkInvalid
        | XattrInodeInvalid => Step::Inodes,
        SizeInvalid => Step::Sizes,
        BlockOutOfRange | BlockInMetadata | BlockClaimedTwice | PointerPastEnd
        | SizeBelowMapped => Step::Pointers,
        DirectoryEmpty | DirectoryHole => Step::Holes,
        EntryCorrupt | DotInvalid | DotDotInvalid | EntryInodeInvalid | EntryToFreeInode
        | EntryNameInvalid | EntryTypeWrong | EntryDuplicate => Step::Entries,
        DirectoryTwoNames | DirectoryManyNames | DotDotWrong | DirectoryCycle => Step::Names,
        UnconnectedDirectory | UnconnectedInode => Step::Unconnected,
        LinksTooHigh | LinksTooLow | BlockCountWrong => Step::Counts,
        // What is left are maps and counts, and what only other layouts have.
        _ => Step::Bitmaps,
    }
}

/// What a round is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Superblock,
    Groups,
    Inodes,
    Sizes,
    Pointers,
    Holes,
    Entries,
    Names,
    Unconnected,
    Counts,
    Bitmaps,
}
