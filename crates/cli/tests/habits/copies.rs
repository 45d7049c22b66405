//! File systems whose superblock is gone: they are found by the copies of it.

use crate::support::Bench;
use std::os::unix::fs::FileExt;

/// Where the superblock begins, its length, and where its magic number is in it.
const PLACES: [(&str, u64, usize, u64); 4] = [
    ("ext2", 1024, 1024, 56),
    ("ext3", 1024, 1024, 56),
    ("ufs1", 8192, 8192, 1372),
    ("ufs2", 65_536, 8192, 1372),
];

/// An image of this type with a file, whose superblock is zeroed: all of it, or the magic number.
fn damaged(bench: &Bench, (kind, place, len, magic): (&str, u64, usize, u64), is_all: bool) {
    bench.image("a.img", &format!("--force -t {kind}"));
    bench.shell("echo kept > f; $BACKSTITCH cp f a.img:/");
    let (offset, len) = match is_all {
        true => (place, len),
        false => (place + magic, if kind.starts_with("ext") { 2 } else { 4 }),
    };
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.path("a.img"));
    image.unwrap().write_all_at(&vec![0; len], offset).unwrap();
}

#[test]
fn a_repair_finds_each_layout_by_a_copy() {
    for place in PLACES {
        for is_all in [true, false] {
            let bench = Bench::new();
            damaged(&bench, place, is_all);
            let before = std::fs::read(bench.path("a.img")).unwrap();
            for (line, code) in [
                ("fsck -n a.img", 8),
                ("fsck -p a.img", 8),
                ("info a.img", 1),
            ] {
                let said = bench.line(line).refused(code).stderr;
                assert!(
                    said.contains("no superblock was found") && said.contains("fsck -y a.img"),
                    "{place:?}, {line}: {said}"
                );
            }
            assert!(std::fs::read(bench.path("a.img")).unwrap() == before);
            let repaired = bench.line("fsck -y a.img");
            let text = repaired.text();
            assert_eq!(repaired.code, 1, "{place:?}: {text}{}", repaired.stderr);
            assert!(text.contains("superblock"), "{place:?}: {text}");
            bench.line("fsck -n a.img").good();
            assert_eq!(bench.line("cat a.img:/f").good().text(), "kept\n");
        }
    }
}

/// The directory tree below a lost root says as much as one that can be reached.
#[test]
fn a_repair_finds_a_file_system_that_lost_its_root_too() {
    let bench = Bench::new();
    bench.image("a.img", "--force -t ext2 -b 1024 -s 32M");
    bench.shell(
        "mkdir d; for i in 1 2 3 4 5; do echo kept > d/$i; done; $BACKSTITCH cp -r d a.img:/",
    );
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.path("a.img"));
    // The superblock, the descriptors (and room for more), both bitmaps and the first four inodes.
    image
        .unwrap()
        .write_all_at(&[0; 132 << 10], 1 << 10)
        .unwrap();
    assert_eq!(bench.line("fsck -y a.img").code, 1);
    bench.line("fsck -n a.img").good();
    let found = bench.line("ls -R a.img:/lost+found").good().text();
    assert!(found.contains('5'), "{found}");
}

#[test]
fn where_two_layouts_find_copies_the_type_must_be_named() {
    let bench = Bench::new();
    // mkfs leaves what it does not write: the copies of the file system before.
    bench.image("a.img", "-t ext2 -b 1024");
    damaged(&bench, PLACES[3], true);
    let before = std::fs::read(bench.path("a.img")).unwrap();
    let refused = bench.line("fsck -y a.img").refused(8).stderr;
    for word in ["ext2", "ufs2", "-t TYPE"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    bench.line("fsck -y -t ext9 a.img").refused(16);
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before);
    assert_eq!(bench.line("fsck -y -t ufs2 a.img").code, 1);
    // It has a superblock now, which counts.
    let other = bench.line("fsck -y -t ext2 a.img").refused(8).stderr;
    assert!(other.contains("it holds ufs2"), "{other}");
    assert_eq!(bench.line("cat a.img:/f").good().text(), "kept\n");
}

#[test]
fn what_never_was_a_file_system_is_left_alone() {
    let bench = Bench::new();
    bench.shell("head -c 3000000 /dev/urandom > a.img; truncate -s 20M zeros.img");
    for image in ["a.img", "zeros.img"] {
        let before = std::fs::read(bench.path(image)).unwrap();
        let refused = bench.line(&format!("fsck -y {image}")).refused(8).stderr;
        assert!(refused.contains("no copy of one"), "{refused}");
        assert!(std::fs::read(bench.path(image)).unwrap() == before);
    }
}

/// An ext2 of one group has no copy of its superblock; an older UFS has left some.
#[test]
fn copies_of_an_earlier_file_system_are_not_put_over_a_good_one() {
    let bench = Bench::new();
    for kind in ["ufs1", "ufs2"] {
        bench
            .line(&format!("mkfs -q --force -s 32M -t {kind} a.img"))
            .good();
        bench.line("mkfs -q --force -t ext2 -b 4096 a.img").good();
        bench.shell("seq 100000 > f; $BACKSTITCH cp f a.img:/");
        bench.shell("dd if=/dev/zero of=a.img bs=1024 seek=1 count=1 conv=notrunc status=none");
        let before = std::fs::read(bench.path("a.img")).unwrap();
        let refused = bench.line("fsck -y a.img").refused(8).stderr;
        assert!(refused.contains("-t ufs"), "{refused}");
        assert!(
            std::fs::read(bench.path("a.img")).unwrap() == before,
            "{kind}"
        );
    }
}

/// What is recognised as somebody else's is not repaired as ours, whatever copies lie behind it.
#[test]
fn copies_are_not_put_over_what_others_know() {
    let bench = Bench::new();
    let mut table = [0; 512];
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    for (first, named) in [(&b"XFSB"[..], "XFS"), (&table[..], "partition table")] {
        bench
            .line("mkfs -q --force -s 32M -t ext2 -b 1024 a.img")
            .good();
        let mut bytes = std::fs::read(bench.path("a.img")).unwrap();
        bytes[..4096].fill(0);
        bytes[..first.len()].copy_from_slice(first);
        std::fs::write(bench.path("a.img"), &bytes).unwrap();
        let refused = bench.line("fsck -y a.img").refused(8).stderr;
        assert!(
            refused.contains(named) && refused.contains("-t TYPE"),
            "{refused}"
        );
        assert!(
            std::fs::read(bench.path("a.img")).unwrap() == bytes,
            "{named}"
        );
        // Whoever knows better says so.
        assert_eq!(bench.line("fsck -y -t ext2 a.img").code, 1);
    }
}
