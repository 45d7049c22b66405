//! The ext2 layout.
//!
//! `format` holds the on-disk structures; `mkfs` and `fsck` work on plain bytes of a device, independent of the layout's write
//! path (so that a fault in one is not hidden by the other); the rest is the layout proper.

pub mod format;
pub mod mkfs;

/// TEMPORARY: the ext layouts.
pub struct Ext;
impl backstitch_layout::LayoutKind for Ext {}
