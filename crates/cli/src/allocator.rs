//! What glibc does not do well by itself. Other allocators keep their own ways.

/// Has every thread of the process allocate from the same arena. To be called while there is one
/// thread.
///
/// glibc sets 64 MiB of address space aside for each thread's own arena: a mount under a limit on the
/// address space (`ulimit -v`) would end for want of it. It costs nothing that was seen, for one
/// thread at a time does nearly all of our allocating, under the engine's lock.
pub(crate) fn use_one_arena() {
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
