//! A place for thousands of images, in memory if the host has such a file system.

use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "backstitch-mutants-";

/// A directory that is removed at the end. Leftovers of killed runs are removed at the beginning.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// Makes it below `TMPDIR` if that is set, else in memory.
    ///
    /// # Panics
    ///
    /// If the host refuses.
    pub fn new() -> Place {
        let shared = Path::new("/dev/shm");
        let root = match std::env::var_os("TMPDIR") {
            None if shared.is_dir() => shared.to_owned(),
            _ => std::env::temp_dir(),
        };
        for entry in fs::read_dir(&root)
            .expect("cannot read a directory")
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.split('-').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // That of another user cannot be removed.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir_in(&root);
        let dir = dir.expect("cannot make a directory").keep();
        Place { dir }
    }

    /// Makes a new directory inside.
    ///
    /// # Panics
    ///
    /// If the host refuses.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).expect("cannot make a directory");
        dir
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If it stays, the next run removes it.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
