//! The UFS layout: UFS1 and UFS2 as FreeBSD has them, little- and big-endian.
//!
//! `format` holds the on-disk structures.

pub mod format;
