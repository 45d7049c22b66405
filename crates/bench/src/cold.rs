//! Makes the host forget what it has in memory of files, so that the workloads whose files are cold
//! read them from the disk: `--disk` and `--memory` have no such memory besides the engine's.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise, sync};

use crate::{Error, Result};

/// Where root has all of the host's clean pages, names and inodes dropped.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Forgets the pages of a file, or of all files below a directory. For a directory root forgets names
/// and inodes too, of all file systems: others have no call for that, and their lookups stay warm.
pub(crate) fn forget(path: &Path) -> Result<()> {
    let is_directory = path.is_dir();
    if is_directory {
        sync();
    }
    forget_pages(path)?;
    if is_directory && let Err(error) = std::fs::write(DROP_CACHES, "3") {
        tracing::debug!(%error, "names and inodes stay in the host's memory");
    }
    Ok(())
}

fn forget_pages(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(Error::at(path))? {
            forget_pages(&entry.map_err(Error::at(path))?.path())?;
        }
        return Ok(());
    }
    let file = File::open(path).map_err(Error::at(path))?;
    // Dirty pages are not dropped.
    file.sync_data().map_err(Error::at(path))?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Error::at(path)(error.into()))
}

#[cfg(test)]
mod tests {
    use std::io::{IoSliceMut, Write};

    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;

    /// Whether a read finds the first page in memory.
    fn is_cached(path: &Path) -> std::result::Result<bool, Errno> {
        let (file, mut page) = (File::open(path).unwrap(), [0; 4096]);
        let mut parts = [IoSliceMut::new(&mut page)];
        match preadv2(&file, &mut parts, 0, ReadWriteFlags::NOWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(other) => Err(other),
        }
    }

    #[test]
    fn a_forgotten_file_is_not_in_memory() {
        // A file system in memory, as /tmp may be, forgets nothing.
        let scratch = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let inside = scratch.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        for path in [scratch.path().join("file"), inside.join("file")] {
            let mut file = File::create(&path).unwrap();
            file.write_all(&[1; 1 << 20]).unwrap();
            match is_cached(&path) {
                Ok(cached) => assert!(cached),
                Err(error) => {
                    eprintln!("skipped: this file system cannot be asked: {error}");
                    return;
                }
            }
            // The kernel keeps what somebody else uses at the moment, as its writeback does.
            let is_forgotten = (0..50).any(|attempt| {
                std::thread::sleep(std::time::Duration::from_millis(20 * attempt.min(1)));
                forget(&path).unwrap();
                is_cached(&path) == Ok(false)
            });
            assert!(is_forgotten, "{}", path.display());
        }
        // What is read again is forgotten with its directory.
        std::fs::read(inside.join("file")).unwrap();
        assert_eq!(is_cached(&inside.join("file")), Ok(true));
        forget_pages(scratch.path()).unwrap();
        assert_eq!(is_cached(&inside.join("file")), Ok(false));
    }
}
