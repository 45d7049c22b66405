//! What blocks hold in all file systems of the Unix family, as bytes and numbers: entries of
//! directories, bits of groups, runs of blocks, the fragments at a file's end.
//!
//! Pure functions: nothing here reads a device, knows an open file system or states a dependency.
//! `unixfs` plans its operations with them and a format says through [`directory::EntryLayout`] and
//! [`bitmap::Bits`] how it differs. Depends on `layout` for the types of files.
//!
//! | module | what |
//! |---|---|
//! | `directory` | the entries of a directory's block |
//! | `block_edit` | room for a name in such a block, and its bytes with names added and removed |
//! | `bitmap` | bits of a group: where they are, and what a set one means |
//! | `runs` | runs of blocks |
//! | `free_runs` | which blocks have been free since a moment, and which were freed since one |
//! | `name_table` | where each name of a large directory is, eight bytes a name |
//! | `room` | how much room for names each block of a directory has |
//! | `directory_index` | both of these, of one directory, in memory |
//! | `references` | how often somebody refers to each inode, in memory |
//! | `replaced` | the mark of a directory that another one replaces |
//! | `tail` | the fragments at the end of a file |
//! | `windows` | space that is reserved in memory for files that grow |

pub mod bitmap;
pub mod block_edit;
pub mod directory;
pub mod directory_index;
pub mod free_runs;
pub mod name_table;
pub mod references;
pub mod replaced;
pub mod room;
pub mod runs;
pub mod tail;
pub mod windows;
