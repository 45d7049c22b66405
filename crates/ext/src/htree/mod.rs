//! The index of hashed directories on the disk (`dir_index`): finding names by it, and keeping it.
//!
//! # Who keeps it
//!
//! A new name may change several blocks: a leaf, the new leaf beside it, the index block above
//! both. Only where a scope's changes reach the disk together is the index right after every crash,
//! so the layout asks for that and for nothing else ([`Volume::scopes_are_atomic`]); elsewhere a
//! directory loses the flag with its first new name (`index`). While leaks of an earlier crash are
//! being looked for the index is not kept either, for a split moves names under the search.
//!
//! # What is believed of it
//!
//! The index only says where to look: a name that is found is right, whatever led there. That a
//! name is *not* there, or where a new one belongs, is believed only of an index that has been
//! looked at as a whole: every block reached once, at the right depth, all hashes in order, every
//! name where its hash leads. That is verified once per mount, when it is first needed (`verify`);
//! our own changes keep it right. An index that fails is reported in the log, once, and is neither
//! read nor written any more: its directory is scanned, gets an index in memory, and loses the flag
//! with its next new name.
//!
//! # Changing it
//!
//! [`insert`] makes room for a name in steps of one new block each: a leaf is split by its hashes,
//! an index block in its middle, the root's entries move down one level. After each step the index
//! is right and holds the same names, so an operation that ends between two steps (for want of a
//! block in memory, or of space) leaves nothing half done. Names of one hash may be on both sides
//! of a border; then the lowest bit of the border is set, and a search for that hash goes on behind
//! it.

mod insert;
mod leaf;
mod list;
mod verify;

use std::ops::{Deref, DerefMut};

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Stop};
use backstitch_ordering::Volume;
use backstitch_unixfs::Found;

use crate::format::Inode;
use crate::format::features::RO_COMPAT_METADATA_CSUM;
use crate::format::htree;
use crate::format::htree::block::{IndexEntries, IndexFault, Root, is_unused};
use crate::state::Ext;

/// The highest hash of a name. Linux keeps the next one for the end of a directory, and lowers the
/// hash of names that have it to this.
const LAST_HASH: u32 = 0xffff_fffc;
/// The checksum at the end of an index block, where there are checksums.
const TAIL_BYTES: usize = 8;

/// Why something could not be done by the index.
#[derive(Debug)]
enum Halt {
    /// The operation ends.
    Step(Stop),
    /// The index is wrong.
    Fault(IndexFault),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt::Step(stop)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Step(error.into())
    }
}

impl From<backstitch_store::Miss> for Halt {
    fn from(_: backstitch_store::Miss) -> Halt {
        Halt::Step(Stop::Miss)
    }
}

impl From<IndexFault> for Halt {
    fn from(fault: IndexFault) -> Halt {
        Halt::Fault(fault)
    }
}

type ByIndex<T> = std::result::Result<T, Halt>;

/// An index block on the way to a leaf.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The directory's block, and where it is.
    logical: u64,
    physical: BlockNumber,
    /// The entry that was taken.
    at: usize,
    count: usize,
    limit: usize,
}

/// The way to a leaf.
#[derive(Clone, Debug)]
struct Path {
    /// From the root on.
    levels: Vec<Level>,
    /// The hash to compute with.
    version: u8,
    hash: u32,
    /// The leaf: the directory's block, and where it is.
    leaf: u64,
    physical: BlockNumber,
}

/// The indexes of a file system's directories.
pub(crate) struct Indexes<'f>(pub(crate) &'f mut Ext);

impl Deref for Indexes<'_> {
    type Target = Ext;

    fn deref(&self) -> &Ext {
        self.0
    }
}

impl DerefMut for Indexes<'_> {
    fn deref_mut(&mut self) -> &mut Ext {
        self.0
    }
}

impl Indexes<'_> {
    /// Finds a name by the index on the disk. `None` where that cannot tell.
    pub(crate) fn find(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        name: &[u8],
    ) -> Step<Option<Option<Found>>> {
        if self.format.hashed.is_absent(number, name) {
            return Ok(Some(None));
        }
        let found = match self.search(v, number, inode, name) {
            Ok(None) => self.verify_once(v, number, inode).map(|()| None),
            other => other,
        };
        if let Ok(None) = found {
            self.format.hashed.absent = Some((number, name.into()));
        }
        self.unless_fault(number, found)
    }

    /// What the index said; `None` where it turned out to be wrong, which the log is told.
    fn unless_fault<T>(&mut self, number: InodeNumber, result: ByIndex<T>) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Halt::Step(stop)) => Err(stop),
            Err(Halt::Fault(fault)) => {
                tracing::warn!(
                    "directory {number}: its index cannot be used: {fault}; names are looked for without it"
                );
                self.format.hashed.note(number, false);
                Ok(None)
            }
        }
    }

    fn search(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        name: &[u8],
    ) -> ByIndex<Option<Found>> {
        if name == b"." || name == b".." {
            let first = self.index_block(v, inode, 0, 0)?;
            return Ok(self.find_in_block(v.read(first)?, number, (0, first), name)?);
        }
        let mut path = self.way_to_name(v, inode, name)?;
        loop {
            let place = (path.leaf, path.physical);
            let found = self.find_in_block(v.read(path.physical)?, number, place, name)?;
            if found.is_some() || !self.go_on(v, inode, &mut path)? {
                return Ok(found);
            }
        }
    }

    fn tail_bytes(&self) -> usize {
        let has_checksums = self
            .format
            .sb
            .features
            .has_ro_compat(RO_COMPAT_METADATA_CSUM);
        if has_checksums { TAIL_BYTES } else { 0 }
    }

    fn read_root(&self, v: &mut Volume<'_>, inode: &Inode) -> ByIndex<Root> {
        let block = self.index_block(v, inode, 0, 0)?;
        let most = htree::max_indirect_levels(&self.format.sb);
        Ok(Root::parse(v.read(block)?, most)?)
    }

    /// The hash of a name under a version that is valid: the root was parsed.
    fn name_hash(&self, version: u8, name: &[u8]) -> u32 {
        let hash = htree::hash(version, &self.format.sb.hash_seed, name);
        hash.unwrap_or(0).min(LAST_HASH)
    }

    /// The physical block that an entry of block `from` leads to.
    fn index_block(
        &self,
        v: &mut Volume<'_>,
        inode: &Inode,
        from: u64,
        logical: u64,
    ) -> ByIndex<BlockNumber> {
        let fault = IndexFault::Block {
            logical: from,
            block: logical,
        };
        if logical >= self.directory_blocks(inode) {
            return Err(fault.into());
        }
        let block = self.directory_block(v, inode, logical)?;
        Ok(block.ok_or(fault)?)
    }

    fn way_to_name(&mut self, v: &mut Volume<'_>, inode: &Inode, name: &[u8]) -> ByIndex<Path> {
        let root = self.read_root(v, inode)?;
        let version = htree::effective_version(&self.format.sb, root.hash_version);
        let hash = self.name_hash(version, name);
        self.way_to(v, inode, root, hash)
    }

    /// The way to the first leaf that may have names of a hash.
    fn way_to(
        &mut self,
        v: &mut Volume<'_>,
        inode: &Inode,
        root: Root,
        hash: u32,
    ) -> ByIndex<Path> {
        let mut path = Path {
            levels: Vec::with_capacity(usize::from(root.levels) + 1),
            version: htree::effective_version(&self.format.sb, root.hash_version),
            hash,
            leaf: 0,
            physical: self.index_block(v, inode, 0, 0)?,
        };
        self.descend(v, inode, &mut path, usize::from(root.levels) + 1, |e| {
            e.find(hash)
        })?;
        Ok(path)
    }

    /// Goes down from the block at the path's end, by the entries that `choose` takes, until the
    /// path has `levels` levels.
    fn descend(
        &mut self,
        v: &mut Volume<'_>,
        inode: &Inode,
        path: &mut Path,
        levels: usize,
        choose: impl Fn(&IndexEntries<'_>) -> usize,
    ) -> ByIndex<()> {
        while path.levels.len() < levels {
            let (logical, physical) = (path.leaf, path.physical);
            let entries = IndexEntries::parse(v.read(physical)?, logical, self.tail_bytes())?;
            let at = choose(&entries);
            path.levels.push(Level {
                logical,
                physical,
                at,
                count: entries.count(),
                limit: entries.limit(),
            });
            let below = entries.block(at);
            // A circle would lead back to a block of this path.
            if path.levels.iter().any(|l| l.logical == below) {
                let fault = IndexFault::Block {
                    logical,
                    block: below,
                };
                return Err(fault.into());
            }
            path.leaf = below;
            path.physical = self.index_block(v, inode, logical, below)?;
        }
        let leaf = v.read(path.physical)?;
        if is_unused(leaf) && IndexEntries::parse(leaf, path.leaf, self.tail_bytes()).is_ok() {
            // An index block where names should be: adding a name would overwrite it.
            return Err(IndexFault::NotOnce(path.leaf).into());
        }
        Ok(())
    }

    /// Goes on to the next leaf if that, too, may have names of the path's hash.
    fn go_on(&mut self, v: &mut Volume<'_>, inode: &Inode, path: &mut Path) -> ByIndex<bool> {
        match self.border_behind(v, path)? {
            Some(border) if border == path.hash | 1 => self.next_leaf(v, inode, path),
            _ => Ok(false),
        }
    }

    /// The lowest hash of the leaf behind this one, with its continuation bit; `None` behind the
    /// last.
    fn border_behind(&mut self, v: &mut Volume<'_>, path: &Path) -> ByIndex<Option<u32>> {
        let Some(level) = path.levels.iter().rfind(|l| l.at + 1 < l.count) else {
            return Ok(None);
        };
        let block = v.read(level.physical)?;
        let entries = IndexEntries::parse(block, level.logical, self.tail_bytes())?;
        Ok(Some(entries.hash(level.at + 1)))
    }

    /// Goes to the leaf behind this one; false behind the last.
    fn next_leaf(&mut self, v: &mut Volume<'_>, inode: &Inode, path: &mut Path) -> ByIndex<bool> {
        let depth = path.levels.len();
        let Some(turn) = path.levels.iter().rposition(|l| l.at + 1 < l.count) else {
            return Ok(false);
        };
        path.levels.truncate(turn + 1);
        let level = &mut path.levels[turn];
        level.at += 1;
        let (logical, physical, at) = (level.logical, level.physical, level.at);
        let entries = IndexEntries::parse(v.read(physical)?, logical, self.tail_bytes())?;
        let below = entries.block(at);
        path.leaf = below;
        path.physical = self.index_block(v, inode, logical, below)?;
        self.descend(v, inode, path, depth, |_| 0)?;
        Ok(true)
    }
}
