//! `backstitch trace record`.

use super::COMMAND;
use super::output::{Output, Taken};
use super::script;
use crate::commands::bench::seconds;
use crate::commands::stats::failure;
use backstitch_files::error::{Error, Result, host, warn_line};
use backstitch_files::show;
use backstitch_formats::{Layout, usual};
use backstitch_fuse::{TraceEnd, TraceStream};
use backstitch_vfs::Ordering;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether the recording is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Record the patches of a mount: until a command has run, for a time, or until it is interrupted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "TARGET is the directory of a mount, or an image, which is mounted for the command only (in a directory of its own, where the command
runs), and recorded up to its unmount. Without it the mount is the one that the current directory is the root of. Only root, or who mounted
it, may record a mount, one recording at a time. What happens faster than it can be written ends the trace: the mount is never made to wait.
FILE must not lie in the mount. The exit status is the command's.

With --script nothing is mounted: the operations, as crash fs --script takes them, run in memory on a new file system of 8 MiB, and the same
script gives the same trace every time. Nothing is written but what the script says: round writes one batch of what need not wait, fsync and
sync write what they promise, log-close ends a journal's transaction.

Examples:
  backstitch trace record -o t.trace /mnt -- cp -r src /mnt/src
  backstitch trace record -o t.trace --seconds 10 /mnt
  backstitch trace record -o t.trace --contents disk.img -- sh -c 'echo hello > file'
  backstitch trace record -o t.trace --script 'mkdir d; sync; creat d/a; write d/a 0 1000; round'"
)]
pub(super) struct Args {
    /// The mount, or an image
    target: Option<PathBuf>,
    /// The command
    #[arg(last = true)]
    command: Vec<OsString>,
    /// The trace to write, which is replaced if it exists
    #[arg(short, long, value_name = "FILE", default_value = "backstitch.trace")]
    pub(super) output: PathBuf,
    /// Record the bytes of what is written too, for replay; of a script also the image that it begins with
    #[arg(long)]
    pub(super) contents: bool,
    /// How long, without a command
    #[arg(long, value_name = "SECONDS", conflicts_with = "command", value_parser = seconds)]
    seconds: Option<f64>,
    /// Operations to run in memory instead, separated by semicolons
    #[arg(long, value_name = "OPERATIONS", conflicts_with_all = ["target", "command", "seconds"])]
    script: Option<String>,
    /// The mechanism that the script runs under, as mount --ordering takes it
    #[arg(long, value_name = "MODE", default_value = "soft", requires = "script", conflicts_with_all = ["target", "command"])]
    pub(super) ordering: Ordering,
    /// The type of the script's file system: one of those that mkfs makes
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = usual().name(), requires = "script", conflicts_with_all = ["target", "command"])]
    pub(super) layout: Layout,
    /// One JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// What is to become of a signal that would end the command.
#[derive(Default)]
struct Told {
    /// It does end it: nothing is under way that would have to be cleared up.
    is_deadly: Arc<AtomicBool>,
    /// The last one; 0 where none has come.
    last: Arc<AtomicUsize>,
}

impl Told {
    /// From now on signals are only noted, or not.
    fn only_note(&self, notes: bool) {
        self.is_deadly.store(!notes, Relaxed);
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(script) = &args.script {
        return script::run(args, script);
    }
    let told = catch_signals()?;
    let target = args.target.clone().unwrap_or_else(|| PathBuf::from("."));
    match std::fs::metadata(&target) {
        Ok(seen) if seen.is_dir() => of_mount(args, &target, seen.dev(), &told),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failure(COMMAND, &target, &error)),
        // An image can be something else than a file.
        _ => of_image(args, &target, &told),
    }
}

fn of_mount(args: &Args, dir: &Path, device: u64, told: &Told) -> Result<ExitCode> {
    // Asked first, so that no file is made for what is no mount.
    let stats = backstitch_fuse::stats_of(dir).map_err(|error| failure(COMMAND, dir, &error))?;
    let taken = Taken {
        device: Some(device),
        image: stats["image"].as_str().map(PathBuf::from),
    };
    let mut output = Output::open(&args.output, &taken)?;
    let stream = begin(dir, args.contents)?;
    let ender = stream.ender();
    let ender = ender.map_err(|error| failure(COMMAND, dir, &error))?;
    let copier = start_copier(stream, output.begin()?);
    if args.command.is_empty() && args.seconds.is_none() && std::io::stderr().is_terminal() {
        let (dir, output) = (dir.display(), args.output.display());
        warn_line(&format!(
            "trace: recording {dir} into {output} until Ctrl-C"
        ));
    }
    told.only_note(true);
    let ran = wait(args, None, told, &copier);
    // Who reads the output may take no more of it.
    told.only_note(false);
    ender.end();
    let copied = join(args, copier);
    finish(args, ran?, copied?)
}

fn of_image(args: &Args, image: &Path, told: &Told) -> Result<ExitCode> {
    if args.command.is_empty() {
        let why = "an image is recorded while a command uses it, which is missing";
        return Err(Error::usage(COMMAND, why).hint("backstitch trace record IMAGE -- COMMAND"));
    }
    let taken = Taken {
        device: None,
        image: Some(image.to_owned()),
    };
    let mut output = Output::open(&args.output, &taken)?;
    told.only_note(true);
    let mut mounted = Mounted::new(image)?;
    let stream = begin(&mounted.dir, args.contents)?;
    let ender = stream.ender();
    let ender = ender.map_err(|error| failure(COMMAND, image, &error))?;
    let copier = start_copier(stream, output.begin()?);
    let ran = wait(args, Some(&mounted.dir), told, &copier);
    // The recording ends with the mount.
    let ended = mounted.end();
    if ended.is_err() {
        ender.end();
    }
    told.only_note(false);
    let copied = join(args, copier);
    let (ran, copied) = (ran?, copied?);
    ended?;
    finish(args, ran, copied)
}

/// Begins a recording of what is mounted there.
pub(super) fn begin(dir: &Path, with_contents: bool) -> Result<TraceStream> {
    backstitch_fuse::begin_trace(dir, with_contents).map_err(|error| {
        let failed = |why: &str| Error::at_path(COMMAND, dir, why);
        match error.raw_os_error() {
            Some(libc::EPERM) => failed("only root, or the user who mounted it, can record it"),
            Some(libc::EBUSY) => failed("another recording of it is running"),
            Some(libc::EAGAIN) => failed("too many are asking for recordings of it"),
            Some(libc::EPROTO) => failed("its daemon is of another version"),
            Some(libc::ECONNREFUSED) => failed("its daemon is in another network namespace"),
            _ => failure(COMMAND, dir, &error),
        }
    })
}

/// Says what came of it; the exit status.
fn finish(args: &Args, ran: ExitCode, copied: TraceEnd) -> Result<ExitCode> {
    if args.json {
        let report = json!({
            "output": args.output.display().to_string(),
            "bytes": copied.bytes,
            "records": copied.records,
            "lost_events": copied.lost_events,
        });
        show::print_json(COMMAND, &report)?;
    }
    match copied.lost_events {
        None => Ok(ran),
        Some(events) => {
            let why = format!(
                "not complete: what happened came faster than it could be written, and at least {events} events are missing at its end"
            );
            Err(Error::at_path(COMMAND, &args.output, why))
        }
    }
}

/// Why a trace could not be copied.
enum Failure {
    /// The output took no more.
    Output(std::io::Error),
    /// No more came.
    Mount(std::io::Error),
}

type Copier = JoinHandle<std::result::Result<TraceEnd, Failure>>;

/// Starts a thread that writes the trace.
fn start_copier(mut stream: TraceStream, mut file: File) -> Copier {
    std::thread::spawn(move || {
        let mut piece = Vec::new();
        loop {
            match stream.next(&mut piece).map_err(Failure::Mount)? {
                Some(end) => return Ok(end),
                None => file.write_all(&piece).map_err(Failure::Output)?,
            }
        }
    })
}

fn join(args: &Args, copier: Copier) -> Result<TraceEnd> {
    let failed = |why: &str| Error::at_path(COMMAND, &args.output, why);
    match copier.join() {
        Ok(Ok(end)) => Ok(end),
        Ok(Err(Failure::Output(error))) => Err(failed(&host(&error))),
        Ok(Err(Failure::Mount(error))) if error.kind() == ErrorKind::UnexpectedEof => Err(failed(
            "cut off: the mount's daemon has died, or the file took nothing for seconds",
        )),
        Ok(Err(Failure::Mount(error))) => Err(failed(&host(&error))),
        Err(_) => Err(failed("the thread that writes it has died")),
    }
}

/// From now on a signal that would end the command is noted, where it does not end it.
fn catch_signals() -> Result<Told> {
    let told = Told::default();
    told.only_note(false);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, told.is_deadly.clone())
            .and_then(|_| {
                signal_hook::flag::register_usize(signal, told.last.clone(), signal as usize)
            })
            .map_err(|error| Error::failed(COMMAND, "signals", host(&error)))?;
    }
    Ok(told)
}

/// Waits until the recording is to end; the exit status. The command runs in `within`.
fn wait(args: &Args, within: Option<&Path>, told: &Told, copier: &Copier) -> Result<ExitCode> {
    let mut child = match args.command.split_first() {
        Some((program, words)) => Some(start(program, words, within)?),
        None => None,
    };
    let began = Instant::now();
    loop {
        let signal = told.last.swap(0, Relaxed);
        if let Some(child) = &mut child {
            let failed = |error: std::io::Error| Error::failed(COMMAND, "waiting", host(&error));
            if let Some(status) = child.try_wait().map_err(failed)? {
                let killed = status.signal().map(|signal| 128 + signal);
                let code = status.code().or(killed).unwrap_or(1);
                return Ok(ExitCode::from(code as u8));
            }
            pass_on(signal, child);
        } else if signal != 0 || copier.is_finished() {
            return Ok(ExitCode::SUCCESS);
        }
        let is_over = |seconds: f64| began.elapsed().as_secs_f64() >= seconds;
        if args.seconds.is_some_and(is_over) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

/// Lets the command know of a signal; its end is ours. A terminal has told it of Ctrl-C itself.
fn pass_on(signal: usize, child: &Child) {
    let signal = match signal as i32 {
        SIGINT if !std::io::stdin().is_terminal() => Signal::INT,
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        _ => return,
    };
    // It may have ended meanwhile.
    let _ = kill_process(Pid::from_child(child), signal);
}

fn start(program: &OsString, words: &[OsString], within: Option<&Path>) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(words);
    if let Some(dir) = within {
        command.current_dir(dir);
    }
    let started = command.spawn();
    started.map_err(|error| Error::failed(COMMAND, program.display(), host(&error)).exit(127))
}

/// An image that is mounted as long as this lives.
struct Mounted {
    image: PathBuf,
    dir: PathBuf,
    has_ended: bool,
}

impl Mounted {
    fn new(image: &Path) -> Result<Mounted> {
        let failed = |error: std::io::Error| Error::at_path(COMMAND, image, host(&error));
        let name = format!("backstitch-trace-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut mount = Command::new(program);
        mount.arg("mount").arg(image).arg(&dir);
        let done = mount.stdout(Stdio::null()).status();
        if !done.as_ref().is_ok_and(std::process::ExitStatus::success) {
            let _ = std::fs::remove_dir(&dir);
            done.map_err(failed)?;
            return Err(Error::at_path(COMMAND, image, "it could not be mounted"));
        }
        Ok(Mounted {
            image: image.to_owned(),
            dir,
            has_ended: false,
        })
    }

    /// Unmounts it, which puts everything onto the disk.
    fn end(&mut self) -> Result<()> {
        self.has_ended = true;
        let failed = |error: std::io::Error| Error::at_path(COMMAND, &self.image, host(&error));
        let program = std::env::current_exe().map_err(failed)?;
        let mut unmount = Command::new(program);
        let done = unmount.arg("umount").arg(&self.dir).status();
        if !done.map_err(failed)?.success() {
            let why = "it could not be unmounted";
            let hint = format!("backstitch umount {}", self.dir.display());
            return Err(Error::at_path(COMMAND, &self.image, why).hint(hint));
        }
        std::fs::remove_dir(&self.dir).map_err(failed)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.has_ended {
            // The error that led here is the one to be told.
            let _ = self.end();
        }
    }
}
