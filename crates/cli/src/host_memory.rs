//! How much of this machine's memory changes may take that wait to be written.

use std::path::Path;

/// This part of the memory that there is,
const PART: u64 = 16;
/// and no more than this: it may all have to be written before a `sync` returns.
const MOST_BYTES: u64 = 1 << 30;
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

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

/// The least that this process's control group (version 2), or any that it is in, may take.
fn group_bytes(groups: &str, top: &Path) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = top.join(group);
    let around = group.ancestors().take_while(|path| path.starts_with(top));
    let limits = around.filter_map(|path| std::fs::read_to_string(path.join("memory.max")).ok());
    // Where there is none it says "max".
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
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
        assert_eq!(limit("3:memory:/a\n"), None);
    }
}
