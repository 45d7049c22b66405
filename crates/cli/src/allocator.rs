//! The memory allocator's settings.

use signal_hook::consts::SIGPIPE;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb";
/// In the environment of what began anew: how often it did.
const BEGUN_ANEW: &str = "BACKSTITCH_BEGUN_ANEW";
/// The most starts. Where each fails one time in four, eight in a row all fail one time in 65,000.
const MOST_TIMES: u32 = 8;
/// Bytes that get a mapping of their own with huge pages in it, and that are too many for glibc to
/// learn from what it should map the next time.
const PROBE_BYTES: usize = 64 << 20;

/// Sets up the allocator of a process that has a file system in it. To be called while there is one
/// thread, before anything was done: the process may begin anew.
pub(crate) fn set_up() {
    if has_setting() {
        use_huge_pages();
    }
    use_one_arena();
}

/// Begins the command anew with an allocator that asks for huge pages, unless its environment says
/// what it is to do about them.
///
/// A cache that fills up gets its memory from the kernel 2 MiB at a time instead of 4 KiB, and the
/// blocks of a long transfer lie beside each other. glibc reads this setting once, as a program
/// begins. Its version 2.36 at least compares what the kernel says about huge pages with bytes of
/// which the last is whatever the stack held, and so passes over the setting in one start of four;
/// then it begins anew again.
fn use_huge_pages() {
    let given = std::env::var_os(TUNABLES).unwrap_or_default();
    let times = std::env::var_os(BEGUN_ANEW).map(|times| times.to_string_lossy().parse());
    let times = times.and_then(Result::ok).unwrap_or(0);
    let settings = match (given.to_string_lossy().contains(HUGE_PAGES), times) {
        (false, 0) => with_huge_pages(given),
        // Somebody else's setting.
        (true, 0) => return,
        // A program with more rights than its parent is never shown the setting, and would begin
        // anew for ever.
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
    // It goes without them as well, but the attempt has taken from it that it ignores this signal.
    let _ = signal_hook::flag::register(SIGPIPE, Arc::default());
    tracing::debug!(%error, "cannot begin anew with huge pages");
}

/// Whether the kernel gives huge pages to who asks, and the allocator does not ask.
fn is_passed_over() -> bool {
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !modes.is_ok_and(|modes| modes.contains("[madvise]")) {
        return false;
    }
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(PROBE_BYTES).is_err() {
        return false;
    }
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    is_advised(&maps, probe.as_ptr().addr()) == Some(false)
}

/// Whether the memory at an address was asked huge pages for, as `smaps` says; `None` where it says
/// nothing of it.
fn is_advised(smaps: &str, address: usize) -> Option<bool> {
    let holds = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |hex| usize::from_str_radix(hex, 16).ok();
        Some((number(start)?..number(end)?).contains(&address))
    };
    let mut lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"))?;
    Some(flags.split(' ').any(|flag| flag == "hg"))
}

/// Whether this allocator knows the setting: glibc 2.35 and later.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn has_setting() -> bool {
    #[allow(unsafe_code)]
    // SAFETY: it returns a string that is there as long as the program is.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = version.to_string_lossy();
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten()) >= (Some(2), Some(35))
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn has_setting() -> bool {
    false
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
/// glibc gives each thread an arena of its own, and extends all but the first by a system call for
/// each block of a cache that fills up. One thread at a time does nearly all of our allocating,
/// under the engine's lock. On one CPU PostMark through the mount takes 3 % less time with one
/// arena.
fn use_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: it sets a number in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that is free back to the host.
///
/// glibc does so by itself only with what lies behind everything that is in use, and blocks that
/// stay in the cache lie anywhere.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: it looks for free memory under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
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

    #[test]
    fn who_asked_is_found_in_the_list_of_mappings() {
        let maps = "1000-2000 r-xp 00000000 00:00 0 [vdso]\nSize: 4 kB\nVmFlags: rd ex hg \n\
            2000-9000 rw-p 00000000 00:00 0 \nVmFlags: rd wr ac \n\
            f000-ff00 rw-p 00000000 00:00 0 [heap]\nVmFlags: rd wr ac hg\n";
        assert_eq!(is_advised(maps, 0x1fff), Some(true));
        assert_eq!(is_advised(maps, 0x2000), Some(false));
        assert_eq!(is_advised(maps, 0xfe00), Some(true));
        assert_eq!(is_advised(maps, 0x9000), None);
        assert_eq!(is_advised("", 0x9000), None);
    }
}
