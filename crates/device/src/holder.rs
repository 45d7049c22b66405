//! Who holds a file that could not be locked: a message that names the other side saves a search.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Describes the process that holds a `flock` on the file, as well as the host lets us find out.
pub(crate) fn lock_holder(file: &fs::Metadata) -> String {
    let pid = holder_by_descriptor(file).or_else(|| holder_by_lock_table(file.ino()));
    match pid {
        Some(pid) => describe(pid),
        None => "another process".to_owned(),
    }
}

/// The loop device that the kernel has set up over the file, if any: the kernel takes no lock on the file behind a loop
/// device, so a file system mounted that way would not be noticed otherwise.
pub(crate) fn loop_device_over(file: &fs::Metadata) -> Option<String> {
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let backing = entry.path().join("loop/backing_file");
        let Ok(path) = fs::read_to_string(backing) else {
            continue;
        };
        let Ok(other) = fs::metadata(path.trim_end_matches('\n')) else {
            continue;
        };
        if other.dev() == file.dev() && other.ino() == file.ino() {
            return Some(format!(
                "loop device /dev/{}",
                entry.file_name().to_string_lossy()
            ));
        }
    }
    None
}

fn describe(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("pid {pid} ({})", comm.trim_end()),
        Err(_) => format!("pid {pid}"),
    }
}

/// The exact way: the live process one of whose descriptors is the file and carries a lock. A lock outlives the process that
/// took it when a child inherited the descriptor (a daemon), and then the lock table names a process that is gone.
fn holder_by_descriptor(file: &fs::Metadata) -> Option<u32> {
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten() {
            let same = fs::metadata(descriptor.path())
                .is_ok_and(|other| other.dev() == file.dev() && other.ino() == file.ino());
            let info = process.path().join("fdinfo").join(descriptor.file_name());
            if same && carries_lock(&info) {
                return Some(pid);
            }
        }
    }
    None
}

fn carries_lock(fdinfo: &Path) -> bool {
    fs::read_to_string(fdinfo).is_ok_and(|info| {
        info.lines()
            .any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
    })
}

/// The fallback for processes of other users, whose descriptors we may not see. The device number is not compared: stacked
/// file systems show another one here than `stat` does.
fn holder_by_lock_table(inode: u64) -> Option<u32> {
    let table = fs::read_to_string("/proc/locks").ok()?;
    table.lines().find_map(|line| lock_table_pid(line, inode))
}

/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF` → 1234, if 5678 is the inode asked for.
fn lock_table_pid(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let at = fields.iter().position(|field| *field == "FLOCK")?;
    let (pid, place) = (fields.get(at + 3)?, fields.get(at + 4)?);
    let found = place.rsplit(':').next()?.parse::<u64>().ok()?;
    if found == inode {
        pid.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_the_lock_table() {
        let line = "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF";
        assert_eq!(lock_table_pid(line, 5678), Some(1234));
        assert_eq!(lock_table_pid(line, 567), None);
        let waiting = "1: -> FLOCK  ADVISORY  WRITE 77 fe:00:5678 0 EOF";
        assert_eq!(lock_table_pid(waiting, 5678), Some(77));
        assert_eq!(
            lock_table_pid("2: POSIX  ADVISORY  WRITE 1 fe:00:9 0 0", 9),
            None
        );
        assert_eq!(lock_table_pid("", 9), None);
    }
}
