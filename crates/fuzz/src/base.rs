//! The images that inputs damage: small, with everything in them that a file system can have, and
//! always with the same bytes.
//!
//! They are made by this project's `mkfs` and engine, without threads, whose order could differ.
//! Times are set to a fixed value. The order of the list is part of every stored input, so new
//! images go to its end.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use backstitch_device::{BlockDevice, MemoryDevice, OverlayDevice};
use backstitch_ext::format::inode::{BASE_SIZE, Inode, offset};
use backstitch_ext::format::superblock::{
    OFFSET_LAST_ORPHAN, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use backstitch_ext::format::xattr::{ENTRY_SIZE, INDEX_USER, XATTR_MAGIC, entry_hash, entry_len};
use backstitch_ext::format::{GroupDescriptor, directory, group};
use backstitch_formats::{Layout, journal_host, usual};
use backstitch_journal::Transaction;
use backstitch_journal::format::Sequence;
use backstitch_layout::tools::{Info, JournalFeatures, Mkfs};
use backstitch_layout::{BlockNumber, RecoveryMark};

use backstitch_mechanisms::{Ordering, jbd2};
use backstitch_vfs::{
    Engine, FileType, InodeNumber, MountOptions, NewInode, SetXattrMode, Timestamp,
};
use zerocopy::IntoBytes;

use crate::Input;
use crate::places::{Places, What};

pub mod ufs;

/// The time of everything in the images.
pub const TIME_SECONDS: u32 = 1_700_000_000;

/// An image.
pub struct Base {
    /// Its name in documents and in names of inputs.
    pub name: &'static str,
    /// Its layout.
    pub layout: Layout,
    /// Whether it has a journal.
    pub has_journal: bool,
    bytes: Arc<MemoryDevice>,
    places: Places,
}

impl Base {
    fn new(name: &'static str, has_journal: bool, device: MemoryDevice) -> Base {
        let places = Places::of(&device.snapshot());
        Base::with_places(name, usual(), has_journal, device, places)
    }

    fn with_places(
        name: &'static str,
        layout: Layout,
        has_journal: bool,
        device: MemoryDevice,
        places: Places,
    ) -> Base {
        Base {
            name,
            layout,
            has_journal,
            places,
            bytes: Arc::new(device),
        }
    }

    /// The image that an input's first byte chooses.
    pub fn chosen(input: &mut Input<'_>) -> &'static Base {
        Base::chosen_of(all(), input)
    }

    /// The image of these that an input's first byte chooses.
    pub fn chosen_of(bases: &'static [Base], input: &mut Input<'_>) -> &'static Base {
        &bases[usize::from(input.byte()) % bases.len()]
    }

    /// A device with the image. What is written to it is not shared.
    pub fn device(&self) -> Arc<OverlayDevice> {
        Arc::new(OverlayDevice::new(self.bytes.clone()))
    }

    /// The image.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.snapshot()
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u64 {
        self.places.block_bytes
    }

    /// For each kind of places, how many there are.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.places.kinds.iter().map(|(_, places)| places.len())
    }

    /// The parts that hold this.
    pub(crate) fn holding(&self, what: What) -> &[Range<u64>] {
        self.places.holding(what)
    }

    /// A meaningful part of the image, chosen by one byte for its kind and one for its number.
    pub(crate) fn place(&self, input: &mut Input<'_>) -> Option<Range<u64>> {
        let (_, places) = input.pick(&self.places.kinds)?;
        input.pick(places).cloned()
    }

    /// A number to put into a field: one that means something in the image, or the input's own.
    pub(crate) fn number(&self, input: &mut Input<'_>) -> u32 {
        match input.byte() {
            choice if usize::from(choice) < self.places.numbers.len() => {
                self.places.numbers[usize::from(choice)]
            }
            _ => input.number(),
        }
    }
}

/// All of them.
pub fn all() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(make_all)
}

fn make_all() -> Vec<Base> {
    let small = mkfs(1024, |mkfs| mkfs.blocks_per_group = Some(512));
    let large = mkfs(4096, |_| {});
    let old = mkfs(1024, |mkfs| {
        mkfs.revision = 0;
    });
    let journaled = mkfs(1024, with_journal(&[]));
    let summed = mkfs(
        1024,
        with_journal(&["journal_checksum_v3", "journal_64bit"]),
    );
    vec![
        Base::new("ext2", false, filled(&small, 1536 << 10)),
        Base::new("ext2-4k", false, filled(&large, 2 << 20)),
        Base::new("ext2-revision-0", false, filled(&old, 1536 << 10)),
        Base::new("ext2-crashed", false, crashed(filled(&small, 1536 << 10))),
        Base::new("ext3", true, filled(&journaled, 3 << 20)),
        Base::new("ext3-orphans", true, orphaned(filled(&journaled, 3 << 20))),
        Base::new("ext3-replay", true, logged(filled(&journaled, 3 << 20))),
        Base::new("ext3-checksums", true, logged(filled(&summed, 3 << 20))),
    ]
}

fn mkfs(block_bytes: u32, change: impl FnOnce(&mut Mkfs)) -> Mkfs {
    let mut mkfs = Mkfs {
        block_size: Some(block_bytes),
        inodes: Some(192),
        device_is_zero: true,
        ..Mkfs::new([7; 16], [9; 16], TIME_SECONDS.into())
    };
    change(&mut mkfs);
    mkfs
}

fn with_journal(features: JournalFeatures) -> impl FnOnce(&mut Mkfs) {
    move |mkfs| {
        mkfs.features.push("has_journal".to_owned());
        mkfs.journal_bytes = Some(1 << 20);
        mkfs.journal_features = features;
    }
}

/// Options for mounts of base images, sound or damaged, under which nothing depends on the time.
pub fn mount_options(ordering: Ordering) -> MountOptions {
    MountOptions {
        ordering,
        cache_bytes: 4 << 20,
        expire_seconds: 1e6,
        commit_seconds: 1e6,
        mount_time: Timestamp {
            seconds: TIME_SECONDS.into(),
            nanoseconds: 0,
        },
        ..MountOptions::default()
    }
}

/// Makes a new file system with a tree in it.
fn filled(mkfs: &Mkfs, size_bytes: usize) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(size_bytes));
    let made = usual()
        .make(mkfs, &*device)
        .expect("the options of a base image");
    let has_journal = has(&made, "has_journal");
    // Directories get an index only under a journal.
    let ordering = match has_journal {
        true => Ordering::JOURNAL_FULL,
        false => Ordering::ASYNC,
    };
    let engine = Engine::mount(device.clone(), usual().layout(), &mount_options(ordering));
    let engine = engine.expect("a new file system");
    fill(&engine, &made);
    engine.unmount().expect("a device in memory does not fail");
    let image = MemoryDevice::from_bytes(device.snapshot());
    without_times(&image);
    put_attributes_into_an_inode(&image);
    if has_journal {
        empty_log(&image);
    }
    image
}

/// The attributes of a new file or directory.
pub fn new_inode(file_type: FileType, target: &[u8]) -> NewInode<'_> {
    NewInode {
        file_type,
        permissions: 0o755,
        umask: 0,
        uid: 1000,
        gid: 100,
        device_number: 0x0801,
        target,
    }
}

fn has(made: &Info, feature: &str) -> bool {
    made.features.iter().any(|name| name == feature)
}

/// Makes a tree with everything in it.
fn fill(engine: &Engine, made: &Info) {
    let block_bytes = u64::from(made.block_bytes);
    let make = |directory: InodeNumber, name: &str, file_type: FileType, target: &[u8]| {
        let made = engine.create(directory, name.as_bytes(), &new_inode(file_type, target));
        let inode = made.expect("a new name").inode;
        engine.forget(inode, 1);
        inode
    };
    let write = |inode: InodeNumber, at: u64, bytes: &[u8]| {
        engine.write(inode, at, bytes).expect("there is room");
    };
    let root = engine.root();
    let directory = make(root, "dir", FileType::Directory, b"");
    let below = make(directory, "sub", FileType::Directory, b"");
    let file = make(directory, "file", FileType::Regular, b"");
    write(file, 0, b"contents");
    let large = make(directory, "large", FileType::Regular, b"");
    write(large, 0, &vec![b'x'; 20_000]);
    // One block that each level of indirect blocks maps.
    let sparse = make(below, "sparse", FileType::Regular, b"");
    let per_map = block_bytes / 4;
    for block in [
        0,
        13,
        12 + per_map + 5,
        12 + per_map + per_map * per_map + 7,
    ] {
        write(sparse, block * block_bytes, &[b'y'; 700]);
    }
    make(root, "fast", FileType::Symlink, b"dir/file");
    make(root, "slow", FileType::Symlink, &b"dir/../".repeat(20));
    make(below, "pipe", FileType::Fifo, b"");
    make(below, "disk", FileType::BlockDevice, b"");
    let linked = engine.link(file, below, b"linked").expect("a new name");
    engine.forget(linked.inode, 1);
    if has(made, "ext_attr") {
        attributes(engine, file, large, directory);
    }
    let many = make(root, "many", FileType::Directory, b"");
    let first = make(many, "first of the many files", FileType::Regular, b"");
    for number in 0..44 {
        let name = format!(
            "{number:04} {}",
            "a rather long name ".repeat(5 + number % 7)
        );
        let linked = engine.link(first, many, name.as_bytes());
        engine.forget(linked.expect("a new name").inode, 1);
    }
}

/// Sets attributes in inodes, in a block, and in a block that two files share, and access control
/// lists.
fn attributes(engine: &Engine, file: InodeNumber, large: InodeNumber, directory: InodeNumber) {
    let set = |inode: InodeNumber, name: &str, value: &[u8]| {
        let mode = SetXattrMode::Any;
        let set = engine.set_xattr(inode, name.as_bytes(), value, mode);
        set.expect("there is room for an attribute");
    };
    set(file, "user.one", b"value");
    for inode in [file, large] {
        set(inode, "user.long", &[b'v'; 400]);
        set(inode, "trusted.other", b"");
    }
    // Owner, a named user, group, mask, others, as Linux shows them.
    let acl = [
        &2_u32.to_le_bytes()[..],
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 6, 0, 77, 0, 0, 0],
        &[4, 0, 5, 0, 255, 255, 255, 255],
        &[16, 0, 7, 0, 255, 255, 255, 255],
        &[32, 0, 4, 0, 255, 255, 255, 255],
    ]
    .concat();
    set(directory, "system.posix_acl_access", &acl);
    set(directory, "system.posix_acl_default", &acl);
}

/// Edits an image, using its superblock and the places of its inodes.
struct Edit<'d> {
    device: &'d MemoryDevice,
    sb: Superblock,
    groups: Vec<GroupDescriptor>,
}

impl Edit<'_> {
    fn of(device: &MemoryDevice) -> Edit<'_> {
        let bytes = device.snapshot();
        let at = SUPERBLOCK_OFFSET as usize;
        let head: &[u8; SUPERBLOCK_SIZE] = bytes[at..at + SUPERBLOCK_SIZE]
            .try_into()
            .expect("a range of that size");
        let sb = Superblock::parse(head, device.size_bytes()).expect("a base image is sound");
        let table = sb.block_offset(group::descriptor_table_block(&sb)) as usize;
        let groups = group::parse_table(&sb, &bytes[table..]).expect("a base image is sound");
        Edit { device, sb, groups }
    }

    fn inode_at(&self, number: InodeNumber) -> u64 {
        let group = &self.groups[self.sb.group_of_inode(number).index()];
        let (block, offset) = group.inode_location(&self.sb, number);
        self.sb.block_offset(block) + offset as u64
    }

    fn inode(&self, number: InodeNumber) -> Inode {
        let mut bytes = vec![0; self.sb.inode_size as usize];
        self.read(self.inode_at(number), &mut bytes);
        Inode::parse(&bytes).expect("an inode is long enough")
    }

    fn block(&self, number: BlockNumber) -> Vec<u8> {
        let mut bytes = vec![0; self.sb.block_size as usize];
        self.read(self.sb.block_offset(number), &mut bytes);
        bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        let read = self.device.read(at, into);
        read.expect("a place of the image");
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let written = self.device.write(at, bytes);
        written.expect("a place of the image");
    }

    /// The first inode of a file of this type and size.
    fn of_type(&self, file_type: FileType, size: u64) -> InodeNumber {
        let last = InodeNumber(self.sb.inodes_count);
        let mut numbers = (self.sb.first_inode + 1).through(last);
        let found = numbers.find(|number| {
            let inode = self.inode(*number);
            inode.file_type() == Some(file_type) && inode.size == size
        });
        found.expect("the tree has one")
    }

    /// Makes the entry that names an inode unused.
    fn remove_name(&self, number: InodeNumber) {
        for directory in InodeNumber::FIRST.through(InodeNumber(self.sb.inodes_count)) {
            let inode = self.inode(directory);
            let block = BlockNumber(inode.block[0].into());
            if !inode.is_directory() || block == BlockNumber::NONE {
                continue;
            }
            let bytes = self.block(block);
            let mut found = directory::entries(&bytes, u32::MAX).map_while(Result::ok);
            if let Some(entry) = found.find(|entry| entry.inode == number) {
                let at = self.sb.block_offset(block) + entry.offset as u64;
                return self.write(at + directory::OFFSET_INODE as u64, &[0; 4]);
            }
        }
    }

    fn set_bit(&self, bitmap: BlockNumber, bit: u64) {
        let at = self.sb.block_offset(bitmap) + bit / 8;
        let mut byte = [0];
        self.read(at, &mut byte);
        self.write(at, &[byte[0] | 1 << (bit % 8)]);
    }
}

/// Sets all times to the same value.
fn without_times(device: &MemoryDevice) {
    let edit = Edit::of(device);
    let seconds = TIME_SECONDS.to_le_bytes();
    for number in InodeNumber::FIRST.through(InodeNumber(edit.sb.inodes_count)) {
        let inode = edit.inode(number);
        if inode.mode == 0 {
            continue;
        }
        let at = edit.inode_at(number);
        for field in [offset::ATIME, offset::CTIME, offset::MTIME] {
            edit.write(at + field as u64, &seconds);
        }
        let fractions = [
            offset::ATIME_EXTRA,
            offset::CTIME_EXTRA,
            offset::MTIME_EXTRA,
        ];
        for field in fractions.into_iter().chain([offset::CRTIME_EXTRA]) {
            if inode.has_extra_field(field) {
                edit.write(at + field as u64, &[0; 4]);
            }
        }
        if inode.has_extra_field(offset::CRTIME) {
            edit.write(at + offset::CRTIME as u64, &seconds);
        }
    }
    let mut head = [0; SUPERBLOCK_SIZE];
    edit.read(SUPERBLOCK_OFFSET, &mut head);
    let mut raw = RawSuperblock::from_array(&head);
    raw.s_mtime = TIME_SECONDS.into();
    raw.s_wtime = TIME_SECONDS.into();
    edit.write(SUPERBLOCK_OFFSET, raw.as_bytes());
}

/// Puts attributes into an inode, as mke2fs and the kernel do if there is room. The engine puts new
/// ones into blocks.
fn put_attributes_into_an_inode(device: &MemoryDevice) {
    let edit = Edit::of(device);
    let large = edit.of_type(FileType::Regular, 20_000);
    let start = BASE_SIZE + usize::from(edit.inode(large).extra_isize);
    let mut body = vec![0; (edit.sb.inode_size as usize).saturating_sub(start)];
    if body.is_empty() {
        return;
    }
    body[..4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
    let (mut entry, mut value) = (4, body.len());
    for name in [b"a", b"b", b"c"] {
        value -= 8;
        body[entry..entry + 2].copy_from_slice(&[1, INDEX_USER]);
        body[entry + 2..entry + 4].copy_from_slice(&(value as u16 - 4).to_le_bytes());
        body[entry + 8..entry + 12].copy_from_slice(&8_u32.to_le_bytes());
        let hash = entry_hash(name, &[b'v'; 8]);
        body[entry + 12..entry + ENTRY_SIZE].copy_from_slice(&hash.to_le_bytes());
        body[entry + ENTRY_SIZE] = name[0];
        body[value..value + 8].fill(b'v');
        entry += entry_len(1);
    }
    edit.write(edit.inode_at(large) + start as u64, &body);
}

/// Makes the log what it was when it was new.
fn empty_log(device: &MemoryDevice) {
    let place = journal_host().place(device).expect("a sound image");
    let place = place.expect("an image with a journal");
    let mut journal = jbd2::open(device, None, &place).expect("an empty one");
    let sb = journal.superblock();
    let zeros = vec![0; sb.block_bytes as usize];
    for position in sb.first..sb.end {
        let block = [(position, zeros[..].into())];
        journal.device().write(&block).expect("a place of the log");
    }
    journal.write_tail(0, Sequence(1)).expect("memory");
}

/// The image as a power cut under soft updates leaves it: in use, with blocks and an inode that
/// nothing refers to.
fn crashed(device: MemoryDevice) -> MemoryDevice {
    let shared = Arc::new(device);
    // Only the superblock is written, and that is done when the mount returns.
    let mounted = Engine::mount(
        shared.clone(),
        usual().layout(),
        &mount_options(Ordering::SOFT),
    );
    drop(mounted.expect("a sound image"));
    let device = MemoryDevice::from_bytes(shared.snapshot());
    let edit = Edit::of(&device);
    for group in &edit.groups {
        edit.set_bit(group.block_bitmap, 480);
        edit.set_bit(group.inode_bitmap, 60);
    }
    device
}

/// The image with two orphans: an inode that has no name any more, and one whose truncation was not
/// finished.
fn orphaned(device: MemoryDevice) -> MemoryDevice {
    let edit = Edit::of(&device);
    let large = edit.of_type(FileType::Regular, 20_000);
    let fifo = edit.of_type(FileType::Fifo, 0);
    let at = edit.inode_at(large);
    edit.write(at + offset::SIZE as u64, &5000_u32.to_le_bytes());
    edit.write(at + offset::DTIME as u64, &fifo.0.to_le_bytes());
    edit.write(edit.inode_at(fifo) + offset::LINKS as u64, &[0; 2]);
    edit.remove_name(fifo);
    edit.write(
        SUPERBLOCK_OFFSET + OFFSET_LAST_ORPHAN as u64,
        &large.0.to_le_bytes(),
    );
    device
}

/// The image with three transactions in its log that are not at home.
fn logged(device: MemoryDevice) -> MemoryDevice {
    let edit = Edit::of(&device);
    let place = journal_host().place(&device).expect("a sound image");
    let place = place.expect("an image with a journal");
    let group = &edit.groups[0];
    let root = BlockNumber(edit.inode(InodeNumber(2)).block[0].into());
    let copy = |block: BlockNumber| (block.0, edit.block(block));
    let transactions = [
        Transaction {
            copies: [group.block_bitmap, group.inode_table, root]
                .map(copy)
                .into(),
            revokes: Vec::new(),
            time: (TIME_SECONDS.into(), 1),
        },
        Transaction {
            copies: vec![copy(group.inode_bitmap)],
            revokes: vec![root.0, group.inode_table.0 + 1],
            time: (TIME_SECONDS.into(), 2),
        },
        Transaction {
            copies: [root, group.inode_table].map(copy).into(),
            revokes: Vec::new(),
            time: (TIME_SECONDS.into(), 3),
        },
    ];
    let journal = jbd2::open(&device, None, &place);
    let mut journal = journal.expect("a new journal");
    let (first, mut sequence) = (journal.superblock().first, journal.superblock().sequence);
    let mut at = first;
    for transaction in transactions {
        let log = transaction.encode(journal.superblock(), sequence);
        let blocks: Vec<_> = (at..).zip(log).collect();
        journal.device().write(&blocks).expect("there is room");
        at += blocks.len() as u32;
        sequence = sequence.next();
    }
    let begins = journal.superblock().sequence;
    journal.write_tail(first, begins).expect("memory");
    let mark = RecoveryMark {
        needed: true,
        ..RecoveryMark::default()
    };
    journal_host()
        .set_recovery(&device, mark)
        .expect("a sound image");
    device
}

/// The mechanism that an input's byte chooses. Journals are chosen only if the image has one.
pub fn ordering(choice: u8, has_journal: bool) -> Ordering {
    let plain = [Ordering::SOFT, Ordering::ASYNC, Ordering::SYNC];
    let modes = [
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
        Ordering::JOURNAL_WRITEBACK,
    ];
    let choice = usize::from(choice);
    match has_journal {
        false => plain[choice % plain.len()],
        true => match modes.get(choice % (modes.len() + 1)) {
            Some(mode) => *mode,
            None => Ordering::SOFT,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that images made twice are the same.
    pub(super) fn assert_same(made: &[Base], again: &[Base]) {
        for (one, other) in made.iter().zip(again) {
            let (one, other) = (one.bytes(), other.bytes());
            let differs = (0..one.len()).find(|at| one[*at] != other[*at]);
            assert_eq!((differs, one.len()), (None, other.len()));
        }
    }

    #[test]
    fn images_are_the_same_every_time() {
        assert_same(&make_all(), all());
    }

    #[test]
    fn images_are_sound_and_have_places_of_every_kind() {
        for base in all() {
            let device = base.device();
            let recovered = jbd2::recover(
                &*device,
                None,
                journal_host(),
                mount_options(Ordering::SOFT).mount_time,
                backstitch_journal::recovery::Damage::Refuse,
            );
            let done = recovered.unwrap().map(|report| report.actions());
            let wanted = match base.name {
                "ext3-orphans" => "freed 1 orphans, finished 1 truncations",
                "ext3-replay" | "ext3-checksums" => "replayed 3 transactions",
                _ => "",
            };
            let done = done.unwrap_or_default().join(", ");
            assert!(done.starts_with(wanted), "{}: {done}", base.name);
            let report = crate::targets::fsck::check(base.layout, &*device).unwrap();
            let is_expected = match base.name {
                "ext2-crashed" => report.is_consistent() && !report.is_clean(),
                _ => report.is_clean(),
            };
            assert!(is_expected, "{}: {:?}", base.name, report.findings);
            let kinds = base.places.kinds.len();
            let wanted = match base.name {
                // No attributes, one group.
                "ext2-revision-0" => 10,
                "ext2-4k" => 11,
                _ if base.has_journal => 13,
                _ => 12,
            };
            assert!(kinds >= wanted, "{}: {kinds}", base.name);
        }
    }
}
