//! Images that were made to do harm: no panic, no hang, no memory without bound.

use crate::support::probe::Probe;
use crate::support::random::{Random, VARIANTS, damage, make_image, targets};
use crate::support::{environment, have};
use backstitch_ext_tools::fsck::{self, Code, Options, SliceSource};
use std::time::{Duration, Instant};

/// Far more than any check of an image of 2 MiB takes, even in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn check(bytes: &[u8], what: &str) {
    let options = Options {
        max_findings: 200,
        ..Options::default()
    };
    let start = Instant::now();
    let result = fsck::check_source(&SliceSource(bytes), &options);
    assert!(
        start.elapsed() < PATIENCE,
        "{what} takes {:?}",
        start.elapsed()
    );
    if let Ok(report) = result {
        assert!(
            report.findings.len() <= 200 && report.notes.len() <= 200,
            "{what}"
        );
    }
}

#[test]
fn heavily_damaged_images() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let rounds = environment("BACKSTITCH_ROUNDS", 600);
    let first = environment("BACKSTITCH_SEED", 1);
    for (index, variant) in VARIANTS.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let good = make_image(folder.path(), variant);
        let targets = targets(&good);
        for seed in (first..first + rounds).filter(|seed| *seed as usize % VARIANTS.len() == index)
        {
            let mut random = Random::new(seed);
            let mut bytes = good.clone();
            // Some bytes that mean something, some anywhere, and sometimes a block of garbage or of
            // another place.
            for _ in 0..random.below(40) {
                damage(&mut bytes, &targets, &mut random);
            }
            for _ in 0..random.below(100) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            for _ in 0..random.below(4) {
                let block = random.below(bytes.len() / 1024) * 1024;
                if random.below(2) == 0 {
                    bytes[block..block + 1024].fill_with(|| random.next() as u8);
                } else {
                    let from = random.below(bytes.len() / 1024) * 1024;
                    bytes.copy_within(from..from + 1024, block);
                }
            }
            // Most of the time the superblock is put back: with a damaged one nothing else is
            // checked.
            if random.below(8) != 0 {
                bytes[1024..2048].copy_from_slice(&good[1024..2048]);
            }
            check(&bytes, &format!("seed {seed}"));
        }
    }
}

#[test]
fn images_cut_short() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let good = make_image(folder.path(), VARIANTS[0]);
    for length in (0..3000).step_by(97).chain((0..good.len()).step_by(40_000)) {
        let result = fsck::check_source(&SliceSource(&good[..length]), &Options::default());
        if let Ok(report) = result {
            assert_eq!(report.findings[0].code, Code::SuperblockCorrupt);
            assert!(report.ended_early);
        }
    }
}

#[test]
fn trees_that_multiply_stay_small() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    // The block of each level points to itself from every slot: followed blindly, these are 256³
    // blocks.
    let folder = tempfile::tempdir().unwrap();
    let good = make_image(folder.path(), VARIANTS[0]);
    let mut probe = Probe::new(good.clone());
    let inode = probe.path("/dir/double");
    let tree = probe.parsed(inode).block[13];
    let start = probe.block(tree.into());
    for slot in 0..256 {
        probe.poke(start + slot * 4, &tree.to_le_bytes());
    }
    let pointer = probe.inode(inode) + 40 + 14 * 4;
    probe.poke(pointer, &tree.to_le_bytes());
    check(&probe.bytes, "a tree in itself");

    // A directory whose every block is the same one.
    let mut probe = Probe::new(good);
    let inode = probe.path("/many");
    let first = probe.parsed(inode).block[0];
    let free = probe.path("/dir/double");
    let indirect = probe.parsed(free).block[12];
    let start = probe.block(indirect.into());
    for slot in 0..256 {
        probe.poke(start + slot * 4, &first.to_le_bytes());
    }
    let pointer = probe.inode(inode) + 40 + 12 * 4;
    probe.poke(pointer, &indirect.to_le_bytes());
    check(&probe.bytes, "a directory of one block many times");
}
