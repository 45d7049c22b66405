//! The layout's tools behind the trait of all layouts.

use backstitch_device::BlockDevice;
use backstitch_layout::LayoutKind;
use backstitch_layout::tools::{
    CheckError, CheckOptions, DeviceSource, Geography, Info, Mkfs, MkfsError, Outcome,
    RepairOptions, Report, Source, Tools, Tune, TuneError,
};
use backstitch_ordering::CrashRecord;
use backstitch_ufs::Ufs;
use backstitch_ufs::format::superblock::{
    FLAG_JOURNAL, FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES, PLACES, SUPERBLOCK_BYTES, offset,
    version_at_home,
};
use backstitch_ufs::format::{MountRecord, OnDisk, RawSuperblock};

use crate::{fsck, geography, info, mkfs, repair, tune};

/// The tools of UFS1 and UFS2.
#[derive(Clone, Copy, Debug)]
pub struct UfsTools;

impl Tools for UfsTools {
    fn layout(&self) -> &'static dyn LayoutKind {
        &Ufs
    }

    fn types(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[(mkfs::UFS2, &[mkfs::UFS2]), (mkfs::UFS1, &[mkfs::UFS1])]
    }

    fn foreign_check(&self) -> &'static str {
        "FreeBSD's fsck_ffs"
    }

    fn is_on(&self, device: &dyn BlockDevice) -> bool {
        backstitch_ufs::is_on(device)
    }

    fn type_on(&self, device: &dyn BlockDevice) -> Option<&'static str> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let version = PLACES.into_iter().find_map(|place| {
            device.read(place, &mut bytes).ok()?;
            version_at_home(&bytes, place)
        });
        Some(version?.name())
    }

    fn uuid_on(&self, device: &dyn BlockDevice) -> Option<[u8; 16]> {
        let sb = fsck::superblock::find(&DeviceSource(device)).ok()?;
        Some(mkfs::uuid(&sb.raw))
    }

    fn divides_blocks(&self) -> bool {
        true
    }

    fn has_feature(&self, name: &str) -> bool {
        mkfs::has_feature(name)
    }

    fn planned_inodes(&self, wanted: &Mkfs, device_bytes: u64) -> Result<u64, MkfsError> {
        mkfs::planned_inodes(wanted, device_bytes)
    }

    fn make(&self, wanted: &Mkfs, device: &dyn BlockDevice) -> Result<Info, MkfsError> {
        mkfs::write(wanted, device).map(|superblock| info::of(&superblock))
    }

    fn check(&self, source: &dyn Source, options: &CheckOptions) -> Result<Report, CheckError> {
        fsck::check_source(source, options)
    }

    fn repair(
        &self,
        device: &dyn BlockDevice,
        options: &RepairOptions,
    ) -> Result<Outcome, CheckError> {
        repair::repair(device, options)
    }

    fn info(&self, device: &dyn BlockDevice) -> Result<Info, CheckError> {
        info::read(device)
    }

    fn tune(&self, tune: &Tune, device: &dyn BlockDevice) -> Result<Info, TuneError> {
        tune::apply(tune, device).map(|superblock| info::of(&superblock))
    }

    fn geography(&self, source: &dyn Source) -> Option<Box<dyn Geography>> {
        let read = geography::Fragments::read(source)?;
        Some(Box::new(read))
    }

    /// The record becomes that of a mechanism that keeps order; where there is none, the flags become
    /// those of soft updates.
    fn trusted(&self, source: &dyn Source, record: CrashRecord) -> Option<(u64, Vec<u8>)> {
        let sb = fsck::superblock::find(source).ok()?;
        if sb.raw.fs_clean != 0 || sb.is_left_in_order() || !record.is_trusted() {
            return None;
        }
        if let Some(found) = sb.record {
            let entry = MountRecord {
                mechanism: record,
                ..found
            };
            // The flags and all up to the record behind the superblock.
            let raw = RawSuperblock {
                fs_flags: entry.flags_in_use() as i32,
                ..(*sb.raw).clone()
            };
            let mut bytes = raw.to_bytes(sb.order)[offset::FLAGS..].to_vec();
            bytes.extend(entry.encode(&raw, sb.order));
            return Some((sb.place + offset::FLAGS as u64, bytes));
        }
        let cleared = FLAG_NEEDS_CHECK | FLAG_JOURNAL;
        let flags = (sb.flags | FLAG_SOFT_UPDATES) & !cleared;
        let bytes = sb.order.bytes_of_u32(flags).to_vec();
        Some((sb.place + offset::FLAGS as u64, bytes))
    }
}
