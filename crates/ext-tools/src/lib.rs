//! Tools over an ext2 or ext3 image that nobody has mounted.
//!
//! They work on the structures of [`backstitch_ext::format`] in plain bytes of a device and share
//! nothing else with the layout's write path, so that a fault in one is not hidden by the other.
//! They depend on `ext`; `ext` knows nothing of them.
//!
//! | module | what |
//! |---|---|
//! | `mkfs` | making a file system, and a journal on a device of its own |
//! | `fsck` | checking, reading only |
//! | `repair` | repairing, from the same facts as the check |
//! | `tune` | changing label, UUID and reserved blocks |
//! | `info` | describing the superblock |
//! | `geography` | what each block is for |
//! | `tools` | all of it behind [`Tools`](backstitch_layout::tools::Tools) |

pub mod fsck;
mod geography;
pub mod info;
pub mod mkfs;
pub mod repair;
mod tools;
pub mod tune;

pub use tools::ExtTools;
