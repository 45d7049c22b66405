//! Hashed directories that the kernel and we extend in turn: each finds every name of the other,
//! and e2fsck finds nothing.
//!
//! `ROUNDS` is the number of turns for each kind (6), `SEED` the seed of the names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, setting};

/// A random name of any bytes, with a length up to `longest`.
fn name(random: &mut Random, longest: u64) -> OsString {
    let mut bytes = vec![b'n'];
    let length = random.below(longest) as usize;
    for byte in random.bytes(length) {
        bytes.push(match byte {
            0 | b'/' => b'x',
            other => other,
        });
    }
    OsString::from_vec(bytes)
}

/// Adds, moves and removes names.
fn change(dir: &Path, random: &mut Random, known: &mut BTreeSet<OsString>, count: u64) {
    for _ in 0..count {
        let longest = *random.pick(&[10, 60, 250]);
        let new = name(random, longest);
        let old = known.range(name(random, 20)..).next().cloned();
        match (random.below(8), old) {
            (0, Some(old)) => {
                fs::remove_file(dir.join(&old)).expect("cannot remove");
                known.remove(&old);
            }
            (1, Some(old)) => {
                fs::rename(dir.join(&old), dir.join(&new)).expect("cannot rename");
                known.remove(&old);
                known.insert(new);
            }
            _ => {
                File::create(dir.join(&new)).expect("cannot create");
                known.insert(new);
            }
        }
    }
}

#[track_caller]
fn expect_names(dir: &Path, known: &BTreeSet<OsString>, who: &str) {
    for name in known {
        let found = fs::symlink_metadata(dir.join(name));
        assert!(found.is_ok(), "{who} does not find {name:?}");
    }
    let listed: Vec<OsString> = fs::read_dir(dir)
        .expect("cannot list")
        .map(|entry| entry.expect("cannot list").file_name())
        .collect();
    let names: BTreeSet<OsString> = listed.iter().cloned().collect();
    assert_eq!(names.len(), listed.len(), "{who} lists a name twice");
    assert!(names == *known, "{who} lists other names");
}

fn take_turns(test: &str, size: &str, mke2fs: &[&str], prepare: &[&str]) {
    require!("backstitch", "fuse", "loop", "mke2fs", "e2fsck", "debugfs");
    let scratch = Scratch::new(test);
    let mut arguments = vec!["-t", "ext3", "-N", "20000"];
    arguments.extend(mke2fs);
    let image = Image::mke2fs(&scratch, "disk.img", size, &arguments);
    if !prepare.is_empty() {
        image.debugfs(prepare);
    }
    let mut random = Random::new(Random::seed(test));
    let mut known = BTreeSet::new();
    for round in 0..setting("ROUNDS", 6) {
        let mount = scratch.dir("mnt");
        let mounted = match round % 2 {
            0 => Mounted::by_kernel_as("ext4", &image, &mount, ""),
            _ => Mounted::under_test(&image, &mount, &Options::ordered("journal=ordered", "")),
        };
        let who = ["the kernel", "we"][round as usize % 2];
        let dir = mount.join("d");
        fs::create_dir_all(&dir).expect("cannot make a directory");
        expect_names(&dir, &known, who);
        change(&dir, &mut random, &mut known, 700);
        expect_names(&dir, &known, who);
        mounted.unmount();
        image.expect_clean();
        let flags = image.debugfs(&["stat /d"]).text();
        assert!(flags.contains("Flags: 0x1000"), "round {round}: {flags}");
    }
}

#[test]
fn blocks_of_1024() {
    take_turns("htree_1024", "40M", &["-b", "1024"], &[]);
}

#[test]
fn blocks_of_4096() {
    take_turns("htree_4096", "60M", &["-b", "4096"], &[]);
}

#[test]
fn unsigned_characters_and_tea() {
    take_turns(
        "htree_tea",
        "40M",
        &["-b", "1024"],
        &["ssv flags 2", "ssv def_hash_version tea"],
    );
}

#[test]
fn the_legacy_hash() {
    take_turns(
        "htree_legacy",
        "40M",
        &["-b", "2048"],
        &["ssv def_hash_version legacy"],
    );
}

#[test]
fn large_directories() {
    take_turns(
        "htree_large",
        "40M",
        &["-b", "1024", "-O", "large_dir"],
        &[],
    );
}
