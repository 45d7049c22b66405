//! The corner cases of a file system that programs meet (`generic/cases.py`), on our mount and on
//! the kernel's ext2: the transcripts must be equal, line by line. They cover appends by several
//! writers, mappings and truncation, storms of renames, positions in a directory that changes,
//! times beyond 2038, transfers that bypass the page cache, holes, offsets, lengths of names,
//! locks, attributes, access lists, files without names, and full disks.

use backstitch_tests::command::{run_within, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use std::path::Path;
use std::time::Duration;

/// The transcript of `cases.py` for the file system at `dir`, as lines.
fn transcript(dir: &Path, small: bool) -> Vec<String> {
    let mut command = tool("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("generic/cases.py"));
    if small {
        command.arg("--small");
    }
    command.arg(dir);
    let outcome = run_within(&mut command, Duration::from_secs(120)).expect_success();
    outcome.text().lines().map(str::to_owned).collect()
}

fn answers_are_the_kernels(size: &str, arguments: &[&str], small: bool, ordering: &str) {
    let scratch = Scratch::new("generic");
    let image = |name| Image::mke2fs(&scratch, name, size, arguments);
    let (ours, theirs) = (image("ours.img"), image("theirs.img"));
    let dir = scratch.dir("mnt");
    let mounted = Mounted::by_kernel(&theirs, &dir, "acl,user_xattr");
    let expected = transcript(&dir, small);
    mounted.unmount();
    let mounted = Mounted::under_test(&ours, &dir, &Options::ordered(ordering, "allow_other"));
    let found = transcript(&dir, small);
    mounted.unmount();
    ours.expect_clean();

    let cases = expected
        .iter()
        .filter(|line| !line.starts_with(' '))
        .count();
    assert!(cases >= if small { 3 } else { 20 }, "{expected:?}");
    let mut case = "";
    let mut different = Vec::new();
    for (theirs, ours) in expected.iter().zip(&found) {
        if !theirs.starts_with(' ') {
            case = theirs;
        }
        assert!(!theirs.contains("ended with"), "{case}: {theirs}");
        if theirs != ours {
            different.push(format!("{case}: the kernel's {theirs:?}, ours {ours:?}"));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    assert_eq!(expected.len(), found.len());
}

#[test]
fn corners_of_a_large_disk() {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck", "python3");
    answers_are_the_kernels("256M", &["-b", "4096"], false, "");
}

#[test]
fn corners_of_a_large_disk_with_a_journal() {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck", "python3");
    let arguments = ["-b", "4096", "-j"];
    answers_are_the_kernels("256M", &arguments, false, "journal=ordered");
}

#[test]
fn corners_of_a_small_disk() {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck", "python3");
    answers_are_the_kernels("4M", &["-b", "4096", "-N", "32"], true, "");
}
