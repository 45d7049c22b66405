//! The UFS layout: UFS1 and UFS2 as FreeBSD has them, little- and big-endian.
//!
//! `format` holds the on-disk structures; the rest is how they look to what all formats share
//! ([`backstitch_unixfs`]). The tools that work on an image that nobody has mounted are above it, in
//! `ufs-tools`.
//!
//! The unit of allocation is the *fragment*: a bit of a group's map stands for one, and both the
//! volume and the shared part call it a block. What UFS calls a block is up to eight fragments: a
//! pointer leads to one of those. Here "block" is UFS's word, unless it says "the volume's".
//!
//! | module | what |
//! |---|---|
//! | `image` | recognising an image |
//! | `mount` | opening |
//! | `state` | what an open file system keeps in memory, `groups` of cylinder groups |
//! | `opened` | an open file system as a [`Format`](backstitch_unixfs::format::Format), `editor` an inode's fields |
//! | `space` | maps and counters, `place` where new things go, `free` the map that it searches, `section` when a file goes on in another group |
//! | `rules` | the order rules that only this layout states |
//! | `counts` | counts and marks on the disk |
//! | `journal` | a log of operations, before a mount: where it lies, marks about it, the list of orphans |
//! | `xattrs` | attributes, in an inode's own blocks |

mod counts;
mod editor;
mod fault;
pub mod format;
mod free;
mod groups;
mod image;
mod journal;
pub mod kinds;
mod mount;
mod opened;
mod place;
pub mod rules;
mod section;
mod space;
mod state;
mod xattrs;

pub use image::{Ufs, is_on, read_superblock};
