//! What `info`, `stats` and `crash app` tell people is true, and nothing is left lying about.

use crate::support::{Bench, Done, can_mount};
use serde_json::Value;
use std::process::Command;

#[test]
fn info_names_no_obstacle_where_there_is_none() {
    let bench = Bench::new();
    let unusable = |image: &str| {
        let info = bench.line(&format!("info --json {image}")).good().json();
        ["not_readable_for", "not_writable_for"].map(|name| info[name].clone())
    };
    bench.image("a.img", "-t ext3 -J 1M -b 1024");
    assert_eq!(
        unusable("a.img"),
        [Value::Array(Vec::new()), Value::Array(Vec::new())]
    );
    let text = bench.line("info a.img").good().text();
    assert!(!text.contains("not writable"), "{text}");
    bench.line("mkfs -q -O journal_dev -s 8M j.img").good();
    bench
        .line("mkfs -q -t ext3 -J device=j.img -s 32M b.img")
        .good();
    assert_eq!(
        unusable("b.img"),
        [Value::Array(Vec::new()), Value::Array(Vec::new())]
    );
    if !can_mount() {
        return;
    }
    // Left in the middle of work: it is replayed, and mounted writable.
    bench.shell("mkdir mnt");
    bench.line("mount a.img mnt").good();
    bench.shell("echo x > mnt/x; sync mnt/x; cp a.img crashed.img");
    bench.line("umount mnt").good();
    let info = bench.line("info --json crashed.img").good().json();
    assert_eq!(info["journal"]["needs_recovery"], true);
    assert_eq!(
        unusable("crashed.img"),
        [Value::Array(Vec::new()), Value::Array(Vec::new())]
    );
}

#[test]
fn info_shows_a_log_of_operations() {
    let bench = Bench::new();
    let shown = |image: &str| {
        let text = bench.line(&format!("info {image}")).good().text();
        let line = text.lines().find(|line| line.starts_with("log "));
        let line = line.unwrap_or_default().to_owned();
        let info = bench.line(&format!("info --json {image}")).good().json();
        (line, info["log"].clone())
    };
    bench.image("none.img", "-t ufs2 -s 32M");
    assert_eq!(shown("none.img"), (String::new(), Value::Null));
    for kind in ["ext2", "ufs1", "ufs2"] {
        let make = |name: &str, log: &str| {
            let options = format!("mkfs -q -F -t {kind} -O {log} -s 32M {name}");
            bench.line(&options).good();
        };
        make("behind.img", "wafs_log");
        let (line, log) = shown("behind.img");
        assert_eq!(log["place"], "behind", "{kind}: {log}");
        let first = log["first_block"].as_u64().unwrap();
        let info = bench.line("info --json behind.img").good().json();
        assert!(first >= info["blocks"].as_u64().unwrap(), "{kind}: {first}");
        let start = format!("lffs-wafs=1…, behind the file system, from block {first} on, ");
        assert!(
            line.contains(&start) && line.ends_with(", empty"),
            "{kind}: {line}"
        );
        make("file.img", "lffs_log");
        let (line, log) = shown("file.img");
        assert_eq!(log["place"], "file", "{kind}: {log}");
        let bytes = bench.line("stat --json file.img:/.lffs-log").good().json();
        assert_eq!(log["size_bytes"], bytes[0]["size_bytes"], "{kind}");
        assert!(
            line.contains("lffs-file, in a file") && line.ends_with(", empty"),
            "{kind}: {line}"
        );
        if !can_mount() {
            continue;
        }
        bench.shell("mkdir -p mnt");
        bench.line("mount --ordering lffs-file file.img mnt").good();
        bench.shell("echo x > mnt/x; sync mnt/x; cp file.img crashed.img");
        bench.line("umount mnt").good();
        let (line, log) = shown("crashed.img");
        assert_eq!(
            (&log["needs_recovery"], &log["is_empty"]),
            (&true.into(), &false.into())
        );
        let records = log["records"].as_u64().unwrap();
        assert!(
            records > 0 && line.ends_with(&format!(" in {records} records")),
            "{kind}: {line}"
        );
        assert!(shown("file.img").0.ends_with(", empty"), "{kind}");
    }
}

#[test]
fn stats_are_grouped_and_json_has_the_old_keys() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("mkdir mnt");
    bench.line("mount a.img mnt").good();
    bench.shell("head -c 3000000 /dev/zero > mnt/x");
    let text = bench.line("stats mnt").good().text();
    let json = bench.line("stats --json mnt").good().json();
    bench.line("umount mnt").good();
    let titles: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(' '))
        .collect();
    let first = ["Mount", "Not on the disk yet", "Since the mount", "Memory"];
    assert_eq!(titles[..4], first, "{text}");
    assert!(
        text.contains("  ordering ") && text.contains(" MiB\n"),
        "{text}"
    );
    for key in [
        "pid",
        "image",
        "ordering",
        "ops",
        "rollbacks",
        "blocks_written",
        "flushes",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
    assert!(json["cache"]["bytes"].as_u64() > Some(1 << 20));
    assert!(json["patches"]["live"].is_u64() && json["undo"]["bytes_peak"].is_u64());
}

/// Runs `crash app` in a directory of its own, with one for temporary files beside it.
fn crash_app(bench: &Bench, words: &[&str]) -> Done {
    bench.shell("mkdir -p here tmp");
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(["crash", "app"]).args(words);
    command.current_dir(bench.path("here"));
    command.env("TMPDIR", bench.path("tmp"));
    Done::of(command.output().unwrap())
}

/// The file is made and renamed, with nothing before the rename that puts it onto the disk.
const CARELESS: &str = "for n in 1 2 3; do echo $n > new; mv new f$n; done; sync f3";

/// Under soft updates the name of the new file may lead to an empty file, if that was written back
/// before its contents came. The program need not pause for that to be found.
#[test]
fn crash_app_finds_what_only_a_pause_of_the_program_leaves() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let program = [
        "--setup",
        "echo version zero > file; sync file",
        "--run",
        "echo version one > tmp; mv tmp file",
        "--trace",
        "trace",
    ];
    let check = ["--check", "grep -q version file"];
    let done = crash_app(&bench, &[&program[..], &check].concat());
    assert_eq!(done.code, 1, "{}{}", done.text(), done.stderr);
    let text = done.text();
    for part in [
        "create tmp, had been written back before",
        "--replay once",
        "with everything written back once, after ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let line = text.lines().find_map(|line| line.split_once("--replay "));
    let replay = ["--trace", "trace", "--replay", line.unwrap().1];
    let again = crash_app(&bench, &[&replay[..], &check].concat());
    assert_eq!(again.code, 1, "{}{}", again.text(), again.stderr);
}

#[test]
fn crash_app_says_that_a_script_needs_its_whole_path() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    for (program, check) in [
        ("sh save.sh", "true"),
        ("./save.sh", "true"),
        ("echo x > f", "sh check.sh"),
    ] {
        let done = crash_app(&bench, &["--run", program, "--check", check]);
        assert_eq!(done.code, 1, "{program}, {check}: {}", done.text());
        let hint = "needs its whole path, in double quotes";
        assert!(
            done.stderr.contains(hint),
            "{program}, {check}: {}",
            done.stderr
        );
    }
}

#[test]
fn crash_app_counts_states_and_leaves_no_trace_about() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let check = "test -e f1";
    let words = [
        "--ordering",
        "async",
        "--states",
        "120",
        "--run",
        CARELESS,
        "--check",
        check,
    ];
    let done = crash_app(&bench, &words);
    assert_eq!(done.code, 1, "{}", done.stderr);
    let text = done.text();
    let left = bench.shell("ls -A tmp here").text();
    assert_eq!(
        left, "here:\nbackstitch-crash-app.trace\n\ntmp:\n",
        "{text}"
    );
    assert!(text.contains("backstitch-crash-app.trace"), "{text}");
    // The same trace says the same, as a document.
    let trace = ["--trace", "backstitch-crash-app.trace", "--json"];
    let again = crash_app(
        &bench,
        &[
            &trace[..],
            &["--ordering", "async", "--states", "120", "--check", check],
        ]
        .concat(),
    );
    let report = again.json();
    let failed = report["coverage"]["states_that_failed"].as_u64().unwrap();
    let shown = report["failures"].as_array().unwrap().len() as u64;
    assert!(failed > shown, "{failed} states, {shown} shown");
    assert!(
        text.contains(&format!(": {failed} failed, {shown} of them shown")),
        "{text}"
    );
    let keys = report["coverage"].as_object().unwrap().keys();
    for key in keys {
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        assert!(key.chars().all(is_plain), "{key}");
    }
    // The line of a failure makes its state again.
    let replay = text
        .lines()
        .find_map(|line| line.strip_prefix("  replay   backstitch"));
    let line = format!("{}{}", env!("CARGO_BIN_EXE_backstitch"), replay.unwrap());
    let output = Command::new("sh")
        .args(["-c", &line])
        .current_dir(bench.path("here"))
        .output();
    let replayed = Done::of(output.unwrap());
    assert_eq!(replayed.code, 1, "{}{}", replayed.text(), replayed.stderr);
    // A run without a failure leaves nothing at all.
    bench.shell("rm here/*");
    crash_app(
        &bench,
        &["--states", "20", "--run", "echo x > f", "--check", "true"],
    )
    .good();
    assert_eq!(bench.shell("ls -A tmp here").text(), "here:\n\ntmp:\n");
}
