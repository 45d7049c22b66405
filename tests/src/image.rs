//! Image files, and the foreign tools that make, check and change them.

use crate::command::{Outcome, backstitch, run, tool};
use crate::fsck::{Report, classify};
use crate::scratch::Scratch;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An image file below a scratch directory.
#[derive(Clone, Debug)]
pub struct Image {
    path: PathBuf,
    /// Whether its format is one that e2fsck does not know.
    is_ours: bool,
}

impl Image {
    /// An existing file.
    pub fn at(path: PathBuf) -> Self {
        Self::of_ext(path)
    }

    fn of_ext(path: PathBuf) -> Self {
        let is_ours = false;
        Self { path, is_ours }
    }

    /// The same of a type that `e2fsck` does not know.
    pub fn ours_at(path: PathBuf) -> Self {
        let is_ours = true;
        Self { path, is_ours }
    }

    /// An image of `size` that our own command makes, of a type that `e2fsck` does not know.
    ///
    /// # Panics
    ///
    /// If the command fails.
    pub fn ours(scratch: &Scratch, name: &str, size: &str, arguments: &[&str]) -> Self {
        let path = scratch.path(name);
        let mut command = backstitch();
        command.args(["mkfs", "-q", "-F", "-s", size]);
        run(command.args(arguments).arg(&path)).expect_success();
        let is_ours = true;
        Self { path, is_ours }
    }

    /// An image of `size` with the tree of a directory, made by `makefs -t ffs`.
    ///
    /// # Panics
    ///
    /// If makefs fails.
    pub fn makefs(
        scratch: &Scratch,
        name: &str,
        size: &str,
        arguments: &[&str],
        tree: &Path,
    ) -> Self {
        let path = scratch.path(name);
        let mut command = tool("makefs");
        command.args(["-t", "ffs", "-s", size]).args(arguments);
        run(command.arg(&path).arg(tree)).expect_success();
        let is_ours = true;
        Self { path, is_ours }
    }

    /// An image of `size` (as mke2fs writes sizes: `64M`) made by `mke2fs -t ext2` with further
    /// arguments, which may name another type.
    ///
    /// # Panics
    ///
    /// If mke2fs fails.
    pub fn mke2fs(scratch: &Scratch, name: &str, size: &str, arguments: &[&str]) -> Self {
        let path = scratch.path(name);
        let _ = fs::remove_file(&path);
        make(&path, size, arguments, "nodiscard,lazy_itable_init=0");
        Self::of_ext(path)
    }

    /// As [`mke2fs`](Self::mke2fs), in a file whose bytes were all `garbage` before. So if a file
    /// shows a block that it was not given, that can be told from a hole.
    ///
    /// # Panics
    ///
    /// As [`mke2fs`](Self::mke2fs).
    pub fn mke2fs_over_garbage(
        scratch: &Scratch,
        name: &str,
        mebibytes: u64,
        garbage: u8,
        arguments: &[&str],
    ) -> Self {
        let path = scratch.path(name);
        let chunk = vec![garbage; 1 << 20];
        let mut file = fs::File::create(&path).expect("cannot make an image");
        for _ in 0..mebibytes {
            std::io::Write::write_all(&mut file, &chunk).expect("cannot fill an image");
        }
        drop(file);
        make(
            &path,
            &format!("{mebibytes}M"),
            arguments,
            "nodiscard,lazy_itable_init=0",
        );
        Self::of_ext(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("cannot read an image")
    }

    /// A copy under another name, sparse where the image is.
    ///
    /// # Panics
    ///
    /// If it cannot be copied.
    pub fn copy(&self, name: &str) -> Self {
        let path = self.path.with_file_name(name);
        run(tool("cp").arg("--sparse=always").arg(&self.path).arg(&path)).expect_success();
        Self {
            path,
            is_ours: self.is_ours,
        }
    }

    /// The report of `e2fsck -fn`, which changes nothing.
    ///
    /// # Panics
    ///
    /// If it could not check at all.
    pub fn e2fsck(&self) -> Report {
        let outcome = run(tool("e2fsck").arg("-fn").arg(&self.path));
        let mut report = classify(&outcome.text(), outcome.code == Some(0));
        match outcome.code {
            Some(0 | 4) => {}
            // It gave up because of what it found.
            Some(12) => report.gave_up(),
            _ => panic!("{}", outcome.describe()),
        }
        report
    }

    /// What `e2fsck -fn` finds, or our own check if e2fsck does not know the format; `None` if
    /// nothing is wrong.
    ///
    /// # Panics
    ///
    /// If e2fsck could not check at all.
    pub fn complaint(&self) -> Option<String> {
        if self.is_ours {
            let outcome = run(backstitch().args(["fsck", "-fn"]).arg(&self.path));
            return (outcome.code != Some(0)).then(|| outcome.describe());
        }
        let (report, path) = (self.e2fsck(), self.path.display());
        (!report.is_clean()).then(|| format!("e2fsck -fn {path}:\n{}", report.text))
    }

    /// Insists that there is no [`complaint`](Self::complaint).
    ///
    /// # Panics
    ///
    /// With what is found.
    #[track_caller]
    pub fn expect_clean(&self) {
        if let Some(complaint) = self.complaint() {
            panic!("{complaint}");
        }
    }

    /// Overwrites bytes in the file.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn patch(&self, offset_bytes: u64, bytes: &[u8]) {
        let file = fs::File::options()
            .write(true)
            .open(&self.path)
            .expect("cannot open an image");
        file.write_all_at(bytes, offset_bytes)
            .expect("cannot change an image");
    }

    /// Shortens the file, or extends it with a hole.
    ///
    /// # Panics
    ///
    /// If the file cannot be resized.
    pub fn resize(&self, size_bytes: u64) {
        let file = fs::File::options()
            .write(true)
            .open(&self.path)
            .expect("cannot open an image");
        file.set_len(size_bytes).expect("cannot resize an image");
    }

    /// Runs debugfs commands that change the image.
    ///
    /// # Panics
    ///
    /// If debugfs fails.
    pub fn debugfs(&self, commands: &[&str]) -> Outcome {
        let script = self.path.with_extension("debugfs");
        fs::write(&script, commands.join("\n")).expect("cannot write a script");
        let mut debugfs = tool("debugfs");
        let outcome =
            run(debugfs.arg("-w").arg("-f").arg(&script).arg(&self.path)).expect_success();
        // debugfs ends with 0 even if a command fails, but prints the reason after its version.
        let complaint = outcome
            .stderr
            .lines()
            .find(|line| !line.starts_with("debugfs ") && !line.contains("Warning"));
        assert!(complaint.is_none(), "{}", outcome.describe());
        outcome
    }

    /// Free blocks and free inodes, according to the superblock.
    ///
    /// # Panics
    ///
    /// If dumpe2fs does not print them.
    pub fn free_counts(&self) -> (u64, u64) {
        let text = run(tool("dumpe2fs").arg("-h").arg(&self.path))
            .expect_success()
            .text();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok())
                .unwrap_or_else(|| {
                    panic!("dumpe2fs shows no {name:?} in\n{text}");
                })
        };
        (field("Free blocks:"), field("Free inodes:"))
    }
}

fn make(path: &Path, size: &str, arguments: &[&str], extended: &str) {
    let mut command = tool("mke2fs");
    if !arguments.contains(&"-t") {
        command.args(["-t", "ext2"]);
    }
    command
        .args(["-q", "-F", "-E", extended])
        .args(arguments)
        .arg(path)
        .arg(size);
    run(&mut command).expect_success();
}
