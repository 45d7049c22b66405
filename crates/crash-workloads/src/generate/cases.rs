//! Named families of scripts. Each consists of a few operations around one subject that random
//! workloads seldom reach.
//!
//! In a script, what comes before `;;` is done first and not looked at. Blocks have 1024 bytes: the
//! inode maps twelve, an indirect block 256 more, and a double and a triple one those after that.

mod fragments;
mod names;
mod power;

use crate::ace::Workload;
use backstitch_crash_core::operation::parse_script;

/// A family: its name, its subject, and its scripts.
pub struct Family {
    /// Its name on the command line.
    pub name: &'static str,
    /// What its scripts do, in a few words.
    pub about: &'static str,
    scripts: fn() -> Vec<String>,
}

/// All families.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "fsync",
        about: "each kind of change between two calls of fsync, fdatasync or sync",
        scripts: flushes,
    },
    Family {
        name: "indirect",
        about: "blocks behind single, double and triple indirect blocks: made, extended, cut, made again",
        scripts: indirect,
    },
    Family {
        name: "attributes",
        about: "attribute blocks: changed in place, shared by two and three files, unshared, freed; access lists",
        scripts: attributes,
    },
    Family {
        name: "links",
        about: "three names of a file, removed in every order and made again; renames over them",
        scripts: names::links,
    },
    Family {
        name: "moves",
        about: "names exchanged, directories moved up and down",
        scripts: names::moves,
    },
    Family {
        name: "index",
        about: "directories of several blocks, whose index splits",
        scripts: names::index,
    },
    Family {
        name: "reuse",
        about: "blocks and inodes that are freed and used again, as something else",
        scripts: reuse,
    },
    Family {
        name: "full",
        about: "an image that is nearly full: what is freed is used again at once, as something else",
        scripts: full,
    },
    Family {
        name: "orphans",
        about: "files without names that are open, and those that are made so",
        scripts: orphans,
    },
    Family {
        name: "cuts",
        about: "truncations, and growth behind them",
        scripts: cuts,
    },
    Family {
        name: "holes",
        about: "holes, filled and punched, and space that is reserved",
        scripts: holes,
    },
    Family {
        name: "fragments",
        about: "files and directories that end within a block of several fragments: growth, moves, cuts",
        scripts: fragments::fragments,
    },
    Family {
        name: "log",
        about: "journals that wrap, revoke, meet their own magic number, or come to the end of their sequence numbers",
        scripts: power::log,
    },
    Family {
        name: "crashes",
        about: "crashes, with work between them, and mounts with another mechanism",
        scripts: power::crashes,
    },
];

impl Family {
    /// The family of this name.
    pub fn named(name: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// Its workloads.
    pub fn workloads(&self) -> Vec<Workload> {
        let scripts = (self.scripts)();
        let workloads = scripts.iter().enumerate().map(|(number, text)| {
            let parse = |part: &str| parse_script(part).expect("a script of our own");
            let (setup, rest) = text.split_once(";;").unwrap_or(("", text));
            let mut operations = parse(setup);
            let setup = operations.len();
            operations.extend(parse(rest));
            Workload {
                name: format!("{}/{}", self.name, number + 1),
                operations,
                setup,
            }
        });
        workloads.collect()
    }
}

/// The workloads of all families.
pub fn cases() -> Vec<Workload> {
    FAMILIES.iter().flat_map(Family::workloads).collect()
}

fn own(scripts: &[&str]) -> Vec<String> {
    scripts.iter().map(|script| (*script).to_owned()).collect()
}

/// A file that was removed. Its old contents must not show in other files.
const REMAINS: &str = "creat old; write old 0 40000; sync; unlink old; sync; ";

/// How many steps of deferred work with nothing to do take a second of the explorer's clock.
const WORK_OF_A_SECOND: usize = 60;

/// Each change to a file or directory is made and flushed twice. If the file system does not note
/// the second change for the flush, it is missing after a crash.
fn flushes() -> Vec<String> {
    let changes = [
        ("setxattr foo user.a x", "setxattr foo user.a y"),
        ("setxattr foo user.a x", "setxattr foo user.b y"),
        ("setxattr foo user.a x", "removexattr foo user.a"),
        (
            "setxattr foo user.a x; setxattr bar user.a x",
            "setxattr foo user.a y",
        ),
        (
            "setxattr foo user.a x; setxattr bar user.a y",
            "setxattr foo user.a y",
        ),
        ("write foo 0 3000", "write foo 1000 1000"),
        ("write foo 0 3000", "write foo 500 100"),
        ("write foo 0 3000", "append foo 100"),
        ("write foo 0 3000", "append foo 3000"),
        ("write foo 0 3000", "write foo 20000 100"),
        ("write foo 0 13000", "append foo 2000"),
        ("write foo 13000 1000", "write foo 14000 1000"),
        ("write foo 300000 1000", "write foo 310000 3000"),
        ("write foo 300000 1000", "write foo 301000 100"),
        ("write foo 0 20000", "write foo 13000 1000"),
        ("write foo 0 20000", "truncate foo 15000"),
        ("write foo 0 20000", "truncate foo 500"),
        ("write foo 0 3000", "truncate foo 0"),
        ("write foo 0 3000", "truncate foo 9000"),
        ("write foo 0 3500", "punch foo 1024 1024"),
        ("write foo 0 20000", "punch foo 0 17000"),
        ("write foo 0 3500", "zero foo 100 2000"),
        ("write foo 0 100", "falloc foo 0 9000"),
        ("write foo 8000 100", "falloc-keep foo 0 5000"),
        ("write foo 0 100", "chmod foo 600"),
        ("chmod foo 600", "chmod foo 644"),
        ("write foo 0 100", "chown foo 7 8"),
        ("write foo 0 100", "utimes foo 1000 2000"),
        ("utimes foo 1000 2000", "utimes foo 1000 3000"),
        ("write foo 0 100", "link foo A/l"),
        ("link foo A/l", "unlink A/l"),
        ("link foo A/l", "unlink A/l; link foo B/l"),
        ("write foo 0 100", "rename foo A/m; rename A/m foo"),
    ];
    let mut scripts = Vec::new();
    for (first, second) in changes {
        for flush in ["fsync foo", "fdatasync foo", "sync"] {
            scripts.push(format!(
                "mkdir A; mkdir B; creat foo; creat bar; sync;; {first}; {flush}; {second}; {flush}"
            ));
        }
    }
    // The second change comes a second later, since its time must differ from the first one's.
    let second = "work; ".repeat(WORK_OF_A_SECOND);
    for change in ["utimes foo 1000 2000", "write foo 0 1000", "chmod foo 600"] {
        for flush in ["fsync foo", "sync"] {
            scripts.push(format!(
                "creat foo; write foo 0 3000; sync; {second};; {change}; {flush}; {change}; {flush}"
            ));
        }
    }
    let names = [
        ("creat A/x", "creat A/y", "A"),
        ("creat A/x", "creat A/y", "A/y"),
        ("creat A/x", "rename A/x A/y", "A"),
        ("creat A/x", "rename A/x A/y", "A/y"),
        ("creat A/x", "rename A/x B/y", "B/y"),
        ("creat A/x", "rename A/x B/y", "B"),
        ("creat A/x", "rename A/x B/y", "A"),
        ("mkdir A/x", "rename A/x B/x", "A"),
        ("creat A/x; creat B/y", "rename A/x B/y", "A"),
        ("creat A/x; creat B/y", "rename A/x B/y", "B"),
        ("creat A/x; link A/x B/y", "unlink A/x", "A"),
        ("creat A/x; link A/x B/y", "unlink A/x", "B/y"),
        ("creat A/x", "link A/x B/y", "A/x"),
        ("creat A/x", "unlink A/x; creat A/x", "A/x"),
        ("creat A/x; creat A/y", "rename A/x A/y", "A/y"),
        ("mkdir A/x", "mkdir A/x/y; creat A/x/y/z", "A/x/y/z"),
        ("mkdir A/x", "rename A/x B/x; creat B/x/z", "B/x/z"),
        ("mkdir A/x", "rename A/x B/x", "B/x"),
        ("mkdir A/x; creat A/x/z", "rename A/x B/x", "B/x/z"),
        ("symlink target A/x", "rename A/x B/x", "B"),
        ("creat A/x; creat B/x", "exchange A/x B/x", "A"),
        ("creat A/x", "chmod A 700", "A"),
        ("creat A/x", "setxattr A user.a x", "A"),
        ("creat A/x; setxattr A user.a x", "setxattr A user.a y", "A"),
        ("creat A/x", "setacl A", "A"),
        ("setacl A; creat A/x", "creat A/y", "A/y"),
        ("setacl A; creat A/x", "chmod A/x 600", "A/x"),
        ("setacl A; mkdir A/x", "creat A/x/y", "A/x/y"),
    ];
    for (first, second, subject) in names {
        scripts.push(format!(
            "mkdir A; mkdir B; sync;; {first}; fsync A; {second}; fsync {subject}"
        ));
    }
    scripts
}

/// The offsets at which indirect blocks of each depth begin to map, in bytes.
const DEPTHS: [(&str, u64); 3] = [
    ("single", 12 << 10),
    ("double", 268 << 10),
    ("triple", 65_804 << 10),
];

/// Bytes that one indirect block maps.
const LEAF: u64 = 256 << 10;

fn indirect() -> Vec<String> {
    let mut scripts = Vec::new();
    for (name, base) in DEPTHS {
        let at = |offset: u64| base + offset;
        let made = format!("creat foo; write foo {} 1000; sync;; ", at(0));
        let deep = name != "single";
        scripts.extend([
            // A new indirect block: alone, across the border, beyond a hole.
            format!("{REMAINS}creat foo; sync;; write foo {} 1000", at(0)),
            format!("{REMAINS}creat foo; sync;; write foo {} 3000; fsync foo", base - 1500),
            format!("creat foo;; write foo {} 1000; fsync foo; write foo 0 1000; fsync foo", at(9000)),
            // Growth by an entry of an existing leaf.
            format!("{REMAINS}{made}write foo {} 3000", at(10_000)),
            format!("{made}write foo {} 3000; fsync foo", at(10_000)),
            format!("{made}append foo 3000; fdatasync foo; append foo 2000; fdatasync foo"),
            // A new entry below the size.
            format!("{REMAINS}creat foo; write foo {} 1000; sync;; write foo {} 3000; fsync foo", at(20_000), at(5000)),
            format!("creat foo; write foo {} 1000; sync;; falloc foo {} 3000; fsync foo", at(20_000), at(5000)),
            // Truncation: within a block, between blocks, with the indirect block itself.
            format!("creat foo; write foo {} 6000; sync;; truncate foo {}; fsync foo", at(0), at(2500)),
            format!("creat foo; write foo {} 6000; sync;; truncate foo {}; fsync foo", at(0), at(0)),
            format!("creat foo; write foo {} 6000; sync;; truncate foo 0; fsync foo", at(0)),
            // Truncation, then growth in the same unit beyond it.
            format!("creat foo; write foo {} 6000; sync;; truncate foo {}; write foo {} 3000; fsync foo", at(0), at(2500), at(4000)),
            format!("creat foo; write foo {} 6000; sync;; truncate foo {}; append foo 3000", at(0), at(2500)),
            format!("creat foo; write foo {} 6000; sync;; truncate foo 0; write foo {} 3000; fsync foo", at(0), at(1000)),
            format!("creat foo; write foo {} 6000; sync;; truncate foo 100; work; write foo {} 3000; creat bar; write bar 0 9000; fsync bar", at(0), at(1000)),
            // Holes in a leaf, and a leaf that is freed with its last block.
            format!("creat foo; write foo {} 6000; sync;; punch foo {} 2048; write foo {} 3000; fsync foo", at(0), at(1024), at(2000)),
            format!("creat foo; write foo {} 3000; append foo 100; sync;; punch foo {} 5000; fsync foo; write foo {} 2000; fsync foo", at(0), at(0), at(1024)),
            // Two files grow in turn, in the same units of the block bitmap.
            format!("creat foo; creat bar; sync;; write foo {} 1000; write bar {} 1000; fsync bar; unlink bar; fsync foo", at(0), at(0)),
            format!("creat foo; write foo {} 2000; sync;; unlink foo; creat bar; write bar 0 3000; fsync bar", at(0)),
        ]);
        if deep {
            scripts.extend([
                // A second leaf next to the existing one, and removal of the first one.
                format!("{REMAINS}{made}write foo {} 1000; fsync foo", at(LEAF + 100)),
                format!("creat foo; write foo {} 1000; write foo {} 1000; sync;; punch foo {} 2000; write foo {} 1000; fsync foo", at(0), at(LEAF), at(0), at(2048)),
                format!("creat foo; write foo {} 1000; write foo {} 1000; sync;; truncate foo {}; write foo {} 2000; fsync foo", at(0), at(LEAF), at(1024), at(LEAF + 2000)),
                format!("{made}write foo {} 3000; fsync foo", at(LEAF - 1500)),
            ]);
        }
    }
    scripts
}

fn attributes() -> Vec<String> {
    let long = "v".repeat(400);
    let shared = "creat a; creat b; creat c; setxattr a user.a x; setxattr b user.a x; setxattr c user.a x; sync;; ";
    let mut scripts: Vec<String> = [
        "setxattr a user.a y; fsync a; setxattr b user.a y; fsync b; setxattr c user.a y; fsync c",
        "removexattr a user.a; fsync a; removexattr b user.a; fsync b; removexattr c user.a; fsync c",
        "unlink a; unlink b; setxattr c user.a y; fsync c",
        "unlink a; sync; unlink b; sync; setxattr c user.a y; fsync c; setxattr c user.a z; fsync c",
        "setxattr b user.b y; setxattr b user.a z; fsync b; setxattr b user.a x; removexattr b user.b; fsync b",
        "removexattr a user.a; work; creat d; setxattr d user.a x; fsync d; unlink b; unlink c; work; sync",
        "removexattr a user.a; removexattr b user.a; removexattr c user.a; setxattr a user.a x; fsync a",
        "rename a b; fsync b; setxattr b user.a y; fsync b",
    ]
    .map(|rest| format!("{shared}{rest}"))
    .to_vec();
    scripts.extend([
        format!("creat a; sync;; setxattr a user.a {long}; fsync a; setxattr a user.b {long}; fsync a; removexattr a user.a; fsync a"),
        format!("creat a; setxattr a user.a {long}; sync;; removexattr a user.a; sync; creat b; write b 0 3000; fsync b; setxattr a user.a x; fsync a"),
        format!("{REMAINS}creat a; sync;; setxattr a user.a x; creat b; setxattr b user.a x; unlink a; fsync b"),
    ]);
    scripts.extend(own(&[
        "creat foo;; setxattr foo user.a x; fsync foo; setxattr foo user.a y; fsync foo",
        "creat a; creat b; setxattr a user.a x; setxattr b user.a y; sync;; setxattr b user.a x; fsync b; setxattr a user.a y; fsync a",
        "creat a; creat b; setxattr a user.a x; sync;; setxattr b user.a x; setxattr b user.a y; setxattr b user.a x; fsync b",
        "creat a; setxattr a user.a x; sync;; unlink a; creat b; setxattr b user.a x; fsync b",
        "creat a; setxattr a user.a x; sync;; setxattr a user.a y; creat b; setxattr b user.a y; removexattr a user.a; sync; unlink b",
        "mkdir A; setacl A; sync;; creat A/f; fsync A/f; chmod A/f 600; fsync A/f; chmod A/f 640; fsync A/f",
        "mkdir A; setacl A; sync;; mkdir A/d; creat A/d/f; creat A/g; fsync A/g; unlink A/d/f; rmdir A/d; fsync A",
        "mkdir A; setacl A; creat A/f; creat A/g; sync;; chmod A/f 600; fsync A/f; setxattr A/g user.a x; fsync A/g; unlink A/f",
        "mkdir A; setxattr A user.a x; creat b; setxattr b user.a x; sync;; setxattr A user.a y; fsync A; rmdir A; setxattr b user.a y; fsync b",
        "creat a; setxattr a user.a x; sync;; chown a 5 6; setxattr a user.a y; chmod a 600; fsync a",
    ]));
    scripts
}

fn reuse() -> Vec<String> {
    let mut scripts = own(&[
        // A block becomes a part of a file, a directory, an attribute block, an indirect block, and
        // a file again.
        "creat f; write f 0 9000; sync;; unlink f; sync; mkdir D; creat D/x; fsync D/x; unlink D/x; rmdir D; sync; creat g; setxattr g user.a x; fsync g; unlink g; sync; \
         creat h; write h 13000 1000; fsync h; unlink h; sync; creat i; write i 0 9000; fsync i",
        "mkdir D; creat D/x; sync;; unlink D/x; rmdir D; sync; creat f; write f 0 20000; fsync f; truncate f 0; sync; mkdir E; creat E/x; fsync E/x",
        "creat f; write f 0 20000; sync;; truncate f 0; fsync f; creat g; write g 0 20000; fsync g; unlink f; fsync g",
        "creat f; write f 0 20000; sync;; truncate f 5000; creat g; write g 0 9000; fsync g; append f 9000; fsync f",
        "creat f; write f 0 20000; sync;; unlink f; work; creat g; write g 0 3000; fsync g; mkdir D; fsync D; creat D/h; write D/h 0 20000; fsync D/h",
        "creat f; setxattr f user.a x; sync;; unlink f; work; creat g; fsync g; creat h; write h 0 3000; fsync h",
        "mkdir A; creat A/f; creat A/g; sync;; unlink A/f; unlink A/g; work; creat A/h; fsync A/h; creat A/i; fsync A/i; mkdir A/j; fsync A/j",
        "mkdir A; mkdir A/d; sync;; rmdir A/d; work; creat A/f; write A/f 0 3000; fsync A/f; unlink A/f; work; mkdir A/d; fsync A/d",
        "creat f; write f 0 3000; fsync f; unlink f; work; sync; creat g; write g 0 3000; fsync g; unlink g; work; sync; mkdir D; sync",
        "creat a; write a 0 5000; creat b; sync;; truncate a 0; work; write b 0 5000; fsync b; write a 0 5000; fsync a",
        "creat a; write a 0 20000; creat b; sync;; punch a 0 16384; work; write b 0 14000; fsync b; write a 0 3000; fsync a",
        "symlink tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt s; sync;; unlink s; sync; creat f; write f 0 2000; fsync f; unlink f; sync; \
         symlink uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu s; fsync s",
    ]);
    scripts.push(format!("{REMAINS};; mkdir D; creat D/f; write D/f 0 14000; setxattr D/f user.a x; fsync D/f; mkdir E; fsync E"));
    scripts
}

/// Nearly full images: elsewhere a freed block is seldom the next one to be used.
fn full() -> Vec<String> {
    let scripts = [
        // An attribute block, and all blocks of one file, become contents of another file.
        "setxattr f user.a y; fsync f; removexattr f user.a; fsync f; write g 0 18000; fsync g",
        "setxattr f user.a y; fsync f; unlink f; fsync /; write g 0 18000; fsync g",
        "write f 0 13500; fsync f; truncate f 0; fsync f; write g 0 18000; fsync g",
        "write f 0 13500; fsync f; unlink f; fsync /; write g 0 18000; fsync g",
        "mkdir D/E; creat D/E/x; fsync D/E/x; unlink D/E/x; rmdir D/E; fsync D; write g 0 18000; fsync g",
        // Contents become a directory, an attribute block, an indirect block.
        "write f 0 12000; fsync f; truncate f 0; fsync f; mkdir D/E; setxattr D/E user.b z; write g 13000 1000; fsync g; fsync D/E",
        // A file without a name is closed in a later transaction than the one that removed the
        // name.
        "write f 0 9000; fsync f; open f; unlink f; fsync /; close #1; work; write g 0 18000; log-close; sync",
        // Reuse within one transaction, and in consecutive ones.
        "write f 0 12000; fsync f; unlink f; work; write g 0 12000; unlink g; work; creat h; write h 0 12000; fsync h",
        "write f 0 12000; unlink f; work; write g 0 12000; fsync g; truncate g 0; creat h; write h 0 12000; fsync h",
    ];
    let setup = "few-blocks 26; creat f #1; setxattr f user.a x; creat g; mkdir D; sync;;";
    let scripts = scripts.iter();
    scripts.map(|rest| format!("{setup} {rest}")).collect()
}

/// Orphans whose inodes are in many blocks of the table, and a log so short that their recovery
/// takes several transactions.
fn spread_orphans() -> String {
    let each = |what: &str, step: usize| -> String {
        let files = (0..64).step_by(step);
        files.map(|file| format!("{what} f{file}; ")).collect()
    };
    let (made, opened, gone) = (each("creat", 1), each("open", 8), each("unlink", 8));
    format!("log-blocks 32; {made}{opened}sync;; {gone}log-close; sync")
}

fn orphans() -> Vec<String> {
    let mut scripts = own(&[
        "creat f #1; write f 0 20000; sync;; open f; unlink f; fsync /; close #1; work; creat g; write g 0 9000; fsync g",
        "mkdir A; creat A/f; creat A/g; write A/g 0 9000; sync;; open A/f; open A/g; unlink A/f; unlink A/g; rmdir A; sync; creat h; write h 0 3000; fsync h",
        "creat f; creat g; write g 0 3000; sync;; open g; rename f g; fsync g; creat h; write h 0 3000; fsync h",
        "creat a; creat b; creat c; sync;; open a; open b; open c; unlink b; sync; unlink a; unlink c; sync; creat d; fsync d",
        "creat f; link f g; sync;; open f; unlink f; unlink g; fsync /; creat f; write f 0 3000; fsync f",
        "creat f; setxattr f user.a x; creat g; setxattr g user.a x; sync;; open f; unlink f; sync; setxattr g user.a y; fsync g",
        "creat f; write f 0 20000; sync;; truncate f 100; unlink f; sync; creat g; write g 0 20000; fsync g",
        // A file is closed in a later transaction than the one that removed its name, and the log
        // has no copy of its indirect block any more. Recovery relies on that block until the
        // freeing is committed.
        "creat f #1; creat g; write f 12288 3000; sync;; open f; unlink f; sync; log-tail; log-tail; close #1; work; write g 0 18000; \
         log-close; sync",
        // Files that are made without a name. They get one at once, after a flush, in a later
        // transaction, in another directory, after changes of every kind, or never.
        "mkdir A; sync;; tmpfile A #1; write #1 0 5000; link #1 A/f; close #1; fsync A",
        "creat g; write g 0 9000; sync;; unlink g; fsync /; tmpfile / #1; write #1 0 5000; fsync #1; link #1 f; fsync #1; close #1",
        "mkdir A; sync;; tmpfile A #1; write #1 0 15000; log-close; sync; truncate #1 2000; append #1 3000; log-close; link #1 f; \
         log-close; link #1 A/g; unlink f; sync; close #1",
        "mkdir A; sync;; tmpfile A #1; write #1 0 2000; round; write #1 500 100; chmod #1 600; setxattr #1 user.a x; link #1 f; round; \
         fsync f; close #1; work",
        "creat g; sync;; tmpfile / #1; write #1 0 14000; sync; close #1; work; write g 0 18000; log-close; fsync g",
        "creat g; sync;; tmpfile / #1; write #1 0 14000; close #1; work; creat f; write f 0 18000; fsync f",
        "sync;; tmpfile / #1; write #1 0 3000; link #1 f; sync; close #1; work; unlink f; fsync /; creat g; write g 0 9000; fsync g",
        "sync;; tmpfile / #1; write #1 0 3000; link #1 f; unlink f; write #1 0 9000; sync; close #1; work; creat g; write g 0 9000",
    ]);
    scripts.push(spread_orphans());
    scripts
}

fn cuts() -> Vec<String> {
    let mut scripts = Vec::new();
    for cut in [0, 100, 1024, 2500, 12_288, 13_000] {
        let made = "creat f; write f 0 16000; sync;; ";
        for grown in [
            "append f 500",
            "append f 3000",
            "truncate f 16000",
            "write f 14000 1000",
            "falloc f 3000 12000",
        ] {
            scripts.push(format!("{made}truncate f {cut}; {grown}; fsync f"));
        }
        scripts.push(format!(
            "{made}truncate f {cut}; fsync f; append f 3000; fsync f"
        ));
        scripts.push(format!(
            "{made}truncate f {cut}; append f 700; truncate f {cut}; append f 1500"
        ));
    }
    // A file so long that its truncation takes several steps, with something else after the first
    // one.
    let long = "creat f; write f 0 900; write f 68000000 1000; write f 136000000 1000; sync;; ";
    for rest in [
        "truncate f 100; truncate f 700; fsync f",
        "truncate f 100; append f 500; fsync f",
        "truncate-step f 100; log-close; cut; truncate f 700; fsync f",
        "truncate-step f 100; log-close; sync; crash 2; truncate f 700; fsync f",
        "truncate-step f 100; unlink f; log-close; creat g; write g 0 3000; fsync g",
        "open f; unlink f; log-close; work; creat g; write g 0 3000; fsync g",
        "punch f 0 136002000; write f 500 100; fsync f",
    ] {
        scripts.push(format!("{long}{rest}"));
    }
    scripts.extend(own(&[
        "creat f; write f 0 3000; sync;; truncate f 2000; truncate f 4000; truncate f 2500; append f 100; fsync f",
        "creat f; write f 0 3000; sync;; truncate f 2500; fsync f; write f 2800 100; fsync f; truncate f 2600; truncate f 5000; fsync f",
        "creat f; write f 0 3000; sync;; append f 50; truncate f 2990; append f 2000; truncate f 100; write f 2000 100; fdatasync f",
        "creat f; write f 0 700; sync;; append f 100; append f 100; truncate f 750; append f 30; fsync f",
        "creat f; write f 0 700; sync;; write f 900 100; fsync f; truncate f 600; fdatasync f; write f 800 100; fdatasync f",
        // Sizes that differ first in one byte, then in another.
        "creat f; write f 0 14000; sync;; truncate f 11776; append f 3072; append f 1",
    ]));
    scripts
}

fn holes() -> Vec<String> {
    own(&[
        // Writes beyond the end, where on the disk the file is still longer and has zeros.
        "creat a; falloc a 0 6000; creat b; sync;; truncate a 5500; engage 1; creat x; disengage 1; depend 2 1; engage 2; write a 5600 300; disengage 2",
        "creat a; falloc a 0 6000; creat b; sync;; truncate a 5500; engage 1; write b 0 900; disengage 1; depend 2 1; engage 2; append a 300; disengage 2; sync-group 2",
        "creat f; write f 0 9000; sync;; punch f 1024 3072; fsync f; write f 2048 100; fsync f; punch f 0 9000; fsync f",
        "creat f; write f 0 9000; sync;; punch f 500 1000; punch f 1500 1000; fsync f; truncate f 1600; append f 3000; fsync f",
        "creat f; write f 5000 100; sync;; falloc f 0 5000; fsync f; write f 1000 1000; fsync f; truncate f 500; fsync f",
        "creat f; write f 0 100; sync;; falloc-keep f 0 9000; fsync f; append f 3000; fsync f; truncate f 9000; fsync f",
        "creat f; write f 0 100; sync;; falloc f 0 20000; fdatasync f; write f 15000 1000; fdatasync f; punch f 12288 5000; fsync f",
        "creat f; write f 0 20000; sync;; zero f 1000 15000; fsync f; zero-keep f 10000 20000; fsync f",
        "creat f; truncate f 20000; sync;; write f 15000 1000; fsync f; falloc f 13000 4000; fsync f; punch f 13000 4000; fsync f",
        "creat old; write old 0 40000; sync; unlink old; sync; creat f; write f 0 100; sync;; falloc f 0 9000; fsync f; truncate f 20000; fsync f",
        "creat f; write f 3000 100; sync;; write f 0 100; write f 2000 100; fdatasync f; append f 1000; fsync f",
        "creat f; truncate f 500; sync;; write f 100 50; truncate f 3000; write f 2900 50; append f 100; fsync f",
        "creat f; truncate f 500; sync;; write f 100 50; append f 100; fsync f; truncate f 3000; write f 2900 100; fsync f",
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scripts_are_different_and_have_names() {
        let all = cases();
        let scripts: BTreeSet<String> = all
            .iter()
            .map(|workload| backstitch_crash_core::operation::script(&workload.operations))
            .collect();
        assert_eq!(scripts.len(), all.len());
        let names: BTreeSet<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for family in FAMILIES {
            assert_eq!(
                Family::named(family.name).map(|f| f.name),
                Some(family.name)
            );
            assert!(family.workloads().len() >= 7, "{}", family.name);
        }
    }
}
