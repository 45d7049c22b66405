//! What everything else depends on: a superblock and descriptors that can be believed.
//!
//! # What is believed
//!
//! A geometry is *confirmed* if the superblock makes sense or if one of its backups does. Only
//! confirmed geometries are tried: the superblock as it is, and the backups where the damage is
//! more than a stale backup would explain or where the two disagree. The one under which the most
//! names can be reached is taken, and of those the one with the fewest faults. Counting faults
//! alone would prefer a misreading under which the image looks empty: then there is little to find
//! fault with.
//!
//! Where nothing is confirmed a geometry can be computed from what fields are left and from the
//! size of the device. That is a guess: it is made only when asked for
//! ([`Options::guess_geometry`](super::Options)).

use super::Log;
use super::losses;
use super::trials::Trial;
use crate::fsck::superblock::{identity, unknown_features};
use crate::fsck::{self, CheckError, Kind, Location, Source};
use backstitch_ext::format::group::{GroupDescriptor, RawGroupDescriptor, descriptor_location};
use backstitch_ext::format::superblock::{
    MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use backstitch_layout::tools::Overlay;
use backstitch_layout::tools::rounds::MAX_FINDINGS;
use backstitch_layout::{BlockNumber, GroupNumber};
use core::mem::offset_of;
use std::cmp::Reverse;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes of the device in which backups are searched for: without a superblock nothing says where
/// they are.
const SEARCHED_BYTES: u64 = 512 << 20;
/// Backups that are tried; each costs a check.
const MAX_BACKUPS: usize = 3;
/// Faults up to which the superblock is kept without a look at the backups, which are older in what
/// changes.
const LITTLE_DAMAGE: u64 = 8;

/// Puts the best superblock and descriptors in place.
pub(super) fn choose(
    image: &mut Overlay<'_>,
    log: &mut Log,
    error: Option<&CheckError>,
    guess_geometry: bool,
) -> Result<(), CheckError> {
    if let Some(CheckError::Device(error)) = error {
        return Err(error.clone().into());
    }
    let backups = backups(image)?;
    let mut best = Candidate::as_it_is(image)?;
    if best.score.faults > LITTLE_DAMAGE || has_other_words(image, &backups)? {
        let mut trials = Vec::from(Trial::OF_OTHER_FIELDS);
        trials.push(Trial::UsualPlaces);
        for backup in &backups {
            trials.push(Trial::Backup(*backup, false));
            trials.push(Trial::Backup(*backup, true));
            trials.push(Trial::BackupBesideReserved(*backup));
        }
        best = best.or_better(image, &trials)?;
    }
    if guess_geometry && !best.is_confirmed {
        let sizes = (0..3).flat_map(|log| [(log, true), (log, false)]);
        let trials: Vec<_> = sizes.map(|(log, by)| Trial::Computed(log, by)).collect();
        best = best.or_better(image, &trials)?;
    }
    if let (false, Some(error)) = (best.is_changed, error) {
        return Err(error.clone());
    }
    *image = best.image;
    log.list.extend(best.log.list);
    Ok(())
}

/// An image with one choice of superblock and descriptors in place.
struct Candidate<'d> {
    image: Overlay<'d>,
    log: Log,
    score: Score,
    /// Whether its superblock makes sense.
    is_confirmed: bool,
    /// Whether it is another superblock than the one in the image.
    is_changed: bool,
}

impl<'d> Candidate<'d> {
    fn as_it_is(image: &Overlay<'d>) -> Result<Candidate<'d>, CheckError> {
        Candidate::judged(image.fork(), Log::default(), false)
    }

    /// Mends the descriptors, and scores the result.
    fn judged(
        mut image: Overlay<'d>,
        mut log: Log,
        is_changed: bool,
    ) -> Result<Candidate<'d>, CheckError> {
        let known = log.list.len();
        mend_descriptors(&mut image, &mut log)?;
        let guesses = (log.list.len() - known) as u64 * (LITTLE_DAMAGE + 1);
        let mut score = Score::of(&image);
        score.faults = score.faults.saturating_add(guesses);
        Ok(Candidate {
            is_confirmed: super::superblock::parse(&image).is_ok(),
            image,
            log,
            score,
            is_changed,
        })
    }

    /// The best of this one and the images that the trials make; this one if none is better.
    fn or_better(self, image: &Overlay<'d>, trials: &[Trial]) -> Result<Self, CheckError> {
        let mut best = self;
        for trial in trials {
            let (mut other, mut log) = (image.fork(), Log::default());
            if !trial.make(&mut other, &mut log)? {
                continue;
            }
            let other = Candidate::judged(other, log, true)?;
            if other.score.rank() > best.score.rank() {
                best = other;
            }
        }
        Ok(best)
    }
}

/// How good an image looks.
#[derive(Clone, Copy)]
struct Score {
    /// Whether the check could look at files at all.
    is_readable: bool,
    /// Names that can be reached from the root.
    reached: u64,
    /// Inodes in use that have a name, reachable or not: counts where the root itself is damaged.
    named: u64,
    /// Corruptions found, and guesses made.
    faults: u64,
}

impl Score {
    fn of(image: &Overlay<'_>) -> Score {
        let options = fsck::Options {
            threads: None,
            check_backups: false,
            max_findings: MAX_FINDINGS,
        };
        let unreadable = |faults| Score {
            is_readable: false,
            reached: 0,
            named: 0,
            faults,
        };
        match fsck::survey(image, &options) {
            Ok(survey) => match survey.facts {
                Some(facts) => Score {
                    is_readable: true,
                    reached: losses::reached(image, &facts).unwrap_or(0),
                    named: facts.named_inodes(),
                    faults: survey.report.count(Kind::Corruption) as u64 + survey.report.omitted,
                },
                // Better than no image at all, even if its descriptors cannot be mended.
                None => unreadable(u64::MAX - 1),
            },
            Err(_) => unreadable(u64::MAX),
        }
    }

    /// Names that cannot be reached count as well: where the root is what was damaged, a misreading
    /// that finds some other root would win otherwise.
    fn rank(&self) -> (bool, u64, u64, Reverse<u64>) {
        (
            self.is_readable,
            self.reached.max(self.named),
            self.reached,
            Reverse(self.faults),
        )
    }
}

/// The superblocks in the backups, as primary ones, where the primary one cannot be believed:
/// because it `is_unusable`, or because they differ in what never changes.
pub(super) fn better_superblocks(
    image: &Overlay<'_>,
    is_unusable: bool,
) -> Result<Vec<RawSuperblock>, CheckError> {
    let backups = backups(image)?;
    if !is_unusable && !has_other_words(image, &backups)? {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for at in backups {
        let bytes = image.read(at, SUPERBLOCK_SIZE)?;
        if let Ok(mut raw) = RawSuperblock::read_from_bytes(&bytes) {
            raw.s_block_group_nr = 0.into();
            found.push(raw);
        }
    }
    Ok(found)
}

/// Whether the superblock differs from its first backup in fields that never change.
fn has_other_words(image: &Overlay<'_>, backups: &[u64]) -> Result<bool, CheckError> {
    let Some(at) = backups.first() else {
        return Ok(false);
    };
    let own = super::superblock::raw(image)?;
    let bytes = image.read(*at, SUPERBLOCK_SIZE)?;
    let Ok(other) = RawSuperblock::read_from_bytes(&bytes) else {
        return Ok(false);
    };
    let words = |raw: &RawSuperblock| {
        (
            identity(raw.as_bytes()),
            raw.s_first_ino.get(),
            raw.s_first_data_block.get(),
            raw.s_reserved_gdt_blocks.get(),
        )
    };
    Ok(words(&own) != words(&other))
}

/// Where the superblock's backups are. Those that say themselves which group's they are come first.
fn backups(image: &Overlay<'_>) -> Result<Vec<u64>, CheckError> {
    let (mut told, mut placed) = (Vec::new(), Vec::new());
    let end = image.size_bytes().min(SEARCHED_BYTES);
    let mut at = SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
    while at + SUPERBLOCK_SIZE as u64 <= end && told.len() < MAX_BACKUPS {
        match backup(image, at)? {
            Some(Backup::Told) => told.push(at),
            Some(Backup::Placed) if placed.len() < MAX_BACKUPS => placed.push(at),
            _ => {}
        }
        at += SUPERBLOCK_SIZE as u64;
    }
    told.append(&mut placed);
    told.truncate(MAX_BACKUPS);
    Ok(told)
}

/// What makes a copy of a superblock a backup.
enum Backup {
    /// It says that it is the backup of the group that begins here.
    Told,
    /// It lies where a group begins that has a backup, but says another group, or (revision 0)
    /// none.
    Placed,
}

fn backup(image: &Overlay<'_>, at: u64) -> Result<Option<Backup>, CheckError> {
    let magic = image.read(at + offset_of!(RawSuperblock, s_magic) as u64, 2)?;
    if magic != MAGIC.to_le_bytes() {
        return Ok(None);
    }
    let bytes = image.read(at, SUPERBLOCK_SIZE)?;
    let Ok(bytes) = <&[u8; SUPERBLOCK_SIZE]>::try_from(bytes.as_slice()) else {
        return Ok(None);
    };
    let told = RawSuperblock::from_array(bytes).s_block_group_nr.get();
    let Ok(sb) = Superblock::parse(bytes, image.size_bytes()) else {
        return Ok(None);
    };
    let block = BlockNumber(at >> sb.block_size_bits);
    if !sb.is_valid_pointer(block) || !unknown_features(&sb).is_empty() {
        return Ok(None);
    }
    let group = sb.group_of_block(block);
    let is_placed =
        group.0 > 0 && sb.has_super(group) && sb.block_offset(sb.group_first_block(group)) == at;
    Ok(
        is_placed.then(|| match sb.revision > 0 && u32::from(told) == group.0 {
            true => Backup::Told,
            false => Backup::Placed,
        }),
    )
}

/// Puts right the descriptors that cannot be: from a backup, or to where mke2fs puts things.
fn mend_descriptors(image: &mut Overlay<'_>, log: &mut Log) -> Result<(), CheckError> {
    let Ok(sb) = super::superblock::parse(image) else {
        return Ok(());
    };
    let backups: Vec<u64> = GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group))
        .take(MAX_BACKUPS)
        .map(|group| sb.group_first_block(group) - sb.first_data_block)
        .collect();
    for group in GroupNumber::all(sb.groups) {
        let (block, at) = descriptor_location(&sb, group);
        let place = sb.block_offset(block) + at as u64;
        let own = descriptor(image, place);
        if GroupDescriptor::from_raw(&own)
            .misplaced(&sb, group)
            .is_none()
        {
            continue;
        }
        let mut candidates = Vec::new();
        for distance in &backups {
            candidates.push(descriptor(image, place + (distance << sb.block_size_bits)));
        }
        candidates.push(usual(&sb, group, own));
        let good = candidates.into_iter().find(|raw| {
            GroupDescriptor::from_raw(raw)
                .misplaced(&sb, group)
                .is_none()
        });
        if let Some(good) = good {
            let mut fixed = own;
            fixed.bg_block_bitmap_lo = good.bg_block_bitmap_lo;
            fixed.bg_inode_bitmap_lo = good.bg_inode_bitmap_lo;
            fixed.bg_inode_table_lo = good.bg_inode_table_lo;
            fixed.bg_flags = good.bg_flags;
            fixed.bg_itable_unused_lo = good.bg_itable_unused_lo;
            image.write(place, fixed.as_bytes())?;
            log.add(Location::group(group), "descriptor put right");
        }
    }
    Ok(())
}

/// A descriptor; zeros, which are none, where the image ends before it.
pub(super) fn descriptor(image: &Overlay<'_>, place: u64) -> RawGroupDescriptor {
    let bytes = image.read(place, size_of::<RawGroupDescriptor>());
    let raw = bytes
        .ok()
        .and_then(|bytes| RawGroupDescriptor::read_from_bytes(&bytes).ok());
    raw.unwrap_or_else(RawGroupDescriptor::new_zeroed)
}

/// Bitmaps and inode table one after the other, behind the group's own superblock and descriptors.
pub(super) fn usual(
    sb: &Superblock,
    group: GroupNumber,
    own: RawGroupDescriptor,
) -> RawGroupDescriptor {
    let own_blocks = u64::from(sb.super_blocks_in_group(group));
    let first = (sb.group_first_block(group) + own_blocks).0;
    let mut raw = own;
    raw.bg_flags = 0.into();
    raw.bg_itable_unused_lo = 0.into();
    raw.bg_block_bitmap_lo = (first as u32).into();
    raw.bg_inode_bitmap_lo = (first as u32 + 1).into();
    raw.bg_inode_table_lo = (first as u32 + 2).into();
    raw
}
