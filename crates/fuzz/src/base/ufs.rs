//! Images of UFS: both versions, both byte orders.

use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_formats::{Layout, named};
use backstitch_layout::tools::{Mkfs, SliceSource};
use backstitch_layout::{FileType, GroupNumber, InodeNumber};
use backstitch_mechanisms::Ordering;
use backstitch_ufs::format::inode::{DIRECT_POINTERS, Offsets};
use backstitch_ufs::format::superblock::{
    self, AREA_BYTES, FLAG_JOURNAL, FLAG_SOFT_UPDATES, READ_BYTES, SUPERBLOCK_BYTES,
};
use backstitch_ufs::format::{
    FormatError, Inode, RawInode2, Superblock, Version, attributes, group,
};
use backstitch_vfs::Engine;

use super::{Base, TIME_SECONDS, fill, mount_options};
use crate::places::Places;

const SIZE_BYTES: usize = 3 << 20;

/// All of them. The order is part of every stored input, so new ones go to the end.
pub fn all() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(make_all)
}

/// A block has eight fragments.
fn make_all() -> Vec<Base> {
    let big = "big_endian";
    vec![
        base("ufs1", filled("ufs1", None, 4096)),
        base("ufs1-big-endian", filled("ufs1", Some(big), 4096)),
        base("ufs2", filled("ufs2", None, 4096)),
        base("ufs2-big-endian", filled("ufs2", Some(big), 8192)),
        base("ufs2-crashed", crashed(filled("ufs2", None, 4096))),
        base("ufs2-journal", with_journal(filled("ufs2", None, 4096))),
        base(
            "ufs2-attributes",
            with_attributes(filled("ufs2", Some(big), 4096)),
        ),
    ]
}

type Filled = (Layout, Arc<MemoryDevice>);

fn filled(kind: &str, feature: Option<&str>, block_bytes: u32) -> Filled {
    let (layout, features) = named(kind).expect("a type that can be made");
    let features = features.iter().copied().chain(feature);
    let mkfs = Mkfs {
        features: features.map(str::to_owned).collect(),
        block_size: Some(block_bytes),
        inodes: Some(192),
        device_is_zero: true,
        ..Mkfs::new([7; 16], [9; 16], TIME_SECONDS.into())
    };
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let made = layout
        .make(&mkfs, &*device)
        .expect("the options of a base image");
    let options = mount_options(Ordering::ASYNC);
    let engine = Engine::mount(device.clone(), layout.layout(), &options);
    let engine = engine.expect("a new file system");
    fill(&engine, &made);
    engine.unmount().expect("a device in memory does not fail");
    (layout, device)
}

/// The image as a power cut under soft updates leaves it: in use, with an inode that has no name.
fn crashed((layout, device): Filled) -> Filled {
    let options = mount_options(Ordering::SOFT);
    // Only the superblock is written, and that is done when the mount returns.
    let mounted = Engine::mount(device.clone(), layout.layout(), &options);
    drop(mounted.expect("a sound image"));
    let sb = parse(&device);
    let header = sb.group_header(GroupNumber(0)) * u64::from(sb.fragment_bytes);
    let used = header + group::Maps::new(&sb).inodes_used as u64;
    let mut byte = [0];
    device.read(used + 7, &mut byte).expect("a place of it");
    device
        .write(used + 7, &[byte[0] | 0x10])
        .expect("a place of it");
    (layout, device)
}

/// The image in use by a FreeBSD whose soft updates keep a journal.
fn with_journal((layout, device): Filled) -> Filled {
    let sb = parse(&device);
    let flags = sb.flags | FLAG_SOFT_UPDATES | FLAG_JOURNAL;
    let put = |offset: usize, bytes: &[u8]| {
        let at = sb.place + offset as u64;
        device.write(at, bytes).expect("a place of it");
    };
    put(superblock::offset::FLAGS, &sb.order.bytes_of_u32(flags));
    put(superblock::offset::CLEAN, &[0]);
    (layout, device)
}

/// The image with a file whose contents have become its attributes.
fn with_attributes((layout, device): Filled) -> Filled {
    let (sb, bytes) = (parse(&device), device.snapshot());
    let fragment = u64::from(sb.fragment_bytes);
    let is_one = |inode: &Inode| {
        inode.file_type() == Some(FileType::Regular)
            && (1..=fragment).contains(&inode.size)
            && inode.pointers[0] != 0
    };
    let found = (2..sb.inodes()).find_map(|number| {
        let at = inode_at(&sb, number);
        let inode = Inode::parse(sb.version, sb.order, &bytes[at as usize..]).ok()?;
        is_one(&inode).then_some((at, inode.pointers[0]))
    });
    let (at, place) = found.expect("a file of one fragment");
    let of_user = attributes::encode(sb.order, 1, b"colour", b"blue");
    let of_system = attributes::encode(sb.order, 2, b"posix1e.acl_access", &[7; 68]);
    let contents = [of_user, of_system].concat();
    let put = |at: u64, bytes: &[u8]| device.write(at, bytes).expect("a place of it");
    put(place * fragment, &contents);
    let order = sb.order;
    let field = |offset: usize| at + offset as u64;
    put(
        field(offset_of!(RawInode2, di_size)),
        &order.bytes_of_u64(0),
    );
    put(field(offset_of!(RawInode2, di_db)), &order.bytes_of_u64(0));
    put(
        field(offset_of!(RawInode2, di_extsize)),
        &order.bytes_of_u32(contents.len() as u32),
    );
    put(
        field(offset_of!(RawInode2, di_extb)),
        &order.bytes_of_u64(place),
    );
    (layout, device)
}

fn base(name: &'static str, (layout, device): Filled) -> Base {
    let image = MemoryDevice::from_bytes(device.snapshot());
    without_times(&image);
    let bytes = image.snapshot();
    let geography = layout
        .geography(&SliceSource(&bytes))
        .expect("a sound image");
    let sb = parse(&image);
    let head = sb.place..sb.place + SUPERBLOCK_BYTES as u64;
    let places = Places::by_use(&*geography, &bytes, head, numbers(&sb, &bytes));
    Base::with_places(name, layout, false, image, places)
}

/// The superblock of a base image.
pub fn superblock_of(base: &Base) -> Superblock {
    parse(&MemoryDevice::from_bytes(base.bytes()))
}

fn parse(device: &MemoryDevice) -> Superblock {
    let bytes = device.snapshot();
    let found = Superblock::find(bytes.len() as u64, |place| {
        let at = place as usize;
        let read = bytes.get(at..at + READ_BYTES);
        Ok::<_, FormatError>(read.map(<[u8]>::to_vec))
    });
    found.expect("a base image is sound")
}

fn inode_at(sb: &Superblock, number: u32) -> u64 {
    let (fragment, offset) = sb.inode_place(InodeNumber(number));
    fragment * u64::from(sb.fragment_bytes) + offset as u64
}

/// Sets all times, and random numbers, to the same value.
fn without_times(device: &MemoryDevice) {
    let sb = parse(device);
    let zero = |at: u64, len: usize| {
        device
            .write(at, &vec![0; len])
            .expect("a place of the image");
    };
    let offsets = Offsets::of(sb.version);
    let seconds_bytes = match sb.version {
        Version::Ufs1 => 4,
        Version::Ufs2 => 8,
    };
    let times = [offsets.accessed, offsets.modified, offsets.changed];
    for number in 0..sb.inodes() {
        let at = inode_at(&sb, number);
        for (seconds, nanoseconds) in times.into_iter().chain(offsets.created) {
            zero(at + seconds as u64, seconds_bytes);
            zero(at + nanoseconds as u64, 4);
        }
        zero(at + offsets.generation as u64, 4);
    }
    for number in GroupNumber::all(sb.groups) {
        let header = sb.group_header(number) * u64::from(sb.fragment_bytes);
        zero(header + group::offset::OLD_TIME as u64, 4);
        zero(header + group::offset::TIME as u64, 8);
    }
    // The new field counts in UFS1 too.
    zero(sb.place + superblock::offset::TIME as u64, 8);
    if sb.version == Version::Ufs1 {
        zero(sb.place + superblock::offset::OLD_TIME as u64, 4);
    }
}

/// Numbers worth putting into a field: limits, and numbers of existing things.
fn numbers(sb: &Superblock, bytes: &[u8]) -> Vec<u32> {
    let fragments = sb.fragments as u32;
    let mut numbers = vec![
        0,
        1,
        2,
        sb.inodes() - 1,
        sb.inodes(),
        fragments - 1,
        fragments,
        sb.fragments_per_group,
        sb.inodes_per_group,
        sb.group_bytes,
        sb.block_bytes,
        AREA_BYTES as u32,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
    ];
    for number in (2..sb.inodes()).take(40) {
        let at = inode_at(sb, number) as usize;
        let Ok(inode) = Inode::parse(sb.version, sb.order, &bytes[at..]) else {
            continue;
        };
        let blocks = [inode.pointers[0], inode.pointers[DIRECT_POINTERS]];
        let known = blocks.into_iter().filter(|block| *block != 0);
        numbers.extend(known.map(|block| block as u32));
    }
    numbers.truncate(64);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_the_same_every_time() {
        crate::base::tests::assert_same(&make_all(), all());
    }

    #[test]
    fn images_are_sound_and_have_places_of_every_kind() {
        for base in all() {
            let device = base.device();
            let report = crate::targets::fsck::check(base.layout, &*device).unwrap();
            let is_expected = match base.name {
                "ufs2-crashed" => report.is_consistent() && !report.is_clean(),
                _ => report.is_clean(),
            };
            assert!(is_expected, "{}: {:?}", base.name, report.findings);
            let kinds = base.places().count();
            assert!(kinds >= 10, "{}: {kinds}", base.name);
        }
    }
}
