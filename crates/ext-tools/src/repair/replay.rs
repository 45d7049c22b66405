//! Superblocks under which a journal can be replayed where the one in place does not lead to it.

use super::prepare::better_superblocks;
use super::superblock::{parse, put, raw};
use super::trials::Trial;
use super::{Log, UNIT_BYTES};
use crate::fsck::CheckError;
use backstitch_device::BlockDevice;
use backstitch_ext::format::JOURNAL_INODE;
use backstitch_ext::format::features::{COMPAT_HAS_JOURNAL, INCOMPAT_RECOVER};
use backstitch_ext::format::superblock::{
    MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use backstitch_layout::tools::{Overlay, ReplaySuperblock};
use zerocopy::IntoBytes;

/// A superblock, the words for where it comes from, and the old superblock where that is to be put
/// back after the replay.
type Candidate = (RawSuperblock, &'static str, Option<Vec<u8>>);

const BACKUP: &str = "took the superblock from a backup, to find the journal";
/// For a superblock that did not name a journal: used only if the replay finds one.
const WITH_JOURNAL: &str = "found the journal that the superblock did not name";
const DERIVED: &str = "found the journal by those fields of the superblock that agree";

/// Whether the device is long enough for a superblock.
fn has_room(device: &dyn BlockDevice) -> bool {
    device.size_bytes() >= SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64
}

/// Whether the superblock says that a journal must be replayed, and that there is none.
///
/// # Errors
///
/// [`CheckError::Device`] where reading fails.
pub(crate) fn lacks_its_journal(device: &dyn BlockDevice) -> Result<bool, CheckError> {
    if !has_room(device) {
        return Ok(false);
    }
    let own = raw(&Overlay::new(device, UNIT_BYTES))?;
    Ok(own.s_magic.get() == MAGIC
        && own.s_feature_incompat.get() & INCOMPAT_RECOVER != 0
        && own.s_feature_compat.get() & COMPAT_HAS_JOURNAL == 0)
}

/// The superblocks under which a journal may be replayed where the present one does not lead to it,
/// the most likely first. The present one with a journal, where it [lacks one](lacks_its_journal).
/// The present one with fields corrected by others, where it `is_unusable`. Then its backups, where
/// it is unusable or differs from them.
///
/// # Errors
///
/// [`CheckError::Device`] where reading fails.
pub(crate) fn superblocks_for_replay(
    device: &dyn BlockDevice,
    is_unusable: bool,
) -> Result<Vec<ReplaySuperblock>, CheckError> {
    if !has_room(device) {
        return Ok(Vec::new());
    }
    let image = Overlay::new(device, UNIT_BYTES);
    let mut found = Vec::new();
    if lacks_its_journal(device)? {
        let mut own = raw(&image)?;
        own.s_feature_compat = (own.s_feature_compat.get() | COMPAT_HAS_JOURNAL).into();
        own.s_journal_inum = JOURNAL_INODE.0.into();
        found.push((own, WITH_JOURNAL, None));
    }
    if is_unusable {
        found.extend(derived(&image)?);
    }
    let backups = better_superblocks(&image, is_unusable)?;
    let backups = backups.into_iter().map(|mut raw| {
        // A backup never has the mark that a journal must be replayed.
        let features = raw.s_feature_incompat.get() | INCOMPAT_RECOVER;
        raw.s_feature_incompat = features.into();
        (raw, BACKUP, None)
    });
    found.extend(backups);
    found.retain(|(raw, _, _): &Candidate| raw.s_feature_compat.get() & COMPAT_HAS_JOURNAL != 0);
    let superblock = |(raw, source, former): Candidate| ReplaySuperblock {
        source,
        offset_bytes: SUPERBLOCK_OFFSET,
        bytes: raw.as_bytes().to_vec(),
        former,
    };
    Ok(found.into_iter().map(superblock).collect())
}

/// Clears the mark that a journal must be replayed, where no replay is possible. Returns whether it
/// was set. Fields around it stay as they are.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn give_up_replay(device: &dyn BlockDevice) -> Result<bool, CheckError> {
    if !has_room(device) {
        return Ok(false);
    }
    let mut image = Overlay::new(device, UNIT_BYTES);
    let mut own = raw(&image)?;
    let features = own.s_feature_incompat.get();
    if own.s_magic.get() != MAGIC || features & INCOMPAT_RECOVER == 0 {
        return Ok(false);
    }
    own.s_feature_incompat = (features & !INCOMPAT_RECOVER).into();
    put(&mut image, &own)?;
    image.commit()?;
    Ok(true)
}

/// The present superblock, once for each single field that the other fields correct.
fn derived(image: &Overlay<'_>) -> Result<Vec<Candidate>, CheckError> {
    let own = raw(image)?;
    let features = own.s_feature_incompat.get();
    // The trials do not look at the recovery mark, but with it the superblock cannot be parsed
    // here. Both superblocks that are returned have it; the replay clears it.
    let without_mark = |mut raw: RawSuperblock| {
        raw.s_feature_incompat = (features & !INCOMPAT_RECOVER).into();
        raw
    };
    let with_mark = |mut raw: RawSuperblock| {
        raw.s_feature_incompat = (features | INCOMPAT_RECOVER).into();
        raw
    };
    let mut start = image.fork();
    put(&mut start, &without_mark(own))?;
    let mut found = Vec::new();
    for trial in Trial::OF_OTHER_FIELDS {
        let mut other = start.fork();
        if trial.make(&mut other, &mut Log::default())? && parse(&other).is_ok() {
            let former = with_mark(own).as_bytes().to_vec();
            found.push((with_mark(raw(&other)?), DERIVED, Some(former)));
        }
    }
    Ok(found)
}
