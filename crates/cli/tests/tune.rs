//! `backstitch tune`, beside what dumpe2fs, tune2fs and e2fsck say of it.

use crate::support::{Bench, Done, can_mount, tool};
use std::process::Command;

const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

/// What dumpe2fs shows of the superblock in this block; `None` where the tool is missing.
fn dumped(bench: &Bench, block: u64) -> Option<Vec<String>> {
    let dumpe2fs = tool("dumpe2fs", "e2fsprogs")?;
    let mut command = Command::new(dumpe2fs);
    command.args(["-h", "-o", &format!("superblock={block}")]);
    command
        .args(["-o", "blocksize=1024"])
        .arg(bench.path("a.img"));
    let text = Done::of(command.output().unwrap()).good().text();
    let wanted = [
        "Filesystem volume name",
        "Filesystem UUID",
        "Reserved block count",
    ];
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    Some(wanted.map(value).to_vec())
}

#[test]
fn label_uuid_and_reserved_blocks_change_with_their_backups() {
    for kind in [
        "-t ext2",
        "-t ext3 -J 1M",
        "-t ext2 -O none",
        "-t ext2 -r 0 -O none",
    ] {
        let bench = Bench::new();
        bench.image("a.img", &format!("{kind} -b 1024 -s 64M"));
        bench.shell("echo kept > f");
        bench.line("cp f a.img:/f").good();
        let line = format!("tune -L new-label -U {UUID} -m 2.5 --json a.img");
        let report = bench.line(&line).good().json();
        assert_eq!(
            (&report["label"], &report["uuid"]),
            (&"new-label".into(), &UUID.into())
        );
        assert_eq!(report["reserved_blocks"], 1638);
        bench.check("a.img");
        for block in [1, 8193, 24577] {
            let Some(seen) = dumped(&bench, block) else {
                break;
            };
            assert_eq!(seen, ["new-label", UUID, "1638"], "{kind}: block {block}");
        }
        bench.line("tune -r 7 a.img").good();
        assert_eq!(bench.line("info --json a.img").json()["reserved_blocks"], 7);
        bench
            .run(&["tune", "-L", "", "-U", "clear", "a.img"])
            .good();
        let info = bench.line("info --json a.img").good().json();
        assert_eq!(info["label"], "");
        assert_eq!(info["uuid"], "00000000-0000-0000-0000-000000000000");
        bench.line("tune -U random a.img").good();
        let random = bench.line("info --json a.img").json()["uuid"].clone();
        let digits = random.as_str().unwrap();
        assert_eq!(&digits[14..15], "4", "{digits}");
        assert_eq!(bench.line("cat a.img:/f").good().text(), "kept\n");
        bench.check("a.img");
    }
}

#[test]
fn it_is_as_tune2fs_makes_it() {
    let Some(tune2fs) = tool("tune2fs", "e2fsprogs") else {
        return;
    };
    let bench = Bench::new();
    bench.image("a.img", "-b 1024 -s 64M");
    bench.shell("cp a.img b.img");
    bench
        .line(&format!("tune -L both -U {UUID} -m 3 a.img"))
        .good();
    let mut command = Command::new(tune2fs);
    command
        .args(["-L", "both", "-U", UUID, "-m", "3"])
        .arg(bench.path("b.img"));
    Done::of(command.output().unwrap()).good();
    let read = |name: &str| std::fs::read(bench.path(name)).unwrap();
    let (ours, theirs) = (read("a.img"), read("b.img"));
    // But for s_wtime and s_kbytes_written, and our mount record, which is checked against the
    // UUID. tune2fs says of its backups that they are not clean; ours are left as they were.
    let is_free = |at: usize| matches!(at, 48..52 | 0x3a | 0x178..0x180 | 0x3e4..0x3fc);
    for block in [1_usize, 8193, 24577] {
        let at = block * 1024;
        for byte in (0..1024).filter(|byte| !is_free(*byte)) {
            let (a, b) = (ours[at + byte], theirs[at + byte]);
            assert_eq!(a, b, "superblock in block {block}, byte {byte:#x}");
        }
    }
}

#[test]
fn a_new_uuid_keeps_the_record_of_the_last_mount() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.line("touch a.img:/f").good();
    let before = bench.line("info --json a.img").json()["last_ordering"].clone();
    assert_eq!(before["ordering"], "soft");
    bench.line("tune -U random a.img").good();
    let after = bench.line("info --json a.img").json()["last_ordering"].clone();
    assert_eq!(before, after);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_written() {
    let bench = Bench::new();
    bench.image("a.img", "");
    let before = std::fs::read(bench.path("a.img")).unwrap();
    for (line, code, why) in [
        ("tune a.img", 2, "nothing to change"),
        ("tune -L label-of-17-bytes a.img", 2, "16 bytes"),
        ("tune -U xyz a.img", 2, "not a UUID"),
        ("tune -m 51 a.img", 2, "0 to 50"),
        ("tune -m 5 -r 5 a.img", 2, "cannot be used with"),
        ("tune -r 30000 a.img", 2, "half of the file system"),
        ("tune -L x none.img", 1, "No such file"),
    ] {
        let refused = bench.line(line).refused(code);
        assert!(refused.stderr.contains(why), "{line}: {}", refused.stderr);
    }
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before);
}

#[test]
fn a_journal_elsewhere_keeps_the_uuid() {
    let bench = Bench::new();
    bench.line("mkfs -q -O journal_dev -s 8M j.img").good();
    bench
        .line("mkfs -q -t ext3 -J device=j.img -s 32M a.img")
        .good();
    let refused = bench.line("tune -U random a.img").refused(1);
    assert!(
        refused.stderr.contains("journal is on another device"),
        "{}",
        refused.stderr
    );
    bench.line("tune -L other -m 1 a.img").good();
    let info = bench.line("info --json -j j.img a.img").good().json();
    assert_eq!(
        (&info["label"], &info["journal"]["error"]),
        (&"other".into(), &serde_json::Value::Null)
    );
    let refused = bench.line("tune -L x j.img").refused(1);
    assert!(
        refused.stderr.contains("it is a journal"),
        "{}",
        refused.stderr
    );
}

#[test]
fn an_image_in_use_or_left_by_a_crash_is_refused() {
    if !can_mount() {
        return;
    }
    for kind in ["-t ext2", "-t ext3 -J 1M"] {
        let bench = Bench::new();
        bench.image("a.img", &format!("-b 1024 {kind}"));
        bench.shell("mkdir mnt");
        bench.line("mount a.img mnt").good();
        bench.shell("echo x > mnt/x; sync mnt/x; echo y > mnt/y");
        let mounted = bench.line("tune -L x a.img");
        bench.shell("cp --sparse=always a.img b.img");
        bench.line("umount mnt").good();
        let refused = mounted.refused(1);
        assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
        let refused = bench.line("tune -L x b.img").refused(1);
        assert!(
            refused.stderr.contains("mount it or run fsck first"),
            "{}",
            refused.stderr
        );
        bench.line("fsck -p b.img");
        bench.line("tune -L x b.img").good();
        bench.check("b.img");
    }
}
