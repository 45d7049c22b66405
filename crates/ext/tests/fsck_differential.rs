//! Random damage to every structure: our verdict beside e2fsck's.
//!
//! `BACKSTITCH_ROUNDS` sets the number of damages (a soak), `BACKSTITCH_SEED` where they start. Every round is its own seed, so a
//! disagreement is repeated by its number.

mod support;

use backstitch_ext::fsck::{self, Options, SliceSource};
use std::path::Path;
use support::random::{Random, VARIANTS, damage, make_image, targets};
use support::{environment, have, run};

/// Whether e2fsck has nothing to say. There are damages on which it runs for hours: it is stopped, and has said enough.
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
    let mut clean = 0;
    for seed in first..first + rounds {
        let mut random = Random::new(seed);
        let (good, targets) = &images[seed as usize % images.len()];
        let mut bytes = good.clone();
        let what: Vec<String> = (0..1 + random.below(2))
            .map(|_| damage(&mut bytes, targets, &mut random))
            .collect();
        std::fs::write(&path, &bytes).unwrap();
        let (theirs, words) = their_verdict(&path);
        // Byte 0x48: another operating system's image, which we do not read.
        if bytes[1024 + 0x48] == 1 {
            continue;
        }
        let result = fsck::check_source(&SliceSource(&bytes), &Options::default());
        let ours = result.as_ref().is_ok_and(|report| report.is_clean());
        clean += u64::from(ours);
        if ours != theirs {
            let findings = result.map(|report| report.findings);
            disagreements.push(format!(
                "seed {seed}: {what:?}\nours clean: {ours}: {findings:?}\ntheirs clean: {theirs}: {words}"
            ));
        }
    }
    for disagreement in &disagreements {
        eprintln!("{disagreement}\n");
    }
    eprintln!(
        "{rounds} damages, {clean} harmless, {} disagreements",
        disagreements.len()
    );
    assert!(
        disagreements.is_empty(),
        "{} disagreements",
        disagreements.len()
    );
}
