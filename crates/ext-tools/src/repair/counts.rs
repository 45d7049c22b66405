//! Numbers in inodes that can be computed anew: links, blocks, sizes.

use super::fixer::{ByInode, Fixer, put_u16, put_u32};
use super::pointers::Verdict;
use super::superblock::raw;
use crate::fsck::{CheckError, Code, Finding, Location};
use backstitch_ext::format::features::RO_COMPAT_HUGE_FILE;
use backstitch_ext::format::inode::{self, offset};
use backstitch_ext::format::{JOURNAL_INODE, RESIZE_INODE, RawInode};
use backstitch_ext::journal::superblock_copy;
use backstitch_layout::{BlockNumber, InodeNumber};
use std::sync::atomic::Ordering;

/// Directories with more links count 1, which says "many".
const MANY_LINKS: u32 = 65_000;

impl Fixer<'_, '_> {
    pub(super) fn counts(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        for finding in findings {
            let (inode, block) = (finding.location.inode, finding.location.block);
            match (finding.code, inode, block) {
                (Code::LinksTooHigh | Code::LinksTooLow, Some(inode), _) => self.links(inode)?,
                (Code::BlockCountWrong, Some(inode), _) => self.block_count(inode)?,
                (_, _, Some(block)) => self.attribute_count(block)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn links(&mut self, number: InodeNumber) -> Result<(), CheckError> {
        let Some(info) = self.info(number) else {
            return Ok(());
        };
        let names = info.names.load(Ordering::Relaxed);
        let links = if names <= MANY_LINKS {
            names
        } else if self.inode(number)?.is_directory() {
            1
        } else {
            MANY_LINKS
        };
        let mut bytes = self.inode_bytes(number)?;
        put_u16(&mut bytes, offset::LINKS, links as u16);
        self.put_inode(number, &bytes)?;
        let what = format!("counts {links} links now, not {}", info.links);
        self.note(Location::inode(number), what);
        Ok(())
    }

    fn block_count(&mut self, number: InodeNumber) -> Result<(), CheckError> {
        if number == RESIZE_INODE {
            return self.resize_inode();
        }
        let (mut blocks, _) = self.extent(number)?;
        let parsed = self.inode(number)?;
        blocks += u64::from(
            parsed.file_acl != BlockNumber::NONE && self.sb.is_valid_pointer(parsed.file_acl),
        );
        let has_huge = self.sb.features.has_ro_compat(RO_COMPAT_HUGE_FILE);
        let is_huge = has_huge && parsed.flags & inode::FLAG_HUGE_FILE != 0;
        let per_block = if is_huge {
            1
        } else {
            u64::from(self.sb.block_size / 512)
        };
        let count = blocks * per_block;
        let mut bytes = self.inode_bytes(number)?;
        put_u32(&mut bytes, offset::BLOCKS, count as u32);
        if has_huge {
            let high = core::mem::offset_of!(RawInode, i_blocks_high);
            put_u16(&mut bytes, high, (count >> 32) as u16);
        }
        self.put_inode(number, &bytes)?;
        self.note(Location::inode(number), format!("i_blocks is {count} now"));
        Ok(())
    }

    /// Sizes against what is mapped.
    pub(super) fn sizes(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for (number, codes) in found {
            let is_below = codes.contains(&Code::SizeBelowMapped);
            if *number == RESIZE_INODE {
                self.resize_inode()?;
            } else if is_below && (self.is_trusted || self.has_journals_size(*number)?) {
                self.cut(*number)?;
            } else {
                self.stretch(*number)?;
            }
        }
        Ok(())
    }

    /// Whether the inode is the journal's, with the same size as the superblock's copy of it.
    fn has_journals_size(&self, number: InodeNumber) -> Result<bool, CheckError> {
        if number != JOURNAL_INODE {
            return Ok(false);
        }
        let size = self.inode(number)?.size;
        Ok(superblock_copy(&raw(self.image)?).is_some_and(|copy| copy.size == size))
    }

    /// Sets the size to the end of the last block that is mapped.
    fn stretch(&mut self, number: InodeNumber) -> Result<(), CheckError> {
        let (_, end) = self.extent(number)?;
        let size = end << self.sb.block_size_bits;
        let is_directory = self.inode(number)?.is_directory();
        let mut bytes = self.inode_bytes(number)?;
        put_u32(&mut bytes, offset::SIZE, size as u32);
        let high = if is_directory { 0 } else { (size >> 32) as u32 };
        put_u32(&mut bytes, offset::SIZE_HIGH, high);
        self.put_inode(number, &bytes)?;
        self.note(Location::inode(number), format!("has {size} bytes now"));
        Ok(())
    }

    /// Takes the blocks behind the end away: the size is right, since soft updates write it last
    /// when a file grows, and first when it shrinks.
    fn cut(&mut self, number: InodeNumber) -> Result<(), CheckError> {
        let mut bytes = self.inode_bytes(number)?;
        let size = self.inode(number)?.size;
        let end = size.div_ceil(self.sb.block_size.into());
        let mut cleared = 0_u64;
        self.each_pointer(&mut bytes, &mut |_, pointer| {
            if pointer.logical < end {
                return Ok(Verdict::Keep);
            }
            cleared += 1;
            Ok(Verdict::Set(BlockNumber::NONE))
        })?;
        self.put_inode(number, &bytes)?;
        let what = format!("{cleared} pointers behind its {size} bytes cleared");
        self.note(Location::inode(number), what);
        Ok(())
    }
}
