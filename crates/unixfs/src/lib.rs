//! What inode file systems of the Unix family share: names, files and freed space, under the rules
//! of soft updates.
//!
//! [`UnixFs`] is an open file system; it implements
//! [`FileSystem`](backstitch_layout::FileSystem) over any [`Format`](format::Format). It states
//! every change with soft-updates dependencies ("What a layout states" in `docs/DESIGN.md`), and
//! never asks which mechanism is at work. How things look on the disk, and which space is free, is
//! the format's business alone.
//!
//! | module | what |
//! |---|---|
//! | `format` | what a format is: inodes, space, and the rest |
//! | `replace` | a name that is taken over from another file or directory |
//! | `state` | what an open file system keeps in memory: plain data without operations on the disk |
//! | `inodes` | reading and changing inodes, `pending` what of them is under way to the disk |
//! | `space` | blocks and inodes are given and taken back; `spares` inodes that are marked as used ahead of time |
//! | `map` | logical to physical blocks, `contents` reading and writing, `extend` adding blocks, `shrink` truncation and holes |
//! | `tails` | the last block of a file where a block has several units (UFS: fragments) and the file uses some of them |
//! | `moved` | appends that are flushed: the indirect block goes to a new place |
//! | `reach` | which names can be reached, and what must not go before that |
//! | `index` | finding names in directories, `names` the operations on them, `removal`, `rename`, `exchange`; `unnamed` files that are made without one |
//! | `kinds` | the kinds of metadata blocks, for statistics and traces |
//! | `deferred` | freeing what nothing on the disk refers to any more |
//! | `orphans` | the list of inodes without names and of truncations under way, for mechanisms whose scopes are atomic |
//! | `steps` | how much one step of a long operation takes on |
//! | `reclaim` | freeing what a crash left |
//! | `rules` | the rules that it states, by name |
//! | `fault` | what can be wrong in an image |
//! | `layout` | the file system as the layers above see it |
//!
//! Entries of directories, bitmaps and runs as bytes are in the crate `blocks`.
//!
//! Depends on `blocks`, `layout`, `ordering` and what is below them; knows no format and no
//! mechanism. Dependencies among the modules go one way: `rules` is at the bottom, `state` above it, the operations on the state above that, `layout` at the top.

mod contents;
mod deferred;
mod exchange;
mod extend;
mod fault;
pub mod format;
mod index;
mod inodes;
pub mod kinds;
mod layout;
mod map;
mod moved;
mod names;
mod orphans;
mod pending;
mod reach;
mod reclaim;
mod removal;
mod rename;
mod replace;
pub mod rules;
mod shrink;
mod space;
mod spares;
mod state;
mod steps;
mod tails;
mod unnamed;

pub use backstitch_blocks::block_edit::Room;
pub use backstitch_blocks::directory::Found;
pub use backstitch_blocks::directory_index::hash as name_hash;
pub use backstitch_blocks::runs::{Mapped, Run};
pub use backstitch_blocks::windows::Windows;
pub use backstitch_blocks::{bitmap, block_edit, directory, replaced, tail};
pub use extend::NewContents;
pub use fault::Fault;
pub use index::corrupt_directory;
pub use inodes::{READ_AHEAD_BLOCKS, want_ahead};
pub use map::Growth;
pub use space::{are_in_memory, checked_block, checked_run, read_bits};
pub use state::UnixFs;
pub use state::patches::PatchIds;
pub use state::reclaim::Reclaim;
