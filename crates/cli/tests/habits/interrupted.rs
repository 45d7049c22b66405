//! Ctrl-C in what takes long.

use crate::support::{Bench, Done};
use std::process::{Command, Stdio};

/// Starts a copy of endless input, and ends it by a signal.
fn interrupted(bench: &Bench, line: &str, wait: impl Fn() -> bool) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(line.split_ascii_whitespace());
    command.current_dir(bench.path(""));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !wait() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    Done::of(child.wait_with_output().unwrap())
}

/// A directory whose copy takes a while: the last file is a pipe's size of data far larger than
/// what is copied at once.
fn large_tree(bench: &Bench) {
    bench.shell("mkdir s; i=0; while [ $i -lt 40 ]; do head -c 4000000 /dev/urandom > s/f$(printf %03d $i); i=$((i+1)); done");
}

#[test]
fn an_interrupted_copy_says_what_is_there() {
    let bench = Bench::new();
    large_tree(&bench);
    bench.image("a.img", "-s 256M -b 1024");
    let marker = bench.path("a.img");
    let begun = std::fs::metadata(&marker).unwrap();
    let blocks = |seen: &std::fs::Metadata| std::os::unix::fs::MetadataExt::blocks(seen);
    let done = interrupted(&bench, "cp -r s a.img:/", || {
        blocks(&std::fs::metadata(&marker).unwrap()) > blocks(&begun) + 20_000
    });
    if done.code == 0 {
        eprintln!("skipped: the copy was faster than the signal");
        return;
    }
    let done = done.refused(1);
    assert!(done.stderr.contains("interrupted"), "{}", done.stderr);
    assert!(
        done.stderr.contains("files were copied completely"),
        "{}",
        done.stderr
    );
    bench.check("a.img");
    // Whatever has a name is whole.
    bench.line("cp -r a.img:/s out").good();
    bench.shell("for f in out/*; do cmp $f s/$(basename $f); done");
    assert!(bench.shell("ls out").text().lines().count() < 40);
    // The rest comes with -u.
    bench.line("cp -ru s a.img:/").good();
    assert_eq!(bench.line("ls a.img:/s").text().lines().count(), 40);
}

#[test]
fn an_interrupted_mkfs_leaves_no_image() {
    let bench = Bench::new();
    large_tree(&bench);
    let image = bench.path("a.img");
    let is_filling = || {
        let seen = std::fs::metadata(&image);
        seen.is_ok_and(|seen| std::os::unix::fs::MetadataExt::blocks(&seen) > 20_000)
    };
    let done = interrupted(&bench, "mkfs -q -s 256M -b 1024 -d s a.img", is_filling);
    if done.code == 0 {
        eprintln!("skipped: the copy was faster than the signal");
        return;
    }
    let done = done.refused(1);
    assert!(done.stderr.contains("nothing is left"), "{}", done.stderr);
    assert!(!image.exists());
}
