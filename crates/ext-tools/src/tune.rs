//! Changes of a file system's label, UUID and reserved blocks, as tune2fs makes them.
//!
//! # The order of writing
//!
//! Everything that changes lies in the first 512 bytes of the superblock, so the **commit point**
//! is the write of that one sector. What a crash leaves is the file system with its old values or
//! with its new ones. Two things are beside it:
//!
//! - The mount record in the second sector is checked against the UUID. It is written anew before
//!   the commit point. A crash in between leaves a clean image with a record that does not match,
//!   and the record of a clean image is not looked at.
//! - The backups follow the commit point. A crash before they are all written leaves some with the
//!   old values; no checker takes these from a backup while the primary superblock is good, and
//!   e2fsck brings the backups up to date.

use backstitch_device::BlockDevice;
use backstitch_layout::{GroupNumber, InodeNumber};
use zerocopy::IntoBytes;

use backstitch_ext::format::features::{COMPAT_HAS_JOURNAL, INCOMPAT_RECOVER};
use backstitch_ext::format::superblock::{
    MAGIC, RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use backstitch_ext::format::{Superblock, not_ext2};
pub use backstitch_layout::tools::{Reserved, Tune, TuneError};

/// What changes in one atomic write.
const SECTOR_BYTES: usize = 512;

/// Makes the change, in the primary superblock and then in its backups, and returns the superblock
/// as it is then.
///
/// # Errors
/// Values that cannot be, a file system that was not unmounted or that has features that we cannot
/// write, a new UUID where the journal's device names the file system by the old one; nothing has
/// been written then. The device's errors.
pub fn apply(tune: &Tune, device: &dyn BlockDevice) -> Result<Superblock, TuneError> {
    let bytes = read(device, SUPERBLOCK_OFFSET)?;
    let old = Superblock::parse(&bytes, device.size_bytes())?;
    check(tune, &old)?;
    let mut raw = RawSuperblock::from_array(&bytes);
    change(tune, &mut raw, &old);
    if let (Some(uuid), Some(record)) = (tune.uuid, old.record) {
        let record = record.encode(&uuid);
        raw.s_backstitch = zerocopy::transmute!(record);
    }
    // What cannot be parsed is not written.
    let new = Superblock::parse(&bytes_of(&raw), device.size_bytes())?;
    let changed = bytes_of(&raw);
    if changed[SECTOR_BYTES..] != bytes[SECTOR_BYTES..] {
        let place = SUPERBLOCK_OFFSET + SECTOR_BYTES as u64;
        device.write(place, &changed[SECTOR_BYTES..])?;
        device.flush()?;
    }
    device.write(SUPERBLOCK_OFFSET, &changed[..SECTOR_BYTES])?;
    device.flush()?;
    change_backups(tune, device, &old)?;
    Ok(new)
}

fn check(tune: &Tune, sb: &Superblock) -> Result<(), TuneError> {
    let refused = |why: String| Err(TuneError::Refused(why));
    if tune.label.as_ref().is_some_and(|label| label.len() > 16) {
        let why = "the label has more than 16 bytes".to_owned();
        return Err(TuneError::BadOption(why));
    }
    check_reserved(tune, sb)?;
    if sb.features.has_incompat(INCOMPAT_RECOVER) {
        return refused(
            "its journal holds changes that are not in place: mount it or run fsck first"
                .to_owned(),
        );
    }
    if sb.state & (STATE_VALID | STATE_ERROR) != STATE_VALID {
        return refused("it was not unmounted cleanly: mount it or run fsck first".to_owned());
    }
    let unwritable = sb.write_support_beside_journal();
    if !unwritable.is_empty() {
        return refused(format!(
            "it uses {}, which this version cannot write",
            unwritable.join(", ")
        ));
    }
    let has_journal = sb.features.has_compat(COMPAT_HAS_JOURNAL);
    if tune.uuid.is_some() && has_journal && sb.journal_inode == InodeNumber::NONE {
        return refused(
            "its journal is on another device, which names the file system by its UUID".to_owned(),
        );
    }
    Ok(())
}

fn check_reserved(tune: &Tune, sb: &Superblock) -> Result<(), TuneError> {
    let bad = |why: String| Err(TuneError::BadOption(why));
    match tune.reserved {
        Some(Reserved::Percent(percent)) if !(0.0..=50.0).contains(&percent) => {
            bad(format!("{percent} % reserved: 0 to 50 expected"))
        }
        Some(Reserved::Blocks(blocks)) if blocks > sb.blocks_count / 2 => bad(format!(
            "{blocks} blocks reserved: at most {}, half of the file system, expected",
            sb.blocks_count / 2
        )),
        _ => Ok(()),
    }
}

/// Sets the new values in a superblock or a backup.
fn change(tune: &Tune, raw: &mut RawSuperblock, sb: &Superblock) {
    if let Some(label) = &tune.label {
        raw.s_volume_name = [0; 16];
        raw.s_volume_name[..label.len()].copy_from_slice(label);
    }
    if let Some(uuid) = tune.uuid {
        raw.s_uuid = uuid;
    }
    if let Some(blocks) = reserved_blocks(tune, sb) {
        raw.s_r_blocks_count_lo = (blocks as u32).into();
    }
    raw.s_wtime = (tune.time_seconds as u32).into();
}

/// The new number of reserved blocks.
fn reserved_blocks(tune: &Tune, sb: &Superblock) -> Option<u64> {
    tune.reserved.map(|reserved| match reserved {
        Reserved::Blocks(blocks) => blocks,
        Reserved::Percent(percent) => (sb.blocks_count as f64 * percent / 100.0) as u64,
    })
}

fn change_backups(tune: &Tune, device: &dyn BlockDevice, sb: &Superblock) -> Result<(), TuneError> {
    for group in GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group))
    {
        let place = sb.block_offset(sb.group_first_block(group));
        let bytes = read(device, place)?;
        let mut raw = RawSuperblock::from_array(&bytes);
        // A damaged backup is fsck's to repair.
        if raw.s_magic.get() != MAGIC {
            continue;
        }
        change(tune, &mut raw, sb);
        device.write(place, &bytes_of(&raw))?;
    }
    Ok(device.flush()?)
}

fn read(device: &dyn BlockDevice, place: u64) -> Result<[u8; SUPERBLOCK_SIZE], TuneError> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.size_bytes() < place + SUPERBLOCK_SIZE as u64 {
        let what = format!("{} bytes are too small for one", device.size_bytes());
        return Err(not_ext2(what).into());
    }
    device.read(place, &mut bytes)?;
    Ok(bytes)
}

fn bytes_of(raw: &RawSuperblock) -> [u8; SUPERBLOCK_SIZE] {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn what_changes_lies_in_the_first_sector() {
        let ends = [
            offset_of!(RawSuperblock, s_r_blocks_count_lo) + 4,
            offset_of!(RawSuperblock, s_wtime) + 4,
            offset_of!(RawSuperblock, s_uuid) + 16,
            offset_of!(RawSuperblock, s_volume_name) + 16,
        ];
        assert!(ends.iter().all(|end| *end <= SECTOR_BYTES));
        assert!(offset_of!(RawSuperblock, s_backstitch) >= SECTOR_BYTES);
    }
}
