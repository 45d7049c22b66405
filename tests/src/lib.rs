//! The code that end-to-end tests share.
//!
//! The tests run the `backstitch` command as a person would, and foreign tools judge what it did:
//! `e2fsck`, the Linux kernel's own driver on a loop mount or in a guest, `fsx`, `pjdfstest`. The
//! code here depends on no crate of this project, only on the command line; a few of the tests use
//! crates.
//!
//! # The system under test
//!
//! `BACKSTITCH_BIN` names the command, by default the one in this build's target directory (release
//! before debug). With `BACKEND=kernel` or `BACKEND=fuse2fs` the same tests mount another file
//! system instead. This tests the tests: the kernel must pass those that do not need our command,
//! and fuse2fs, which orders nothing, must fail the kill test.
//!
//! # What tests leave behind
//!
//! Nothing. Mounts, loop devices and images are below a [`Scratch`](scratch::Scratch), which
//! removes them when it is dropped, even by a panic. If a test is killed, the next one cleans up. A
//! scratch also holds a lock, since loop devices are few: tests that use one run one after the
//! other. `KEEP=1` keeps the images of a failed test.
//!
//! # Skipping
//!
//! If a tool or a right that a test needs is missing, it prints that to standard error, with the
//! Debian package, and passes. With `STRICT=1` it fails instead.

pub mod acl;
pub mod command;
pub mod dumps;
pub mod fsck;
pub mod image;
pub mod io_uring;
pub mod load;
pub mod loop_device;
pub mod mount;
pub mod mutant;
pub mod operations;
pub mod player;
pub mod populate;
pub mod random;
pub mod recorder;
pub mod requirements;
pub mod scratch;
pub mod source;
pub mod tree;
pub mod uml;

/// Returns from the test, with a message, unless everything named is available: tools by the names
/// of their commands, or `"root"`, `"fuse"`, `"loop"`, `"backstitch"`; see
/// [`requirements::missing`].
#[macro_export]
macro_rules! require {
    ($($what:expr),+ $(,)?) => {
        $(if let Some(reason) = $crate::requirements::missing($what) {
            $crate::requirements::skip(module_path!(), &reason);
            return;
        })+
    };
}

/// A number from the environment that says how much a test does.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Prints to standard error, even if the test harness hides a passing test's output.
pub fn say(text: &str) {
    use std::io::Write;
    // If standard error is closed, nothing can be done.
    let _ = writeln!(std::io::stderr(), "{text}");
}
