//! What is marked as used, and everything that is counted.

use super::fixer::Fixer;
use super::superblock::old_time;
use crate::fsck::{CheckError, Code, Finding, Location};
use crate::group::{self, Contents};
use backstitch_layout::GroupNumber;
use backstitch_ufs::format::group::offset;
use backstitch_ufs::format::superblock::SUPERBLOCK_BYTES;
use backstitch_ufs::format::{
    OnDisk, RawCylinderGroup, RawSummary, RawSummaryTotal, RawSuperblock, Version,
};
use std::collections::BTreeSet;

impl Fixer<'_, '_> {
    /// Headers that contradict the superblock, and inodes that are not said to be initialised.
    pub(super) fn headers(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        let mut damaged = BTreeSet::new();
        for finding in findings {
            let Some(group) = finding.location.group else {
                continue;
            };
            self.note(finding.location, format!("corrected: {}", finding.what));
            if finding.code == Code::InodeNotInitialised {
                let initialised = self.facts.groups[group.index()].initialised;
                let place = self.sb.group_header(group);
                let mut bytes = self.read(place, self.sb.group_bytes as usize)?;
                let field = &mut bytes[offset::INITIALISED_INODES..][..4];
                field.copy_from_slice(&self.sb.order.bytes_of_u32(initialised));
                self.write(place, &bytes)?;
            } else {
                damaged.insert(group);
            }
        }
        for group in damaged {
            self.group(group)?;
        }
        Ok(())
    }

    /// Sets the maps and counts of the groups with findings to what was found in use, and the
    /// summaries to what the groups say.
    pub(super) fn bitmaps(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        for finding in findings {
            self.note(finding.location, format!("corrected: {}", finding.what));
        }
        let in_maps = findings.iter().filter(|f| f.code != Code::SummaryWrong);
        let groups: BTreeSet<GroupNumber> = in_maps.filter_map(|f| f.location.group).collect();
        for group in groups {
            self.group(group)?;
        }
        self.image.barrier();
        self.summaries()
    }

    /// Builds a group's block anew.
    fn group(&mut self, group: GroupNumber) -> Result<(), CheckError> {
        let (sb, facts) = (self.sb, self.facts);
        let fragments = sb.fragments_in_group(group);
        let inodes = facts.gathered.inode_map(sb, group);
        let map_bytes = (sb.fragments_per_group as usize).div_ceil(8);
        let used = &facts.gathered.used;
        let free = used.free_map(sb.group_start(group), fragments, map_bytes);
        let mut kept = facts.groups[group.index()].raw.clone();
        let within = |rotor: u32, end: u32| if rotor < end { rotor } else { 0 };
        kept.cg_rotor = within(kept.cg_rotor, fragments);
        kept.cg_frotor = within(kept.cg_frotor, fragments);
        kept.cg_irotor = within(kept.cg_irotor, sb.inodes_per_group);
        kept.cg_initediblk = facts.groups[group.index()].initialised;
        kept.cg_firstfield = 0;
        let contents = Contents {
            group,
            inodes: &inodes,
            free: &free,
            directories: facts.gathered.directories_in(group),
            kept: &kept,
        };
        self.write(sb.group_header(group), &group::block(sb, &contents))
    }

    /// Writes the summaries of all groups and their total.
    fn summaries(&mut self) -> Result<(), CheckError> {
        let sb = self.sb;
        let mut total = RawSummaryTotal::default();
        let mut array = self.read(sb.summary_at, sb.summary_bytes as usize)?;
        let places = array.chunks_exact_mut(RawSummary::SIZE);
        for (group, to) in GroupNumber::all(sb.groups).zip(places) {
            let bytes = self.read(sb.group_header(group), RawCylinderGroup::SIZE)?;
            let header = RawCylinderGroup::decode(sb.order, &bytes);
            header.cg_cs.encode(sb.order, to);
            total.add(&header.cg_cs);
        }
        self.write(sb.summary_at, &array)?;
        let bytes = self.image.read(sb.place, SUPERBLOCK_BYTES)?;
        let mut raw = RawSuperblock::decode(sb.order, &bytes);
        if sb.version == Version::Ufs1 {
            raw.fs_old_cstotal = RawSummary {
                cs_ndir: total.cs_ndir as i32,
                cs_nbfree: total.cs_nbfree as i32,
                cs_nifree: total.cs_nifree as i32,
                cs_nffree: total.cs_nffree as i32,
            };
        }
        raw.fs_cstotal = total;
        raw.fs_old_time = old_time(sb.version, &raw);
        Ok(self.image.write(sb.place, &raw.to_bytes(sb.order))?)
    }

    /// Fields of the superblock that follow from others, and its copy in the last group.
    pub(super) fn superblock(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        for finding in findings {
            self.note(finding.location, format!("corrected: {}", finding.what));
        }
        let sb = self.sb;
        let mut raw = sb.raw.clone();
        if findings.iter().any(|f| f.location == Location::FILE_SYSTEM) {
            super::superblock::put_derived(sb, &mut raw);
            self.image.write(sb.place, &raw.to_bytes(sb.order))?;
        }
        let of_copy = [Code::BackupDiffers, Code::SuperblockContradicted];
        if findings.iter().any(|f| of_copy.contains(&f.code)) {
            let place = sb.superblock_copy(GroupNumber(sb.groups - 1));
            self.write(place, &raw.to_bytes(sb.order))?;
        }
        Ok(())
    }
}
