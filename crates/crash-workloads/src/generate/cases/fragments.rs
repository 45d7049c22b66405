//! Scripts about files that end within a block, where a block has several fragments and the last one
//! of a file only those that its size needs: UFS. In other formats they are ordinary files.
//!
//! Blocks have eight fragments, of 1024 bytes unless told otherwise. Twelve are in the inode, so
//! files end in fragments up to 96 KiB; with fragments of 512 bytes up to 48 KiB.

use super::{REMAINS, long_name, own};

/// The first byte behind the direct blocks, with fragments of 512 and of 1024 bytes.
const DIRECT_ENDS: [u64; 2] = [48 << 10, 96 << 10];

/// A file, and another one whose fragments are behind it in the same block.
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

/// A last block gets more fragments, where they are or elsewhere.
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
        // What is behind it is another one's: it moves.
        scripts.push(format!(
            "{REMAINS}{NEIGHBOURS}{steps}; append g 3000; fsync g"
        ));
    }
    // What a file has left is used at once; several files grow in turn.
    scripts.extend(own(&[
        "few-blocks 24; creat f; write f 0 1500; creat g; write g 0 1500; sync;; append f 2000; work; creat h; write h 0 1000; fsync h; \
         append g 2000; work; append h 2000; fsync h",
        "few-blocks 24; creat f; write f 0 1500; creat g; write g 0 1500; sync;; append f 2000; creat h; write h 0 1500; append f 3000; \
         fsync f; fsync h",
        "few-blocks 24; creat f; write f 0 3500; creat g; write g 0 1500; sync;; append f 1000; fsync f; mkdir D; mkdir E; fsync E",
        "creat f; write f 0 500; creat g; write g 0 500; creat h; write h 0 500; sync;; append f 1000; append g 1000; append h 1000; \
         append f 1000; append g 1000; append h 1000; sync",
        // Moved before it is on the disk, and moved again.
        "creat a; write a 0 500; sync;; creat f; write f 0 500; creat g; write g 0 500; append f 1000; append g 1000; append f 1000; \
         fsync f; unlink g; work; append f 3000; fsync f",
    ]));
    // A power cut that leaves contents without the size, and what grows then shows none of them.
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

/// A file gets to end within a block, and what it had there is used by others.
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
        // The last block becomes a direct one, and with that has only what it needs.
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

/// Blocks from a border of an indirect block's fragments on: as many pointers as a fragment holds are
/// before it.
fn borders() -> Vec<String> {
    let mut scripts = Vec::new();
    for (fragment, end) in [512, 1024].into_iter().zip(DIRECT_ENDS) {
        for pointer in [4, 8] {
            let block = fragment * 8;
            let at = end + fragment / pointer * block;
            scripts.extend([
                // Entries on both sides of it: gained, lost, and the ones without the others.
                format!("{REMAINS}creat f; write f {end} 1000; sync;; write f {} {}; fsync f", at - block, 2 * block),
                format!("creat f; write f {} {}; sync;; truncate f {}; work; creat g; write g 0 20000; fsync g", at - block, 2 * block, at - block),
                format!("creat f; write f {end} 1000; write f {at} 1000; sync;; punch f {end} {block}; fsync f; write f {at} 2000; fsync f"),
                format!("creat f; write f {} {}; sync;; punch f {} {}; write f {at} 1000; fsync f", at - block, 3 * block, at - block, 2 * block),
                format!("{REMAINS}creat f; write f {end} 1000; sync;; write f {at} 1000; fsync f; unlink f; work; creat g; write g 0 20000; fsync g"),
            ]);
            // The first block behind a double indirect one, and its second leaf.
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

/// Directories of some fragments. With a file of theirs behind them they move as they grow, and what
/// is done to the names that they have had before shows once they have.
fn directories() -> Vec<String> {
    let names = |range: std::ops::Range<usize>| -> String {
        range
            .map(|n| format!("creat B/{}; ", long_name(n)))
            .collect()
    };
    let new = long_name(20);
    let mut scripts = Vec::new();
    // Four names fill a fragment of 1024 bytes, two one of 512.
    for (made, more) in [(4, 6), (8, 13)] {
        let start = format!(
            "mkdir A; creat A/g; mkdir A/d; mkdir B; creat B/x; mkdir B/e; {}",
            names(0..made)
        );
        let grown = names(made..more);
        scripts.push(format!("{start}sync;; {grown}fsync B; creat A/h; fsync A"));
        let start = format!("{start}creat B/f; write B/f 0 1500; sync;; ");
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
        // Names that were not on the disk yet go along.
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

/// Images that are unmounted: nothing is too much in them, and what groups count is what they have, where
/// an inode was taken or given back and nothing else, a directory, fragments.
fn unmounts() -> Vec<String> {
    own(&[
        "creat f; sync;; remount; creat g; remount; creat h; fsync h",
        "creat f; write f 0 9000; sync;; remount; truncate f 0; work; sync; remount; creat g; fsync g",
        "mkdir D; mkdir D/E; sync;; remount; rmdir D/E; work; sync; remount; creat D/g; fsync D/g",
        "creat f; write f 0 1500; creat g; write g 0 1500; sync;; append f 3000; work; sync; remount; append f 3000; fsync f",
        "creat f; write f 0 8000; sync;; truncate f 2500; work; sync; remount; append f 3000; fsync f",
    ])
}

/// Symbolic links of several fragments, and inodes up to those that no one has had.
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
    // In UFS2 a block of inodes is initialised before the one before it is in use: at the 17th of a
    // group with fragments of 512 bytes, at the 33rd with 1024.
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
