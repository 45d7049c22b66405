//! Running commands with a time limit.

use crate::requirements::find;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for commands that should take seconds.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was run, for messages.
    pub command: String,
    /// The exit code, if it ended by itself.
    pub code: Option<i32>,
    /// Whether it was killed for taking too long.
    pub timed_out: bool,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// How long it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    ///
    /// If it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| {
            panic!(
                "{} printed no JSON ({error}): {}{}",
                self.command,
                self.text(),
                self.stderr
            )
        })
    }

    /// Asserts success.
    ///
    /// # Panics
    ///
    /// With the command's output, if it failed.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.code == Some(0), "{}", self.describe());
        self
    }

    /// A description of the whole outcome, with long output cut in the middle.
    pub fn describe(&self) -> String {
        let how = match (self.timed_out, self.code) {
            (true, _) => format!("still ran after {:.0?}", self.elapsed),
            (false, Some(code)) => format!("exit code {code}"),
            (false, None) => "killed by a signal".to_owned(),
        };
        let text = self.text() + &self.stderr;
        let lines: Vec<&str> = text.lines().collect();
        let shown = match lines.len() {
            0..=60 => text,
            count => [&lines[..30], &["…"], &lines[count - 30..]]
                .concat()
                .join("\n"),
        };
        format!("{}: {how}\n{shown}", self.command)
    }
}

/// The command of a tool, to which arguments are added.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| PathBuf::from(name)));
    // The messages of foreign tools are parsed.
    command.env("LC_ALL", "C");
    command
}

/// Our own command.
///
/// # Panics
///
/// If it has not been built.
pub fn backstitch() -> Command {
    let path = binary().expect("no backstitch command: run `cargo build --release` first");
    Command::new(path)
}

/// The result of our own check, which changes nothing.
pub fn our_fsck(image: &std::path::Path) -> Option<Outcome> {
    let outcome = run_within(backstitch().args(["fsck", "-n"]).arg(image), LIMIT);
    // `None` in a build in which the command is not implemented yet.
    (!outcome.stderr.contains("not implemented")).then_some(outcome)
}

fn binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BACKSTITCH_BIN") {
        return Some(PathBuf::from(path));
    }
    // The test runs as TARGET/debug/deps/NAME.
    let own = std::env::current_exe().ok()?;
    let target = own.ancestors().nth(3)?;
    ["release", "debug"]
        .map(|profile| target.join(profile).join("backstitch"))
        .into_iter()
        .find(|path| path.is_file())
}

/// Runs a command to its end, or kills it when `limit` has passed. Its output goes to files and not
/// to pipes, so a daemon that keeps it open does not delay anything.
///
/// # Panics
///
/// If the command cannot be started.
pub fn run_within(command: &mut Command, limit: Duration) -> Outcome {
    let name = describe_command(command);
    let (mut stdout, mut stderr) = (scratch_file(), scratch_file());
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(clone(&stdout))
        .stderr(clone(&stderr))
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
    let status = wait_within(&mut child, limit);
    let elapsed = start.elapsed();
    Outcome {
        command: name,
        code: status.and_then(|status| status.code()),
        timed_out: status.is_none(),
        stdout: contents(&mut stdout),
        stderr: String::from_utf8_lossy(&contents(&mut stderr)).into_owned(),
        elapsed,
    }
}

/// Runs a command that should take seconds.
///
/// # Panics
///
/// If the command cannot be started.
pub fn run(command: &mut Command) -> Outcome {
    run_within(command, LIMIT)
}

/// Waits for a child. Kills it and returns `None` when `limit` has passed.
///
/// # Panics
///
/// If the child cannot be waited for.
pub fn wait_within(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().expect("cannot wait for a child") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            // It may have ended just now; either way it is gone afterwards.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn describe_command(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

fn scratch_file() -> File {
    tempfile::tempfile().expect("cannot make a temporary file")
}

fn clone(file: &File) -> File {
    file.try_clone().expect("cannot duplicate a descriptor")
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("cannot read back output");
    bytes
}
