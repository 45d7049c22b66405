//! Scripts about names: several of one file, moved ones, and those in new blocks and indexes of
//! directories.

use super::own;

pub(super) fn links() -> Vec<String> {
    let mut scripts = Vec::new();
    let names = ["a", "A/b", "B/c"];
    for first in 0..3 {
        for second in (0..3).filter(|second| *second != first) {
            let third = 3 - first - second;
            let (one, two, three) = (names[first], names[second], names[third]);
            let made = "mkdir A; mkdir B; creat a; write a 0 2000; link a A/b; link a B/c; sync;; ";
            scripts.push(format!("{made}unlink {one}; unlink {two}; unlink {three}"));
            scripts.push(format!(
                "{made}unlink {one}; unlink {two}; link {three} {one}; unlink {three}; link {one} {two}; fsync {two}"
            ));
            scripts.push(format!(
                "{made}unlink {one}; fsync {two}; unlink {two}; fsync {three}; link {three} {two}; fsync {two}"
            ));
            scripts.push(format!(
                "{made}creat d; write d 0 1000; fsync d; rename d {one}; fsync {two}; rename {two} {one}; fsync {one}"
            ));
        }
    }
    scripts.extend(own(&[
        "mkdir A; mkdir B; creat f; creat g; link g B/h; sync;; rename f g; fsync g; unlink B/h",
        "mkdir A; mkdir B; creat f; creat g; link g B/h; link g A/i; sync;; rename f g; rename A/i B/h; rename B/h g; fsync g",
        "mkdir A; creat f; link f A/g; sync;; rename f A/g; unlink f; fsync A/g",
        "mkdir A; mkdir B; creat f; sync;; link f A/g; unlink f; link A/g B/h; unlink A/g; rename B/h f; fsync f",
        "mkdir A; mkdir B; symlink target A/s; sync;; link A/s B/t; unlink A/s; rename B/t A/s; fsync A",
        "mkdir A; creat f; sync;; link f A/1; link f A/2; link f A/3; fsync f; unlink A/2; unlink f; unlink A/1; fsync A/3; unlink A/3",
        "mkdir A; mkdir B; creat f; sync;; link f A/1; rename A/1 B/1; link B/1 A/1; rename A/1 f; unlink B/1; fsync f",
    ]));
    scripts
}

pub(super) fn moves() -> Vec<String> {
    let mut scripts = own(&[
        "creat a; write a 0 1000; creat b; write b 0 2000; sync;; exchange a b; fsync a; exchange a b; fsync b",
        "mkdir A; mkdir B; creat A/f; creat B/g; sync;; exchange A/f B/g; fsync A/f; unlink B/g; rename A/f B/g; fsync B/g",
        "mkdir A; mkdir B; mkdir A/d; mkdir B/e; creat A/d/x; sync;; exchange A/d B/e; fsync A/d; rmdir A/d; fsync B/e/x",
        "mkdir A; mkdir B; mkdir A/d; creat B/g; sync;; exchange A/d B/g; fsync A/d; unlink A/d; rmdir B/g",
        "mkdir A; mkdir A/d; creat f; sync;; exchange f A/d; fsync f; exchange f A/d; sync",
        "mkdir A; mkdir A/B; mkdir A/B/C; creat A/B/C/f; sync;; rename A/B/C C; fsync C/f; rename C A/C; fsync A/C/f",
        "mkdir A; mkdir A/B; mkdir A/B/C; sync;; rename A/B/C C; rename A/B C/B; rename A C/B/A; fsync C/B/A",
        "mkdir A; mkdir B; mkdir A/d; sync;; rename A/d B/d; rename B A/B; fsync A/B/d; rename A/B/d d; fsync d",
        "mkdir A; mkdir B; sync;; rename A B/A; rename B/A A; rename B A/B; fsync A; fsync A/B",
        "mkdir A; mkdir B; mkdir A/x; mkdir B/x; sync;; rename A/x B/x; fsync B; mkdir A/x; rename B/x A/x; fsync A",
        "mkdir A; mkdir A/B; mkdir A/B/C; creat A/B/C/f; sync;; rename A/B/C/f f; rmdir A/B/C; rmdir A/B; rmdir A; fsync f",
        "mkdir A; mkdir B; creat A/f; sync;; mkdir B/d; rename A B/d/A; fsync B/d/A/f; rename B/d/A/f f; rmdir B/d/A; fsync f",
        "mkdir A; mkdir B; mkdir C; creat A/f; sync;; rename A/f B/f; fsync B; rename B/f C/f; fsync C; rename C/f A/f; fsync A",
        "mkdir A; mkdir B; mkdir A/d; creat A/d/f; sync;; rename A/d B/d; creat B/d/g; unlink B/d/f; fsync B/d; rename B/d A/e; fsync A",
        "mkdir A; symlink t A/s; creat A/f; sync;; exchange A/s A/f; fsync A; rename A/s A/f; fsync A",
    ]);
    // New files swap names; then, most likely, one of them is flushed.
    for promise in ["", "; fsync b"] {
        scripts.push(format!(
            "creat a; write a 0 3000; sync;; creat b; append b 100; fsync b; creat c; append c 700; creat d; append d 900; \
             exchange c d{promise}; exchange a d"
        ));
    }
    scripts.extend(names_again());
    // A directory is replaced by one from elsewhere, with and without a promise.
    for promise in ["", "; fsync B", "; fsync A/f", "; sync"] {
        scripts.push(format!(
            "mkdir A; mkdir B; mkdir A/f; mkdir A/f/s; mkdir B/f; sync;; rename A/f B/f{promise}; rename B/f A/f{promise}"
        ));
    }
    scripts
}

/// Names that are removed and made again, each time at another place in the directory's block.
fn names_again() -> Vec<String> {
    let mut scripts = Vec::new();
    for places in [["x", "f", "g"], ["x", "g", "f"], ["f", "x", "g"]] {
        // There are other names between them, since adjacent free places would be joined and
        // written together.
        let made = places
            .map(|name| format!("creat A/{name}; creat A/{name}2"))
            .join("; ");
        for steps in [
            "unlink A/f; unlink A/x; creat A/f",
            "unlink A/f; creat A/f; unlink A/f; unlink A/x; creat A/f",
            "unlink A/x; unlink A/f; rename A/g A/f",
            // The removal waits for another name, in a directory that is not on the disk yet.
            "mkdir D; link A/f D/h; unlink A/x; unlink A/f; rename A/g A/f",
            "mkdir D; rename A/f D/f; unlink A/x; creat A/f; rename A/f A/g; rename D/f A/f",
        ] {
            scripts.push(format!("mkdir A; {made}; sync;; {steps}; fsync A/f"));
        }
    }
    scripts
}

/// Names so long that a block holds only four of them.
pub(super) fn long_name(number: usize) -> String {
    format!("{}{number}", "n".repeat(200))
}

/// Names in a new block of a directory, which is not on the disk yet. They are made there, moved
/// there and within the block, replace others and are exchanged, while names elsewhere are removed.
fn in_a_new_block() -> Vec<String> {
    let full: String = (0..4)
        .map(|n| format!("creat B/{}; ", long_name(n)))
        .collect();
    let (one, two, three) = (long_name(4), long_name(5), long_name(6));
    let steps = [
        "link A/g B/2; unlink A/g; fsync B/2",
        "link A/g B/2; rename B/2 B/3; unlink A/g; fsync B/3",
        "link A/g B/2; rename B/2 B/1; unlink A/g; fsync B/1",
        "link A/g B/2; exchange B/1 B/2; unlink A/g; fsync B/1",
        "link A/g B/2; link B/2 A/i; unlink A/g; unlink B/2; fsync A/i",
        "rename A/g B/1; fsync B/1",
        "rename A/d B/2; rename B/2 B/3; creat B/3/x; fsync B/3/x",
        "mkdir B/2; rename A/d B/2; fsync B/2",
        "link A/g B/2; unlink A/g; rename A/h B/2; fsync A",
    ];
    let named = |steps: &str| {
        let numbers = [("B/1", &one), ("B/2", &two), ("B/3", &three)];
        let start = steps.to_owned();
        numbers.iter().fold(start, |text, (short, long)| {
            text.replace(short, &format!("B/{long}"))
        })
    };
    let scripts = steps.iter().map(|steps| {
        format!(
            "mkdir A; creat A/g; creat A/h; mkdir A/d; mkdir B; {full}sync;; creat B/{one}; {}",
            named(steps)
        )
    });
    scripts.collect()
}

pub(super) fn index() -> Vec<String> {
    let names = |range: std::ops::Range<usize>| -> String {
        range
            .map(|n| format!("creat B/{}; ", long_name(n)))
            .collect()
    };
    let mut scripts = in_a_new_block();
    let name = long_name;
    let grown = format!("mkdir A; mkdir B; {}sync;; ", names(0..3));
    let large = format!("mkdir A; mkdir B; {}sync;; ", names(0..13));
    scripts.extend([
        format!(
            "{grown}creat B/{}; fsync B/{}; creat B/{}; fsync B",
            name(3),
            name(3),
            name(4)
        ),
        format!("{grown}{}fsync B; {}fsync B", names(3..6), names(6..9)),
        format!(
            "{large}unlink B/{}; unlink B/{}; creat B/x; fsync B/x",
            name(1),
            name(7)
        ),
        format!(
            "{large}rename B/{} B/{}; fsync B; rename B/{} A/x; fsync A/x",
            name(1),
            name(20),
            name(8)
        ),
        format!(
            "{large}creat B/{}; creat B/{}; fsync B; unlink B/{}; fsync B",
            name(20),
            name(21),
            name(20)
        ),
        format!(
            "{large}mkdir B/d; rename B/d A/d; fsync A/d; rename A/d B/{}; fsync B",
            name(20)
        ),
        format!(
            "{large}rename B/{} B/{}; creat B/{}; fsync B/{}",
            name(2),
            name(3),
            name(2),
            name(2)
        ),
        format!(
            "mkdir A; creat A/f; mkdir B; {}sync;; rename A/f B/{}; fsync B/{}; link B/{} A/f; fsync A",
            names(0..3),
            name(3),
            name(3),
            name(3)
        ),
    ]);
    scripts
}
