//! Attribute blocks.

use super::fixer::{Fixer, put_u32};
use crate::fsck::state::{BlockSet, Context};
use crate::fsck::{CheckError, Location, Options, block_fault};
use backstitch_ext::format::inode::offset;
use backstitch_ext::format::xattr;
use backstitch_layout::BlockNumber;

impl Fixer<'_, '_> {
    /// The blocks of the file system itself: superblocks, descriptors, bitmaps, inode tables.
    pub(super) fn metadata(&self) -> BlockSet {
        let options = Options::default();
        Context::new(&*self.image, self.sb, &self.facts.groups, &options).metadata_blocks()
    }

    /// Whether a block is one of [`metadata`](Self::metadata).
    pub(super) fn is_metadata(&self, block: BlockNumber) -> bool {
        let options = Options::default();
        Context::new(&*self.image, self.sb, &self.facts.groups, &options).is_metadata(block)
    }

    /// Whether a block is a superblock, a descriptor or kept for one.
    pub(super) fn is_superblock_area(&self, block: BlockNumber) -> bool {
        let group = self.sb.group_of_block(block);
        block - self.sb.group_first_block(group) < self.sb.super_blocks_in_group(group).into()
    }

    /// Removes unsound attribute blocks from their inodes. A sound one that is also another inode's
    /// contents is copied, and its inodes get the copy.
    pub(super) fn attribute_blocks(&mut self, claimed: &BlockSet) -> Result<(), CheckError> {
        let blocks: Vec<BlockNumber> = self.facts.gathered.xattr_blocks.keys().copied().collect();
        let mut replaced = rustc_hash::FxHashMap::default();
        for block in blocks {
            let bytes = self.block(block)?;
            let is_sound = !self.is_metadata(block) && block_fault(&bytes).is_none();
            let is_claimed = claimed.bits_from(block) & 1 != 0;
            if is_sound && !is_claimed {
                continue;
            }
            let copy = if is_sound { self.allocate()? } else { None };
            if let Some(copy) = copy {
                self.put_block(copy, &bytes)?;
            }
            replaced.insert(block, copy);
        }
        if replaced.is_empty() {
            return Ok(());
        }
        for number in self.used_inodes() {
            let Some(copy) = replaced.get(&self.inode(number)?.file_acl) else {
                continue;
            };
            let mut bytes = self.inode_bytes(number)?;
            put_u32(
                &mut bytes,
                offset::FILE_ACL,
                copy.unwrap_or_default().0 as u32,
            );
            self.put_inode(number, &bytes)?;
            let what = match copy {
                Some(_) => "attribute block that is something else too copied",
                None => "damaged attribute block taken away",
            };
            self.note(Location::inode(number), what);
        }
        Ok(())
    }

    /// Sets the reference count of an attribute block to the number of inodes that use it.
    pub(super) fn attribute_count(&mut self, block: BlockNumber) -> Result<(), CheckError> {
        let users = self.facts.gathered.xattr_blocks.get(&block);
        let count = users.map_or(0, |users| users.count);
        let mut bytes = self.block(block)?;
        put_u32(&mut bytes, xattr::OFFSET_REFCOUNT, count);
        self.put_block(block, &bytes)?;
        self.note(Location::block(block), format!("counts {count} users now"));
        Ok(())
    }
}
