//! What an open UFS keeps in memory besides what all formats do: plain data.

use backstitch_unixfs::{UnixFs, Windows};

use crate::format::Superblock;
use crate::groups::Groups;

/// How an open UFS looks on the disk, with numbers that have the highest byte first where `BIG`.
pub(crate) struct UfsFormat<const BIG: bool> {
    pub(crate) sb: Superblock,
    pub(crate) groups: Groups,
    pub(crate) windows: Windows,
}

/// An open UFS.
pub(crate) type Open<const BIG: bool> = UnixFs<UfsFormat<BIG>>;
