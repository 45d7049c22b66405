//! The ext layout: ext2 and ext3 to be read and written, ext4 to be read.
//!
//! `format` holds the on-disk structures; the rest is how they look to what all formats share
//! ([`backstitch_unixfs`]), which has the write path and its rules. The tools that work on an image
//! that nobody has mounted are above it, in `ext-tools`.
//!
//! | module | what |
//! |---|---|
//! | `image` | recognising an image |
//! | `mount` | opening, recovery, the clean mark |
//! | `state` | what an open file system keeps in memory, `groups` of groups, `hashed` of indexes |
//! | `opened` | an open file system as a [`Format`](backstitch_unixfs::format::Format), `editor` an inode's fields |
//! | `space` | bitmaps and counters, `place` where new things go |
//! | `extents` | the map of ext4's files |
//! | `htree` | the index of directories on the disk |
//! | `xattrs` | attributes, in inodes and in blocks that inodes share |
//! | `reserved` | inodes without names: what they map |
//! | `journal` | where a journal is, the list of orphans |
//! | `rules` | the rules that only ext states, by name |
//!
//! Dependencies among the modules go one way: `format` and `rules` are at the bottom, `state`
//! above them, `opened` above what implements it, `mount` at the top.

mod acls;
mod editor;
mod extents;
mod fault;
pub mod format;
mod groups;
mod hashed;
mod htree;
mod image;
pub mod journal;
pub mod kinds;
mod mount;
mod opened;
mod place;
mod reserved;
pub mod rules;
mod space;
mod state;
mod xattrs;

pub use fault::JournalFault;
pub use image::Ext2;

/// An edit of an ext directory's block.
pub type BlockEdit = backstitch_unixfs::block_edit::BlockEdit<format::directory::ExtEntries>;
