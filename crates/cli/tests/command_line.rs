//! Exit codes, error lines, help, and the commands that make no file system calls.

use crate::support::{Bench, tool};
use backstitch_crash::generate;
use std::path::Path;

#[test]
fn mkfs_makes_what_it_is_told() {
    let bench = Bench::new();
    let line = "mkfs --json -s 20M -b 2048 -i 8K -I 128 -L label -m 1 -U 01234567-89ab-cdef-0123-456789abcdef a.img";
    let made = bench.line(line).good().json();
    bench.check("a.img");
    let info = bench.line("info --json a.img").good().json();
    assert_eq!(info["uuid"], "01234567-89ab-cdef-0123-456789abcdef");
    assert_eq!(
        (&info["label"], &info["layout"], &info["state"]),
        (&"label".into(), &"ext2".into(), &"clean".into())
    );
    assert_eq!(info["block_size_bytes"], 2048);
    assert_eq!(info["inode_size_bytes"], 128);
    assert_eq!(info["size_bytes"], 20 << 20);
    assert_eq!(info["inodes"], made["inodes"]);
    let text = bench.line("info a.img").good().text();
    assert!(text.contains("20971520 (20 MiB)"), "{text}");
    bench
        .line("mkfs -q -s 8M -O ^dir_index,^resize_inode b.img")
        .good();
    let features = bench.line("info --json b.img").json()["features"].to_string();
    assert!(
        !features.contains("dir_index") && features.contains("filetype"),
        "{features}"
    );
    bench.line("mkfs -q --force b.img").good();
    bench.check("b.img");
}

/// What help and documents say of the workloads of `crash fs` is what there is.
#[test]
fn every_family_of_scripts_is_told() {
    let bench = Bench::new();
    let help = bench.line("crash fs --help").good().text();
    let guide = include_str!("../../../docs/GUIDE.md");
    let guarantees = include_str!("../../../docs/GUARANTEES.md");
    for family in generate::FAMILIES {
        assert!(help.contains(&format!("\n    {} ", family.name)), "{help}");
        assert!(guide.contains(&format!("`{}`", family.name)));
    }
    assert_eq!(generate::FAMILIES.len(), 14);
    let scripts = format!("{} scripts in fourteen families", generate::cases().len());
    assert!(
        guide.contains(&scripts) && guarantees.contains(&scripts),
        "{scripts}"
    );
}

#[test]
fn a_failed_mkfs_leaves_nothing() {
    let bench = Bench::new();
    for (line, code) in [
        ("mkfs a.img", 1),
        ("mkfs -s 1K a.img", 1),
        ("mkfs -s 8M -d nothing a.img", 1),
        ("mkfs -s 8M -b 3000 a.img", 1),
        ("mkfs -s 8M -t ext4 a.img", 2),
        ("mkfs -s 8M -t fat a.img", 2),
        ("mkfs -s 8M -O frobnicate a.img", 2),
        ("mkfs -s 8Q a.img", 2),
        ("mkfs -s 8M -U xyz a.img", 2),
        ("mkfs -s 8M nowhere/a.img", 1),
    ] {
        bench.line(line).refused(code);
        assert!(!bench.path("a.img").exists(), "{line}");
    }
}

#[test]
fn usage_errors_are_one_line_and_exit_2() {
    let bench = Bench::new();
    for line in [
        "",
        "frobnicate",
        "mount",
        "mount a.img",
        "mount -o foo a.img .",
        "mount --ordering x a.img .",
        "ls",
        "cat a.img",
        "cp a b",
        "cp a",
        "mv a.img:/a",
        "mv a.img:/a b.img:/b",
        "rm a",
        "mkdir x",
        "find a.img -type x",
        "ln x y",
        "mount --frobnicate a.img .",
        "crash fs -t ufs2 --workload seq:1 --e2fsck 10",
        "crash fs -t ufs1 --workload seq:1 --kernel 10",
    ] {
        bench.line(line).refused(2);
    }
    bench.line("fsck").refused(16);
    bench.line("fsck -n -y a.img").refused(16);
}

#[test]
fn what_is_not_there_is_said() {
    let bench = Bench::new();
    bench.shell("head -c 1000000 /dev/zero > zero.img; echo > tiny.img");
    for line in [
        "info nothing.img",
        "info zero.img",
        "info tiny.img",
        "ls zero.img",
        "mount zero.img .",
        "mount nothing.img .",
        "stats .",
        "umount .",
        "cp nothing zero.img:/",
        "info nbd://host/x",
    ] {
        let done = bench.line(line).refused(1);
        assert!(
            done.stderr.matches(": ").count() >= 3,
            "WHAT: WHERE: WHY: {}",
            done.stderr
        );
    }
    bench.image("a.img", "");
    bench.line("mount a.img nothing").refused(1);
    for line in [
        "cat a.img:/x",
        "ls a.img:/x/y",
        "rm a.img:/x",
        "cat a.img:/",
        "rm -r a.img:/",
        "mkdir a.img:/",
    ] {
        let done = bench.line(line).refused(1);
        assert!(done.stderr.contains("a.img:/"), "{}", done.stderr);
    }
}

#[test]
fn a_benchmark_of_mailboxes_runs_in_three_ways() {
    let bench = Bench::new();
    let line = "bench imap --scale 0.02 --flush 0 --size 32M --check --json";
    let runs = bench.line(line).good().json()["runs"].clone();
    let of = |ordering: &str, variant: &str| {
        let found = runs.as_array().unwrap().iter();
        let mut found = found.filter(|r| r["ordering"] == ordering && r["variant"] == variant);
        found.next().map(|run| run["flushes"].as_u64().unwrap())
    };
    for ordering in ["soft", "journal=full"] {
        let (fsync, groups) = (of(ordering, "fsync"), of(ordering, "patchgroups"));
        assert!(groups.unwrap() < fsync.unwrap(), "{ordering}");
    }
    assert_eq!(of("soft", "fsync-durable"), None);
    bench.line("bench imap --dir .").refused(2);
}

#[test]
fn commands_to_come_say_so() {
    let bench = Bench::new();
    let done = bench.line("nbd-serve --port 1 x").refused(1);
    assert!(done.stderr.contains("not implemented"), "{}", done.stderr);
}

#[test]
fn bench_runs_on_simulated_disks() {
    let bench = Bench::new();
    let line = "bench postmark-small,sdet --disk viking --size 64M --scale 0.01 --check";
    let [one, two] = [(); 2].map(|()| bench.line(&format!("{line} --json")).good().text());
    assert!(one.contains("\"disk viking\"") && one == two, "{one} {two}");
    let slower = format!("{line} --json --host-speed 0.001 --elevator fifo --queue-depth 1");
    assert_ne!(bench.line(&slower).good().text(), one);
    let traced = "bench zero --disk sata-ssd --files 20 --trace t.json --plot plots";
    bench.line(traced).good();
    let trace = std::fs::read_to_string(bench.path("t.json")).unwrap();
    assert!(
        trace
            .lines()
            .any(|line| line.contains("\"kind\":\"flush\"")),
        "{trace}"
    );
    let picture = std::fs::read_to_string(bench.path("plots/trace-zero-soft.svg")).unwrap();
    assert!(
        picture.contains("flush") && picture.contains("MiB"),
        "{picture}"
    );
    assert!(
        bench
            .line("bench --list-disks")
            .good()
            .text()
            .contains("cheetah9")
    );
    let unknown = bench.line("bench zero --disk vikings").refused(1);
    assert!(
        unknown.stderr.contains("viking, cheetah9"),
        "{}",
        unknown.stderr
    );
    for line in [
        "bench zero,andrew --disk viking --trace t.json",
        "bench zero --memory --elevator fifo",
        "bench zero --disk viking --write-cache maybe",
    ] {
        bench.line(line).refused(2);
    }
}

#[test]
fn bench_measures() {
    let bench = Bench::new();
    let line = "bench zero,andrew --memory --size 64M --scale 0.01 --ordering soft,async --check";
    let table = bench.line(line).good().text();
    assert!(
        table.contains("andrew") && table.contains("async"),
        "{table}"
    );
    let document = bench.line(&format!("{line} --json")).good().json();
    assert_eq!(document["runs"].as_array().unwrap().len(), 4);
    assert_eq!(document["runs"][1]["ordering"], "async");
    bench.shell("mkdir dir plots");
    let line = "bench optimisations --image b.img --size 64M --scale 0.002 --runs 2 --plot plots";
    let tables = bench.line(line).good().text();
    assert!(tables.contains("prototype"), "{tables}");
    assert!(bench.path("plots/optimisations.svg").exists());
    let line = "bench optimisations,untar --memory --files 20 --megabytes 0.2 --json";
    let document = bench.line(line).good().json();
    assert_eq!(document["runs"].as_array().unwrap().len(), 4);
    bench.line("bench zero --dir dir --files 5").good();
    bench.line("bench zero").refused(2);
    bench.line("bench frobnicate --memory").refused(2);
    bench
        .line("bench zero --dir dir --ordering soft")
        .refused(2);
    bench
        .line("bench optimisations --memory --files 5")
        .refused(2);
}

#[test]
fn every_help_has_examples() {
    let bench = Bench::new();
    let help = bench.line("--help").good().text();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_ascii_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() >= 24, "{names:?}");
    for name in names {
        let help = bench.line(&format!("{name} --help")).good().text();
        assert!(help.contains("Examples:"), "{name}: {help}");
    }
    assert!(
        bench
            .line("--version")
            .good()
            .text()
            .starts_with("backstitch ")
    );
}

#[test]
fn completions_and_manual_pages() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = bench.line(&format!("completions {shell}")).good().text();
        assert!(
            script.contains("backstitch") && script.contains("umount"),
            "{shell}"
        );
    }
    bench.line("completions tcsh").refused(2);
    bench.line("man pages").good();
    for page in [
        "backstitch.1",
        "backstitch-mount.1",
        "backstitch-nbd-serve.1",
    ] {
        let path = bench.path("pages").join(page);
        assert!(Path::new(&path).is_file(), "{page}");
    }
}

#[test]
fn fsck_says_what_is_wrong() {
    let bench = Bench::new();
    bench.image("a.img", "-b 1024 -L damaged");
    let clean = bench.line("fsck -n a.img").good().text();
    assert!(clean.starts_with("a.img: clean, 11/"), "{clean}");
    let report = bench.line("fsck --json a.img").good().json();
    assert_eq!(
        (&report["clean"], &report["exit_status"]),
        (&true.into(), &0.into())
    );
    // The block bitmap of group 0: a free block is marked as used, and a used one as free.
    let info = bench.line("info --json a.img").good().json();
    assert_eq!(info["block_size_bytes"], 1024);
    let path = bench.path("a.img");
    let mut bytes = std::fs::read(&path).unwrap();
    let bitmap = 1024 * u32::from_le_bytes(bytes[2048..2052].try_into().unwrap()) as usize;
    bytes[bitmap] &= !1;
    bytes[bitmap + 1000] |= 0x80;
    std::fs::write(&path, bytes).unwrap();
    let done = bench.line("fsck -n a.img");
    assert_eq!(done.code, 4, "{}", done.text());
    assert!(done.text().contains("a.img: damaged: "), "{}", done.text());
    let report = bench.run(&["fsck", "--json", "a.img"]).json();
    let kinds: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|f| f["kind"].as_str())
        .collect();
    assert!(
        kinds.contains(&"leak") && kinds.contains(&"corruption"),
        "{kinds:?}"
    );
    assert!(
        report["findings"][0]["where"].is_string() && report["findings"][0]["what"].is_string()
    );
    // Preening leaves corruption alone, with a hint; everything is repaired once, and then there is
    // nothing to do.
    let before = std::fs::read(&path).unwrap();
    let done = bench.line("fsck -p a.img");
    assert_eq!(done.code, 4, "{}", done.stderr);
    assert!(done.stderr.contains("fsck -y a.img"), "{}", done.stderr);
    assert!(std::fs::read(&path).unwrap() == before);
    let done = bench.line("fsck -y --json a.img");
    let report = done.json();
    assert_eq!((done.code, &report["exit_status"]), (1, &1.into()));
    let repair = &report["repairs"][0];
    assert!(repair["where"].is_string() && repair["what"].is_string());
    bench.check("a.img");
    bench.line("fsck -y a.img").good();
    bench.shell("head -c 100000 /dev/zero > zero.img");
    bench.line("fsck zero.img").refused(8);
    bench.line("fsck -y zero.img").refused(8);
    bench.line("fsck nothing.img").refused(8);
}

#[test]
fn recovery_is_measured_small() {
    let bench = Bench::new();
    let line = "bench recovery --image r.img --size 128M --files 600 --runs 2 --check";
    let table = bench.line(line).good().text();
    assert!(table.contains("usable mount, full"), "{table}");
    let json = bench
        .line("bench recovery --size 64M --files 300 --json")
        .good()
        .json();
    let run = &json["runs"][0];
    let names: Vec<_> = (0..3).map(|i| run["phases"][i]["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            Some("mount_empty"),
            Some("mount_full"),
            Some("reclaim_full")
        ]
    );
    assert!(run["fill_fraction"].as_f64().unwrap() > 0.7);
    assert!(run["reclaimed_inodes"].as_u64().unwrap() >= 500);
    for line in [
        "bench recovery,zero --image r.img",
        "bench recovery --memory",
        "bench recovery --image r.img --ordering sync",
        "bench recovery --image r.img --transactions 5",
    ] {
        bench.line(line).refused(2);
    }
}

/// A disk of FreeBSD's, with a BSD label inside a partition of the MBR.
#[test]
fn a_bsd_label_is_listed() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packed = manifest.join("../../../shared/data/freebsd-disk-ufs1.gz");
    if !packed.exists() || tool("gzip", "gzip").is_none() {
        eprintln!("skipped: {} or gzip is not there", packed.display());
        return;
    }
    let bench = Bench::new();
    let packed = packed.display();
    bench.shell(&format!(
        "gzip -dc {packed} | dd of=disk bs=1M iflag=fullblock conv=sparse status=none"
    ));
    let listed = bench.line("info disk").good().text();
    for (name, holds) in [("1 ", "FreeBSD"), ("1a ", "4.2BSD")] {
        let mut lines = listed.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap_or("");
        assert!(line.contains(holds) && line.contains("ufs1"), "{listed}");
    }
    let info = bench.line("info --json disk#1a").good().json();
    assert_eq!(
        (&info["layout"], &info["state"]),
        (&"ufs1".into(), &"clean".into())
    );
    assert_eq!(info["block_size_bytes"], 2_048);
    assert_eq!(info["whole_block_size_bytes"], 16_384);
    bench.line("fsck -n disk#1a").good();
    let listed = bench.line("ls disk#1a:/").good().text();
    assert_eq!(listed, "bar\nbigdir\nfoo\nl1\nvalentiney.jpg\n");
    // The label lies in the partition, and names it: it stays when that is made anew.
    let asked = bench.line("mkfs -t ufs2 disk#1a");
    assert!(asked.stderr.contains("it holds a UFS1"), "{}", asked.stderr);
    assert!(!asked.stderr.contains("label"), "{}", asked.stderr);
    bench.line("mkfs -q -F -t ufs2 disk#1a").good();
    bench.line("fsck -n disk#1a").good();
    let info = bench.line("info --json disk#1a").good().json();
    assert_eq!(info["layout"], "ufs2");
    let wrong = bench.line("fsck -y -t ufs1 disk#1a");
    assert!(wrong.stderr.contains("holds ufs2"), "{}", wrong.stderr);
}

/// What dumpe2fs says of this, or nothing.
fn dumped(dump: &str, name: &str) -> String {
    let line = dump.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_journal_device_is_shown_as_dumpe2fs_shows_it() {
    if tool("dumpe2fs", "e2fsprogs").is_none() || tool("mke2fs", "e2fsprogs").is_none() {
        return;
    }
    let bench = Bench::new();
    for (make, block) in [
        (
            "mke2fs -q -F -O journal_dev -L theirs -b 1024 log.img 4M",
            1024,
        ),
        (
            "mke2fs -q -F -O journal_dev -L theirs -b 4096 log.img 8M",
            4096,
        ),
        (
            "$BACKSTITCH mkfs -q -O journal_dev -b 1024 -s 4M log.img",
            1024,
        ),
    ] {
        let make = make.replace("$BACKSTITCH", env!("CARGO_BIN_EXE_backstitch"));
        bench.shell(&format!("rm -f log.img disk.img; {make}"));
        let line = format!("mkfs -q -t ext3 -b {block} -s 16M -J device=log.img disk.img");
        bench.line(&line).good();
        let dump = bench.shell("dumpe2fs log.img 2> /dev/null").text();
        let info = bench.line("info --json log.img").good().json();
        let journal = &info["journal"];
        let number = |name: &str| dumped(&dump, name).parse::<u64>().unwrap();
        let text = |name: &str| dumped(&dump, name);
        assert_eq!(info["layout"], "journal");
        assert_eq!(info["features"], serde_json::json!(["journal_dev"]));
        assert_eq!(info["uuid"], text("Filesystem UUID:"));
        assert_eq!(journal["uuid"], info["uuid"]);
        assert_eq!(info["block_size_bytes"], number("Block size:"));
        assert_eq!(info["blocks"], number("Block count:"));
        assert_eq!(journal["blocks"], number("Total journal blocks:"));
        assert_eq!(journal["first"], number("Journal first block:"));
        assert_eq!(journal["start"], number("Journal start:"));
        assert_eq!(
            journal["users"],
            serde_json::json!([text("Journal users:")])
        );
        assert_eq!(journal["checksum_type"], serde_json::Value::Null);
        let sequence = journal["sequence"].as_u64().unwrap();
        assert_eq!(format!("0x{sequence:08x}"), text("Journal sequence:"));
        assert_eq!(
            info["label"] == "theirs",
            text("Filesystem volume name:") == "theirs"
        );

        let user = journal["users"][0].as_str().unwrap();
        let lines = bench.line("info log.img").good().text();
        assert!(lines.contains(&format!("used by {user}")), "{lines}");
        // And of its file system, with and without the device.
        let fs = bench.line("info --json -j log.img disk.img").good().json();
        assert_eq!(
            (&fs["uuid"], &fs["journal"]["blocks"]),
            (&journal["users"][0], &journal["blocks"])
        );
        let fs = bench.line("info --json disk.img").good().json();
        assert_eq!(fs["journal"]["device_uuid"], info["uuid"]);
        for line in ["fsck -n log.img", "fsck -p log.img", "fsck -y log.img"] {
            let done = bench.line(line).refused(8);
            assert!(
                done.stderr.contains("--journal-dev log.img"),
                "{}",
                done.stderr
            );
        }
        let refused = bench.line("ls log.img:/").refused(1);
        assert!(refused.stderr.contains("journal_dev"), "{}", refused.stderr);
        assert_eq!(bench.line("journal dump log.img").good().code, 0);
    }
}
