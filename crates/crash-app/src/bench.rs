//! The mount point at which states are judged, one after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering as Atomic;
use std::time::Duration;

use backstitch_crash_core::check::{Verdict, scratch_directory};
use backstitch_crash_core::device::ForkDevice;
use backstitch_crash_core::error::{StepError, at};
use backstitch_crash_core::image::{Fork, Kind as ImageKind};
use backstitch_crash_core::mount::replayed;
use backstitch_fuse::{AccessPolicy, FrontOptions, MountError, Mounted, spawn};
use backstitch_layout::tools::{CheckOptions, Finding, Kind};
use backstitch_mechanisms::usual_for;
use backstitch_vfs::{Engine, MountOptions};

use crate::error::AppResult;
use crate::options::Options;

/// The verdict on a file system that a check finds corrupt.
pub(crate) const DAMAGED: &str = "the file system is damaged";

/// A directory with a mount point, and beside it the file with what the program had said.
pub(crate) struct Bench<'a> {
    options: &'a Options,
    dir: tempfile::TempDir,
    /// The most leaks that a check found in a state.
    pub(crate) leaks_max: u64,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(options: &'a Options) -> AppResult<Bench<'a>> {
        let dir = scratch_directory()?;
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).map_err(at("cannot make a directory", &mount))?;
        Ok(Bench {
            options,
            dir,
            leaks_max: 0,
        })
    }

    /// Recovers a state as a user does after a crash, and runs the check on it. The state itself is
    /// not changed.
    pub(crate) fn judge(&mut self, state: &Fork, said: &[u8]) -> AppResult<Verdict> {
        if self.options.stop.load(Atomic::Relaxed) {
            return Err(StepError::Stopped.into());
        }
        let is_raw = !matches!(state.kind(), ImageKind::FileSystem(_));
        if let Some(damage) = (!is_raw).then(|| self.damage(state)).flatten() {
            return Ok(damage);
        }
        let output = self.dir.path().join("output");
        std::fs::write(&output, said).map_err(at("cannot write what was said", &output))?;
        let state = match is_raw {
            // A raw volume: only the check knows what its blocks mean.
            true => state.clone(),
            false => repaired(state.clone()),
        };
        let kind = state.kind();
        let device = Arc::new(ForkDevice::new(state));
        let options = MountOptions {
            ordering: self.options.ordering,
            ..MountOptions::default()
        };
        let engine = match Engine::mount(device, kind.layout(), &options) {
            Ok(engine) => engine,
            Err(error) => return Ok(unmountable(error.to_string())),
        };
        if let Some(reason) = engine.read_only_reason() {
            return Ok(unmountable(reason));
        }
        let stage = Stage::new(engine, self.dir.path().join("mnt"))?;
        let mount = &stage.dir;
        let verdict = self.options.check.run_on(
            mount,
            |command| {
                command.current_dir(mount);
            },
            &[
                ("BACKSTITCH_DIR", mount),
                ("BACKSTITCH_OUTPUT", output.as_path()),
            ],
        );
        stage.end()?;
        Ok(verdict?)
    }

    /// What fsck finds that no recovery may leave, if anything.
    fn damage(&mut self, state: &Fork) -> Option<Verdict> {
        let replayed = match self.options.ordering.has_log() {
            true => match replayed(state) {
                Ok(replayed) => Some(replayed),
                Err(error) => return Some(unmountable(error.to_string())),
            },
            false => None,
        };
        let state = replayed.as_ref().unwrap_or(state);
        let report = match state.kind().tools().check(state, &CheckOptions::QUICK) {
            Ok(report) => report,
            Err(error) => return Some(unmountable(error.to_string())),
        };
        self.leaks_max = self.leaks_max.max(report.count(Kind::Leak) as u64);
        let corrupt = |finding: &&Finding| finding.kind == Kind::Corruption;
        let found: Vec<String> = report
            .findings
            .iter()
            .filter(corrupt)
            .take(8)
            .map(Finding::to_string)
            .collect();
        (!found.is_empty()).then(|| Verdict::Failed {
            how: format!("{DAMAGED}: fsck would have to guess, and the check was not run"),
            output: found.join("\n"),
        })
    }
}

fn unmountable(reason: String) -> Verdict {
    Verdict::Failed {
        how: "the file system cannot be mounted".to_owned(),
        output: reason,
    }
}

/// The state after `fsck -p`, if fsck found no corruption in it: it may be mounted. The mount then
/// recovers unused space that is marked as used and counts that are too high, as after a crash
/// under soft updates.
fn repaired(mut state: Fork) -> Fork {
    let record = usual_for(false).crash_record();
    if let Some((offset, bytes)) =
        record.and_then(|record| state.kind().tools().trusted(&state, record))
    {
        // The record was read at this offset, so the write cannot fail.
        let _ = state.write(offset, &bytes);
    }
    state
}

/// An engine that is mounted at a directory; dropping it unmounts it.
pub(crate) struct Stage {
    pub(crate) engine: Arc<Engine>,
    pub(crate) dir: PathBuf,
    mounted: Option<Mounted>,
}

/// How long an unmount may fail because the mount is busy. After that it is detached from the tree
/// even while in use.
const PATIENCE: Duration = Duration::from_secs(2);

impl Stage {
    pub(crate) fn new(engine: Arc<Engine>, dir: PathBuf) -> Result<Stage, MountError> {
        let is_root = rustix::process::geteuid().is_root();
        let front = FrontOptions {
            image: "backstitch crash app".into(),
            // Only root can let other users use the mount. Where there is only one user,
            // permissions need not be checked.
            allow_other: is_root,
            check_permissions: is_root,
            access_times: AccessPolicy {
                rule: None,
                ..AccessPolicy::default()
            },
            threads: 2,
            ..FrontOptions::default()
        };
        let mounted = spawn(engine.clone(), &dir, &front)?;
        Ok(Stage {
            engine,
            dir,
            mounted: Some(mounted),
        })
    }

    /// Unmounts. Changes that are only in memory are lost, since the state is not looked at again.
    pub(crate) fn end(mut self) -> Result<(), MountError> {
        self.take_off()
    }

    fn take_off(&mut self) -> Result<(), MountError> {
        let Some(mounted) = self.mounted.take() else {
            return Ok(());
        };
        let unmounter = mounted.unmounter();
        unmounter
            .unmount_within(PATIENCE)
            .or_else(|_| unmounter.detach())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // An earlier error is already being returned.
        let _ = self.take_off();
    }
}

/// Raises the limit of open files of this process: every mount keeps one open, even after it has
/// ended.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that fails, the limit is still enough for some hundred mounts.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Writes an image to a file.
pub(crate) fn keep(bytes: &[u8], path: &Path) -> Result<(), StepError> {
    std::fs::write(path, bytes).map_err(at("cannot keep the failure", path))
}
