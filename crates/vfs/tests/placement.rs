//! Where contents of files go, as seen on the disk.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::support::{Disk, new_image, new_inode, write_new};
use backstitch_device::Loss;
use backstitch_vfs::{Engine, Error, FileType};

/// The size of a block here. Each block that a test writes is filled with one number.
const BLOCK_BYTES: usize = 1024;

fn block_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK_BYTES / 4)
}

/// Where the blocks are that are filled with one of these numbers.
fn places(disk: &Disk, numbers: Range<u32>) -> BTreeMap<usize, u32> {
    let image = disk.memory.snapshot();
    let blocks = image.chunks(BLOCK_BYTES).enumerate();
    let numbered = blocks.filter_map(|(place, bytes)| {
        let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        (numbers.contains(&number) && bytes == block_of(number)).then_some((place, number))
    });
    numbered.collect()
}

/// Makes a file with one block.
fn make(engine: &Engine, number: u32) -> Result<(), Error> {
    let new = new_inode(FileType::Regular);
    let made = engine.create(engine.root(), number.to_string().as_bytes(), &new)?;
    engine.forget(made.inode, 1);
    engine.write(made.inode, 0, &block_of(number)).map(drop)
}

fn remove(engine: &Engine, number: u32) {
    let name = number.to_string();
    engine.unlink(engine.root(), name.as_bytes()).unwrap();
}

/// A group in which removed files have left many short free runs, and one long run behind them.
#[test]
fn a_file_that_grows_into_a_group_finds_the_long_run_there() {
    const FIRST: u32 = 1 << 24;
    const GROUP_BLOCKS: usize = 8192;
    const SHORT_ONES: usize = 64;
    const LONG_ONE: usize = 400;
    const GROWS_TO: u32 = 40;
    let disk = Disk::new(new_image(10 << 20, 4096), Loss::Everything);
    let engine = disk.mount().unwrap();
    write_new(&engine, engine.root(), "first", &vec![1; 7 << 20]);
    let end = (FIRST..).find(|number| make(&engine, *number).is_err());
    let end = end.unwrap();
    engine.sync().unwrap();
    let full: Vec<_> = places(&disk, FIRST..end).into_iter().collect();
    let (first, second) = full.split_at(full.partition_point(|(place, _)| *place <= GROUP_BLOCKS));
    // The file begins in the first group, where there is room for one block.
    remove(&engine, first.last().unwrap().1);
    let short = second[..2 * SHORT_ONES].iter().step_by(2);
    let long = &second[second.len() - LONG_ONE..];
    assert!(long[0].0 > second[2 * SHORT_ONES].0);
    short
        .chain(long)
        .for_each(|(_, number)| remove(&engine, *number));
    // Removed blocks are free once the removal is on the disk.
    (0..2).for_each(|_| engine.sync().unwrap());

    let file = write_new(&engine, engine.root(), "grows", &block_of(end));
    engine.fsync(file, false).unwrap();
    for number in 1..GROWS_TO {
        let at = u64::from(number) * BLOCK_BYTES as u64;
        engine.write(file, at, &block_of(end + number)).unwrap();
        engine.fsync(file, false).unwrap();
    }
    engine.unmount().unwrap();
    let of_file: Vec<_> = places(&disk, end..end + GROWS_TO).into_keys().collect();
    assert_eq!(of_file.len(), GROWS_TO as usize);
    let breaks = of_file.windows(2).filter(|w| w[1] != w[0] + 1).count();
    // A search looks at 16 short runs at most, and no later search looks at them again.
    assert!(breaks <= SHORT_ONES / 16 + 1, "{of_file:?}");
}
