//! `crash fs`: every state that a crash can leave of the file system itself, with ACE's workloads
//! and random ones. Foreign tools check a sample. Without order it must fail at once.

use backstitch_tests::command::{Outcome, backstitch, run_within, tool};
use backstitch_tests::require;
use backstitch_tests::requirements::missing;
use backstitch_tests::say;
use backstitch_tests::scratch::Scratch;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn crash_fs(arguments: &[&str]) -> Outcome {
    let mut command = backstitch();
    command.args(["crash", "fs"]).args(arguments);
    run_within(&mut command, Duration::from_secs(300))
}

fn number(report: &Value, name: &str) -> u64 {
    let value = &report[name];
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{name} is missing in {report}"))
}

fn tell(what: &str, report: &Value) {
    say(&format!(
        "{what}: {} states, {} different, {:.0} a second",
        report["states"],
        report["distinct"],
        report["states_per_second"].as_f64().unwrap_or_default()
    ));
}

/// The default of `crash fs` without arguments, cut short: all mechanisms that keep order, one
/// after the other.
#[test]
fn without_arguments_every_mechanism_is_explored() {
    let found = crash_fs(&["--states", "200"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    let told = found.text();
    for mechanism in [
        "soft",
        "interbuffer",
        "journal=full",
        "lffs-file",
        "lffs-wafs=2async",
    ] {
        let line = format!("{mechanism}: ");
        assert!(
            told.lines().any(|l| l.starts_with(&line)),
            "{mechanism} in {told}"
        );
    }
}

/// It says what it has found by then, although the workload alone would take it hours.
#[test]
fn a_run_that_is_interrupted_reports_so_far() {
    let mut command = tool("timeout");
    // In the foreground it sends one signal; else a second one, to all of the group, which kills.
    command.args(["--foreground", "--preserve-status", "-s", "TERM", "3"]);
    command.arg(backstitch().get_program());
    command.args(["crash", "fs", "--json", "--workload", "random:60"]);
    let found = run_within(&mut command, Duration::from_secs(120));
    assert_eq!(found.code, Some(130), "{found:?}");
    let report = found.json();
    assert!(number(&report, "states") > 0, "{report}");
    assert_eq!(report["exhaustive"], false);
    let notes = report["notes"].to_string();
    assert!(notes.contains("Interrupted"), "{notes}");
}

/// With all optimisations. Without them the graphs have ten times as many states (`make soak`); the
/// random workloads below run both ways.
#[test]
fn no_state_of_aces_workloads_is_wrong_under_soft_updates() {
    require!("e2fsck");
    let e2fsck = [
        "--ordering",
        "soft",
        "--workload",
        "ace:1",
        "--opt",
        "both",
        "--e2fsck",
        "500",
        "--json",
    ];
    let mut arguments = e2fsck.to_vec();
    // The kernel mounts a sample, if it can here.
    if missing("loop").is_none() {
        arguments.extend(["--kernel", "20000"]);
    }
    let outcome = crash_fs(&arguments).expect_success();
    let report = outcome.json();
    tell("soft, ACE", &report);
    assert_eq!(report["failures"], Value::Array(vec![]));
    assert_eq!(report["exhaustive"], Value::Bool(true), "{report}");
    assert!(number(&report, "distinct") > 40_000, "{report}");
    assert!(
        number(&report["coverage"], "states_checked_by_e2fsck") > 100,
        "{report}"
    );
    assert!(
        number(&report["coverage"], "states_of_second_crashes") > 10_000,
        "{report}"
    );
}

#[test]
fn no_state_of_random_workloads_is_wrong_under_soft_updates() {
    let random = [
        "--workload",
        "seq:1,random:10",
        "--exhaustive",
        "500",
        "--samples",
        "200",
    ];
    let mut arguments = random.to_vec();
    arguments.extend(["--states", "200000", "--json"]);
    let report = crash_fs(&arguments).expect_success().json();
    tell("soft, random", &report);
    assert!(number(&report, "distinct") > 20_000, "{report}");
}

/// A part of the states of each run; `make soak` has all (part `sync`).
#[test]
fn no_state_is_wrong_with_synchronous_metadata() {
    let arguments = [
        "--ordering",
        "sync",
        "--workload",
        "ace:1,seq:1",
        "--states-each",
        "200",
        "--opt",
        "both",
        "--json",
    ];
    let report = crash_fs(&arguments).expect_success().json();
    tell("sync", &report);
    assert!(number(&report, "distinct") > 1000, "{report}");
}

/// Two of the six kinds of journals are explored completely, the others for a few seconds.
#[test]
fn no_state_of_aces_workloads_leaves_anything_with_a_journal() {
    let kinds: [(&str, &[&str], bool); 6] = [
        ("journal=full", &[], true),
        ("journal=full", &["--journal-dev"], true),
        ("journal=ordered", &["--states-each", "25"], false),
        (
            "journal=ordered",
            &["--journal-dev", "--states-each", "25"],
            false,
        ),
        ("journal=writeback", &["--states-each", "25"], false),
        (
            "journal=writeback",
            &["--journal-dev", "--states-each", "25"],
            false,
        ),
    ];
    for (ordering, more, is_exhaustive) in kinds {
        let mut arguments = vec!["--ordering", ordering, "--workload", "ace:1", "--json"];
        // Other optimisations give other graphs of the same transactions.
        arguments.extend(["--opt", "both", "--reclaim", "2000"]);
        arguments.extend(more);
        let report = crash_fs(&arguments).expect_success().json();
        let outside = if more.contains(&"--journal-dev") {
            ", on a device of its own"
        } else {
            ""
        };
        tell(&format!("{ordering}{outside}, ACE"), &report);
        assert_eq!(report["failures"], Value::Array(vec![]));
        assert_eq!(report["exhaustive"], Value::Bool(is_exhaustive), "{report}");
        let recovered = number(&report["coverage"], "states_different_once_replayed");
        assert!(recovered > 300, "{report}");
    }
}

#[test]
fn without_order_damage_is_found_at_once_and_found_again() {
    let scratch = Scratch::new("crash-fs-async");
    let image = scratch.path("kept.img");
    let trace = scratch.path("failing.trace");
    let arguments = [
        "--ordering",
        "async",
        "--workload",
        "ace:1",
        "--json",
        "--keep",
        image.to_str().unwrap(),
        "--record",
        trace.to_str().unwrap(),
    ];
    let outcome = crash_fs(&arguments);
    assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
    assert!(outcome.elapsed < Duration::from_secs(10));
    let report = outcome.json();
    let failure = &report["failures"][0];
    assert_eq!(failure["minimised"], Value::Bool(true), "{failure}");
    assert_eq!(
        failure["operations"].as_array().unwrap().len(),
        1,
        "{failure}"
    );
    // The line for the replay is for a shell. Here the binary under test replaces the installed
    // one.
    let line = failure["replay"].as_str().unwrap();
    let (again, trace_again) = (scratch.path("again.img"), scratch.path("again.trace"));
    let binary = backstitch();
    let line = line.replacen("backstitch", &binary.get_program().to_string_lossy(), 1);
    let mut shell = std::process::Command::new("sh");
    let (keep, record) = (again.display(), trace_again.display());
    shell
        .arg("-c")
        .arg(format!("{line} --keep {keep} --record {record}"));
    let outcome = run_within(&mut shell, Duration::from_secs(60));
    assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
    assert!(
        outcome
            .text()
            .contains(failure["verdict"].as_str().unwrap())
    );
    for (first, second) in [(&image, &again), (&trace, &trace_again)] {
        assert_eq!(
            std::fs::read(first).unwrap(),
            std::fs::read(second).unwrap()
        );
    }
    expect_graph(failure, &trace);
}

/// The report shows the missing order, and the patches with which the trace of the run ends.
fn expect_graph(failure: &Value, trace: &Path) {
    let graph = &failure["graph"];
    let patches = graph["patches"].as_array().unwrap();
    let order = &graph["missing"][0];
    let end = |end: &Value| &patches[end.as_u64().expect("a patch") as usize];
    let before = &order["befores"][0];
    assert_eq!(end(&order["after"])["state"], "on disk", "{graph}");
    assert_eq!(end(before)["state"], "missing", "{graph}");
    let mut command = backstitch();
    command
        .args(["trace", "graph", "--format", "json"])
        .arg(trace);
    let drawn = run_within(&mut command, Duration::from_secs(60)).expect_success();
    let drawn = drawn.json();
    let nodes = drawn["nodes"].as_array().unwrap();
    for patch in patches {
        let is_it = |node: &&Value| node["patch"] == patch["number"];
        let node = nodes.iter().find(is_it);
        assert!(node.is_some(), "{patch} is not in {drawn}");
    }
}

#[test]
fn the_same_seed_gives_the_same_page() {
    let scratch = Scratch::new("crash-fs-same");
    let page = |name: &str, jobs: &str| {
        let path = scratch.path(name);
        let html = path.to_str().unwrap();
        let workload = [
            "--workload",
            "random:6",
            "--exhaustive",
            "100",
            "--samples",
            "50",
        ];
        let mut arguments = workload.to_vec();
        arguments.extend([
            "--ordering",
            "soft,async",
            "--torn",
            "--jobs",
            jobs,
            "--html",
            html,
        ]);
        assert_eq!(crash_fs(&arguments).code, Some(1));
        std::fs::read_to_string(&path).unwrap()
    };
    let first = page("first.html", "1");
    assert!(
        first.contains("<html") && first.contains("--replay") && first.contains(">missing</text>"),
        "{first}"
    );
    assert_eq!(first, page("second.html", "2"));
}

/// ACE's own file, if it is beside the project.
fn aces_file() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    let path = root.join("shared/data/ace/seq1.jlang");
    path.exists().then_some(path)
}

#[test]
fn aces_own_file_is_read_as_it_is() {
    let Some(path) = aces_file() else {
        return backstitch_tests::requirements::skip(
            "aces_own_file_is_read_as_it_is",
            "ACE's seq1.jlang",
        );
    };
    let arguments = [
        "--workload",
        path.to_str().unwrap(),
        "--opt",
        "both",
        "--json",
    ];
    let report = crash_fs(&arguments).expect_success().json();
    tell("soft, ACE's file", &report);
    assert_eq!(number(&report["coverage"], "workloads"), 416);
    let refused = report["coverage"].get("operations_answered_with_an_error");
    assert_eq!(refused, None, "{report}");
}
