//! Undo files: what `fsck -y` changes can be taken back to the last byte, by us and by e2undo.

use crate::support::{Bench, can_mount, tool};
use std::path::PathBuf;

/// An image with files in it, and a copy of it, damaged, as `x` and `was`.
fn damaged(bench: &Bench) {
    bench.shell("mkdir -p src; for n in 1 2 3 4 5 6; do echo file $n > src/$n; done");
    bench.line("mkfs -q -F -b 1024 -s 16M -d src x").good();
    // Counts in the superblock, and bits in what is the block bitmap or near it.
    bench.shell(
        "printf '\\001\\002\\003\\004\\005' | dd of=x bs=1 seek=1036 conv=notrunc status=none
        head -c 300 /dev/zero | tr '\\0' '\\125' | dd of=x bs=1 seek=133000 conv=notrunc status=none
        cp x was",
    );
}

/// The undo files in the directory.
fn undo_files(bench: &Bench) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(bench.path(".")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().contains(".undo-"))
        .collect();
    found.sort();
    found
}

fn same(bench: &Bench, a: &str, b: &str) -> bool {
    std::fs::read(bench.path(a)).unwrap() == std::fs::read(bench.path(b)).unwrap()
}

#[test]
fn a_repair_is_taken_back_by_us_and_by_e2undo() {
    let bench = Bench::new();
    damaged(&bench);
    let done = bench.line("fsck -y x");
    assert_eq!(done.code, 1, "{}{}", done.text(), done.stderr);
    let [file] = &undo_files(&bench)[..] else {
        panic!("{:?}", undo_files(&bench));
    };
    let name = file.file_name().unwrap().to_str().unwrap();
    let announced = done.text();
    let first = announced
        .lines()
        .find(|line| line.starts_with("undo file: "))
        .unwrap_or_default();
    assert!(
        first.contains(&format!("backstitch undo {name} x")),
        "{first}"
    );
    bench.check("x");
    bench.shell("cp x fixed");
    // Looking changes nothing.
    let seen = bench
        .line(&format!("undo -n --json {name} x"))
        .good()
        .json();
    assert_eq!(seen["dry_run"], true);
    assert!(seen["restored_bytes"].as_u64() > Some(0));
    assert!(same(&bench, "x", "fixed") && !same(&bench, "x", "was"));
    bench.line(&format!("undo {name} x")).good();
    assert!(same(&bench, "x", "was"));
    if let Some(e2undo) = tool("e2undo", "e2fsprogs") {
        bench.shell(&format!("cp fixed x; {} {name} x", e2undo.display()));
        assert!(same(&bench, "x", "was"), "e2undo");
    }
    // What was changed since is not torn apart, unless that is wanted.
    bench.shell("cp fixed x; echo more > more");
    bench.line("cp more x:/more").good();
    let refused = bench.line(&format!("undo {name} x")).refused(1).stderr;
    assert!(
        refused.contains("changed since") && refused.contains("--force"),
        "{refused}"
    );
    bench.line("undo more x").refused(1);
    // A file that became longer or shorter gets its size back.
    bench.shell("cp fixed x; truncate -s +1M x");
    bench.line(&format!("undo {name} x")).refused(1);
    bench.line(&format!("undo --force {name} x")).good();
    assert!(same(&bench, "x", "was"));
}

#[test]
fn what_a_repair_takes_away_is_said_before() {
    let bench = Bench::new();
    bench.line("mkfs -q -s 16M x").good();
    // A clean image has nothing to say.
    let text = bench.line("fsck -y x").good().text();
    assert!(text.starts_with("x: clean"), "{text}");
    // Inodes are gone.
    damaged(&bench);
    let json = bench.line("fsck -y --json x").json();
    let losses = &json["losses"];
    let counted = |key: &str| losses[key].as_u64().expect("not counted");
    let (gone, moved) = (counted("names_gone"), counted("moved_to_lost_found"));
    bench.shell("cp was x");
    let text = bench.line("fsck -y x").text();
    let first = text.lines().next().unwrap_or_default().to_owned();
    let expected = match losses["pointers_cleared"].as_u64() {
        Some(0) if gone + moved == 0 => "the repair keeps all of the ".to_owned(),
        _ => format!("takes away {gone}; {moved} files or directories go to lost+found"),
    };
    assert!(first.contains(&expected), "{first}");
}

#[test]
fn where_an_undo_file_goes() {
    let bench = Bench::new();
    damaged(&bench);
    let json = bench.line("fsck -y --json x").json();
    let file = json["undo_file"].as_str().unwrap_or_default().to_owned();
    assert!(bench.path(&file).exists(), "{json}");
    assert_eq!(undo_files(&bench).len(), 1);
    // Nothing to repair, nothing to undo.
    assert_eq!(bench.line("fsck -y x").code, 0);
    bench.shell("cp was x");
    // -p has none of its own accord, and none is written on request.
    assert!(matches!(bench.line("fsck -p x").code, 1 | 4));
    bench.shell("cp was x");
    assert_eq!(bench.line("fsck -y --no-undo x").code, 1);
    assert_eq!(undo_files(&bench).len(), 1);
    bench.shell("cp was x");
    assert_eq!(bench.line("fsck -y -z named x").code, 1);
    assert_eq!(undo_files(&bench).len(), 1);
    bench.line("undo named x").good();
    assert!(same(&bench, "x", "was"));
    // Not over a file that is there.
    let refused = bench.line("fsck -y -z named x").refused(8).stderr;
    assert!(refused.contains("nothing was changed"), "{refused}");
    assert!(same(&bench, "x", "was"));
    // Where e2fsprogs has them.
    let binary = env!("CARGO_BIN_EXE_backstitch");
    bench.shell(&format!(
        "mkdir kept; E2FSPROGS_UNDO_DIR=kept {binary} fsck -y x > out || test $? = 1
        grep -q 'undo file: kept/x.undo-' out; test $(ls kept | wc -l) = 1
        cp was x; E2FSPROGS_UNDO_DIR=none {binary} fsck -y x > out || test $? = 1
        ! grep -q 'undo file' out"
    ));
    assert_eq!(undo_files(&bench).len(), 1);
}

#[test]
fn no_room_for_an_undo_file_is_no_repair() {
    let bench = Bench::new();
    damaged(&bench);
    let binary = env!("CARGO_BIN_EXE_backstitch");
    // Files may have 8 KiB here: enough for no undo file.
    bench.shell(&format!(
        "mkdir kept; trap '' XFSZ; ulimit -f 8
        code=0; XDG_STATE_HOME=$PWD/kept {binary} fsck -y x 2> errors || code=$?
        test $code = 8; grep -q 'nothing was changed' errors; grep -q 'hint: -z FILE' errors"
    ));
    assert!(same(&bench, "x", "was"));
    assert!(undo_files(&bench).is_empty());
}

#[test]
fn a_replay_of_the_journal_is_taken_back_too() {
    let Some(debugfs) = tool("debugfs", "e2fsprogs") else {
        return;
    };
    let bench = Bench::new();
    bench.line("mkfs -q -t ext3 -b 1024 -s 16M x").good();
    let debugfs = debugfs.display();
    bench.shell(&format!(
        "head -c 1024 /dev/urandom > block
        printf 'jo\\njw -b 9000 block\\njc\\n' > commands
        {debugfs} -w -f commands x > /dev/null 2>&1
        cp x was"
    ));
    let info = bench.line("info --json x").good().json();
    assert_eq!(info["journal"]["needs_recovery"], true, "{info}");
    for line in ["fsck -y -z undo x", "fsck -p -z undo x"] {
        bench.line(line);
        assert!(!same(&bench, "x", "was"), "{line}");
        let info = bench.line("info --json x").good().json();
        assert_eq!(info["journal"]["needs_recovery"], false, "{line}");
        bench.line("undo undo x").good();
        assert!(same(&bench, "x", "was"), "{line}");
        bench.shell("rm undo");
    }
}

#[test]
fn a_journal_elsewhere_is_taken_back_with_its_file_system() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench
        .line("mkfs -q -O journal_dev -b 1024 -s 4M log")
        .good();
    bench
        .line("mkfs -q -t ext3 -b 1024 -s 16M -J device=log x")
        .good();
    bench.shell("mkdir mnt");
    let mounted = bench
        .line("mount --json -o journal_dev=log,commit=0.05 x mnt")
        .good()
        .json();
    bench.shell(&format!(
        "for n in 1 2 3; do echo $n > mnt/$n; sync mnt/$n; done
        kill -9 {}; umount -l mnt 2>/dev/null || fusermount3 -uz mnt
        cp x was; cp log log.was",
        mounted["pid"]
    ));
    let info = bench.line("info --json -j log x").good().json();
    assert_eq!(info["journal"]["needs_recovery"], true, "{info}");
    let done = bench.line("fsck -y -z undo -j log x");
    assert!(
        done.text().contains("undo.journal log"),
        "{}{}",
        done.text(),
        done.stderr
    );
    assert!(!same(&bench, "log", "log.was") && !same(&bench, "x", "was"));
    bench.line("undo undo.journal log").good();
    bench.line("undo undo x").good();
    assert!(same(&bench, "log", "log.was") && same(&bench, "x", "was"));
}

#[test]
fn a_partition_is_taken_back_within_its_disk() {
    let bench = Bench::new();
    damaged(&bench);
    bench.shell("mv x part; rm was");
    let mut disk = vec![0_u8; 1 << 20];
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&32_768_u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(std::fs::read(bench.path("part")).unwrap());
    std::fs::write(bench.path("disk"), disk).unwrap();
    bench.shell("cp disk was");
    assert_eq!(bench.line("fsck -y -z undo disk#1").code, 1);
    bench.shell("cp disk fixed");
    // By the partition's name, by the disk's, and e2undo by the disk's.
    for image in ["disk#1", "disk"] {
        bench.line(&format!("undo undo {image}")).good();
        assert!(same(&bench, "disk", "was"), "{image}");
        bench.shell("cp fixed disk");
    }
    if let Some(e2undo) = tool("e2undo", "e2fsprogs") {
        bench.shell(&format!("{} undo disk", e2undo.display()));
        assert!(same(&bench, "disk", "was"), "e2undo");
    }
}

#[test]
fn undo_files_of_e2fsprogs_are_taken() {
    let (Some(tune2fs), Some(e2fsck)) = (tool("tune2fs", "e2fsprogs"), tool("e2fsck", "e2fsprogs"))
    else {
        return;
    };
    let bench = Bench::new();
    damaged(&bench);
    let commands = [
        format!(
            "{} -fy -z undo x > /dev/null 2>&1 || test $? = 1",
            e2fsck.display()
        ),
        format!(
            "{} -z undo -L other -m 2 x > /dev/null 2>&1",
            tune2fs.display()
        ),
    ];
    for command in commands {
        bench.shell(&format!("rm -f undo; cp was x; {command}"));
        assert!(!same(&bench, "x", "was"), "{command}");
        bench.line("undo -n undo x").good();
        bench.line("undo undo x").good();
        assert!(same(&bench, "x", "was"), "{command}");
    }
}
