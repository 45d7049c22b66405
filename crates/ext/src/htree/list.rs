//! Listing a hashed directory in the order of its hashes: splits move names from block to block
//! while a directory is read, but never past another hash.

use backstitch_layout::{BlockNumber, DirectoryEntry, InodeNumber, Step};
use backstitch_ordering::Volume;
use backstitch_unixfs::{corrupt_directory, name_hash};

use super::{ByIndex, Indexes, Path};
use crate::format::Inode;
use crate::format::directory::{entries, entry_at};

/// Positions from here on tell a hash, smaller ones an offset.
const HASH_ORDER: u64 = 1 << 62;
/// The positions behind `.` and behind `..`.
const BEHIND_DOT: u64 = 12;
/// The bits of the hash of ours by which names of one hash are told apart.
const OWN_BITS: u32 = 31;

/// Where a name comes in the order: by its hash, then by one of ours.
fn position(dx_hash: u32, name: &[u8]) -> u64 {
    let own = name_hash(name) >> (64 - OWN_BITS);
    HASH_ORDER | u64::from(dx_hash >> 1) << OWN_BITS | own
}

impl Indexes<'_> {
    /// As `list_names`, in the order of hashes. False, and nothing emitted, where the index turned
    /// out to be wrong.
    pub(crate) fn list(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<bool> {
        // What is emitted cannot be taken back: the index is looked at first.
        let verified = self.verify_once(v, number, inode);
        if self.unless_fault(number, verified)?.is_none() {
            return Ok(false);
        }
        let listed = self.emit_from(v, number, inode, cookie, emit);
        Ok(self.unless_fault(number, listed)?.is_some())
    }

    fn emit_from(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> ByIndex<()> {
        let root = self.read_root(v, inode)?;
        let from = cookie.max(HASH_ORDER);
        let wanted = ((from - HASH_ORDER) >> OWN_BITS).min(u64::from(u32::MAX >> 1)) as u32;
        let mut path = self.way_to(v, inode, root, wanted << 1)?;
        if cookie <= BEHIND_DOT && !self.emit_dots(v, number, inode, cookie, emit)? {
            return Ok(());
        }
        loop {
            let names = self.names_of_run(v, number, inode, &mut path)?;
            for (at, block, offset) in names {
                if at < from {
                    continue;
                }
                let Ok(entry) = entry_at(v.read(block)?, offset, self.format.sb.inodes_count)
                else {
                    continue;
                };
                if !emit(&self.shown(&entry, at + 1)) {
                    return Ok(());
                }
            }
            if !self.next_leaf(v, inode, &mut path)? {
                return Ok(());
            }
        }
    }

    /// `.` and `..`; false where no more is wanted.
    fn emit_dots(
        &self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> ByIndex<bool> {
        let block = self.index_block(v, inode, 0, 0)?;
        let places = [(0, BEHIND_DOT), (BEHIND_DOT, HASH_ORDER)];
        let dots = entries(v.read(block)?, self.format.sb.inodes_count);
        for (entry, (at, next)) in dots.zip(places) {
            let entry = entry.map_err(|e| corrupt_directory(number, 0, e))?;
            if at >= cookie && entry.inode != InodeNumber::NONE && !emit(&self.shown(&entry, next))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The names of a leaf, and of those behind it that begin with the hash it ends with, in their
    /// order: position, block, offset. The path is then at the last of them.
    fn names_of_run(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        path: &mut Path,
    ) -> ByIndex<Vec<(u64, BlockNumber, usize)>> {
        let mut names = Vec::new();
        loop {
            let (version, block) = (path.version, path.physical);
            for entry in entries(v.read(block)?, self.format.sb.inodes_count) {
                let entry = entry.map_err(|e| corrupt_directory(number, path.leaf, e))?;
                if entry.inode != InodeNumber::NONE {
                    let at = position(self.name_hash(version, entry.name), entry.name);
                    names.push((at, block, entry.offset));
                }
            }
            let continues = self.border_behind(v, path)?.is_some_and(|b| b & 1 != 0);
            if !continues || !self.next_leaf(v, inode, path)? {
                break;
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
