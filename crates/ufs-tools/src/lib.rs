//! Tools over a UFS1 or UFS2 image that nobody has mounted.
//!
//! They work on the structures of [`backstitch_ufs::format`] in plain bytes of a device and share
//! nothing else with the layout's write path, so that a fault in one is not hidden by the other.
//! They depend on `ufs`; `ufs` knows nothing of them.
//!
//! | module | what |
//! |---|---|
//! | `mkfs` | making a file system |
//! | `fsck` | checking, reading only |
//! | `repair` | repairing, from the same facts as the check |
//! | `tune` | changing label, UUID and reserved blocks |
//! | `info` | describing the superblock |
//! | `geography` | what each fragment is for |
//! | `tools` | all of it behind [`Tools`](backstitch_layout::tools::Tools) |

mod bits;
mod entries;
pub mod fsck;
mod geography;
mod group;
pub mod info;
pub mod mkfs;
pub mod repair;
mod tools;
pub mod tune;

pub use tools::UfsTools;
