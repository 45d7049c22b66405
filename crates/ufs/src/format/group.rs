//! Cylinder groups: a header of 168 bytes, and behind it in the same block the maps of inodes, of
//! free fragments and of free blocks.

use super::fault::GroupFault;
use super::order::{ByteOrder, OnDisk, on_disk};
use super::summary::RawSummary;
use super::superblock::{Superblock, Version};
use super::{FormatError, ROOT_INODE};
use backstitch_blocks::bitmap;
use backstitch_layout::{GroupNumber, Structure};
use core::mem::offset_of;

/// `cg_magic`
pub const MAGIC: i32 = 0x0009_0255;
/// The bytes of the header.
pub const HEADER_BYTES: usize = RawCylinderGroup::SIZE;
/// The most fragments of a block.
pub const FRAGMENTS_MAX: usize = 8;

on_disk! {
    /// `struct cg`, with FreeBSD's names. UFS1 has the time and the number of inodes in the fields
    /// `cg_old_…`.
    pub struct RawCylinderGroup, 168 {
        pub cg_firstfield: i32,
        pub cg_magic: i32,
        pub cg_old_time: i32,
        pub cg_cgx: u32,
        pub cg_old_ncyl: i16,
        pub cg_old_niblk: i16,
        pub cg_ndblk: u32,
        pub cg_cs: RawSummary,
        pub cg_rotor: u32,
        pub cg_frotor: u32,
        pub cg_irotor: u32,
        pub cg_frsum: [u32; FRAGMENTS_MAX],
        pub cg_old_btotoff: i32,
        pub cg_old_boff: i32,
        pub cg_iusedoff: u32,
        pub cg_freeoff: u32,
        pub cg_nextfreeoff: u32,
        pub cg_clustersumoff: u32,
        pub cg_clusteroff: u32,
        pub cg_nclusterblks: u32,
        pub cg_niblk: u32,
        pub cg_initediblk: u32,
        pub cg_unrefs: u32,
        pub cg_sparecon32: i32,
        pub cg_ckhash: u32,
        pub cg_time: i64,
        pub cg_sparecon64: [i64; 3],
    }
}

macro_rules! offsets {
    ($($name:ident = $field:ident $bytes:literal;)*) => {
        $(
            #[doc = concat!("`", stringify!($field), "` (", $bytes, " bytes).")]
            pub const $name: usize = offset_of!(RawCylinderGroup, $field);
        )*
    };
}

/// Where the fields lie, for those who change single ones.
pub mod offset {
    use super::{RawCylinderGroup, offset_of};

    offsets! {
        OLD_TIME = cg_old_time "4";
        SUMMARY = cg_cs "16";
        ROTOR = cg_rotor "4";
        FRAGMENT_ROTOR = cg_frotor "4";
        INODE_ROTOR = cg_irotor "4";
        FRAGMENT_SUMS = cg_frsum "32";
        INITIALISED_INODES = cg_initediblk "4";
        TIME = cg_time "8";
    }
}

/// Where the maps of a group are in its block, in bytes from the block's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// UFS1 only: the free blocks of each cylinder (`cg_old_btotoff`), as kernels before UFS2 had
    /// them; else 0.
    pub old_block_totals: usize,
    /// UFS1 only: the same by rotational position (`cg_old_boff`); else 0.
    pub old_positions: usize,
    /// One bit for each inode of the group, set where it is used (`cg_iusedoff`).
    pub inodes_used: usize,
    /// One bit for each fragment of the group, set where it is free (`cg_freeoff`).
    pub fragments_free: usize,
    /// Sums of runs of free blocks by their length (`cg_clustersumoff`), four bytes each. The first
    /// one, of length 0, overlaps the map before it and is never written. 0 without clusters.
    pub cluster_sums: usize,
    /// One bit for each block of the group, set where all its fragments are free
    /// (`cg_clusteroff`). 0 without clusters.
    pub clusters_free: usize,
    /// Behind the last map (`cg_nextfreeoff`).
    pub end: usize,
}

impl Maps {
    /// Where `newfs` has the maps.
    pub fn new(sb: &Superblock) -> Maps {
        let cylinders = usize::try_from(sb.raw.fs_old_cpg).unwrap_or(0);
        let (old_block_totals, old_positions, inodes_used) = match sb.version {
            Version::Ufs1 => {
                let positions = HEADER_BYTES + cylinders * 4;
                (HEADER_BYTES, positions, positions + cylinders * 2)
            }
            Version::Ufs2 => (0, 0, HEADER_BYTES),
        };
        let fragments_free = inodes_used + (sb.inodes_per_group as usize).div_ceil(8);
        let end = fragments_free + (sb.fragments_per_group as usize).div_ceil(8);
        let mut maps = Maps {
            old_block_totals,
            old_positions,
            inodes_used,
            fragments_free,
            cluster_sums: 0,
            clusters_free: 0,
            end,
        };
        if sb.cluster_sums > 0 {
            maps.cluster_sums = end.next_multiple_of(4) - 4;
            maps.clusters_free = maps.cluster_sums + (sb.cluster_sums as usize + 1) * 4;
            let blocks = (sb.fragments_per_group / sb.fragments_per_block) as usize;
            maps.end = maps.clusters_free + blocks.div_ceil(8);
        }
        maps
    }
}

/// A group's header, checked: its maps are within the group's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Which one.
    pub group: GroupNumber,
    /// Where the maps are, as the header says.
    pub maps: Maps,
    /// Fragments of the group: fewer in the last one (`cg_ndblk`).
    pub fragments: u32,
    /// Inodes that have been initialised: all in UFS1 (`cg_initediblk`).
    pub initialised_inodes: u32,
    /// What the header counts.
    pub summary: RawSummaryCounts,
    /// Where searches begin.
    pub rotors: Rotors,
}

/// Where a search in a group begins that has no goal there: where the last one ended. Counted in the
/// group; FreeBSD wants them within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotors {
    /// The fragment of the block that was taken last (`cg_rotor`).
    pub block: u32,
    /// The first of the fragments that were taken last (`cg_frotor`).
    pub fragment: u32,
    /// The inode that was taken last (`cg_irotor`).
    pub inode: u32,
}

/// A group's header and maps, whose offsets have been checked: every access stays in the block.
#[derive(Clone, Copy, Debug)]
pub struct CylinderGroup<'a> {
    header: GroupHeader,
    order: ByteOrder,
    bytes: &'a [u8],
}

impl std::ops::Deref for CylinderGroup<'_> {
    type Target = GroupHeader;

    fn deref(&self) -> &GroupHeader {
        &self.header
    }
}

/// The four counts of a group, unsigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawSummaryCounts {
    /// Directories.
    pub directories: u32,
    /// Free whole blocks.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Free fragments of blocks that are partly used.
    pub free_fragments: u32,
}

impl From<&RawSummary> for RawSummaryCounts {
    fn from(raw: &RawSummary) -> RawSummaryCounts {
        RawSummaryCounts {
            directories: raw.cs_ndir as u32,
            free_blocks: raw.cs_nbfree as u32,
            free_inodes: raw.cs_nifree as u32,
            free_fragments: raw.cs_nffree as u32,
        }
    }
}

impl From<RawSummaryCounts> for RawSummary {
    fn from(counts: RawSummaryCounts) -> RawSummary {
        RawSummary {
            cs_ndir: counts.directories as i32,
            cs_nbfree: counts.free_blocks as i32,
            cs_nifree: counts.free_inodes as i32,
            cs_nffree: counts.free_fragments as i32,
        }
    }
}

impl GroupHeader {
    /// Reads a group's header, of which `bytes` are at least the first [`HEADER_BYTES`] of its
    /// block.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a header that is not this group's, or whose maps are not within
    /// the block.
    pub fn parse(
        sb: &Superblock,
        group: GroupNumber,
        bytes: &[u8],
    ) -> Result<GroupHeader, FormatError> {
        Self::checked(sb, group, bytes)
            .map_err(|fault| FormatError::corrupt(Structure::Descriptor { group }, fault))
    }

    fn checked(
        sb: &Superblock,
        group: GroupNumber,
        bytes: &[u8],
    ) -> Result<GroupHeader, GroupFault> {
        let raw = RawCylinderGroup::decode(sb.order, bytes);
        if raw.cg_magic != MAGIC {
            let found = raw.cg_magic;
            return Err(GroupFault::Magic { found });
        }
        if raw.cg_cgx != group.0 {
            return Err(GroupFault::OtherGroup { found: raw.cg_cgx });
        }
        let fragments = sb.fragments_in_group(group);
        if raw.cg_ndblk != fragments {
            return Err(GroupFault::Contradiction {
                field: "cg_ndblk",
                found: raw.cg_ndblk.into(),
                expected: fragments.into(),
            });
        }
        let initialised_inodes = match sb.version {
            Version::Ufs1 => sb.inodes_per_group,
            Version::Ufs2 => raw.cg_initediblk.min(sb.inodes_per_group),
        };
        let within = |rotor: u32, end: u32| if rotor < end { rotor } else { 0 };
        Ok(GroupHeader {
            group,
            maps: checked_maps(sb, &raw)?,
            fragments,
            initialised_inodes,
            summary: (&raw.cg_cs).into(),
            rotors: Rotors {
                block: within(raw.cg_rotor, fragments),
                fragment: within(raw.cg_frotor, fragments),
                inode: within(raw.cg_irotor, sb.inodes_per_group),
            },
        })
    }
}

impl<'a> CylinderGroup<'a> {
    /// Reads a group's header. `bytes` are those of its block, at least `fs_cgsize`.
    ///
    /// # Errors
    /// As [`GroupHeader::parse`], and where there are fewer bytes. Counts are not compared with the
    /// maps.
    pub fn parse(
        sb: &Superblock,
        group: GroupNumber,
        bytes: &'a [u8],
    ) -> Result<CylinderGroup<'a>, FormatError> {
        let expected = sb.group_bytes as usize;
        let Some(bytes) = bytes.get(..expected) else {
            let found = bytes.len();
            let fault = GroupFault::TooShort { found, expected };
            return Err(FormatError::corrupt(Structure::Descriptor { group }, fault));
        };
        Ok(CylinderGroup {
            header: GroupHeader::parse(sb, group, bytes)?,
            order: sb.order,
            bytes,
        })
    }

    /// Whether an inode of the group, counted from its first one, is marked as used.
    pub fn is_inode_used(&self, index: u32) -> bool {
        bitmap::test(self.inode_map(), index as usize)
    }

    /// Whether a fragment of the group, counted from its first one, is marked as free.
    pub fn is_fragment_free(&self, index: u32) -> bool {
        index < self.fragments && bitmap::test(self.fragment_map(), index as usize)
    }

    /// The map of inodes: a set bit is used.
    pub fn inode_map(&self) -> &'a [u8] {
        &self.bytes[self.maps.inodes_used..self.maps.fragments_free]
    }

    /// The map of fragments: a set bit is free.
    pub fn fragment_map(&self) -> &'a [u8] {
        let len = (self.fragments as usize).div_ceil(8);
        &self.bytes[self.maps.fragments_free..self.maps.fragments_free + len]
    }

    /// The map of blocks: a set bit is free. Empty without clusters.
    pub fn cluster_map(&self) -> &'a [u8] {
        match self.maps.clusters_free {
            0 => &[],
            at => &self.bytes[at..self.maps.end],
        }
    }

    /// How many runs of free fragments of this length the header counts, in blocks that are partly
    /// used. `length` is 1 … 7.
    pub fn fragment_sum(&self, length: usize) -> u32 {
        let at = offset::FRAGMENT_SUMS + length.min(FRAGMENTS_MAX - 1) * 4;
        self.order.u32(self.bytes, at)
    }

    /// How many runs of free blocks of this length the header counts; of the greatest length, and
    /// longer ones. `length` is at least 1.
    pub fn cluster_sum(&self, length: usize) -> u32 {
        match self.maps.cluster_sums {
            0 => 0,
            at => self.order.u32(self.bytes, at + length * 4),
        }
    }

    /// The header as it is on the disk.
    pub fn raw(&self) -> RawCylinderGroup {
        RawCylinderGroup::decode(self.order, self.bytes)
    }
}

/// The maps that a header tells, each within the block and behind the one before.
fn checked_maps(sb: &Superblock, raw: &RawCylinderGroup) -> Result<Maps, GroupFault> {
    let end = sb.group_bytes as usize;
    let at = |field, found: u32, from: usize, len: usize| {
        let place = found as usize;
        match place >= from && place <= end && len <= end - place {
            true => Ok(place),
            false => Err(GroupFault::Outside { field, found }),
        }
    };
    let inode_bytes = (sb.inodes_per_group as usize).div_ceil(8);
    let fragment_bytes = (sb.fragments_per_group as usize).div_ceil(8);
    let inodes_used = at("cg_iusedoff", raw.cg_iusedoff, HEADER_BYTES, inode_bytes)?;
    let fragments_free = at(
        "cg_freeoff",
        raw.cg_freeoff,
        inodes_used + inode_bytes,
        fragment_bytes,
    )?;
    let mut maps = Maps {
        inodes_used,
        fragments_free,
        end: fragments_free + fragment_bytes,
        ..Maps::new(sb)
    };
    if sb.cluster_sums > 0 {
        let sums = (sb.cluster_sums as usize + 1) * 4;
        let blocks = (sb.fragments_per_group / sb.fragments_per_block) as usize;
        // The sum of length 0 is not there: its place may be the map's before it.
        let sums_from = maps.end.next_multiple_of(4) - 4;
        let sums_at = at("cg_clustersumoff", raw.cg_clustersumoff, sums_from, sums)?;
        let map_len = blocks.div_ceil(8);
        let map_at = at("cg_clusteroff", raw.cg_clusteroff, sums_at + sums, map_len)?;
        (maps.cluster_sums, maps.clusters_free) = (sums_at, map_at);
        maps.end = map_at + map_len;
    }
    Ok(maps)
}

/// What follows from a map of free fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// Whole blocks that are free.
    pub free_blocks: u32,
    /// Free fragments in blocks that are partly used.
    pub free_fragments: u32,
    /// Runs of free fragments within blocks that are partly used, by their length.
    pub fragment_sums: [u32; FRAGMENTS_MAX],
    /// Runs of free blocks by their length, the longer ones with the greatest length; the first one
    /// is of no length and 0. Empty without clusters.
    pub cluster_sums: Vec<u32>,
    /// The map of free blocks, a set bit for each. Empty without clusters.
    pub cluster_map: Vec<u8>,
}

impl Derived {
    /// Computes it of a group of so many fragments. Bits behind them count as used.
    pub fn of(sb: &Superblock, fragment_map: &[u8], fragments: u32) -> Derived {
        let per_block = sb.fragments_per_block;
        let blocks_in_map = (sb.fragments_per_group / per_block) as usize;
        let mut derived = Derived::default();
        if sb.cluster_sums > 0 {
            derived.cluster_sums = vec![0; sb.cluster_sums as usize + 1];
            derived.cluster_map = vec![0; blocks_in_map.div_ceil(8)];
        }
        derived.count(fragment_map, per_block, fragments);
        derived
    }

    fn count(&mut self, fragment_map: &[u8], per_block: u32, fragments: u32) {
        let mut cluster = 0..0;
        let mut block = 0;
        while block < fragments.div_ceil(per_block) {
            let same = blocks_alike(fragment_map, block * per_block, per_block, fragments);
            let free = block_fragments(fragment_map, block * per_block, per_block, fragments);
            if free == full_block(per_block) {
                self.free_blocks += same;
                cluster.end = block + same;
            } else {
                self.end_cluster(cluster);
                self.free_fragments += free.count_ones();
                for (_, length) in fragment_runs(free) {
                    self.fragment_sums[length as usize] += 1;
                }
                cluster = block + same..block + same;
            }
            block += same;
        }
        self.end_cluster(cluster);
    }

    /// Counts a run of free blocks.
    fn end_cluster(&mut self, run: std::ops::Range<u32>) {
        if !run.is_empty() && !self.cluster_sums.is_empty() {
            let longest = self.cluster_sums.len() - 1;
            self.cluster_sums[run.len().min(longest)] += 1;
            bitmap::set_range(&mut self.cluster_map, run.start as usize, run.end as usize);
        }
    }
}

/// The blocks from a fragment on that are seen at once to be all free or all used: those of 64
/// fragments, or else one.
fn blocks_alike(map: &[u8], first: u32, per_block: u32, fragments: u32) -> u32 {
    let word = (map.get(first as usize / 8..)).and_then(|rest| rest.first_chunk::<8>());
    let is_even = word.is_some_and(|word| *word == [0; 8] || *word == [0xff; 8]);
    match is_even && first.is_multiple_of(u64::BITS) && first + u64::BITS <= fragments {
        true => u64::BITS / per_block,
        false => 1,
    }
}

/// A block all of whose fragments are free, a bit for each.
pub const fn full_block(fragments_per_block: u32) -> u8 {
    (u8::MAX as u32 >> (8 - fragments_per_block)) as u8
}

/// The free fragments of a block, a bit for each: those from `first` on. `fragments` are all that
/// the group has.
pub fn block_fragments(map: &[u8], first: u32, per_block: u32, fragments: u32) -> u8 {
    let byte = map.get(first as usize / 8).copied().unwrap_or(0);
    let bits = byte >> (first % 8) & full_block(per_block);
    match fragments.saturating_sub(first) {
        missing if missing < per_block => bits & ((1_u32 << missing) - 1) as u8,
        _ => bits,
    }
}

/// The runs of set bits in a byte: where each begins and how long it is.
pub fn fragment_runs(mut bits: u8) -> impl Iterator<Item = (u32, u32)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let skip = bits.trailing_zeros();
        let length = (bits >> skip).trailing_ones();
        let start = at + skip;
        bits = bits.checked_shr(skip + length).unwrap_or(0);
        at = start + length;
        Some((start, length))
    })
}

/// For each byte of a map of free fragments the lengths of the runs in its blocks that are used in
/// part: bit *n* for a run of *n*. One table for each number of fragments of a block, 1, 2, 4 and 8.
/// (FreeBSD's `fragtbl`.)
static RUN_LENGTHS: [[u8; 256]; 4] = [
    run_lengths(1),
    run_lengths(2),
    run_lengths(4),
    run_lengths(8),
];

const fn run_lengths(per_block: u32) -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut start = 0;
        while start < u8::BITS {
            let block = (byte >> start) as u8 & full_block(per_block);
            let (mut length, mut at) = (0, 0);
            while at <= per_block {
                if at < per_block && block >> at & 1 != 0 {
                    length += 1;
                } else {
                    // A run ends here; one as long as the block is no part of it.
                    if length > 0 && length < per_block {
                        table[byte] |= 1 << length;
                    }
                    length = 0;
                }
                at += 1;
            }
            start += per_block;
        }
        byte += 1;
    }
    table
}

/// The first byte of a map that has a run of one of these lengths (a bit for each), in a block that
/// is used in part.
pub fn find_run(map: &[u8], per_block: u32, lengths: u8) -> Option<usize> {
    const WORD_BYTES: usize = 8;
    let table = &RUN_LENGTHS[per_block.trailing_zeros() as usize];
    let has_one = |byte: &u8| table[usize::from(*byte)] & lengths != 0;
    for (at, word) in map.chunks(WORD_BYTES).enumerate() {
        // Most blocks are wholly used or wholly free, and lie together.
        let is_even = word == [0; WORD_BYTES] || word == [u8::MAX; WORD_BYTES];
        if !is_even && let Some(within) = word.iter().position(has_one) {
            return Some(at * WORD_BYTES + within);
        }
    }
    None
}

/// Inodes of a group that are nobody's and are marked as used: 0 and 1, in the first one.
pub fn reserved_inodes(group: GroupNumber) -> u32 {
    match group.0 {
        0 => ROOT_INODE.0,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_bits_are_found_in_order() {
        let of = |bits| fragment_runs(bits).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(0xff), [(0, 8)]);
        assert_eq!(of(0b1011_0001), [(0, 1), (4, 2), (7, 1)]);
        assert_eq!(of(0b0110_0000), [(5, 2)]);
    }

    /// The table of bytes says what a look at each block says.
    #[test]
    fn a_byte_with_a_run_of_a_length_is_found() {
        for per_block in [1, 2, 4, 8] {
            for byte in 0..=u8::MAX {
                let starts = (0..u8::BITS).step_by(per_block as usize);
                let blocks = starts.map(|start| byte >> start & full_block(per_block));
                let runs = blocks
                    .filter(|block| *block != full_block(per_block))
                    .flat_map(fragment_runs);
                let lengths = runs.fold(0, |lengths, (_, length)| lengths | 1 << length);
                for length in 1..u8::BITS {
                    let map = [[0; 19], [0xff; 19], [byte; 19]].concat();
                    let found = find_run(&map, per_block, 1 << length);
                    assert_eq!(found, (lengths >> length & 1 != 0).then_some(38));
                }
                assert_eq!(
                    find_run(&[byte], per_block, lengths),
                    (lengths > 0).then_some(0)
                );
            }
        }
    }

    /// What is seen a word at a time is the same as a block at a time.
    #[test]
    fn whole_words_count_like_their_blocks() {
        // Words that are free, used and neither, then a few bits.
        let mut map = [[0xff; 16], [0; 16], [0xff; 16]].concat();
        map.extend([0xff, 0x0f, 0xff, 0xf3, 0xff, 0xff, 0xff, 0xff]);
        map.extend([0xff; 11]);
        let bits = map.len() as u32 * 8;
        for (per_block, fragments) in [1, 2, 4, 8].map(|k| [(k, bits), (k, bits - 5)]).concat() {
            let mut derived = Derived {
                cluster_sums: vec![0; 4],
                cluster_map: vec![0; map.len()],
                ..Derived::default()
            };
            derived.count(&map, per_block, fragments);
            let blocks = fragments.div_ceil(per_block);
            let of = |block| block_fragments(&map, block * per_block, per_block, fragments);
            let whole: Vec<_> = (0..blocks)
                .map(|b| of(b) == full_block(per_block))
                .collect();
            let free: u32 = (0..blocks).map(|block| of(block).count_ones()).sum();
            let free_blocks = whole.iter().filter(|is| **is).count() as u32;
            assert_eq!(derived.free_blocks, free_blocks);
            assert_eq!(derived.free_fragments, free - free_blocks * per_block);
            for (block, is) in whole.iter().enumerate() {
                assert_eq!(bitmap::test(&derived.cluster_map, block), *is, "{block}");
            }
            let runs = whole.chunk_by(|a, b| a == b).filter(|run| run[0]);
            let mut sums = vec![0; 4];
            runs.for_each(|run| sums[run.len().min(3)] += 1);
            assert_eq!(derived.cluster_sums, sums, "{per_block}");
        }
    }

    #[test]
    fn fragments_behind_the_end_are_not_free() {
        let map = [0b1101_0110, 0xff];
        assert_eq!(block_fragments(&map, 4, 4, 16), 0b1101);
        assert_eq!(block_fragments(&map, 8, 8, 11), 0b111);
        assert_eq!(block_fragments(&map, 16, 8, 24), 0);
        assert_eq!((full_block(1), full_block(8)), (1, 0xff));
    }
}
