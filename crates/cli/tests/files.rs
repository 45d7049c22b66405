//! The file commands on images, checked by e2fsck and by what the host shows.

use crate::support;
use crate::support::{Bench, is_root, listing};

/// A tree with everything a user without root can make.
const TREE: &str = "mkdir -p src/d/e src/empty
    echo hello > src/a; ln src/a src/d/also
    ln -s ../a src/d/link; ln -s /nowhere src/dangling
    mkfifo src/fifo
    truncate -s 300K src/hole; printf x | dd of=src/hole bs=1 seek=200000 conv=notrunc status=none
    head -c 3000000 /dev/urandom > src/large
    chmod 4751 src/d/also; chmod 600 src/hole; chmod 1777 src/empty
    touch -d '1965-03-04 05:06:07.25 UTC' src/d/e
    touch -h -d '2033-01-01 00:00:00.125 UTC' src/dangling
    i=0; while [ $i -lt 300 ]; do echo $i > src/d/e/file-number-$i; i=$((i+1)); done
    touch -d '2001-02-03 04:05:06 UTC' src/d/e";

#[test]
fn a_tree_comes_back_as_it_went_in() {
    let bench = Bench::new();
    bench.shell(TREE);
    for options in ["-b 1024", "-b 4096", "-I 128 -b 2048"] {
        bench.image("a.img", options);
        bench.line("cp -a src a.img:/").good();
        bench.check("a.img");
        bench.shell("rm -rf out");
        bench.line("cp -a a.img:/src out").good();
        let (went, came) = (listing(&bench.path("src")), listing(&bench.path("out")));
        if options.contains("-I 128") {
            // Such inodes have no room for parts of a second, nor for times past 2038 in all of
            // them.
            assert_eq!(went.lines().count(), came.lines().count());
        } else {
            assert_eq!(went, came, "{options}");
        }
        bench.shell("rm a.img");
    }
}

#[test]
fn mkfs_fills_from_a_directory() {
    let bench = Bench::new();
    bench.shell(TREE);
    if is_root("owners and devices") {
        bench.shell(
            "chown 12:34 src/a src; chown 70000:80000 src/hole; mknod src/null c 1 3; mknod src/sda b 8 0
            mknod src/high c 511 70000; chmod 750 src; touch -d '2001-02-03 04:05:06' src",
        );
    }
    bench.line("mkfs -q -s 32M -d src a.img").good();
    bench.check("a.img");
    bench.line("rm -r a.img:/lost+found").good();
    bench.line("cp -a a.img:/ out").good();
    assert_eq!(listing(&bench.path("src")), listing(&bench.path("out")));
    let root = bench.line("stat --json a.img:/").good().json();
    if is_root("the root directory's owner") {
        assert_eq!(
            (root[0]["uid"].as_u64(), root[0]["gid"].as_u64()),
            (Some(12), Some(34))
        );
    }
    bench.check("a.img");
}

#[test]
fn extended_attributes_and_acls_are_kept() {
    let bench = Bench::new();
    bench.shell("mkdir src; echo x > src/a; echo y > src/b");
    let set = |name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(bench.path("src/a"), name, value, flags)
    };
    if set("user.color", b"blue").is_err() {
        eprintln!("skipped: the temporary directory keeps no user attributes");
        return;
    }
    // user::rw-, user:5:r--, group::r--, mask::r--, other::---, as the kernel hands it over.
    let entry = |tag: u16, permissions: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &permissions.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let entries = [
        entry(0x01, 6, u32::MAX),
        entry(0x02, 4, 5),
        entry(0x04, 4, u32::MAX),
        entry(0x10, 4, u32::MAX),
        entry(0x20, 0, u32::MAX),
    ];
    let acl = [2_u32.to_le_bytes().to_vec(), entries.concat()].concat();
    let has_acl = set("system.posix_acl_access", &acl).is_ok();
    bench.image("a.img", "");
    bench.line("cp -a src a.img:/").good();
    bench.check("a.img");
    let shown = bench.line("stat --json a.img:/src/a").good().json();
    assert_eq!(shown[0]["xattrs"]["user.color"], "blue");
    assert_eq!(
        shown[0]["xattrs"]["system.posix_acl_access"].is_object(),
        has_acl
    );
    bench.line("cp -a a.img:/src out").good();
    let mut value = [0_u8; 256];
    let len = rustix::fs::getxattr(bench.path("out/a"), "user.color", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"blue");
    if has_acl {
        let name = "system.posix_acl_access";
        let len = rustix::fs::getxattr(bench.path("out/a"), name, &mut value[..]).unwrap();
        assert_eq!(&value[..len], &acl[..]);
    }
}

#[test]
fn names_are_made_moved_and_removed() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("echo one > one; echo two > two");
    bench.line("mkdir -p a.img:/p/q/r").good();
    bench.line("mkdir a.img:/p").refused(1);
    bench.line("mkdir -m 1770 a.img:/sticky").good();
    bench.line("cp one two a.img:/p").good();
    bench.line("cp one a.img:/p/q/three").good();
    assert_eq!(
        bench
            .line("cat a.img:/p/one a.img:/p/two a.img:/p/q/three")
            .text(),
        "one\ntwo\none\n"
    );
    bench.line("cp two a.img:/p/one").good();
    assert_eq!(bench.line("cat a.img:/p/one").text(), "two\n");
    bench.line("mv a.img:/p/one a.img:/p/q").good();
    bench.line("mv -n a.img:/p/two a.img:/p/q/one").refused(1);
    bench.line("mv a.img:/p a.img:/p/q").refused(1);
    bench
        .line("mv a.img:/p/q a.img:/p/two a.img:/sticky")
        .good();
    bench.line("ln a.img:/sticky/q/one a.img:/hard").good();
    bench.line("ln -s sticky/q/one a.img:/soft").good();
    bench.line("ln -s sticky a.img:/way").good();
    bench.line("ln -s /hard a.img:/soft").refused(1);
    bench.line("ln -sf /hard a.img:/soft").good();
    assert_eq!(
        bench.line("cat a.img:/soft a.img:/way/q/one").text(),
        "two\ntwo\n"
    );
    let found = bench.line("find a.img:/sticky").good().text();
    let expected = ["", "/q", "/q/one", "/q/r", "/q/three", "/two"];
    assert_eq!(
        found,
        expected.map(|name| format!("/sticky{name}\n")).concat()
    );
    assert_eq!(
        bench.line("find a.img -name t* -type f").text(),
        "/sticky/q/three\n/sticky/two\n"
    );
    bench.check("a.img");
    bench.line("rm a.img:/sticky").refused(1);
    bench.line("rm a.img:/nothing").refused(1);
    bench.line("rm -f a.img:/nothing").good();
    bench
        .line("rm -r a.img:/sticky a.img:/hard a.img:/soft a.img:/way a.img:/p")
        .good();
    assert_eq!(bench.line("ls a.img").good().text(), "lost+found\n");
    bench.check("a.img");
}

#[test]
fn removing_a_tree_gives_its_space_back() {
    let bench = Bench::new();
    bench.shell(TREE);
    bench.image("a.img", "-b 1024");
    let free = |bench: &Bench| {
        let info = bench.line("info --json a.img").good().json();
        (info["free_blocks"].as_u64(), info["free_inodes"].as_u64())
    };
    let before = free(&bench);
    bench.line("cp -a src a.img:/").good();
    assert_ne!(free(&bench), before);
    bench.line("rm -r a.img:/src").good();
    assert_eq!(free(&bench), before);
    bench.check("a.img");
}

#[test]
fn images_are_copied_into_images() {
    let bench = Bench::new();
    bench.shell(TREE);
    bench.image("a.img", "-b 1024");
    bench.image("b.img", "-b 4096");
    bench.line("cp -a src a.img:/").good();
    bench.line("cp -a a.img:/src b.img:/copy").good();
    bench.line("cp -a b.img:/copy b.img:/twice").good();
    bench
        .line("cp -a b.img:/copy b.img:/copy/in-itself")
        .refused(1);
    bench.check("b.img");
    bench.line("cp -a b.img:/twice out").good();
    assert_eq!(listing(&bench.path("src")), listing(&bench.path("out")));
}

#[test]
fn listings() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("echo text > .hidden; echo text > shown; chmod 640 shown");
    bench.line("cp -p .hidden shown a.img:/").good();
    bench.line("ln -s shown a.img:/link").good();
    assert_eq!(bench.line("ls a.img:/").text(), "link\nlost+found\nshown\n");
    assert_eq!(
        bench.line("ls -A a.img:/").text(),
        ".hidden\nlink\nlost+found\nshown\n"
    );
    let long = bench.line("ls -l a.img:/").good().text();
    assert!(
        long.lines()
            .any(|l| l.starts_with("-rw-r----- 1 ") && l.ends_with(" shown")),
        "{long}"
    );
    assert!(
        long.lines().any(|l| l.ends_with(" link -> shown")),
        "{long}"
    );
    let json = bench.line("ls --json a.img:/").good().json();
    let shown = json[0]["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["name"] == "shown");
    let shown = shown.unwrap();
    assert_eq!(
        (&shown["size_bytes"], &shown["mode"]),
        (&5.into(), &"0640".into())
    );
    let stat = bench.line("stat --json -L a.img:/link").good().json();
    assert_eq!(stat[0]["inode"], shown["inode"]);
    let find = bench.line("find --json a.img -type l").good().json();
    assert_eq!(find[0]["target"], "shown");
}

#[test]
fn reading_changes_no_byte() {
    let bench = Bench::new();
    bench.shell(TREE);
    bench.line("mkfs -q -s 32M -d src a.img").good();
    let before = std::fs::read(bench.path("a.img")).unwrap();
    for line in [
        "ls -l a.img:/d",
        "cat a.img:/large",
        "stat a.img:/a",
        "find a.img",
        "info a.img",
        "cp -a a.img:/ out",
        "cp a.img:/nothing out",
        "cat a.img:/nothing",
        "ls a.img:/nothing",
    ] {
        let _ = bench.line(line);
    }
    assert!(
        std::fs::read(bench.path("a.img")).unwrap() == before,
        "the image was changed"
    );
}

#[test]
fn a_partition_is_an_image() {
    let bench = Bench::new();
    bench.image("part.img", "-b 1024");
    let part = std::fs::read(bench.path("part.img")).unwrap();
    let sectors = (part.len() / 512) as u32;
    let mut disk = vec![0; 1 << 20];
    // One partition of Linux behind the first MiB.
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(part);
    std::fs::write(bench.path("disk.img"), disk).unwrap();
    let listed = bench.line("info --json disk.img").good().json();
    assert_eq!(listed["table"], "mbr");
    let first = &listed["partitions"][0];
    assert_eq!(
        (&first["name"], &first["holds"]),
        (&"1".into(), &"ext2".into())
    );
    assert_eq!(first["offset_bytes"], 1 << 20);
    assert!(bench.line("info disk.img").good().text().contains("ext2"));
    assert_eq!(
        bench.line("info --json disk.img#1").good().json()["layout"],
        "ext2"
    );
    bench.shell("echo inside > file");
    bench.line("cp file disk.img#1:/file").good();
    assert_eq!(bench.line("cat disk.img#1:/file").good().text(), "inside\n");
    bench.line("fsck -n disk.img#1").good();
    let refused = bench.line("cat disk.img#2:/file").refused(1);
    assert!(
        refused.stderr.contains("no partition '2'"),
        "{}",
        refused.stderr
    );
    // Nothing outside it was written.
    let after = std::fs::read(bench.path("disk.img")).unwrap();
    assert!(after[512..1 << 20].iter().all(|byte| *byte == 0));
    if support::can_mount() {
        bench.shell("mkdir mnt");
        bench.line("mount -o partition=1 disk.img mnt").good();
        bench.shell("grep -q inside mnt/file && echo more > mnt/more");
        bench.line("umount mnt").good();
        assert_eq!(bench.line("cat disk.img#1:/more").good().text(), "more\n");
    }
}
