//! Images that `makefs` made, mounted: they hold the tree that they were made of.

use crate::support::mounted::{compare, mount};
use crate::support::{Made, geometries, have_makefs, makefs, populate};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ufs::is_on;
use std::path::Path;
use std::sync::Arc;

fn in_memory(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len());
    device.write(0, bytes).unwrap();
    Arc::new(device)
}

fn image(folder: &Path, made: Made) -> Vec<u8> {
    let path = folder.join("image");
    makefs(made, &path, &folder.join("tree"));
    std::fs::read(&path).unwrap()
}

#[test]
fn images_hold_the_tree_that_they_were_made_of() {
    if !have_makefs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    populate(&tree);
    for made in geometries() {
        eprintln!("{made:?}");
        let device = in_memory(&image(folder.path(), made));
        assert!(is_on(&*device));
        let engine = mount(device, true);
        assert_eq!(engine.layout_name(), format!("ufs{}", made.version));
        compare(&engine, &tree);
        let statistics = engine.statistics().unwrap();
        assert_eq!(statistics.block_size_bytes, made.fragment_bytes);
        engine.unmount().unwrap();
    }
}
