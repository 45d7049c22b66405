//! The superblock: from a copy where it cannot be read, and the marks that say what it is worth.

use super::Log;
use crate::fsck::{CheckError, Code, Location, Report, superblock as check};
use backstitch_layout::tools::{Overlay, Source};
use backstitch_layout::{BlockNumber, FormatError, GroupNumber};
use backstitch_ufs::format::log_record::LOG_RECORD_AT;
use backstitch_ufs::format::record::{RECORD_AT, RECORD_BYTES, RECORD_END};
use backstitch_ufs::format::superblock::{
    FLAG_CHECK_HASHES, FLAG_NEEDS_CHECK, FLAG_UNCLEAN, OLD_FLAG_MOVED, PLACES, READ_BYTES,
    SUPERBLOCK_BYTES, magic, offset,
};
use backstitch_ufs::format::{OnDisk, RawSuperblock, Superblock, Version};

/// Copies of the superblock begin at multiples of this: no block is smaller.
const COPY_STEP: u64 = 4_096;
/// Bytes of a device that are searched for a copy; behind them there is one only if the first
/// groups have all lost theirs.
const SEARCHED_BYTES: u64 = 1 << 30;

/// Brings a superblock from before UFS2 up to date, as a mount for writing does: what is written then is
/// where it is looked for. Whether it was.
pub(super) fn upgrade(image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
    let sb = match check::find(image) {
        Ok(sb) => sb,
        Err(CheckError::Format(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    let Some(steps) = sb.upgrade() else {
        return Ok(false);
    };
    for raw in steps {
        image.write(sb.place, &raw.to_bytes(sb.order))?;
        image.barrier();
    }
    log.add(
        Location::FILE_SYSTEM,
        "the superblock was brought up to date, as FreeBSD 5 and later do",
    );
    Ok(true)
}

/// Puts a group's copy of the superblock in place; whether there is one.
pub(super) fn restore(image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
    let Some((sb, place)) = first_copy(image)? else {
        return Ok(false);
    };
    let mut raw = (*sb.raw).clone();
    raw.fs_clean = 0;
    raw.fs_old_flags = OLD_FLAG_MOVED;
    raw.fs_flags |= FLAG_NEEDS_CHECK as i32;
    image.write(sb.place, &raw.to_bytes(sb.order))?;
    forget_record(image, &sb)?;
    if let Some(log) = sb.log {
        image.write(sb.place + LOG_RECORD_AT as u64, &log.encode(sb.order))?;
    }
    let found = place / u64::from(sb.fragment_bytes);
    log.add(
        Location::block(BlockNumber(found)),
        "the superblock was taken from this copy",
    );
    image.barrier();
    // What is in the way, where it is looked for before the right place.
    match check::find(image) {
        Ok(_) => Ok(true),
        Err(CheckError::Format(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first copy of the superblock on the device that is where its own numbers say that a copy is,
/// and the byte that it begins at.
fn first_copy(image: &Overlay<'_>) -> Result<Option<(Superblock, u64)>, CheckError> {
    let size = image.size_bytes();
    let mut place = 2 * COPY_STEP;
    while place + READ_BYTES as u64 <= size.min(SEARCHED_BYTES) {
        let bytes = image.read(place, READ_BYTES)?;
        if let Some(sb) = copy_at(&bytes, place, size) {
            return Ok(Some((sb, place)));
        }
        place += COPY_STEP;
    }
    Ok(None)
}

/// Takes what never changes from the copies where they are to be believed more than the superblock:
/// the first and the last one agree against it. Of an image of one group there is one copy, and more
/// to be believed is which has more of the fields right that follow from others.
pub(super) fn weigh(image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
    let sb = check::find(image)?;
    let Some((copy, place)) = first_copy(image)? else {
        return Ok(false);
    };
    if copy.version != sb.version || check::is_same(&copy.raw, &sb.raw) {
        return Ok(false);
    }
    let is_believed = match copy.groups {
        1 => faults(&copy) <= faults(&sb),
        groups => {
            let fragment = copy.superblock_copy(GroupNumber(groups - 1));
            let last = fragment * u64::from(copy.fragment_bytes);
            let bytes = image.read(last, READ_BYTES)?;
            let last = copy_at(&bytes, last, image.size_bytes());
            last.is_some_and(|last| check::is_same(&last.raw, &copy.raw))
        }
    };
    if !is_believed {
        return Ok(false);
    }
    let mut raw = (*sb.raw).clone();
    check::take_constants(&mut raw, &copy.raw);
    image.write(sb.place, &raw.to_bytes(sb.order))?;
    image.barrier();
    log.add(
        Location::block(BlockNumber(place / u64::from(copy.fragment_bytes))),
        "what never changes in the superblock was taken from this copy",
    );
    Ok(true)
}

/// How many of the fields that follow from others are wrong.
fn faults(sb: &Superblock) -> usize {
    let fields = check::derived(sb);
    fields
        .iter()
        .filter(|field| field.found != field.expected)
        .count()
}

/// The superblock that a copy at `place` is of, with its home as its place.
fn copy_at(bytes: &[u8], place: u64, size: u64) -> Option<Superblock> {
    let (version, order) = magic(bytes)?;
    let told = order.u64(bytes, offset::PLACE);
    let home = match PLACES.contains(&told) && (told != 0 || version == Version::Ufs2) {
        true => told,
        false => version.usual_place(),
    };
    let sb = Superblock::parse(bytes, home, size).ok()?;
    let sb = match sb.upgraded() {
        Some(raw) => Superblock::parse(&raw.to_bytes(order), home, size).ok()?,
        None => sb,
    };
    let fragment = u64::from(sb.fragment_bytes);
    let is_copy = GroupNumber::all(sb.groups)
        .map(|group| sb.superblock_copy(group) * fragment)
        .take_while(|copy| *copy <= place)
        .any(|copy| copy == place);
    (is_copy && !sb.is_old).then_some(sb)
}

/// Sets all fields that follow from others or are always the same.
pub(super) fn put_derived(sb: &Superblock, raw: &mut RawSuperblock) {
    for field in check::derived(sb) {
        field.put(raw);
    }
    raw.fs_old_flags |= OLD_FLAG_MOVED;
    raw.fs_flags = sb.flags as i32;
    check::clear_spares(sb.version, raw);
}

fn raw(image: &Overlay<'_>, sb: &Superblock) -> Result<RawSuperblock, CheckError> {
    let bytes = image.read(sb.place, SUPERBLOCK_BYTES)?;
    Ok(RawSuperblock::decode(sb.order, &bytes))
}

/// Says that nobody may trust the image before the repair is finished.
pub(super) fn mark_damaged(image: &mut Overlay<'_>) -> Result<(), CheckError> {
    let sb = match check::find(image) {
        Ok(sb) => sb,
        Err(CheckError::Format(FormatError::Corrupt(_))) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut raw = raw(image, &sb)?;
    raw.fs_clean = 0;
    raw.fs_flags = (sb.flags_at_rest() | FLAG_NEEDS_CHECK) as i32;
    raw.fs_old_flags |= OLD_FLAG_MOVED;
    forget_record(image, &sb)?;
    image.write(sb.place, &raw.to_bytes(sb.order))?;
    image.barrier();
    Ok(())
}

/// Takes our record of a mount away: the image is no longer what that mount left.
fn forget_record(image: &mut Overlay<'_>, sb: &Superblock) -> Result<(), CheckError> {
    if sb.superblock_bytes() as usize >= RECORD_END {
        image.write(sb.place + RECORD_AT as u64, &[0; RECORD_BYTES])?;
    }
    Ok(())
}

/// `fs_old_time` as it must be: UFS1 has the time there too.
pub(super) fn old_time(version: Version, raw: &RawSuperblock) -> i32 {
    match version {
        Version::Ufs1 => raw.fs_time as i32,
        Version::Ufs2 => raw.fs_old_time,
    }
}

/// Marks a repaired image as clean, where it is not or anything was changed. Its check hashes, which
/// we do not compute, no longer count; a journal from before does not either, since it names the
/// time of the last mount.
pub(super) fn finish(
    image: &mut Overlay<'_>,
    log: &mut Log,
    sb: &Superblock,
    report: &Report,
    now_seconds: u32,
) -> Result<(), CheckError> {
    let is_marked = |code| matches!(code, Code::NotUnmounted | Code::ErrorsRecorded);
    let is_unclean = report.notes.iter().any(|note| is_marked(note.code));
    if !is_unclean && !image.is_changed() {
        return Ok(());
    }
    image.barrier();
    let mut raw = raw(image, sb)?;
    raw.fs_clean = 1;
    let cleared = FLAG_UNCLEAN | FLAG_NEEDS_CHECK | FLAG_CHECK_HASHES;
    raw.fs_flags = (sb.flags_at_rest() & !cleared) as i32;
    raw.fs_fmod = 0;
    raw.fs_pendingblocks = 0;
    raw.fs_pendinginodes = 0;
    raw.fs_time = now_seconds.into();
    raw.fs_old_time = old_time(sb.version, &raw);
    raw.fs_mtime = now_seconds.into();
    image.write(sb.place, &raw.to_bytes(sb.order))?;
    forget_record(image, sb)?;
    image.barrier();
    if is_unclean {
        log.add(Location::FILE_SYSTEM, "marked as clean");
    }
    Ok(())
}
