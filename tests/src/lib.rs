//! What the end-to-end tests share.
//!
//! The tests run the `backstitch` command as a person would and let foreign tools judge what it
//! did: `e2fsck`, the Linux kernel's own driver on a loop mount or in a guest, `fsx`, `pjdfstest`.
//! They depend on no crate of this project, only on the command line.
//!
//! # The system under test
//!
//! `BACKSTITCH_BIN` names the command, by default the one in this build's target directory (release
//! before debug). With `BACKEND=kernel` or `BACKEND=fuse2fs` the same tests mount another file
//! system in its place, which is how a test is tested: the kernel must pass what does not need our
//! command, and fuse2fs, which orders nothing, must fail the kill test.
//!
//! # What tests leave behind
//!
//! Nothing: mounts, loop devices and images live below a [`Scratch`](scratch::Scratch), which takes
//! them down when it is dropped, also by a panic; and one that was killed is cleaned up by the
//! next. A scratch also holds a lock, since loop devices are few: tests that use one run one after
//! the other. `KEEP=1` keeps the images of a failed test.
//!
//! # Skipping
//!
//! A test that needs a tool or a right that is missing says so on standard error, names the Debian
//! package, and passes; with `STRICT=1` it fails instead.

pub mod acl;
pub mod command;
pub mod dumps;
pub mod fsck;
pub mod image;
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

/// Returns from the test, with a message, unless everything named is there: tools by their
/// command's name, or one of `"root"`, `"fuse"`, `"loop"`, `"backstitch"`; see
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

/// A number from the environment: how much of something a test does.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Prints to standard error whatever the test harness does with a passing test's output.
pub fn say(text: &str) {
    use std::io::Write;
    // Nothing to be done, and nothing lost, if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
