//! Damages made by hand: each breaks one rule, and says what the check must tell of it.

use super::probe::Probe;
use super::{VARIANTS, makefs, source_tree};
use backstitch_layout::GroupNumber;
use backstitch_ufs::format::inode::POINTERS;
use backstitch_ufs::format::superblock::MAGIC_UFS1;
use backstitch_ufs::format::{OnDisk, RawInode2, RawSummary, RawSuperblock, Version};
use backstitch_ufs_tools::fsck::{Code, Kind};
use core::mem::offset_of;
use std::sync::OnceLock;

/// What it is called, how it is made (`false` where the image has no such thing), what is found
/// among other things, and the worst kind of all that is found.
pub(crate) type Row = (&'static str, fn(&mut Probe) -> bool, Code, Kind);

fn superblock(probe: &mut Probe, change: impl FnOnce(&mut RawSuperblock)) -> bool {
    probe.superblock(change);
    true
}

fn group(
    probe: &mut Probe,
    change: impl FnOnce(&mut backstitch_ufs::format::RawCylinderGroup),
) -> bool {
    probe.group(0, change);
    true
}

fn is_ufs1(probe: &Probe) -> bool {
    probe.sb.version == Version::Ufs1
}

#[rustfmt::skip]
pub(crate) const SUPERBLOCK: &[Row] = &[
    ("fs_bmask", |p| superblock(p, |raw| raw.fs_bmask ^= 4), Code::SuperblockField, Kind::Corruption),
    ("fs_fmask", |p| superblock(p, |raw| raw.fs_fmask ^= 4), Code::SuperblockField, Kind::Corruption),
    ("fs_bshift", |p| superblock(p, |raw| raw.fs_bshift += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_fshift", |p| superblock(p, |raw| raw.fs_fshift += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_fragshift", |p| superblock(p, |raw| raw.fs_fragshift += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_fsbtodb", |p| superblock(p, |raw| raw.fs_fsbtodb += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_qbmask", |p| superblock(p, |raw| raw.fs_qbmask += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_qfmask", |p| superblock(p, |raw| raw.fs_qfmask += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_maxfilesize", |p| superblock(p, |raw| raw.fs_maxfilesize += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_maxsymlinklen", |p| superblock(p, |raw| raw.fs_maxsymlinklen += 1), Code::SuperblockField, Kind::Corruption),
    ("a spare field", |p| superblock(p, |raw| raw.fs_sparecon64[3] = 1), Code::FieldNotZero, Kind::Corruption),
    ("another spare field", |p| superblock(p, |raw| raw.fs_sparecon32[9] = 1), Code::FieldNotZero, Kind::Corruption),
    ("fs_old_size", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_size += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_old_dsize", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_dsize += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_old_csaddr", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_csaddr += 1), Code::SuperblockField, Kind::Corruption),
    ("fs_old_inodefmt", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_inodefmt = 9), Code::SuperblockField, Kind::Corruption),
    ("fs_old_cgmask", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_cgmask = -2), Code::SuperblockField, Kind::Corruption),
    ("fs_old_postblformat", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_postblformat = -1), Code::SuperblockField, Kind::Corruption),
    ("fs_old_nrpos", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_nrpos = 8), Code::SuperblockField, Kind::Corruption),
    ("fs_old_cstotal", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_cstotal.cs_nifree += 1), Code::SummaryWrong, Kind::Count),
    ("fs_cstotal", |p| superblock(p, |raw| raw.fs_cstotal.cs_nbfree += 1), Code::SummaryWrong, Kind::Count),
    ("the summary of a group", summary, Code::SummaryWrong, Kind::Count),
    ("the copy in the last group", last_copy, Code::BackupDiffers, Kind::Count),
    ("a number of the copy in the last group", |p| copy_says(p, |raw| raw.fs_sbsize += 512), Code::SuperblockContradicted, Kind::Corruption),
    ("fs_sbsize", |p| superblock(p, |raw| raw.fs_sbsize += 512), Code::SuperblockContradicted, Kind::Corruption),
    ("fs_sbsize of too few bytes", |p| superblock(p, |raw| raw.fs_sbsize = 1_400), Code::SuperblockCorrupt, Kind::Corruption),
    ("fs_sblkno", |p| superblock(p, |raw| raw.fs_sblkno -= raw.fs_frag), Code::SuperblockCorrupt, Kind::Corruption),
    ("fs_sblockloc", |p| !is_ufs1(p) && p.sb.place == 65_536 && superblock(p, |raw| raw.fs_sblockloc += 1_000), Code::SuperblockField, Kind::Corruption),
    ("fs_csaddr on the superblock", |p| { let at = p.sb.place / u64::from(p.sb.fragment_bytes); summary_at(p, at) }, Code::SuperblockCorrupt, Kind::Corruption),
    ("fs_csaddr on a group's header", |p| { let at = p.sb.group_header(GroupNumber(0)); summary_at(p, at) }, Code::SuperblockCorrupt, Kind::Corruption),
    ("fs_csaddr on inodes", |p| { let at = p.sb.group_inodes(GroupNumber(p.sb.groups - 1)) + 1; summary_at(p, at) }, Code::SuperblockCorrupt, Kind::Corruption),
    ("fs_csaddr behind the end", |p| { let at = p.sb.fragments; summary_at(p, at) }, Code::SuperblockCorrupt, Kind::Corruption),
    ("fs_maxbsize", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_maxbsize /= 2), Code::UpgradeUnfinished, Kind::Count),
    ("fs_old_cpg", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_cpg = 16), Code::SuperblockField, Kind::Corruption),
    ("fs_old_cgoffset", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_cgoffset = 1), Code::SuperblockField, Kind::Corruption),
    ("fs_old_flags of UFS2", |p| !is_ufs1(p) && superblock(p, |raw| raw.fs_old_flags &= !0x80), Code::SuperblockField, Kind::Corruption),
    ("fs_old_flags of UFS1", |p| is_ufs1(p) && superblock(p, |raw| raw.fs_old_flags &= !0x80), Code::UpgradeUnfinished, Kind::Count),
    ("cs_numclusters of the total", |p| superblock(p, |raw| raw.fs_cstotal.cs_numclusters = 3), Code::SummaryWrong, Kind::Count),
    ("a spare number of the total", |p| superblock(p, |raw| raw.fs_cstotal.cs_spare[1] = 3), Code::SummaryWrong, Kind::Count),
    ("fs_spare1", |p| !is_ufs1(p) && superblock(p, |raw| raw.fs_spare1[1] = 1), Code::FieldNotZero, Kind::Corruption),
    ("fs_spare2", |p| !is_ufs1(p) && superblock(p, |raw| raw.fs_spare2 = 1), Code::FieldNotZero, Kind::Corruption),
    ("fs_spare5", |p| !is_ufs1(p) && superblock(p, |raw| raw.fs_spare5[0] = 1), Code::FieldNotZero, Kind::Corruption),
];

#[rustfmt::skip]
pub(crate) const GROUPS: &[Row] = &[
    ("cg_magic", |p| group(p, |raw| raw.cg_magic += 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_cgx", |p| group(p, |raw| raw.cg_cgx = 7), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_ndblk", |p| group(p, |raw| raw.cg_ndblk -= 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_niblk", |p| group(p, |raw| raw.cg_niblk += 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_old_niblk", |p| group(p, |raw| raw.cg_old_niblk += 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_old_ncyl", |p| group(p, |raw| raw.cg_old_ncyl += 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_iusedoff", |p| group(p, |raw| raw.cg_iusedoff = 60_000), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_freeoff", |p| group(p, |raw| raw.cg_freeoff = u32::MAX), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_nextfreeoff", |p| group(p, |raw| raw.cg_nextfreeoff += 4), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_clusteroff", |p| p.sb.cluster_sums > 0 && group(p, |raw| raw.cg_clusteroff = 4), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_nclusterblks", |p| group(p, |raw| raw.cg_nclusterblks += 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("a spare number of a header", |p| group(p, |raw| raw.cg_sparecon64[1] = 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("another spare number of a header", |p| group(p, |raw| raw.cg_sparecon32 = 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_clustersumoff", |p| p.sb.cluster_sums > 0 && group(p, |raw| raw.cg_clustersumoff -= 4), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_firstfield", |p| group(p, |raw| raw.cg_firstfield = 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_initediblk of a UFS1", |p| is_ufs1(p) && group(p, |raw| raw.cg_initediblk = 64), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("a byte between the maps", between_maps, Code::BitmapPadding, Kind::Corruption),
    ("the map without inode 1", |p| inode_bit(p, 1, false), Code::InodeNotMarked, Kind::Corruption),
    ("boot blocks marked as free", |p| { fragment_bit(p, 1); true }, Code::BlockNotMarked, Kind::Corruption),
    ("inodes marked as free", |p| { let at = p.sb.inodes_at; fragment_bit(p, at); true }, Code::BlockNotMarked, Kind::Corruption),
    ("the summary marked as free", |p| { let at = p.sb.summary_at as u32; fragment_bit(p, at); true }, Code::BlockNotMarked, Kind::Corruption),
    ("cg_rotor", |p| group(p, |raw| raw.cg_rotor = raw.cg_ndblk), Code::RotorInvalid, Kind::Count),
    ("cg_frotor", |p| group(p, |raw| raw.cg_frotor = u32::MAX), Code::RotorInvalid, Kind::Count),
    ("cg_irotor", |p| group(p, |raw| raw.cg_irotor = u32::MAX), Code::RotorInvalid, Kind::Count),
    ("cg_initediblk too high", |p| !is_ufs1(p) && group(p, |raw| raw.cg_initediblk = raw.cg_niblk + 1), Code::GroupHeaderCorrupt, Kind::Corruption),
    ("cg_initediblk too low", |p| !is_ufs1(p) && group(p, |raw| raw.cg_initediblk = 0), Code::InodeNotInitialised, Kind::Corruption),
    ("cs_nbfree", |p| group(p, |raw| raw.cg_cs.cs_nbfree += 1), Code::FreeBlocksWrong, Kind::Count),
    ("cs_nffree", |p| group(p, |raw| raw.cg_cs.cs_nffree -= 1), Code::FreeBlocksWrong, Kind::Count),
    ("cs_nifree", |p| group(p, |raw| raw.cg_cs.cs_nifree = -5), Code::FreeInodesWrong, Kind::Count),
    ("cs_ndir", |p| group(p, |raw| raw.cg_cs.cs_ndir += 1), Code::DirectoryCountWrong, Kind::Count),
    ("cg_frsum", |p| group(p, |raw| raw.cg_frsum[1] += 1), Code::FragmentSumsWrong, Kind::Count),
    ("cluster sums", |p| p.sb.cluster_sums > 0 && flip_map(p, |group| group.maps.cluster_sums + 7), Code::ClustersWrong, Kind::Count),
    ("the map of free blocks", |p| p.sb.cluster_sums > 0 && flip_map(p, |group| group.maps.clusters_free), Code::ClustersWrong, Kind::Count),
    ("a leaked fragment", leaked_fragment, Code::BlockLeaked, Kind::Count),
    ("a used fragment marked as free", free_fragment, Code::BlockNotMarked, Kind::Corruption),
    ("a leaked inode", |p| inode_bit(p, 8, true), Code::InodeLeaked, Kind::Count),
    ("a used inode marked as free", |p| { let inode = p.path("/dir/small"); inode_bit(p, inode, false) }, Code::InodeNotMarked, Kind::Corruption),
    ("bits behind the last fragment", padding, Code::BitmapPadding, Kind::Corruption),
];

#[rustfmt::skip]
pub(crate) const INODES: &[Row] = &[
    ("a free inode with a size", |p| { let free = free_inode(p); p.set_size(free, 5); true }, Code::FieldNotZero, Kind::Corruption),
    ("a free inode with a pointer", |p| { let free = free_inode(p); p.set_pointer(free, 3, 999); true }, Code::FieldNotZero, Kind::Corruption),
    ("a mode of no type", |p| mode(p, "/dir/large", 0o170_644), Code::ModeInvalid, Kind::Corruption),
    ("a directory of no type", |p| mode(p, "/dir/sub", 0o070_644), Code::ModeInvalid, Kind::Corruption),
    ("an empty file of no type", |p| { mode(p, "/fast", 0o170_644); let inode = p.path("/fast"); for slot in 0..POINTERS { p.set_pointer(inode, slot, 0); } true }, Code::ModeInvalid, Kind::Corruption),
    ("the root is a file", |p| mode(p, "/", 0o100_644), Code::RootInvalid, Kind::Corruption),
    ("a size that no file has", |p| size(p, "/dir/small", 1 << 62), Code::SizeInvalid, Kind::Corruption),
    ("a directory with an odd size", |p| { let inode = p.path("/many"); let now = p.inode(inode).size; size(p, "/many", now - 100) }, Code::SizeInvalid, Kind::Corruption),
    ("a directory of no bytes", |p| size(p, "/empty", 0), Code::DirectoryEmpty, Kind::Corruption),
    ("a directory without a block", |p| pointer(p, "/empty", 0, 0), Code::DirectoryHole, Kind::Corruption),
    ("a directory with a hole", |p| p.direct_blocks(p.path("/many")).len() > 1 && pointer(p, "/many", 0, 0), Code::DirectoryHole, Kind::Corruption),
    ("a pointer behind the end of the device", |p| { let end = p.sb.fragments; pointer(p, "/dir/large", 2, end) }, Code::BlockOutOfRange, Kind::Corruption),
    ("a pointer of all ones", |p| pointer(p, "/dir/large", 2, u64::MAX), Code::BlockOutOfRange, Kind::Corruption),
    ("a block across two", |p| p.sb.fragments_per_block > 1 && { let at = p.inode(p.path("/dir/large")).pointers[2]; pointer(p, "/dir/large", 2, at + 1) }, Code::BlockOutOfRange, Kind::Corruption),
    ("a pointer to a group's header", |p| { let at = p.sb.group_header(GroupNumber(0)); pointer(p, "/dir/large", 1, at) }, Code::BlockInMetadata, Kind::Corruption),
    ("a pointer to the boot blocks", |p| { let per_block = u64::from(p.sb.fragments_per_block); pointer(p, "/dir/large", 1, per_block) }, Code::BlockInMetadata, Kind::Corruption),
    ("a pointer to the summary", |p| { let at = p.sb.summary_at; pointer(p, "/dir/small", 0, at) }, Code::BlockInMetadata, Kind::Corruption),
    ("a block with two owners", |p| { let at = p.inode(p.path("/dir/large")).pointers[1]; pointer(p, "/dir/sub/larger", 3, at) }, Code::BlockClaimedTwice, Kind::Corruption),
    ("a tail with two owners", |p| { let at = p.inode(p.path("/dir/tail")).pointers[0]; pointer(p, "/dir/small", 0, at) }, Code::BlockClaimedTwice, Kind::Corruption),
    ("a directory's block with two owners", |p| { let at = p.inode(p.path("/dir")).pointers[0]; pointer(p, "/empty", 0, at) }, Code::BlockClaimedTwice, Kind::Corruption),
    ("an indirect block with two owners", |p| { let at = p.inode(p.path("/dir/sub/larger")).pointers[12]; at != 0 && pointer(p, "/dir/large", 12, at) }, Code::BlockClaimedTwice, Kind::Corruption),
    ("an indirect block that leads to itself", tree_in_itself, Code::BlockClaimedTwice, Kind::Corruption),
    ("an indirect block of garbage", garbage_indirect, Code::BlockOutOfRange, Kind::Corruption),
    ("a pointer past the end", |p| pointer(p, "/dir/small", 5, 4_000), Code::PointerPastEnd, Kind::Corruption),
    ("an indirect pointer past the end", past_end_indirect, Code::SizeBelowMapped, Kind::Count),
    ("sectors", |p| sectors(p, "/dir/large"), Code::BlockCountWrong, Kind::Count),
    ("too many links", |p| links(p, "/dir/small", 9), Code::LinksTooHigh, Kind::Count),
    ("too few links", |p| links(p, "/dir/small", 1), Code::LinksTooLow, Kind::Corruption),
    ("a directory with too few links", |p| links(p, "/dir", 2), Code::LinksTooLow, Kind::Corruption),
    ("a fifo with pointers", |p| pointer(p, "/dir/pipe", 4, 4_000), Code::SpecialFileInvalid, Kind::Corruption),
    ("a target cut short", |p| { let at = p.inode_at(p.path("/fast")) + p.offsets().pointers; p.poke(at + 5, &[0]); true }, Code::SymlinkInvalid, Kind::Corruption),
    ("a link without a target", |p| size(p, "/fast", 0), Code::SymlinkInvalid, Kind::Corruption),
    ("a long target with a zero", |p| { let at = p.direct_blocks(p.path("/slow"))[0].0; p.poke(at + 150, &[0]); true }, Code::SymlinkInvalid, Kind::Corruption),
    ("a long target that is nowhere", |p| pointer(p, "/slow", 0, 0), Code::SymlinkInvalid, Kind::Corruption),
    ("attributes of too many bytes", |p| attributes(p, u32::MAX, 0), Code::XattrInodeInvalid, Kind::Corruption),
    ("attributes that are nowhere", |p| attributes(p, 100, 0), Code::XattrInodeInvalid, Kind::Corruption),
    ("attributes of no bytes", |p| { let at = p.inode(p.path("/dir/large")).pointers[1]; attributes(p, 0, at) }, Code::XattrInodeInvalid, Kind::Corruption),
    ("attributes in another's block", |p| { let at = p.inode(p.path("/dir/large")).pointers[1]; attributes(p, 100, at) }, Code::BlockClaimedTwice, Kind::Corruption),
];

#[rustfmt::skip]
pub(crate) const DIRECTORIES: &[Row] = &[
    (". of another inode", |p| entry(p, "/dir/.", 0, |p| p.sb.order.bytes_of_u32(2).to_vec()), Code::DotInvalid, Kind::Corruption),
    (". renamed", |p| entry(p, "/dir/.", 8, |_| vec![b'x']), Code::DotInvalid, Kind::Corruption),
    (".. renamed", |p| entry(p, "/dir/..", 8, |_| vec![b'x']), Code::DotDotInvalid, Kind::Corruption),
    (".. of another directory", |p| { let other = p.path("/empty"); entry(p, "/dir/sub/..", 0, |p| p.sb.order.bytes_of_u32(other).to_vec()) }, Code::DotDotWrong, Kind::Corruption),
    (".. without an inode", |p| entry(p, "/dir/..", 0, |_| vec![0; 4]), Code::DotDotInvalid, Kind::Corruption),
    ("an odd length", |p| entry(p, "/dir/small", 4, |p| p.sb.order.bytes_of_u16(17).to_vec()), Code::EntryCorrupt, Kind::Corruption),
    ("a length of nothing", |p| entry(p, "/dir/small", 4, |_| vec![0; 2]), Code::EntryCorrupt, Kind::Corruption),
    ("an entry across chunks", |p| entry(p, "/dir/small", 4, |p| p.sb.order.bytes_of_u16(1_000).to_vec()), Code::EntryCorrupt, Kind::Corruption),
    ("a name beyond its entry", |p| entry(p, "/dir/small", 7, |_| vec![200]), Code::EntryCorrupt, Kind::Corruption),
    ("a name without a zero behind it", |p| entry(p, "/dir/small", 13, |_| vec![b'x']), Code::EntryCorrupt, Kind::Corruption),
    ("a chunk of zeros", |p| { let (at, len) = p.direct_blocks(p.path("/many"))[0]; len > 1_024 && { p.poke(at + 512, &[0; 512]); true } }, Code::EntryCorrupt, Kind::Corruption),
    ("a first chunk of zeros", |p| { let (at, _) = p.direct_blocks(p.path("/dir"))[0]; p.poke(at, &[0; 512]); true }, Code::EntryCorrupt, Kind::Corruption),
    ("an entry for an inode that does not exist", |p| { let inodes = p.sb.inodes(); entry(p, "/dir/small", 0, |p| p.sb.order.bytes_of_u32(inodes).to_vec()) }, Code::EntryInodeInvalid, Kind::Corruption),
    ("an entry for inode 1", |p| entry(p, "/dir/small", 0, |p| p.sb.order.bytes_of_u32(1).to_vec()), Code::EntryInodeInvalid, Kind::Corruption),
    ("an entry for the root", |p| entry(p, "/dir/small", 0, |p| p.sb.order.bytes_of_u32(2).to_vec()), Code::EntryInodeInvalid, Kind::Corruption),
    ("an entry for its own directory", |p| { let own = p.path("/dir"); entry(p, "/dir/small", 0, |p| p.sb.order.bytes_of_u32(own).to_vec()) }, Code::EntryInodeInvalid, Kind::Corruption),
    ("an entry for a free inode", |p| { let free = free_inode(p); entry(p, "/dir/small", 0, |p| p.sb.order.bytes_of_u32(free).to_vec()) }, Code::EntryToFreeInode, Kind::Corruption),
    ("another type", |p| entry(p, "/dir/small", 6, |_| vec![4]), Code::EntryTypeWrong, Kind::Corruption),
    ("no type", |p| entry(p, "/dir/small", 6, |_| vec![0]), Code::EntryTypeWrong, Kind::Corruption),
    ("a slash in a name", |p| entry(p, "/dir/small", 9, |_| vec![b'/']), Code::EntryNameInvalid, Kind::Corruption),
    ("a zero in a name", |p| entry(p, "/dir/small", 9, |_| vec![0]), Code::EntryNameInvalid, Kind::Corruption),
    ("a name twice", |p| entry(p, "/dir/small", 8, |_| b"large".to_vec()), Code::EntryDuplicate, Kind::Corruption),
    ("a name lost", |p| { p.unlink("/dir/sub/linked"); true }, Code::LinksTooHigh, Kind::Count),
    ("the only name lost", |p| { p.unlink("/fast"); true }, Code::UnconnectedInode, Kind::Leak),
    ("a directory without a name", |p| { p.unlink("/dir/sub"); true }, Code::UnconnectedDirectory, Kind::Leak),
    ("a directory with two names", |p| { let sub = p.path("/dir/sub"); p.relink("/fast", sub, 4); true }, Code::DirectoryTwoNames, Kind::Leak),
    ("a directory with three names", |p| { let sub = p.path("/dir/sub"); p.relink("/fast", sub, 4); p.relink("/slow", sub, 4); true }, Code::DirectoryManyNames, Kind::Corruption),
    ("directories in a circle", circle, Code::DirectoryCycle, Kind::Corruption),
];

fn summary(probe: &mut Probe) -> bool {
    let at = probe.fragment(probe.sb.summary_at);
    let mut raw = RawSummary::decode(probe.sb.order, &probe.bytes[at..]);
    raw.cs_ndir += 1;
    raw.encode(probe.sb.order, &mut probe.bytes[at..]);
    true
}

fn last_copy(probe: &mut Probe) -> bool {
    let last = GroupNumber(probe.sb.groups - 1);
    let at = probe.fragment(probe.sb.superblock_copy(last));
    probe.poke(at + 184, &[0xff; 4]);
    true
}

/// Changes the last group's copy of the superblock.
fn copy_says(probe: &mut Probe, change: impl FnOnce(&mut RawSuperblock)) -> bool {
    let copy = probe.sb.superblock_copy(GroupNumber(probe.sb.groups - 1));
    let at = probe.fragment(copy);
    let mut raw = RawSuperblock::decode(probe.sb.order, &probe.bytes[at..]);
    change(&mut raw);
    raw.encode(probe.sb.order, &mut probe.bytes[at..]);
    true
}

fn summary_at(probe: &mut Probe, fragment: u64) -> bool {
    superblock(probe, |raw| {
        raw.fs_csaddr = fragment as i64;
        if raw.fs_magic == MAGIC_UFS1 {
            raw.fs_old_csaddr = fragment as i32;
        }
    })
}

/// Between the maps of fragments and of clusters, or where that begins where the other ends, between
/// those of inodes and of fragments.
fn between_maps(probe: &mut Probe) -> bool {
    let maps = probe.parsed_group(0).maps;
    let bytes = |bits: u32| (bits as usize).div_ceil(8);
    let inodes_end = maps.inodes_used + bytes(probe.sb.inodes_per_group);
    let fragments_end = maps.fragments_free + bytes(probe.sb.fragments_per_group);
    let sums = match probe.sb.cluster_sums {
        0 => fragments_end,
        _ => maps.cluster_sums + 4,
    };
    let gaps = [(inodes_end, maps.fragments_free), (fragments_end, sums)];
    let gap = gaps.iter().find(|(start, end)| start < end);
    let Some((at, _)) = gap else { return false };
    let at = probe.header(0) + at;
    probe.poke(at, &[1]);
    true
}

fn flip_map(
    probe: &mut Probe,
    place: fn(&backstitch_ufs::format::CylinderGroup<'_>) -> usize,
) -> bool {
    let at = probe.header(0) + place(&probe.parsed_group(0));
    probe.bytes[at] ^= 1;
    true
}

fn fragment_bit(probe: &mut Probe, index: u32) {
    let at = probe.header(0) + probe.parsed_group(0).maps.fragments_free + index as usize / 8;
    probe.bytes[at] ^= 1 << (index % 8);
}

fn leaked_fragment(probe: &mut Probe) -> bool {
    let header = probe.parsed_group(0);
    let free = (0..header.fragments).rfind(|index| header.is_fragment_free(*index));
    fragment_bit(probe, free.unwrap());
    true
}

fn free_fragment(probe: &mut Probe) -> bool {
    let pointer = probe.inode(probe.path("/dir/small")).pointers[0];
    let group = probe.sb.group_of(pointer);
    assert_eq!(group.0, 0);
    fragment_bit(probe, pointer as u32);
    true
}

fn inode_bit(probe: &mut Probe, inode: u32, is_free_now: bool) -> bool {
    let inode = match is_free_now {
        true => free_inode(probe),
        false => inode,
    };
    let group = inode / probe.sb.inodes_per_group;
    let index = (inode % probe.sb.inodes_per_group) as usize;
    let at = probe.header(group) + probe.parsed_group(group).maps.inodes_used + index / 8;
    probe.bytes[at] ^= 1 << (index % 8);
    true
}

fn padding(probe: &mut Probe) -> bool {
    let last = probe.sb.groups - 1;
    let header = probe.parsed_group(last);
    let (end, at) = (header.fragments, header.maps.fragments_free);
    if end == probe.sb.fragments_per_group {
        return false;
    }
    let at = probe.header(last) + at + end as usize / 8;
    probe.bytes[at] |= 1 << (end % 8);
    true
}

/// An inode that is free and initialised.
fn free_inode(probe: &Probe) -> u32 {
    let initialised = probe.parsed_group(0).initialised_inodes;
    let free = (3..initialised).find(|number| probe.inode(*number).mode == 0);
    free.unwrap()
}

fn mode(probe: &mut Probe, path: &str, mode: u16) -> bool {
    let at = probe.inode_at(probe.path(path)) + probe.offsets().mode;
    probe.set_u16(at, mode);
    true
}

fn size(probe: &mut Probe, path: &str, size: u64) -> bool {
    let inode = probe.path(path);
    probe.set_size(inode, size);
    true
}

fn pointer(probe: &mut Probe, path: &str, slot: usize, to: u64) -> bool {
    let inode = probe.path(path);
    probe.set_pointer(inode, slot, to);
    true
}

fn sectors(probe: &mut Probe, path: &str) -> bool {
    let inode = probe.path(path);
    let at = probe.inode_at(inode) + probe.offsets().sectors;
    let found = probe.inode(inode).sectors;
    probe.set_wide(at, found + 2);
    true
}

fn links(probe: &mut Probe, path: &str, links: u16) -> bool {
    let at = probe.inode_at(probe.path(path)) + probe.offsets().links;
    probe.set_u16(at, links);
    true
}

fn attributes(probe: &mut Probe, bytes: u32, pointer: u64) -> bool {
    if is_ufs1(probe) {
        return false;
    }
    let at = probe.inode_at(probe.path("/dir/small"));
    probe.set_u32(at + offset_of!(RawInode2, di_extsize), bytes);
    probe.set_u64(at + offset_of!(RawInode2, di_extb), pointer);
    true
}

fn tree_in_itself(probe: &mut Probe) -> bool {
    let at = probe.inode(probe.path("/dir/sub/larger")).pointers[12];
    let place = probe.fragment(at);
    if at != 0 {
        probe.set_wide(place, at);
    }
    at != 0
}

fn garbage_indirect(probe: &mut Probe) -> bool {
    let at = probe.inode(probe.path("/dir/sub/larger")).pointers[12];
    let place = probe.fragment(at);
    if at != 0 {
        probe.poke(place, &[0xa5; 512]);
    }
    at != 0
}

fn past_end_indirect(probe: &mut Probe) -> bool {
    let inode = probe.path("/dir/large");
    let at = probe.inode(inode).pointers[12];
    let last = probe.sb.pointers_per_block as usize - 1;
    let place = probe.fragment(at) + last * probe.sb.version.pointer_bytes();
    if at != 0 {
        probe.set_wide(place, 4_000);
    }
    at != 0
}

fn entry(probe: &mut Probe, path: &str, offset: usize, bytes: impl Fn(&Probe) -> Vec<u8>) -> bool {
    let (at, _) = probe.entry(path);
    let bytes = bytes(probe);
    probe.poke(at + offset, &bytes);
    true
}

/// `dir/sub` is in `deep`, which is in it.
fn circle(probe: &mut Probe) -> bool {
    let (sub, deep) = (probe.path("/dir/sub"), probe.path("/dir/sub/deep"));
    probe.relink("/dir/sub/linked", deep, 4);
    probe.unlink("/dir/sub/deep");
    // The name in `deep`: in the space of its `..`.
    let (at, _) = probe.entry("/dir/sub/linked/..");
    let rec_len = probe.sb.order.u16(&probe.bytes, at + 4);
    probe.set_u16(at + 4, 12);
    probe.set_u32(at + 12, sub);
    probe.set_u16(at + 16, rec_len - 12);
    probe.poke(at + 18, &[4, 4]);
    probe.poke(at + 20, b"loop\0");
    probe.unlink("/dir/sub");
    true
}

/// The sound images that the tables damage: both versions, both byte orders, one to eight
/// fragments.
pub(crate) fn good_images() -> &'static [Vec<u8>] {
    static GOOD: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        source_tree(folder.path(), 120);
        let some = [VARIANTS[0], VARIANTS[1], VARIANTS[2], VARIANTS[5]];
        some.map(|made| makefs(made, "8m", folder.path())).into()
    })
}
