//! Real programs that rely on patchgroups, on a real mount, and every state that a power cut could
//! leave of what they did: a compressor, a mail server, SQLite, git, a package manager and
//! Subversion's working copy (Frost et al., SOSP 2007, §5.2), with the very scripts of
//! `docs/examples`. The order holds in each state; with the groups taken out, the explorer finds
//! the loss.
//!
//! `BACKSTITCH_STATES=n` looks at n states of each program under every mechanism; without it at a
//! few, of each under `soft`, of some under a journal too.

use crate::support::{Done, can_mount};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const JOURNALS: [&str; 3] = ["journal=ordered", "journal=writeback", "journal=full"];

/// Where the loss is looked for with the groups taken out. Transactions reach the disk in sequence,
/// so under a journal there may be none.
const LOSSY: &str = "soft";

struct Case {
    name: &'static str,
    setup: String,
    run: String,
    check: String,
    /// Looked at in a short run too.
    journal: Option<&'static str>,
    /// The number of states in which the loss is found.
    lossy_states: u32,
}

struct Stage {
    dir: TempDir,
    examples: PathBuf,
}

impl Stage {
    fn new(tools: &[&str]) -> Option<Stage> {
        if !can_mount() {
            return None;
        }
        for tool in tools {
            let asked = format!("command -v {tool} > /dev/null");
            let found = Command::new("sh").args(["-c", &asked]).status();
            if !found.is_ok_and(|status| status.success()) {
                eprintln!("skipped: there is no {tool} (Debian package of that name)");
                return None;
            }
        }
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
        Some(Stage {
            dir: tempfile::tempdir().unwrap(),
            examples: examples.canonicalize().unwrap(),
        })
    }

    fn script(&self, words: &str) -> String {
        let (interpreter, words) = match words.contains(".py") {
            true => ("python3 -S", words),
            false => ("sh", words),
        };
        format!("{interpreter} {}/{words}", self.examples.display())
    }

    fn explore(&self, ordering: &str, check: &str, states: u32, more: &[&str]) -> Done {
        let python = self.examples.join("../../crates/patchgroup/python");
        let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
        command
            .args([
                "crash",
                "app",
                "--json",
                "--size",
                "32M",
                "--ordering",
                ordering,
            ])
            .args(["--check", check, "--states", &states.to_string()])
            .args(more)
            .current_dir(self.dir.path())
            .env("BACKSTITCH", env!("CARGO_BIN_EXE_backstitch"))
            .env("PYTHONPATH", python)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        Done::of(command.output().unwrap())
    }

    /// The check passes in every state that is visited: under `soft`, and under one journal if it
    /// is named; under all with `BACKSTITCH_STATES`.
    fn holds(
        &self,
        name: &str,
        setup: &str,
        run: &str,
        check: &str,
        journal: Option<&'static str>,
    ) {
        let asked: Option<u32> = std::env::var("BACKSTITCH_STATES")
            .ok()
            .map(|n| n.parse().unwrap());
        let orderings = match (asked, journal) {
            (Some(_), _) => [&["soft"], &JOURNALS[..]].concat(),
            (None, Some(journal)) => vec!["soft", journal],
            (None, None) => vec!["soft"],
        };
        for ordering in orderings {
            let trace = format!("{name}-{ordering}.trace");
            let more = ["--setup", setup, "--run", run, "--trace", &trace];
            let done = self.explore(ordering, check, asked.unwrap_or(24), &more);
            assert_eq!(
                done.code,
                0,
                "{name} under {ordering}: {} {}",
                done.text(),
                done.stderr
            );
            let report = done.json();
            let is_all = report["exhaustive"] == true;
            let part = if is_all { "all" } else { "a sample" };
            eprintln!(
                "{name} under {ordering}: {} states, {part}",
                report["states"]
            );
            assert!(report["states"].as_u64() >= Some(20) || is_all, "{report}");
        }
    }

    /// The order holds in every state; without groups something is lost.
    fn judge(&self, case: &Case) {
        self.holds(case.name, &case.setup, &case.run, &case.check, case.journal);
        let trace = format!("{}-{LOSSY}.trace", case.name);
        let more = ["--trace", &trace, "--without-groups"];
        let done = self.explore(LOSSY, &case.check, case.lossy_states, &more);
        assert_eq!(
            done.code, 1,
            "{} loses nothing without groups: {}",
            case.name, done.stderr
        );
        let failures = done.json()["failures"].as_array().unwrap().len();
        assert!(failures > 0);
    }
}

#[test]
fn a_compressor_removes_its_input_after_its_output() {
    let Some(stage) = Stage::new(&["gzip"]) else {
        return;
    };
    let script = |word: &str| stage.script(&format!("order/compress.sh {word}"));
    stage.judge(&Case {
        name: "compressor",
        journal: None,
        setup: script("setup"),
        run: script("run"),
        check: script("check"),
        lossy_states: 40,
    });
}

#[test]
fn a_mail_server_moves_messages() {
    let Some(stage) = Stage::new(&["python3"]) else {
        return;
    };
    let script = |words: &str| stage.script(&format!("order/mailbox.py {words}"));
    stage.judge(&Case {
        name: "mail",
        journal: Some("journal=writeback"),
        setup: script("setup 4"),
        run: script("run groups"),
        check: script("check"),
        lossy_states: 24,
    });
}

/// Figure 11's two other ways, which wait: the same order, and no groups to take out.
#[test]
fn a_mail_server_that_waits_loses_nothing_either() {
    let Some(stage) = Stage::new(&["python3"]) else {
        return;
    };
    let script = |words: &str| stage.script(&format!("order/mailbox.py {words}"));
    for way in ["fsync", "durable"] {
        let (setup, run) = (script("setup 4"), script(&format!("run {way}")));
        stage.holds(way, &setup, &run, &script("check"), None);
    }
}

#[test]
fn git_clones_and_commits_under_order() {
    let Some(stage) = Stage::new(&["git"]) else {
        return;
    };
    let script = |word: &str| stage.script(&format!("order/git.sh {word}"));
    stage.judge(&Case {
        name: "git",
        journal: None,
        setup: script("setup 1"),
        run: script("run 2"),
        check: script("check"),
        lossy_states: 240,
    });
}

#[test]
fn packages_are_unpacked_under_order() {
    let Some(stage) = Stage::new(&["python3"]) else {
        return;
    };
    let script = |word: &str| stage.script(&format!("order/unpack.py {word}"));
    stage.judge(&Case {
        name: "packages",
        journal: Some("journal=full"),
        setup: script("setup"),
        run: format!(
            "{} order -- {}",
            env!("CARGO_BIN_EXE_backstitch"),
            script("run")
        ),
        check: script("check"),
        lossy_states: 30,
    });
}

#[test]
fn subversion_installs_what_is_there() {
    let Some(stage) = Stage::new(&["python3"]) else {
        return;
    };
    let script = |word: &str| stage.script(&format!("order/subversion.py {word}"));
    stage.judge(&Case {
        name: "subversion",
        journal: None,
        setup: script("setup"),
        run: script("run"),
        check: script("check"),
        lossy_states: 30,
    });
}

/// SQLite's VFS of patchgroups as a loadable extension, built by the line that its source tells
/// people; `None` where it cannot be built here.
fn extension(into: &Path) -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = top.join("crates/patchgroup/sqlite/backstitch.c");
    let source = std::fs::read_to_string(source).unwrap();
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libpatchgroup.a");
    let built = into.join("backstitch.so");
    let told = source
        .lines()
        .find_map(|line| line.strip_prefix(" *     cc "));
    let replaced = |line: &str, what: &str, by: &Path| {
        assert!(line.contains(what), "{line}");
        line.replace(what, by.to_str().unwrap())
    };
    let line = replaced(told.unwrap(), "target/release/libpatchgroup.a", &library);
    let line = replaced(&line, "backstitch.so", &built);
    let done = Command::new("sh")
        .args(["-c", &format!("cc -Wall -Wextra -Werror {line}")])
        .current_dir(top)
        .output();
    let why = match done {
        Ok(done) if done.status.success() => return Some(built),
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(error) => format!("cc: {error} (Debian package gcc)"),
    };
    let is_missing = !why.contains(": error") || why.contains("sqlite3ext.h: No such file");
    assert!(is_missing, "{why}");
    eprintln!("skipped: {why} (Debian packages gcc, libsqlite3-dev)");
    None
}

#[test]
fn sqlite_commits_in_order() {
    let Some(stage) = Stage::new(&["sqlite3"]) else {
        return;
    };
    let Some(extension) = extension(stage.dir.path()) else {
        return;
    };
    let script = |words: &str| stage.script(&format!("crash-app/{words}"));
    let run = |journal: &str| {
        script(&format!(
            "sqlite.sh DELETE {journal} {}",
            extension.display()
        ))
    };
    stage.judge(&Case {
        name: "sqlite",
        journal: Some("journal=ordered"),
        setup: script("sqlite-setup.sh DELETE"),
        run: run("FULL"),
        check: script("sqlite-check.sh consistent"),
        lossy_states: 60,
    });
}

/// Processes that take turns, and syncs that wait because somebody asked for it: what was committed
/// is there.
#[test]
fn sqlite_is_shared_and_waits_where_it_is_told_to() {
    let Some(stage) = Stage::new(&["sqlite3", "python3"]) else {
        return;
    };
    let Some(extension) = extension(stage.dir.path()) else {
        return;
    };
    let extension = extension.display();
    let script = |words: &str| stage.script(&format!("crash-app/{words}"));
    let setup = script("sqlite-setup.sh DELETE");
    let consistent = script("sqlite-check.sh consistent");
    let two = script(&format!("sqlite-two.py {extension}"));
    stage.holds("sqlite-two", &setup, &two, &consistent, None);
    let extra = script(&format!("sqlite.sh DELETE EXTRA {extension}"));
    stage.holds("sqlite-extra", &setup, &extra, &consistent, None);
    let durable = format!("{extra} durable");
    let check = script("sqlite-check.sh durable");
    stage.holds("sqlite-durable", &setup, &durable, &check, None);
}
