//! A table of damages, made by hand: what our check says about each, and that e2fsck finds damage
//! too.

use crate::support;
use crate::support::damages::{BLOCKS, DIRECTORIES, INODES, Row, SUPERBLOCK, damage, good_image};
use crate::support::{e2fsck, have};
use backstitch_ext::format::FormatError;
use backstitch_ext_tools::fsck::{self, CheckError, Options, SliceSource};

fn check_table(rows: &[Row]) {
    if !have("debugfs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let good = good_image();
    let mut failures = Vec::new();
    for (name, how, code, kind) in rows {
        damage(how, good, &image);
        let bytes = std::fs::read(&image).unwrap();
        assert!(bytes != good, "{name}: nothing was damaged");
        let report = fsck::check_source(&SliceSource(&bytes), &Options::default()).unwrap();
        let (status, words) = e2fsck(&image);
        let findings: Vec<String> = report
            .findings
            .iter()
            .map(|finding| format!("{:?} {finding}", finding.code))
            .collect();
        let is_found = report.findings.iter().any(|finding| finding.code == *code);
        if !is_found || report.worst() != Some(*kind) || status == 0 {
            failures.push(format!(
                "{name}: {code:?} found: {is_found}, worst {:?}, expected {kind:?}\n{}\ne2fsck {status}: {words}",
                report.worst(),
                findings.join("\n")
            ));
        }
        assert_eq!(report.exit_status(), 4, "{name}");
        let many = Options {
            threads: Some(3),
            ..Options::default()
        };
        let other = fsck::check_source(&SliceSource(&bytes), &many).unwrap();
        assert_eq!(report.worst(), other.worst(), "{name}: with three threads");
    }
    assert!(
        failures.is_empty(),
        "{} failures\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn damaged_superblocks_and_counters() {
    check_table(SUPERBLOCK);
}

#[test]
fn damaged_inodes() {
    check_table(INODES);
}

#[test]
fn damaged_blocks_and_bitmaps() {
    check_table(BLOCKS);
}

#[test]
fn damaged_directories() {
    check_table(DIRECTORIES);
}

#[test]
fn what_is_no_file_system_is_no_report() {
    let device = backstitch_device::MemoryDevice::new(1 << 20);
    let error = fsck::check(&device, &Options::default()).unwrap_err();
    assert!(
        matches!(
            error,
            CheckError::Format(FormatError::NotAFileSystem { .. })
        ),
        "{error}"
    );
    let tiny = backstitch_device::MemoryDevice::new(1000);
    let error = fsck::check(&tiny, &Options::default()).unwrap_err();
    assert!(
        matches!(
            error,
            CheckError::Format(FormatError::NotAFileSystem { .. })
        ),
        "{error}"
    );
}

#[test]
fn unknown_features_are_refused_by_name() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    support::sparse_file(&image, 8 << 20);
    support::run_ok(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", &image.to_string_lossy()],
    );
    let bytes = std::fs::read(&image).unwrap();
    let error = fsck::check_source(&SliceSource(&bytes), &Options::default()).unwrap_err();
    let words = error.to_string();
    assert!(
        words.contains("extent") && words.contains("metadata_csum"),
        "{words}"
    );
}
