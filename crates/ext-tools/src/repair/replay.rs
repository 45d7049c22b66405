//! Superblocks under which a journal can be replayed where the one in place does not lead to it.

use super::Log;
use super::overlay::Overlay;
use super::prepare::better_superblocks;
use super::superblock::{parse, put, raw};
use super::trials::Trial;
use crate::fsck::CheckError;
use backstitch_device::{BlockDevice, DeviceError};
use backstitch_ext::format::JOURNAL_INODE;
use backstitch_ext::format::features::{COMPAT_HAS_JOURNAL, INCOMPAT_RECOVER};
use backstitch_ext::format::superblock::{
    MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use zerocopy::IntoBytes;

/// A superblock to replay a journal under. It says that there is something to be replayed.
#[derive(Clone, Debug)]
pub struct ReplaySuperblock {
    bytes: Vec<u8>,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    /// A backup, which stays in place.
    Backup,
    /// The superblock in place, which did not say that there is a journal; what the replay finds
    /// shows that there is.
    WithJournal,
    /// The superblock in place, here as it was, with a field that follows from others put right.
    /// That is one choice of several, which the repair makes later with more to go by.
    Derived(Vec<u8>),
}

impl ReplaySuperblock {
    /// How it was come by, for the report.
    pub fn source(&self) -> &'static str {
        match self.origin {
            Origin::Backup => "took the superblock from a backup, to find the journal",
            Origin::WithJournal => "found the journal that the superblock did not name",
            Origin::Derived(_) => "found the journal by those fields of the superblock that agree",
        }
    }

    /// Puts it in place, stable.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn put(&self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        device.write(SUPERBLOCK_OFFSET, &self.bytes)?;
        device.flush()
    }

    /// After the replay: gives derived fields their former values back, unless the journal held a
    /// copy of the superblock that sets them. A backup stays.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn settle(&self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        let Origin::Derived(former) = &self.origin else {
            return Ok(());
        };
        let mut bytes = vec![0; self.bytes.len()];
        device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
        let pairs = self.bytes.iter().zip(former);
        for (byte, (derived, former)) in bytes.iter_mut().zip(pairs) {
            if byte == derived {
                *byte = *former;
            }
        }
        device.write(SUPERBLOCK_OFFSET, &bytes)?;
        device.flush()
    }
}

/// Whether the device is long enough for a superblock.
fn has_room(device: &dyn BlockDevice) -> bool {
    device.size_bytes() >= SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64
}

/// Whether the superblock says that a journal must be replayed, and that there is none.
///
/// # Errors
///
/// [`CheckError::Device`] where reading fails.
pub fn lacks_its_journal(device: &dyn BlockDevice) -> Result<bool, CheckError> {
    if !has_room(device) {
        return Ok(false);
    }
    let own = raw(&Overlay::new(device))?;
    Ok(own.s_magic.get() == MAGIC
        && own.s_feature_incompat.get() & INCOMPAT_RECOVER != 0
        && own.s_feature_compat.get() & COMPAT_HAS_JOURNAL == 0)
}

/// The superblocks under which a journal may be replayed that the one in place does not lead to, the
/// most likely first: itself with a journal, where it [lacks one](lacks_its_journal); where it
/// `is_unusable`, itself with the fields that follow from others put right; then its backups, where
/// it is unusable or differs from them.
///
/// # Errors
///
/// [`CheckError::Device`] where reading fails.
pub fn superblocks_for_replay(
    device: &dyn BlockDevice,
    is_unusable: bool,
) -> Result<Vec<ReplaySuperblock>, CheckError> {
    if !has_room(device) {
        return Ok(Vec::new());
    }
    let image = Overlay::new(device);
    let mut found = Vec::new();
    if lacks_its_journal(device)? {
        let mut own = raw(&image)?;
        own.s_feature_compat = (own.s_feature_compat.get() | COMPAT_HAS_JOURNAL).into();
        own.s_journal_inum = JOURNAL_INODE.into();
        found.push((own, Origin::WithJournal));
    }
    if is_unusable {
        found.extend(derived(&image)?);
    }
    let backups = better_superblocks(&image, is_unusable)?;
    let backups = backups.into_iter().map(|mut raw| {
        // No backup knows that there is something to be replayed.
        let features = raw.s_feature_incompat.get() | INCOMPAT_RECOVER;
        raw.s_feature_incompat = features.into();
        (raw, Origin::Backup)
    });
    found.extend(backups);
    found.retain(|(raw, _)| raw.s_feature_compat.get() & COMPAT_HAS_JOURNAL != 0);
    let superblock = |(raw, origin): (RawSuperblock, Origin)| ReplaySuperblock {
        bytes: raw.as_bytes().to_vec(),
        origin,
    };
    Ok(found.into_iter().map(superblock).collect())
}

/// Takes the mark away that says that a journal must be replayed, in a superblock that no replay can
/// go by; whether it was there. The fields around it stay as they are.
///
/// # Errors
///
/// Those of the device.
pub fn give_up_replay(device: &dyn BlockDevice) -> Result<bool, CheckError> {
    if !has_room(device) {
        return Ok(false);
    }
    let mut image = Overlay::new(device);
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
fn derived(image: &Overlay<'_>) -> Result<Vec<(RawSuperblock, Origin)>, CheckError> {
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
            found.push((with_mark(raw(&other)?), Origin::Derived(former)));
        }
    }
    Ok(found)
}
