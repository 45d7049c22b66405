//! Images that are written to: what is in them is what a directory of the host has after the same
//! operations, and all of their counts are what their maps and inodes say.

use crate::support::image::{Image, check_groups, check_inodes};
use crate::support::mounted::{compare_contents, mount};
use crate::support::player::Player;
use crate::support::{Made, have_makefs, makefs, populate};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_layout::{Error, FileType, GroupNumber, NewInode};
use backstitch_ufs::format::group::offset::INITIALISED_INODES;
use backstitch_ufs::format::superblock::FLAG_NEEDS_CHECK;
use backstitch_ufs::format::superblock::offset::OLD_FLAGS;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// The bytes of a device.
fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes
}

/// An image of a tree, on a device.
fn device_of(made: Made, folder: &Path, tree: &Path) -> Arc<dyn BlockDevice> {
    let path = folder.join("image");
    makefs(made, &path, tree);
    let bytes = std::fs::read(&path).unwrap();
    let device = MemoryDevice::new(bytes.len());
    device.write(0, &bytes).unwrap();
    Arc::new(device)
}

/// Operations of one mount; then the image has what `tree` has, and is sound.
fn play_once(
    device: &Arc<dyn BlockDevice>,
    tree: &Path,
    what: &str,
    seed: u64,
    operations: impl FnOnce(&mut Player),
) {
    let engine = mount(device.clone(), false);
    assert_eq!(engine.read_only_reason(), None, "{what}");
    operations(&mut Player::new(engine.clone(), tree, seed));
    compare_contents(&engine, tree);
    engine.unmount().unwrap();
    let image = Image::read(bytes_of(&**device));
    assert!(image.sb.is_clean(), "{what}");
    check_groups(&image, what);
    check_inodes(&image, what);
    let engine = mount(device.clone(), true);
    compare_contents(&engine, tree);
    engine.unmount().unwrap();
}

/// Some operations on an image, three mounts long. Returns the image, and the folder with the tree
/// that it holds.
fn play(made: Made, seed: u64, steps: u32) -> (Vec<u8>, TempDir) {
    let what = format!("{made:?}, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    populate(&tree);
    let device = device_of(made, folder.path(), &tree);
    for life in 0..3 {
        play_once(&device, &tree, &what, seed * 3 + life, |player| {
            for _ in 0..steps {
                player.step();
            }
        });
    }
    (bytes_of(&*device), folder)
}

/// Checks that sleuthkit finds the names and the contents of a tree in an image.
fn compare_with_sleuthkit(image: &Path, tree: &Path) {
    let run = |tool: &str, options: &[&str], inode: &[&str]| {
        let mut command = Command::new(tool);
        command.args(["-f", "ufs1"]).args(options).arg(image);
        command.args(inode).output().unwrap().stdout
    };
    let listing = String::from_utf8(run("fls", &["-r", "-p", "-u"], &[])).unwrap();
    let mut files = 0;
    for line in listing.lines() {
        // `r/r 5:` and a tabulator before the path.
        let (head, path) = line.split_once(":\t").unwrap();
        let (kind, inode) = head.split_once(' ').unwrap();
        let path = tree.join(path);
        match kind {
            "r/r" => {
                let found = run("icat", &[], &[inode]);
                assert!(found == std::fs::read(&path).unwrap(), "{line}");
                files += 1;
            }
            "d/d" => assert!(path.is_dir(), "{line}"),
            _ => {}
        }
    }
    let expected = Command::new("find").arg(tree).args(["-type", "f"]).output();
    let expected = String::from_utf8(expected.unwrap().stdout).unwrap();
    assert_eq!(files, expected.lines().count());
}

/// One number of fragments to a block.
fn geometries_of(fragments: u32) -> Vec<Made> {
    let sizes = [4_096, 8_192].map(|block_bytes| (block_bytes, block_bytes / fragments));
    let mut all = Vec::new();
    for (version, order) in [(1, "le"), (1, "be"), (2, "le"), (2, "be")] {
        all.extend(sizes.map(|(block_bytes, fragment_bytes)| Made {
            version,
            order,
            block_bytes,
            fragment_bytes,
        }));
    }
    all
}

/// Random operations on geometries with so many fragments to a block.
fn play_all(fragments: u32) {
    if !have_makefs() {
        return;
    }
    for (seed, made) in (1..).zip(geometries_of(fragments)) {
        play(made, seed, 400);
    }
}

/// UFS1 alone: `makefs` does not tell in a UFS2 where its superblock is as sleuthkit wants it.
#[test]
fn sleuthkit_reads_what_was_written() {
    let has_sleuthkit = Command::new("fls").arg("-V").output().is_ok();
    if !has_sleuthkit {
        eprintln!("skipped: fls is missing (Debian package sleuthkit)");
    }
    if !has_sleuthkit || !have_makefs() {
        return;
    }
    for order in ["le", "be"] {
        let made = Made {
            version: 1,
            order,
            block_bytes: 8_192,
            fragment_bytes: 1_024,
        };
        let (bytes, folder) = play(made, 77, 200);
        let image = folder.path().join("written");
        std::fs::write(&image, bytes).unwrap();
        compare_with_sleuthkit(&image, &folder.path().join("tree"));
    }
}

#[test]
fn random_operations_where_a_block_has_two_fragments() {
    play_all(2);
}

#[test]
fn random_operations_where_a_block_has_eight_fragments() {
    play_all(8);
}

#[test]
fn random_operations_where_the_block_is_the_fragment() {
    play_all(1);
}

/// Both versions with eight fragments to a block.
const SMALL: [Made; 2] = [
    Made {
        version: 1,
        order: "le",
        block_bytes: 4_096,
        fragment_bytes: 512,
    },
    Made {
        version: 2,
        order: "le",
        block_bytes: 4_096,
        fragment_bytes: 512,
    },
];

/// A tree in a folder of its own.
fn empty_tree() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    (folder, tree)
}

/// FreeBSD and `makefs` let directories end anywhere in a block, be it behind the direct pointers,
/// where blocks are whole.
#[test]
fn a_directory_that_ends_within_an_indirect_block_grows() {
    if !have_makefs() {
        return;
    }
    for made in SMALL {
        let what = format!("{made:?}");
        let (folder, tree) = empty_tree();
        std::fs::create_dir(tree.join("large")).unwrap();
        for number in 0..1_730 {
            let name = format!("large/a name of some length {number:04}");
            std::fs::write(tree.join(name), b"").unwrap();
        }
        let device = device_of(made, folder.path(), &tree);
        let image = Image::read(bytes_of(&*device));
        let root = image.inode(2);
        let names = image.names(&root);
        let (_, number, _) = names.iter().find(|(name, _, _)| name == "large").unwrap();
        let size = image.inode(*number).size;
        let is_within = !size.is_multiple_of(4_096);
        assert!(size > 12 * 4_096 && is_within, "{what}: {size}");
        play_once(&device, &tree, &what, 1, |player| {
            for number in 0..300 {
                player.make_file_at(Path::new(&format!("large/one more name {number}")));
            }
        });
    }
}

#[test]
fn a_name_moves_within_a_directory_whose_end_moves_to_make_room() {
    if !have_makefs() {
        return;
    }
    for made in SMALL {
        let (folder, tree) = empty_tree();
        let device = device_of(made, folder.path(), &tree);
        play_once(&device, &tree, &format!("{made:?}"), 1, |player| {
            // Each has one fragment, and the next one's follows it.
            let directories: Vec<_> = (0..20).map(|d| format!("d{d}")).collect();
            for directory in &directories {
                player.make_directory_at(Path::new(directory));
            }
            for directory in &directories {
                for number in 0..6 {
                    let name = format!("{directory}/{number}{}", "n".repeat(60));
                    player.make_file_at(Path::new(&name));
                }
            }
            for directory in &directories {
                let from = format!("{directory}/3{}", "n".repeat(60));
                let to = format!("{directory}/{}", "m".repeat(200));
                player.rename_to(Path::new(&from), Path::new(&to));
            }
        });
    }
}

/// The fields of a superblock or of groups are what a test says.
fn patched(device: &dyn BlockDevice, places: &[u64], bytes: &[u8]) {
    for place in places {
        device.write(*place, bytes).unwrap();
    }
}

#[test]
fn a_group_that_counts_too_few_inodes_as_initialised_is_not_written_to() {
    if !have_makefs() {
        return;
    }
    for initialised in [0_u32, 16, 17] {
        let (folder, tree) = empty_tree();
        for number in 0..100 {
            std::fs::write(tree.join(format!("file{number}")), b"").unwrap();
        }
        let device = device_of(SMALL[1], folder.path(), &tree);
        let sb = Image::read(bytes_of(&*device)).sb;
        let headers: Vec<u64> = GroupNumber::all(sb.groups)
            .map(|group| sb.group_header(group) * u64::from(sb.fragment_bytes))
            .map(|header| header + INITIALISED_INODES as u64)
            .collect();
        patched(&*device, &headers, &initialised.to_le_bytes());
        let engine = mount(device.clone(), false);
        let new = NewInode {
            file_type: FileType::Regular,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: b"",
        };
        let made = engine.create(engine.root(), b"new", &new);
        assert!(made.is_err(), "{initialised}");
        engine.unmount().unwrap();
        let engine = mount(device.clone(), true);
        compare_contents(&engine, &tree);
        engine.unmount().unwrap();
    }
}

/// A number that UFS1 has no room for would come back as another device's.
#[test]
fn a_device_number_is_kept_or_refused() {
    if !have_makefs() {
        return;
    }
    let encoded = |major: u32, minor: u32| major << 8 | minor & 0xff | (minor & 0xf_ff00) << 12;
    for made in SMALL {
        let (folder, tree) = empty_tree();
        let device = device_of(made, folder.path(), &tree);
        let engine = mount(device.clone(), false);
        let mut kept = Vec::new();
        for (major, minor) in [
            (1, 3),
            (255, 65_791),
            (7, 256),
            (259, 0),
            (4_095, 1_048_575),
        ] {
            let name = format!("{major}:{minor}").into_bytes();
            let new = NewInode {
                file_type: FileType::BlockDevice,
                permissions: 0o600,
                umask: 0,
                uid: 0,
                gid: 0,
                device_number: encoded(major, minor),
                target: b"",
            };
            match engine.create(engine.root(), &name, &new) {
                Ok(_) => kept.push((name, new.device_number)),
                Err(error) => assert_eq!(error, Error::Invalid.into(), "{made:?} {major}:{minor}"),
            }
        }
        engine.unmount().unwrap();
        assert_eq!(kept.len(), if made.version == 1 { 2 } else { 5 });
        let engine = mount(device, true);
        for (name, number) in kept {
            let found = engine.lookup(engine.root(), &name).unwrap();
            assert_eq!(found.device_number, number, "{made:?}");
        }
        engine.unmount().unwrap();
    }
}

/// Some tools leave the flags in the field that they had at first.
#[test]
fn an_image_with_flags_in_the_old_place_says_that_it_is_in_use() {
    if !have_makefs() {
        return;
    }
    let (folder, tree) = empty_tree();
    let device = device_of(SMALL[1], folder.path(), &tree);
    let sb = Image::read(bytes_of(&*device)).sb;
    patched(&*device, &[sb.place + OLD_FLAGS as u64], &[0]);
    let engine = mount(device.clone(), false);
    let mut player = Player::new(engine.clone(), &tree, 1);
    player.make_file_at(Path::new("new"));
    engine.sync().unwrap();
    let flags = Image::read(bytes_of(&*device)).sb.flags;
    assert_eq!(flags & FLAG_NEEDS_CHECK, FLAG_NEEDS_CHECK);
    engine.unmount().unwrap();
    let sb = Image::read(bytes_of(&*device)).sb;
    assert!(sb.is_clean() && sb.flags & FLAG_NEEDS_CHECK == 0);
}
