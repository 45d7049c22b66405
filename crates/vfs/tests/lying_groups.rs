//! Wrong group descriptors and bitmaps. Where a bitmap says that blocks of the file system itself
//! are free, nothing is put there, nothing panics, and the mount is read-only from then on.

use crate::support;
use std::sync::Arc;

use crate::support::{mount_under, new_image, new_image_with_journal, new_inode};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_formats::journal_host;
use backstitch_journal::recovery::Damage;
use backstitch_layout::JournalLocation;
use backstitch_mechanisms::jbd2;
use backstitch_vfs::{Engine, FileType, InodeNumber};

const BLOCK: usize = 1024;

/// Enough to use all truly free blocks, so that those of the file system itself come next.
const FILES: usize = 200;

/// The first group's descriptor: its block bitmap, inode bitmap and inode table.
fn places(image: &[u8]) -> [usize; 3] {
    [0, 4, 8].map(|at| {
        let word = &image[2 * BLOCK + at..][..4];
        u32::from_le_bytes(word.try_into().unwrap()) as usize
    })
}

/// Makes files and directories until an operation is refused.
fn fill(engine: &Engine) -> Option<backstitch_vfs::Error> {
    let make = |directory: InodeNumber, number: usize| {
        let file_type = match number % 2 {
            0 => FileType::Directory,
            _ => FileType::Regular,
        };
        let name = format!("name {number}").into_bytes();
        let made = engine.create(directory, &name, &new_inode(file_type))?;
        if file_type == FileType::Regular {
            engine.write(made.inode, 0, &[7; 8 * BLOCK])?;
        }
        engine.sync()
    };
    (0..FILES).find_map(|number| make(engine.root(), number).err())
}

/// Marks all blocks of the first group as free, and expects a refusal before `own` blocks are used.
fn refuses(mut image: Vec<u8>, ordering: &str, own: impl Fn(&[u8]) -> Vec<usize>) {
    let [bitmap, ..] = places(&image);
    let blocks = (image.len() / BLOCK - 1).min(8 * BLOCK);
    image[bitmap * BLOCK..][..blocks / 8].fill(0);
    let own = own(&image);
    let before: Vec<Vec<u8>> = own
        .iter()
        .map(|b| image[b * BLOCK..][..BLOCK].to_vec())
        .collect();
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let engine = mount_under(device.clone(), ordering.parse().unwrap()).unwrap();
    let error = fill(&engine).expect("the bitmap is found out");
    assert!(
        error.to_string().contains("block bitmap of group 0"),
        "{error}"
    );
    assert!(engine.read_only_reason().is_some());
    // The rest may be written or not; trying it must not panic.
    let _ = engine.unmount();
    drop(engine);
    let mut block = vec![0; BLOCK];
    for (number, before) in own.iter().zip(before) {
        device.read((number * BLOCK) as u64, &mut block).unwrap();
        assert!(block == before, "{ordering}: block {number} was given away");
    }
}

#[test]
fn metadata_is_not_given_away() {
    for ordering in ["soft", "async", "sync"] {
        // The bitmap and the first blocks of the table change as files are made. The descriptors
        // and the end of the table do not, and are compared.
        refuses(new_image(2 << 20, 1024), ordering, |image| {
            let [_, _, table] = places(image);
            vec![2, table + 200, table + 255]
        });
    }
}

#[test]
fn the_journal_is_not_given_away() {
    for ordering in ["journal=ordered", "journal=full", "journal=writeback"] {
        let image = new_image_with_journal(4 << 20, 64);
        refuses(image, ordering, |image| {
            let device = MemoryDevice::from_bytes(image.to_vec());
            let place = journal_host().place(&device).unwrap().unwrap();
            let JournalLocation::Inside(map) = place.location else {
                panic!("the journal is elsewhere");
            };
            // The end of the log, which this test never reaches.
            let end = map.blocks() - 5..map.blocks();
            end.map(|at| map.block(at).unwrap().0 as usize).collect()
        });
    }
}

/// A file on the list of orphans whose last block is the inode bitmap. The end of that block would
/// be zeroed.
#[test]
fn the_end_of_an_orphan_is_not_zeroed_in_metadata() {
    let memory = Arc::new(MemoryDevice::from_bytes(new_image_with_journal(
        4 << 20,
        64,
    )));
    let engine = mount_under(memory.clone(), "journal=ordered".parse().unwrap()).unwrap();
    let new = new_inode(FileType::Regular);
    let file = engine.create(engine.root(), b"file", &new).unwrap().inode;
    engine.write(file, 0, &[7; 5000]).unwrap();
    engine.unmount().unwrap();
    drop(engine);
    let [_, bitmap, table] = places(&memory.snapshot());
    // Inodes have 256 bytes; the file's last block is the fifth.
    let inode = (table * BLOCK) as u64 + 256 * (u64::from(file.0) - 1);
    let pointer = (bitmap as u32).to_le_bytes();
    memory.write(inode + 40 + 4 * 4, &pointer).unwrap();
    memory.write(1024 + 0xe8, &file.0.to_le_bytes()).unwrap();
    let before = memory.snapshot();
    let now = backstitch_vfs::now();
    let recovered = jbd2::recover(&*memory, None, journal_host(), now, Damage::Refuse);
    assert!(recovered.is_err(), "{recovered:?}");
    let after = memory.snapshot();
    assert!(after[bitmap * BLOCK..][..BLOCK] == before[bitmap * BLOCK..][..BLOCK]);
}

/// Without checksums a descriptor's count of unused inodes means nothing, but e2fsck complains
/// about inodes that are made among them.
#[test]
fn inodes_that_were_called_unused_are_made() {
    for ordering in ["soft", "journal=ordered"] {
        let mut image = match ordering {
            "soft" => new_image(2 << 20, 64),
            _ => new_image_with_journal(4 << 20, 64),
        };
        let descriptor = &mut image[2 * BLOCK..][..32];
        descriptor[18] |= 1;
        descriptor[28] = 40;
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let engine = mount_under(device.clone(), ordering.parse().unwrap()).unwrap();
        for number in 0..30 {
            let name = format!("name {number}").into_bytes();
            engine
                .create(engine.root(), &name, &new_inode(FileType::Regular))
                .unwrap();
        }
        engine.unmount().unwrap();
        drop(engine);
        let report = support::check(&*device);
        assert!(report.is_clean(), "{ordering}: {:?}", report.findings);
    }
}
