//! The superblock: from a copy where it cannot be read, and the marks that say what it is worth.

use super::Log;
use crate::fsck::{CheckError, Code, Location, Report, superblock as check};
use backstitch_layout::tools::{Overlay, Source};
use backstitch_layout::{BlockNumber, FileType, FormatError, GroupNumber};
use backstitch_ufs::format::group::Maps;
use backstitch_ufs::format::log_record::LOG_RECORD_AT;
use backstitch_ufs::format::record::{RECORD_AT, RECORD_BYTES, RECORD_END};
use backstitch_ufs::format::superblock::{
    FLAG_CHECK_HASHES, FLAG_NEEDS_CHECK, FLAG_UNCLEAN, OLD_FLAG_MOVED, PLACES, READ_BYTES,
    SUPERBLOCK_BYTES, is_possible_extent, magic, offset,
};
use backstitch_ufs::format::{
    CylinderGroup, Inode, OnDisk, ROOT_INODE, RawCylinderGroup, RawSummary, RawSuperblock,
    Superblock, Version,
};

/// Copies of the superblock begin at multiples of this: no block is smaller.
const COPY_STEP: u64 = 4_096;
/// How far behind one copy of a first group that of another file system on the same device may be.
const NEAR_BYTES: u64 = 1 << 20;
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

/// A copy of the superblock that is where its own numbers say that a copy is, and the byte that it begins
/// at: the first one on the device, but behind an earlier file system's the last one to be made of those
/// whose first group has a header.
fn first_copy(image: &Overlay<'_>) -> Result<Option<(Superblock, u64)>, CheckError> {
    let size = image.size_bytes();
    let mut best: Option<((bool, i64), Superblock, u64)> = None;
    let mut end = size.min(SEARCHED_BYTES);
    let mut place = 2 * COPY_STEP;
    while place + READ_BYTES as u64 <= end {
        let bytes = image.read(place, READ_BYTES)?;
        if let Some(sb) = copy_at(&bytes, place, size) {
            let rank = (has_first_group(image, &sb)?, sb.raw.fs_time);
            if best.as_ref().is_none_or(|(known, ..)| rank > *known) {
                // All first groups have their copies near the start.
                end = end.min(place + NEAR_BYTES);
                best = Some((rank, sb, place));
            }
        }
        place += COPY_STEP;
    }
    Ok(best.map(|(_, sb, place)| (sb, place)))
}

/// Whether the first group's header is where these numbers say, and the root directory in its place.
fn has_first_group(image: &Overlay<'_>, sb: &Superblock) -> Result<bool, CheckError> {
    let first = GroupNumber(0);
    let bytes_at = |fragment: u64| fragment * u64::from(sb.fragment_bytes);
    let header = image.read(bytes_at(sb.group_header(first)), sb.group_bytes as usize)?;
    let (fragment, at) = sb.inode_place(ROOT_INODE);
    let inode_bytes = sb.version.inode_bytes();
    let inode = image.read(bytes_at(fragment) + at as u64, inode_bytes)?;
    let inode = Inode::parse(sb.version, sb.order, &inode);
    let is_root = inode.is_ok_and(|inode| inode.file_type() == Some(FileType::Directory));
    let raw = RawCylinderGroup::decode(sb.order, &header);
    let inodes = match sb.version {
        Version::Ufs1 => u32::from(raw.cg_old_niblk as u16),
        Version::Ufs2 => raw.cg_niblk,
    };
    let maps = Maps::new(sb);
    let is_divided_so = (raw.cg_iusedoff, raw.cg_freeoff, raw.cg_nextfreeoff)
        == (
            maps.inodes_used as u32,
            maps.fragments_free as u32,
            maps.end as u32,
        )
        && inodes == sb.inodes_per_group;
    Ok(is_root && is_divided_so && CylinderGroup::parse(sb, first, &header).is_ok())
}

/// Takes what only growing a file system changes from the copies where they are to be believed more than
/// the superblock. They are of the same file system, the first and the last one agree, and no copy agrees
/// with the superblock. With one group there is only one copy: it is believed if more speaks for it.
pub(super) fn weigh(image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
    let sb = check::find(image)?;
    let Some((copy, place)) = first_copy(image)? else {
        return Ok(false);
    };
    let is_of_same = copy.version == sb.version
        && copy.order == sb.order
        && copy.raw.fs_id == sb.raw.fs_id
        && !has_same_numbers(&copy, &sb);
    let is_confirmed = |copy: &Superblock, group: GroupNumber| {
        let other = copy_of(image, copy, group)?;
        Ok::<_, CheckError>(other.is_some_and(|other| has_same_numbers(&other, copy)))
    };
    let last = GroupNumber(sb.groups - 1);
    if !is_of_same || is_confirmed(&sb, GroupNumber(0))? || is_confirmed(&sb, last)? {
        return Ok(false);
    }
    let is_believed = match copy.groups {
        1 => worth(image, &copy)? > worth(image, &sb)?,
        groups => is_confirmed(&copy, GroupNumber(groups - 1))?,
    };
    let mut raw = (*sb.raw).clone();
    check::take_constants(&mut raw, &copy.raw);
    (raw.fs_size, raw.fs_csaddr) = (copy.raw.fs_size, copy.raw.fs_csaddr);
    let old = &copy.raw;
    (raw.fs_old_size, raw.fs_old_csaddr) = (old.fs_old_size, old.fs_old_csaddr);
    let bytes = raw.to_bytes(sb.order);
    if !is_believed || Superblock::parse(&bytes, sb.place, image.size_bytes()).is_err() {
        return Ok(false);
    }
    image.write(sb.place, &bytes)?;
    image.barrier();
    log.add(
        Location::block(BlockNumber(place / u64::from(copy.fragment_bytes))),
        "what never changes in the superblock was taken from this copy",
    );
    Ok(true)
}

/// Whether two superblocks have everything in the same places.
fn has_same_numbers(one: &Superblock, other: &Superblock) -> bool {
    let places = |sb: &Superblock| (sb.fragments, sb.summary_at);
    check::is_same(&one.raw, &other.raw) && places(one) == places(other)
}

/// What speaks for a superblock: that the first group is where it says, that the summary there is that of
/// the group or at least a possible one, and that few fields are wrong that follow from others.
fn worth(image: &Overlay<'_>, sb: &Superblock) -> Result<impl Ord + use<>, CheckError> {
    let has_group = has_first_group(image, sb)?;
    let bytes_at = |fragment: u64| fragment * u64::from(sb.fragment_bytes);
    let summary = image.read(bytes_at(sb.summary_at), RawSummary::SIZE)?;
    let summary = RawSummary::decode(sb.order, &summary);
    let header = sb.group_header(GroupNumber(0));
    let header = image.read(bytes_at(header), RawCylinderGroup::SIZE)?;
    let is_of_group = RawCylinderGroup::decode(sb.order, &header).cg_cs == summary;
    let within = |count: i32, most: u32| u32::try_from(count).is_ok_and(|count| count <= most);
    let is_possible = within(summary.cs_ndir, sb.inodes_per_group)
        && within(summary.cs_nifree, sb.inodes_per_group)
        && within(summary.cs_nbfree, sb.fragments_per_group)
        && within(summary.cs_nffree, sb.fragments_per_group);
    let faults = std::cmp::Reverse(faults(sb));
    Ok((has_group, is_of_group, is_possible, faults))
}

/// A group's copy of the superblock, by the numbers of `sb`; `None` where there is no sound one.
fn copy_of(
    image: &Overlay<'_>,
    sb: &Superblock,
    group: GroupNumber,
) -> Result<Option<Superblock>, CheckError> {
    let (place, size) = (
        sb.superblock_copy(group) * u64::from(sb.fragment_bytes),
        image.size_bytes(),
    );
    if place + READ_BYTES as u64 > size {
        return Ok(None);
    }
    Ok(copy_at(&image.read(place, READ_BYTES)?, place, size))
}

/// How many of the fields that follow from others are wrong.
fn faults(sb: &Superblock) -> usize {
    let fields = check::derived(sb);
    let is_wrong = |field: &&check::Derived| field.found != field.expected;
    let summary_bytes = (sb.groups * RawSummary::SIZE as u32).next_multiple_of(sb.fragment_bytes);
    fields.iter().filter(is_wrong).count() + usize::from(sb.summary_bytes != summary_bytes)
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
    if sb.needs_mark() && !is_possible_extent(raw.fs_maxbsize, raw.fs_bsize) {
        raw.fs_maxbsize = raw.fs_bsize;
    }
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
