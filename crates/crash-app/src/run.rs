//! Runs a program on a mount, and records what it does.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};

use backstitch_crash_core::check::scratch_directory;
use backstitch_crash_core::device::ForkDevice;
use backstitch_crash_core::error::{StepError, at};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, MountOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::bench::Stage;
use crate::error::{AppError, AppResult};
use crate::record::Recorder;
use crate::record::tracing::TracingLayout;
use crate::trace::{Geometry, Trace};

/// A program to record.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command for `sh -c`. It runs in the mount's directory, which is also in
    /// `$BACKSTITCH_DIR`.
    pub command: String,
    /// A command that runs first. What it does is on the disk when the program begins, and is not
    /// explored.
    pub setup: Option<String>,
    /// The mechanism of the mount.
    pub ordering: Ordering,
    /// The image on which it runs.
    pub geometry: Geometry,
    /// The user's own image, if there is one.
    pub image: Option<PathBuf>,
    /// Once this is set, the program is killed.
    pub stop: Arc<AtomicBool>,
}

impl Program {
    /// Runs it on a mount of its own, and unmounts.
    ///
    /// # Errors
    /// Where it cannot be mounted, and where the program ends with another exit code than 0.
    pub fn record(&self) -> AppResult<Trace> {
        let image = self.geometry.image(self.image.as_deref(), self.ordering)?;
        let kind = image.kind();
        let recorder = Recorder::default();
        let layout = TracingLayout {
            inner: kind.layout(),
            recorder: recorder.clone(),
        };
        let options = MountOptions {
            ordering: self.ordering,
            ..MountOptions::default()
        };
        let engine = Engine::mount(Arc::new(ForkDevice::new(image)), &layout, &options)?;
        engine.observe(Box::new(recorder.clone()));
        let dir = scratch_directory()?;
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).map_err(at("cannot make a directory", &mount))?;
        let stage = Stage::new(engine, mount)?;
        recorder.start(None);
        let mut setup = 0;
        if let Some(command) = &self.setup {
            self.run(command, &stage, None)?;
            stage.engine.sync()?;
            setup = recorder.operations().0.len();
        }
        self.run(&self.command, &stage, Some(&recorder))?;
        recorder.stop();
        let (operations, notes) = recorder.operations();
        stage.end()?;
        Ok(Trace {
            geometry: self.geometry,
            setup,
            operations,
            notes,
        })
    }

    /// Runs a command to its end. With a recorder its output goes there; without one, to standard
    /// error.
    fn run(&self, command: &str, stage: &Stage, recorder: Option<&Recorder>) -> AppResult<()> {
        let failed = at("cannot run the program", &stage.dir);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).arg("sh").arg(&stage.dir);
        shell.current_dir(&stage.dir).stdin(Stdio::null());
        shell.env("BACKSTITCH_DIR", &stage.dir).process_group(0);
        let mut output = None;
        if let Some(recorder) = recorder {
            let (reader, writer) = std::io::pipe().map_err(&failed)?;
            fcntl_setfl(&reader, OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
            output = Some(reader.try_clone().map_err(&failed)?);
            recorder.start(Some(reader));
            shell.stdout(writer);
        } else {
            shell.stdout(std::io::stderr());
        }
        let mut child = shell.spawn().map_err(&failed)?;
        // The shell's command holds the pipe's other end, so without this the pipe never ends.
        drop(shell);
        let status = self.wait(&mut child, output, recorder).map_err(&failed)?;
        match status {
            None => Err(StepError::Stopped.into()),
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(AppError::Program {
                command: command.to_owned(),
                status,
            }),
        }
    }

    /// Waits for the end, and reads the output meanwhile. Processes that the program leaves running
    /// are killed.
    fn wait(
        &self,
        child: &mut Child,
        mut output: Option<std::io::PipeReader>,
        recorder: Option<&Recorder>,
    ) -> std::io::Result<Option<ExitStatus>> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| std::io::Error::other("a process without a number"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let stopped = loop {
            if self.stop.load(Atomic::Relaxed) {
                break true;
            }
            let mut fds = vec![PollFd::new(&handle, PollFlags::IN)];
            if let Some(output) = &output {
                fds.push(PollFd::new(output, PollFlags::IN));
            }
            match poll(&mut fds, Some(&pause)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ended = !fds[0].revents().is_empty();
            let hung_up = fds.get(1).is_some_and(|fd| {
                fd.revents().contains(PollFlags::HUP) && !fd.revents().contains(PollFlags::IN)
            });
            if let Some(recorder) = recorder {
                recorder.listen();
            }
            if hung_up {
                output = None;
            }
            if ended {
                break false;
            }
        };
        // The child is not reaped yet, so no other group can have this number.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait()?;
        Ok((!stopped).then_some(status))
    }
}
