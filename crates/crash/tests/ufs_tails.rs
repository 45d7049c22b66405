//! UFS: how a file whose last block is in fragments gets longer.

use crate::ufs_use::{image, make, make_file, open, superblock_of};
use backstitch_crash_core::mount::{Mount, Nobody};
use backstitch_layout::tools::CheckOptions;
use backstitch_layout::{Error, FileSystem, FileType, InodeNumber, Result, SetAttributes};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{Operation, Volume};

/// Both versions, with fragments of both sizes, of which a block has eight.
const IMAGES: [(&str, u32); 4] = [("ufs1", 512), ("ufs1", 1024), ("ufs2", 512), ("ufs2", 1024)];

/// Writes behind the end of a file in one step, or makes it so long.
fn in_one_step(mount: &mut Mount, inode: InodeNumber, at: u64, bytes: usize) -> Result<()> {
    let contents = vec![9; bytes];
    let size = SetAttributes {
        size_bytes: Some(at),
        ..SetAttributes::default()
    };
    let mut body = |fs: &mut dyn FileSystem, v: &mut Volume<'_>, now| match bytes {
        0 => fs.set_attributes(v, inode, &size, now).map(drop),
        _ => {
            assert_eq!(fs.write(v, inode, at, &contents, now)?, bytes);
            Ok(())
        }
    };
    let step = mount.run_step(Operation::Administration, &mut Nobody, &mut body)?;
    assert_eq!(step, Some(()), "{bytes} bytes at {at} took several steps");
    Ok(())
}

fn size_of(mount: &mut Mount, inode: InodeNumber) -> u64 {
    let attributes = mount.look(|fs, v, _| fs.attributes(v, inode));
    attributes.unwrap().size_bytes
}

/// The last block becomes whole with what is written behind it, wherever that is: where it was, and
/// in another place where others have what follows.
#[test]
fn a_file_in_fragments_gets_longer_in_one_step() {
    for of in IMAGES {
        let block = u64::from(of.1) * 8;
        for (at, bytes) in [
            (block, 100),
            (3 * block, 700),
            (100 * block, 700),
            (block, 0),
        ] {
            let mut mount = open(image(of).make().unwrap(), Ordering::SOFT);
            let [a, b, c] = [b"a", b"b", b"c"].map(|name| make_file(&mut mount, name, 700));
            for inode in [c, a, b] {
                in_one_step(&mut mount, inode, at, bytes).unwrap();
                assert_eq!(size_of(&mut mount, inode), at + bytes as u64, "{of:?}");
            }
            mount.unmount(&mut Nobody).unwrap();
            let image = mount.fork();
            assert!(superblock_of(&image).is_clean());
            let report = image.kind().tools().check(&image, &CheckOptions::QUICK);
            let report = report.unwrap();
            assert!(report.is_clean(), "{of:?}: {report:?}");
        }
    }
}

/// What finds no room behind the last block leaves that as it was.
#[test]
fn a_file_in_fragments_that_finds_no_room_is_as_it_was() {
    for of in IMAGES {
        let mut mount = open(image(of).make().unwrap(), Ordering::SOFT);
        let inode = make_file(&mut mount, b"f", 700);
        let large = make(&mut mount, FileType::Regular, b"large");
        let (block, free) = (u64::from(of.1) * 8, mount.fs.statistics().free_blocks);
        // One block is left, which the file's own end would take.
        let mut write = |at: u64| {
            mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
                fs.write(v, large, at, &vec![1; block as usize], now)
            })
        };
        let full = (0..free).map(|n| write(n * block)).find_map(Result::err);
        assert_eq!(full, Some(Error::NoSpace));
        let found = in_one_step(&mut mount, inode, 40 * block, 10);
        assert_eq!(found, Err(Error::NoSpace), "{of:?}");
        assert_eq!(size_of(&mut mount, inode), 700, "{of:?}");
    }
}
