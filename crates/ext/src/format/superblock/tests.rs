use super::*;
use backstitch_layout::GroupNumber;
use core::mem::offset_of;
use zerocopy::{FromZeros, IntoBytes};

/// A superblock of a file system of 8 MiB in blocks of 1 KiB, one group of 8192 blocks.
fn small() -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic = MAGIC.into();
    raw.s_rev_level = REVISION_DYNAMIC.into();
    raw.s_blocks_count_lo = 8192.into();
    raw.s_first_data_block = 1.into();
    raw.s_blocks_per_group = 8192.into();
    raw.s_clusters_per_group = 8192.into();
    raw.s_inodes_per_group = 2048.into();
    raw.s_inodes_count = 2048.into();
    raw.s_inode_size = 256.into();
    raw.s_first_ino = 11.into();
    raw.s_feature_ro_compat = features::RO_COMPAT_SPARSE_SUPER.into();
    raw
}

fn parse(raw: &RawSuperblock) -> Result<Superblock, FormatError> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(raw.as_bytes());
    Superblock::parse(&bytes, 8 << 20)
}

#[test]
fn the_layout_is_the_kernels() {
    assert_eq!(size_of::<RawSuperblock>(), SUPERBLOCK_SIZE);
    assert_eq!(offset_of!(RawSuperblock, s_magic), 0x38);
    assert_eq!(offset_of!(RawSuperblock, s_state), 0x3a);
    assert_eq!(offset_of!(RawSuperblock, s_uuid), 0x68);
    assert_eq!(offset_of!(RawSuperblock, s_journal_uuid), 0xd0);
    assert_eq!(offset_of!(RawSuperblock, s_desc_size), 0xfe);
    assert_eq!(offset_of!(RawSuperblock, s_blocks_count_hi), 0x150);
    assert_eq!(offset_of!(RawSuperblock, s_flags), 0x160);
    assert_eq!(offset_of!(RawSuperblock, s_kbytes_written), 0x178);
    assert_eq!(offset_of!(RawSuperblock, s_mount_opts), 0x200);
    assert_eq!(offset_of!(RawSuperblock, s_backup_bgs), 0x24c);
    assert_eq!(offset_of!(RawSuperblock, s_reserved), 0x284);
    assert_eq!(OFFSET_RECORD, 0x3e4);
    assert_eq!(offset_of!(RawSuperblock, s_checksum), 0x3fc);
}

#[test]
fn geometry_of_a_small_file_system() {
    let sb = parse(&small()).unwrap();
    assert_eq!(
        (sb.block_size, sb.groups, sb.inode_table_blocks),
        (1024, 1, 512)
    );
    assert_eq!(
        (
            sb.group_of_block(BlockNumber(1)).0,
            sb.group_of_block(BlockNumber(8191)).0
        ),
        (0, 0)
    );
    assert_eq!(sb.blocks_in_group(GroupNumber(0)), 8191);
    assert_eq!(sb.group_of_inode(InodeNumber(2048)).0, 0);
    assert_eq!(sb.inode_position(InodeNumber(6)), (1, 256));
    assert!(sb.write_support().is_empty());
}

#[test]
fn backups_where_the_kernel_has_them() {
    let mut sb = parse(&small()).unwrap();
    let with: Vec<u32> = (0..130)
        .filter(|group| sb.has_super(GroupNumber(*group)))
        .collect();
    assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    sb.features.compat |= features::COMPAT_SPARSE_SUPER2;
    sb.backup_groups = [1, 6];
    let with: Vec<u32> = (0..130)
        .filter(|group| sb.has_super(GroupNumber(*group)))
        .collect();
    assert_eq!(with, [0, 1, 6]);
    sb.features = Features::default();
    assert!(GroupNumber::all(130).all(|group| sb.has_super(group)));
}

#[test]
fn another_file_system_is_not_a_corrupt_one() {
    assert!(matches!(
        parse(&RawSuperblock::new_zeroed()),
        Err(FormatError::NotAFileSystem { .. })
    ));
    let mut raw = small();
    raw.s_rev_level = 2.into();
    assert!(matches!(parse(&raw), Err(FormatError::Incompatible { .. })));
}

#[test]
fn unreadable_features_parse_and_are_named() {
    let mut raw = small();
    raw.s_feature_incompat = (features::INCOMPAT_META_BG | features::INCOMPAT_FILETYPE).into();
    assert_eq!(parse(&raw).unwrap().read_support(), ["meta_bg"]);
}

#[test]
fn impossible_numbers_are_corrupt() {
    type Damage = fn(&mut RawSuperblock);
    let damages: [Damage; 17] = [
        |raw| raw.s_blocks_count_lo = 8193.into(),
        |raw| raw.s_blocks_count_lo = 0.into(),
        |raw| raw.s_blocks_count_lo = 1.into(),
        |raw| raw.s_r_blocks_count_lo = 9000.into(),
        |raw| raw.s_log_block_size = 7.into(),
        |raw| raw.s_log_block_size = 1.into(),
        |raw| raw.s_first_data_block = 0.into(),
        |raw| raw.s_blocks_per_group = 0.into(),
        |raw| raw.s_blocks_per_group = 8200.into(),
        |raw| raw.s_blocks_per_group = 8188.into(),
        |raw| raw.s_inodes_per_group = 0.into(),
        |raw| raw.s_inodes_per_group = 8193.into(),
        |raw| raw.s_inodes_count = 2047.into(),
        |raw| raw.s_inode_size = 192.into(),
        |raw| raw.s_inode_size = 2048.into(),
        |raw| raw.s_first_ino = 3.into(),
        |raw| raw.s_reserved_gdt_blocks = 257.into(),
    ];
    for (index, damage) in damages.iter().enumerate() {
        let mut raw = small();
        damage(&mut raw);
        let result = parse(&raw);
        assert!(
            matches!(result, Err(FormatError::Corrupt(_))),
            "{index}: {result:?}"
        );
    }
}

#[test]
fn largest_files() {
    let mut sb = parse(&small()).unwrap();
    // 12 + 256 + 256² + 256³ blocks of 1 KiB.
    assert_eq!(
        sb.max_file_size(),
        (12 + 256 + 256 * 256 + 256 * 256 * 256) * 1024
    );
    sb.block_size = 4096;
    // i_blocks' 2³² sectors, less the tree: just under 2 TiB.
    let limit = sb.max_file_size();
    assert!(limit < 1 << 41 && limit > (1 << 41) - (1 << 32), "{limit}");
}
