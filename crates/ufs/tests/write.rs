//! Images that are written to: what is in them is what a directory of the host has after the same
//! operations, and all of their counts are what their maps and inodes say.

mod support;

use backstitch_device::{BlockDevice, MemoryDevice};
use std::sync::Arc;
use support::image::{Image, check_groups, check_inodes};
use support::mounted::{compare_contents, mount};
use support::player::Player;
use support::{Made, have_makefs, makefs, populate};

/// The bytes of a device.
fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes
}

/// Some operations on an image, three mounts long.
fn play(made: Made, seed: u64, steps: u32) {
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

#[test]
fn random_operations_where_the_block_is_the_fragment() {
    if !have_makefs() {
        return;
    }
    for (seed, made) in (1..).zip(geometries_of(1)) {
        play(made, seed, 400);
    }
}
