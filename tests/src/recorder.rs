//! Records what the kernel's own file systems write: our recorder, with a loop device and a mount
//! over it.

use crate::command::{backstitch, run, tool};
use crate::mount::is_taken;
use crate::scratch::{Scratch, umount_ours};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mounted recorder. It is removed with its scratch directory if the test fails.
#[derive(Debug)]
pub struct Recorder {
    dir: PathBuf,
    /// The image as it was before.
    pub base: PathBuf,
    /// The writes since then.
    pub log: PathBuf,
}

impl Recorder {
    /// Starts recording what is written to an image.
    ///
    /// # Panics
    ///
    /// If `crash record` fails.
    pub fn start(scratch: &Scratch, image: &Path) -> Self {
        let recorder = Self {
            dir: scratch.dir("recorder"),
            base: scratch.path("before.img"),
            log: scratch.path("writes.log"),
        };
        let mut command = backstitch();
        command.args(["crash", "record", "--base"]);
        command.arg(&recorder.base).arg("--log").arg(&recorder.log);
        run(command.arg(image).arg(&recorder.dir)).expect_success();
        recorder
    }

    /// Mounts the recorded disk with one of the kernel's file systems, through a loop device that
    /// is detached with the mount.
    ///
    /// # Panics
    ///
    /// If the kernel does not mount it, or all loop devices stay in use.
    pub fn mount(&self, kind: &str, dir: &Path) {
        self.mount_with(kind, "", dir);
    }

    /// As [`mount`](Self::mount), with mount options.
    ///
    /// # Panics
    ///
    /// As [`mount`](Self::mount).
    pub fn mount_with(&self, kind: &str, options: &str, dir: &Path) {
        let disk = self.dir.join("disk");
        let options = format!("loop,{options}");
        let mut command = tool("mount");
        command
            .args(["-t", kind, "-o", &options])
            .arg(disk)
            .arg(dir);
        for _ in 0..100 {
            let outcome = run(&mut command);
            if !is_taken(&outcome) {
                outcome.expect_success();
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("no loop device becomes free");
    }

    /// Adds a mark to the log.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn mark(&self, text: &str) {
        std::fs::write(self.dir.join("mark"), format!("{text}\n")).expect("cannot mark");
    }

    /// Ends the recording, once nothing is mounted on the disk any more.
    ///
    /// # Panics
    ///
    /// If the recorder cannot be unmounted.
    pub fn end(&self) {
        umount_ours(&self.dir);
    }
}
