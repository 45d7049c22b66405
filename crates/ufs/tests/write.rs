//! Images that are written to: what is in them is what a directory of the host has after the same
//! operations, and all of their counts are what their maps and inodes say.

mod support;

use backstitch_device::{BlockDevice, MemoryDevice};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use support::image::{Image, check_groups, check_inodes};
use support::mounted::{compare_contents, mount};
use support::player::Player;
use support::{Made, have_makefs, makefs, populate};
use tempfile::TempDir;

/// The bytes of a device.
fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes
}

/// Some operations on an image, three mounts long. Returns the image, and the folder with the tree
/// that it holds.
fn play(made: Made, seed: u64, steps: u32) -> (Vec<u8>, TempDir) {
    let what = format!("{made:?}, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    populate(&tree);
    let path = folder.path().join("image");
    makefs(made, &path, &tree);
    let bytes = std::fs::read(&path).unwrap();
    let device = MemoryDevice::new(bytes.len());
    device.write(0, &bytes).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    for life in 0..3 {
        let engine = mount(device.clone(), false);
        assert_eq!(engine.read_only_reason(), None, "{what}");
        let mut player = Player::new(engine.clone(), &tree, seed * 3 + life);
        for _ in 0..steps {
            player.step();
        }
        compare_contents(&engine, &tree);
        engine.unmount().unwrap();
        let image = Image::read(bytes_of(&*device));
        assert!(image.sb.is_clean(), "{what}");
        check_groups(&image, &what);
        check_inodes(&image, &what);
        let engine = mount(device.clone(), true);
        compare_contents(&engine, &tree);
        engine.unmount().unwrap();
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
