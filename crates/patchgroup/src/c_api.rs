//! The C interface: `include/patchgroup.h`.
//!
//! A `pg_t` is a descriptor. Every function returns -1 and sets `errno` where it fails.

// The functions are called from C: they have C's names, and take descriptors and strings as C has
// them.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use crate::protocol::Op;
use crate::{on, supported};

fn result(done: io::Result<c_int>) -> c_int {
    done.unwrap_or_else(|error| {
        set_errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
        -1
    })
}

fn set_errno(number: c_int) {
    unsafe extern "C" {
        fn __errno_location() -> *mut c_int;
    }
    // SAFETY: the C library's own address of this thread's errno, always valid.
    unsafe { *__errno_location() = number };
}

fn with(group: c_int, body: impl FnOnce(BorrowedFd<'_>) -> io::Result<c_int>) -> c_int {
    if group < 0 {
        return result(Err(Errno::BADF.into()));
    }
    // SAFETY: as with every call that takes a descriptor, the caller keeps it open until the call
    // returns; -1 was refused.
    result(body(unsafe { BorrowedFd::borrow_raw(group) }))
}

/// A path as C gives it; the current directory where it is null.
///
/// # Safety
/// `path` is null or ends with a zero byte.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    if path.is_null() {
        return Path::new(".");
    }
    // SAFETY: stated above.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Path::new(OsStr::from_bytes(bytes))
}

/// 1 where the file system that holds `path` has patchgroups, 0 where not.
///
/// # Safety
/// `path` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pg_supported(path: *const c_char) -> c_int {
    // SAFETY: stated above.
    supported(unsafe { path_of(path) }).into()
}

/// Makes a group of the file system of the current directory.
#[unsafe(no_mangle)]
pub extern "C" fn pg_create() -> c_int {
    result(on::create(Path::new(".")).map(IntoRawFd::into_raw_fd))
}

/// Makes a group of the file system that holds `path`.
///
/// # Safety
/// `path` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pg_create_at(path: *const c_char) -> c_int {
    // SAFETY: stated above.
    result(on::create(unsafe { path_of(path) }).map(IntoRawFd::into_raw_fd))
}

/// Makes the group `after` come after `before`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_depend(after: c_int, before: c_int) -> c_int {
    with(after, |after| {
        Ok(with(before, |before| on::depend(after, before).map(|()| 0)))
    })
}

/// Engages the group: what its holders do from now on belongs to it.
#[unsafe(no_mangle)]
pub extern "C" fn pg_engage(group: c_int) -> c_int {
    with(group, |group| on::simple(Op::Engage, &[], group).map(|_| 0))
}

/// Disengages the group.
#[unsafe(no_mangle)]
pub extern "C" fn pg_disengage(group: c_int) -> c_int {
    with(group, |group| {
        on::simple(Op::Disengage, &[], group).map(|_| 0)
    })
}

/// Makes what is done under the group from now on come after what was done under it before.
#[unsafe(no_mangle)]
pub extern "C" fn pg_advance(group: c_int) -> c_int {
    with(group, |group| on::advance(group).map(|()| 0))
}

/// Puts everything done under the group onto stable storage.
#[unsafe(no_mangle)]
pub extern "C" fn pg_sync(group: c_int) -> c_int {
    with(group, |group| on::sync(group, Op::Sync).map(|()| 0))
}

/// Closes the group's descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn pg_close(group: c_int) -> c_int {
    if group < 0 {
        return result(Err(Errno::BADF.into()));
    }
    // SAFETY: the caller hands its descriptor over.
    unsafe { rustix::io::close(group) };
    0
}

/// Gives the group a name for people.
///
/// # Safety
/// `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pg_label(group: c_int, name: *const c_char) -> c_int {
    if name.is_null() {
        return result(Err(Errno::INVAL.into()));
    }
    // SAFETY: stated above.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.len() > 200 {
        return result(Err(Errno::INVAL.into()));
    }
    with(group, |group| on::simple(Op::Label, name, group).map(|_| 0))
}

/// Makes each operation under the group come after the one before it.
#[unsafe(no_mangle)]
pub extern "C" fn pg_linear(group: c_int) -> c_int {
    with(group, |group| match on::simple(Op::Linear, &[], group)? {
        Some(_) => Ok(0),
        None => Err(Errno::OPNOTSUPP.into()),
    })
}

/// 1 where everything done under the group is on stable storage, 0 where not.
#[unsafe(no_mangle)]
pub extern "C" fn pg_durable(group: c_int) -> c_int {
    with(group, |group| on::is_durable(group).map(c_int::from))
}

/// Waits until everything done under the group is on stable storage.
#[unsafe(no_mangle)]
pub extern "C" fn pg_wait(group: c_int) -> c_int {
    with(group, |group| on::sync(group, Op::Wait).map(|()| 0))
}

/// A descriptor that is readable once everything done under the group is on stable storage.
#[unsafe(no_mangle)]
pub extern "C" fn pg_notify(group: c_int) -> c_int {
    with(group, |group| on::notify(group).map(IntoRawFd::into_raw_fd))
}
