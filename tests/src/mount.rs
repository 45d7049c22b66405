//! Mounting: the file system under test, and the kernel's own as the reference.

use crate::command::{LIMIT, Outcome, backstitch, run, tool};
use crate::image::Image;
use crate::scratch::{force_unmount, mount_points_below, umount, umount_ours};
use rustix::fs::FlockOperation;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file system that is mounted as the one under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Our own.
    Backstitch,
    /// The kernel's ext2 on a loop device: shows that a test can pass.
    Kernel,
    /// Debian's fuse2fs: shows that a test can fail.
    Fuse2fs,
}

impl Backend {
    /// The one named by the environment variable `BACKEND`.
    ///
    /// # Panics
    ///
    /// If it names something else.
    pub fn from_env() -> Self {
        match std::env::var("BACKEND").as_deref() {
            Err(_) | Ok("" | "backstitch") => Self::Backstitch,
            Ok("kernel") => Self::Kernel,
            Ok("fuse2fs") => Self::Fuse2fs,
            Ok(other) => panic!("BACKEND={other}: one of backstitch, kernel, fuse2fs"),
        }
    }
}

/// How to mount the file system under test.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The mechanism; the command's default if empty.
    pub ordering: String,
    /// The value of `-o`, separated by commas.
    pub options: String,
}

impl Options {
    /// The default mechanism with these `-o` options.
    pub fn with(options: &str) -> Self {
        Self {
            ordering: String::new(),
            options: options.to_owned(),
        }
    }

    /// A mechanism by name, with these `-o` options.
    pub fn ordered(ordering: &str, options: &str) -> Self {
        Self {
            ordering: ordering.to_owned(),
            options: options.to_owned(),
        }
    }
}

/// A mounted image, unmounted when this is dropped, by force if necessary.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
    image: PathBuf,
    backend: Backend,
    /// The daemon's process id, if there is a daemon.
    pub pid: Option<u32>,
    gone: bool,
}

impl Mounted {
    /// Mounts an image with the kernel's ext2. `options` is the value of `-o`, such as `ro`.
    ///
    /// # Panics
    ///
    /// If the kernel does not mount it.
    pub fn by_kernel(image: &Image, dir: &Path, options: &str) -> Self {
        let outcome = kernel_mount(image, dir, options).expect_success();
        drop(outcome);
        Self::new(image, dir, Backend::Kernel, None)
    }

    /// As [`by_kernel`](Self::by_kernel), with another of the kernel's drivers: one with a journal.
    ///
    /// # Panics
    ///
    /// If the kernel does not mount it.
    pub fn by_kernel_as(driver: &str, image: &Image, dir: &Path, options: &str) -> Self {
        drop(kernel_mount_as(driver, image, dir, options).expect_success());
        Self::new(image, dir, Backend::Kernel, None)
    }

    /// Mounts an image with the file system under test.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn under_test(image: &Image, dir: &Path, options: &Options) -> Self {
        Self::try_under_test(image, dir, options)
            .unwrap_or_else(|outcome| panic!("{}", outcome.describe()))
    }

    /// Tries to mount an image with the file system under test.
    ///
    /// # Errors
    ///
    /// How the command ended, if it failed.
    pub fn try_under_test(image: &Image, dir: &Path, options: &Options) -> Result<Self, Outcome> {
        let backend = Backend::from_env();
        let outcome = match backend {
            Backend::Backstitch => our_mount(image, dir, options),
            Backend::Kernel => kernel_mount(image, dir, foreign_options(&options.options)),
            Backend::Fuse2fs => fuse2fs_mount(image, dir, foreign_options(&options.options)),
        };
        if outcome.code != Some(0) {
            return Err(outcome);
        }
        let pid = match backend {
            Backend::Backstitch => outcome.json()["pid"].as_u64().map(|pid| pid as u32),
            Backend::Kernel => None,
            Backend::Fuse2fs => find_daemon(image.path()),
        };
        Ok(Self::new(image, dir, backend, pid))
    }

    fn new(image: &Image, dir: &Path, backend: Backend, pid: Option<u32>) -> Self {
        let (dir, image) = (dir.to_owned(), image.path().to_owned());
        Self {
            dir,
            image,
            backend,
            pid,
            gone: false,
        }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Unmounts, and waits until the image is no longer in use.
    ///
    /// # Panics
    ///
    /// If it cannot be unmounted, or the daemon does not end.
    pub fn unmount(mut self) {
        match self.backend {
            Backend::Backstitch => umount_ours(&self.dir),
            _ => umount(&self.dir),
        }
        assert!(
            mount_points_below(&self.dir).is_empty(),
            "{:?} is still mounted",
            self.dir
        );
        self.gone = true;
        self.wait_for_daemon();
    }

    /// Kills the daemon, like a power cut, and removes the dead mount.
    ///
    /// # Panics
    ///
    /// If there is no daemon, or it does not die.
    pub fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
        self.wait_for_daemon();
    }

    /// Removes the mount of a killed daemon. Everything that worked on it must have ended, since
    /// after this it would work on the host's directory below.
    pub fn detach(mut self) {
        force_unmount(&self.dir);
        self.gone = true;
    }

    /// The log of this image's daemons.
    pub fn log(&self) -> String {
        fs::read_to_string(log_of(&self.image)).unwrap_or_default()
    }

    /// Sends the daemon a signal.
    ///
    /// # Panics
    ///
    /// If there is no daemon.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.pid.expect("no daemon to signal");
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("an impossible process id");
        rustix::process::kill_process(pid, signal).expect("cannot signal the daemon");
    }

    /// Waits until the daemon has ended and its lock on the image is gone.
    ///
    /// # Panics
    ///
    /// If that takes longer than two minutes.
    pub fn wait_for_daemon(&self) {
        let deadline = Instant::now() + LIMIT;
        while self.pid.is_some_and(is_running) || is_locked(&self.image) {
            assert!(
                Instant::now() < deadline,
                "the daemon of {:?} does not end",
                self.image
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.gone {
            force_unmount(&self.dir);
            if let Some(pid) = self.pid.filter(|pid| is_running(*pid)) {
                // The test has failed, so what the daemon still has to write is not needed.
                if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }
}

/// Whether a process exists and is no zombie.
fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        !matches!(state, Some("Z" | "X"))
    })
}

fn is_locked(image: &Path) -> bool {
    let Ok(file) = fs::File::open(image) else {
        return false;
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

fn our_mount(image: &Image, dir: &Path, options: &Options) -> Outcome {
    let mut command = backstitch();
    command
        .args(["mount", "--json", "--log"])
        .arg(log_of(image.path()));
    if !options.ordering.is_empty() {
        command.args(["--ordering", &options.ordering]);
    }
    if !options.options.is_empty() {
        command.args(["-o", &options.options]);
    }
    run(command.arg(image.path()).arg(dir))
}

fn log_of(image: &Path) -> PathBuf {
    image.with_extension("log")
}

/// Mounts with the kernel; waits for a loop device if all are taken.
fn kernel_mount(image: &Image, dir: &Path, options: &str) -> Outcome {
    kernel_mount_as("ext2", image, dir, options)
}

fn kernel_mount_as(driver: &str, image: &Image, dir: &Path, options: &str) -> Outcome {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut command = tool("mount");
        let all = if options.is_empty() {
            "loop".to_owned()
        } else {
            format!("loop,{options}")
        };
        command
            .args(["-t", driver, "-o", &all])
            .arg(image.path())
            .arg(dir);
        let outcome = run(&mut command);
        if !is_taken(&outcome) || Instant::now() > deadline {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether a mount failed because all loop devices were in use, which may change.
pub(crate) fn is_taken(mount: &Outcome) -> bool {
    mount.stderr.contains("failed to setup loop device")
}

fn fuse2fs_mount(image: &Image, dir: &Path, options: &str) -> Outcome {
    let mut command = tool("fuse2fs");
    command.arg(image.path()).arg(dir);
    let all = if options.is_empty() {
        "allow_other".into()
    } else {
        format!("allow_other,{options}")
    };
    run(command.args(["-o", &all]))
}

/// The part of our options that another file system understands.
fn foreign_options(options: &str) -> &str {
    if options.split(',').any(|option| option == "ro") {
        "ro"
    } else {
        ""
    }
}

fn find_daemon(image: &Path) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let line = fs::read(process.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let image = image.as_os_str().as_encoded_bytes();
        (words[0].ends_with(b"fuse2fs") && words.contains(&image)).then_some(pid)
    })
}
