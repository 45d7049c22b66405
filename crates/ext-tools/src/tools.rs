//! The layout's tools behind the trait of all layouts.

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_ext::Ext2;
use backstitch_ext::format::superblock::{
    MAGIC, OFFSET_RECORD, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use backstitch_ext::format::{Features, JOURNAL_INODE, MountRecord};
use backstitch_layout::LayoutKind;
use backstitch_layout::tools::{
    CheckError, CheckOptions, Geography, Info, Location, MadeJournal, Mkfs, MkfsError, MkfsJournal,
    Outcome, RepairOptions, ReplaySuperblock, Report, Source, Tools, Tune, TuneError,
};
use backstitch_ordering::CrashRecord;
use core::mem::offset_of;

use crate::{fsck, geography, info, mkfs, repair, tune};

/// The tools of ext2 and ext3.
#[derive(Clone, Copy, Debug)]
pub struct ExtTools;

impl Tools for ExtTools {
    fn layout(&self) -> &'static dyn LayoutKind {
        &Ext2
    }

    fn types(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[("ext2", &[]), ("ext3", &["has_journal"])]
    }

    fn kernel_type(&self) -> Option<&'static str> {
        Some("ext4")
    }

    fn foreign_check(&self) -> &'static str {
        "e2fsck"
    }

    fn is_on(&self, device: &dyn BlockDevice) -> bool {
        let mut magic = [0; 2];
        let offset = SUPERBLOCK_OFFSET + offset_of!(RawSuperblock, s_magic) as u64;
        device.read(offset, &mut magic).is_ok() && magic == MAGIC.to_le_bytes()
    }

    fn uuid_on(&self, device: &dyn BlockDevice) -> Option<[u8; 16]> {
        let mut uuid = [0; 16];
        let offset = SUPERBLOCK_OFFSET + offset_of!(RawSuperblock, s_uuid) as u64;
        device.read(offset, &mut uuid).is_ok().then_some(uuid)
    }

    fn has_feature(&self, name: &str) -> bool {
        mkfs::is_log(name) || Features::default().set_by_name(name, true)
    }

    fn planned_inodes(&self, wanted: &Mkfs, device_bytes: u64) -> Result<u64, MkfsError> {
        mkfs::planned_inodes(wanted, device_bytes)
    }

    fn make(&self, wanted: &Mkfs, device: &dyn BlockDevice) -> Result<Info, MkfsError> {
        mkfs::write(wanted, device).map(|superblock| info::of(&superblock))
    }

    fn make_journal(
        &self,
        wanted: &MkfsJournal,
        device: &dyn BlockDevice,
    ) -> Result<MadeJournal, MkfsError> {
        mkfs::write_journal(wanted, device)
    }

    fn attach_journal(
        &self,
        device: &dyn BlockDevice,
        file_system: [u8; 16],
    ) -> Result<(), MkfsError> {
        mkfs::attach_journal(device, file_system)
    }

    fn journal_label(
        &self,
        device: &dyn BlockDevice,
    ) -> Result<(Vec<u8>, Vec<String>), DeviceError> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
        let raw = RawSuperblock::from_array(&bytes);
        let label = raw.s_volume_name.split(|byte| *byte == 0).next();
        let features = raw.features().names();
        Ok((label.unwrap_or_default().to_vec(), features))
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

    fn journal_location(&self) -> Location {
        Location::inode(JOURNAL_INODE)
    }

    fn lacks_its_journal(&self, device: &dyn BlockDevice) -> Result<bool, CheckError> {
        repair::lacks_its_journal(device)
    }

    fn superblocks_for_replay(
        &self,
        device: &dyn BlockDevice,
        is_unusable: bool,
    ) -> Result<Vec<ReplaySuperblock>, CheckError> {
        repair::superblocks_for_replay(device, is_unusable)
    }

    fn give_up_replay(&self, device: &dyn BlockDevice) -> Result<bool, CheckError> {
        repair::give_up_replay(device)
    }

    fn info(&self, device: &dyn BlockDevice) -> Result<Info, CheckError> {
        info::read(device)
    }

    fn tune(&self, tune: &Tune, device: &dyn BlockDevice) -> Result<Info, TuneError> {
        tune::apply(tune, device).map(|superblock| info::of(&superblock))
    }

    fn geography(&self, source: &dyn Source) -> Option<Box<dyn Geography>> {
        let read = geography::Blocks::read(source)?;
        Some(Box::new(read))
    }

    fn trusted(&self, source: &dyn Source, record: CrashRecord) -> Option<(u64, Vec<u8>)> {
        let superblock = geography::superblock(source)?;
        let found = superblock.record.filter(|r| !r.mechanism.is_trusted())?;
        let entry = MountRecord {
            mechanism: record,
            ..found
        };
        let offset = SUPERBLOCK_OFFSET + OFFSET_RECORD as u64;
        Some((offset, entry.encode(&superblock.uuid).to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_asked_for_among_the_features() {
        for name in ["lffs_log", "wafs_log", "has_journal"] {
            assert!(ExtTools.has_feature(name), "{name}");
        }
        assert!(!ExtTools.has_feature("log"));
    }
}
