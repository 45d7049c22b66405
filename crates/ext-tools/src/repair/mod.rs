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
//! 4. `tree`: which directory contains what, and what none contains;
//! 5. `counts`: links, block counts, users of attribute blocks;
//! 6. `bitmaps`: what is marked, and the counters.
//!
//! The rounds are those of all layouts ([`Rounds`]). What is left where a repair does not help is
//! reported, and the image is marked as damaged.
//!
//! # Two kinds of repair
//!
//! *Preening* takes what soft updates may leave, and nothing else: where there is corruption it
//! changes nothing. An image is *trusted* where the record of its last mount matches
//! ([`MountRecord`](backstitch_ext::format::MountRecord)). Then an inode without a name was
//! removed, or its name was never on the disk: it is freed. Where blocks are mapped behind a file's
//! size, the size is right, since a file that grows gets its size last and one that shrinks gets it
//! first.
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

use crate::fsck::{self, CheckError, Code, Facts, Finding, Report, Survey};
use backstitch_device::BlockDevice;
use backstitch_ext::format::superblock::{STATE_ERROR, STATE_VALID};
use backstitch_ext::format::{FormatError, Superblock};
use fixer::Fixer;

use backstitch_layout::tools::rounds::{self, Rounds};
pub use backstitch_layout::tools::{
    Location, Losses, Mode, Outcome, Repair, RepairOptions as Options,
};
use backstitch_layout::tools::{Overlay, RepairLog as Log};
pub(crate) use replay::{give_up_replay, lacks_its_journal, superblocks_for_replay};

/// Changes are kept and written in this unit: no block is smaller, and the superblock is one.
const UNIT_BYTES: usize = 1024;

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
        let may_preen = !is_damaged && report.may_preen(is_trusted(&superblock::parse(&image)?));
        let settled = match may_preen {
            true => Some(repair_in_rounds(&mut image, &mut log, options, false)?.0),
            false => None,
        };
        let after = settled.map(|survey| survey.report);
        return Outcome::written(image, log, Some(report), after, None);
    }
    if is_damaged {
        let error = before.as_ref().err();
        prepare::choose(&mut image, &mut log, error, options.guess_geometry)?;
    }
    match superblock::parse(&image) {
        Err(error @ CheckError::Format(FormatError::Incompatible { .. })) => return Err(error),
        Err(error @ CheckError::Device(_)) => return Err(error),
        // An image that cannot be parsed is reported below.
        Ok(_) | Err(CheckError::Format(_)) => {}
    }
    let start = image.fork();
    if is_damaged {
        superblock::mark_damaged(&mut image)?;
    }
    let (settled, rounds) = repair_in_rounds(&mut image, &mut log, options, is_damaged)?;
    if settled.facts.is_none() {
        // An image that could not be read to the end stays as it is.
        (image, log) = (Overlay::new(device, UNIT_BYTES), Log::default());
    }
    let losses = match (is_damaged, &settled.facts) {
        (true, Some(after)) => {
            rounds::losses(&rounds, &start, (&image, after), &log, &options.check)?
        }
        _ => None,
    };
    Outcome::written(image, log, before.ok(), Some(settled.report), losses)
}

/// Whether the image is as a crash under a mechanism that keeps order left it: nobody has mounted
/// it since.
fn is_trusted(sb: &Superblock) -> bool {
    let is_unclean = sb.state & (STATE_VALID | STATE_ERROR) == 0;
    is_unclean
        && sb.record.is_some_and(|record| {
            record.mechanism.is_trusted() && record.matches(sb.mtime, sb.mount_count)
        })
}

/// Repairs until nothing is left, or nothing helps.
fn repair_in_rounds(
    image: &mut Overlay<'_>,
    log: &mut Log,
    options: &Options,
    is_damaged: bool,
) -> Result<(Survey, ExtRounds), CheckError> {
    let mut rounds = ExtRounds {
        now_seconds: options.now_seconds,
        // Read now: the first step may change the superblock.
        is_trusted: !is_damaged && superblock::parse(image).is_ok_and(|sb| is_trusted(&sb)),
        may_lack_lost_and_found: is_damaged,
    };
    let survey = rounds::repair_in_rounds(&mut rounds, image, log)?;
    Ok((survey, rounds))
}

/// What this layout does in the rounds.
struct ExtRounds {
    now_seconds: u32,
    /// Whether the image is what soft updates left.
    is_trusted: bool,
    may_lack_lost_and_found: bool,
}

impl Rounds for ExtRounds {
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

    fn complete(
        &mut self,
        image: &mut Overlay<'_>,
        log: &mut Log,
        facts: &Facts,
    ) -> Result<(), CheckError> {
        if std::mem::take(&mut self.may_lack_lost_and_found) {
            let mut fixer = Fixer::new(image, log, facts, self.now_seconds, self.is_trusted);
            fixer.lost_and_found()?;
            superblock::clear_uninitialised(image, log, &facts.sb)?;
            image.barrier();
        }
        Ok(())
    }

    fn finish(
        &mut self,
        image: &mut Overlay<'_>,
        log: &mut Log,
        facts: &Facts,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        superblock::finish(image, log, facts, report, self.now_seconds)?;
        report
            .notes
            .retain(|note| !superblock::is_settled(note.code));
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

/// The step that repairs a finding.
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
        | SuperblockContradicted
        | UpgradeUnfinished
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
