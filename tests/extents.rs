//! Images of ext4 are read like the kernel reads them, and never changed.

use backstitch_tests::command::{backstitch, run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::populate::{Ability, populate};
use backstitch_tests::random::Random;
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::tree::{Compare, Tree, expect_equal};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image, and the least depth of the tree of its most fragmented file.
struct Kind {
    name: &'static str,
    block_bytes: u64,
    /// Extents of the most fragmented file.
    extents: u64,
    depth: u32,
    options: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    // 4 nodes below the root, each with 84 entries, which have 84 each: depth 3 from 28,224 extents
    // on.
    Kind {
        name: "1k",
        block_bytes: 1024,
        extents: 30_000,
        depth: 3,
        options: &["-b", "1024"],
    },
    Kind {
        name: "4k",
        block_bytes: 4096,
        extents: 3000,
        depth: 2,
        options: &["-b", "4096"],
    },
    // Without the features that make descriptors larger; with checksums of the descriptors only.
    Kind {
        name: "32bit",
        block_bytes: 1024,
        extents: 1000,
        depth: 2,
        options: &["-b", "1024", "-O", "^64bit,^metadata_csum,uninit_bg"],
    },
    // Small groups, whose bitmaps are elsewhere; small inodes; no journal.
    Kind {
        name: "packed",
        block_bytes: 2048,
        extents: 2000,
        depth: 2,
        options: &[
            "-b",
            "2048",
            "-g",
            "1024",
            "-G",
            "8",
            "-I",
            "128",
            "-O",
            "^has_journal,metadata_csum_seed",
        ],
    },
];

/// The contents of the image's blocks before anything is written. A block that was never written
/// must not show them.
const GARBAGE: u8 = 0xa5;

fn make(scratch: &Scratch, kind: &Kind) -> Image {
    let mut arguments = vec!["-t", "ext4"];
    arguments.extend(kind.options);
    let name = format!("{}.img", kind.name);
    Image::mke2fs_over_garbage(scratch, &name, 160, GARBAGE, &arguments)
}

/// Files whose maps have all kinds of extents.
fn fill(dir: &Path, kind: &Kind) {
    let ability = Ability {
        block_bytes: kind.block_bytes,
        attributes: true,
        wide_times: !kind.options.contains(&"128"),
        large_files: true,
    };
    let seed = Random::seed(kind.name);
    let all = dir.join("all");
    fs::create_dir(&all).expect("cannot make a directory");
    populate(&all, seed, ability).expect("cannot fill the image");
    let mut random = Random::new(seed);
    let block = kind.block_bytes;
    let create = |name: &str| File::create(dir.join(name)).expect("cannot make a file");

    let fragmented = create("fragmented");
    for number in 0..kind.extents {
        let bytes = random.bytes(block as usize);
        let written = fragmented.write_all_at(&bytes, 2 * number * block);
        written.expect("cannot write");
    }
    // Unwritten extents, partly written, and some beyond the end.
    let reserved = create("reserved");
    fallocate(&reserved, FallocateFlags::empty(), 0, 400 * block).expect("cannot reserve");
    for number in [3, 100, 101, 399] {
        let written = reserved.write_all_at(&random.bytes(block as usize), number * block + 7);
        written.expect("cannot write");
    }
    let behind = FallocateFlags::KEEP_SIZE;
    fallocate(&reserved, behind, 500 * block, 50 * block).expect("cannot reserve");
    let punched = create("punched");
    let all = random.bytes(300 * block as usize);
    punched.write_all_at(&all, 0).expect("cannot write");
    for at in [5, 150] {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&punched, hole, at * block + 100, 20 * block).expect("cannot punch");
    }
    // Beyond the reach of pointers, and at the last byte that a tree can map.
    let far = create("far");
    for at in [
        0,
        1 << 32,
        (1 << 32) * block / 1024,
        ((1 << 32) - 2) * block,
    ] {
        far.write_all_at(b"far away", at).expect("cannot write");
    }
    let many = dir.join("many");
    fs::create_dir(&many).expect("cannot make a directory");
    for number in 0..3000 {
        let name = format!("a name of which there are many, number {number}");
        fs::write(many.join(name), "").expect("cannot make a file");
    }
}

/// The depth of a file's tree, as debugfs shows it: `0/ 2` is the root of a tree with two levels
/// below it.
fn depth(image: &Image, name: &str) -> u32 {
    let mut debugfs = tool("debugfs");
    let shown = run(debugfs
        .args(["-R", &format!("dump_extents -n {name}")])
        .arg(image.path()))
    .expect_success()
    .text();
    let root = shown
        .lines()
        .find_map(|line| line.trim().strip_prefix("0/"));
    let depth = root.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    depth.unwrap_or_else(|| panic!("no tree: {shown}"))
}

#[track_caller]
fn expect_unchanged(image: &Image, before: &[u8], what: &str) {
    assert!(image.bytes() == before, "{what} changed the image");
}

#[test]
fn files_of_ext4_are_what_the_kernel_says() {
    require!("backstitch", "fuse", "root", "loop", "mke2fs", "debugfs");
    for kind in KINDS {
        let scratch = Scratch::new(&format!("extents_{}", kind.name));
        let image = make(&scratch, kind);
        let dir = scratch.dir("mnt");
        let mounted = Mounted::by_kernel_as("ext4", &image, &dir, "");
        fill(&dir, kind);
        mounted.unmount();
        let mounted = Mounted::by_kernel_as("ext4", &image, &dir, "ro");
        let expected = Tree::capture(&dir);
        mounted.unmount();
        let deep = depth(&image, "fragmented");
        assert!(deep >= kind.depth, "{}: a depth of {deep} only", kind.name);

        let before = image.bytes();
        // No option asks for read-only: ext4 cannot be written, and the mount says why.
        let mounted = Mounted::under_test(&image, &dir, &Options::default());
        let what = format!("{}: the kernel's tree and ours", kind.name);
        expect_equal(
            &what,
            &expected,
            &Tree::capture(&dir),
            Compare::SameImageRead,
        );
        let refused = fs::write(dir.join("new"), "x").expect_err("wrote to ext4");
        assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
        mounted.unmount();
        expect_unchanged(&image, &before, "reading it");
    }
}

#[test]
fn what_would_write_ext4_is_refused() {
    require!("backstitch", "fuse", "root", "loop", "mke2fs");
    let scratch = Scratch::new("extents_refused");
    let image = make(&scratch, &KINDS[0]);
    let before = image.bytes();
    let file = scratch.path("file");
    fs::write(&file, "contents").expect("cannot write");
    let place = format!("{}:/file", image.path().display());
    let commands: [(&[&str], &str); 4] = [
        (&["fsck", "-n"], "-o ro"),
        (&["fsck", "-p"], "-o ro"),
        (&["fsck", "-y"], "-o ro"),
        (&["tune", "--label", "new"], "extent"),
    ];
    for (command, said) in commands {
        let outcome = run(backstitch().args(command).arg(image.path()));
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
        assert!(outcome.stderr.contains(said), "{}", outcome.describe());
        assert!(outcome.stderr.contains("extent"), "{}", outcome.describe());
        expect_unchanged(&image, &before, &command.join(" "));
    }
    let outcome = run(backstitch().arg("cp").arg(&file).arg(&place));
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    assert!(outcome.stderr.contains("extent"), "{}", outcome.describe());
    expect_unchanged(&image, &before, "cp");
}

/// The journal is replayed in memory only.
#[test]
fn ext4_with_a_journal_to_be_replayed_is_left_as_it_is() {
    require!("backstitch", "fuse", "root", "loop", "mke2fs");
    let scratch = Scratch::new("extents_journal");
    let image = make(&scratch, &KINDS[1]);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::by_kernel_as("ext4", &image, &dir, "noatime,commit=600");
    for number in 0..200_u32 {
        fs::write(dir.join(number.to_string()), vec![1; 5000]).expect("cannot write");
    }
    let root = File::open(&dir).expect("cannot open the root");
    rustix::fs::syncfs(&root).expect("cannot sync");
    drop(root);
    let expected = Tree::capture(&dir);
    // As a power cut leaves it: changes are in the journal, but not in their places.
    let image_after_cut = image.copy("cut.img");
    mounted.unmount();
    let image = image_after_cut;
    let info = run(tool("dumpe2fs").arg("-h").arg(image.path())).expect_success();
    assert!(info.text().contains("needs_recovery"), "nothing to replay");

    let before = image.bytes();
    for options in ["rw", "ro"] {
        let mounted = Mounted::under_test(&image, &dir, &Options::with(options));
        expect_equal(
            "the kernel's tree and the one after the cut",
            &expected,
            &Tree::capture(&dir),
            Compare::SameImageRead,
        );
        mounted.unmount();
        expect_unchanged(&image, &before, "a mount");
    }
    let outcome = run(backstitch().args(["fsck", "-p"]).arg(image.path()));
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    expect_unchanged(&image, &before, "fsck -p");
}
