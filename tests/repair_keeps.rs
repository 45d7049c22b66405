//! A repair keeps at least what `e2fsck -fy` keeps: damages that once cost files are repaired by
//! both.
//!
//! `debugfs` reads what was kept, and it is compared with the tree from which the image was made. A
//! file counts if it has its path and its bytes.

use backstitch_tests::command::{Outcome, backstitch, run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::random::Random;
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files by their paths below the root.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A tree with empty files and files with direct, indirect and double indirect blocks, in
/// directories of several depths.
fn make_tree(root: &Path) -> Files {
    let mut random = Random::new(26);
    let sizes = [
        0, 1, 60, 1000, 4096, 5000, 40_000, 70_000, 300_000, 5_000_000,
    ];
    for (number, size) in sizes.into_iter().enumerate() {
        for folder in ["", "sub", "sub/below", "other"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).expect("cannot make a directory");
            let large = size > 100_000 && !folder.ends_with("other");
            let bytes = random.bytes(if large { size / 4 } else { size });
            fs::write(folder.join(format!("file-{number}")), bytes).expect("cannot write a file");
        }
    }
    read_tree(root)
}

fn read_tree(root: &Path) -> Files {
    let mut files = Files::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)
            .expect("cannot read a directory")
            .flatten()
        {
            let (path, kind) = (entry.path(), entry.file_type().expect("no file type"));
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(root).expect("below the root").to_owned();
                files.insert(name, fs::read(&path).expect("cannot read a file"));
            }
        }
    }
    files
}

/// How many files of an image are as they were.
fn right_files(scratch: &Scratch, image: &Image, good: &Files) -> usize {
    let into = scratch.path("dumped");
    let _ = fs::remove_dir_all(&into);
    fs::create_dir(&into).expect("cannot make a directory");
    run(tool("debugfs")
        .arg("-R")
        .arg(format!("rdump / {}", into.display()))
        .arg(image.path()));
    let found = read_tree(&into);
    good.iter()
        .filter(|(path, bytes)| found.get(*path) == Some(bytes))
        .count()
}

fn repair(image: &Image, arguments: &[&str]) -> Outcome {
    run(backstitch()
        .args(["fsck", "-y"])
        .args(arguments)
        .arg(image.path()))
}

/// The first number in a line of `dumpe2fs`.
fn place_of(image: &Image, what: &str) -> u64 {
    let text = run(tool("dumpe2fs").arg(image.path()))
        .expect_success()
        .text();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(what));
    let number = line.expect("dumpe2fs does not show it").trim();
    let end = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    number[..end].parse().expect("no number")
}

struct Case {
    name: &'static str,
    size: &'static str,
    options: &'static [&'static str],
    damage: fn(&Image),
    /// Files that even the best repair loses.
    lost: usize,
}

fn garbage(image: &Image, block: u64, block_bytes: u64, blocks: u64) {
    let bytes = Random::new(block).bytes((blocks * block_bytes) as usize);
    image.patch(block * block_bytes, &bytes);
}

const CASES: &[Case] = &[
    Case {
        name: "a block kept for descriptors",
        size: "1G",
        options: &["-b", "4096"],
        damage: |image| garbage(image, 2, 4096, 1),
        lost: 0,
    },
    Case {
        name: "the descriptors and what is behind them",
        size: "64M",
        options: &["-b", "1024"],
        damage: |image| garbage(image, 2, 1024, 4),
        lost: 0,
    },
    Case {
        name: "the descriptors, with a journal",
        size: "64M",
        options: &["-t", "ext3", "-b", "1024"],
        damage: |image| garbage(image, 2, 1024, 4),
        lost: 0,
    },
    Case {
        name: "the first block of the inode table",
        size: "64M",
        options: &["-b", "4096", "-I", "256"],
        damage: |image| garbage(image, place_of(image, "Inode table at "), 4096, 1),
        // The root with the first five of the files: all are moved to lost+found, or are gone.
        lost: usize::MAX,
    },
    Case {
        name: "an indirect pointer behind the end",
        size: "1G",
        options: &["-b", "4096"],
        damage: |image| {
            image.debugfs(&["sif /sub/file-7 block[IND] 0xffffffff"]);
        },
        lost: 1,
    },
    Case {
        name: "directories that became a socket, a pipe, a disk and nothing",
        size: "64M",
        options: &["-b", "1024"],
        damage: |image| {
            image.debugfs(&[
                "sif /sub/below mode 0010755",
                "sif /sub mode 0140755",
                "sif /other mode 0755",
                "sif /lost+found mode 0060700",
            ]);
        },
        lost: 0,
    },
    Case {
        name: "bad blocks in the superblock and in the inode table",
        size: "64M",
        options: &["-b", "1024"],
        damage: |image| {
            image.debugfs(&[
                "sif <1> block[0] 1",
                "sif <1> block[1] 600",
                "sif <1> blocks 4",
            ]);
        },
        lost: 0,
    },
];

#[test]
fn no_less_than_e2fsck_keeps() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs", "dumpe2fs");
    let scratch = Scratch::new("repair_keeps");
    let tree = scratch.dir("tree");
    let good = make_tree(&tree);
    for case in CASES {
        let from = tree.to_string_lossy();
        let options = [case.options, &["-d", &from][..]].concat();
        let image = Image::mke2fs(&scratch, "image", case.size, &options);
        (case.damage)(&image);
        let theirs = image.copy("theirs");
        let outcome = repair(&image, &[]);
        assert_eq!(
            outcome.code,
            Some(1),
            "{}: {}",
            case.name,
            outcome.describe()
        );
        image.expect_clean();
        run(tool("e2fsck").arg("-fy").arg(theirs.path()));
        let ours = right_files(&scratch, &image, &good);
        let theirs = right_files(&scratch, &theirs, &good);
        assert!(
            ours >= theirs,
            "{}: {ours}, e2fsck keeps {theirs}",
            case.name
        );
        let expected = good.len().saturating_sub(case.lost);
        assert!(ours >= expected, "{}: {ours} of {}", case.name, good.len());
    }
}

#[test]
fn a_geometry_is_guessed_only_when_asked_for() {
    require!("backstitch", "mke2fs", "debugfs");
    let scratch = Scratch::new("repair_keeps");
    let tree = scratch.dir("tree");
    let good = make_tree(&tree);
    let from = tree.to_string_lossy();
    // One group, so no backup.
    let image = Image::mke2fs(&scratch, "image", "64M", &["-b", "4096", "-d", &from]);
    const BLOCKS_PER_GROUP: u64 = 1024 + 32;
    image.patch(BLOCKS_PER_GROUP, &77_777_u32.to_le_bytes());
    let damaged = image.bytes();
    let outcome = repair(&image, &[]);
    assert_eq!(
        outcome.code.map(|code| code & 1),
        Some(0),
        "{}",
        outcome.describe()
    );
    assert!(
        outcome.stderr.contains("--guess-geometry"),
        "{}",
        outcome.describe()
    );
    assert!(
        image.bytes() == damaged,
        "changed without having been asked to guess"
    );
    let outcome = repair(&image, &["--guess-geometry"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
    assert!(outcome.text().contains("guessed"), "{}", outcome.describe());
    image.expect_clean();
    assert_eq!(right_files(&scratch, &image, &good), good.len());
}

#[test]
fn what_a_repair_takes_away_is_said_first() {
    require!("backstitch", "mke2fs", "debugfs");
    let scratch = Scratch::new("repair_keeps");
    let tree = scratch.dir("tree");
    make_tree(&tree);
    let from = tree.to_string_lossy();
    let image = Image::mke2fs(&scratch, "image", "64M", &["-b", "1024", "-d", &from]);
    // The names in `other` are lost with its inode, and its files are moved to lost+found.
    image.debugfs(&["clri /other", "sif /file-6 block[2] 99999999"]);
    let copy = image.copy("copy");
    let outcome = repair(&image, &[]);
    let text = outcome.text();
    let first = text.lines().next().unwrap_or_default();
    let expected = "the repair takes away 0; 10 files or directories go to lost+found; 1 block pointers are cleared";
    assert!(first.ends_with(expected), "{text}");
    let losses = &repair(&copy, &["--json"]).json()["losses"];
    assert_eq!(losses["moved_to_lost_found"], 10, "{losses}");
    assert_eq!(losses["pointers_cleared"], 1, "{losses}");
    assert_eq!(losses["names_gone"], 0, "{losses}");
}
