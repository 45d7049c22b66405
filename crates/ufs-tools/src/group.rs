//! A cylinder group's block as it must be, built from its maps.

use backstitch_layout::GroupNumber;
use backstitch_ufs::format::group::{Derived, MAGIC, Maps, reserved_inodes};
use backstitch_ufs::format::{OnDisk, RawCylinderGroup, RawSummary, Superblock, Version};

/// What a group's block follows from.
pub(crate) struct Contents<'a> {
    pub(crate) group: GroupNumber,
    /// A set bit for each inode in use, the reserved ones included.
    pub(crate) inodes: &'a [u8],
    /// A set bit for each free fragment.
    pub(crate) free: &'a [u8],
    /// Directories.
    pub(crate) directories: u32,
    /// Where times, rotors, the inodes that are initialised, and counts of inodes that are to be
    /// freed are taken from, as they are.
    pub(crate) kept: &'a RawCylinderGroup,
}

/// The header of a group and what it must count.
pub(crate) fn header(
    sb: &Superblock,
    contents: &Contents<'_>,
    derived: &Derived,
) -> RawCylinderGroup {
    let maps = Maps::new(sb);
    let fragments = sb.fragments_in_group(contents.group);
    let used: u32 = contents.inodes.iter().map(|byte| byte.count_ones()).sum();
    let kept = contents.kept;
    let mut raw = RawCylinderGroup {
        cg_firstfield: kept.cg_firstfield,
        cg_magic: MAGIC,
        cg_cgx: contents.group.0,
        cg_ndblk: fragments,
        cg_cs: RawSummary {
            cs_ndir: contents.directories as i32,
            cs_nbfree: derived.free_blocks as i32,
            cs_nifree: sb.inodes_per_group.saturating_sub(used) as i32,
            cs_nffree: derived.free_fragments as i32,
        },
        cg_rotor: kept.cg_rotor,
        cg_frotor: kept.cg_frotor,
        cg_irotor: kept.cg_irotor,
        cg_frsum: derived.fragment_sums,
        cg_iusedoff: maps.inodes_used as u32,
        cg_freeoff: maps.fragments_free as u32,
        cg_nextfreeoff: maps.end as u32,
        cg_clustersumoff: maps.cluster_sums as u32,
        cg_clusteroff: maps.clusters_free as u32,
        cg_unrefs: kept.cg_unrefs,
        // Kernels write both in either version.
        cg_old_time: kept.cg_old_time,
        cg_time: kept.cg_time,
        cg_ckhash: kept.cg_ckhash,
        ..RawCylinderGroup::default()
    };
    if sb.cluster_sums > 0 {
        raw.cg_nclusterblks = fragments / sb.fragments_per_block;
    }
    match sb.version {
        Version::Ufs1 => {
            raw.cg_old_ncyl = match sb.is_of_old_make() {
                // The last group had fewer cylinders.
                true => kept.cg_old_ncyl,
                false => sb.raw.fs_old_cpg as i16,
            };
            raw.cg_old_niblk = sb.inodes_per_group as i16;
            raw.cg_old_btotoff = maps.old_block_totals as i32;
            raw.cg_old_boff = maps.old_positions as i32;
        }
        Version::Ufs2 => {
            raw.cg_niblk = sb.inodes_per_group;
            raw.cg_initediblk = kept.cg_initediblk;
        }
    }
    raw
}

/// A group's block, `fs_cgsize` bytes of it.
pub(crate) fn block(sb: &Superblock, contents: &Contents<'_>) -> Vec<u8> {
    let maps = Maps::new(sb);
    let fragments = sb.fragments_in_group(contents.group);
    let derived = Derived::of(sb, contents.free, fragments);
    let mut bytes = vec![0; sb.group_bytes as usize];
    header(sb, contents, &derived).encode(sb.order, &mut bytes);
    let mut put = |at: usize, map: &[u8]| bytes[at..at + map.len()].copy_from_slice(map);
    put(maps.inodes_used, contents.inodes);
    put(maps.fragments_free, contents.free);
    // The sum of length 0 is not there: its place is the end of the map before.
    for (length, sum) in derived.cluster_sums.iter().enumerate().skip(1) {
        put(maps.cluster_sums + length * 4, &sb.order.bytes_of_u32(*sum));
    }
    put(maps.clusters_free, &derived.cluster_map);
    bytes
}

/// The map of inodes of a group without any, but for those that are nobody's.
pub(crate) fn empty_inode_map(sb: &Superblock, group: GroupNumber) -> Vec<u8> {
    let mut map = vec![0; (sb.inodes_per_group as usize).div_ceil(8)];
    for inode in 0..reserved_inodes(group) {
        backstitch_blocks::bitmap::set(&mut map, inode as usize);
    }
    map
}
