//! The counts and marks on the disk: of groups, of the summary array, of the superblock.

use backstitch_layout::{BlockNumber, GroupNumber, Step, Stop, Timestamp};
use backstitch_ordering::{PatchId, Volume};
use backstitch_store::BlockKind;
use backstitch_unixfs::bitmap::{self, Bits};
use backstitch_unixfs::read_bits;

use crate::format::group::{Derived, Maps, RawSummaryCounts, offset as group_offset};
use crate::format::record::{RECORD_AT, RECORD_BYTES, RECORD_END};
use crate::format::superblock::{OLD_FLAG_MOVED, is_possible_extent, offset};
use crate::format::{
    CylinderGroup, MountRecord, OnDisk, RawSummary, RawSummaryTotal, Superblock, Version,
};
use crate::image::from_format;
use crate::kinds;
use crate::rules::{Rule, holds, wait_for, wait_for_all};
use crate::state::UfsFormat;

/// What follows from a group's maps.
pub(crate) struct FromMaps {
    /// The bytes of the header and the maps.
    bytes: Vec<u8>,
    maps: Maps,
    derived: Derived,
    /// What the header counts, with the directories that are known in memory.
    pub(crate) counts: RawSummaryCounts,
}

/// Bytes of a structure, and where they are in it.
pub(crate) type Parts = Vec<(usize, Vec<u8>)>;

/// The fields of a group's header that follow from its maps, with their bytes.
pub(crate) fn group_parts(
    sb: &Superblock,
    maps: &Maps,
    derived: &Derived,
    counts: RawSummaryCounts,
) -> Parts {
    let order = sb.order;
    let mut parts = vec![
        (
            group_offset::SUMMARY,
            RawSummary::from(counts).to_bytes(order),
        ),
        (
            group_offset::FRAGMENT_SUMS,
            derived.fragment_sums.to_bytes(order),
        ),
    ];
    if maps.cluster_sums > 0 {
        // Sums are counted by length, from 1 on: where an entry for length 0 would be, the map before
        // still has its last bytes.
        let sums = derived.cluster_sums[1..].iter();
        let sums: Vec<u8> = sums.flat_map(|sum| order.bytes_of_u32(*sum)).collect();
        parts.push((maps.cluster_sums + 4, sums));
        parts.push((maps.clusters_free, derived.cluster_map.clone()));
    }
    parts
}

/// What the superblock has that follows from the summary array.
pub(crate) fn total_parts(sb: &Superblock, total: &RawSummaryTotal) -> Parts {
    let mut parts = vec![(offset::SUMMARY_TOTAL, total.to_bytes(sb.order))];
    if sb.version == Version::Ufs1 {
        let old = RawSummary {
            cs_ndir: total.cs_ndir as i32,
            cs_nbfree: total.cs_nbfree as i32,
            cs_nifree: total.cs_nifree as i32,
            cs_nffree: total.cs_nffree as i32,
        };
        parts.push((offset::OLD_SUMMARY_TOTAL, old.to_bytes(sb.order)));
    }
    parts
}

impl<const BIG: bool> UfsFormat<BIG> {
    /// The fragments that a group's header and maps lie in, as those who read bits ask for them.
    pub(crate) fn group_blocks(&self, group: GroupNumber) -> Bits {
        Bits {
            block: self.groups.list[group.index()].header,
            blocks: self.sb.group_bytes.div_ceil(self.sb.fragment_bytes).into(),
            first_byte: 0,
            set_is_free: false,
        }
    }

    /// The fragment with which the superblock begins, and its offset there.
    pub(crate) fn superblock_place(&self) -> (BlockNumber, usize) {
        let fragment = u64::from(self.sb.fragment_bytes);
        (
            BlockNumber(self.sb.place / fragment),
            (self.sb.place % fragment) as usize,
        )
    }

    /// Writes what follows from the maps of groups that changed, then the summary array and the
    /// totals.
    pub(crate) fn write_counts(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        let stale = |group: &GroupNumber| {
            self.groups.list[group.index()].is_stale && holds(Rule::ChangedGroupsAreCounted)
        };
        let groups: Vec<_> = GroupNumber::all(self.sb.groups).filter(stale).collect();
        let mut missing = false;
        for group in &groups {
            let blocks = self.group_blocks(*group);
            for block in blocks.block.run(blocks.blocks) {
                missing |= !v.want(block);
            }
            missing |= !v.want(self.summary_place(group.index()).0);
        }
        let (first, _) = self.superblock_place();
        for block in first.run(self.superblock_fragments()) {
            missing |= !v.want(block);
        }
        if missing {
            return Err(Stop::Miss);
        }
        for group in groups {
            self.write_counts_of(v, group)?;
        }
        self.write_totals(v, now)
    }

    pub(crate) fn superblock_fragments(&self) -> u64 {
        let (_, offset) = self.superblock_place();
        let end = offset + RECORD_END;
        end.div_ceil(self.sb.fragment_bytes as usize) as u64
    }

    /// Computes what follows from a group's maps.
    pub(crate) fn derive(&self, v: &mut Volume<'_>, group: GroupNumber) -> Step<FromMaps> {
        let bytes = read_bits(v, &self.group_blocks(group))?.into_owned();
        let cg = CylinderGroup::parse(&self.sb, group, &bytes).map_err(from_format)?;
        let inodes = self.sb.inodes_per_group as usize;
        let free_inodes = bitmap::count_zeros(cg.inode_map(), inodes) as u32;
        let derived = Derived::of(&self.sb, cg.fragment_map(), cg.fragments);
        let maps = cg.maps;
        let counts = RawSummaryCounts {
            directories: self.groups.list[group.index()].directories,
            free_blocks: derived.free_blocks,
            free_inodes,
            free_fragments: derived.free_fragments,
        };
        Ok(FromMaps {
            bytes,
            maps,
            derived,
            counts,
        })
    }

    /// Writes a group's counts, sums and map of free blocks.
    fn write_counts_of(&mut self, v: &mut Volume<'_>, group: GroupNumber) -> Step<()> {
        let FromMaps {
            bytes,
            maps,
            derived,
            counts,
        } = self.derive(v, group)?;
        let header = self.groups.list[group.index()].header;
        let mut parts = group_parts(&self.sb, &maps, &derived, counts);
        let rotors = self.groups.list[group.index()].rotors;
        let rotors = [rotors.block, rotors.fragment, rotors.inode];
        let rotors = rotors
            .iter()
            .flat_map(|rotor| self.sb.order.bytes_of_u32(*rotor));
        parts.push((group_offset::ROTOR, rotors.collect()));
        for (at, new) in parts {
            if bytes[at..at + new.len()] != new {
                self.write_at(v, header, kinds::GROUP, at, &new);
            }
        }
        let summary = RawSummary::from(counts).to_bytes(self.sb.order);
        let (fragment, at) = self.summary_place(group.index());
        self.write_at(v, fragment, kinds::SUMMARY, at, &summary);
        self.groups.list[group.index()].is_stale = false;
        Ok(())
    }

    /// The sums of the summary array, in the superblock, and the time.
    fn write_totals(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        let order = self.sb.order;
        let summary = self.sb.summary_fragments();
        if summary
            .filter(|fragment| !v.want(BlockNumber(*fragment)))
            .count()
            > 0
        {
            return Err(Stop::Miss);
        }
        let mut total = RawSummaryTotal::default();
        for group in 0..self.groups.list.len() {
            let (fragment, at) = self.summary_place(group);
            total.add(&RawSummary::decode(order, &v.read(fragment)?[at..]));
        }
        let (block, base) = self.superblock_place();
        let mut parts = total_parts(&self.sb, &total);
        parts.push((offset::TIME, now.seconds.to_bytes(order)));
        parts.push((offset::GROUP_ROTOR, self.sb.raw.fs_cgrotor.to_bytes(order)));
        if self.sb.version == Version::Ufs1 {
            parts.push((offset::OLD_TIME, (now.seconds as i32).to_bytes(order)));
        }
        for (at, bytes) in parts {
            self.write_at(v, block, kinds::SUPERBLOCK, base + at, &bytes);
        }
        Ok(())
    }

    /// Writes bytes that begin at a byte counted from a fragment on, and may go on in the next ones.
    /// All of them are in memory. Returns the patches.
    pub(crate) fn write_at(
        &self,
        v: &mut Volume<'_>,
        first: BlockNumber,
        kind: BlockKind,
        at: usize,
        bytes: &[u8],
    ) -> Vec<PatchId> {
        let fragment = self.sb.fragment_bytes as usize;
        let (mut at, mut rest) = (at, bytes);
        let mut patches = Vec::new();
        while !rest.is_empty() {
            let (block, within) = (first + (at / fragment) as u64, at % fragment);
            let (here, behind) = rest.split_at(rest.len().min(fragment - within));
            patches.push(v.write(block, kind, within, here, &[]));
            (at, rest) = (at + here.len(), behind);
        }
        patches
    }

    /// Writes the time of the last mount, the flags and our record, if any: one patch, since they are
    /// in one sector.
    pub(crate) fn write_marks(
        &self,
        v: &mut Volume<'_>,
        flags: u32,
        record: Option<MountRecord>,
        after: &[PatchId],
    ) -> Step<PatchId> {
        let (sb, order) = (&self.sb, self.sb.order);
        let (block, base) = self.superblock_place();
        let fragment = sb.fragment_bytes as usize;
        let at = base + offset::MOUNT_TIME;
        let (block, at) = (block + (at / fragment) as u64, at % fragment);
        let has_room = sb.superblock_bytes() as usize >= RECORD_END;
        let len = match has_room {
            true => RECORD_END - offset::MOUNT_TIME,
            false => offset::FLAGS + 4 - offset::MOUNT_TIME,
        };
        let mut bytes = v.read(block)?[at..at + len].to_vec();
        let mut put = |place: usize, new: &[u8]| {
            let from = place - offset::MOUNT_TIME;
            bytes[from..from + new.len()].copy_from_slice(new);
        };
        put(offset::MOUNT_TIME, &sb.raw.fs_mtime.to_bytes(order));
        // A check, or a mount that does not know the list of orphans, leaves it as it was.
        put(offset::ORPHANS, &[0; 4]);
        put(offset::FLAGS, &order.bytes_of_u32(flags));
        if has_room {
            let none = || vec![0; RECORD_BYTES];
            let record = record.map_or_else(none, |record| record.encode(&sb.raw, order));
            put(RECORD_AT, &record);
        }
        Ok(v.write(block, kinds::SUPERBLOCK, at, &bytes, after))
    }

    /// Says that the image is not clean. Returns what every change comes after.
    ///
    /// The commit point of a mount for writing.
    pub(crate) fn say_in_use(&mut self, v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        let (block, base) = self.superblock_place();
        for fragment in block.run(self.superblock_fragments()) {
            v.read(fragment)?;
        }
        let mut marks = Vec::new();
        let old_flags = self.sb.raw.fs_old_flags;
        if old_flags & OLD_FLAG_MOVED == 0 {
            // Readers look for the flags in the old place as long as this is not said. It says as
            // well that the superblock tells where it is, and in UFS1 that all that came with UFS2 is there.
            let place = (self.sb.place as i64).to_bytes(self.sb.order);
            let at = base + offset::PLACE;
            marks.extend(self.write_at(v, block, kinds::SUPERBLOCK, at, &place));
            if self.sb.version == Version::Ufs1 {
                marks.extend(self.write_later_fields(v)?);
            }
            marks.push(self.write_byte(v, offset::OLD_FLAGS, old_flags | OLD_FLAG_MOVED, &marks));
        }
        if self.sb.version == Version::Ufs1 {
            let extent = self.write_extent(v, &marks)?;
            marks.extend(extent);
        }
        self.sb.raw.fs_old_flags |= OLD_FLAG_MOVED;
        marks.push(self.write_byte(v, offset::CLEAN, 0, &marks));
        let first = wait_for_all(Rule::ChangesAfterCleanTaken, &marks).to_vec();
        Ok(v.heeded_first(first))
    }

    /// Writes the fields that came with UFS2, but for those by which kernels tell that they are there,
    /// and those of the marks of a mount.
    fn write_later_fields(&self, v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        let bytes = self.sb.raw.to_bytes(self.sb.order);
        let (block, base) = self.superblock_place();
        let ranges = [
            offset::UNREFERENCED..offset::MOUNT_TIME,
            offset::SPARES..offset::SPARES + 84,
            offset::FILE_BYTES_MAX..offset::FILE_BYTES_MAX + 8,
        ];
        let mut patches = Vec::new();
        for range in ranges {
            let at = base + range.start;
            patches.extend(self.write_at(v, block, kinds::SUPERBLOCK, at, &bytes[range]));
        }
        Ok(patches)
    }

    /// Writes `fs_maxbsize` where the disk has none: kernels take all that came with UFS2 for missing
    /// then.
    fn write_extent(&self, v: &mut Volume<'_>, after: &[PatchId]) -> Step<Option<PatchId>> {
        let (block, base) = self.superblock_place();
        let fragment = self.sb.fragment_bytes as usize;
        let at = base + offset::EXTENT;
        let (block, at) = (block + (at / fragment) as u64, at % fragment);
        let found = self.sb.order.u32(v.read(block)?, at) as i32;
        let block_bytes = self.sb.raw.fs_bsize;
        Ok((!is_possible_extent(found, block_bytes)).then(|| {
            let extent = block_bytes.to_bytes(self.sb.order);
            v.write(block, kinds::SUPERBLOCK, at, &extent, after)
        }))
    }

    /// Writes a byte of the superblock, which is in memory.
    fn write_byte(&self, v: &mut Volume<'_>, place: usize, byte: u8, after: &[PatchId]) -> PatchId {
        let (block, base) = self.superblock_place();
        let fragment = self.sb.fragment_bytes as usize;
        let (block, at) = (
            block + ((base + place) / fragment) as u64,
            (base + place) % fragment,
        );
        v.write(block, kinds::SUPERBLOCK, at, &[byte], after)
    }

    /// Says that the image is clean again, and after that takes our record and the marks away.
    /// Where a crash left leaks it stays as it is, so that the next mount trusts it as this one did.
    ///
    /// The commit point of an unmount.
    pub(crate) fn say_clean(&mut self, v: &mut Volume<'_>, has_leaks: bool) -> Step<()> {
        let (block, _) = self.superblock_place();
        for fragment in block.run(self.superblock_fragments()) {
            v.read(fragment)?;
        }
        if has_leaks && holds(Rule::CleanOnlyAfterReclaim) {
            return Ok(());
        }
        // Nothing is left of what soft updates had to free.
        let raw = &mut self.sb.raw;
        if (raw.fs_pendingblocks, raw.fs_pendinginodes) != (0, 0) {
            (raw.fs_pendingblocks, raw.fs_pendinginodes) = (0, 0);
            const PENDING_BYTES: usize = 12;
            let (block, base) = self.superblock_place();
            let at = base + offset::PENDING_BLOCKS;
            self.write_at(v, block, kinds::SUPERBLOCK, at, &[0; PENDING_BYTES]);
        }
        let clean = self.write_byte(v, offset::CLEAN, 1, &[]);
        let flags = self.sb.flags_at_rest();
        let clean = wait_for(Rule::RecordKeptUntilClean, clean);
        self.write_marks(v, flags, None, &[clean])?;
        Ok(())
    }
}
