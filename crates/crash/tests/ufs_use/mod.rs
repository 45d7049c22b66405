//! Images of UFS in use: made, mounted, and written to.

use backstitch_crash::{Fork, ForkDevice, ImageOptions};
use backstitch_crash_core::mount::{Engine, Mount, Nobody};
use backstitch_formats::Layout;
use backstitch_layout::{BlockNumber, FileType, InodeNumber, NewInode};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{Operation, PatchId};
use backstitch_store::Optimisations;
use backstitch_ufs::format::{Inode, Superblock};

/// Options of an image of this type, with fragments of this size.
pub(crate) fn image((kind, fragment_bytes): (&str, u32)) -> ImageOptions {
    ImageOptions {
        layout: kind.parse::<Layout>().expect("a type that is registered"),
        block_bytes: fragment_bytes,
        ..ImageOptions::default()
    }
}

/// A new inode of this type.
pub(crate) fn new(file_type: FileType) -> NewInode<'static> {
    NewInode {
        file_type,
        permissions: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: &[],
    }
}

/// Makes an object in the root.
pub(crate) fn make(mount: &mut Mount, file_type: FileType, name: &[u8]) -> InodeNumber {
    let made = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
        let root = fs.root();
        fs.create(v, root, name, &new(file_type), now)
    });
    made.unwrap()
}

/// Makes a file of this size in the root.
pub(crate) fn make_file(mount: &mut Mount, name: &[u8], bytes: usize) -> InodeNumber {
    let inode = make(mount, FileType::Regular, name);
    write(mount, inode, 0, bytes);
    inode
}

/// Writes so many bytes into a file.
pub(crate) fn write(mount: &mut Mount, inode: InodeNumber, at: u64, bytes: usize) {
    let contents = vec![7; bytes];
    let mut done = 0;
    while done < bytes {
        let written = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
            fs.write(v, inode, at + done as u64, &contents[done..], now)
        });
        done += written.unwrap();
    }
}

/// What of a fragment is not on the disk.
pub(crate) fn pending(mount: &mut Mount, fragment: BlockNumber) -> Vec<PatchId> {
    let asked = mount.look(|_, v, _| {
        let mut pending = Vec::new();
        v.pending(fragment, &mut pending);
        Ok(pending)
    });
    asked.unwrap()
}

/// Mounts an image.
pub(crate) fn open(fork: Fork, ordering: Ordering) -> Mount {
    let engine = Engine {
        ordering,
        optimisations: Optimisations::BOTH,
        unit_bytes: None,
    };
    Mount::open(fork, engine, false, &mut Nobody).expect("it can be mounted")
}

/// An image's superblock.
pub(crate) fn superblock_of(fork: &Fork) -> Superblock {
    let device = ForkDevice::new(fork.clone());
    backstitch_ufs::read_superblock(&device).expect("it has one")
}

/// An inode on the disk, and the fragment that it is in.
pub(crate) fn inode_on_disk(mount: &Mount, inode: InodeNumber) -> (u64, Inode) {
    let fork = mount.fork();
    let sb = superblock_of(&fork);
    let (fragment, offset) = sb.inode_place(inode);
    let at = fragment as usize * sb.fragment_bytes as usize + offset;
    let parsed = Inode::parse(sb.version, sb.order, &fork.to_bytes()[at..]);
    (fragment, parsed.unwrap())
}
