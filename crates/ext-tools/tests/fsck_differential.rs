//! Random damage to every structure: our verdict beside e2fsck's.
//!
//! `BACKSTITCH_ROUNDS` sets the number of damages (a soak), `BACKSTITCH_SEED` where they start.
//! Every round is its own seed, so a disagreement is repeated by its number.

use crate::support::random::{Random, Targets, VARIANTS, damage, make_image, targets};
use crate::support::{environment, have, run};
use backstitch_ext::format::FormatError;
use backstitch_ext_tools::fsck::{self, CheckError, Code, Options, SliceSource};
use std::path::Path;

/// Whether e2fsck finds nothing. On some damages it runs for hours: then it is stopped, and counts
/// as having found something.
fn their_verdict(image: &Path) -> (bool, String) {
    let output = run("timeout", &["5", "e2fsck", "-fn", &image.to_string_lossy()]);
    let words = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code() == Some(0), words)
}

#[test]
fn verdicts_agree_on_random_damage() {
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
    let rounds = environment("BACKSTITCH_ROUNDS", 250);
    let mut disagreements = Vec::new();
    for seed in first..first + rounds {
        let (good, targets) = &images[seed as usize % images.len()];
        disagreements.extend(disagreement(seed, good, targets, &path));
    }
    for disagreement in &disagreements {
        eprintln!("{disagreement}\n");
    }
    assert!(
        disagreements.is_empty(),
        "{} disagreements",
        disagreements.len()
    );
}

/// Damages an image and asks both; says how they differ where they do.
fn disagreement(seed: u64, good: &[u8], targets: &Targets, path: &Path) -> Option<String> {
    let mut random = Random::new(seed);
    let mut bytes = good.to_vec();
    let damages = 1 + random.below(2);
    let what: Vec<String> = (0..damages)
        .map(|_| damage(&mut bytes, targets, &mut random))
        .collect();
    std::fs::write(path, &bytes).unwrap();
    let (theirs, words) = their_verdict(path);
    let result = fsck::check_source(&SliceSource(&bytes), &Options::default());
    if matches!(
        &result,
        Err(CheckError::Format(FormatError::Incompatible { .. }))
    ) {
        // Features that e2fsck knows and we do not.
        return None;
    }
    let ours = result.as_ref().is_ok_and(|report| report.is_clean());
    // e2fsck looks for names that are there twice in each block by itself, we in the whole
    // directory. It reports a damaged resize inode, but its exit status is 0.
    let is_only_ours = |code: Code| {
        matches!(
            code,
            Code::EntryDuplicate | Code::ResizeInodeInvalid | Code::SuperblockField
        )
    };
    let is_stricter = result.as_ref().is_ok_and(|report| {
        report
            .findings
            .iter()
            .all(|finding| is_only_ours(finding.code))
    });
    if ours == theirs || theirs && is_stricter {
        return None;
    }
    let findings = result.map(|report| report.findings);
    Some(format!(
        "seed {seed}: {what:?}\nours clean: {ours}: {findings:?}\ntheirs clean: {theirs}: {words}"
    ))
}
