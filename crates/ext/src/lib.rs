//! The ext2 layout.
//!
//! `format` holds the on-disk structures; the rest is the layout proper. The tools that work on an
//! image that nobody has mounted are above it, in `ext-tools`.
//!
//! # The layout proper
//!
//! [`Ext2`] recognises and opens images; the open file system implements
//! [`FileSystem`](backstitch_layout::FileSystem). It states every change with soft-updates
//! dependencies, as the table in the design documents has them, and never asks which mechanism is
//! at work.
//!
//! | module | what |
//! |---|---|
//! | `state` | what an open file system keeps in memory: plain data without operations on the disk |
//! | `image` | recognising an image |
//! | `mount` | opening, recovery, the clean mark |
//! | `journal` | where a journal is, the list of orphans |
//! | `groups` | bitmaps and counters, `place` where new things go |
//! | `inodes` | reading and changing inodes, `editor` their fields, `pending` what of them is under way to the disk |
//! | `map` | logical to physical blocks, `contents` reading and writing, `extend` adding blocks, `shrink` truncation and holes |
//! | `reach` | which names can be reached, and what must not go before that |
//! | `index` | finding names in directories, `htree` their index on the disk, `names` the operations on them, `rename`, `exchange` |
//! | `deferred` | freeing what nothing on the disk refers to any more |
//! | `orphans` | the list of inodes without names and of truncations under way, for mechanisms whose scopes are atomic |
//! | `steps` | how much one step of a long operation takes on |
//! | `reclaim` | freeing what a crash left |
//! | `rules` | the rules that it states, by name |
//! | `layout` | the file system as the layers above see it |
//!
//! Dependencies among the modules go one way: `format` and `rules` are at the bottom, `state` above
//! them, the operations on the state above that, `layout` and `mount` at the top.

mod block_edit;
mod contents;
mod deferred;
mod editor;
mod exchange;
mod extend;
pub mod format;
mod groups;
mod htree;
mod image;
mod index;
mod inodes;
pub mod journal;
pub mod kinds;
mod layout;
mod map;
mod mount;
mod moved;
mod names;
mod orphans;
mod pending;
mod place;
mod reach;
mod reclaim;
mod removal;
mod rename;
mod replace;
pub mod rules;
mod shrink;
mod spares;
mod state;
mod steps;
mod trim;
mod xattrs;

pub use block_edit::BlockEdit;
pub use image::Ext2;
