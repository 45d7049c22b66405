//! Small images with everything in them, and random damage to what means something in them.

use super::{debugfs, run, sparse_file};
use backstitch_ext::format::directory;
use backstitch_ext::format::inode::{DIRECT_POINTERS, Inode};
use backstitch_ext::format::superblock::Superblock;
use backstitch_ext::format::{GroupDescriptor, group};
use backstitch_layout::{BlockNumber, InodeNumber};
use std::path::Path;

/// A generator that needs no crate: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    /// A generator that starts here.
    pub(crate) fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    /// One of a list.
    pub(crate) fn pick<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}

/// Ranges of bytes that mean something, by what they are.
pub(crate) struct Targets {
    ranges: Vec<(&'static str, Vec<(usize, usize)>)>,
}

/// A range that is small enough to be worth hitting often.
fn block_range(sb: &Superblock, block: BlockNumber) -> (usize, usize) {
    (sb.block_offset(block) as usize, sb.block_size as usize)
}

/// Ranges of bytes, by what they are.
#[derive(Default)]
struct Places {
    inodes: Vec<(usize, usize)>,
    free_inodes: Vec<(usize, usize)>,
    entries: Vec<(usize, usize)>,
    maps: Vec<(usize, usize)>,
    attributes: Vec<(usize, usize)>,
}

/// The inodes, and what they point to.
fn places(bytes: &[u8], sb: &Superblock, groups: &[GroupDescriptor]) -> Places {
    let mut places = Places::default();
    for number in InodeNumber::FIRST.through(InodeNumber(sb.inodes_count)) {
        let (block, offset) = groups[sb.group_of_inode(number).index()].inode_location(sb, number);
        let start = sb.block_offset(block) as usize + offset;
        let raw = &bytes[start..start + sb.inode_size as usize];
        let inode = Inode::parse(raw).unwrap();
        if inode.links == 0 {
            places.free_inodes.push((start, 32));
            continue;
        }
        places.inodes.push((start, 128));
        places.inodes.push((start, raw.len().min(180)));
        if inode.file_acl != BlockNumber::NONE {
            places
                .attributes
                .push((block_range(sb, inode.file_acl).0, 160));
        }
        if inode.is_directory() {
            for pointer in inode
                .block
                .iter()
                .take(DIRECT_POINTERS)
                .filter(|block| **block != 0)
            {
                let (start, length) = block_range(sb, BlockNumber((*pointer).into()));
                for entry in directory::entries(&bytes[start..start + length], u32::MAX) {
                    let entry = entry.unwrap();
                    let used = entry
                        .used_len::<directory::ExtEntries>()
                        .max(directory::HEADER_SIZE);
                    places.entries.push((start + entry.offset, used));
                }
            }
        }
        if inode.has_block_map(sb.block_size) {
            for pointer in inode
                .block
                .iter()
                .skip(DIRECT_POINTERS)
                .filter(|block| **block != 0)
            {
                places
                    .maps
                    .push(block_range(sb, BlockNumber((*pointer).into())));
            }
        }
    }
    places
}

/// What can be damaged in a sound image.
pub(crate) fn targets(bytes: &[u8]) -> Targets {
    let head: &[u8; 1024] = bytes[1024..2048].try_into().unwrap();
    let sb = Superblock::parse(head, bytes.len() as u64).unwrap();
    let (table, _) = block_range(&sb, group::descriptor_table_block(&sb));
    let groups: Vec<GroupDescriptor> = group::parse_table(&sb, &bytes[table..]).unwrap();
    let Places {
        inodes,
        free_inodes,
        entries,
        maps,
        attributes,
    } = places(bytes, &sb, &groups);
    let bitmaps = |of: fn(&GroupDescriptor) -> BlockNumber, bits: u32| -> Vec<(usize, usize)> {
        groups
            .iter()
            .map(|g| (block_range(&sb, of(g)).0, bits as usize / 8))
            .collect()
    };
    let mut ranges = vec![
        ("superblock", vec![(1024, 0x60), (1024, 0x180)]),
        ("descriptors", vec![(table, groups.len() * 32)]),
        (
            "block bitmap",
            bitmaps(|group| group.block_bitmap, sb.blocks_per_group),
        ),
        (
            "inode bitmap",
            bitmaps(|group| group.inode_bitmap, sb.inodes_per_group),
        ),
        ("inode", inodes),
        ("free inode", free_inodes),
        ("entry", entries),
        ("block map", maps),
        ("attributes", attributes),
    ];
    ranges.retain(|(_, list)| !list.is_empty());
    Targets { ranges }
}

/// Damages one place; says what was done.
pub(crate) fn damage(bytes: &mut [u8], targets: &Targets, random: &mut Random) -> String {
    let (name, ranges) = random.pick(&targets.ranges);
    let (start, length) = *random.pick(ranges);
    let offset = random.below(length);
    let at = start + offset;
    let old = bytes[at];
    bytes[at] = match random.below(6) {
        0 => 0,
        1 => 0xff,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ (1 << random.below(8)),
        _ => random.next() as u8,
    };
    format!(
        "{name} at {start:#x} + {offset:#x}: {old:#04x} -> {:#04x}",
        bytes[at]
    )
}

/// What the images are made with.
pub(crate) const VARIANTS: [&[&str]; 6] = [
    &["-b", "1024", "-g", "1024", "-N", "256"],
    &["-b", "1024", "-g", "1024", "-N", "256", "-I", "128"],
    &["-b", "4096", "-N", "256"],
    &["-b", "1024", "-N", "256", "-O", "^filetype,^resize_inode"],
    &[
        "-b",
        "1024",
        "-g",
        "512",
        "-N",
        "256",
        "-O",
        "none,ext_attr,dir_index",
    ],
    &["-b", "2048", "-N", "256", "-r", "0"],
];

/// A small image with everything in it.
pub(crate) fn make_image(folder: &Path, variant: &[&str]) -> Vec<u8> {
    use std::fs;
    use std::os::unix::fs::symlink;
    let (tree, image) = (folder.join("tree"), folder.join("image"));
    fs::create_dir_all(tree.join("dir/sub")).unwrap();
    fs::create_dir_all(tree.join("many")).unwrap();
    for index in 0..60 {
        fs::write(
            tree.join(format!("many/a rather long file name {index:04}")),
            "",
        )
        .unwrap();
    }
    fs::write(tree.join("dir/file"), "contents").unwrap();
    fs::write(tree.join("dir/large"), vec![b'x'; 20_000]).unwrap();
    fs::write(tree.join("dir/double"), vec![b'y'; 300_000]).unwrap();
    fs::hard_link(tree.join("dir/file"), tree.join("dir/sub/linked")).unwrap();
    symlink("target", tree.join("fast")).unwrap();
    symlink("long/".repeat(20), tree.join("slow")).unwrap();
    sparse_file(&image, 2 << 20);
    let name = image.to_string_lossy().into_owned();
    let tree_name = tree.to_string_lossy();
    let mut arguments = vec!["-q", "-F", "-t", "ext2", "-d", &tree_name];
    arguments.extend(variant);
    arguments.push(&name);
    assert!(run("mke2fs", &arguments).status.success());
    debugfs(
        &image,
        &[
            "cd dir",
            "mknod pipe p",
            "mknod disk b 8 1",
            "ea_set file user.one value",
            "ea_set large user.big 01234567890123456789012345678901234567890123456789012345678901234567890123456789",
        ],
    );
    run("e2fsck", &["-fyD", &name]);
    fs::read(&image).unwrap()
}
