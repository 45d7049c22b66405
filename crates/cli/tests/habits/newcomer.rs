//! The first ten minutes: words in the wrong order, typing errors, files that are no image, a disk
//! that is full. Nothing is lost, and what is said leads on.

use super::mounting::Mount;
use crate::support::{Bench, can_mount, is_root, tool};
use std::process::Command;

#[track_caller]
fn says(bench: &Bench, line: &str, code: i32, words: &[&str]) {
    let said = bench.line(line).refused(code).stderr;
    for word in words {
        assert!(said.contains(word), "{line}: no '{word}' in: {said}");
    }
}

#[test]
fn typing_errors_are_answered_with_what_was_meant() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("mkdir mnt; echo x > f");
    says(&bench, "mont a.img mnt", 2, &["'mont'", "'mount'"]);
    says(&bench, "ls --recursiv a.img", 2, &["'--recursive'"]);
    says(&bench, "mount mnt a.img", 1, &["image comes first"]);
    says(&bench, "mount a.img nodir", 1, &["mkdir nodir"]);
    says(&bench, "mount a.imgg mnt", 1, &["a.imgg", "No such file"]);
    says(&bench, "mkfs new.img", 1, &["-s SIZE"]);
    says(&bench, "cp f a.img", 2, &["IMAGE:/"]);
    says(&bench, "cp f a.img:", 2, &["IMAGE:/"]);
    says(&bench, "cat a.img", 2, &["IMAGE:/path"]);
    says(&bench, "rm -r a.img:/", 1, &["root directory"]);
    says(&bench, "umount mnt", 1, &["nothing is mounted"]);
    says(&bench, "unmount mnt", 1, &["nothing is mounted"]);
    assert!(!bench.path("new.img").exists());
    bench.check("a.img");
}

#[test]
fn an_image_in_use_is_called_that_with_its_directory() {
    let Some(mount) = Mount::new("") else { return };
    mount.up("rw");
    let dir = mount.path("").display().to_string();
    let dir = dir.trim_end_matches('/');
    mount.bench.shell("echo x > f");
    for line in [
        "ls a.img",
        "cp f a.img:/",
        "mkfs a.img",
        "mkfs --force -s 1M a.img",
        "tune -L x a.img",
        "mount a.img mnt2",
    ] {
        mount.bench.shell("mkdir -p mnt2");
        says(&mount.bench, line, 1, &["in use by pid", dir, "umount"]);
    }
    says(&mount.bench, "fsck -y a.img", 8, &["in use by pid", dir]);
    says(
        &mount.bench,
        "umount a.img",
        1,
        &["this image is mounted on", dir],
    );
    says(
        &mount.bench,
        "snapshot --force mnt a.img",
        1,
        &["the mounted image itself"],
    );
    mount.down();
    mount.bench.check("a.img");
}

#[test]
fn mkfs_cuts_nothing_off_unasked() {
    let bench = Bench::new();
    // Nothing that is recognised: so that only its length speaks for it.
    bench.shell("head -c 5000000 /dev/urandom > data; cp data copy; truncate -s 5000000 holes");
    says(
        &bench,
        "mkfs -s 1M data",
        1,
        &["holds something behind the first 1 MiB", "--force"],
    );
    bench.shell("cmp data copy");
    bench.line("mkfs -q -s 1M holes").good();
    bench.check("holes");
    bench.line("mkfs -q -s 1M --force data").good();
    bench.check("data");
}

#[test]
fn a_full_disk_of_the_host_is_said_in_one_line() {
    if !is_root("a full host disk") {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir small d; head -c 4000000 /dev/urandom > d/a; head -c 4000000 /dev/urandom > d/b; mount -t tmpfs -o size=6M none small");
    let made = bench.line("mkfs -s 64M -d d small/a.img");
    let left = bench.shell("ls -A small").text();
    bench.line("mkfs -q -s 64M small/b.img").good();
    let copied = bench.line("cp -r d small/b.img:/");
    let checked = bench.line("fsck -p small/b.img");
    let listed = bench.line("ls small/b.img");
    let _ = Command::new("umount").arg(bench.path("small")).status();
    let made = made.refused(1).stderr;
    assert!(
        made.contains("No space left") && made.contains("nothing is left"),
        "{made}"
    );
    assert_eq!(left, "");
    let copied = copied.refused(1).stderr;
    assert!(copied.contains("small/b.img: write of"), "{copied}");
    assert!(copied.contains("No space left"), "{copied}");
    assert!(checked.code < 4, "{}{}", checked.text(), checked.stderr);
    listed.good();
}

#[test]
fn a_program_that_changes_nothing_in_its_mount_is_an_error() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let app = |run: &str, check: &str, states: &str| {
        let words = [
            "crash", "app", "--states", states, "--run", run, "--check", check,
        ];
        bench.run(&words)
    };
    let outside = format!("echo a > {}; ls", bench.path("outside").display());
    for check in ["true", "false"] {
        let refused = app(&outside, check, "10").refused(1).stderr;
        assert!(
            refused.contains("changed nothing in its mount") && refused.contains("BACKSTITCH_DIR"),
            "{refused}"
        );
    }
    assert!(bench.path("outside").exists());
    // What was only sampled is not said to be all.
    let many = "for i in 1 2 3 4 5 6; do echo $i > $i; done";
    let sampled = app(many, "true", "20").good().text();
    assert!(sampled.contains("no failure in 20 of "), "{sampled}");
    assert!(sampled.contains("states, sampled\n"), "{sampled}");
    let all = app(": > f", "true", "1000").good().text();
    assert!(all.contains(": no failure\n"), "{all}");
}

#[test]
fn a_mount_without_attributes_is_unmounted() {
    let Some(mount) = Mount::new("") else { return };
    for options in ["", "--lazy"] {
        mount.up("noxattr");
        mount.bench.shell("echo x > mnt/f");
        mount.bench.line(&format!("umount {options} mnt")).good();
        assert_eq!(mount.bench.line("cat a.img:/f").good().text(), "x\n");
        mount.bench.check("a.img");
    }
    mount.up("noxattr,ro");
    mount.down();
    mount.up("noxattr,raw");
    mount.down();
}

#[test]
fn an_image_that_was_removed_is_unmounted() {
    let Some(mount) = Mount::new("") else { return };
    for options in ["rw", "noxattr"] {
        mount.bench.image("a.img", "--force");
        mount.up(options);
        mount.bench.shell("rm a.img");
        mount.down();
        assert!(!mount.path("lost+found").exists());
    }
}

/// A disk with two partitions, 1 and 5: the latter is inside an extended one.
fn disk(bench: &Bench, name: &str) {
    let mut bytes = vec![0; 48 << 20];
    let mut entry = |at: usize, kind: u8, start: u32, sectors: u32| {
        bytes[at + 4] = kind;
        bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    };
    let extended = 40_960;
    entry(446, 0x83, 2048, 36_864);
    entry(462, 0x05, extended, 53_248);
    entry(extended as usize * 512 + 446, 0x83, 2048, 36_864);
    for table in [0, extended as usize * 512] {
        bytes[table + 510..table + 512].copy_from_slice(&[0x55, 0xaa]);
    }
    std::fs::write(bench.path(name), bytes).unwrap();
}

#[test]
fn of_two_partitions_in_use_each_is_said_to_be_where_it_is() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    disk(&bench, "d.img");
    bench.shell("mkdir one five");
    for (part, dir) in [("1", "one"), ("5", "five")] {
        bench.line(&format!("mkfs -q d.img#{part}")).good();
        bench.line(&format!("mount d.img#{part} {dir}")).good();
    }
    let said = |line: &str| bench.line(line).refused(1).stderr;
    let [first, fifth] = [said("ls d.img#1:/"), said("ls d.img#5:/")];
    let range = said("ls d.img?offset=22020096:/");
    let whole = said("ls d.img");
    for dir in ["one", "five"] {
        bench.line(&format!("umount {dir}")).good();
    }
    assert!(
        first.contains("/one:") && !first.contains("/five"),
        "{first}"
    );
    assert!(
        fifth.contains("/five:") && !fifth.contains("/one"),
        "{fifth}"
    );
    assert!(range.contains("/five:"), "{range}");
    assert!(whole.contains("/one:"), "{whole}");
}

#[test]
fn bigalloc_is_refused_by_name() {
    let Some(mke2fs) = tool("mke2fs", "e2fsprogs") else {
        return;
    };
    let bench = Bench::new();
    bench.shell("mkdir mnt");
    for block in ["1024", "4096"] {
        let made = Command::new(&mke2fs)
            .args(["-q", "-F", "-t", "ext4", "-O", "bigalloc", "-b", block])
            .args(["-C", "65536", "b.img", "64M"])
            .current_dir(bench.path(""))
            .status();
        assert!(made.unwrap().success());
        let before = std::fs::read(bench.path("b.img")).unwrap();
        for (line, code) in [
            ("ls b.img", 1),
            ("df b.img", 1),
            ("mount -o ro b.img mnt", 1),
            ("fsck -n b.img", 8),
            ("fsck -y b.img", 8),
        ] {
            let said = bench.line(line).refused(code).stderr;
            assert!(
                said.contains("bigalloc") && !said.contains("corrupt"),
                "{block}, {line}: {said}"
            );
        }
        assert!(std::fs::read(bench.path("b.img")).unwrap() == before);
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused_with_those_that_do() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("mkdir mnt");
    says(&bench, "mkfs -N 0 -s 1M new.img", 2, &["--inodes", "1.."]);
    says(
        &bench,
        "mount -o threads=0 a.img mnt",
        2,
        &["from 1 to 256"],
    );
    says(
        &bench,
        "mount -o threads=257 a.img mnt",
        2,
        &["from 1 to 256"],
    );
    says(&bench, "mount -o commit=0 a.img mnt", 2, &["above 0"]);
    says(
        &bench,
        "ls a.img?offset=900M:/",
        1,
        &["ends at byte 33554432", "begins at 943718400"],
    );
    assert!(!bench.path("new.img").exists());
}

#[test]
fn a_write_protected_image_is_mounted_with_ro() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("mkdir mnt; chmod 444 a.img");
    // Root may write what is not writable, unless it is immutable.
    let is_protected = !rustix::process::geteuid().is_root()
        || Command::new("chattr")
            .args(["+i", "a.img"])
            .current_dir(bench.path(""))
            .status()
            .is_ok_and(|done| done.success());
    if !is_protected {
        return;
    }
    let refused = bench.line("mount a.img mnt");
    let read_only = bench.line("mount -o ro a.img mnt");
    let unmounted = bench.line("umount mnt");
    let _ = Command::new("chattr")
        .args(["-i", "a.img"])
        .current_dir(bench.path(""))
        .status();
    let refused = refused.refused(1).stderr;
    assert!(refused.contains("-o ro mounts it"), "{refused}");
    read_only.good();
    unmounted.good();
}
