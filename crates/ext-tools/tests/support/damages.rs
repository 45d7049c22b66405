//! A table of damages, made by hand, with what a check must say about each.

use super::probe::Probe;
use super::{debugfs, filled_image, source_tree};
use backstitch_ext::format::inode::offset;
use backstitch_ext::format::{bitmap, directory};
use backstitch_ext_tools::fsck::{Code, Kind};
use backstitch_layout::GroupNumber;
use std::path::Path;
use std::sync::OnceLock;

/// How a damage is done.
pub(crate) enum Damage {
    /// By debugfs: `{block:PATH}` stands for the first block of a file, `{inode:PATH}` for its
    /// inode.
    Commands(&'static [&'static str]),
    /// By hand.
    Poke(fn(&mut Probe)),
}

use Damage::{Commands, Poke};

/// Damage, a code that must be found, and the worst kind of all that is found.
pub(crate) type Row = (&'static str, Damage, Code, Kind);

#[rustfmt::skip]
pub(crate) const SUPERBLOCK: &[Row] = &[
    ("more blocks than the device", Commands(&["ssv blocks_count 999999"]), Code::SuperblockCorrupt, Kind::Corruption),
    ("wrong inode count", Commands(&["ssv inodes_count 16"]), Code::SuperblockCorrupt, Kind::Corruption),
    ("first data block", Commands(&["ssv first_data_block 0"]), Code::SuperblockCorrupt, Kind::Corruption),
    ("inode size", Commands(&["ssv inode_size 100"]), Code::SuperblockCorrupt, Kind::Corruption),
    ("no blocks per group", Commands(&["ssv blocks_per_group 0"]), Code::SuperblockCorrupt, Kind::Corruption),
    ("huge block size", Commands(&["ssv log_block_size 9"]), Code::SuperblockCorrupt, Kind::Corruption),
    ("most blocks reserved", Commands(&["ssv r_blocks_count 7000"]), Code::SuperblockField, Kind::Corruption),
    ("descriptor size", Commands(&["ssv desc_size 33"]), Code::SuperblockField, Kind::Corruption),
    ("quotas in a file's inode", Commands(&["ssv grp_quota_inum {inode:/dir/small}"]), Code::SuperblockField, Kind::Corruption),
    ("a journal without the feature", Commands(&["ssv journal_inum 8"]), Code::SuperblockField, Kind::Corruption),
    ("bitmap at block 0", Commands(&["set_bg 0 block_bitmap 0"]), Code::DescriptorCorrupt, Kind::Corruption),
    ("bitmap in the other group", Commands(&["set_bg 0 inode_bitmap 9000"]), Code::DescriptorCorrupt, Kind::Corruption),
    ("inode table upon the superblock", Commands(&["set_bg 0 inode_table 1"]), Code::DescriptorCorrupt, Kind::Corruption),
    ("inode table behind the end", Commands(&["set_bg 1 inode_table 12200"]), Code::DescriptorCorrupt, Kind::Corruption),
    ("inodes in use said to be uninitialised", Commands(&["set_bg 0 flags 1"]), Code::DescriptorFlags, Kind::Corruption),
    ("free blocks of a group", Commands(&["set_bg 0 free_blocks_count 1"]), Code::FreeBlocksWrong, Kind::Count),
    ("free inodes of a group", Commands(&["set_bg 0 free_inodes_count 1"]), Code::FreeInodesWrong, Kind::Count),
    ("directories of a group", Commands(&["set_bg 0 used_dirs_count 99"]), Code::DirectoryCountWrong, Kind::Count),
    ("resize inode without its block", Commands(&["sif <7> block[DIND] 0"]), Code::ResizeInodeInvalid, Kind::Corruption),
    ("resize inode with a block", Commands(&["sif <7> block[2] 2000"]), Code::ResizeInodeInvalid, Kind::Corruption),
    ("resize inode with a short size", Commands(&["sif <7> size 1"]), Code::SizeBelowMapped, Kind::Count),
    ("large file without the feature", Commands(&["sif dir/sparse size 0x80000000", "feature -large_file"]), Code::LargeFileFeatureMissing, Kind::Corruption),
    ("padding of a bitmap", Poke(clear_padding), Code::BitmapPadding, Kind::Corruption),
];

#[rustfmt::skip]
pub(crate) const INODES: &[Row] = &[
    ("cleared inode", Commands(&["clri dir/small"]), Code::EntryToFreeInode, Kind::Corruption),
    ("block count", Commands(&["sif dir/large blocks 2"]), Code::BlockCountWrong, Kind::Count),
    ("file size below its blocks", Commands(&["sif dir/large size 1024"]), Code::SizeBelowMapped, Kind::Count),
    ("odd directory size", Commands(&["sif dir size 1000"]), Code::SizeInvalid, Kind::Corruption),
    ("directory size above its blocks", Commands(&["sif dir size 4096"]), Code::SizeInvalid, Kind::Corruption),
    ("directory size below its blocks", Commands(&["sif many size 1024"]), Code::SizeBelowMapped, Kind::Count),
    ("no such type", Commands(&["sif dir/small mode 0170644"]), Code::ModeInvalid, Kind::Corruption),
    ("file becomes directory", Commands(&["sif dir/large mode 040755"]), Code::EntryTypeWrong, Kind::Corruption),
    ("deletion time in a live inode", Commands(&["sif dir/small dtime 1700000000"]), Code::DeletionTimeSet, Kind::Corruption),
    ("deletion time of an orphan list", Commands(&["sif dir/small dtime 20"]), Code::DeletionTimeLow, Kind::Corruption),
    ("no links, but a name", Commands(&["sif fast links_count 0"]), Code::EntryToFreeInode, Kind::Corruption),
    ("deleted while open", Commands(&["unlink fast", "sif <{inode:/fast}> links_count 0"]), Code::DeletionTimeMissing, Kind::Leak),
    ("fast symlink shorter than its size", Commands(&["sif fast size 40"]), Code::SymlinkInvalid, Kind::Corruption),
    ("slow symlink longer than its size", Commands(&["sif slow size 70"]), Code::SymlinkInvalid, Kind::Corruption),
    ("slow symlink with another pointer", Commands(&["sif slow block[5] 9"]), Code::SymlinkInvalid, Kind::Corruption),
    ("symlink without target", Commands(&["sif fast size 0"]), Code::SymlinkInvalid, Kind::Corruption),
    ("device with a size", Commands(&["sif dir/tty size 10"]), Code::SpecialFileInvalid, Kind::Corruption),
    ("imagic without the feature", Commands(&["sif dir/small flags 0x2000"]), Code::FlagInvalid, Kind::Corruption),
    ("extents without the feature", Commands(&["sif dir/small flags 0x80000"]), Code::FlagInvalid, Kind::Corruption),
    ("index flag on a file", Commands(&["sif dir/small flags 0x1000"]), Code::FlagInvalid, Kind::Corruption),
    ("fragment address", Commands(&["sif dir/small faddr 7"]), Code::FieldNotZero, Kind::Corruption),
    ("extra size", Commands(&["sif dir/small extra_isize 3"]), Code::ExtraSizeInvalid, Kind::Corruption),
    ("the root is a file", Commands(&["sif <2> mode 0100644"]), Code::RootInvalid, Kind::Corruption),
    ("the root is deleted", Commands(&["sif <2> links_count 0"]), Code::RootInvalid, Kind::Corruption),
    ("bad blocks as a file", Commands(&["sif <1> mode 0100644"]), Code::ReservedInodeInvalid, Kind::Corruption),
    ("garbage in a reserved inode", Commands(&["sif <9> mode 0100644", "sif <9> flags 0x40000000"]), Code::ReservedInodeInvalid, Kind::Corruption),
    ("journal inode in use", Commands(&["sif <8> links_count 1"]), Code::ReservedInodeInvalid, Kind::Corruption),
    ("reserved inode in use", Commands(&["sif <9> mode 0100644"]), Code::ReservedInodeInvalid, Kind::Corruption),
    ("damaged attributes inside an inode", Poke(inline_attribute), Code::XattrInodeInvalid, Kind::Corruption),
];

#[rustfmt::skip]
pub(crate) const BLOCKS: &[Row] = &[
    ("pointer out of range", Commands(&["sif dir/large block[0] 999999"]), Code::BlockOutOfRange, Kind::Corruption),
    ("indirect pointer out of range", Commands(&["sif dir/large block[IND] 999999"]), Code::BlockOutOfRange, Kind::Corruption),
    ("garbage indirect block", Poke(garbage_indirect_block), Code::BlockOutOfRange, Kind::Corruption),
    ("pointer to a bitmap", Poke(pointer_to_bitmap), Code::BlockInMetadata, Kind::Corruption),
    ("a block of two files", Commands(&["sif dir/large block[0] {block:/dir/sub/double}"]), Code::BlockClaimedTwice, Kind::Corruption),
    ("a tree that contains itself", Poke(tree_in_itself), Code::BlockClaimedTwice, Kind::Corruption),
    ("used block marked free", Commands(&["freeb {block:/dir/large}"]), Code::BlockNotMarked, Kind::Corruption),
    ("free block marked used", Commands(&["setb 12000 3"]), Code::BlockLeaked, Kind::Count),
    ("used inode marked free", Commands(&["freei dir/small"]), Code::InodeNotMarked, Kind::Corruption),
    ("free inode marked used", Commands(&["seti <2000>"]), Code::InodeLeaked, Kind::Count),
    ("attribute block out of range", Commands(&["sif dir/small file_acl 999999"]), Code::BlockOutOfRange, Kind::Corruption),
    ("attribute block is data", Commands(&["sif dir/sub/double file_acl {block:/dir/large}"]), Code::XattrBlockInvalid, Kind::Corruption),
    ("attribute block without magic", Poke(|p| attribute_block(p, 3, 0)), Code::XattrBlockInvalid, Kind::Corruption),
    ("attribute block with wrong hash", Poke(|p| attribute_block(p, 32 + 12, 1)), Code::XattrBlockInvalid, Kind::Corruption),
    ("attribute value outside", Poke(|p| attribute_block(p, 32 + 3, 0x7f)), Code::XattrBlockInvalid, Kind::Corruption),
    ("attribute block with more users", Poke(|p| attribute_block(p, 4, 2)), Code::XattrRefcountTooHigh, Kind::Count),
    ("attribute block with fewer users", Poke(|p| attribute_block(p, 4, 0)), Code::XattrRefcountTooLow, Kind::Corruption),
    ("attribute block shared uncounted", Commands(&["sif dir/sub/double file_acl {acl:/dir/large}"]), Code::XattrRefcountTooLow, Kind::Corruption),
];

#[rustfmt::skip]
pub(crate) const DIRECTORIES: &[Row] = &[
    ("link count too high", Commands(&["sif dir/small links_count 5"]), Code::LinksTooHigh, Kind::Count),
    ("link count too low", Commands(&["sif dir/small links_count 1"]), Code::LinksTooLow, Kind::Corruption),
    ("a name lost", Commands(&["unlink dir/sub/linked"]), Code::LinksTooHigh, Kind::Count),
    ("a name uncounted", Commands(&["ln dir/small third"]), Code::LinksTooLow, Kind::Corruption),
    ("the only name lost", Commands(&["unlink fast"]), Code::UnconnectedInode, Kind::Leak),
    ("a directory without name", Commands(&["unlink empty"]), Code::UnconnectedDirectory, Kind::Leak),
    ("a directory with two names", Commands(&["ln dir/sub moved"]), Code::DirectoryTwoNames, Kind::Leak),
    ("a directory with three names", Commands(&["ln dir/sub moved", "ln dir/sub again"]), Code::DirectoryManyNames, Kind::Corruption),
    ("two names, .. agrees with none", Poke(two_names_elsewhere), Code::DirectoryManyNames, Kind::Corruption),
    ("directories in a circle", Commands(&["ln dir/sub dir/sub/deep/loop", "unlink dir/sub"]), Code::DirectoryCycle, Kind::Corruption),
    ("zeroed directory block", Commands(&["zap_block -f dir 0"]), Code::EntryCorrupt, Kind::Corruption),
    ("directory without blocks", Commands(&["sif empty block[0] 0"]), Code::DirectoryEmpty, Kind::Corruption),
    ("directory with a hole", Commands(&["sif many block[1] 0"]), Code::DirectoryHole, Kind::Corruption),
    (". of another inode", Poke(|p| poke_entry(p, "/dir/.", directory::OFFSET_INODE, &[2])), Code::DotInvalid, Kind::Corruption),
    (". renamed", Poke(|p| poke_entry(p, "/dir/.", 8, b"x")), Code::DotInvalid, Kind::Corruption),
    (".. of another inode", Poke(dot_dot_elsewhere), Code::DotDotWrong, Kind::Corruption),
    (".. renamed", Poke(|p| poke_entry(p, "/dir/..", 8, b"x")), Code::DotDotInvalid, Kind::Corruption),
    ("odd entry length", Poke(|p| poke_entry(p, "/dir/small", directory::OFFSET_REC_LEN, &[17])), Code::EntryCorrupt, Kind::Corruption),
    ("entry beyond its block", Poke(|p| poke_entry(p, "/dir/small", directory::OFFSET_REC_LEN, &[0, 4])), Code::EntryCorrupt, Kind::Corruption),
    ("name beyond its entry", Poke(|p| poke_entry(p, "/dir/small", 6, &[200])), Code::EntryCorrupt, Kind::Corruption),
    ("entry with an impossible inode", Poke(|p| poke_entry(p, "/dir/small", 0, &[0xff, 0xff, 0xff])), Code::EntryInodeInvalid, Kind::Corruption),
    ("entry with a reserved inode", Poke(|p| poke_entry(p, "/dir/small", 0, &[5, 0])), Code::EntryInodeInvalid, Kind::Corruption),
    ("entry for the root", Poke(|p| poke_entry(p, "/dir/small", 0, &[2, 0])), Code::EntryInodeInvalid, Kind::Corruption),
    ("entry for a free inode", Poke(|p| poke_entry(p, "/dir/small", 0, &2000_u32.to_le_bytes())), Code::EntryToFreeInode, Kind::Corruption),
    ("entry with another type", Poke(|p| poke_entry(p, "/dir/small", 7, &[2])), Code::EntryTypeWrong, Kind::Corruption),
    ("a slash in a name", Poke(|p| poke_entry(p, "/dir/small", 9, b"/")), Code::EntryNameInvalid, Kind::Corruption),
    ("a zero in a name", Poke(|p| poke_entry(p, "/dir/small", 9, &[0])), Code::EntryNameInvalid, Kind::Corruption),
    ("a name twice", Poke(|p| poke_entry(p, "/dir/small", 8, b"large")), Code::EntryDuplicate, Kind::Corruption),
    ("index flag without index", Commands(&["sif dir flags 0x1000"]), Code::IndexInvalid, Kind::Corruption),
    ("index root with wrong hash version", Poke(|p| index_root(p, 28, 9)), Code::IndexInvalid, Kind::Corruption),
    ("index root with wrong limit", Poke(|p| index_root(p, 32, 9)), Code::IndexInvalid, Kind::Corruption),
    ("index entry with wrong hash", Poke(|p| index_root(p, 43, 0xff)), Code::IndexInvalid, Kind::Corruption),
    ("index entry to another block", Poke(|p| index_root(p, 44, 1)), Code::IndexInvalid, Kind::Corruption),
];

fn poke_entry(probe: &mut Probe, path: &str, offset: usize, bytes: &[u8]) {
    let at = probe.path_entry(path) + offset;
    probe.poke(at, bytes);
}

fn index_root(probe: &mut Probe, offset: usize, byte: u8) {
    let many = probe.parsed(probe.path("/many"));
    let at = probe.block(many.block[0].into()) + offset;
    probe.poke(at, &[byte]);
}

fn attribute_block(probe: &mut Probe, offset: usize, byte: u8) {
    let block = probe.parsed(probe.path("/dir/large")).file_acl.0;
    assert_ne!(block, 0);
    let at = probe.block(block) + offset;
    probe.poke(at, &[byte]);
}

fn inline_attribute(probe: &mut Probe) {
    // An attribute in the inode whose value is outside of it.
    let mut area = vec![
        0, 0, 2, 0xea, 1, 1, 0xf0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0,
    ];
    area.push(b'x');
    let at = probe.inode(probe.path("/dir/sub/double")) + 160;
    probe.poke(at, &area);
}

fn clear_padding(probe: &mut Probe) {
    let last = probe.sb.groups - 1;
    let blocks = probe.sb.blocks_in_group(GroupNumber(last)) as usize;
    assert!(blocks < probe.sb.blocks_per_group as usize);
    let at = probe.block(probe.groups[last as usize].block_bitmap.0);
    bitmap::clear(&mut probe.bytes[at..], blocks);
}

fn pointer_to_bitmap(probe: &mut Probe) {
    let bitmap = probe.groups[0].block_bitmap.0 as u32;
    let at = probe.inode(probe.path("/dir/large")) + offset::pointer(3);
    probe.poke(at, &bitmap.to_le_bytes());
}

fn garbage_indirect_block(probe: &mut Probe) {
    let inode = probe.parsed(probe.path("/dir/large"));
    let at = probe.block(inode.block[12].into());
    probe.poke(at, &[0xa5; 1024]);
}

fn tree_in_itself(probe: &mut Probe) {
    let inode = probe.parsed(probe.path("/dir/sub/double"));
    let at = probe.block(inode.block[13].into());
    probe.poke(at, &inode.block[13].to_le_bytes());
}

fn dot_dot_elsewhere(probe: &mut Probe) {
    let empty = probe.path("/empty");
    poke_entry(probe, "/dir/sub/..", 0, &empty.to_le_bytes());
}

fn two_names_elsewhere(probe: &mut Probe) {
    // The names of `empty` and `dir` in the root both lead to `dir`, whose `..` is `many`.
    let (dir, many) = (probe.path("/dir"), probe.path("/many"));
    poke_entry(probe, "/empty", 0, &dir.to_le_bytes());
    poke_entry(probe, "/dir/..", 0, &many.to_le_bytes());
}

/// Puts numbers into a command.
fn expand(command: &str, probe: &Probe) -> String {
    let mut command = command.to_owned();
    while let Some(start) = command.find('{') {
        let end = command.find('}').unwrap();
        let (what, path) = command[start + 1..end].split_once(':').unwrap();
        let inode = probe.path(path);
        let number = match what {
            "inode" => inode.into(),
            "block" => probe.parsed(inode).block[0].into(),
            "acl" => probe.parsed(inode).file_acl.0,
            other => panic!("{other}"),
        };
        command.replace_range(start..=end, &number.to_string());
    }
    command
}

/// Damages a copy of a sound image.
pub(crate) fn damage(damage: &Damage, good: &[u8], image: &Path) {
    let mut probe = Probe::new(good.to_vec());
    match damage {
        Poke(poke) => {
            poke(&mut probe);
            std::fs::write(image, &probe.bytes).unwrap();
        }
        Commands(commands) => {
            std::fs::write(image, good).unwrap();
            let commands: Vec<String> = commands.iter().map(|c| expand(c, &probe)).collect();
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            debugfs(image, &commands);
        }
    }
}

/// The sound image that the table damages.
pub(crate) fn good_image() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
        source_tree(&tree, 400);
        filled_image(&image, 12 << 20, &["-b", "1024", "-N", "2048"], &tree);
        std::fs::read(&image).unwrap()
    })
}
