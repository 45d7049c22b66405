//! The fuzz targets.
//!
//! The fuzzer itself is in `fuzz/`, a workspace of its own that needs a nightly compiler. This
//! crate needs none: the test `regressions` runs every input that once made a target fail, so that
//! what was fixed stays fixed.
//!
//! # A target
//!
//! A target is a function of bytes. It may do with them what it likes, and fails by a panic. The
//! fuzzer limits time and memory. Apart from panics of the code under test, each target asserts
//! what must hold for every input: what is parsed and written is the same, a second repair has
//! nothing to do, a second recovery changes nothing.
//!
//! # Inputs
//!
//! Parsers take the bytes as they are. A whole image would be too large for a fuzzer to change to
//! any effect. So targets that need one take the number of a [base image](base), and a list of
//! [damages](damage) to meaningful parts of it. Inputs are then a few dozen bytes long, and each
//! byte counts. Base images are made by this project's own `mkfs` and engine, always with the same
//! bytes.

pub mod base;
pub mod corpus;
pub mod damage;
mod input;
mod places;
pub mod targets;

pub use input::Input;

/// A target: its name and its function.
pub struct Target {
    /// The name, also of its folders of inputs.
    pub name: &'static str,
    /// Runs an input. Panics if something is wrong.
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
        name: "answers",
        run: targets::answers::run,
    },
    Target {
        name: "ufs_format",
        run: targets::ufs_format::run,
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

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
