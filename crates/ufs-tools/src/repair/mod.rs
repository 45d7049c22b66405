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
//! The rounds are those of all layouts ([`Rounds`]). What is left where a repair does not help is
//! reported, and the image is marked as damaged.
//!
//! # Two kinds of repair
//!
//! *Preening* takes what soft updates may leave, and nothing else: where there is corruption it
//! changes nothing, as `fsck_ffs -p`. An image is *trusted* where a crash left it under a mechanism
//! that keeps order: a mount of ours with one, or FreeBSD's soft updates. Then what has no name never was promised to
//! anybody, or was removed, and is cleared. Elsewhere it goes to `lost+found`. What lost its last name
//! before a crash under such a mechanism is cleared even where there is damage as well: what it leads
//! to need never have been written.
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

use crate::fsck::{self, CheckError, Code, Facts, Finding, Report, Survey};
use backstitch_device::BlockDevice;
use backstitch_layout::FormatError;
use backstitch_layout::tools::rounds::{self, Rounds};
use backstitch_layout::tools::{Overlay, RepairLog as Log};
use fixer::Fixer;

pub use backstitch_layout::tools::{
    Location, Losses, Mode, Outcome, Repair, RepairOptions as Options,
};

/// Changes are kept and written in this unit: no fragment is smaller.
const UNIT_BYTES: usize = 512;

/// Repairs the UFS on a device. Nothing is written before all is worked out and checked.
///
/// # Errors
/// [`CheckError::Format`] where it is none and no copy says otherwise, or where it has what we
/// cannot write; [`CheckError::Device`] where reading or writing fails. What cannot be repaired is
/// no error but told in the outcome.
pub fn repair(device: &dyn BlockDevice, options: &Options) -> Result<Outcome, CheckError> {
    let mut image = Overlay::new(device, UNIT_BYTES);
    let mut log = Log::default();
    let (before, mut facts) = match fsck::survey(&image, &options.check) {
        Ok(survey) => (Ok(survey.report), survey.facts),
        Err(error) => (Err(error), None),
    };
    let is_damaged = !before.as_ref().is_ok_and(Report::is_consistent);
    let is_settled = before.as_ref().is_ok_and(is_at_rest);
    if options.mode == Mode::Preen {
        let report = before?;
        let settled = match is_damaged || !may_preen(&image, &report)? {
            true => None,
            false => {
                if !is_settled {
                    superblock::upgrade(&mut image, &mut log)?;
                }
                Some(repair_in_rounds(&mut image, &mut log, options, false)?.0)
            }
        };
        let after = settled.map(|survey| survey.report);
        return Outcome::written(image, log, Some(report), after, None);
    }
    let is_unreadable = before.as_ref().map_or(true, |report| report.ended_early);
    if is_unreadable && !superblock::restore(&mut image, &mut log)? {
        // Nothing tells what this is, or was.
        let report = before?;
        return Outcome::written(image, log, Some(report.clone()), Some(report), None);
    }
    refuse_unwritable(&image)?;
    if !is_settled && superblock::upgrade(&mut image, &mut log)? {
        facts = fsck::survey(&image, &options.check)?.facts;
    }
    // Whatever was found, a wrong number in the superblock may be behind it.
    let is_weighed = !is_settled && superblock::weigh(&mut image, &mut log)?;
    if is_weighed {
        // What was gathered by a superblock that is not believed counts for nothing.
        facts = None;
    }
    let is_damaged = is_damaged || is_weighed;
    let start = image.fork();
    if is_damaged {
        if let Some(facts) = facts.filter(|facts| facts.sb.is_left_in_order()) {
            Fixer::new(&mut image, &mut log, &facts, options.now_seconds, false).clear_dead()?;
        }
        // From here on nothing tells any more that those were dead.
        superblock::mark_damaged(&mut image)?;
    }
    let (settled, rounds) = repair_in_rounds(&mut image, &mut log, options, is_damaged)?;
    let losses = match (is_damaged, &settled.facts) {
        (true, Some(after)) => {
            rounds::losses(&rounds, &start, (&image, after), &log, &options.check)?
        }
        _ => None,
    };
    Outcome::written(image, log, before.ok(), Some(settled.report), losses)
}

/// What we can check but not change.
fn refuse_unwritable(image: &Overlay<'_>) -> Result<(), CheckError> {
    let sb = fsck::superblock::find(image)?;
    let is_too_old = sb.is_old && sb.upgraded().is_none();
    let features = match (is_too_old, sb.raw.fs_snapinum[0] != 0) {
        (true, _) => "a superblock from before UFS2",
        (_, true) => "snapshots",
        (false, false) => return Ok(()),
    };
    let features = features.to_owned();
    Err(FormatError::Incompatible { features }.into())
}

/// Whether a check found nothing at all.
fn is_at_rest(report: &Report) -> bool {
    report.is_clean() && report.notes.is_empty()
}

/// Whether preening can do all that is needed: what has no name can only be cleared where the image
/// is trusted.
fn may_preen(image: &Overlay<'_>, report: &Report) -> Result<bool, CheckError> {
    if refuse_unwritable(image).is_err() {
        return Ok(is_at_rest(report));
    }
    let sb = fsck::superblock::find(image)?;
    Ok(report.may_preen(sb.is_left_in_order()))
}

/// Repairs until nothing is left, or nothing helps.
fn repair_in_rounds(
    image: &mut Overlay<'_>,
    log: &mut Log,
    options: &Options,
    is_damaged: bool,
) -> Result<(Survey, UfsRounds), CheckError> {
    let mut rounds = UfsRounds {
        now_seconds: options.now_seconds,
        // Before the first step changes the superblock.
        is_trusted: !is_damaged && fsck::superblock::find(image)?.is_left_in_order(),
    };
    let survey = rounds::repair_in_rounds(&mut rounds, image, log)?;
    Ok((survey, rounds))
}

/// What this layout does in the rounds.
struct UfsRounds {
    now_seconds: u32,
    /// Whether the image is what soft updates left.
    is_trusted: bool,
}

impl Rounds for UfsRounds {
    type Facts = Facts;

    fn survey(&self, image: &Overlay<'_>, options: &fsck::Options) -> Result<Survey, CheckError> {
        fsck::survey(image, options)
    }

    fn round(
        &mut self,
        image: &mut Overlay<'_>,
        log: &mut Log,
        facts: &Facts,
        findings: &[Finding],
    ) -> Result<(), CheckError> {
        Fixer::new(image, log, facts, self.now_seconds, self.is_trusted).round(findings)
    }

    fn finish(
        &mut self,
        image: &mut Overlay<'_>,
        log: &mut Log,
        facts: &Facts,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        superblock::finish(image, log, &facts.sb, report, self.now_seconds)?;
        report.notes.clear();
        Ok(())
    }

    fn losses(
        &self,
        before: (&Overlay<'_>, &Facts),
        after: (&Overlay<'_>, &Facts),
    ) -> Result<Losses, CheckError> {
        losses::compare(before, after)
    }
}

/// The step that a finding is for: lower ones first.
fn step_of(finding: &Finding) -> Step {
    use Code::*;
    match finding.code {
        FieldNotZero if finding.location.inode.is_none() => Step::Superblock,
        SuperblockCorrupt
        | SuperblockField
        | SuperblockContradicted
        | UpgradeUnfinished
        | BackupDiffers => Step::Superblock,
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
