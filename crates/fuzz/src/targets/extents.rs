//! A file of ext4 with an arbitrary tree of extents.
//!
//! The input is the root (the 60 bytes of an inode's pointers) and up to eight blocks, which are
//! put at [`NODES_AT`] and after it.

use std::sync::OnceLock;

use backstitch_device::{BlockDevice, OverlayDevice};
use backstitch_ext::format::features::INCOMPAT_EXTENTS;
use backstitch_ext::format::group;
use backstitch_ext::format::inode::{FLAG_EXTENTS, Inode, POINTERS, offset};
use backstitch_ext::format::superblock::{
    OFFSET_FEATURE_INCOMPAT, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use backstitch_formats::usual;
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, FileType, InodeNumber, Seek};

use crate::Input;
use crate::base::{self, Base, mount_options};

/// The first of the input's blocks. They are free in the base image.
pub const NODES_AT: u32 = 1300;
/// The most blocks of an input.
pub const NODES: u32 = 8;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 1024;
/// The file's size: as many blocks as a tree can map.
const SIZE_BYTES: u64 = (1 << 32) * BLOCK_BYTES as u64;
/// The most changes between data and holes that are followed.
const CHANGES: usize = 400;
/// Bytes of a read.
const READ_BYTES: usize = 8 * BLOCK_BYTES;

/// Reading ends, and shows the same of a part as of the whole.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (base, number) = base_file();
    let device = base.device();
    plant(&mut input, *number, &device);
    let mut options = mount_options(Ordering::SOFT);
    options.read_only = true;
    let engine = Engine::mount(device, usual().layout(), &options)
        .expect("an image with extents can be mounted");
    let inode = *number;
    let mut at = 0;
    for _ in 0..CHANGES {
        compare(&engine, inode, at);
        let Ok(data) = engine.seek(inode, at, Seek::Data) else {
            break;
        };
        assert!(data >= at);
        compare(&engine, inode, data);
        match engine.seek(inode, data, Seek::Hole) {
            Ok(hole) => {
                assert!(hole > data, "data at {data} that end at {hole}");
                at = hole;
            }
            Err(_) => break,
        }
    }
    compare(&engine, inode, SIZE_BYTES - BLOCK_BYTES as u64);
    let _ = engine.unmount();
}

/// Reading at once shows the same as reading in parts.
fn compare(engine: &Engine, inode: InodeNumber, at: u64) {
    let at = at.saturating_sub(BLOCK_BYTES as u64);
    let read = |at, len| {
        let mut bytes = Vec::new();
        engine.read(inode, at, len, &mut bytes).map(|_| bytes)
    };
    let Ok(whole) = read(at, READ_BYTES) else {
        return;
    };
    let mut parts = Vec::new();
    while parts.len() < whole.len() {
        let next = (whole.len() - parts.len()).min(BLOCK_BYTES);
        let part = read(at + parts.len() as u64, next).expect("a part of what can be read");
        assert_eq!(part.len(), next);
        parts.extend(part);
    }
    assert!(parts == whole, "parts at {at} differ from the whole");
}

/// The base image, and its largest file.
fn base_file() -> &'static (&'static Base, InodeNumber) {
    static FILE: OnceLock<(&Base, InodeNumber)> = OnceLock::new();
    FILE.get_or_init(|| {
        let base = &base::all()[0];
        let device = base.device();
        let sb = superblock(&*device);
        let numbers = sb.first_inode.through(InodeNumber(sb.inodes_count));
        let files = numbers.filter_map(|number| {
            let mut bytes = vec![0; sb.inode_size as usize];
            device.read(place(&*device, &sb, number), &mut bytes).ok()?;
            let inode = Inode::parse(&bytes).ok()?;
            let is_file = inode.file_type() == Some(FileType::Regular) && inode.links > 0;
            is_file.then_some((inode.size, number))
        });
        (base, files.max().expect("the base image has files").1)
    })
}

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device
        .read(SUPERBLOCK_OFFSET, &mut bytes)
        .expect("in memory");
    Superblock::parse(&bytes, device.size_bytes()).expect("the base image is sound")
}

/// The offset of an inode.
fn place(device: &dyn BlockDevice, sb: &Superblock, number: InodeNumber) -> u64 {
    let mut table = vec![0; (sb.descriptor_blocks * sb.block_size) as usize];
    let start = sb.block_offset(group::descriptor_table_block(sb));
    device.read(start, &mut table).expect("in memory");
    let groups = group::parse_table(sb, &table).expect("the base image is sound");
    let (block, at) = groups[sb.group_of_inode(number).index()].inode_location(sb, number);
    sb.block_offset(block) + at as u64
}

/// Gives the file the input's tree.
fn plant(input: &mut Input<'_>, number: InodeNumber, device: &OverlayDevice) {
    let write = |at, bytes: &[u8]| device.write(at, bytes).expect("in memory");
    let sb = superblock(device);
    assert_eq!(sb.block_size as usize, BLOCK_BYTES);
    let inode = place(device, &sb, number);
    let at = |field: usize| inode + field as u64;
    let incompat = sb.features.incompat | INCOMPAT_EXTENTS;
    let features = SUPERBLOCK_OFFSET + OFFSET_FEATURE_INCOMPAT as u64;
    write(features, &incompat.to_le_bytes());
    write(at(offset::FLAGS), &FLAG_EXTENTS.to_le_bytes());
    write(at(offset::SIZE), &(SIZE_BYTES as u32).to_le_bytes());
    write(
        at(offset::SIZE_HIGH),
        &((SIZE_BYTES >> 32) as u32).to_le_bytes(),
    );
    let mut root = [0; POINTERS * 4];
    let given = input.bytes(root.len());
    root[..given.len()].copy_from_slice(given);
    write(at(offset::BLOCK), &root);
    for block in NODES_AT..NODES_AT + NODES {
        write(
            u64::from(block) * BLOCK_BYTES as u64,
            input.bytes(BLOCK_BYTES),
        );
    }
}
