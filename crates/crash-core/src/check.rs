//! The user's check: a command that is shown a state and says with its exit code whether it is
//! good.

use crate::error::{StepError, StepResult, at};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::{PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes that are kept of the beginning of a check's output, and as many of its end.
const OUTPUT_BYTES: usize = 4096;
/// How long to go on reading output once the check has ended. A process that it left behind may
/// hold the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A directory for a state and for the files that its check is given. It is removed when it is
/// dropped.
///
/// # Errors
/// [`StepError::Host`] if it cannot be made.
pub fn scratch_directory() -> StepResult<TempDir> {
    tempfile::Builder::new()
        .prefix("backstitch-crash-")
        .tempdir()
        .map_err(at("cannot make a directory", &std::env::temp_dir()))
}

/// A command that judges states.
#[derive(Clone, Debug)]
pub struct Check {
    /// The command for `sh -c`. The state's path is in `$1` and `$BACKSTITCH_IMAGE`;
    /// `$BACKSTITCH_MARKS` is the path of a file that lists the marks passed before the crash, one
    /// a line.
    pub command: String,
    /// How long it may run; a check that takes longer has failed.
    pub timeout: Duration,
}

/// What a check said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Good,
    /// Anything else.
    Failed {
        /// How it ended, in words.
        how: String,
        /// What it printed, cut in the middle, with the state's path as `$BACKSTITCH_IMAGE`.
        output: String,
    },
}

impl Check {
    /// Runs the command on an image. Whatever it leaves running in its process group is killed.
    ///
    /// # Errors
    ///
    /// [`StepError::Check`] if there is no such command, [`StepError::Host`] if nothing can
    /// be run at all.
    pub fn run(&self, image: &Path, marks: &Path) -> StepResult<Verdict> {
        self.run_on(
            image,
            |_| {},
            &[("BACKSTITCH_IMAGE", image), ("BACKSTITCH_MARKS", marks)],
        )
    }

    /// Runs the command on the state at `state`, which becomes `$1`. Further paths are in its
    /// environment; in what it prints these paths are replaced by the variables' names.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_on(
        &self,
        state: &Path,
        prepare: impl FnOnce(&mut Command),
        paths: &[(&str, &Path)],
    ) -> StepResult<Verdict> {
        let failed = at("cannot run the check", state);
        let (reader, writer) = std::io::pipe().map_err(&failed)?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).arg("sh").arg(state);
        command.envs(paths.iter().copied());
        prepare(&mut command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(&failed)?)
            .stderr(writer)
            .process_group(0)
            .spawn()
            .map_err(&failed)?;
        // The command holds the pipe's other end, so without this the reader never sees its end.
        drop(command);
        let output = collect(reader);
        let status = self.wait(&mut child).map_err(&failed)?;
        let output = output.recv_timeout(LAST_WORDS).unwrap_or_default();
        let output = anonymous(&output, paths);
        self.verdict(status, output)
    }

    /// Waits for the end. `None` if the time runs out first.
    fn wait(&self, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| std::io::Error::other("a process without a number"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let deadline = Instant::now() + self.timeout;
        let ended = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
                Ok(0) => break false,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break true,
            }
        };
        // The child is not reaped yet, so no other group can have this number.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait()?;
        Ok(ended.then_some(status))
    }

    fn verdict(&self, status: Option<ExitStatus>, output: String) -> StepResult<Verdict> {
        let how = match status {
            Some(status) if status.success() => return Ok(Verdict::Good),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) if is_missing(code, &output) => {
                    let reason = output.lines().last().unwrap_or("no such command");
                    return Err(StepError::Check {
                        command: self.command.clone(),
                        reason: format!("{reason} (exit code {code})"),
                    });
                }
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
            },
            None => format!("still ran after {} s", self.timeout.as_secs_f64()),
        };
        Ok(Verdict::Failed { how, output })
    }
}

/// Whether a shell ended with this because it did not find a command or a script of its own. dash
/// ends with 2 where there is no script.
fn is_missing(code: i32, output: &str) -> bool {
    matches!(code, 126 | 127) || (code == 2 && output.starts_with("sh: 0: cannot open "))
}

/// Reads the output to its end, and keeps its first and last bytes.
fn collect(mut reader: PipeReader) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let (mut head, mut tail, mut lost) = (Vec::new(), Vec::new(), 0_usize);
        let mut buffer = [0; 16384];
        while let Ok(len @ 1..) = reader.read(&mut buffer) {
            let room = (OUTPUT_BYTES - head.len()).min(len);
            head.extend_from_slice(&buffer[..room]);
            tail.extend_from_slice(&buffer[room..len]);
            let over = tail.len().saturating_sub(OUTPUT_BYTES);
            tail.drain(..over);
            lost += over;
        }
        if lost > 0 {
            head.extend_from_slice(format!("\n… {lost} bytes …\n").as_bytes());
        }
        head.extend_from_slice(&tail);
        // The receiver may be gone.
        let _ = send.send(head);
    });
    receive
}

/// The output with variables' names in place of paths, so that it is the same in every run.
fn anonymous(output: &[u8], paths: &[(&str, &Path)]) -> String {
    let mut text = String::from_utf8_lossy(output).into_owned();
    for (name, path) in paths {
        text = text.replace(&*path.to_string_lossy(), &format!("${name}"));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, timeout: f64) -> StepResult<Verdict> {
        let check = Check {
            command: command.to_owned(),
            timeout: Duration::from_secs_f64(timeout),
        };
        check.run(Path::new("/scratch/state.img"), Path::new("/scratch/marks"))
    }

    fn failed(command: &str, timeout: f64) -> (String, String) {
        match run(command, timeout).unwrap() {
            Verdict::Failed { how, output } => (how, output),
            Verdict::Good => panic!("{command} succeeds"),
        }
    }

    #[test]
    fn the_exit_code_is_the_verdict() {
        assert_eq!(run("exit 0", 10.0).unwrap(), Verdict::Good);
        let (how, output) = failed("echo $1; echo $BACKSTITCH_MARKS >&2; exit 3", 10.0);
        assert_eq!(how, "exit code 3");
        assert_eq!(output, "$BACKSTITCH_IMAGE\n$BACKSTITCH_MARKS");
        let (how, _) = failed("kill -9 $$", 10.0);
        assert_eq!(how, "killed by signal 9");
    }

    #[test]
    fn a_check_that_does_not_end_is_killed_with_its_children() {
        let started = Instant::now();
        let (how, output) = failed("echo begun; sleep 60 & sleep 60", 0.2);
        assert_eq!(
            (how.as_str(), output.as_str()),
            ("still ran after 0.2 s", "begun")
        );
        assert_eq!(run("sleep 60 & exit 0", 10.0).unwrap(), Verdict::Good);
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn long_output_is_cut_in_the_middle() {
        let (_, output) = failed("seq 1 100000; exit 1", 10.0);
        assert!(
            output.starts_with("1\n2\n") && output.ends_with("\n100000"),
            "{output}"
        );
        assert!(output.len() < 9000 && output.contains(" bytes …"));
    }

    #[test]
    fn a_missing_command_is_no_verdict() {
        for command in ["surely-no-such-command", "sh surely-no-such-script.sh"] {
            let error = run(command, 10.0).unwrap_err();
            assert!(error.to_string().contains("cannot be run"), "{error}");
        }
    }
}
