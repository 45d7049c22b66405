//! Images that somebody made to hurt: no panic, no hang, no memory without bound, whether they are
//! checked or repaired.

use crate::support::damages::good_images;
use crate::support::probe::Probe;
use crate::support::{environment, have};
use backstitch_device::MemoryDevice;
use backstitch_ufs_tools::fsck::{self, Code, Options, Source};
use backstitch_ufs_tools::repair::{Mode, Options as RepairOptions, repair};
use backstitch_ufs_tools::{fsck::SliceSource, info};
use std::time::{Duration, Instant};

/// Far more than any check of an image of 8 MiB takes, even in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Findings that are kept.
const MOST: usize = 200;

fn options() -> Options {
    Options {
        max_findings: MOST,
        ..Options::default()
    }
}

/// Checks an image, and repairs a copy of it.
fn try_all(bytes: &[u8], what: &str) {
    let start = Instant::now();
    if let Ok(report) = fsck::check_source(&SliceSource(bytes), &options()) {
        let kept = report.findings.len().max(report.notes.len());
        assert!(kept <= MOST, "{what}");
    }
    let device = MemoryDevice::from_bytes(bytes.to_vec());
    let _ = info::read(&device);
    for mode in [Mode::Preen, Mode::All] {
        let outcome = repair(
            &device,
            &RepairOptions {
                mode,
                guess_geometry: false,
                now_seconds: 1_700_000_000,
                check: options(),
            },
        );
        let Ok(outcome) = outcome else { continue };
        let after = device.snapshot();
        let report = fsck::check_source(&SliceSource(&after), &options());
        if outcome.is_clean() {
            assert!(
                report.is_ok_and(|report| report.is_clean()),
                "{what}: {mode:?}"
            );
        }
    }
    assert!(
        start.elapsed() < PATIENCE,
        "{what} takes {:?}",
        start.elapsed()
    );
}

/// Where bytes mean something: superblock, headers of groups, inodes, directories, pointers.
fn targets(probe: &Probe) -> Vec<(usize, usize)> {
    let mut all = vec![(probe.sb.place as usize, 1_376)];
    for group in 0..probe.sb.groups {
        all.push((probe.header(group), probe.sb.group_bytes as usize));
    }
    for number in 2..200.min(probe.sb.inodes()) {
        let inode = probe.inode(number);
        all.push((probe.inode_at(number), probe.sb.version.inode_bytes()));
        if inode.is_directory() {
            all.extend(probe.direct_blocks(number));
        }
        for pointer in &inode.pointers[12..] {
            if *pointer != 0 && inode.is_directory() | (inode.size > 100_000) {
                all.push((probe.fragment(*pointer), 64));
            }
        }
    }
    all
}

#[test]
fn heavily_damaged_images() {
    if !have("makefs", "makefs") {
        return;
    }
    let rounds = environment("BACKSTITCH_ROUNDS", 160);
    let first = environment("BACKSTITCH_SEED", 1);
    let images: Vec<Probe> = good_images()
        .iter()
        .map(|bytes| Probe::new(bytes.clone()))
        .collect();
    for seed in first..first + rounds {
        let good = &images[seed as usize % images.len()];
        let targets = targets(good);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = good.bytes.clone();
        for _ in 0..1 + random.usize(..40) {
            let (at, len) = targets[random.usize(..targets.len())];
            let at = at + random.usize(..len);
            bytes[at] = match random.u8(..4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << random.u8(..8),
                _ => random.u8(..),
            };
        }
        for _ in 0..random.usize(..4) {
            let unit = 4_096;
            let (to, from) = (
                random.usize(..bytes.len() / unit),
                random.usize(..bytes.len() / unit),
            );
            bytes.copy_within(from * unit..(from + 1) * unit, to * unit);
        }
        // Put the superblock back most of the time, or nothing else is looked at.
        if random.u8(..8) != 0 {
            let place = good.sb.place as usize;
            bytes[place..place + 1_376].copy_from_slice(&good.bytes[place..place + 1_376]);
        }
        try_all(&bytes, &format!("seed {seed}"));
    }
}

#[test]
fn every_field_of_the_superblock() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        let good = Probe::new(good.clone());
        let place = good.sb.place as usize;
        for at in (0..1_376).step_by(4).filter(|at| !(212..680).contains(at)) {
            for value in [0, 1, 0x7fff_ffff, u32::MAX, 1 << 20] {
                let mut probe = good.clone();
                probe.set_u32(place + at, value);
                let report = fsck::check_source(&SliceSource(&probe.bytes), &options());
                let words = format!("{value:#x} at {at}");
                if let Ok(report) = report {
                    assert!(report.findings.len() <= MOST, "{words}");
                }
            }
        }
    }
}

#[test]
fn images_cut_short() {
    if !have("makefs", "makefs") {
        return;
    }
    let good = &good_images()[0];
    for length in (0..70_000)
        .step_by(1_777)
        .chain((0..good.len()).step_by(400_000))
    {
        if let Ok(report) = fsck::check_source(&SliceSource(&good[..length]), &options()) {
            assert_eq!(report.findings[0].code, Code::SuperblockCorrupt, "{length}");
            assert!(report.ended_early);
        }
        try_all(&good[..length / 512 * 512], &format!("{length} bytes"));
    }
}

#[test]
fn trees_that_multiply_stay_small() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        // Each level's block points to itself from every slot.
        let mut probe = Probe::new(good.clone());
        let inode = probe.path("/dir/sub/larger");
        let tree = probe.inode(inode).pointers[12];
        if tree == 0 {
            continue;
        }
        let (start, width) = (probe.fragment(tree), probe.sb.version.pointer_bytes());
        for slot in 0..probe.sb.pointers_per_block as usize {
            probe.set_wide(start + slot * width, tree);
        }
        for slot in 12..15 {
            probe.set_pointer(inode, slot, tree);
        }
        probe.set_size(inode, 1 << 40);
        try_all(&probe.bytes, "a tree in itself");

        // A directory whose every block is the same one.
        let mut probe = Probe::new(good.clone());
        let many = probe.path("/many");
        let first = probe.inode(many).pointers[0];
        for slot in 0..probe.sb.pointers_per_block as usize {
            probe.set_wide(start + slot * width, first);
        }
        probe.set_pointer(many, 12, tree);
        let blocks = 12 + u64::from(probe.sb.pointers_per_block);
        probe.set_size(many, blocks * u64::from(probe.sb.block_bytes));
        try_all(&probe.bytes, "a directory of one block many times");

        // A directory of a size that nobody has room for.
        let mut probe = Probe::new(good.clone());
        probe.set_size(many, 1 << 50);
        try_all(&probe.bytes, "a directory of a pebibyte");
    }
}

/// A source that counts what is asked of it.
struct Counted<'b>(SliceSource<'b>, std::sync::atomic::AtomicU64);

impl Source for Counted<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], backstitch_device::DeviceError> {
        let count = &self.1;
        count.fetch_add(length as u64, std::sync::atomic::Ordering::Relaxed);
        self.0.bytes(offset, length, scratch)
    }
}

#[test]
fn a_check_reads_little_more_than_the_metadata() {
    if !have("makefs", "makefs") {
        return;
    }
    for good in good_images() {
        let source = Counted(SliceSource(good), Default::default());
        let report = fsck::check_source(&source, &Options::default()).unwrap();
        assert!(report.is_clean());
        let read = source.1.into_inner();
        assert!(
            read < good.len() as u64 / 2,
            "{read} bytes of {}",
            good.len()
        );
    }
}
