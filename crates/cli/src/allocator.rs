//! What glibc does not do well by itself. Other allocators keep their own ways.

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
