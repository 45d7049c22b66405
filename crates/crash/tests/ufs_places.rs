//! UFS: where things go by the policy of FFS, and what of that is on the disk for FreeBSD to find.

use crate::ufs_use::{image, inode_on_disk, make, make_file, new, open, superblock_of};
use backstitch_crash::Fork;
use backstitch_crash_core::mount::{Mount, Nobody};
use backstitch_layout::tools::{CheckOptions, Mkfs};
use backstitch_layout::{Allocate, BlockNumber, FileType, GroupNumber, InodeNumber};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Operation;
use backstitch_ufs::format::group::Rotors;
use backstitch_ufs::format::{CylinderGroup, RawSuperblock, Superblock};
use std::mem::offset_of;

const FRAGMENT: u32 = 512;
const BLOCK: u64 = 8 * FRAGMENT as u64;
/// Blocks of the files that fill a group.
const FILLER: u64 = 100;

/// An image of four groups of 6 MiB, with blocks of eight fragments.
fn four_groups(kind: &str) -> Fork {
    four_groups_with(kind, 1024)
}

/// The same with so many inodes.
fn four_groups_with(kind: &str, inodes: u32) -> Fork {
    let mkfs = Mkfs {
        fragment_size: Some(FRAGMENT),
        blocks_per_group: Some(12_288),
        inodes: Some(inodes),
        device_is_zero: true,
        ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
    };
    let made = Fork::formatted(kind.parse().unwrap(), &mkfs, 24 << 20, FRAGMENT);
    let made = made.unwrap();
    assert_eq!(superblock_of(&made).groups, 4);
    made
}

/// The runs of a file's whole blocks.
fn runs(mount: &mut Mount, inode: InodeNumber, blocks: u64) -> Vec<(u64, u64)> {
    let found = mount.look(|fs, v, _| {
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < blocks * 8 {
            let (start, len) = fs.extent(v, inode, at, blocks * 8 - at)?;
            runs.push((start.expect("no hole").0, len));
            at += len;
        }
        Ok(runs)
    });
    found.unwrap()
}

fn closed(mut mount: Mount) -> Fork {
    mount.unmount(&mut Nobody).unwrap();
    let image = mount.fork();
    let report = image.kind().tools().check(&image, &CheckOptions::QUICK);
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:?}");
    image
}

fn group_of<'b>(sb: &Superblock, bytes: &'b [u8], group: GroupNumber) -> CylinderGroup<'b> {
    let at = (sb.group_header(group) * u64::from(sb.fragment_bytes)) as usize;
    CylinderGroup::parse(sb, group, &bytes[at..at + sb.group_bytes as usize]).unwrap()
}

/// What the first indirect block leads to is near the inode; then the file moves on with each
/// section.
#[test]
fn a_large_file_takes_so_many_blocks_from_one_group() {
    const SECTION: u64 = 64;
    for kind in ["ufs1", "ufs2"] {
        let mut image = four_groups(kind);
        let sb = superblock_of(&image);
        let limit = sb.order.bytes_of_u32(SECTION as u32);
        let at = sb.place + offset_of!(RawSuperblock, fs_maxbpg) as u64;
        image.write(at, &limit).unwrap();
        let first = 12 + u64::from(sb.pointers_per_block);
        let blocks = first + 10 * SECTION;
        let mut mount = open(image, Ordering::SOFT);
        let inode = make_file(&mut mount, b"large", (blocks * BLOCK) as usize);
        let mut groups: Vec<u32> = Vec::new();
        for (start, len) in runs(&mut mount, inode, blocks) {
            groups.extend((start..start + len).step_by(8).map(|at| sb.group_of(at).0));
        }
        assert_eq!(groups[0], 0, "{kind}");
        let sections: Vec<&[u32]> = groups[first as usize..].chunks(SECTION as usize).collect();
        assert_eq!(sections.len(), 10);
        for (number, section) in sections.iter().enumerate() {
            assert!(
                section.iter().all(|group| *group == section[0]),
                "{kind}: {number}"
            );
            let before = number.checked_sub(1).map(|before| sections[before][0]);
            assert_ne!(before, Some(section[0]), "{kind}: {number}");
        }
        let sb = superblock_of(&closed(mount));
        let last = sections[9][0];
        assert_eq!(sb.raw.fs_cgrotor, last as i32, "{kind}");
    }
}

/// The indirect blocks of files are where the superblock keeps room for metadata, and not between
/// their contents.
#[test]
fn contents_lie_one_behind_the_other() {
    const BLOCKS: u64 = 16;
    for kind in ["ufs1", "ufs2"] {
        let mut mount = open(four_groups(kind), Ordering::SOFT);
        let sb = superblock_of(&mount.fork());
        let kept = u64::from(sb.metadata_fragments());
        assert!(kept > 0);
        let mut next = sb.group_data(GroupNumber(0)) + kept;
        for name in ["one", "two", "three"] {
            let inode = make_file(&mut mount, name.as_bytes(), (BLOCKS * BLOCK) as usize);
            for (start, len) in runs(&mut mount, inode, BLOCKS) {
                assert_eq!(start, next, "{kind}: {name}");
                next += len;
            }
        }
        closed(mount);
    }
}

/// As FFS has it: directories in the root far from each other, others near their parents, until so many
/// are there that the files to come would not have room.
#[test]
fn directories_are_spread_and_their_own_stay_near() {
    for kind in ["ufs1", "ufs2"] {
        let mut mount = open(four_groups_with(kind, 4096), Ordering::SOFT);
        let sb = superblock_of(&mount.fork());
        let mut make_in = |parent: Option<InodeNumber>, name: String| {
            let made = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
                let parent = parent.unwrap_or_else(|| fs.root());
                fs.create(v, parent, name.as_bytes(), &new(FileType::Directory), now)
            });
            made.unwrap()
        };
        let top: Vec<InodeNumber> = (0..8).map(|n| make_in(None, format!("top{n}"))).collect();
        let mut groups: Vec<u32> = top.iter().map(|at| sb.group_of_inode(*at).0).collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups, [0, 1, 2, 3], "{kind}");
        let home = sb.group_of_inode(top[0]);
        let near: Vec<GroupNumber> = (0..60)
            .map(|n| make_in(Some(top[0]), format!("sub{n}")))
            .map(|at| sb.group_of_inode(at))
            .collect();
        assert_eq!(near[0], home, "{kind}");
        let stay = near.iter().take_while(|group| **group == home).count();
        assert!((2..60).contains(&stay), "{kind}: {stay} stay");
        closed(mount);
    }
}

/// Last fragments of files go into blocks that files have begun, those of directories into others:
/// one read brings many directories into memory.
#[test]
fn directories_lie_one_behind_the_other() {
    for kind in ["ufs1", "ufs2"] {
        let mut mount = open(four_groups(kind), Ordering::SOFT);
        let sb = superblock_of(&mount.fork());
        let ends = |place: u64| {
            let group = sb.group_of(place);
            sb.group_start(group) + u64::from(sb.contents_begin(group))
        };
        let mut made = Vec::new();
        for number in 0..40_u32 {
            let name = format!("d{number}");
            made.push((true, make(&mut mount, FileType::Directory, name.as_bytes())));
            let bytes = (number % 7 + 1) * FRAGMENT;
            let name = format!("f{number}");
            made.push((
                false,
                make_file(&mut mount, name.as_bytes(), bytes as usize),
            ));
        }
        mount.drain(&mut Nobody).unwrap();
        let mut places: [Vec<u64>; 4] = Default::default();
        for (is_directory, inode) in made {
            let place = inode_on_disk(&mount, inode).1.pointers[0];
            assert_eq!(
                place < ends(place),
                is_directory,
                "{kind}: {inode} at {place}"
            );
            if is_directory {
                places[sb.group_of(place).0 as usize].push(place);
            }
        }
        for places in places.iter().filter(|places| places.len() > 1) {
            let is_next = |pair: &[u64]| pair[1] == pair[0] + 1;
            assert!(places.windows(2).all(is_next), "{kind}: {places:?}");
        }
        closed(mount);
    }
}

/// Single free blocks near the inode are left alone where another group has as many together as are
/// wanted.
#[test]
fn blocks_that_lie_together_are_worth_another_group() {
    for kind in ["ufs1", "ufs2"] {
        let mut mount = open(four_groups(kind), Ordering::SOFT);
        let sb = superblock_of(&mount.fork());
        let is_near = |runs: &[(u64, u64)]| runs.iter().all(|run| sb.group_of(run.0).0 == 0);
        let mut fillers = Vec::new();
        loop {
            let name = format!("{}", fillers.len());
            let inode = make_file(&mut mount, name.as_bytes(), (FILLER * BLOCK) as usize);
            fillers.push(inode);
            if !is_near(&runs(&mut mount, inode, FILLER)) {
                break;
            }
        }
        // What is kept for metadata too.
        for number in 0.. {
            let inode = make_file(
                &mut mount,
                format!("short{number}").as_bytes(),
                BLOCK as usize,
            );
            if !is_near(&runs(&mut mount, inode, 1)) {
                break;
            }
        }
        for inode in fillers {
            for odd in (1..FILLER).step_by(2) {
                let punched = mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
                    fs.allocate(v, inode, Allocate::PunchHole, odd * BLOCK, BLOCK, now)
                });
                punched.unwrap();
            }
        }
        mount.drain(&mut Nobody).unwrap();
        let inode = make_file(&mut mount, b"new", (16 * BLOCK) as usize);
        // What the pointers of the inode and an indirect block lead to is told apart.
        let found = runs(&mut mount, inode, 16);
        assert!(
            found.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0),
            "{kind}: {found:?}"
        );
        assert!(!is_near(&found), "{kind}: {found:?}");
        let image = closed(mount);
        // A single block goes near the inode all the same.
        let mut mount = open(image, Ordering::SOFT);
        let inode = make_file(&mut mount, b"small", BLOCK as usize);
        assert!(is_near(&runs(&mut mount, inode, 1)), "{kind}");
        closed(mount);
    }
}

/// FreeBSD goes on with its searches where ours ended.
#[test]
fn the_last_places_are_in_the_groups() {
    for kind in ["ufs1", "ufs2"] {
        let mut mount = open(image((kind, FRAGMENT)).make().unwrap(), Ordering::SOFT);
        make_file(&mut mount, b"small", 700);
        let inode = make_file(&mut mount, b"three", (3 * BLOCK) as usize);
        let blocks = runs(&mut mount, inode, 3);
        let tail = make_file(&mut mount, b"tail", 900);
        let fragments = mount.look(|fs, v, _| fs.extent(v, tail, 0, 2)).unwrap();
        let last = make(&mut mount, FileType::Regular, b"last");
        let image = closed(mount);
        let (sb, bytes) = (superblock_of(&image), image.to_bytes());
        let (start, len) = blocks[blocks.len() - 1];
        let expected = Rotors {
            block: (start + len) as u32 - 8,
            fragment: fragments.0.map_or(0, |BlockNumber(at)| at as u32),
            inode: last.0,
        };
        let found = group_of(&sb, &bytes, GroupNumber(0));
        assert_eq!(found.rotors, expected, "{kind}");
        let raw = found.raw();
        assert_eq!(
            (raw.cg_rotor, raw.cg_irotor),
            (expected.block, expected.inode)
        );
        for group in GroupNumber::all(sb.groups) {
            let raw = group_of(&sb, &bytes, group).raw();
            assert!(raw.cg_rotor < raw.cg_ndblk && raw.cg_frotor < raw.cg_ndblk);
        }
    }
}
