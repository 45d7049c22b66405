//! `crash app` on its two worked examples, with the scripts of `docs/examples/crash-app`: SQLite
//! keeps its promises with `synchronous=FULL`, and is damaged with `OFF`; a program that saves by
//! rename without an fsync loses contents under `async`.

use backstitch_tests::command::{Outcome, backstitch, run, run_within, tool};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A script of the examples with its arguments, as a shell command.
fn example(script: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/crash-app");
    let dir = dir.canonicalize().unwrap();
    format!("sh {}/{script}", dir.display())
}

fn app(scratch: &Scratch, check: &str, more: &[&str]) -> Outcome {
    let mut command = backstitch();
    command.args(["crash", "app", "--json", "--check"]);
    command.arg(example(check)).args(more);
    command.current_dir(scratch.path(""));
    run_within(&mut command, Duration::from_secs(300))
}

/// Records the SQLite example with a journal mode and a value of `synchronous`.
fn sqlite(scratch: &Scratch, journal: &str, synchronous: &str) -> PathBuf {
    let trace = scratch.path(&format!("{journal}-{synchronous}.trace"));
    let setup = example(&format!("sqlite-setup.sh {journal}"));
    let program = example(&format!("sqlite.sh {journal} {synchronous}"));
    let arguments = ["--setup", &setup, "--run", &program, "--states", "1"];
    let trace_arguments = ["--trace", trace.to_str().unwrap()];
    let more = [&arguments[..], &trace_arguments].concat();
    app(scratch, "sqlite-check.sh consistent", &more).expect_success();
    trace
}

fn explore(scratch: &Scratch, trace: &Path, check: &str, more: &[&str]) -> Outcome {
    let trace = ["--trace", trace.to_str().unwrap()];
    app(scratch, check, &[&trace, more].concat())
}

fn expect_failures(outcome: Outcome) -> Vec<Value> {
    assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
    let report = outcome.json();
    assert_eq!(report["kind"], "app");
    report["failures"].as_array().unwrap().clone()
}

/// The line for the replay, run by a shell as a person would do it, shows the same.
fn expect_replay(scratch: &Scratch, failure: &Value) {
    let command = backstitch();
    let program = command.get_program().to_str().unwrap();
    let kept = scratch.path("kept.img");
    let line = failure["replay"].as_str().unwrap();
    let line = line.replacen("backstitch", program, 1);
    let line = format!("{line} --json --keep {}", kept.display());
    let outcome = run(tool("sh").arg("-c").arg(line).current_dir(scratch.path("")));
    let again = &expect_failures(outcome)[0];
    for key in ["verdict", "operations", "cut", "blocks", "replay"] {
        assert_eq!(again[key], failure[key]);
    }
    assert_eq!(kept.metadata().unwrap().len(), 64 << 20);
}

fn text<'a>(failure: &'a Value, key: &str) -> &'a str {
    failure[key].as_str().unwrap()
}

#[test]
fn sqlite_keeps_with_full_what_it_promises() {
    require!("fuse", "backstitch", "sqlite3");
    let scratch = Scratch::new("crash_app_full");
    // With a rollback journal the last transaction may be undone, since SQLite does not make the
    // removal of the journal durable.
    for (journal, check) in [("DELETE", "but-last"), ("WAL", "durable")] {
        let trace = sqlite(&scratch, journal, "FULL");
        let check = format!("sqlite-check.sh {check}");
        let outcome = explore(&scratch, &trace, &check, &["--states", "300"]).expect_success();
        let report = outcome.json();
        assert_eq!(report["failures"], Value::Array(Vec::new()));
        assert_eq!(
            (&report["states"], &report["distinct"]),
            (&300.into(), &300.into())
        );
        for key in ["leaks_max", "states_per_second"] {
            assert!(report[key].is_number(), "{key} in {report}");
        }
        assert!(
            report["coverage"]["operations"].as_u64() > Some(100),
            "{report}"
        );
    }
}

#[test]
fn sqlite_is_damaged_with_off() {
    require!("fuse", "backstitch", "sqlite3");
    let scratch = Scratch::new("crash_app_off");
    let trace = sqlite(&scratch, "DELETE", "OFF");
    let page = scratch.path("report.html");
    let explored = |jobs: &str| -> (Vec<Value>, String) {
        let more = ["--states", "150", "--seed", "7", "--jobs", jobs, "--html"];
        let more = [&more[..], &[page.to_str().unwrap()]].concat();
        let outcome = explore(&scratch, &trace, "sqlite-check.sh consistent", &more);
        let failures = expect_failures(outcome);
        (failures, std::fs::read_to_string(&page).unwrap())
    };
    let (failures, first) = explored("1");
    assert_eq!(
        first,
        explored("2").1,
        "the same trace and seed, and another page"
    );
    let failure = &failures[0];
    assert!(
        text(failure, "verdict").contains("the database is damaged"),
        "{failure}"
    );
    assert_eq!(failure["minimised"], true);
    assert!(
        text(failure, "cut").contains("fsync"),
        "it says why: {failure}"
    );
    let blocks = failure["blocks"].as_array().unwrap();
    let missing = |block: &&Value| block["state"] == "missing";
    assert!(blocks.iter().any(|block| !missing(&block)), "{failure}");
    assert!(
        (1..=3).contains(&blocks.iter().filter(missing).count()),
        "{failure}"
    );
    expect_replay(&scratch, failure);
}

#[test]
fn a_rename_without_fsync_loses_contents_under_async() {
    require!("fuse", "backstitch");
    let scratch = Scratch::new("crash_app_rename");
    let trace = scratch.path("rename.trace");
    let (setup, program) = (example("rename-setup.sh"), example("rename.sh"));
    let arguments = ["--ordering", "async", "--setup", &setup, "--run", &program];
    let trace_arguments = ["--trace", trace.to_str().unwrap(), "--states", "200"];
    let more = [&arguments[..], &trace_arguments].concat();
    let failures = expect_failures(app(&scratch, "rename-check.sh", &more));
    // The states are a sample, in which others may fail too.
    let why = "the name config reached the disk, but the file's contents";
    let is_it = |failure: &&Value| text(failure, "cut").contains(why);
    let failure = failures.iter().find(is_it);
    let failure = failure.unwrap_or_else(|| panic!("none with this reason: {failures:?}"));
    let operations = failure["operations"].as_array().unwrap();
    let renamed = |line: &Value| line == "rename config.new to config";
    assert!(operations.iter().any(renamed), "{failure}");
    let lost = |block: &Value| {
        block["state"] == "missing" && text(block, "what").starts_with("contents of config")
    };
    assert!(
        failure["blocks"].as_array().unwrap().iter().any(lost),
        "{failure}"
    );
    let damaged = failures
        .iter()
        .rposition(|f| text(f, "verdict").starts_with("the file system is damaged"));
    assert_eq!(damaged, Some(failures.len() - 1), "{failures:?}");
}

/// A program that saves by a rename. It syncs the new version before it is written, but not after.
const SAVES: &str = "\
# backstitch trace 1
# image size=8388608 block=1024 uid=0 gid=0
as 0 0 644
creat config #257
write #257 0 hex:6f6c64
sync
# setup ends
creat config.new #258
fsync #258
write #258 0 hex:6e6577
rename config.new config
said saved%0a
";

/// The first failure that a check finds with that program, and the trace of its patches.
fn failure_of_saves(scratch: &Scratch, check: &str) -> (Value, PathBuf) {
    let (program, patches) = (scratch.path("program.trace"), scratch.path("patches.trace"));
    std::fs::write(&program, SAVES).unwrap();
    let mut command = backstitch();
    command.args(["crash", "app", "--json", "--check", check, "--trace"]);
    command.arg(program).arg("--record").arg(&patches);
    let outcome = run_within(&mut command, Duration::from_secs(300));
    let failures = expect_failures(outcome);
    (failures[0].clone(), patches)
}

/// The trace ends with the patches that the report shows, with the same numbers.
fn expect_trace(graph: &Value, trace: &Path) {
    let mut command = backstitch();
    command
        .args(["trace", "graph", "--format", "json"])
        .arg(trace);
    let drawn = run_within(&mut command, Duration::from_secs(60)).expect_success();
    let drawn = drawn.json();
    let nodes = drawn["nodes"].as_array().unwrap();
    let patches = graph["patches"].as_array().unwrap();
    assert!(!patches.is_empty(), "{graph}");
    for patch in patches {
        let is_there = nodes.iter().any(|node| node["patch"] == patch["number"]);
        assert!(is_there, "{patch} is not in {drawn}");
    }
}

#[test]
fn the_missing_fsync_is_drawn_and_told() {
    require!("fuse", "backstitch");
    let scratch = Scratch::new("crash_app_graph");
    let whole = "case $(cat config) in old|new) ;; *) echo neither; exit 1;; esac";
    let (failure, trace) = failure_of_saves(&scratch, whole);
    let graph = &failure["graph"];
    let end = |end: &Value| &graph["patches"][end.as_u64().expect("a patch") as usize];
    let missing = graph["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{graph}");
    let (after, before) = (end(&missing[0]["after"]), end(&missing[0]["befores"][0]));
    for (patch, state, operation) in [
        (after, "on disk", "rename /config.new /config"),
        (before, "missing", "write /config.new 0+3"),
    ] {
        assert_eq!(patch["state"], state, "{graph}");
        assert_eq!(patch["operation"], operation, "{graph}");
    }
    let said = text(graph, "said");
    assert!(
        said.contains("An fsync of what \"write /config.new 0+3\" changed, before \"rename"),
        "{said}"
    );
    expect_trace(graph, &trace);
    // What the program said to be saved is lost. No order of the changes forbids that.
    let kept = "grep -q saved $BACKSTITCH_OUTPUT || exit 0; [ \"$(cat config)\" = new ]";
    let (failure, trace) = failure_of_saves(&scratch, kept);
    let graph = &failure["graph"];
    let order = &graph["missing"][0];
    assert!(
        order["after"].is_null() && order["befores"][0].is_u64(),
        "{graph}"
    );
    let said = text(graph, "said");
    assert!(said.contains("before the program relied on it"), "{said}");
    expect_trace(graph, &trace);
}

#[test]
fn a_rename_after_fsync_is_whole_under_soft() {
    require!("fuse", "backstitch");
    let scratch = Scratch::new("crash_app_fsync");
    let (setup, program) = (example("rename-setup.sh"), example("rename.sh fsync"));
    let arguments = ["--setup", &setup, "--run", &program, "--states", "200"];
    app(&scratch, "rename-check.sh", &arguments).expect_success();
}

#[test]
fn what_cannot_be_explored_is_told() {
    require!("fuse", "backstitch");
    let scratch = Scratch::new("crash_app_errors");
    let missing = scratch.path("missing.trace");
    let missing = missing.to_str().unwrap();
    std::fs::write(scratch.path("bad.trace"), "mkdir A\n").unwrap();
    let bad = scratch.path("bad.trace");
    for (arguments, why) in [
        (
            &["--run", "exit 3"][..],
            "the program failed: exit status: 3",
        ),
        (&["--trace", missing], "No such file"),
        (&["--trace", bad.to_str().unwrap()], "no trace"),
    ] {
        let outcome = app(&scratch, "rename-check.sh", arguments);
        assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
        assert!(outcome.stderr.contains(why), "{}", outcome.describe());
    }
    let outcome = app(&scratch, "rename-check.sh", &[]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.describe());
}
