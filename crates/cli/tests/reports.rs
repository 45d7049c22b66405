//! What `info`, `stats` and `crash app` tell people is true, and nothing is left lying about.

mod support;

use serde_json::Value;
use std::process::Command;
use support::{Bench, Done, can_mount};

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
