//! The map of ext4: a tree of extents, which is read and never changed.

use backstitch_layout::{BlockNumber, Error, Step, Structure};
use backstitch_ordering::Volume;
use backstitch_unixfs::{Mapped, Run, checked_block, checked_run};

use crate::format::Inode;
use crate::format::extent::{self, Extent, ExtentFault, Found, Node};
use crate::state::ExtFormat;

/// The extents of an inode.
pub(crate) struct Extents<'m> {
    pub(crate) fs: &'m ExtFormat,
    pub(crate) inode: &'m Inode,
}

impl Extents<'_> {
    /// What the file's blocks from `logical` on are mapped to, at most `max` of them: one run of
    /// blocks or of a hole. Blocks that belong to the file and were never written are a hole: they read as zeros.
    pub(crate) fn map(&self, v: &mut Volume<'_>, logical: u64, max: u64) -> Step<Mapped> {
        if !extent::BLOCKS.contains(&logical) {
            return Ok(Mapped::Hole(max));
        }
        let root = self.inode.inline_bytes();
        let root = Node::root(&root).map_err(|fault| corrupt(None, fault))?;
        let mut found = root.find(logical);
        // Ends: the depth falls with each round.
        loop {
            match found {
                Found::HoleUpTo(end) => return Ok(Mapped::Hole((end - logical).min(max))),
                Found::Extent(extent) => return self.from(extent, logical, max),
                Found::Below(child) => {
                    let block = checked_block(self.fs, child.block)?;
                    let node = Node::below(v.read(block)?, &child);
                    let node = node.map_err(|fault| corrupt(Some(block), fault))?;
                    found = node.find(logical);
                }
            }
        }
    }
}

impl Extents<'_> {
    /// The part of an extent that begins with one of the file's blocks.
    fn from(&self, extent: Extent, logical: u64, max: u64) -> Step<Mapped> {
        let before = logical - extent.logical;
        let len = (extent.len - before).min(max);
        if extent.is_unwritten {
            return Ok(Mapped::Hole(len));
        }
        let run = Run {
            start: extent.physical + before,
            len,
        };
        Ok(Mapped::Blocks(checked_run(self.fs, run)?))
    }
}

fn corrupt(block: Option<BlockNumber>, fault: ExtentFault) -> Error {
    Error::corrupt(Structure::ExtentNode { block }, fault)
}
