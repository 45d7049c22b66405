//! What the command's tests share: running it, foreign tools, and skipping where one is missing.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A directory with an image in it, and the command.
pub(crate) struct Bench {
    dir: TempDir,
}

/// What a command came to.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Done {
        Done {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Fails the test unless the exit code is 0.
    #[track_caller]
    pub(crate) fn good(self) -> Done {
        assert_eq!(self.code, 0, "stderr: {}", self.stderr);
        self
    }

    /// Fails the test unless the exit code is this one and the complaint has one line, and a hint
    /// at most.
    #[track_caller]
    pub(crate) fn refused(self, code: i32) -> Done {
        assert_eq!(
            self.code,
            code,
            "stdout: {} stderr: {}",
            self.text(),
            self.stderr
        );
        let mut lines = self.stderr.lines();
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with("backstitch: "), "{}", self.stderr);
        assert!(
            lines.next().is_none_or(|hint| hint.starts_with("hint: ")),
            "{}",
            self.stderr
        );
        assert!(lines.next().is_none(), "{}", self.stderr);
        self
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench {
            dir: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the command in the directory.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Done {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
        command.args(words).current_dir(self.dir.path());
        Done::of(command.output().expect("the command runs"))
    }

    /// Runs a line of words without blanks in them.
    pub(crate) fn line(&self, line: &str) -> Done {
        self.run(&line.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Makes an image, of 32 MiB unless the options say how large.
    pub(crate) fn image(&self, name: &str, options: &str) {
        let size = match options.contains("-s ") {
            true => "",
            false => "-s 32M",
        };
        self.line(&format!("mkfs -q {size} {options} {name}"))
            .good();
    }

    /// Runs a shell script in the directory; `$BACKSTITCH` is the command.
    #[track_caller]
    pub(crate) fn shell(&self, script: &str) -> Done {
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", script])
            .env("BACKSTITCH", env!("CARGO_BIN_EXE_backstitch"))
            .current_dir(self.dir.path());
        Done::of(command.output().expect("sh runs")).good()
    }

    /// Fails the test unless our check and e2fsck find nothing.
    #[track_caller]
    pub(crate) fn check(&self, image: &str) {
        let ours = self.line(&format!("fsck -n {image}"));
        assert_eq!(ours.code, 0, "fsck: {}{}", ours.text(), ours.stderr);
        let Some(e2fsck) = tool("e2fsck", "e2fsprogs") else {
            return;
        };
        let output = Command::new(e2fsck)
            .args(["-f", "-n"])
            .arg(self.path(image))
            .output();
        let done = Done::of(output.expect("e2fsck runs"));
        assert_eq!(done.code, 0, "e2fsck: {}{}", done.text(), done.stderr);
    }
}

/// A foreign tool; says which package has it where it is missing.
pub(crate) fn tool(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let found = std::env::split_paths(&path)
        .chain(extra)
        .map(|dir| dir.join(name));
    let found = found.into_iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is missing (Debian package {package})");
    }
    found
}

/// Whether FUSE mounts can be made here; says why not.
pub(crate) fn can_mount() -> bool {
    let opened = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("skipped: /dev/fuse: {error} (Debian package fuse3)");
    }
    opened.is_ok()
}

/// Whether the test runs as root; says what is left out otherwise.
pub(crate) fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: {what} needs root");
    }
    is_root
}

/// Everything that `find` shows of a tree: names, types, modes, links, owners, sizes (but of
/// directories), times, targets, contents.
pub(crate) fn listing(dir: &Path) -> String {
    let script = "find . -mindepth 1 -type d -printf '%p %M %n %U:%G %T@\\n' | sort
        find . ! -type d -printf '%p %M %n %U:%G %s %T@ %l\\n' | sort
        find . -type f | sort | while read -r f; do sha256sum \"$f\"; done";
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .output();
    Done::of(output.expect("find runs")).good().text()
}

/// How long something that must come soon is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A mount of a new image, which ends with this.
pub(crate) struct Mount<'b>(&'b Bench);

impl<'b> Mount<'b> {
    pub(crate) fn new(bench: &'b Bench) -> Mount<'b> {
        bench.shell("mkdir mnt");
        bench.line("mkfs -q -s 16M a.img").good();
        bench.line("mount a.img mnt").good();
        Mount::of(bench)
    }

    /// The one that is there already.
    pub(crate) fn of(bench: &'b Bench) -> Mount<'b> {
        Mount(bench)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Where the test has not unmounted it itself, it has failed.
        let _ = self.0.line("umount mnt");
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a child.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}
