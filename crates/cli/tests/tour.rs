//! Scripts that are recorded in memory, and the tour of docs/tour, which is made of them: its pictures
//! and answers are what its commands give now, and its text speaks of what the pictures show.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Bench;

/// GitHub shows larger ones too, but slowly.
const MOST_PICTURE_BYTES: u64 = 40 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn pages_and_pictures_are_what_the_commands_give() {
    let (committed, made) = (root().join("docs/tour"), tempfile::tempdir().unwrap());
    let mut script = Command::new("python3");
    script.arg(root().join("scripts/tour.py")).arg(made.path());
    script.env("BACKSTITCH_BIN", env!("CARGO_BIN_EXE_backstitch"));
    assert!(script.status().unwrap().success());
    assert_eq!(names(&committed), names(made.path()));
    let mut pictures = 0;
    for name in names(&committed) {
        let (old, new) = (committed.join(&name), made.path().join(&name));
        let (old, new) = (std::fs::read(old).unwrap(), std::fs::read(new).unwrap());
        let (old, new) = (
            String::from_utf8(old).unwrap(),
            String::from_utf8(new).unwrap(),
        );
        assert!(
            old == new,
            "{name} is out of date: run make tour. It would be:\n{new}"
        );
        if name.ends_with(".svg") {
            pictures += 1;
            assert!(
                new.len() as u64 <= MOST_PICTURE_BYTES,
                "{name}: {} bytes",
                new.len()
            );
        }
    }
    assert_eq!(pictures, 5);
}

/// The names of patches in a text: `p12`.
fn patches(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let is_patch = |word: &&str| {
        let digits = word.strip_prefix('p').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    words.filter(is_patch).collect()
}

#[test]
fn what_a_page_speaks_of_is_in_its_picture() {
    let directory = root().join("docs/tour");
    for name in names(&directory)
        .iter()
        .filter(|name| name.ends_with(".md"))
    {
        let page = std::fs::read_to_string(directory.join(name)).unwrap();
        let pictures = page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        let pictures: Vec<&str> = (pictures.map(|(target, _)| target))
            .filter(|target| target.ends_with(".svg"))
            .collect();
        assert_eq!(pictures.len(), usize::from(name != "README.md"), "{name}");
        let Some(picture) = pictures.first() else {
            continue;
        };
        let picture = std::fs::read_to_string(directory.join(picture)).unwrap();
        let (told, drawn) = (patches(&page), patches(&picture));
        assert!(
            told.is_subset(&drawn),
            "{name}: {told:?}, of which there are {drawn:?}"
        );
        assert!(!told.is_empty(), "{name}");
    }
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    let directory = root().join("docs/tour");
    let mut links = 0;
    for name in names(&directory)
        .iter()
        .filter(|name| name.ends_with(".md"))
    {
        let page = std::fs::read_to_string(directory.join(name)).unwrap();
        for rest in page.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap();
            links += 1;
            assert!(directory.join(target).exists(), "{name}: {target}");
        }
    }
    assert!(links > 15, "{links}");
}

#[test]
fn a_script_gives_the_same_trace_every_time() {
    let bench = Bench::new();
    let record = |options: &str, script: &str| {
        for file in ["a", "b"] {
            let mut words = vec!["trace", "record", "-o", file, "--script", script];
            words.extend(options.split_ascii_whitespace());
            bench.run(&words).good();
        }
        let traces = ["a", "b"].map(|file| std::fs::read(bench.path(file)).unwrap());
        assert!(traces[0] == traces[1], "{options} {script}");
    };
    record(
        "",
        "mkdir d; creat d/a; write d/a 0 100000; fsync d/a; unlink d/a; sync",
    );
    record(
        "--ordering journal=full",
        "creat a; write a 0 9000; log-close; sync",
    );
    record("--ordering lffs-file", "creat a; sync");
    record("-t ufs2", "mkdir d; creat d/a; write d/a 0 9000; round");
    // Another type has other blocks, and they have their names too.
    let shown = bench.line("trace show a").good().text();
    assert!(
        shown.contains("create /d/a") && shown.contains("inode table"),
        "{shown}"
    );
}

#[test]
fn what_is_no_script_is_refused_and_leaves_no_trace() {
    let bench = Bench::new();
    bench.shell("echo kept > old");
    for (script, code, why) in [
        ("jump a", 2, "no operation 'jump'"),
        (
            "creat a; remount",
            2,
            "operation 2, 'remount', ends the mount",
        ),
        ("creat a; creat a", 1, "operation 2, 'creat a': file exists"),
    ] {
        for file in ["new", "old"] {
            let words = ["trace", "record", "-o", file, "--script", script];
            let done = bench.run(&words).refused(code);
            assert!(done.stderr.contains(why), "{}", done.stderr);
        }
        assert!(!bench.path("new").exists());
        let old = std::fs::read_to_string(bench.path("old")).unwrap();
        assert_eq!(old, "kept\n", "{script}");
    }
    bench
        .line("trace record --script sync --seconds 1")
        .refused(2);
    bench
        .line("trace record --ordering soft -- true")
        .refused(2);
    bench
        .line("trace record --ordering lffs-wafs=x --script sync")
        .refused(2);
}
