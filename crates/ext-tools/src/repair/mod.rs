//! Repairing an image off line, from the same facts as the check.
//!
//! # How
//!
//! The check runs over the device with the changes made so far in front of it (`overlay`); what it
//! finds and what it gathered decide the next step, the most basic damage first, and then it runs
//! again:
//!
//! 1. `prepare`, `superblock`: the superblock and the descriptors, from their backups where they
//!    are better;
//! 2. `inodes`, `pointers`, `attributes`: each inode by itself, every block to one owner;
//! 3. `directories`: entries;
//! 4. `tree`: who contains what, and what nobody contains;
//! 5. `counts`: links, block counts, users of attribute blocks;
//! 6. `bitmaps`: what is marked, and the counters.
//!
//! So no step works with what another one has made untrue, and the last check, which finds nothing,
//! is the proof. A bound on the number of rounds ends it where a repair does not help; what is left
//! is then reported, and the image is marked as damaged.
//!
//! # Two kinds of repair
//!
//! *Preening* takes what soft updates may leave, and nothing else: where there is corruption it
//! changes nothing. An image is *trusted* where the record of its last mount matches
//! ([`MountRecord`](backstitch_ext::format::MountRecord)). Then what has no name never was promised
//! to anybody, or was removed, and is cleared; and where blocks are mapped behind a file's size the
//! size is right, since a file that grows gets its size last and one that shrinks gets it first.
//! Elsewhere those blocks are kept and the size is raised, and what has no name goes to
//! `lost+found`.
//!
//! # A crash in the middle
//!
//! Nothing is written before the last check. What is written goes out step by step, a flush after
//! each: names, then inodes and pointers, then counts, then bits, which is an order in which soft
//! updates could have written them; so a preened image stays what it was, and can be preened again.
//! Repairing corruption first marks the image as damaged, so that nobody trusts it before it is
//! finished. The clean mark is the last write of all.

mod attributes;
mod bitmaps;
mod counts;
mod directories;
mod entries;
mod fixer;
mod inodes;
mod journal;
mod losses;
mod lost;
mod pointers;
mod prepare;
mod replay;
mod superblock;
mod tree;
mod trials;

use crate::fsck::{self, CheckError, Code, Report, Survey};
use backstitch_device::BlockDevice;
use backstitch_ext::format::superblock::{STATE_ERROR, STATE_VALID};
use backstitch_ext::format::{FormatError, Superblock};
use fixer::Fixer;

pub use backstitch_layout::tools::{
    Location, Losses, Mode, Outcome, Repair, RepairOptions as Options,
};
use backstitch_layout::tools::{Overlay, RepairLog as Log};
pub(crate) use replay::{give_up_replay, lacks_its_journal, superblocks_for_replay};

/// More rounds than any damage needs, each of which settles a kind of it.
const MAX_ROUNDS: usize = 60;
/// Changes are kept and written in this unit: no block is smaller, and the superblock is one.
const UNIT_BYTES: usize = 1024;
/// A round repairs this many findings; more come in the next one.
const MAX_FINDINGS: usize = 200_000;

/// Repairs the ext2 file system on a device. Nothing is written before all is worked out and
/// checked.
///
/// # Errors
///
/// [`CheckError::Format`] where it is none and no backup says otherwise, or where it has features
/// that we cannot write; [`CheckError::Device`] where reading or writing fails. What cannot be
/// repaired is no error but told in the outcome.
pub fn repair(device: &dyn BlockDevice, options: &Options) -> Result<Outcome, CheckError> {
    let mut image = Overlay::new(device, UNIT_BYTES);
    let before = fsck::check_source(&image, &options.check);
    let is_damaged = !before.as_ref().is_ok_and(Report::is_consistent);
    let mut log = Log::default();
    if options.mode == Mode::Preen {
        let report = before?;
        let settled = match is_damaged || !may_preen(&image, &report)? {
            true => None,
            false => Some(settle(&mut image, &mut log, options, false)?),
        };
        return finish(image, log, Some(report), settled.map(|s| s.report), None);
    }
    if is_damaged {
        let error = before.as_ref().err();
        prepare::choose(&mut image, &mut log, error, options.guess_geometry)?;
    }
    match superblock::parse(&image) {
        Err(error @ CheckError::Format(FormatError::Incompatible { .. })) => return Err(error),
        Err(error @ CheckError::Device(_)) => return Err(error),
        // What is left of it is told in the report.
        Ok(_) | Err(CheckError::Format(_)) => {}
    }
    let start = image.fork();
    if is_damaged {
        superblock::mark_damaged(&mut image)?;
    }
    let settled = settle(&mut image, &mut log, options, is_damaged)?;
    if settled.facts.is_none() {
        // What cannot be read to the end stays as it is.
        (image, log) = (Overlay::new(device, UNIT_BYTES), Log::default());
    }
    let mut losses = None;
    if let (true, Some(after)) = (is_damaged, &settled.facts) {
        let before = fsck::survey(&start, &options.check)?.facts;
        if let Some(before) = before {
            let compared = losses::compare((&start, &before), (&image, after))?;
            losses = Some(Losses {
                pointers_cleared: log.pointers_cleared,
                ..compared
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

/// Whether preening can do all that is needed: what has no name can only be cleared where the image
/// is trusted.
fn may_preen(image: &Overlay<'_>, report: &Report) -> Result<bool, CheckError> {
    let is_unnamed = |code| matches!(code, Code::UnconnectedInode | Code::UnconnectedDirectory);
    let has_unnamed = report
        .findings
        .iter()
        .any(|finding| is_unnamed(finding.code));
    let sb = superblock::parse(image)?;
    Ok(report.omitted == 0 && (!has_unnamed || is_trusted(&sb)))
}

/// Whether a crash left the image under a mechanism that keeps order, and nobody had it since.
fn is_trusted(sb: &Superblock) -> bool {
    let is_unclean = sb.state & (STATE_VALID | STATE_ERROR) == 0;
    is_unclean
        && sb.record.is_some_and(|record| {
            record.mechanism.is_trusted() && record.matches(sb.mtime, sb.mount_count)
        })
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
    let is_trusted = !is_damaged && superblock::parse(image).is_ok_and(|sb| is_trusted(&sb));
    let mut may_lack_lost_and_found = is_damaged;
    for _ in 0..MAX_ROUNDS {
        let mut survey = fsck::survey(image, &check)?;
        let (report, Some(facts)) = (&mut survey.report, &survey.facts) else {
            return Ok(survey);
        };
        let known = log.len();
        if report.is_clean() && std::mem::take(&mut may_lack_lost_and_found) {
            let mut fixer = Fixer::new(image, log, facts, options.now_seconds, is_trusted);
            fixer.lost_and_found()?;
            superblock::clear_uninitialised(image, log, &facts.sb)?;
            image.barrier();
            if log.len() != known {
                continue;
            }
        }
        if report.is_clean() {
            superblock::finish(image, log, facts, report, options.now_seconds)?;
            report
                .notes
                .retain(|note| !superblock::is_settled(note.code));
            return Ok(survey);
        }
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
fn step_of(code: Code) -> Step {
    use Code::*;
    match code {
        SuperblockCorrupt
        | SuperblockField
        | DescriptorCorrupt
        | DescriptorFlags
        | LargeFileFeatureMissing
        | ResizeInodeInvalid
        | NotUnmounted
        | ErrorsRecorded
        | BackupDiffers => Step::Superblock,
        RootInvalid | ReservedInodeInvalid | ModeInvalid | LooksLikeDirectory | FieldNotZero
        | FlagInvalid | TimeInvalid | ExtraSizeInvalid | DeletionTimeSet | DeletionTimeMissing
        | DeletionTimeLow | SpecialFileInvalid | SymlinkInvalid | XattrInodeInvalid => Step::Inodes,
        BlockOutOfRange | BlockInMetadata | BlockClaimedTwice | XattrBlockInvalid => Step::Blocks,
        JournalInvalid => Step::Journal,
        DirectoryEmpty | DirectoryHole => Step::Holes,
        SizeInvalid | SizeBelowMapped => Step::Sizes,
        EntryCorrupt | DotInvalid | DotDotInvalid | EntryInodeInvalid | EntryToFreeInode
        | EntryNameInvalid | EntryTypeWrong | EntryDuplicate | IndexInvalid => Step::Entries,
        DirectoryTwoNames | DirectoryManyNames | DotDotWrong | DirectoryCycle => Step::Names,
        UnconnectedDirectory | UnconnectedInode => Step::Unconnected,
        LinksTooHigh | LinksTooLow | BlockCountWrong | XattrRefcountTooHigh
        | XattrRefcountTooLow | XattrBlockHash => Step::Counts,
        BlockLeaked | BlockNotMarked | InodeLeaked | InodeNotMarked | BitmapPadding
        | FreeBlocksWrong | FreeInodesWrong | DirectoryCountWrong => Step::Bitmaps,
        // Of another layout.
        GroupHeaderCorrupt | RotorInvalid | InodeNotInitialised | FragmentSumsWrong
        | ClustersWrong | SummaryWrong | PointerPastEnd => Step::Bitmaps,
    }
}

/// What a round is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Superblock,
    Inodes,
    Blocks,
    Journal,
    Holes,
    Sizes,
    Entries,
    Names,
    Unconnected,
    Counts,
    Bitmaps,
}
