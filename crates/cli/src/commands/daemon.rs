//! The daemon behind a mount in the background.
//!
//! The process that was called starts itself anew with `--daemon`: no threads exist before that,
//! and none of its state is inherited. The new process mounts, writes its report as one line to its
//! standard output, which is a pipe, and only then lets go of the terminal. Until then its errors
//! go to the common standard error; the caller waits for the report, and takes over the exit code
//! if none comes.

use super::mount::announce;
use backstitch_files::error::{Error, FAILED, Result, host};
use backstitch_fuse::{Ender, Unmounter};
use backstitch_vfs::Ordering;
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// How long files in use may keep a daemon that was told to end.
const GRACE: Duration = Duration::from_secs(5);

/// What the daemon is to do.
pub(super) struct Start<'a> {
    pub(super) image: &'a Path,
    pub(super) dir: &'a Path,
    pub(super) ordering: Option<Ordering>,
    pub(super) type_name: Option<&'a str>,
    pub(super) options: &'a [String],
    pub(super) log: Option<&'a Path>,
    pub(super) json: bool,
}

/// Starts the daemon and waits until its mount answers.
pub(super) fn start(wanted: &Start<'_>) -> Result<ExitCode> {
    let mut words: Vec<OsString> = ["mount", "--daemon"].map(OsString::from).into();
    if let Some(ordering) = wanted.ordering {
        words.extend(["--ordering".into(), ordering.name().into()]);
    }
    if let Some(name) = wanted.type_name {
        words.extend(["--type".into(), name.into()]);
    }
    for list in wanted.options {
        words.extend(["-o".into(), list.into()]);
    }
    if let Some(log) = wanted.log {
        words.extend(["--log".into(), log.into()]);
    }
    words.extend(["--".into(), wanted.image.into(), wanted.dir.into()]);
    match launch("mount", wanted.dir, &words)? {
        Launched::Answers(report) => {
            announce(&report, wanted.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Launched::Failed(code) => Ok(code),
    }
}

/// What became of a daemon.
pub(super) enum Launched {
    /// Its mount answers; this is its report.
    Answers(Value),
    /// It has ended, and said why.
    Failed(ExitCode),
}

/// Starts ourselves anew with these words, as a daemon that is to mount at `dir`, and waits for its
/// report.
pub(super) fn launch(what: &str, dir: &Path, words: &[OsString]) -> Result<Launched> {
    let failed = |error: &std::io::Error| Error::at_path(what, dir, host(error));
    let program = std::env::current_exe().map_err(|e| failed(&e))?;
    let mut child = Command::new(program)
        .arg0("backstitch")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e))?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe)
            .read_line(&mut line)
            .map_err(|e| failed(&e))?;
    }
    if let Ok(report) = serde_json::from_str(&line) {
        return Ok(Launched::Answers(report));
    }
    let status = child.wait().map_err(|e| failed(&e))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let code = code.filter(|&code| code != 0).unwrap_or(FAILED);
    Ok(Launched::Failed(ExitCode::from(code)))
}

/// Reports to the caller, and leaves its terminal, session and directory.
pub(super) fn report(report: &impl Serialize, log: Option<&Path>) -> Result<()> {
    let failed = |why: String| Error::failed("mount", "daemon", why);
    let mut line = serde_json::to_string(report).map_err(|e| failed(e.to_string()))?;
    line.push('\n');
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| failed(host(&e)))?;
    let errors = match log {
        Some(path) => File::options().append(true).create(true).open(path),
        None => null.try_clone(),
    };
    let errors = errors.map_err(|e| failed(host(&e)))?;
    // A caller that went away meanwhile changes nothing: the mount is there.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    rustix::stdio::dup2_stderr(&errors).map_err(|e| failed(host(&e.into())))?;
    rustix::stdio::dup2_stdout(&null).map_err(|e| failed(host(&e.into())))
}

/// The signals that end a mount, caught from before it is there.
pub(super) struct Signals {
    incoming: Incoming,
}

impl Signals {
    /// From now on these signals wait for [`unmount_on_arrival`](Self::unmount_on_arrival).
    pub(super) fn catch() -> Result<Signals> {
        let incoming = Incoming::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Error::failed("mount", "signals", host(&error)))?;
        Ok(Signals { incoming })
    }

    /// Takes the mount off when a signal comes. While files are in use it only leaves the tree, and
    /// what was written goes to the disk at once; a second signal, or [`GRACE`], ends it all the same,
    /// and files in use answer with an error.
    pub(super) fn unmount_on_arrival(
        mut self,
        unmounter: Unmounter,
        ender: Ender,
        sync: impl FnOnce() + Send + 'static,
    ) {
        std::thread::spawn(move || {
            if self.incoming.forever().next().is_none() {
                return;
            }
            if unmount(&unmounter) {
                return;
            }
            std::thread::spawn(sync);
            let clock = ender.clone();
            std::thread::spawn(move || {
                std::thread::sleep(GRACE);
                clock.end();
            });
            if self.incoming.forever().next().is_some() {
                ender.end();
            }
        });
    }
}

/// Whether the mount is gone, and not only out of sight.
fn unmount(unmounter: &Unmounter) -> bool {
    match unmounter.unmount() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "files are in use: detaching");
            if let Err(error) = unmounter.detach() {
                tracing::error!(%error, "cannot detach");
            }
            false
        }
    }
}
