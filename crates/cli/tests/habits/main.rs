//! The habits that people bring with them, each with the answer that they expect: from ls(1),
//! cp(1), find(1), chmod(1), chown(1), touch(1), df(1), du(1), getfattr(1) and setfattr(1), on
//! images without mounting them, with and without a journal; from mount(8), chattr(1), fstrim(8)
//! and others on mounts. What needs more than the command lies elsewhere: file handles and NFS in
//! `tests/handles.rs`, all flags beside the kernel's verdicts in `tests/flags.rs`, partitions and
//! what is not ours in `foreign.rs`, undo files in `undo.rs`, snapshots in `snapshot.rs`, `tune` in
//! `tune.rs`.

mod attributes;
mod copies;
mod copying;
mod everyday;
mod interrupted;
mod listing;
mod logs;
mod mounting;
mod newcomer;
mod nothing_lost;

use crate::support::{Bench, Done};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

/// An empty image of each kind that the commands write to in another way.
const KINDS: [&str; 2] = ["-t ext2 -b 1024", "-t ext3 -J 1M -b 1024"];

fn each_kind(test: impl Fn(&Bench)) {
    for kind in KINDS {
        let bench = Bench::new();
        bench.image("a.img", kind);
        test(&bench);
        bench.check("a.img");
    }
}

/// What `stat` shows of a file in the image.
fn stat(bench: &Bench, path: &str) -> Value {
    let shown = bench.line(&format!("stat --json a.img:{path}"));
    shown.good().json()[0].clone()
}

/// Runs the command with something on its standard input.
fn fed(bench: &Bench, line: &str, input: &[u8]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(line.split_ascii_whitespace());
    command.current_dir(bench.path(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Done::of(child.wait_with_output().unwrap())
}
