//! The structures of UFS, each by itself: superblock, cylinder group, inode, directory, attributes.
//!
//! The input is the structure and the byte order (1 byte each) and its bytes. Before those of a
//! superblock is the size of the device in units of 512 bytes (4 bytes). A cylinder group's are read
//! under a sound superblock, that of a [base image](crate::base::ufs) (1 byte), of which the group
//! is one (1 byte).

use backstitch_blocks::directory::{Entry, EntryLayout, encode_entry, entries, entry_at, find};
use backstitch_layout::{GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::{CHUNK_BYTES, UfsEntries, type_code, type_of_code};
use backstitch_ufs::format::group::{Derived, FRAGMENTS_MAX, RawSummaryCounts};
use backstitch_ufs::format::inode::{encode_device, holds_device};
use backstitch_ufs::format::superblock::READ_BYTES;
use backstitch_ufs::format::{
    ByteOrder, CylinderGroup, Inode, OnDisk, RawCylinderGroup, RawInode1, RawInode2, RawSummary,
    RawSuperblock, Superblock, Version, attributes,
};

use crate::{Input, base};

/// Groups that are checked, from both ends.
const GROUPS: u32 = 32;
/// The structures: the first byte of an input.
pub const SUPERBLOCK: u8 = 0;
/// See [`SUPERBLOCK`].
pub const GROUP: u8 = 1;
/// See [`SUPERBLOCK`].
pub const INODE: u8 = 2;
/// See [`SUPERBLOCK`].
pub const DIRECTORY: u8 = 3;
/// See [`SUPERBLOCK`].
pub const ATTRIBUTES: u8 = 4;

/// What is read and written is the same, and leads to places that exist.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let structure = input.byte();
    let order = match input.byte() % 2 {
        0 => ByteOrder::Little,
        _ => ByteOrder::Big,
    };
    match structure % 5 {
        SUPERBLOCK => superblock(&mut input),
        GROUP => group(&mut input),
        INODE => inode(order, input.rest()),
        DIRECTORY => match order {
            ByteOrder::Little => directory::<false>(input.rest()),
            ByteOrder::Big => directory::<true>(input.rest()),
        },
        _ => of_inode(order, input.rest()),
    }
}

/// A superblock that is accepted is possible on its device: every place that follows from it is
/// there.
fn superblock(input: &mut Input<'_>) {
    let device_bytes = u64::from(input.number()) * 512;
    let mut bytes = vec![0; READ_BYTES];
    let taken = input.bytes(READ_BYTES);
    bytes[..taken.len()].copy_from_slice(taken);
    for order in ByteOrder::ALL {
        let raw = RawSuperblock::decode(order, &bytes);
        assert_eq!(raw.to_bytes(order), bytes[..RawSuperblock::SIZE]);
    }
    for place in [65_536, 8_192] {
        let Ok(sb) = Superblock::parse(&bytes, place, device_bytes) else {
            continue;
        };
        let _ = (sb.read_support(), sb.write_support(), sb.label());
        let _ = (sb.is_left_in_order(), sb.summary_total());
        assert!(!sb.is_clean() || !sb.has_dirty_journal());
        records(&sb);
        geometry(&sb, device_bytes);
    }
}

/// Our own records are written as they were read.
fn records(sb: &Superblock) {
    let mut bytes = sb.raw.to_bytes(sb.order);
    if let Some(record) = sb.record {
        bytes.extend(record.encode(&sb.raw, sb.order));
        let again = Superblock::parse(&bytes, sb.place, u64::MAX).expect("as it was read");
        assert_eq!(again.record, Some(record));
        assert_eq!(again.flags_at_rest(), sb.flags_at_rest());
    }
}

fn geometry(sb: &Superblock, device_bytes: u64) {
    assert!(sb.fragments * u64::from(sb.fragment_bytes) <= device_bytes);
    assert!(matches!(sb.fragments_per_block, 1 | 2 | 4 | 8));
    assert_eq!(
        sb.fragments_per_block * sb.fragment_bytes,
        sb.block_bytes,
        "a block"
    );
    let last = sb.groups - 1;
    let groups = (0..sb.groups.min(GROUPS)).chain(last.saturating_sub(GROUPS)..=last);
    for number in groups.map(GroupNumber) {
        let (first, count) = (sb.group_start(number), sb.fragments_in_group(number));
        let end = first + u64::from(count);
        assert!(count > 0 && end <= sb.fragments);
        assert_eq!(sb.group_of(first), number);
        assert_eq!(sb.group_of(end - 1), number);
        let own = sb.own_fragments(number);
        assert!(own.start >= first && own.end <= end, "{own:?} of {first}");
        let header = u64::from(sb.group_bytes.div_ceil(sb.fragment_bytes));
        assert!(sb.group_header(number) + header <= sb.fragments);
        let inodes = number.0 * sb.inodes_per_group;
        for inode in [inodes, inodes + sb.inodes_per_group - 1].map(InodeNumber) {
            assert_eq!(sb.group_of_inode(inode), number);
            let (fragment, offset) = sb.inode_place(inode);
            let bytes = offset + sb.version.inode_bytes();
            assert!(bytes <= sb.fragment_bytes as usize, "across fragments");
            assert!(fragment >= sb.group_inodes(number) && fragment < own.end);
        }
    }
    assert!(sb.summary_fragments().end <= sb.fragments);
}

/// All accesses to the maps of a group that is accepted are within its block, and what follows from
/// them adds up.
fn group(input: &mut Input<'_>) {
    let bases = base::ufs::all();
    let base = &bases[usize::from(input.byte()) % bases.len()];
    let sb = base::ufs::superblock_of(base);
    let number = GroupNumber(u32::from(input.byte()) % sb.groups);
    let mut bytes = vec![0; sb.block_bytes as usize];
    let taken = input.bytes(bytes.len());
    bytes[..taken.len()].copy_from_slice(taken);
    let raw = RawCylinderGroup::decode(sb.order, &bytes);
    assert_eq!(raw.to_bytes(sb.order), bytes[..RawCylinderGroup::SIZE]);
    assert!(CylinderGroup::parse(&sb, number, &bytes[..sb.group_bytes as usize - 1]).is_err());
    let Ok(group) = CylinderGroup::parse(&sb, number, &bytes) else {
        return;
    };
    let ends = group.fragments;
    assert_eq!(ends, sb.fragments_in_group(number));
    assert!(group.maps.end <= sb.group_bytes as usize);
    assert!(group.rotors.block < ends && group.rotors.fragment < ends);
    assert!(group.rotors.inode < sb.inodes_per_group);
    assert!(group.initialised_inodes <= sb.inodes_per_group);
    for length in 0..=FRAGMENTS_MAX {
        let _ = group.fragment_sum(length);
    }
    for length in 1..=sb.cluster_sums as usize {
        let _ = group.cluster_sum(length);
    }
    let free = (0..ends).filter(|at| group.is_fragment_free(*at)).count() as u32;
    let _ = (0..sb.inodes_per_group)
        .filter(|index| group.is_inode_used(*index))
        .count();
    let derived = Derived::of(&sb, group.fragment_map(), ends);
    let whole = derived.free_blocks * sb.fragments_per_block;
    assert_eq!(whole + derived.free_fragments, free);
    let runs = (0..).zip(derived.fragment_sums);
    assert_eq!(
        runs.map(|(length, runs)| length * runs).sum::<u32>(),
        derived.free_fragments
    );
    let counts = RawSummaryCounts::from(&raw.cg_cs);
    assert_eq!(RawSummary::from(counts), raw.cg_cs);
}

/// The numbers of an inode survive being written.
fn inode(order: ByteOrder, bytes: &[u8]) {
    for version in [Version::Ufs1, Version::Ufs2] {
        let Ok(inode) = Inode::parse(version, order, bytes) else {
            assert!(bytes.len() < version.inode_bytes());
            continue;
        };
        let own = &bytes[..version.inode_bytes()];
        let written = match version {
            Version::Ufs1 => RawInode1::decode(order, own).to_bytes(order),
            Version::Ufs2 => RawInode2::decode(order, own).to_bytes(order),
        };
        assert_eq!(written, own);
        let symlink_max = version.symlink_max();
        assert!(!(inode.is_fast_symlink(symlink_max) && inode.has_block_map(symlink_max)));
        assert_eq!(inode.inline_bytes().len(), symlink_max as usize);
        let number = inode.device_number();
        if holds_device(version, number) {
            let mut again = inode.clone();
            again.pointers[0] = encode_device(number);
            assert_eq!(again.device_number(), number);
        }
        for time in [inode.accessed, inode.modified, inode.changed] {
            assert!(time.nanoseconds < 1_000_000_000);
        }
    }
}

/// Entries are behind each other and cross no chunk, and a search finds the same as a scan.
fn directory<const BIG: bool>(bytes: &[u8]) {
    /// The highest number of an inode.
    const INODES: u32 = 0xff;
    let mut behind = 0;
    let mut names = Vec::new();
    for entry in entries::<UfsEntries<BIG>>(bytes, INODES) {
        let Ok(entry) = entry else { break };
        assert_eq!(entry.offset, behind);
        behind = entry.offset + entry.rec_len;
        assert!(entry.used_len::<UfsEntries<BIG>>() <= entry.rec_len && entry.inode.0 <= INODES);
        assert!(behind <= bytes.len());
        assert_eq!(entry.offset / CHUNK_BYTES, (behind - 1) / CHUNK_BYTES);
        let written = encode_entry::<UfsEntries<BIG>>(
            entry.inode,
            entry.file_type,
            entry.name,
            entry.rec_len,
        );
        let head = UfsEntries::<BIG>::head(*written.first_chunk().expect("a head"));
        assert_eq!(
            (head.inode, head.file_type),
            (entry.inode.0, entry.file_type)
        );
        if let Some(file_type) = type_of_code(entry.file_type) {
            assert_eq!(type_code(file_type), entry.file_type);
        }
        names.push(entry);
    }
    let is_used = |entry: &Entry<'_>| entry.inode != InodeNumber::NONE;
    for entry in names.iter().filter(|entry| is_used(entry)) {
        let is_same = |other: &&Entry<'_>| is_used(other) && other.name == entry.name;
        let first = names.iter().find(is_same);
        assert_eq!(find::<UfsEntries<BIG>>(bytes, entry.name).as_ref(), first);
    }
    let _ = entry_at::<UfsEntries<BIG>>(bytes, behind, INODES);
}

/// Attributes that are read are within the bytes, and have the names that they tell.
fn of_inode(order: ByteOrder, bytes: &[u8]) {
    let Ok(all) = attributes::parse(order, bytes) else {
        return;
    };
    let mut written = Vec::new();
    for attribute in &all {
        let mut name = Vec::new();
        attribute.push_name(&mut name);
        assert_eq!(name.pop(), Some(0));
        assert!(attribute.is(&name));
        let (namespace, short) = match name.strip_prefix(b"user.".as_slice()) {
            Some(short) => (1, short),
            None => (2, &name[b"trusted.freebsd.".len()..]),
        };
        written.extend(attributes::encode(order, namespace, short, attribute.value));
    }
    assert_eq!(attributes::parse(order, &written), Ok(all));
}
