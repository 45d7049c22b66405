//! `recovery` on small images: it measures, finds what the crash left, and leaves clean images.

use backstitch_bench::{RecoverySpec, document, measure_recovery, recovery_table};
use backstitch_formats::usual;

#[test]
fn recovery_is_measured_and_the_crashes_are_real() {
    let directory = tempfile::tempdir().unwrap();
    let spec = RecoverySpec {
        layout: usual(),
        image: directory.path().join("full.img"),
        size_bytes: 256 << 20,
        files: 2000,
        runs: 2,
        cache_bytes: 64 << 20,
        seed: 1,
        check: true,
    };
    let series = measure_recovery(&spec, |_| {}).unwrap();
    assert_eq!(series.runs.len(), 2);
    for run in &series.runs {
        let figures = run.recovery.unwrap();
        assert!((0.70..0.80).contains(&figures.fill_fraction), "{figures:?}");
        // At least the files that were removed before the crash but still open: their inodes and
        // blocks.
        assert!(figures.reclaimed_inodes >= 500, "{figures:?}");
        assert!(figures.reclaimed_blocks >= 500, "{figures:?}");
        assert!(figures.reclaim_progress_seconds.is_sorted());
        assert!(figures.reclaim_progress_seconds[9] > 0.0);
    }
    let names: Vec<_> = series.runs[0].phases.iter().map(|p| p.name).collect();
    assert_eq!(names, ["mount_empty", "mount_full", "reclaim_full"]);

    let table = recovery_table(&series);
    assert!(table.contains("usable mount, full"), "{table}");
    let json = document(std::slice::from_ref(&series), 1);
    let run = &json["runs"][0];
    assert_eq!(run["workload"], "recovery");
    assert!(
        run["phases"][1]["elapsed_seconds"]["median"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert!(run["full_by_empty"]["median"].as_f64().unwrap() > 0.0);
    assert_eq!(run["paper"]["value"], 0.35);

    // The image is sparse: the contents of its files take no space.
    use std::os::unix::fs::MetadataExt;
    let seen = std::fs::metadata(&spec.image).unwrap();
    assert!(
        seen.blocks() * 512 < spec.size_bytes / 4,
        "{}",
        seen.blocks()
    );
    assert!(!directory.path().join("full.img.empty").exists());
}

#[test]
fn recovery_refuses_what_is_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let spec = RecoverySpec {
        layout: usual(),
        image: directory.path().into(),
        size_bytes: 64 << 20,
        files: 10,
        runs: 1,
        cache_bytes: 64 << 20,
        seed: 1,
        check: false,
    };
    let error = measure_recovery(&spec, |_| {}).unwrap_err();
    assert!(error.to_string().contains("regular file"), "{error}");
}
