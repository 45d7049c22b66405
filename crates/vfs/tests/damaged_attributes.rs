//! Damaged attribute blocks, attributes in inodes and access control lists: callers get the right
//! error, the mount becomes read-only only where the image contradicts itself, and `fsck` reports
//! and repairs the damage.

use crate::support;
use std::sync::Arc;

use crate::support::{check, mount_under, new_image, new_image_with_journal, new_inode, write_new};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::format::inode::{BASE_SIZE, Inode, offset};
use backstitch_ext::format::xattr::{
    ENTRY_SIZE, HEADER_SIZE, INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, INDEX_USER,
    XATTR_MAGIC, build_block, entry_hash, entry_len,
};
use backstitch_formats::usual;
use backstitch_layout::tools::{Code, Mode, RepairOptions};
use backstitch_vfs::{Engine, FileType, InodeNumber, Result, SetAttributes, SetXattrMode};

const BLOCK: usize = 1024;
const ORDERINGS: [&str; 5] = ["soft", "async", "sync", "journal=ordered", "journal=full"];

const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EUCLEAN: i32 = 117;

/// A list in Linux's form that says no more than permission bits.
const PLAIN_LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255,
    255, 255, 255,
];
/// The same with a named user, which a mode cannot state.
const LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 77, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255,
    255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

/// An image with a directory and a file in it that have attributes, and the numbers by which to
/// find them.
struct Image {
    bytes: Vec<u8>,
    ordering: &'static str,
    directory: InodeNumber,
    file: InodeNumber,
}

impl Image {
    /// A new file system in which the directory and the file have an attribute block each.
    fn new(ordering: &'static str) -> Image {
        let bytes = match ordering.starts_with("journal") {
            true => new_image_with_journal(4 << 20, 128),
            false => new_image(4 << 20, 128),
        };
        let mut image = Image {
            bytes,
            ordering,
            directory: InodeNumber(0),
            file: InodeNumber(0),
        };
        let (engine, device) = image.mount();
        let new = new_inode(FileType::Directory);
        image.directory = engine.create(engine.root(), b"d", &new).unwrap().inode;
        image.file = write_new(&engine, image.directory, "f", b"contents");
        for inode in [image.directory, image.file] {
            let value = inode.0.to_le_bytes();
            set(&engine, inode, "user.one", &value).unwrap();
        }
        engine.unmount().unwrap();
        image.bytes = device.snapshot();
        image
    }

    fn mount(&self) -> (Arc<Engine>, Arc<MemoryDevice>) {
        let device = Arc::new(MemoryDevice::from_bytes(self.bytes.clone()));
        let engine = mount_under(device.clone(), self.ordering.parse().unwrap()).unwrap();
        (engine, device)
    }

    /// Where an inode is in the only group.
    fn place(&self, inode: InodeNumber) -> usize {
        let word = &self.bytes[2 * BLOCK + 8..][..4];
        let table = u32::from_le_bytes(word.try_into().unwrap()) as usize;
        table * BLOCK + (inode.0 as usize - 1) * 256
    }

    fn inode(&self, inode: InodeNumber) -> Inode {
        Inode::parse(&self.bytes[self.place(inode)..][..256]).unwrap()
    }

    /// The attribute block of an inode.
    fn attributes(&mut self, inode: InodeNumber) -> &mut [u8] {
        let block = self.inode(inode).file_acl.0 as usize;
        &mut self.bytes[block * BLOCK..][..BLOCK]
    }

    /// Gives an inode these attributes in place of those that it has in its block.
    fn put(&mut self, inode: InodeNumber, attributes: &[(u8, &[u8], &[u8])]) {
        let built = build_block(BLOCK, attributes, 1).unwrap();
        self.attributes(inode).copy_from_slice(&built);
    }

    /// The bytes behind the extra fields of an inode, for attributes in the inode.
    fn body(&mut self, inode: InodeNumber) -> &mut [u8] {
        let place = self.place(inode);
        let start = BASE_SIZE + usize::from(self.inode(inode).extra_isize);
        &mut self.bytes[place + start..place + 256]
    }

    fn codes(&self) -> Vec<Code> {
        let report = check(&MemoryDevice::from_bytes(self.bytes.clone()));
        report.findings.iter().map(|f| f.code).collect()
    }

    /// `fsck` reports this and nothing else, and nothing after a repair; what is not damaged is
    /// kept.
    fn told_and_mended(&mut self, code: Code) {
        assert_eq!(self.codes(), [code]);
        let device = MemoryDevice::from_bytes(self.bytes.clone());
        let options = RepairOptions {
            guess_geometry: false,
            mode: Mode::All,
            now_seconds: 1_700_000_000,
            check: Default::default(),
        };
        let outcome = usual().repair(&device, &options).unwrap();
        assert!(outcome.is_clean(), "{:?}", outcome.after);
        self.bytes = device.snapshot();
        let (engine, _) = self.mount();
        let found = engine.lookup(self.directory, b"f").unwrap().inode;
        assert_eq!(support::read_all(&engine, found).unwrap(), b"contents");
        set(&engine, found, "user.new", b"new").unwrap();
        assert_eq!(get(&engine, found, "user.new").unwrap(), b"new");
        engine.unmount().unwrap();
    }
}

fn set(engine: &Engine, inode: InodeNumber, name: &str, value: &[u8]) -> Result<()> {
    engine.set_xattr(inode, name.as_bytes(), value, SetXattrMode::Any)
}

fn get(engine: &Engine, inode: InodeNumber, name: &str) -> Result<Vec<u8>> {
    engine.get_xattr(inode, name.as_bytes())
}

#[track_caller]
fn refused<T>(result: Result<T>, errno: i32) {
    let error = result.err().expect("an error");
    assert_eq!(error.errno(), errno, "{error}");
}

fn chmod(engine: &Engine, inode: InodeNumber) -> Result<()> {
    let set = SetAttributes {
        permissions: Some(0o700),
        ..SetAttributes::default()
    };
    engine.set_attributes(inode, &set).map(drop)
}

/// A bad list concerns only its users. Neither the kernel nor `e2fsck` calls an image damaged for
/// it.
#[test]
fn a_list_that_is_none_is_invalid_and_nothing_else() {
    let bad: [&[u8]; 4] = [
        b"",
        &[7, 0, 0, 0],
        &[1, 0, 0, 0, 1, 0, 7],
        &[1, 0, 0, 0, 9, 0, 7, 0],
    ];
    for ordering in ORDERINGS {
        for list in bad {
            let mut image = Image::new(ordering);
            let (directory, file) = (image.directory, image.file);
            image.put(directory, &[(INDEX_POSIX_ACL_DEFAULT, b"", list)]);
            image.put(
                file,
                &[
                    (INDEX_POSIX_ACL_ACCESS, b"", list),
                    (INDEX_USER, b"one", b"1"),
                ],
            );
            assert_eq!(image.codes(), []);
            let (engine, device) = image.mount();
            refused(get(&engine, directory, "system.posix_acl_default"), EINVAL);
            refused(get(&engine, file, "system.posix_acl_access"), EINVAL);
            let new = new_inode(FileType::Regular);
            refused(engine.create(directory, b"new", &new), EINVAL);
            refused(chmod(&engine, file), EINVAL);
            // Everything else still works.
            assert_eq!(engine.read_only_reason(), None);
            assert_eq!(get(&engine, file, "user.one").unwrap(), b"1");
            assert!(!engine.list_xattrs(file).unwrap().is_empty());
            write_new(&engine, engine.root(), "beside", b"it");
            engine.write(file, 0, b"CONTENTS").unwrap();
            // Setting or removing the list mends it.
            set(&engine, directory, "system.posix_acl_default", LIST).unwrap();
            assert_eq!(
                get(&engine, directory, "system.posix_acl_default").unwrap(),
                LIST
            );
            write_new(&engine, directory, "new", b"with a list");
            match list.is_empty() {
                true => set(&engine, file, "system.posix_acl_access", PLAIN_LIST).unwrap(),
                false => engine
                    .remove_xattr(file, b"system.posix_acl_access")
                    .unwrap(),
            }
            refused(get(&engine, file, "system.posix_acl_access"), ENODATA);
            chmod(&engine, file).unwrap();
            engine.unmount().unwrap();
            let report = check(&*device);
            assert!(report.is_clean(), "{ordering}: {:?}", report.findings);
        }
    }
}

/// The four ways in which a block cannot be read: a wrong magic number, a wrong number of blocks,
/// an entry and a value that lie outside.
#[test]
fn a_damaged_block_is_an_error_of_the_image() {
    let damages: [fn(&mut [u8]); 4] = [
        |block| block[0] ^= 1,
        |block| block[8] = 2,
        |block| block[HEADER_SIZE] = 255,
        |block| block[HEADER_SIZE + 2..][..2].copy_from_slice(&1022_u16.to_le_bytes()),
    ];
    for ordering in ORDERINGS {
        for damage in damages {
            let mut image = Image::new(ordering);
            let file = image.file;
            damage(image.attributes(file));
            if image.attributes(file)[HEADER_SIZE] == 255 {
                // Entries as long as they can be, without an end mark.
                image.attributes(file)[HEADER_SIZE..].fill(255);
            }
            let (engine, device) = image.mount();
            // Nothing has read the attributes yet.
            write_new(&engine, image.directory, "beside", b"it");
            assert_eq!(engine.read_only_reason(), None);
            refused(get(&engine, file, "user.one"), EUCLEAN);
            refused(engine.list_xattrs(file), EUCLEAN);
            let reason = engine.read_only_reason().expect("a contradiction");
            assert!(reason.contains(&format!("inode {file}")), "{reason}");
            assert_eq!(support::read_all(&engine, file).unwrap(), b"contents");
            // What was written before the damage was found may still be written home.
            let _ = engine.unmount();
            drop(engine);
            drop(device);
            image.told_and_mended(Code::XattrBlockInvalid);
        }
    }
}

/// Values of two attributes of an inode overlap: with one of them removed, the others need more
/// space than they had.
#[test]
fn values_that_overlap_in_an_inode() {
    for ordering in ORDERINGS {
        let mut image = Image::new(ordering);
        let file = image.file;
        let body = image.body(file);
        let value = body.len() - 28;
        body[..4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
        let mut entry = 4;
        for name in [b"a", b"b", b"c"] {
            body[entry..entry + 2].copy_from_slice(&[1, INDEX_USER]);
            body[entry + 2..entry + 4].copy_from_slice(&(value as u16 - 4).to_le_bytes());
            body[entry + 8..entry + 12].copy_from_slice(&28_u32.to_le_bytes());
            let hash = entry_hash(name, &[b'v'; 28]);
            body[entry + 12..entry + ENTRY_SIZE].copy_from_slice(&hash.to_le_bytes());
            body[entry + ENTRY_SIZE] = name[0];
            entry += entry_len(1);
        }
        assert!(entry + 4 <= value);
        body[value..].fill(b'v');
        let (engine, _) = image.mount();
        for name in ["user.a", "user.c"] {
            assert_eq!(get(&engine, file, name).unwrap(), [b'v'; 28]);
        }
        assert_eq!(engine.read_only_reason(), None);
        refused(engine.remove_xattr(file, b"user.b"), EUCLEAN);
        assert_eq!(get(&engine, file, "user.b").unwrap(), [b'v'; 28]);
        let _ = engine.unmount();
        drop(engine);
        image.told_and_mended(Code::XattrInodeInvalid);
    }
}

/// An attribute without a name, written again, would look like the end of the list.
#[test]
fn an_attribute_without_a_name_does_not_hide_those_behind_it() {
    for ordering in ORDERINGS {
        let mut image = Image::new(ordering);
        let file = image.file;
        image.put(file, &[(0, b"", b"x"), (INDEX_USER, b"one", b"1")]);
        image.attributes(file)[HEADER_SIZE + 8] = 0;
        let (engine, device) = image.mount();
        assert_eq!(get(&engine, file, "user.one").unwrap(), b"1");
        assert_eq!(engine.list_xattrs(file).unwrap(), b"user.one\0");
        assert_eq!(engine.read_only_reason(), None);
        refused(set(&engine, file, "user.two", b"2"), EUCLEAN);
        assert_eq!(get(&engine, file, "user.one").unwrap(), b"1");
        let _ = engine.unmount();
        drop(engine);
        let mut block = vec![0; BLOCK];
        let at = image.inode(file).file_acl.offset_bytes(BLOCK as u64);
        device.read(at, &mut block).unwrap();
        assert!(block == image.attributes(file), "the block is as it was");
        image.told_and_mended(Code::XattrBlockInvalid);
    }
}

/// A pointer that leads out of the file system, or to metadata.
#[test]
fn a_pointer_to_no_attribute_block() {
    for ordering in ORDERINGS {
        for (block, code) in [
            (1_u32, Code::BlockInMetadata),
            (1 << 30, Code::BlockOutOfRange),
        ] {
            let mut image = Image::new(ordering);
            let file = image.file;
            let place = image.place(file);
            image.bytes[place + offset::FILE_ACL..][..4].copy_from_slice(&block.to_le_bytes());
            let (engine, _) = image.mount();
            refused(get(&engine, file, "user.one"), EUCLEAN);
            assert!(engine.read_only_reason().is_some());
            let _ = engine.unmount();
            drop(engine);
            assert!(image.codes().contains(&code), "{:?}", image.codes());
        }
    }
}
