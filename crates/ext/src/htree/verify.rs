//! Looking at an index as a whole, once, before it is believed.

use backstitch_layout::InodeNumber;
use backstitch_ordering::Volume;
use backstitch_unixfs::corrupt_directory;

use super::{ByIndex, Indexes};
use crate::format::Inode;
use crate::format::directory::entries;
use crate::format::htree::block::{IndexEntries, IndexFault};
use crate::format::htree::effective_version;

/// A block of the directory that an entry leads to.
#[derive(Clone, Copy)]
struct Reached {
    logical: u64,
    /// The index leads here for hashes from `low` on and below `high`. The lowest bit of `low` may
    /// say that the block before has names of that hash too.
    low: u32,
    high: u64,
}

impl Indexes<'_> {
    /// Makes sure that the index leads to every name, unless that is known.
    ///
    /// Reads the whole directory.
    pub(super) fn verify_once(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
    ) -> ByIndex<()> {
        if self.format.hashed.is_trusted(number) {
            return Ok(());
        }
        self.want_directory(v, inode)?;
        let root = self.read_root(v, inode)?;
        let mut seen = vec![false; self.directory_blocks(inode) as usize];
        seen[0] = true;
        let mut blocks = vec![Reached {
            logical: 0,
            low: 0,
            high: 1 << 32,
        }];
        for _ in 0..=root.levels {
            blocks = self.blocks_below(v, inode, &blocks, &mut seen)?;
        }
        if let Some(lost) = seen.iter().position(|seen| !seen) {
            return Err(IndexFault::NotOnce(lost as u64).into());
        }
        let version = effective_version(&self.format.sb, root.hash_version);
        for leaf in blocks {
            self.verify_leaf(v, number, inode, version, leaf)?;
        }
        self.format.hashed.note(number, true);
        Ok(())
    }

    /// The blocks that the entries of index blocks lead to, none of which was seen before.
    fn blocks_below(
        &self,
        v: &mut Volume<'_>,
        inode: &Inode,
        nodes: &[Reached],
        seen: &mut [bool],
    ) -> ByIndex<Vec<Reached>> {
        let mut below = Vec::new();
        for node in nodes {
            let physical = self.index_block(v, inode, 0, node.logical)?;
            let bytes = v.read(physical)?;
            let list = IndexEntries::parse(bytes, node.logical, self.tail_bytes())?.list();
            for (index, (hash, logical)) in list.iter().enumerate() {
                let low = if index == 0 { node.low } else { *hash };
                let high = list.get(index + 1).map_or(node.high, |next| next.0.into());
                if low < node.low || high < u64::from(low) || high > node.high {
                    return Err(IndexFault::Order(node.logical).into());
                }
                let place = seen.get_mut(*logical as usize).ok_or(IndexFault::Block {
                    logical: node.logical,
                    block: *logical,
                })?;
                if std::mem::replace(place, true) {
                    return Err(IndexFault::NotOnce(*logical).into());
                }
                below.push(Reached {
                    logical: *logical,
                    low,
                    high,
                });
            }
        }
        Ok(below)
    }

    fn verify_leaf(
        &self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        version: u8,
        leaf: Reached,
    ) -> ByIndex<()> {
        let physical = self.index_block(v, inode, 0, leaf.logical)?;
        for entry in entries(v.read(physical)?, self.format.sb.inodes_count) {
            let entry = entry.map_err(|e| corrupt_directory(number, leaf.logical, e))?;
            if entry.inode == InodeNumber::NONE {
                continue;
            }
            let hash = self.name_hash(version, entry.name);
            if hash < leaf.low & !1 || u64::from(hash) >= leaf.high {
                return Err(IndexFault::Misplaced(leaf.logical).into());
            }
        }
        Ok(())
    }
}
