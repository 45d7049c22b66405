//! What the fuzz targets do with their inputs.
//!
//! The fuzzer itself is in `fuzz/`, a workspace of its own that needs a nightly compiler. What is
//! here needs none: the test `regressions` replays every input that once made a target fail, so
//! that what was mended stays mended.
//!
//! # A target
//!
//! A target is a function of bytes. It may do with them what it likes, and fails by a panic; the
//! fuzzer's own limits on time and memory do the rest. Beside the panics of the code under test,
//! each asserts what must hold for every input: what is parsed and written is the same, a second
//! repair has nothing to do, a recovery of what was recovered changes nothing.
//!
//! # Inputs
//!
//! Parsers take the bytes as they are. A whole image would be too large for a fuzzer to change to
//! any effect: so the targets that want one take a number of a [base image](base), and a list of
//! [damages](damage) to parts that mean something. Inputs stay a few dozen bytes long, and each
//! byte counts. Base images are made by this project's own `mkfs` and engine, always with the same
//! bytes.

pub mod base;
pub mod corpus;
pub mod damage;
mod input;
mod places;
pub mod targets;

pub use input::Input;

/// A target: its name, and what it does with an input.
pub struct Target {
    /// The name, also that of its folders of inputs.
    pub name: &'static str,
    /// Panics where something is wrong.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "superblock",
        run: targets::superblock::run,
    },
    Target {
        name: "inode",
        run: targets::inode::run,
    },
    Target {
        name: "extents",
        run: targets::extents::run,
    },
    Target {
        name: "directory",
        run: targets::directory::run,
    },
    Target {
        name: "xattr",
        run: targets::xattr::run,
    },
    Target {
        name: "acl",
        run: targets::acl::run,
    },
    Target {
        name: "journal_format",
        run: targets::journal_format::run,
    },
    Target {
        name: "journal_replay",
        run: targets::journal_replay::run,
    },
    Target {
        name: "mount",
        run: targets::mount::run,
    },
    Target {
        name: "fsck",
        run: targets::fsck::run,
    },
    Target {
        name: "partition",
        run: targets::partition::run,
    },
    Target {
        name: "patchgroup",
        run: targets::patchgroup::run,
    },
    Target {
        name: "trace",
        run: targets::trace::run,
    },
    Target {
        name: "ufs_fsck",
        run: targets::ufs_fsck::run,
    },
    Target {
        name: "ufs_mount",
        run: targets::ufs_mount::run,
    },
    Target {
        name: "undo",
        run: targets::undo::run,
    },
    Target {
        name: "write_log",
        run: targets::write_log::run,
    },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
