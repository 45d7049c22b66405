//! A mounted image, compared with the tree that is in it.

use backstitch_device::BlockDevice;
use backstitch_layout::{Attributes, FileType};
use backstitch_ufs::Ufs;
use backstitch_vfs::{Engine, MountOptions};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Mounts an image.
pub(crate) fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> Arc<Engine> {
    let options = MountOptions {
        read_only,
        ..MountOptions::default()
    };
    Engine::mount(device, &Ufs, &options).unwrap()
}

/// Checks that everything in `tree` is in the image as it is there, and nothing else is.
pub(crate) fn compare(engine: &Engine, tree: &Path) {
    let root = engine.attributes(engine.root()).unwrap();
    compare_directory(engine, &root, tree, true);
}

/// The same without permissions and times.
pub(crate) fn compare_contents(engine: &Engine, tree: &Path) {
    let root = engine.attributes(engine.root()).unwrap();
    compare_directory(engine, &root, tree, false);
}

fn compare_directory(engine: &Engine, directory: &Attributes, tree: &Path, attributes: bool) {
    let mut expected: Vec<_> = fs::read_dir(tree)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    expected.extend([".".to_owned(), "..".to_owned()]);
    expected.sort();
    let mut found = Vec::new();
    let emit = &mut |entry: &backstitch_layout::DirectoryEntry<'_>| {
        found.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    };
    let mut cookie = 0;
    // One call lists a part.
    loop {
        let before = cookie;
        engine
            .read_directory(directory.inode, cookie, &mut |entry| {
                cookie = entry.next_cookie;
                emit(entry)
            })
            .unwrap();
        if cookie == before {
            break;
        }
    }
    found.sort();
    assert_eq!(found, expected, "{}", tree.display());
    for name in expected {
        if name == "." || name == ".." {
            continue;
        }
        let path = tree.join(&name);
        let inode = engine.lookup(directory.inode, name.as_bytes()).unwrap();
        compare_inode(engine, &inode, &path, attributes);
        engine.forget(inode.inode, 1);
    }
}

fn compare_inode(engine: &Engine, inode: &Attributes, path: &Path, attributes: bool) {
    let what = path.display();
    let expected = fs::symlink_metadata(path).unwrap();
    let kind = expected.file_type();
    let expected_type = if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_fifo() {
        FileType::Fifo
    } else {
        FileType::Regular
    };
    assert_eq!(inode.file_type, expected_type, "{what}");
    if attributes {
        let permissions = expected.mode() & 0o7777;
        assert_eq!(u32::from(inode.permissions), permissions, "{what}");
        assert_eq!(inode.modified.seconds, expected.mtime(), "{what}");
    }
    match expected_type {
        FileType::Directory => compare_directory(engine, inode, path, attributes),
        FileType::Symlink => {
            let target = fs::read_link(path).unwrap();
            let found = engine.read_link(inode.inode).unwrap();
            assert_eq!(found, target.as_os_str().as_encoded_bytes(), "{what}");
        }
        FileType::Regular => {
            assert_eq!(u64::from(inode.links), expected.nlink(), "{what}");
            let contents = fs::read(path).unwrap();
            assert_eq!(inode.size_bytes, contents.len() as u64, "{what}");
            let mut found = Vec::new();
            engine
                .read(inode.inode, 0, contents.len() + 1, &mut found)
                .unwrap();
            assert!(found == contents, "{what}: other contents");
        }
        _ => {}
    }
}
