//! What is not ours: no command advises to overwrite it, and mkfs does not, unless it is told to.

use crate::support::{Bench, can_mount, is_root, tool};
use std::process::Stdio;

/// A GPT with two partitions, `1` called root and `2` called home, of 8 MiB each.
fn gpt(bench: &Bench, name: &str) {
    const SECTORS: u64 = 40_960;
    let mut disk = vec![0_u8; SECTORS as usize * 512];
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    put(446 + 4, &[0xee]);
    put(446 + 8, &1_u32.to_le_bytes());
    put(446 + 12, &(SECTORS as u32 - 1).to_le_bytes());
    put(510, &[0x55, 0xaa]);
    let mut entries = vec![0_u8; 128 * 128];
    for (number, label) in ["root", "home"].into_iter().enumerate() {
        let entry = &mut entries[128 * number..][..128];
        entry[..16].fill(0x11 + number as u8);
        entry[16..32].fill(0x77 + number as u8);
        let first = 2048 + 16_384 * number as u64;
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&(first + 16_383).to_le_bytes());
        for (at, unit) in label.encode_utf16().enumerate() {
            entry[56 + 2 * at..58 + 2 * at].copy_from_slice(&unit.to_le_bytes());
        }
    }
    for (sector, other, array) in [(1, SECTORS - 1, 2), (SECTORS - 1, 1, SECTORS - 33)] {
        let mut header = vec![0_u8; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&0x10000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        for (at, number) in [
            (24, sector),
            (32, other),
            (40, 34),
            (48, SECTORS - 34),
            (72, array),
        ] {
            header[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let crc = crc32(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        put(sector as usize * 512, &header);
        put(array as usize * 512, &entries);
    }
    std::fs::write(bench.path(name), disk).unwrap();
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

/// Files that hold something, how each is made, and what is said of it.
const HELD: &[(&str, &str, &str)] = &[
    (
        "sh",
        "printf XFSB > x; truncate -s 32M x",
        "an XFS file system",
    ),
    (
        "sh",
        "truncate -s 32M x; printf SWAPSPACE2 | dd of=x bs=1 seek=4086 conv=notrunc status=none",
        "Linux swap space",
    ),
    (
        "sh",
        "truncate -s 32M x; printf 'EFI PART' | dd of=x bs=512 seek=65535 conv=notrunc status=none",
        "(GPT)",
    ),
    (
        "sh",
        "truncate -s 32M x; printf '\\374\\116\\053\\251' | dd of=x bs=4096 seek=8190 conv=notrunc status=none",
        "Linux RAID",
    ),
    (
        "sh",
        "for n in 1 2 3; do echo 'Dear reader,'; done > x",
        "text",
    ),
    (
        "mke2fs",
        "truncate -s 32M x; mke2fs -q -t ext4 x",
        "ext2, ext3 or ext4",
    ),
    (
        "mkfs.xfs",
        "truncate -s 320M x; mkfs.xfs -q x",
        "an XFS file system",
    ),
    (
        "mkfs.btrfs",
        "truncate -s 128M x; mkfs.btrfs -q x",
        "a btrfs file system",
    ),
    (
        "qemu-img",
        "qemu-img create -q -f qcow2 x 64M",
        "a qcow2 disk image",
    ),
    ("gzip", "echo abc | gzip > x", "a gzip file"),
];

#[test]
fn mkfs_overwrites_nothing_that_it_recognises() {
    let bench = Bench::new();
    for (needed, script, name) in HELD {
        if tool(needed, needed).is_none() {
            continue;
        }
        let path = "PATH=$PATH:/usr/sbin:/sbin; rm -f x";
        bench.shell(&format!("{path}; {script}"));
        let before = std::fs::read(bench.path("x")).unwrap();
        for line in [
            "mkfs x",
            "mkfs -s 32M x",
            "mkfs -s 16M -t ext3 x",
            "mkfs -O journal_dev -s 16M x",
        ] {
            let refused = bench.line(line).refused(1).stderr;
            assert!(
                refused.contains(name) && refused.contains("--force"),
                "{line}: {refused}"
            );
        }
        assert!(
            std::fs::read(bench.path("x")).unwrap() == before,
            "{script}: changed"
        );
        bench.line("mkfs -q -F -s 64M x").good();
        bench.check("x");
        // Nothing of it is left, and ours is the only one.
        let again = bench.line("mkfs x").refused(1).stderr;
        assert!(
            again.contains("it holds an ext2, ext3 or ext4 file system; nothing"),
            "{again}"
        );
    }
    // Options that cannot be had cost nothing, with force either.
    bench.shell("printf XFSB > x; truncate -s 32M x; cp x was");
    for options in [
        "-b 3000",
        "-s 1K",
        "-d nothing",
        "-O frobnicate",
        "-U xyz",
        "-J device=none -t ext3",
    ] {
        bench.line(&format!("mkfs -F {options} x"));
        assert!(
            std::fs::read(bench.path("x")).unwrap() == std::fs::read(bench.path("was")).unwrap(),
            "{options}"
        );
    }
    // What is empty needs no force.
    bench.shell("rm -f x; truncate -s 32M x; head -c 32M /dev/zero > y; : > z");
    for line in [
        "mkfs -q x",
        "mkfs -q y",
        "mkfs -q -s 32M z",
        "mkfs -q -s 32M new",
    ] {
        bench.line(line).good();
    }
}

#[test]
fn mkfs_does_not_touch_what_somebody_uses() {
    let bench = Bench::new();
    bench.shell("head -c 8M /dev/urandom > x; : > y");
    // A program that has it open for writing, without any lock.
    let mut holder = std::process::Command::new("sh")
        .args(["-c", "exec 3<>x 4<>y; echo ready; read line"])
        .current_dir(bench.path("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let refused = bench.line("mkfs x").refused(1).stderr;
    assert!(
        refused.contains(&format!("pid {} (", holder.id())),
        "{refused}"
    );
    // A file with nothing in it has nothing to lose.
    bench.line("mkfs -q -s 8M y").good();
    bench.line("mkfs -q -F x").good();
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn no_command_advises_to_overwrite_what_is_not_ours() {
    let bench = Bench::new();
    bench.shell("mkdir mnt; echo file > file");
    let hints = [
        (
            "printf 'QFI\\373' > x; truncate -s 32M x",
            "a qcow2 disk image",
            "qemu-img convert -O raw x x.raw",
        ),
        (
            "printf XFSB > x; truncate -s 32M x",
            "an XFS file system",
            "mount -t xfs x",
        ),
        ("printf '\\037\\213\\010' > x", "a gzip file", "gzip -dc x"),
        (
            "printf '\\037\\213\\010' > x; truncate -s 32M x",
            "a gzip file",
            "gzip -dc x",
        ),
        ("echo 'Dear reader,' > x", "text", "no disk image"),
        (
            "truncate -s 32M x; printf _BHRfS_M | dd of=x bs=1 seek=65600 conv=notrunc status=none",
            "a btrfs file system",
            "mount -t btrfs x",
        ),
        (
            "truncate -s 32M x; printf CD001 | dd of=x bs=1 seek=32769 conv=notrunc status=none",
            "ISO 9660",
            "mount -t iso9660 x",
        ),
    ];
    let lines = [
        ("info x", 1),
        ("mount x mnt", 1),
        ("mount -o ro x mnt", 1),
        ("ls x:/", 1),
        ("cat x:/a", 1),
        ("stat x:/", 1),
        ("cp file x:/", 1),
        ("rm x:/a", 1),
        ("mkdir x:/a", 1),
        ("find x:/", 1),
        ("journal dump x", 1),
        ("fsck -n x", 8),
        ("fsck -p x", 8),
        ("fsck -y x", 8),
    ];
    for (script, name, hint) in hints {
        bench.shell(&format!("rm -f x; {script}"));
        for (line, code) in lines {
            if line.starts_with("mount") && !can_mount() {
                continue;
            }
            let refused = bench.line(line).refused(code).stderr;
            // A mount has the path from the root on.
            let dir = format!("{}/", bench.path("").display());
            let refused = refused
                .replace(dir.trim_end_matches('/'), "")
                .replace(" /x", " x");
            assert!(
                refused.contains(name) && refused.contains(hint),
                "{line}: {refused}"
            );
            assert!(!refused.contains("mkfs"), "{line}: {refused}");
        }
    }
    // What is empty is not to be formatted on our advice either.
    bench.shell("rm -f x; truncate -s 32M x");
    let refused = bench.line("info x").refused(1).stderr;
    assert!(!refused.contains("mkfs"), "{refused}");
    gpt(&bench, "disk");
    let refused = bench.line("ls disk:/").refused(1).stderr;
    assert!(
        refused.contains("GPT") && refused.contains("disk#1"),
        "{refused}"
    );
}

#[test]
fn a_partition_is_formatted_and_nothing_else() {
    let bench = Bench::new();
    gpt(&bench, "disk");
    let before = std::fs::read(bench.path("disk")).unwrap();
    let (start, end) = ((2048 + 16_384) * 512, (2048 + 2 * 16_384) * 512);
    bench.line("mkfs -q -b 1024 disk#2").good();
    assert!(
        !bench.path("disk#2").exists(),
        "a file of that name was made"
    );
    let after = std::fs::read(bench.path("disk")).unwrap();
    assert!(before[..start] == after[..start] && before[end..] == after[end..]);
    assert!(before[start..end] != after[start..end]);
    bench.line("fsck -n disk#2").good();
    bench.line("mkfs disk#2").refused(1);
    bench.line("mkfs -F -s 9M disk#2").refused(1);
    bench.line("mkfs -F -q -s 4M disk#home").good();
    // By its label as well, and not beyond what is there.
    bench.shell("echo inside > file");
    bench.line("cp file disk#home:/file").good();
    assert_eq!(bench.line("cat disk#2:/file").good().text(), "inside\n");
    let listed = bench.line("info --json disk").good().json();
    assert_eq!(listed["partitions"][1]["holds"], "ext2");
    for line in [
        "mkfs disk#3",
        "mkfs -s 4M disk#3",
        "mkfs -s 4M new#1",
        "mkfs -s 4M -O journal_dev disk#3",
    ] {
        bench.line(line).refused(1);
    }
    for name in ["disk#3", "new#1", "new"] {
        assert!(!bench.path(name).exists(), "{name}");
    }
    let refused = bench.line("info disk#nothing").refused(1).stderr;
    assert!(refused.contains("1 (root), 2 (home)"), "{refused}");
    // A file of that name hides nothing; it has a name of its own.
    bench.shell("cp disk#2 old 2>/dev/null || : > disk#2");
    let seen = bench.line("cat disk#2:/file").good();
    assert_eq!(seen.text(), "inside\n");
    assert!(seen.stderr.contains("disk##2"), "{}", seen.stderr);
    bench.line("mkfs -q -s 4M disk##2").good();
    bench.line("ls disk##2:/").good();
    assert_eq!(bench.line("cat disk#home:/file").good().text(), "inside\n");
}

#[test]
fn partitions_of_one_image_are_mounted_beside_each_other() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    gpt(&bench, "disk");
    bench.line("mkfs -q disk#1").good();
    bench.line("mkfs -q disk#home").good();
    bench.shell("mkdir a b c; echo file > file");
    bench.line("mount disk#1 a").good();
    bench.line("mount -o partition=home disk b").good();
    bench.shell("echo one > a/x; echo two > b/x");
    // The same one, the whole, and a range that overlaps are refused, whether read or written.
    for line in [
        "mount disk#2 c",
        "ls disk#root:/",
        "cp file disk#1:/",
        "mount -o ro disk#1 c",
        "mkfs -F disk",
        "mkfs -F disk#1",
    ] {
        let refused = bench.line(line).refused(1).stderr;
        assert!(refused.contains("in use by pid"), "{line}: {refused}");
    }
    // What only looks says so.
    let looked = bench.line("info disk").good();
    assert!(looked.stderr.contains("in use by pid"), "{}", looked.stderr);
    bench
        .line("mount -o offset=2M,sizelimit=4M disk c")
        .refused(1);
    bench.line("umount a").good();
    bench.line("umount b").good();
    assert_eq!(bench.line("cat disk#1:/x").good().text(), "one\n");
    assert_eq!(bench.line("cat disk#2:/x").good().text(), "two\n");
    bench.line("fsck -n disk#1").good();
    bench.line("fsck -n disk#2").good();
}

#[test]
fn offset_and_sizelimit_are_a_part_of_an_image() {
    let bench = Bench::new();
    bench.line("mkfs -q -s 8M part").good();
    bench.shell(
        "head -c 3M /dev/urandom > x; cat part >> x; head -c 1M /dev/urandom >> x; cp x was",
    );
    let words = ["info", "--json", "x?offset=3M&sizelimit=8M"];
    assert_eq!(
        bench.run(&words).good().json()["device_size_bytes"],
        8 << 20
    );
    let words = ["info", "--json", "x?offset=3145728"];
    assert_eq!(
        bench.run(&words).good().json()["device_size_bytes"],
        9 << 20
    );
    bench
        .run(&["fsck", "-n", "x?offset=3M&sizelimit=8M"])
        .good();
    bench.run(&["info", "x?offset=3M&sizelimit=10M"]).refused(1);
    bench.run(&["info", "x?offset=40M"]).refused(1);
    bench.run(&["info", "x?offset=a"]).refused(2);
    if !can_mount() {
        return;
    }
    bench.shell("mkdir mnt");
    bench.line("mount -o offset=3M,sizelimit=8M x mnt").good();
    bench.shell("echo inside > mnt/file");
    bench.line("umount mnt").good();
    assert_eq!(
        bench.run(&["cat", "x?offset=3M:/file"]).good().text(),
        "inside\n"
    );
    bench.shell("head -c 3M x | cmp - was -n 3145728; tail -c 1M x > a; tail -c 1M was | cmp - a");
    bench
        .line("mount -o offset=3M,partition=1 x mnt")
        .refused(2);
}

#[test]
fn a_benchmark_overwrites_only_what_benchmarks_made() {
    let bench = Bench::new();
    let run = "bench zero --scale 0.002 --image";
    bench.shell("printf XFSB > x; truncate -s 32M x; cp x was");
    let refused = bench.line(&format!("{run} x")).refused(1).stderr;
    assert!(refused.contains("an XFS file system"), "{refused}");
    bench.line("mkfs -q -s 32M own").good();
    bench.line(&format!("{run} own")).refused(1);
    gpt(&bench, "disk");
    bench.line(&format!("{run} disk#1")).refused(1);
    assert!(!bench.path("disk#1").exists());
    bench.shell("cmp x was");
    for _ in 0..2 {
        bench.line(&format!("{run} new")).good();
    }
}

/// A loop device, which goes with this.
struct Loop(String);

impl Loop {
    /// `None`, with a word, where none can be had.
    fn over(bench: &Bench, image: &str) -> Option<Loop> {
        let losetup = tool("losetup", "mount")?;
        if !is_root("a loop device") {
            return None;
        }
        let mut command = std::process::Command::new(losetup);
        let made = command
            .args(["-f", "--show"])
            .arg(bench.path(image))
            .output()
            .unwrap();
        if !made.status.success() {
            eprintln!("skipped: no loop device is free");
            return None;
        }
        Some(Loop(
            String::from_utf8_lossy(&made.stdout).trim().to_owned(),
        ))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup")
            .args(["-d", &self.0])
            .status();
    }
}

#[test]
fn partitions_of_a_disk_are_named_and_used_as_those_of_a_file() {
    let bench = Bench::new();
    gpt(&bench, "disk");
    let Some(device) = Loop::over(&bench, "disk") else {
        return;
    };
    let disk = &device.0;
    bench.line(&format!("mkfs -q {disk}#1")).good();
    bench.line(&format!("mkfs -q {disk}#home")).good();
    let refused = bench.line(&format!("mkfs {disk}")).refused(1).stderr;
    assert!(refused.contains("GPT"), "{refused}");
    // The file below a loop device is in use.
    bench.line("mkfs -F disk").refused(1);
    // An undo file of a disk lies where programs keep their state.
    bench.shell(&format!(
        "printf '\\001\\002' | dd of={disk} bs=1 seek=1049612 conv=notrunc status=none
        mkdir state; XDG_STATE_HOME=$PWD/state {} fsck -y {disk}#1 > out || test $? = 1
        test $(ls state/backstitch | wc -l) = 1; grep -q 'undo file: .*/state/backstitch/' out",
        env!("CARGO_BIN_EXE_backstitch")
    ));
    if can_mount() {
        bench.shell("mkdir a b");
        bench.line(&format!("mount {disk}#1 a")).good();
        bench.line(&format!("mount {disk}#2 b")).good();
        bench.shell("echo one > a/x; echo two > b/x");
        for line in [
            format!("mkfs -F {disk}"),
            format!("mkfs -F {disk}#2"),
            format!("info {disk}#1"),
        ] {
            bench.line(&line).refused(1);
        }
        // The one that keeps the kernel off goes first.
        bench.line("umount a").good();
        bench.line("umount b").good();
        assert_eq!(
            bench.line(&format!("cat {disk}#2:/x")).good().text(),
            "two\n"
        );
    }
    // What the kernel uses is left alone, with force as well.
    let mounted = format!("mkdir k; mount -t ext2 -o loop,offset=1M,sizelimit=8M {disk} k");
    let kernel = std::process::Command::new("sh")
        .args(["-c", &mounted])
        .current_dir(bench.path("."))
        .output()
        .unwrap();
    if !kernel.status.success() {
        eprintln!("skipped: the kernel mounts no ext2 here");
        return;
    }
    let done = bench.line(&format!("mkfs -F {disk}"));
    bench.shell("umount k");
    assert_eq!(done.code, 1, "{}", done.text());
    assert!(done.stderr.contains("in use by"), "{}", done.stderr);
}
