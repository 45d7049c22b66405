//! The structures of images that `makefs` made: each is read, and what it counts is what its maps
//! say.

use crate::support;
use crate::support::image::{Image, check_groups, check_inodes};
use crate::support::{Made, geometries, have_makefs, makefs, populate};
use backstitch_layout::{FileType, GroupNumber};
use backstitch_ufs::format::group::Maps;
use backstitch_ufs::format::{CylinderGroup, OnDisk, ROOT_INODE, RawSuperblock, Superblock};

/// `makefs` puts the maps where `newfs` does.
fn check_maps(sb: &Superblock, cg: CylinderGroup<'_>, made: Made) {
    assert_eq!(cg.maps, Maps::new(sb), "{made:?}: group {}", cg.group);
}

fn check_tree(image: &Image, made: Made) {
    let root = image.inode(ROOT_INODE.0);
    assert!(root.is_directory(), "{made:?}");
    let names = image.names(&root);
    let mut found = 0;
    for (name, number, _) in &names {
        let inode = image.inode(*number);
        let what = format!("{made:?}: {name}");
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
        for group in GroupNumber::all(sb.groups) {
            check_maps(sb, image.group(group), made);
        }
        check_groups(&image, &format!("{made:?}"));
        check_inodes(&image, &format!("{made:?}"));
        check_tree(&image, made);
    }
}
