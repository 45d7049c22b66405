//! A directory for a test's images and mount points, and the lock that lets only one test at a time
//! use loop devices.

use crate::command::{backstitch, run_within, tool};
use rustix::fs::FlockOperation;
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A directory for one test. It holds the lock, and removes everything below it when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Waits for earlier tests, cleans up after one that was killed, and makes an empty directory.
    ///
    /// # Panics
    ///
    /// If the host refuses.
    pub fn new(name: &str) -> Self {
        let root = root();
        fs::create_dir_all(&root).expect("cannot make the scratch directory");
        // Tests that become another user need access through it.
        fs::set_permissions(&root, Permissions::from_mode(0o755)).expect("cannot open it up");
        let lock = File::create(root.join("lock")).expect("cannot make the lock");
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("cannot lock");
        for entry in fs::read_dir(&root)
            .expect("cannot read the scratch directory")
            .flatten()
        {
            if entry.path().is_dir() {
                take_down(&entry.path());
            }
        }
        let dir = root.join(name);
        fs::create_dir(&dir).expect("cannot make a directory");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).expect("cannot open it up");
        Self { dir, _lock: lock }
    }

    /// The path of something inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes a directory inside, unless it exists.
    ///
    /// # Panics
    ///
    /// If the host refuses.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("cannot make a directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("KEEP").is_some() {
            unmount_below(&self.dir);
            let kept = self.dir.with_extension("kept");
            let _ = fs::remove_dir_all(&kept);
            let _ = fs::rename(&self.dir, &kept);
            crate::say(&format!("kept {}", kept.display()));
        } else {
            take_down(&self.dir);
        }
    }
}

/// There is one for each target directory, so that two checkouts do not wait for each other.
fn root() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned))
        .hash(&mut hasher);
    let user = rustix::process::geteuid().as_raw();
    let name = format!("backstitch-tests-{user}-{:08x}", hasher.finish() as u32);
    std::env::temp_dir().join(name)
}

fn take_down(dir: &Path) {
    if dir.extension().is_some_and(|extension| extension == "kept") {
        return;
    }
    unmount_below(dir);
    if !mount_points_below(dir).is_empty() {
        // Removing files through a mount that cannot be unmounted would be worse than leaving it.
        crate::say(&format!("cannot unmount what is below {}", dir.display()));
        return;
    }
    if let Err(error) = fs::remove_dir_all(dir) {
        crate::say(&format!("cannot remove {}: {error}", dir.display()));
    }
}

/// Unmounts everything below a directory, lazily if it is busy. Loop devices made by mount(8) are
/// detached with their mounts.
pub fn unmount_below(dir: &Path) {
    for point in mount_points_below(dir) {
        force_unmount(&point);
    }
}

/// Unmounts with the command that `umount` makes, as soon as no files are in use there. They can be
/// for a moment, by a process that another test starts, which has copies of this one's open files
/// until it executes a program, or by the kernel, which detaches a loop device.
///
/// # Panics
///
/// If it fails for another reason, or stays in use for seconds.
fn unmount_when_free(umount: impl Fn() -> Command) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let outcome = run_within(&mut umount(), Duration::from_secs(300));
        if outcome.code == Some(0) {
            return;
        }
        let busy = ["in use", "busy"]
            .iter()
            .any(|word| outcome.stderr.contains(word));
        assert!(busy && Instant::now() < deadline, "{}", outcome.describe());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Unmounts one of the kernel's mounts, as soon as no files are in use there.
///
/// # Panics
///
/// If it fails for another reason, or stays in use for seconds.
pub fn umount(dir: &Path) {
    unmount_when_free(|| {
        let mut command = tool("umount");
        command.arg(dir);
        command
    });
}

/// Unmounts one of our mounts, as soon as no files are in use there.
///
/// # Panics
///
/// If it fails for another reason, or stays in use for seconds.
pub fn umount_ours(dir: &Path) {
    unmount_when_free(|| {
        let mut command = backstitch();
        command.arg("umount").arg(dir);
        command
    });
}

/// Unmounts by force, when a test is about to fail anyway or has killed the daemon.
pub fn force_unmount(point: &Path) {
    let limit = Duration::from_secs(20);
    for option in ["-l", "-f"] {
        if run_within(tool("umount").arg(option).arg(point), limit).code == Some(0) {
            return;
        }
    }
    run_within(tool("fusermount3").arg("-uz").arg(point), limit);
}

/// The mount points below a directory, the innermost first.
pub fn mount_points_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(dir))
        .collect();
    points.reverse();
    points
}
