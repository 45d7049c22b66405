//! Pass 0: the superblock, the group descriptors, and their backups.

use super::CheckError;
use super::state::Context;
use backstitch_ext::format::features::{
    COMPAT_DIR_INDEX, COMPAT_DIR_PREALLOC, COMPAT_EXT_ATTR, COMPAT_HAS_JOURNAL,
    COMPAT_IMAGIC_INODES, COMPAT_RESIZE_INODE, COMPAT_SPARSE_SUPER2, COMPAT_STABLE_INODES,
    INCOMPAT_WRITABLE, RO_COMPAT_DIR_NLINK, RO_COMPAT_EXTRA_ISIZE, RO_COMPAT_HUGE_FILE,
    RO_COMPAT_LARGE_FILE, RO_COMPAT_SPARSE_SUPER,
};
use backstitch_ext::format::group::{self, RawGroupDescriptor};
use backstitch_ext::format::superblock::{
    OS_HURD, RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
    Superblock,
};
use backstitch_ext::format::{Features, FormatError, GroupDescriptor, JOURNAL_INODE, not_ext2};
use backstitch_ext::journal::superblock_names_journal;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, GroupNumber};
use zerocopy::FromBytes;

/// The compat features with which this check knows what is right.
const KNOWN_COMPAT: u32 = COMPAT_DIR_PREALLOC
    | COMPAT_IMAGIC_INODES
    | COMPAT_HAS_JOURNAL
    | COMPAT_EXT_ATTR
    | COMPAT_RESIZE_INODE
    | COMPAT_DIR_INDEX
    | COMPAT_SPARSE_SUPER2
    | COMPAT_STABLE_INODES;
/// The same for ro_compat features.
const KNOWN_RO_COMPAT: u32 = RO_COMPAT_SPARSE_SUPER
    | RO_COMPAT_LARGE_FILE
    | RO_COMPAT_HUGE_FILE
    | RO_COMPAT_DIR_NLINK
    | RO_COMPAT_EXTRA_ISIZE;
/// Backups that are compared at most. Without `sparse_super` every group has one, with all
/// descriptors.
const MAX_BACKUPS: usize = 32;

/// Reads the superblock; `None` where it is so wrong that nothing else can be read.
pub(crate) fn read<S: Source + ?Sized>(
    source: &S,
    findings: &mut Findings,
) -> Result<Option<Superblock>, CheckError> {
    if source.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        let what = format!(
            "{} bytes are too short for a superblock",
            source.size_bytes()
        );
        return Err(not_ext2(what).into());
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let mut scratch = Vec::new();
    bytes.copy_from_slice(source.bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, &mut scratch)?);
    let sb = match Superblock::parse(&bytes, source.size_bytes()) {
        Ok(sb) => sb,
        Err(FormatError::Corrupt(corruption)) => {
            findings.add(Code::SuperblockCorrupt, Location::FILE_SYSTEM, || {
                corruption.to_string()
            });
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let unknown = unknown_features(&sb);
    if !unknown.is_empty() {
        return Err(FormatError::Incompatible {
            features: unknown.join(", "),
        }
        .into());
    }
    check_fields(&sb, &RawSuperblock::from_array(&bytes), findings);
    Ok(Some(sb))
}

/// The features under which this check would not know what is right.
pub(crate) fn unknown_features(sb: &Superblock) -> Vec<String> {
    let rest = Features {
        compat: sb.features.compat & !KNOWN_COMPAT,
        incompat: sb.features.incompat & !INCOMPAT_WRITABLE,
        ro_compat: sb.features.ro_compat & !KNOWN_RO_COMPAT,
    };
    let mut names = rest.names();
    if sb.creator_os == OS_HURD {
        names.push("hurd".into());
    }
    names
}

/// What the geometry's own check lets pass, but e2fsck does not.
fn check_fields(sb: &Superblock, raw: &RawSuperblock, findings: &mut Findings) {
    let mut wrong = |what: String| {
        findings.add(Code::SuperblockField, Location::FILE_SYSTEM, || what);
    };
    if sb.r_blocks_count > sb.blocks_count / 2 {
        wrong(format!(
            "{} of {} blocks are reserved",
            sb.r_blocks_count, sb.blocks_count
        ));
    }
    let per_block = sb.block_size / sb.inode_size;
    let most = per_block.saturating_mul(sb.blocks_per_group.saturating_sub(4));
    let most = most.min((1 << 16) - per_block);
    if !(per_block..=most).contains(&sb.inodes_per_group) {
        let count = sb.inodes_per_group;
        wrong(format!(
            "{count} inodes per group, must be {per_block} … {most}"
        ));
    }
    if raw.s_clusters_per_group != raw.s_blocks_per_group {
        wrong(format!(
            "s_clusters_per_group is {}",
            raw.s_clusters_per_group.get()
        ));
    }
    let desc_size = raw.s_desc_size.get();
    if desc_size != 0 && (!desc_size.is_power_of_two() || desc_size > 1024) {
        wrong(format!("s_desc_size is {desc_size}"));
    }
    if raw.s_log_groups_per_flex > 31 {
        wrong(format!(
            "s_log_groups_per_flex is {}",
            raw.s_log_groups_per_flex
        ));
    }
    for (name, inode) in quota_inodes(raw) {
        // Nothing keeps quotas here, since images with the quota feature are refused. e2fsck
        // removes such an inode with its names all the same, if it exists.
        if (sb.first_inode.0..=sb.inodes_count).contains(&inode) {
            wrong(format!(
                "{name} is {inode}, but the quota feature is missing"
            ));
        }
    }
    if !sb.features.has_compat(COMPAT_RESIZE_INODE) && sb.reserved_gdt_blocks != 0 {
        wrong(format!(
            "{} descriptor blocks reserved without resize_inode",
            sb.reserved_gdt_blocks
        ));
    }
    let has_journal = sb.features.has_compat(COMPAT_HAS_JOURNAL);
    if !has_journal && superblock_names_journal(raw) {
        wrong("a journal is named, but has_journal is missing".into());
    }
    let is_outside = raw.s_journal_inum.get() == 0 && raw.s_journal_uuid != [0; 16];
    if has_journal && raw.s_journal_inum.get() != JOURNAL_INODE.0 && !is_outside {
        wrong("the journal is not in its inode".into());
    }
    if has_journal && raw.s_journal_inum.get() != 0 && raw.s_journal_uuid != [0; 16] {
        wrong("the journal is named twice: by its inode, and as one on another device".into());
    }
}

/// The inodes that are said to hold quotas.
fn quota_inodes(raw: &RawSuperblock) -> [(&'static str, u32); 3] {
    [
        ("s_usr_quota_inum", raw.s_usr_quota_inum.get()),
        ("s_grp_quota_inum", raw.s_grp_quota_inum.get()),
        ("s_prj_quota_inum", raw.s_prj_quota_inum.get()),
    ]
}

/// Reads the descriptors; `None` where one of them is so wrong that the check must end.
pub(crate) fn read_groups<S: Source + ?Sized>(
    source: &S,
    sb: &Superblock,
    findings: &mut Findings,
) -> Result<Option<Vec<GroupDescriptor>>, CheckError> {
    let length = sb.groups as usize * sb.desc_size as usize;
    let offset = sb.block_offset(group::descriptor_table_block(sb));
    let mut groups = Vec::with_capacity(sb.groups as usize);
    let mut are_good = true;
    let (mut scratch, mut at) = (Vec::new(), 0);
    let step = (source.run_bytes() >> sb.block_size_bits).max(1) << sb.block_size_bits;
    while at < length {
        let run = step.min(length - at);
        let bytes = source.bytes(offset + at as u64, run, &mut scratch)?;
        for chunk in bytes.chunks_exact(sb.desc_size as usize) {
            let group = GroupNumber::at(groups.len());
            let Ok((raw, _)) = RawGroupDescriptor::ref_from_prefix(chunk) else {
                continue;
            };
            let descriptor = GroupDescriptor::from_raw(raw);
            if let Some(fault) = descriptor.misplaced(sb, group) {
                findings.add(Code::DescriptorCorrupt, Location::group(group), || {
                    fault.to_string()
                });
                are_good = false;
            }
            groups.push(descriptor);
        }
        at += run;
    }
    Ok(are_good.then_some(groups))
}

/// Files of 2 GiB or more need a feature, since ext2 once took the size for signed.
pub(crate) fn check_large_file(sb: &Superblock, has_large_file: bool, findings: &mut Findings) {
    if has_large_file && !sb.features.has_ro_compat(RO_COMPAT_LARGE_FILE) {
        findings.add(Code::LargeFileFeatureMissing, Location::FILE_SYSTEM, || {
            "there are files of 2 GiB or more, but the large_file feature is missing".into()
        });
    }
}

/// Whether the file system was unmounted.
pub(crate) fn note_state(sb: &Superblock, notes: &mut Findings) {
    if sb.state & STATE_VALID == 0 {
        notes.add(Code::NotUnmounted, Location::FILE_SYSTEM, || {
            "not cleanly unmounted".into()
        });
    }
    if sb.state & STATE_ERROR != 0 {
        notes.add(Code::ErrorsRecorded, Location::FILE_SYSTEM, || {
            "the file system was marked as having errors".into()
        });
    }
}

/// Compares the backups with the primaries in what never changes.
pub(crate) fn check_backups<S: Source + ?Sized>(
    context: &Context<'_, S>,
    notes: &mut Findings,
) -> Result<(), CheckError> {
    let sb = context.sb;
    let mut scratch = Vec::new();
    let primary = identity(context.source.bytes(
        SUPERBLOCK_OFFSET,
        SUPERBLOCK_SIZE,
        &mut scratch,
    )?);
    for group in GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group))
        .take(MAX_BACKUPS)
    {
        let first = sb.group_first_block(group);
        if identity(context.block(first, &mut scratch)?) != primary {
            notes.add(
                Code::BackupDiffers,
                Location::group(group).at_block(first),
                || "the superblock's backup differs from the superblock".into(),
            );
        }
        for index in 0..u64::from(sb.descriptor_blocks) {
            let block = first + 1 + index;
            let per_block = sb.block_size / sb.desc_size;
            let start = index as usize * per_block as usize;
            let expected =
                &context.groups[start..context.groups.len().min(start + per_block as usize)];
            let bytes = context.block(block, &mut scratch)?;
            let differs = expected
                .iter()
                .zip(bytes.chunks_exact(sb.desc_size as usize))
                .any(|(descriptor, chunk)| {
                    RawGroupDescriptor::ref_from_prefix(chunk).is_ok_and(|(raw, _)| {
                        places(descriptor) != places(&GroupDescriptor::from_raw(raw))
                    })
                });
            if differs {
                notes.add(
                    Code::BackupDiffers,
                    Location::group(group).at_block(block),
                    || "the descriptors' backup differs from the descriptors".into(),
                );
            }
        }
    }
    Ok(())
}

/// What a superblock and its backups have in common. Features that a kernel adds on the way are
/// left out: it does so in the primary only.
pub(crate) fn identity(bytes: &[u8]) -> Option<[u64; 12]> {
    let (raw, _) = RawSuperblock::ref_from_prefix(bytes).ok()?;
    let uuid = u128::from_le_bytes(raw.s_uuid);
    Some([
        raw.s_magic.get().into(),
        raw.s_inodes_count.get().into(),
        raw.s_blocks_count_lo.get().into(),
        raw.s_log_block_size.get().into(),
        raw.s_blocks_per_group.get().into(),
        raw.s_inodes_per_group.get().into(),
        raw.s_rev_level.get().into(),
        raw.s_inode_size.get().into(),
        raw.s_feature_incompat.get().into(),
        (raw.s_feature_ro_compat.get() & RO_COMPAT_SPARSE_SUPER).into(),
        uuid as u64,
        (uuid >> 64) as u64,
    ])
}

fn places(descriptor: &GroupDescriptor) -> [BlockNumber; 3] {
    [
        descriptor.block_bitmap,
        descriptor.inode_bitmap,
        descriptor.inode_table,
    ]
}
