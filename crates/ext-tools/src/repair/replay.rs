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

/// A superblock, how it was come by, and the one in place where that is to be put back.
type Candidate = (RawSuperblock, &'static str, Option<Vec<u8>>);

const BACKUP: &str = "took the superblock from a backup, to find the journal";
/// The superblock in place did not say that there is a journal; what the replay finds shows that
/// there is.
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

/// The superblocks under which a journal may be replayed that the one in place does not lead to,
/// the most likely first: itself with a journal, where it [lacks one](lacks_its_journal); where it
/// `is_unusable`, itself with the fields that follow from others put right; then its backups, where
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
        // No backup knows that there is something to be replayed.
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

/// Takes the mark away that says that a journal must be replayed, in a superblock that no replay
/// can go by; whether it was there. The fields around it stay as they are.
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

/// The superblock in place, with one field after the other put right by the rest.
fn derived(image: &Overlay<'_>) -> Result<Vec<Candidate>, CheckError> {
    let own = raw(image)?;
    let features = own.s_feature_incompat.get();
    // The mark stands for nothing that the trials look at, and keeps a superblock from being parsed
    // here. In both versions that are told it is set; the replay clears it.
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
