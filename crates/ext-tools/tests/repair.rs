//! Repairs: after them e2fsck and our own check find nothing, and what was not damaged is as it
//! was.

use crate::support::damages::{
    BLOCKS, DIRECTORIES, Damage, INODES, Row, SUPERBLOCK, damage, good_image,
};
use crate::support::probe::Probe;
use crate::support::random::{self, Random, VARIANTS, make_image, targets};
use crate::support::{environment, have, run};
use backstitch_device::MemoryDevice;
use backstitch_ext::format::Inode;
use backstitch_ext_tools::fsck::{self, CheckError, Kind, SliceSource};
use backstitch_ext_tools::repair::{Mode, Options, Outcome, repair};
use std::path::Path;

fn options(mode: Mode) -> Options {
    Options {
        mode,
        guess_geometry: false,
        now_seconds: 1_700_000_000,
        check: fsck::Options::default(),
    }
}

/// Repairs an image in memory.
fn repaired(bytes: &[u8], mode: Mode) -> Result<(Outcome, Vec<u8>), CheckError> {
    let device = MemoryDevice::from_bytes(bytes.to_vec());
    let outcome = repair(&device, &options(mode))?;
    Ok((outcome, device.snapshot()))
}

/// What e2fsck says. Where it runs for hours it is stopped.
fn e2fsck(path: &Path, bytes: &[u8]) -> (i32, String) {
    std::fs::write(path, bytes).unwrap();
    let output = run("timeout", &["10", "e2fsck", "-fn", &path.to_string_lossy()]);
    let words = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), words)
}

/// What is wrong after a repair that says that all is well.
fn faults(outcome: &Outcome, bytes: &[u8], path: &Path) -> Option<String> {
    let words = |list: Vec<String>| list.join("\n");
    let repairs = words(outcome.repairs.iter().map(ToString::to_string).collect());
    let (status, theirs) = e2fsck(path, bytes);
    let report = fsck::check_source(&SliceSource(bytes), &fsck::Options::default());
    let ours = match &report {
        Ok(report) if report.is_clean() => String::new(),
        Ok(report) => words(report.findings.iter().map(ToString::to_string).collect()),
        Err(error) => error.to_string(),
    };
    if status == 0 && ours.is_empty() && outcome.is_clean() {
        return None;
    }
    Some(format!(
        "{repairs}\nexit {}, ours: {ours}\ne2fsck {status}: {theirs}",
        outcome.exit_status()
    ))
}

/// The contents of a file, by its path.
fn contents(probe: &Probe, path: &str) -> Option<Vec<u8>> {
    let inode: Inode = probe.parsed(probe.path(path));
    let first = probe.block(inode.block[0].into());
    Some(probe.bytes[first..first + inode.size.min(1024) as usize].to_vec())
}

fn repair_table(rows: &[Row]) {
    if !have("debugfs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let good = good_image();
    let mut failures = Vec::new();
    for (name, how, _, kind) in rows {
        damage(how, good, &path);
        let bytes = std::fs::read(&path).unwrap();
        match repaired(&bytes, Mode::All) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok((outcome, after)) => {
                failures.extend(faults(&outcome, &after, &path).map(|f| format!("{name}: {f}")));
                if outcome.exit_status() != 1 {
                    failures.push(format!("{name}: exit {}", outcome.exit_status()));
                }
                let (again, same) = repaired(&after, Mode::All).unwrap();
                assert!(again.repairs.is_empty() && same == after, "{name}: twice");
            }
        }
        preen(name, &bytes, *kind, &path, &mut failures);
    }
    assert!(
        failures.is_empty(),
        "{} failures\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Preening repairs what is no corruption, and leaves corruption as it is.
fn preen(name: &str, bytes: &[u8], kind: Kind, path: &Path, failures: &mut Vec<String>) {
    let Ok((outcome, after)) = repaired(bytes, Mode::Preen) else {
        return;
    };
    if outcome.after.is_none() {
        let is_unchanged = after == *bytes && outcome.exit_status() == 4;
        assert!(is_unchanged, "{name}: changed by preening");
    } else {
        assert_ne!(kind, Kind::Corruption, "{name}");
        failures.extend(faults(&outcome, &after, path).map(|f| format!("{name}, preened: {f}")));
    }
}

#[test]
fn superblocks_and_counters() {
    repair_table(SUPERBLOCK);
}

#[test]
fn inodes() {
    repair_table(INODES);
}

#[test]
fn blocks_and_bitmaps() {
    repair_table(BLOCKS);
}

#[test]
fn directories() {
    repair_table(DIRECTORIES);
}

#[test]
fn both_owners_of_a_block_can_be_read() {
    if !have("debugfs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let how = Damage::Commands(&["sif dir/large block[0] {block:/dir/sub/double}"]);
    damage(&how, good_image(), &path);
    let before = Probe::new(std::fs::read(&path).unwrap());
    let (_, after) = repaired(&before.bytes, Mode::All).unwrap();
    let after = Probe::new(after);
    for file in ["/dir/large", "/dir/sub/double"] {
        assert_eq!(contents(&before, file), contents(&after, file), "{file}");
    }
}

#[test]
fn random_damage() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let images: Vec<_> = VARIANTS
        .iter()
        .enumerate()
        .map(|(index, variant)| {
            let folder = folder.path().join(index.to_string());
            std::fs::create_dir(&folder).unwrap();
            let bytes = make_image(&folder, variant);
            let targets = targets(&bytes);
            (bytes, targets)
        })
        .collect();
    let path = folder.path().join("damaged");
    let first = environment("BACKSTITCH_SEED", 1);
    let rounds = environment("BACKSTITCH_ROUNDS", 300);
    let (mut failures, mut refused, mut left) = (Vec::new(), 0, 0);
    for seed in first..first + rounds {
        let (good, targets) = &images[seed as usize % images.len()];
        let mut random = Random::new(seed);
        let mut bytes = good.clone();
        let damages = 1 + random.below(6);
        let what: Vec<String> = (0..damages)
            .map(|_| random::damage(&mut bytes, targets, &mut random))
            .collect();
        match repaired(&bytes, Mode::All) {
            Err(_) => refused += 1,
            Ok((outcome, _)) if !outcome.is_clean() => {
                left += 1;
                assert_ne!(outcome.exit_status() & 4, 0, "seed {seed}");
                eprintln!("seed {seed}: left {:?}", outcome.after.map(|r| r.findings));
            }
            Ok((outcome, after)) => failures.extend(
                faults(&outcome, &after, &path).map(|f| format!("seed {seed}: {what:?}\n{f}")),
            ),
        }
    }
    eprintln!("{rounds} damages, {refused} refused, {left} left uncorrected");
    assert!(
        failures.is_empty(),
        "{} failures\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    // A superblock without a backup that is any good.
    assert!(
        refused + left <= rounds / 20,
        "{refused} refused, {left} left"
    );
}

/// Far more than any repair of an image of 2 MiB takes, even in a debug build on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

#[test]
fn heavy_damage() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let rounds = environment("BACKSTITCH_ROUNDS", 90);
    let (mut clean, mut failures) = (0, Vec::new());
    for (index, variant) in VARIANTS.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged");
        let good = make_image(folder.path(), variant);
        let targets = targets(&good);
        for seed in (1..=rounds).filter(|seed| *seed as usize % VARIANTS.len() == index) {
            let mut random = Random::new(seed);
            let mut bytes = good.clone();
            for _ in 0..random.below(60) {
                random::damage(&mut bytes, &targets, &mut random);
            }
            for _ in 0..random.below(4) {
                let block = random.below(bytes.len() / 1024) * 1024;
                let from = random.below(bytes.len() / 1024) * 1024;
                bytes.copy_within(from..from + 1024, block);
            }
            if random.below(8) != 0 {
                bytes[1024..2048].copy_from_slice(&good[1024..2048]);
            }
            let start = std::time::Instant::now();
            let result = repaired(&bytes, Mode::All);
            assert!(start.elapsed() < PATIENCE, "seed {seed}");
            let Ok((outcome, after)) = result else {
                continue;
            };
            if outcome.is_clean() {
                clean += 1;
                failures
                    .extend(faults(&outcome, &after, &path).map(|f| format!("seed {seed}: {f}")));
            }
        }
    }
    eprintln!("{clean} of {rounds} clean");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(clean > rounds / 2);
}
