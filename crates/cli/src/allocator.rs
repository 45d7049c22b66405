//! The memory allocator's settings.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb";
/// In the environment of what began anew: how often it did.
const BEGUN_ANEW: &str = "BACKSTITCH_BEGUN_ANEW";
/// At most so often. Of starts in a row of which each fails one time in four, all fail one time in 65,000.
const MOST_TIMES: u32 = 8;

/// Sets up the allocator of a process that has a file system in it. To be called while there is one thread, before anything was done:
/// the process may begin anew.
pub(crate) fn set_up() {
    if cfg!(target_env = "gnu") {
        use_huge_pages();
        use_one_arena();
    }
}

/// Begins the command anew with an allocator that asks for huge pages, unless its environment says what it is to do about them.
///
/// A cache that fills up gets its memory from the kernel 2 MiB at a time instead of 4 KiB, and the blocks of a long transfer lie
/// beside each other. glibc reads this setting once, as a program begins. Its version 2.36 at least compares what the kernel
/// says about huge pages with bytes of which the last is whatever the stack held, and so passes over the setting in one start of four;
/// then it begins anew again.
fn use_huge_pages() {
    let given = std::env::var_os(TUNABLES).unwrap_or_default();
    let times = std::env::var_os(BEGUN_ANEW).map(|times| times.to_string_lossy().parse());
    let times = times.and_then(Result::ok).unwrap_or(0);
    let settings = match (given.to_string_lossy().contains(HUGE_PAGES), times) {
        (false, 0) => with_huge_pages(given),
        // Somebody else's setting.
        (true, 0) => return,
        // A program with more rights than whoever began it is never shown the setting, and would begin anew for ever.
        (false, _) => return,
        (true, _) if times >= MOST_TIMES || !is_passed_over() => return,
        (true, _) => given,
    };
    let mut words = std::env::args_os();
    let (Some(name), Ok(program)) = (words.next(), std::env::current_exe()) else {
        return;
    };
    let error = Command::new(program)
        .arg0(name)
        .args(words)
        .env(TUNABLES, settings)
        .env(BEGUN_ANEW, (times + 1).to_string())
        .exec();
    // It goes without them as well.
    tracing::debug!(%error, "cannot begin anew with huge pages");
}

/// Whether the kernel gives huge pages to who asks, and the heap did not ask.
fn is_passed_over() -> bool {
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let maps = std::fs::read_to_string("/proc/self/smaps");
    let (Ok(modes), Ok(maps)) = (modes, maps) else {
        return false;
    };
    let heap = maps.split_once("[heap]").map(|(_, heap)| heap);
    let flags = heap.and_then(|heap| heap.lines().find_map(|line| line.strip_prefix("VmFlags:")));
    modes.contains("[madvise]") && flags.is_some_and(|flags| !flags.split(' ').any(|f| f == "hg"))
}

/// Settings and this one.
fn with_huge_pages(mut settings: OsString) -> OsString {
    if !settings.is_empty() {
        settings.push(":");
    }
    settings.push(HUGE_PAGES);
    settings.push("=1");
    settings
}

/// Has every thread of a mount allocate from the same arena.
///
/// glibc gives each thread an arena of its own, and extends all but the first by a system call for each block of a cache that
/// fills up. One thread at a time does nearly all of our allocating, under the engine's lock. On one CPU PostMark through the
/// mount takes 3 % less time with one arena.
fn use_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: it sets a number in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_settings_are_kept() {
        assert_eq!(with_huge_pages(OsString::new()), "glibc.malloc.hugetlb=1");
        let both = with_huge_pages("glibc.malloc.check=3".into());
        assert_eq!(both, "glibc.malloc.check=3:glibc.malloc.hugetlb=1");
    }
}
