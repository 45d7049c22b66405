//! Which process holds a file that could not be locked: its name in the message saves a search.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock on byte n of a file is on byte `RANGES_AT` + n.
pub(crate) const RANGES_AT: u64 = 1 << 62;

/// Describes the process that holds a `flock` on the file, as far as the host lets us find out.
pub(crate) fn lock_holder(file: &fs::Metadata) -> String {
    let of_flock = |line: &str| line.contains("FLOCK");
    let pid = holder_by_descriptor(file, &of_flock).or_else(|| holder_by_lock_table(file.ino()));
    match pid {
        Some(pid) => describe(pid),
        None => "another process".to_owned(),
    }
}

/// Describes the process that has locked a part of the file, as far as the host lets us find out.
/// An empty range means the whole.
pub(crate) fn range_holder(file: &fs::Metadata, range: &Range<u64>) -> String {
    let overlaps = |line: &str| {
        let held = locked_range(line);
        held.is_some_and(|held| {
            range.is_empty() || (held.start < range.end && range.start < held.end)
        })
    };
    match holder_by_descriptor(file, &overlaps) {
        Some(pid) => describe(pid),
        None => lock_holder(file),
    }
}

/// Describes another process that has the file open for writing; `None` where none can be seen.
pub(crate) fn writer(file: &fs::Metadata) -> Option<String> {
    let own = std::process::id();
    let found = descriptors(file).find(|(pid, info)| *pid != own && is_for_writing(info));
    found.map(|(pid, _)| describe(pid))
}

/// `flags:  0100002` in octal digits, of which the last two bits say reading or writing.
fn is_for_writing(fdinfo: &Path) -> bool {
    let info = fs::read_to_string(fdinfo).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 != 0)
}

/// The bytes of the file that a lock stands for, from a line `lock: 1: OFDLCK ADVISORY  WRITE -1
/// fe:00:5678 START END`.
fn locked_range(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == "OFDLCK")?;
    let start: u64 = words.nth(4)?.parse().ok()?;
    let end = match words.next()? {
        "EOF" => u64::MAX,
        last => last.parse::<u64>().ok()?.checked_add(1)?,
    };
    let start = start.checked_sub(RANGES_AT)?;
    Some(start..end.saturating_sub(RANGES_AT))
}

/// The loop device that the kernel has set up over the file, if any. The kernel does not lock the
/// file behind a loop device, so a file system mounted that way would not be noticed otherwise.
/// Only a loop device that shows some of these bytes counts; an empty range means the whole.
pub(crate) fn loop_device_over(file: &fs::Metadata, range: &Range<u64>) -> Option<String> {
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let backing = entry.path().join("loop/backing_file");
        let Ok(path) = fs::read_to_string(backing) else {
            continue;
        };
        let Ok(other) = fs::metadata(path.trim_end_matches('\n')) else {
            continue;
        };
        let number = |name: &str| -> u64 {
            let text = fs::read_to_string(entry.path().join("loop").join(name));
            text.ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0)
        };
        let start = number("offset");
        let end = match number("sizelimit") {
            0 => u64::MAX,
            length => start.saturating_add(length),
        };
        let is_apart = !range.is_empty() && (end <= range.start || range.end <= start);
        if other.dev() == file.dev() && other.ino() == file.ino() && !is_apart {
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

/// The exact way: finds the live process with a descriptor of the file that carries such a lock. A
/// lock outlives the process that took it if a child inherited the descriptor (a daemon); the lock
/// table then names a process that is gone.
fn holder_by_descriptor(file: &fs::Metadata, is_it: &dyn Fn(&str) -> bool) -> Option<u32> {
    let carries = |info: &Path| {
        let info = fs::read_to_string(info).unwrap_or_default();
        let mut locks = info.lines().filter(|line| line.starts_with("lock:"));
        locks.any(is_it)
    };
    let mut descriptors = descriptors(file);
    descriptors.find_map(|(pid, info)| carries(&info).then_some(pid))
}

/// The descriptors of this file: the process, and the path of the descriptor's `fdinfo`.
fn descriptors(file: &fs::Metadata) -> impl Iterator<Item = (u32, PathBuf)> {
    let (device, inode) = (file.dev(), file.ino());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let pid: u32 = process.file_name().to_str()?.parse().ok()?;
            Some((pid, process.path()))
        })
        .flat_map(move |(pid, process)| {
            let open = fs::read_dir(process.join("fd"))
                .into_iter()
                .flatten()
                .flatten();
            open.filter_map(move |descriptor| {
                let other = fs::metadata(descriptor.path()).ok()?;
                let info = process.join("fdinfo").join(descriptor.file_name());
                (other.dev() == device && other.ino() == inode).then_some((pid, info))
            })
        })
}

/// The fallback for processes of other users, whose descriptors we may not see. The device number
/// is not compared: stacked file systems show another one here than `stat` does.
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
    fn reads_the_bytes_of_a_lock() {
        let line = "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:5678 4611686018427388004 4611686018427388103";
        assert_eq!(locked_range(line), Some(100..200));
        let all = "lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:5678 4611686018427387904 EOF";
        assert_eq!(locked_range(all).map(|range| range.start), Some(0));
        assert_eq!(
            locked_range("lock:\t1: FLOCK  ADVISORY  READ 1 fe:00:1 0 EOF"),
            None
        );
        let of_qemu = "lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:5678 100 101";
        assert_eq!(locked_range(of_qemu), None);
    }

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
