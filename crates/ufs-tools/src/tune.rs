//! Changes of a file system's label, UUID and reserved blocks, as tunefs(8) makes them.
//!
//! The **commit point** is the write of the superblock. The label and the last part of the UUID lie
//! in its second and third sector, the rest in its first: a crash in between leaves each of the
//! three with its old or its new value. What a mount left in a clean image is taken away before that. Copies are left as they are: what changes is not looked at
//! there.

use crate::{fsck, mkfs};
use backstitch_device::{BlockDevice, DeviceError};
use backstitch_layout::tools::{CheckError, DeviceSource};
use backstitch_ufs::format::record::RECORD_BYTES;
use backstitch_ufs::format::superblock::offset;
use backstitch_ufs::format::{OnDisk, RawSuperblock, Superblock, Version};

pub use backstitch_layout::tools::{Reserved, Tune, TuneError};

/// Makes the change, and returns the superblock as it is then.
///
/// # Errors
/// Values that cannot be, a file system that was not unmounted or that we cannot write; nothing has
/// been written then. The device's errors.
pub fn apply(tune: &Tune, device: &dyn BlockDevice) -> Result<Superblock, TuneError> {
    let sb = fsck::superblock::find(&DeviceSource(device)).map_err(|error| match error {
        CheckError::Format(error) => TuneError::Format(error),
        CheckError::Device(error) => TuneError::Device(error),
    })?;
    let percent = check(tune, &sb)?;
    let mut raw = (*sb.raw).clone();
    if sb.record.is_some() {
        end_mount(&sb, &mut raw, device)?;
    }
    if let Some(label) = &tune.label {
        raw.fs_volname = [0; 32];
        raw.fs_volname[..label.len()].copy_from_slice(label);
    }
    if let Some(uuid) = &tune.uuid {
        mkfs::set_uuid(&mut raw, uuid);
    }
    if let Some(percent) = percent {
        raw.fs_minfree = percent;
    }
    match sb.version {
        Version::Ufs1 => raw.fs_old_time = tune.time_seconds as i32,
        Version::Ufs2 => raw.fs_time = tune.time_seconds as i64,
    }
    let bytes = raw.to_bytes(sb.order);
    // What cannot be parsed is not written.
    let new = Superblock::parse(&bytes, sb.place, device.size_bytes())?;
    device.write(sb.place, &bytes)?;
    device.flush()?;
    Ok(new)
}

/// Takes the record of a mount and its marks away where a crash left them in a clean image: the
/// record tells what the marks mean, and it counts with the UUID that it was made with only. They
/// are in one sector.
fn end_mount(
    sb: &Superblock,
    raw: &mut RawSuperblock,
    device: &dyn BlockDevice,
) -> Result<(), DeviceError> {
    raw.fs_flags = sb.flags_at_rest() as i32;
    let mut bytes = raw.to_bytes(sb.order)[offset::FLAGS..].to_vec();
    bytes.extend([0; RECORD_BYTES]);
    device.write(sb.place + offset::FLAGS as u64, &bytes)?;
    device.flush()
}

/// Whether the change can be made; gives the percentage of blocks to reserve.
fn check(tune: &Tune, sb: &Superblock) -> Result<Option<i32>, TuneError> {
    let most = mkfs::LABEL_BYTES_MAX;
    if tune.label.as_ref().is_some_and(|label| label.len() > most) {
        let why = format!("the label has more than {most} bytes");
        return Err(TuneError::BadOption(why));
    }
    if !sb.is_clean() {
        let why = "it was not unmounted cleanly: mount it or run fsck first";
        return Err(TuneError::Refused(why.to_owned()));
    }
    if sb.is_old {
        let why = "its superblock is from before UFS2: a mount for writing brings it up to date";
        return Err(TuneError::Refused(why.to_owned()));
    }
    let unwritable = sb.write_support();
    if !unwritable.is_empty() {
        return Err(TuneError::Refused(format!(
            "it uses {}, which this version cannot write",
            unwritable.join(", ")
        )));
    }
    let percent = match tune.reserved {
        None => return Ok(None),
        Some(Reserved::Percent(percent)) => percent,
        Some(Reserved::Blocks(blocks)) => {
            let data = sb.raw.fs_dsize.max(1) as f64;
            (blocks as f64 * 100.0 / data).ceil()
        }
    };
    // UFS reserves a whole number of percent.
    match (0.0..=50.0).contains(&percent) {
        true => Ok(Some(percent.round() as i32)),
        false => Err(TuneError::BadOption(format!(
            "{percent} % reserved: 0 to 50 expected"
        ))),
    }
}
