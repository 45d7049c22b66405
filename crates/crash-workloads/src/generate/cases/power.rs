//! Scripts about logs, and about several power cuts with work between them.

use super::own;

/// A block that looks like one of a journal: magic number, type (descriptor, commit record,
/// revocation), sequence number.
fn magic_block(kind: u8, sequence: u32) -> String {
    format!("hex:c03b3998{:08x}{sequence:08x}", u32::from(kind))
}

pub(super) fn log() -> Vec<String> {
    let mut scripts = own(&[
        // Blocks that are revoked, reused as contents, then as metadata, and revoked again.
        "mkdir D; creat D/x; sync;; creat D/y; fsync D/y; unlink D/x; unlink D/y; rmdir D; sync; creat f; write f 0 9000; fsync f; unlink f; sync; \
         mkdir E; creat E/x; fsync E/x; unlink E/x; rmdir E; sync; creat g; write g 0 9000; fsync g",
        // A block that two transactions revoke.
        "creat f; write f 13000 1000; fsync f; truncate f 0; fsync f; write f 13000 1000; fsync f; truncate f 0; fsync f; write f 0 9000; fsync f",
        "creat f; write f 300000 1000; fsync f; unlink f; fsync /; creat g; write g 0 5000; fsync g; unlink g; creat h; write h 300000 1000; fsync h; unlink h; sync; creat i; write i 0 9000; fsync i",
        // Freed before it is written home.
        "creat f; setxattr f user.a x; fsync f; removexattr f user.a; fsync f; creat g; write g 0 3000; fsync g; setxattr f user.a y; fsync f",
        "creat a; write a 0 3000; fsync a; unlink a; creat b; write b 0 3000; fsync b; rename b a; fsync a; write a 0 3000; fsync a",
        // Contents that look like blocks of a journal.
    ]);
    for kind in [1, 2, 5] {
        let block = magic_block(kind, 3);
        scripts.push(format!(
            "creat f; write f 0 {block}; fsync f; write f 1024 {block}; write f 0 100; fsync f; append f 3000; write f 2048 {block}; fsync f"
        ));
        scripts.push(format!(
            "creat f; write f 0 2000; sync;; write f 0 {block}; fsync f; creat g; write g 0 {block}; fsync g; unlink f; fsync /; write g 0 2000; fsync g"
        ));
    }
    // The tail moves between the logging of a block and its freeing.
    scripts.extend(own(&[
        "mkdir D; creat D/x; fsync D/x; unlink D/x; rmdir D; log-tail; log-tail; log-tail; fsync /; creat f; write f 0 3000; fsync f",
        "creat f; setxattr f user.a x; fsync f; removexattr f user.a; log-tail; log-tail; log-tail; fsync f; setxattr f user.a y; fsync f",
        "creat f; write f 13000 1000; fsync f; truncate f 0; log-tail; log-tail; log-tail; fsync f; write f 13000 1000; fsync f",
        "creat a; fsync a; creat b; log-tail; log-tail; fsync b; unlink a; log-tail; log-tail; creat c; log-tail; log-tail; fsync c",
        "mkdir D; creat D/x; fsync D/x; creat D/y; fsync D/y; creat D/z; log-tail; log-tail; log-tail; rename D/x D/w; log-tail; log-tail; fsync D",
        "log-blocks 32; mkdir D; creat D/x; fsync D/x; rmdir D; unlink D/x; rmdir D; log-tail; log-tail; creat f; fsync f; mkdir E; fsync E; rmdir E; log-tail; log-tail; fsync f",
    ]));
    // Revocations around the overflow of sequence numbers, where a larger number can be the earlier
    // one.
    for sequence in u32::MAX - 5..=u32::MAX {
        scripts.push(format!(
            "log-sequence {sequence}; mkdir D; creat D/x; fsync D/x; creat D/y; fsync D/y; unlink D/x; unlink D/y; rmdir D; fsync /; work; \
             creat f; write f 0 9000; fsync f; unlink f; fsync /; work; mkdir E; creat E/x; fsync E/x"
        ));
    }
    // Sequence numbers about to overflow, and a log that wraps three times.
    for sequence in [u32::MAX - 1, u32::MAX - 3, u32::MAX] {
        scripts.push(format!(
            "log-sequence {sequence}; creat f; write f 0 3000; fsync f; mkdir D; fsync D; rename f D/f; fsync D/f; creat g; write g 0 9000; fsync g; unlink g; fsync /; append D/f 3000; fsync D/f"
        ));
    }
    let mut wrapping =
        String::from("log-blocks 64; mkdir D; creat D/f; write D/f 0 20000; sync;; ");
    for round in 0..24 {
        let step = match round % 6 {
            0 => "write D/f 3000 9000; fsync D/f; ",
            1 => "creat D/g; write D/g 0 3000; fsync D/g; ",
            2 => "unlink D/g; creat D/h; write D/h 13000 2000; fsync D/h; ",
            3 => "truncate D/f 100; rename D/h D/g; fsync D/g; ",
            4 => "write D/f 0 16000; fsync D/f; ",
            _ => "unlink D/g; mkdir D/d; fsync D/d; rmdir D/d; fsync D; ",
        };
        wrapping.push_str(step);
    }
    scripts.push(wrapping.clone());
    scripts.push(format!("log-sequence {}; {wrapping}", u32::MAX - 9));
    scripts.extend(closed());
    scripts
}

/// Transactions that end in succession while none of them is written. What one of them waits for is
/// changed in the next, freed, and reused.
fn closed() -> Vec<String> {
    let steps = [
        "creat f; write f 0 3000; truncate f 2500; append f 2000; truncate f 100; write f 500 1000",
        "creat f; write f 0 3000; truncate f 0; creat g; write g 0 3000; truncate g 700; unlink f",
        "creat f; write f 0 3000; unlink f; creat g; write g 0 3000; unlink g; mkdir D; rmdir D; creat h; write h 0 3000",
        "mkdir D; creat D/x; unlink D/x; rmdir D; creat f; write f 0 9000; unlink f; mkdir E; creat E/x",
        "creat f; write f 13000 1000; truncate f 0; write f 13000 1000; punch f 12288 3000; write f 12500 1000; unlink f",
        "creat f; setxattr f user.a x; creat g; setxattr g user.a x; removexattr f user.a; unlink g; creat h; write h 0 3000",
        "creat a; write a 0 3000; creat b; write b 0 2000; rename b a; write a 1500 1000; unlink a; creat c; write c 0 5000",
        "creat f; write f 0 3000; unlink f; creat g; write g 0 3000; unlink g; creat h; write h 0 3000",
    ];
    let mut scripts = Vec::new();
    for steps in steps {
        let closed = steps.replace("; ", "; log-close; ");
        // The last step comes when the first transactions are committed and those between are not.
        let (first, last) = closed.rsplit_once("; log-close; ").unwrap_or(("", &closed));
        for rounds in ["round; round; ", "round; round; round; round; round; "] {
            scripts.push(format!("{first}; log-close; {rounds}{last}; fsync /"));
        }
        scripts.extend([
            format!("{closed}; log-close; sync"),
            // What the first of them wait for was in the log before.
            format!(
                "mkdir O; creat O/x; creat o; write o 0 9000; sync;; unlink o; unlink O/x; rmdir O; \
                 log-close; {closed}; fsync /"
            ),
        ]);
    }
    scripts
}

pub(super) fn crashes() -> Vec<String> {
    let scripts = own(&[
        "mkdir A; creat A/f; write A/f 0 9000; fsync A/f; creat g; crash; creat h; write h 0 3000; fsync h; rename h A/h; crash; unlink A/h; creat i; fsync i",
        "mkdir A; mkdir B; creat A/f; sync; rename A/f B/f; mkdir A/d; crash; creat A/x; fsync A/x; rename A/x B/x; crash; fsync B",
        "creat f; write f 0 20000; sync; truncate f 5000; crash; append f 3000; fsync f; truncate f 100; crash; append f 9000; fsync f",
        "creat f; setxattr f user.a x; fsync f; creat g; setxattr g user.a x; crash; setxattr f user.a y; fsync f; unlink f; crash; creat h; setxattr h user.a x; fsync h",
        "mkdir A; mkdir A/d; sync; mkdir B; rename A/d B/d; crash; mkdir C; rename B C/B; crash; creat x; fsync x",
        "creat f; write f 0 14000; sync; append f 2000; crash; creat g; write g 0 14000; fsync g; crash; append g 5000; fsync g",
        "creat f; open f; unlink f; creat g; write g 0 3000; crash; creat h; write h 0 9000; fsync h; crash; work; creat i; write i 0 3000; fsync i",
        "creat f; write f 0 3000; fsync f; append f 3000; crash; crash; append f 3000; fsync f; crash",
        "mkdir A; creat A/f; link A/f g; sync; unlink A/f; link g A/h; crash; link g A/i; unlink g; crash; fsync A",
        "mkdir A; creat A/f; write A/f 0 3000; remount sync; creat A/g; write A/g 0 3000; fsync A/g; rename A/g A/f; remount soft; append A/f 3000; fsync A/f; unlink A/f",
        "mkdir A; creat A/f; write A/f 0 3000; remount journal=full; write A/f 1000 3000; fsync A/f; creat A/g; remount journal=writeback; write A/g 0 3000; fsync A/g; \
         remount journal=ordered; unlink A/f; creat h; write h 0 3000; fsync h",
        "mkdir A; creat A/f; sync; rename A/f A/g; crash; remount; creat A/h; fsync A/h; crash; remount sync; creat i; crash; fsync A",
        // Of a directory's two names recovery removed one. That one is gone after a sync of the
        // directory in which it was, and after a sync of the directory whose name it was.
        "mkdir A; mkdir A/d; mkdir B; sync; rename A/d B/d; crash; fsync B/d; creat A/x; fsync A",
        // A truncation leaves bytes at the end of the last block until that is zeroed.
        "creat f; write f 0 900; sync; truncate f 100; crash; truncate f 700; fsync f",
        "creat f; write f 0 900; sync; truncate f 100; crash; append f 50; write f 500 100; fsync f",
        "creat f; write f 0 3000; sync; truncate f 2100; crash; write f 2600 1000; fsync f",
        // The inode's link count is too high by one.
        "mkdir A; creat A/f; link A/f g; sync; unlink A/f; crash; link g A/i; unlink g; fsync A",
        "mkdir A; mkdir B; creat A/f; link A/f g; sync; unlink A/f; crash; creat h; rename h g; link g B/i; rename A B/A; fsync B",
        "creat a; setxattr a user.a x; creat b; setxattr b user.a x; sync; unlink b; crash; setxattr a user.a y; fsync a; creat c; setxattr c user.a y; fsync c",
    ]);
    // Each script with several ways of cutting.
    let cut = |script: &String, way: u32| script.replace("crash;", &format!("crash {way};"));
    let ways = scripts
        .iter()
        .flat_map(|script| (0..6).map(move |way| cut(script, way)));
    let mut all: Vec<String> = ways.collect();
    all.dedup();
    all
}
