//! Images made by `makefs`, and the tree that is in them.

#![allow(dead_code)]

pub(crate) mod image;
pub(crate) mod mounted;
pub(crate) mod player;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// One way of making an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// `-o version`
    pub(crate) version: u32,
    /// `-B`
    pub(crate) order: &'static str,
    /// `-o bsize`
    pub(crate) block_bytes: u32,
    /// `-o fsize`
    pub(crate) fragment_bytes: u32,
}

/// Both versions, both byte orders, and geometries with every number of fragments.
pub(crate) fn geometries() -> Vec<Made> {
    let sizes = [
        (4_096, 512),
        (8_192, 1_024),
        (8_192, 8_192),
        (16_384, 4_096),
        (32_768, 4_096),
        (65_536, 32_768),
    ];
    let mut all = Vec::new();
    for version in [1, 2] {
        for order in ["le", "be"] {
            all.extend(sizes.map(|(block_bytes, fragment_bytes)| Made {
                version,
                order,
                block_bytes,
                fragment_bytes,
            }));
        }
    }
    all
}

/// Whether `makefs` is installed; says what is skipped where it is not.
pub(crate) fn have_makefs() -> bool {
    let found = Command::new("makefs")
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("skipped: makefs is missing (Debian package makefs)");
    }
    found
}

/// Makes an image of a tree.
pub(crate) fn makefs(made: Made, image: &Path, tree: &Path) {
    let options = format!(
        "version={},bsize={},fsize={}",
        made.version, made.block_bytes, made.fragment_bytes
    );
    // Several blocks of inodes in a group; with large fragments so many do not fit.
    let free_inodes = if made.fragment_bytes > 8_192 {
        "0"
    } else {
        "4000"
    };
    let output = Command::new("makefs")
        .args([
            "-t",
            "ffs",
            "-B",
            made.order,
            "-s",
            "40m",
            "-f",
            free_inodes,
            "-o",
            &options,
        ])
        .arg(image)
        .arg(tree)
        .output()
        .unwrap();
    assert!(output.status.success(), "{made:?}: {output:?}");
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// A tree with a file for every kind of tail, holes, indirect blocks, links, and a directory of
/// many blocks.
pub(crate) fn populate(root: &Path) {
    for (number, len) in [
        0, 1, 511, 512, 513, 4_095, 4_096, 9_000, 40_000, 98_304, 98_305,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(
            root.join(format!("file{number}")),
            pattern(number as u64, len),
        )
        .unwrap();
    }
    fs::write(root.join("large"), pattern(99, 3_000_001)).unwrap();
    let mut sparse = vec![0; 700_000];
    sparse[300_000..300_100].copy_from_slice(&pattern(7, 100));
    fs::write(root.join("sparse"), sparse).unwrap();
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::write(root.join("a/b/c/deep"), b"deep").unwrap();
    fs::create_dir(root.join("many")).unwrap();
    for number in 0..700 {
        let name = format!("many/a name of some length {number}");
        fs::write(root.join(name), format!("{number}")).unwrap();
    }
    fs::hard_link(root.join("file7"), root.join("a/linked")).unwrap();
    symlink("a/b/c/deep", root.join("short")).unwrap();
    symlink("x/".repeat(100), root.join("long")).unwrap();
}
