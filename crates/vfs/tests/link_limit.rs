//! An ext2 inode has at most 32,000 names: files by `link`, directories by the `..` of their
//! subdirectories.

use std::sync::Arc;

use crate::support::{check, new_image, new_inode, write_new};
use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_layout::Error as LayoutError;
use backstitch_vfs::{Engine, Error, FileType, MountOptions};

const LIMIT: u32 = 32_000;

fn is_too_many<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Layout(LayoutError::TooManyLinks)))
}

fn mounted() -> (Arc<MemoryDevice>, Arc<Engine>) {
    let disk = Arc::new(MemoryDevice::from_bytes(new_image(64 << 20, 33_000)));
    let engine = Engine::mount(disk.clone(), usual().layout(), &MountOptions::default()).unwrap();
    (disk, engine)
}

#[test]
fn a_file_has_at_most_32_000_names() {
    let (disk, engine) = mounted();
    let file = write_new(&engine, engine.root(), "file", b"contents");
    let new = new_inode(FileType::Directory);
    let names = engine.create(engine.root(), b"names", &new).unwrap().inode;
    for number in 1..LIMIT {
        let name = format!("{number}");
        engine.link(file, names, name.as_bytes()).unwrap();
    }
    assert_eq!(engine.attributes(file).unwrap().links, LIMIT);
    assert!(is_too_many(engine.link(file, names, b"one more")));
    engine.unlink(names, b"1").unwrap();
    engine.link(file, names, b"one more").unwrap();
    engine.unmount().unwrap();
    assert!(check(&*disk).is_clean());
}

/// Two links for itself, and one for each directory in it.
#[test]
#[ignore = "takes some seconds; `make soak` runs it"]
fn a_directory_has_at_most_31_998_directories() {
    let (disk, engine) = mounted();
    let new = new_inode(FileType::Directory);
    let parent = engine.create(engine.root(), b"parent", &new).unwrap().inode;
    for number in 2..LIMIT {
        let name = format!("{number}");
        let made = engine.create(parent, name.as_bytes(), &new).unwrap();
        engine.forget(made.inode, 1);
    }
    assert_eq!(engine.attributes(parent).unwrap().links, LIMIT);
    assert!(is_too_many(engine.create(parent, b"one more", &new)));
    engine.rmdir(parent, b"2").unwrap();
    engine.create(parent, b"one more", &new).unwrap();
    engine.unmount().unwrap();
    assert!(check(&*disk).is_clean());
}
