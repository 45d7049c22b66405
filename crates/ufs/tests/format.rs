//! The structures of images that `makefs` made: each is read, and what it counts is what its maps
//! say.

mod support;

use backstitch_blocks::directory::entries;
use backstitch_layout::{FileType, FormatError, GroupNumber};
use backstitch_ufs::format::directory::{UfsEntries, type_of_code};
use backstitch_ufs::format::group::{Derived, Maps, RawSummaryCounts, reserved_inodes};
use backstitch_ufs::format::{
    ByteOrder, CylinderGroup, Inode, OnDisk, ROOT_INODE, RawSummary, RawSummaryTotal,
    RawSuperblock, Superblock,
};
use std::collections::BTreeSet;
use support::{Made, geometries, have_makefs, makefs, populate};

/// An image in memory.
struct Image {
    sb: Superblock,
    bytes: Vec<u8>,
}

impl Image {
    fn read(bytes: Vec<u8>) -> Image {
        let read = |place: u64| -> Result<_, FormatError> {
            let area = bytes.get(place as usize..place as usize + RawSuperblock::SIZE);
            Ok(area.map(<[u8]>::to_vec))
        };
        let sb = Superblock::find(bytes.len() as u64, read).unwrap();
        Image { sb, bytes }
    }

    fn fragments(&self, first: u64, len: usize) -> &[u8] {
        let at = first as usize * self.sb.fragment_bytes as usize;
        &self.bytes[at..at + len]
    }

    fn group(&self, group: GroupNumber) -> CylinderGroup<'_> {
        let at = self.sb.group_header(group);
        let bytes = self.fragments(at, self.sb.group_bytes as usize);
        CylinderGroup::parse(&self.sb, group, bytes).unwrap()
    }

    fn inode(&self, number: u32) -> Inode {
        let (fragment, offset) = self.sb.inode_place(number);
        let bytes = self.fragments(fragment, self.sb.fragment_bytes as usize);
        Inode::parse(self.sb.version, self.sb.order, &bytes[offset..]).unwrap()
    }

    /// The names of a directory of direct blocks, with their inodes and type codes.
    fn names(&self, directory: &Inode) -> Vec<(String, u32, u8)> {
        let mut names = Vec::new();
        let block_bytes = u64::from(self.sb.block_bytes);
        for (index, start) in (0..directory.size)
            .step_by(block_bytes as usize)
            .enumerate()
        {
            let len = (directory.size - start).min(block_bytes) as usize;
            let block = self.fragments(directory.pointers[index], len);
            match self.sb.order {
                ByteOrder::Little => collect::<false>(block, &mut names),
                ByteOrder::Big => collect::<true>(block, &mut names),
            }
        }
        names
    }
}

fn collect<const BIG: bool>(block: &[u8], names: &mut Vec<(String, u32, u8)>) {
    for entry in entries::<UfsEntries<BIG>>(block, u32::MAX) {
        let entry = entry.unwrap();
        if entry.inode != 0 {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            names.push((name, entry.inode, entry.file_type));
        }
    }
}

fn check_groups(image: &Image, made: Made) {
    let sb = &image.sb;
    let mut total = RawSummaryTotal::default();
    for group in GroupNumber::all(sb.groups) {
        let cg = image.group(group);
        let what = format!("{made:?}: group {group}");
        assert_eq!(cg.maps, maps_of(sb, cg), "{what}");
        let derived = Derived::of(sb, cg.fragment_map(), cg.fragments);
        for length in 1..8 {
            let counted = derived.fragment_sums[length];
            assert_eq!(cg.fragment_sum(length), counted, "{what}: runs of {length}");
        }
        for length in 1..=sb.cluster_sums as usize {
            let counted = derived.cluster_sums[length];
            assert_eq!(
                cg.cluster_sum(length),
                counted,
                "{what}: clusters of {length}"
            );
        }
        assert_eq!(cg.cluster_map(), derived.cluster_map, "{what}");
        let used = (0..sb.inodes_per_group).filter(|index| cg.is_inode_used(*index));
        let used: BTreeSet<u32> = used.collect();
        let is_directory = |index: &u32| {
            let number = group.0 * sb.inodes_per_group + index;
            *index >= reserved_inodes(group) && image.inode(number).is_directory()
        };
        let counted = RawSummaryCounts {
            directories: used
                .iter()
                .copied()
                .filter(|index| is_directory(index))
                .count() as u32,
            free_blocks: derived.free_blocks,
            free_inodes: sb.inodes_per_group - used.len() as u32,
            free_fragments: derived.free_fragments,
        };
        assert_eq!(cg.summary, counted, "{what}");
        let at = group.index() * RawSummary::SIZE;
        let array = image.fragments(sb.summary_at, sb.summary_bytes as usize);
        let summary = RawSummary::decode(sb.order, &array[at..]);
        assert_eq!(RawSummaryCounts::from(&summary), counted, "{what}");
        total.add(&summary);
        let own = sb.own_fragments(group);
        let first = sb.group_start(group);
        assert!(
            own.clone()
                .all(|fragment| !cg.is_fragment_free((fragment - first) as u32)),
            "{what}: {own:?}"
        );
    }
    assert_eq!(sb.summary_total(), total, "{made:?}");
}

/// `makefs` puts the maps where `newfs` does, but for the room of the totals that kernels before
/// UFS2 kept in UFS1, which it has in UFS2 also.
fn maps_of(sb: &Superblock, cg: CylinderGroup<'_>) -> Maps {
    let mut expected = Maps::new(sb);
    let shift = cg.maps.inodes_used - expected.inodes_used;
    assert!(shift < 8, "{shift}");
    expected.inodes_used += shift;
    expected.fragments_free += shift;
    expected.cluster_sums = cg.maps.cluster_sums;
    expected.clusters_free = cg.maps.clusters_free;
    expected.end = cg.maps.end;
    expected
}

fn check_tree(image: &Image, made: Made) {
    let root = image.inode(ROOT_INODE);
    assert!(root.is_directory(), "{made:?}");
    let names = image.names(&root);
    assert_eq!((names[0].0.as_str(), names[0].1), (".", ROOT_INODE));
    assert_eq!((names[1].0.as_str(), names[1].1), ("..", ROOT_INODE));
    let mut found = 0;
    for (name, number, code) in &names {
        let inode = image.inode(*number);
        let what = format!("{made:?}: {name}");
        assert_eq!(type_of_code(*code), inode.file_type(), "{what}");
        match name.as_str() {
            "file9" => {
                assert_eq!(inode.size, 98_304, "{what}");
                let len = (image.sb.block_bytes as usize).min(98_304);
                let block = image.fragments(inode.pointers[0], len);
                assert_eq!(block, &support::pattern(9, 98_304)[..len], "{what}");
            }
            "file7" => assert_eq!(inode.links, 2, "{what}"),
            "short" => {
                assert!(inode.is_fast_symlink(image.sb.symlink_max), "{what}");
                assert_eq!(&inode.inline_bytes()[..10], b"a/b/c/deep", "{what}");
            }
            "long" => {
                assert_eq!(inode.file_type(), Some(FileType::Symlink), "{what}");
                assert!(!inode.is_fast_symlink(image.sb.symlink_max), "{what}");
            }
            _ => continue,
        }
        found += 1;
    }
    assert_eq!(found, 4, "{made:?}: {names:?}");
}

#[test]
fn what_makefs_made_is_read_and_counts_what_its_maps_say() {
    if !have_makefs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    populate(&tree);
    let path = folder.path().join("image");
    for made in geometries() {
        makefs(made, &path, &tree);
        let image = Image::read(std::fs::read(&path).unwrap());
        let sb = &image.sb;
        assert_eq!(sb.version.name(), format!("ufs{}", made.version));
        assert_eq!(sb.order.name(), made.order);
        assert_eq!(sb.block_bytes, made.block_bytes);
        assert_eq!(sb.fragment_bytes, made.fragment_bytes);
        assert!(sb.is_clean(), "{made:?}");
        assert_eq!(sb.read_support(), Vec::<String>::new());
        let place = sb.place as usize;
        let again = sb.raw.to_bytes(sb.order);
        assert_eq!(again, image.bytes[place..place + RawSuperblock::SIZE]);
        check_groups(&image, made);
        check_tree(&image, made);
    }
}
