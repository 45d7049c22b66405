//! The targets.

pub mod acl;
pub mod directory;
pub mod extents;
pub mod fsck;
pub mod inode;
pub mod journal_format;
pub mod journal_replay;
pub mod mount;
pub mod partition;
pub mod patchgroup;
pub mod superblock;
pub mod trace;
pub mod undo;
pub mod write_log;
pub mod xattr;
