//! Scripts for UFS about files that end within a block. There a block has several fragments, and
//! the last block of a file has only the fragments that it needs. In other formats they are
//! ordinary files.
//!
//! Blocks have eight fragments, of 1024 bytes unless a script says otherwise. The inode maps twelve
//! blocks, so files end in fragments up to a size of 96 KiB, or 48 KiB with fragments of 512 bytes.

use super::names::long_name;
use super::{REMAINS, own};

/// The size up to which a file has direct blocks only, with fragments of 512 and of 1024 bytes.
const DIRECT_ENDS: [u64; 2] = [48 << 10, 96 << 10];

/// Two files that share a block: the second one's fragments come right after the first one's.
const NEIGHBOURS: &str = "creat f; write f 0 1500; creat g; write g 0 1500; sync;; ";

pub(super) fn fragments() -> Vec<String> {
    let mut scripts = growth();
    scripts.extend(cuts());
    scripts.extend(borders());
    scripts.extend(directories());
    scripts.extend(unmounts());
    scripts.extend(others());
    scripts
}

/// Growth: a last block gets more fragments, in place or by moving.
fn growth() -> Vec<String> {
    let mut scripts = Vec::new();
    for steps in [
        "append f 1000; fsync f; append f 3000; fsync f; append f 5000; fsync f",
        "append f 100; append f 1000; append f 7000; fsync f",
        "append f 7000; work; creat h; write h 0 1000; fsync h; append f 300; fsync f",
        "truncate f 3000; fsync f; truncate f 9000; fsync f",
        "write f 5000 100; fsync f; write f 20000 100; fsync f",
        "falloc f 0 3000; fsync f; falloc f 9000 100; fsync f; append f 700; fsync f",
        "falloc f 0 8192; fsync f; write f 8192 100; fsync f",
        "falloc f 8000 200; fdatasync f; falloc f 16384 100; fdatasync f",
        "write f 8192 1000; fsync f; write f 4096 100; fsync f",
        "truncate f 8193; fsync f; write f 3000 1000; fsync f",
    ] {
        scripts.push(format!("{REMAINS}creat f; write f 0 1500; sync;; {steps}"));
        // Another file has the fragments after it, so it moves.
        scripts.push(format!(
            "{REMAINS}{NEIGHBOURS}{steps}; append g 3000; fsync g"
        ));
    }
    // Fragments from which a file moved are reused at once; several files grow in turn.
    scripts.extend(own(&[
        "few-blocks 24; creat f; write f 0 1500; creat g; write g 0 1500; sync;; append f 2000; work; creat h; write h 0 1000; fsync h; \
         append g 2000; work; append h 2000; fsync h",
        "few-blocks 24; creat f; write f 0 1500; creat g; write g 0 1500; sync;; append f 2000; creat h; write h 0 1500; append f 3000; \
         fsync f; fsync h",
        "few-blocks 24; creat f; write f 0 3500; creat g; write g 0 1500; sync;; append f 1000; fsync f; mkdir D; mkdir E; fsync E",
        "creat f; write f 0 500; creat g; write g 0 500; creat h; write h 0 500; sync;; append f 1000; append g 1000; append h 1000; \
         append f 1000; append g 1000; append h 1000; sync",
        // Moved before it is on the disk, then moved again.
        "creat a; write a 0 500; sync;; creat f; write f 0 500; creat g; write g 0 500; append f 1000; append g 1000; append f 1000; \
         fsync f; unlink g; work; append f 3000; fsync f",
    ]));
    // A power cut leaves contents without the size. Growth after that must not show them.
    for grown in [
        "truncate f 5000",
        "truncate f 1900",
        "write f 4000 100",
        "append f 5000",
        "falloc f 0 6000",
        "write f 9000 100",
    ] {
        scripts.push(format!(
            "creat f; write f 0 1500; sync; append f 300; round; round; cut; {grown}; fsync f"
        ));
        scripts.push(format!(
            "{NEIGHBOURS}append f 300; round; round; cut; {grown}; fsync f"
        ));
    }
    scripts
}

/// Truncation: a file is cut within a block, and other files use what it had there.
fn cuts() -> Vec<String> {
    let mut scripts = Vec::new();
    for cut in [100, 1024, 2500, 4096, 7000] {
        let made = format!("creat f; write f 0 8000; sync;; truncate f {cut}; ");
        scripts.extend([
            format!("{made}fsync f; append f 3000; fsync f"),
            format!("{made}work; creat g; write g 0 1500; fsync g; append f 2000; fsync f"),
            format!("{made}truncate f 6000; fsync f"),
            format!("{made}unlink f; work; creat g; write g 0 6000; fsync g"),
        ]);
        scripts.push(format!(
            "few-blocks 16; creat f; write f 0 8000; sync;; truncate f {cut}; work; mkdir D; creat g; write g 0 1500; fsync g; fsync D"
        ));
        // The last block becomes a direct one, and so keeps only the fragments that it needs.
        for end in DIRECT_ENDS {
            let to = end - 8192 + cut;
            scripts.push(format!(
                "creat f; write f {} 3000; sync;; truncate f {to}; work; creat g; write g 0 5000; fsync g; append f 4000; fsync f",
                end - 1500
            ));
        }
    }
    scripts.extend(own(&[
        "creat f; write f 0 8000; sync;; punch f 2000 3000; fsync f; punch f 0 8000; fsync f; write f 3000 100; fsync f",
        "creat f; truncate f 5000; sync;; write f 1000 100; fsync f; append f 3000; fsync f",
        "creat f; truncate f 5000; sync;; falloc f 0 2000; fsync f; truncate f 7000; fsync f",
        "creat f; write f 0 20000; sync;; punch f 16384 3000; fsync f; write f 17000 100; fsync f; append f 3000; fsync f",
    ]));
    scripts
}

/// Blocks around the end of the first fragment of an indirect block: all pointers of that fragment
/// come before.
fn borders() -> Vec<String> {
    let mut scripts = Vec::new();
    for (fragment, end) in [512, 1024].into_iter().zip(DIRECT_ENDS) {
        for pointer in [4, 8] {
            let block = fragment * 8;
            let at = end + fragment / pointer * block;
            scripts.extend([
                // Entries on both sides of the border: added, removed, and only on one side.
                format!("{REMAINS}creat f; write f {end} 1000; sync;; write f {} {}; fsync f", at - block, 2 * block),
                format!("creat f; write f {} {}; sync;; truncate f {}; work; creat g; write g 0 20000; fsync g", at - block, 2 * block, at - block),
                format!("creat f; write f {end} 1000; write f {at} 1000; sync;; punch f {end} {block}; fsync f; write f {at} 2000; fsync f"),
                format!("creat f; write f {} {}; sync;; punch f {} {}; write f {at} 1000; fsync f", at - block, 3 * block, at - block, 2 * block),
                format!("{REMAINS}creat f; write f {end} 1000; sync;; write f {at} 1000; fsync f; unlink f; work; creat g; write g 0 20000; fsync g"),
            ]);
            // The first block that a double indirect block maps, and that block's second leaf.
            let leaf = block / pointer * block;
            let deep = end + leaf;
            scripts.extend([
                format!("{REMAINS}creat f; sync;; write f {deep} 1000; fsync f"),
                format!("{REMAINS}creat f; write f {deep} 1000; sync;; write f {} 1000; fsync f", deep + leaf),
                format!("creat f; write f {deep} 1000; write f {} 1000; sync;; truncate f {}; work; creat g; write g 0 20000; fsync g", deep + leaf, deep + 500),
                format!("{REMAINS}creat f; write f {end} 1000; sync;; write f {} {}; fsync f", deep - block, 2 * block),
            ]);
        }
    }
    scripts
}

/// Directories of several fragments. If another one is behind them they move as they grow. What is
/// done to their older names shows only after that.
fn directories() -> Vec<String> {
    let names = |range: std::ops::Range<usize>| -> String {
        range
            .map(|n| format!("creat B/{}; ", long_name(n)))
            .collect()
    };
    let new = long_name(20);
    let mut scripts = Vec::new();
    // Four names fill a fragment of 1024 bytes, two one of 512 bytes.
    for (made, more) in [(4, 6), (8, 13)] {
        let start = format!(
            "mkdir A; creat A/g; mkdir A/d; mkdir B; creat B/x; mkdir B/e; {}",
            names(0..made)
        );
        let grown = names(made..more);
        scripts.push(format!("{start}sync;; {grown}fsync B; creat A/h; fsync A"));
        let start = format!("{start}mkdir B/n; creat B/f; write B/f 0 1500; sync;; ");
        for steps in [
            "unlink B/x; work",
            "unlink B/x; fsync B",
            "rename B/x A/y; fsync A",
            "rename A/g B/x; work",
            "link B/x A/l; unlink B/x; fsync A/l",
            "rename B/x B/z; unlink B/z; work",
            "rmdir B/e; work; creat A/h; fsync A",
            "rename B/e A/e; fsync A/e",
            "rename A/d B/e; fsync B/e",
            "rename B A/B; fsync A/B",
            "exchange B/x B/f; unlink B/x; work",
            "unlink B/x; creat B/x; fsync B/x",
        ] {
            scripts.push(format!("{start}{grown}{steps}"));
        }
        // Names that are not on the disk yet move with the directory.
        for steps in [
            format!("link A/g B/{new}; unlink A/g; {grown}fsync B/{new}"),
            format!("rename A/g B/{new}; {grown}unlink B/{new}; fsync B"),
            format!(
                "mkdir B/{new}; creat B/{new}/x; {grown}fsync B/{new}/x; rename B/{new} A/{new}; fsync A"
            ),
            format!("rename A/d B/{new}; {grown}fsync B/{new}; rmdir B/{new}; unlink B/x; fsync B"),
        ] {
            scripts.push(format!("{start}{steps}"));
        }
    }
    scripts
}

/// Unmounts after changes of inodes only, of a directory, or of fragments: nothing may leak, and
/// the counts of each group must be right.
fn unmounts() -> Vec<String> {
    own(&[
        "creat f; sync;; remount; creat g; remount; creat h; fsync h",
        "creat f; write f 0 9000; sync;; remount; truncate f 0; work; sync; remount; creat g; fsync g",
        "mkdir D; mkdir D/E; sync;; remount; rmdir D/E; work; sync; remount; creat D/g; fsync D/g",
        "creat f; write f 0 1500; creat g; write g 0 1500; sync;; append f 3000; work; sync; remount; append f 3000; fsync f",
        "creat f; write f 0 8000; sync;; truncate f 2500; work; sync; remount; append f 3000; fsync f",
    ])
}

/// Symbolic links of several fragments, and inodes that were never used before.
fn others() -> Vec<String> {
    let (long, longer) = ("t".repeat(700), "t".repeat(1000));
    let mut scripts = vec![
        format!(
            "{REMAINS}symlink {long} s; fsync /; unlink s; work; creat f; write f 0 3000; fsync f"
        ),
        format!(
            "symlink {longer} s; sync;; unlink s; sync; symlink {long} r; fsync /; rename r s; fsync /"
        ),
    ];
    // UFS2 initialises a block of inodes before the block before it is in use: at the 17th inode of
    // a group with fragments of 512 bytes, at the 33rd with 1024.
    for before in [13, 29] {
        let made: String = (0..before).map(|n| format!("creat {n}; ")).collect();
        scripts.extend([
            format!("{made}sync;; creat a; creat b; fsync b; creat c; fsync c"),
            format!("{made}sync;; creat a; creat b; unlink a; unlink b; work; creat c; mkdir D; fsync D"),
            format!("{made}sync;; creat a; creat b; unlink b; unlink a; work; work; creat c; round; cut; creat d; creat e; fsync e"),
        ]);
    }
    scripts
}
