//! The meaningful parts of a sound image.

use std::ops::Range;

use backstitch_device::MemoryDevice;
use backstitch_ext::format::inode::{DIRECT_POINTERS, Inode};
use backstitch_ext::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use backstitch_ext::format::{GroupDescriptor, JOURNAL_INODE, group};
use backstitch_formats::journal_host;
use backstitch_layout::tools::{Geography, Use};
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber, JournalLocation};

/// Blocks of a log worth damaging: the first ones, in which the transactions are.
const LOG_BLOCKS: u32 = 24;

/// Ranges of bytes of the same kind.
pub(crate) type Kind = Vec<Range<u64>>;

/// What a place holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Superblock,
    Descriptors,
    Backups,
    BlockBitmaps,
    InodeBitmaps,
    Inodes,
    FreeInodes,
    Directories,
    Indexes,
    Maps,
    Attributes,
    Contents,
    Journal,
    Anything,
}

/// All meaningful parts of an image, and numbers that mean something in it.
pub(crate) struct Places {
    /// The parts by kind; no kind is empty.
    pub(crate) kinds: Vec<(What, Kind)>,
    /// Numbers to put into fields.
    pub(crate) numbers: Vec<u32>,
    /// The size of a block.
    pub(crate) block_bytes: u64,
}

/// What the walk over the inodes finds.
#[derive(Default)]
struct Found {
    inodes: Kind,
    free_inodes: Kind,
    directories: Kind,
    indexes: Kind,
    maps: Kind,
    attributes: Kind,
    contents: Kind,
}

struct Image<'b> {
    bytes: &'b [u8],
    sb: Superblock,
    groups: Vec<GroupDescriptor>,
}

impl Image<'_> {
    fn block(&self, number: BlockNumber) -> Range<u64> {
        let start = self.sb.block_offset(number);
        start..start + u64::from(self.sb.block_size)
    }

    fn part(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    fn inode(&self, number: InodeNumber) -> Range<u64> {
        let group = &self.groups[self.sb.group_of_inode(number).index()];
        let (block, offset) = group.inode_location(&self.sb, number);
        let start = self.block(block).start + offset as u64;
        start..start + u64::from(self.sb.inode_size)
    }

    /// Finds the blocks to which a pointer leads: those of the map, and those of the file.
    fn walk(&self, pointer: u32, depth: usize, maps: &mut Kind, leaves: &mut Kind) {
        if pointer == 0 {
            return;
        }
        let block = self.block(BlockNumber(pointer.into()));
        if depth == 0 {
            leaves.push(block);
            return;
        }
        for word in self.part(&block).chunks_exact(4) {
            let next = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.walk(next, depth - 1, maps, leaves);
        }
        maps.push(block);
    }

    fn look_at(&self, number: InodeNumber, found: &mut Found) {
        let place = self.inode(number);
        let Ok(inode) = Inode::parse(self.part(&place)) else {
            return;
        };
        if inode.links == 0 && inode.mode == 0 {
            found.free_inodes.push(place);
            return;
        }
        found.inodes.push(place);
        if inode.file_acl != BlockNumber::NONE {
            found.attributes.push(self.block(inode.file_acl));
        }
        if number == JOURNAL_INODE || !inode.has_block_map(self.sb.block_size) {
            return;
        }
        let (mut maps, mut leaves) = (Kind::new(), Kind::new());
        for (index, pointer) in inode.block.iter().enumerate() {
            let depth = index.saturating_sub(DIRECT_POINTERS - 1);
            self.walk(*pointer, depth, &mut maps, &mut leaves);
        }
        found.maps.append(&mut maps);
        if inode.is_directory() {
            // The first block of an index is its root, which merely looks like a block of entries.
            let is_indexed = inode.flags & backstitch_ext::format::inode::FLAG_INDEX != 0;
            let roots = usize::from(is_indexed).min(leaves.len());
            found.indexes.extend(leaves.drain(..roots));
            found.directories.append(&mut leaves);
        } else {
            found.contents.extend(leaves.into_iter().take(2));
        }
    }
}

impl Places {
    /// The parts of this kind.
    pub(crate) fn holding(&self, what: What) -> &[Range<u64>] {
        let found = self.kinds.iter().find(|(kind, _)| *kind == what);
        found.map_or(&[], |(_, places)| places)
    }

    /// Finds the parts of a sound image by the uses of its blocks. `head` is the superblock.
    pub(crate) fn by_use(
        geography: &dyn Geography,
        bytes: &[u8],
        head: Range<u64>,
        numbers: Vec<u32>,
    ) -> Places {
        let (size, inode_bytes) = (geography.block_bytes(), geography.inode_bytes());
        let mut kinds: Vec<(What, Kind)> = vec![(What::Superblock, vec![head])];
        let mut add = |what, range| match kinds.iter_mut().find(|(known, _)| *known == what) {
            Some((_, places)) => places.push(range),
            None => kinds.push((what, vec![range])),
        };
        for block in 0..bytes.len() as u64 / u64::from(size) {
            let start = block * u64::from(size);
            let range = start..start + u64::from(size);
            let what = match geography.what(BlockNumber(block)) {
                Use::Superblock | Use::Unknown => continue,
                Use::Descriptors => What::Descriptors,
                Use::Backup => What::Backups,
                Use::BlockBitmap(_) => What::BlockBitmaps,
                Use::InodeBitmap(_) => What::InodeBitmaps,
                Use::Names(_) => What::Directories,
                Use::Pointers(_) => What::Maps,
                Use::Attributes(_) => What::Attributes,
                Use::Contents(..) => What::Contents,
                Use::Inodes(_) => {
                    for at in range.step_by(inode_bytes as usize) {
                        let inode = at..at + u64::from(inode_bytes);
                        let is_free = bytes[at as usize..inode.end as usize]
                            .iter()
                            .all(|b| *b == 0);
                        let what = if is_free {
                            What::FreeInodes
                        } else {
                            What::Inodes
                        };
                        add(what, inode);
                    }
                    continue;
                }
            };
            add(what, range);
        }
        add(What::Anything, 0..bytes.len() as u64);
        Places {
            kinds,
            numbers,
            block_bytes: size.into(),
        }
    }

    /// Finds the parts of a sound image.
    pub(crate) fn of(bytes: &[u8]) -> Places {
        let at = SUPERBLOCK_OFFSET as usize;
        let head: &[u8; SUPERBLOCK_SIZE] = bytes[at..at + SUPERBLOCK_SIZE]
            .try_into()
            .expect("a range of that size");
        let sb = Superblock::parse(head, bytes.len() as u64).expect("a base image is sound");
        let table = sb.block_offset(group::descriptor_table_block(&sb)) as usize;
        let groups = group::parse_table(&sb, &bytes[table..]).expect("a base image is sound");
        let image = Image { bytes, sb, groups };
        let (sb, groups) = (&image.sb, &image.groups);
        let mut found = Found::default();
        for number in InodeNumber::FIRST.through(InodeNumber(sb.inodes_count)) {
            image.look_at(number, &mut found);
        }
        let head = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
        let table = image.block(group::descriptor_table_block(sb)).start;
        let descriptors = u64::from(sb.desc_size) * u64::from(sb.groups);
        let backups = GroupNumber::all(sb.groups)
            .skip(1)
            .filter(|group| sb.has_super(*group));
        let backups = backups.flat_map(|group| {
            let first = sb.group_first_block(group);
            [image.block(first), image.block(first + 1)]
        });
        let of_groups = |block: fn(&GroupDescriptor) -> BlockNumber| -> Kind {
            groups
                .iter()
                .map(|group| image.block(block(group)))
                .collect()
        };
        let mut kinds = vec![
            (
                What::Superblock,
                vec![head.clone(), head.start..head.start + 0x80],
            ),
            (
                What::Descriptors,
                std::iter::once(table..table + descriptors).collect(),
            ),
            (What::Backups, backups.collect()),
            (What::BlockBitmaps, of_groups(|group| group.block_bitmap)),
            (What::InodeBitmaps, of_groups(|group| group.inode_bitmap)),
            (What::Inodes, found.inodes),
            (What::FreeInodes, found.free_inodes),
            (What::Directories, found.directories),
            (What::Indexes, found.indexes),
            (What::Maps, found.maps),
            (What::Attributes, found.attributes),
            (What::Contents, found.contents),
            (What::Journal, journal(bytes)),
            (
                What::Anything,
                std::iter::once(0..bytes.len() as u64).collect(),
            ),
        ];
        kinds.retain(|(_, places)| !places.is_empty());
        Places {
            numbers: numbers(&image),
            block_bytes: sb.block_size.into(),
            kinds,
        }
    }
}

/// The superblock of the journal, and the first blocks of the log.
fn journal(bytes: &[u8]) -> Kind {
    let device = MemoryDevice::from_bytes(bytes.to_vec());
    let Ok(Some(place)) = journal_host().place(&device) else {
        return Kind::new();
    };
    let JournalLocation::Inside(map) = place.location else {
        return Kind::new();
    };
    let size = u64::from(place.block_bytes);
    let blocks = (0..map.blocks().min(LOG_BLOCKS)).filter_map(|position| map.block(position));
    blocks
        .map(|block| block.offset_bytes(size)..(block + 1).offset_bytes(size))
        .collect()
}

/// Numbers worth putting into a field: limits, and numbers of existing things.
fn numbers(image: &Image<'_>) -> Vec<u32> {
    let sb = &image.sb;
    let blocks = sb.blocks_count as u32;
    let mut numbers = vec![
        0,
        1,
        2,
        JOURNAL_INODE.0,
        sb.first_inode.0,
        sb.inodes_count,
        sb.inodes_count + 1,
        blocks - 1,
        blocks,
        sb.blocks_per_group,
        sb.inodes_per_group,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
    ];
    let group = &image.groups[0];
    let table = [group.block_bitmap, group.inode_bitmap, group.inode_table];
    numbers.extend(table.map(|block| block.0 as u32));
    // The blocks of the first inodes: of the root, of files, of maps.
    for number in (2..=sb.inodes_count).take(40) {
        let inode = Inode::parse(image.part(&image.inode(InodeNumber(number))));
        let Ok(inode) = inode else { continue };
        let blocks = [inode.block[0], inode.block[DIRECT_POINTERS]];
        numbers.extend(blocks.into_iter().filter(|block| *block != 0));
    }
    numbers.truncate(64);
    numbers
}
