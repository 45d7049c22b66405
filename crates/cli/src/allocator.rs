//! The memory allocator's settings.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb";
/// In the environment of what began anew.
const BEGUN_ANEW: &str = "BACKSTITCH_BEGUN_ANEW";

/// Begins the command anew with an allocator that asks for huge pages, unless its environment says what it is to do about them. To be
/// called before anything was done.
///
/// A cache that fills up gets its memory from the kernel 2 MiB at a time instead of 4 KiB, and the blocks of a long transfer lie
/// beside each other. glibc reads this setting once, as a program begins.
pub(crate) fn use_huge_pages() {
    let given = std::env::var_os(TUNABLES).unwrap_or_default();
    if !cfg!(target_env = "gnu") || given.to_string_lossy().contains(HUGE_PAGES) {
        return;
    }
    // A program with more rights than whoever began it is never shown the setting, and would begin anew for ever.
    if std::env::var_os(BEGUN_ANEW).is_some() {
        return;
    }
    let mut words = std::env::args_os();
    let (Some(name), Ok(program)) = (words.next(), std::env::current_exe()) else {
        return;
    };
    let error = Command::new(program)
        .arg0(name)
        .args(words)
        .env(TUNABLES, with_huge_pages(given))
        .env(BEGUN_ANEW, "1")
        .exec();
    // It goes without them as well.
    tracing::debug!(%error, "cannot begin anew with huge pages");
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

/// Has every thread of a mount allocate from the same arena. To be called while there is one thread.
///
/// glibc gives each thread an arena of its own, and extends all but the first by a system call for each block of a cache that
/// fills up. One thread at a time does nearly all of our allocating, under the engine's lock. On one CPU PostMark through the
/// mount takes 3 % less time with one arena.
pub(crate) fn use_one_arena() {
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
