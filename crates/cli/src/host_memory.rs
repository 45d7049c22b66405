//! How much of this machine's memory changes may take that wait to be written.

use backstitch_files::error::{Error, Result};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// This part of the memory that there is,
const PART: u64 = 16;
/// and no more than this: it may all have to be written before a `sync` returns.
const MOST_BYTES: u64 = 1 << 30;
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// What a daemon takes of the address space besides its cache: its code, what the allocator sets
/// aside, and 2 MiB of stack for each of the threads that serve requests, of which there are 16 at
/// most.
const BESIDES_CACHE_BYTES: u64 = 160 << 20;
/// The least cache that is worth a mount.
const LEAST_CACHE_BYTES: u64 = 16 << 20;
/// One part in this of the address space for the cache is used: the rest is lost between
/// allocations.
const CACHE_PART: u64 = 2;

/// The largest cache that a limit on the address space (`ulimit -v`) leaves room for; `None`
/// without such a limit.
///
/// # Errors
/// Where a mount could not work: it would only notice when memory runs out, and could not tell
/// anybody any more.
pub(crate) fn cache_in_address_space() -> Result<Option<u64>> {
    let Some(limit) = getrlimit(Resource::As).current else {
        return Ok(None);
    };
    let room = limit.saturating_sub(BESIDES_CACHE_BYTES) / CACHE_PART;
    if room < LEAST_CACHE_BYTES {
        let least = BESIDES_CACHE_BYTES + CACHE_PART * LEAST_CACHE_BYTES;
        let why = format!(
            "limited to {} MiB, and a mount needs {}",
            limit >> 20,
            least >> 20
        );
        return Err(Error::failed("mount", "address space", why).hint("ulimit -v unlimited"));
    }
    Ok(Some(room))
}

/// What changes may take where nobody has said how much memory to use.
pub(crate) fn dirty_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine_bytes = machine.totalram as u64 * u64::from(machine.mem_unit);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group_bytes = group_bytes(&groups, Path::new(CONTROL_GROUPS));
    part_of(group_bytes.map_or(machine_bytes, |bytes| bytes.min(machine_bytes)))
}

fn part_of(memory_bytes: u64) -> u64 {
    (memory_bytes / PART).min(MOST_BYTES)
}

/// The least that this process's control group, or any that it is in, may take: of version 2, or of
/// version 1 where memory is there.
fn group_bytes(groups: &str, top: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        match controllers {
            "" => limits_of(top, group, &["memory.max", "memory.high"]),
            of if of.split(',').any(|name| name == "memory") => {
                limits_of(&top.join("memory"), group, &["memory.limit_in_bytes"])
            }
            _ => Vec::new(),
        }
    });
    limits.min()
}

/// What these files of a group say, and of those that it is in. Within a container the group's own
/// name may be one outside, and its limits at the top.
fn limits_of(top: &Path, group: &str, files: &[&str]) -> Vec<u64> {
    let group = top.join(group.trim_start_matches('/'));
    let around = group.ancestors().take_while(|path| path.starts_with(top));
    let read = around.flat_map(|path| files.iter().map(|file| path.join(file)));
    // Where there is no limit version 2 says "max", and version 1 more than any machine has.
    read.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_memory_and_a_gigabyte_at_most() {
        assert_eq!(part_of(2 << 30), 128 << 20);
        assert_eq!(part_of(16 << 30), 1 << 30);
        assert_eq!(part_of(1 << 40), 1 << 30);
    }

    #[test]
    fn the_narrowest_control_group_counts() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let limit = |groups| group_bytes(groups, top.path());
        assert_eq!(limit("0::/a/b\n"), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(top.path().join("a/memory.max"), "1073741824\n").unwrap();
        std::fs::write(top.path().join("memory.max"), "4294967296\n").unwrap();
        assert_eq!(limit("1:cpu:/x\n0::/a/b\n"), Some(1 << 30));
        assert_eq!(limit("0::/"), Some(4 << 30));
        std::fs::write(inner.join("memory.high"), "536870912\n").unwrap();
        assert_eq!(limit("0::/a/b\n"), Some(1 << 29));
        assert_eq!(limit("3:memory:/a\n"), None, "version 1 is not there");
    }

    #[test]
    fn version_1_counts_too() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("memory/a");
        std::fs::create_dir_all(&inner).unwrap();
        let limit = |groups| group_bytes(groups, top.path());
        let write = |file: &str, text: &str| std::fs::write(top.path().join(file), text).unwrap();
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/a/memory.limit_in_bytes", "536870912\n");
        let groups = "12:cpu,cpuacct:/b\n3:memory:/a\n0::/c\n";
        assert_eq!(limit(groups), Some(1 << 29));
        // In a container the name is one outside.
        assert_eq!(
            limit("3:memory:/docker/1\n"),
            Some(9_223_372_036_854_771_712)
        );
        assert_eq!(limit("12:cpu,cpuacct:/a\n"), None);
    }
}
