//! pjdfstest on our mount and on the kernel's ext2: nothing may fail here that does not fail there.
//!
//! `NAPTIME` is the pause in seconds in which a time stamp must change. The tool's own default is a
//! second, with which a run takes more than a minute.

use backstitch_tests::command::{run_within, tool};
use backstitch_tests::image::Image;
use backstitch_tests::io_uring::Switch;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::requirements::missing;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// For each test `ok`, `skipped` or `FAILED`, and why.
type Results = BTreeMap<String, (String, String)>;

/// What the format cannot do: UFS1 has 32 bits for the seconds of a time.
const LIMITS_OF_UFS1: &[&str] = &["utimensat::y2038"];

#[test]
fn no_more_failures_than_the_kernel() {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck", "pjdfstest");
    let scratch = Scratch::new("posix");
    let image = |name| Image::mke2fs(&scratch, name, "256M", &["-b", "4096"]);
    let (ours, theirs) = (image("ours.img"), image("theirs.img"));
    // Some tests want a second file system to link to; any will do.
    let other = image("other.img");
    let (dir, second) = (scratch.dir("mnt"), scratch.dir("second"));
    let other = Mounted::by_kernel(&other, &second, "");

    let mounted = Mounted::by_kernel(&theirs, &dir, "");
    let expected = pjdfstest(&scratch, &dir, &second);
    mounted.unmount();
    let mounts = |image: &Image, options: &str| {
        let mounted = Mounted::under_test(image, &dir, &Options::with(options));
        let found = pjdfstest(&scratch, &dir, &second);
        mounted.unmount();
        image.expect_clean();
        found
    };
    let found = mounts(&ours, "allow_other");
    let by_ring = missing("io_uring").is_none().then(|| {
        let _switch = Switch::turned(true);
        mounts(&ours, "allow_other,io_uring=required")
    });
    let of_ufs = |args: &[&str]| {
        let image = Image::ours(&scratch, "ufs.img", "256M", args);
        mounts(&image, "allow_other")
    };
    let ufs1 = of_ufs(&["-t", "ufs1", "-f", "512"]);
    let ufs2 = of_ufs(&["-t", "ufs2"]);
    other.unmount();

    let count = |results: &Results, how: &str| results.values().filter(|(r, _)| r == how).count();
    let by_ring_if_any = by_ring.iter().map(|results| ("ours by io_uring", results));
    let always = [
        ("the kernel's ext2", &expected),
        ("ours", &found),
        ("our UFS1", &ufs1),
        ("our UFS2", &ufs2),
    ];
    for (whose, results) in always.into_iter().chain(by_ring_if_any) {
        say(&format!(
            "pjdfstest, {whose}: {} passed, {} failed, {} skipped",
            count(results, "ok"),
            count(results, "FAILED"),
            count(results, "skipped")
        ));
    }
    assert!(count(&expected, "ok") > 300, "pjdfstest did not run");
    expect_no_worse("ext2", &expected, &found, &[]);
    expect_no_worse("UFS1", &expected, &ufs1, LIMITS_OF_UFS1);
    expect_no_worse("UFS2", &expected, &ufs2, &[]);
    if let Some(by_ring) = &by_ring {
        expect_no_worse("ext2 by io_uring", &expected, by_ring, &[]);
    }
}

/// Asserts that what passes in one run is not worse in the other, but for these tests, which fail there.
fn expect_no_worse(what: &str, expected: &Results, found: &Results, limits: &[&str]) {
    let mut worse = Vec::new();
    let passed = expected.iter().filter(|(_, (result, _))| result == "ok");
    for (name, _) in passed {
        match found.get(name).map(|(result, why)| (result.as_str(), why)) {
            Some(("ok", _)) => {
                let is_limit = limits.contains(&name.as_str());
                assert!(!is_limit, "{what}: {name} is no limit any more");
            }
            Some(("FAILED", why)) if limits.contains(&name.as_str()) => {
                say(&format!("{what}: {name} is a limit of the format: {why}"));
            }
            // Tests that need a limit which the C library does not know for FUSE (the largest link
            // count) are skipped.
            Some(("skipped", why)) => say(&format!("{what}: {name} is skipped here: {why}")),
            Some((_, why)) => worse.push(format!("{name}: {why}")),
            None => worse.push(format!("{name}: not run")),
        }
    }
    assert!(
        worse.is_empty(),
        "{what}, worse than the kernel:\n{}",
        worse.join("\n")
    );
}

fn pjdfstest(scratch: &Scratch, dir: &Path, second: &Path) -> Results {
    let naptime = std::env::var("NAPTIME").unwrap_or_else(|_| "0.02".to_owned());
    let configuration = scratch.path("pjdfstest.toml");
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = {naptime}\nallow_remount = false\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"], [\"games\", \"games\"]]\n"
    );
    std::fs::write(&configuration, text).expect("cannot write the configuration");
    let mut command = tool("pjdfstest");
    command
        .arg("-c")
        .arg(&configuration)
        .arg("-p")
        .arg(dir)
        .arg("-s")
        .arg(second);
    // It ends with 1 if any test fails; whether that matters is decided here.
    let outcome = run_within(&mut command, Duration::from_secs(600));
    assert!(!outcome.timed_out, "{}", outcome.describe());
    parse(&outcome.text())
}

/// Parses lines with a name and a result. The line after a failure or a skipped test says why.
fn parse(text: &str) -> Results {
    let mut results = Results::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(result), None) = (words.next(), words.next(), words.next())
            && matches!(result, "ok" | "FAILED" | "skipped")
        {
            let why = if result == "ok" {
                ""
            } else {
                lines.peek().copied().unwrap_or("")
            };
            results.insert(name.to_owned(), (result.to_owned(), why.trim().to_owned()));
        }
    }
    results
}
