//! UFS: an indirect block lies in several fragments, each of which is written by itself.

use crate::ufs_use::{image, inode_on_disk, make, open, pending, write};
use backstitch_crash_core::mount::{Mount, Nobody};
use backstitch_layout::{Allocate, BlockNumber, FileType};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Operation;
use backstitch_ufs::format::inode::DIRECT_POINTERS;

/// Both versions with the size of a fragment, and how many pointers that holds.
const IMAGES: [((&str, u32), u64); 4] = [
    (("ufs1", 512), 128),
    (("ufs1", 1024), 256),
    (("ufs2", 512), 64),
    (("ufs2", 1024), 128),
];

/// Two blocks are taken out of a file whose pointers lie on both sides of a border between fragments.
/// Once that is written, as far as the blocks wait for it to be free, neither pointer may be on its
/// way any more: it would lead to a free block, which soon is another file's.
fn no_fragment_leads_to_what_is_free(of: (&str, u32), pointers: u64) {
    let mut mount = open(image(of).make().unwrap(), Ordering::SOFT);
    let file = make(&mut mount, FileType::Regular, b"file");
    let block_bytes = 8 * u64::from(of.1);
    let start = (DIRECT_POINTERS as u64 + pointers - 1) * block_bytes;
    // The third one keeps the indirect block.
    write(&mut mount, file, start, 3 * block_bytes as usize);
    mount.drain(&mut Nobody).unwrap();
    // Without what is only about to be freed.
    let free = |mount: &Mount| mount.fs.statistics().free_in_whole_blocks;
    let before = free(&mount);
    let (fragment, on_disk) = inode_on_disk(&mount, file);
    let indirect = BlockNumber(on_disk.pointers[DIRECT_POINTERS]);
    let punched = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
        fs.allocate(v, file, Allocate::PunchHole, start, 2 * block_bytes, now)
    });
    punched.unwrap();
    let fragments = [indirect, indirect + 1];
    for fragment in fragments {
        assert!(!pending(&mut mount, fragment).is_empty(), "{of:?}");
    }
    let patches = pending(&mut mount, BlockNumber(fragment));
    mount.sync(&patches, &mut Nobody).unwrap();
    while mount.work(&mut Nobody).unwrap() {}
    assert_eq!(free(&mount) - before, 16, "{of:?}");
    for fragment in fragments {
        assert_eq!(pending(&mut mount, fragment), [], "{of:?}");
    }
}

#[test]
fn blocks_are_free_once_no_fragment_leads_to_them() {
    for (of, pointers) in IMAGES {
        no_fragment_leads_to_what_is_free(of, pointers);
    }
}
