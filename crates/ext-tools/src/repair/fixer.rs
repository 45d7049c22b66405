//! One round of a repair: the facts of the last check, and the image to change.

use super::{Log, Step, step_of};
use crate::fsck::state::{BlockSet, InodeInfo};
use crate::fsck::{CheckError, Code, Facts, Finding, Location};
use backstitch_ext::format::Inode;
use backstitch_ext::format::superblock::Superblock;
use backstitch_layout::tools::Overlay;
use backstitch_layout::tools::rounds::first_step;
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use rustc_hash::FxHashSet;

pub(super) use backstitch_layout::tools::tree::ByInode;

/// One round.
pub(super) struct Fixer<'a, 'd> {
    pub(super) image: &'a mut Overlay<'d>,
    log: &'a mut Log,
    pub(super) facts: &'a Facts,
    pub(super) sb: &'a Superblock,
    /// Blocks in use: those of the check, and those taken in this round.
    pub(super) used: BlockSet,
    knows_all_pointers: bool,
    next_block: BlockNumber,
    new_inodes: FxHashSet<InodeNumber>,
    /// The deletion time of freed inodes: at least the number of inodes, for a lower one would be
    /// read as the number of the next orphan.
    pub(super) now_seconds: u32,
    /// Whether the image is what soft updates left.
    pub(super) is_trusted: bool,
}

impl<'a, 'd> Fixer<'a, 'd> {
    pub(super) fn new(
        image: &'a mut Overlay<'d>,
        log: &'a mut Log,
        facts: &'a Facts,
        now_seconds: u32,
        is_trusted: bool,
    ) -> Self {
        Fixer {
            image,
            log,
            facts,
            sb: &facts.sb,
            used: facts.gathered.used.clone(),
            knows_all_pointers: false,
            next_block: facts.sb.first_data_block,
            new_inodes: FxHashSet::default(),
            now_seconds: now_seconds.max(facts.sb.inodes_count),
            is_trusted,
        }
    }

    /// Repairs the most basic of what was found.
    pub(super) fn round(&mut self, findings: &[Finding]) -> Result<(), CheckError> {
        let step = |finding: &Finding| match (finding.code, finding.location.block) {
            // A block too far behind in the file: the pointer is repaired, not the size.
            (Code::SizeInvalid, Some(_)) => Step::Blocks,
            (code, _) => step_of(code),
        };
        let Some((first, mine, by_inode)) = first_step(findings, step) else {
            return Ok(());
        };
        match first {
            Step::Superblock => self.superblock(&mine),
            Step::Inodes => self.inodes(&by_inode),
            Step::Blocks => self.blocks(&by_inode),
            Step::Journal => self.journal(&mine),
            Step::Holes => self.holes(&by_inode),
            Step::Sizes => self.sizes(&by_inode),
            Step::Entries => self.entries(&mine),
            Step::Names => self.names(&mine),
            Step::Unconnected => self.unconnected(&by_inode),
            Step::Counts => self.counts(&mine),
            Step::Bitmaps => self.bitmaps(&mine),
        }
    }

    /// Notes a repair.
    pub(super) fn note(&mut self, location: Location, what: impl Into<String>) {
        self.log.add(location, what);
    }

    /// Counts pointers that a repair has cleared, for [`Losses`](super::Losses).
    pub(super) fn count_cleared(&mut self, pointers: u64) {
        self.log.pointers_cleared += pointers;
    }

    pub(super) fn block_size(&self) -> usize {
        self.sb.block_size as usize
    }

    /// One block, which must exist.
    pub(super) fn block(&self, block: BlockNumber) -> Result<Vec<u8>, CheckError> {
        let offset = self.sb.block_offset(block);
        Ok(self.image.read(offset, self.block_size())?)
    }

    /// Changes a block, which must exist.
    pub(super) fn put_block(&mut self, block: BlockNumber, bytes: &[u8]) -> Result<(), CheckError> {
        let offset = self.sb.block_offset(block);
        Ok(self.image.write(offset, bytes)?)
    }

    fn inode_offset(&self, number: InodeNumber) -> u64 {
        let group = &self.facts.groups[self.sb.group_of_inode(number).index()];
        let (block, offset) = group.inode_location(self.sb, number);
        self.sb.block_offset(block) + offset as u64
    }

    /// An inode's bytes.
    pub(super) fn inode_bytes(&self, number: InodeNumber) -> Result<Vec<u8>, CheckError> {
        let size = self.sb.inode_size as usize;
        Ok(self.image.read(self.inode_offset(number), size)?)
    }

    /// An inode.
    pub(super) fn inode(&self, number: InodeNumber) -> Result<Inode, CheckError> {
        Ok(Inode::parse(&self.inode_bytes(number)?)?)
    }

    /// Changes an inode.
    pub(super) fn put_inode(
        &mut self,
        number: InodeNumber,
        bytes: &[u8],
    ) -> Result<(), CheckError> {
        Ok(self.image.write(self.inode_offset(number), bytes)?)
    }

    /// What the check knows of an inode; `None` where it is not in use or does not exist.
    pub(super) fn info(&self, number: InodeNumber) -> Option<&'a InodeInfo> {
        if !self.sb.is_valid_inode(number) {
            return None;
        }
        self.facts.gathered.inode(self.sb, number)
    }

    /// The inodes in use, in order.
    pub(super) fn used_inodes(&self) -> Vec<InodeNumber> {
        let mut numbers = Vec::new();
        for (group, infos) in self.facts.gathered.inodes.iter().enumerate() {
            let first = self.sb.group_first_inode(GroupNumber::at(group));
            let infos = infos.as_deref().unwrap_or(&[]);
            let used = infos.iter().enumerate().filter(|(_, info)| info.is_used);
            numbers.extend(used.map(|(index, _)| first + index as u32));
        }
        numbers
    }

    /// A block that nobody uses; `None` where there is none left.
    ///
    /// A block counts as used if any pointer leads to it, also below an indirect block that the
    /// check did not follow since something else had claimed it before.
    pub(super) fn allocate(&mut self) -> Result<Option<BlockNumber>, CheckError> {
        if !std::mem::replace(&mut self.knows_all_pointers, true) {
            self.use_all_pointers()?;
        }
        while self.next_block < self.sb.end_block() {
            let block = self.next_block;
            if self.used.bits_from(block) == u64::MAX {
                self.next_block += 64;
                continue;
            }
            self.next_block += 1;
            if self.used.insert(block) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// An inode that nobody uses; `None` where there is none left.
    pub(super) fn allocate_inode(&mut self) -> Option<InodeNumber> {
        let last = InodeNumber(self.sb.inodes_count);
        let free = (self.sb.first_inode.through(last))
            .find(|number| self.info(*number).is_none() && !self.new_inodes.contains(number))?;
        self.new_inodes.insert(free);
        Some(free)
    }
}

/// Reads 32 bits.
pub(super) fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..offset + 4).unwrap_or(&[0; 4]);
    u32::from_le_bytes(field.try_into().unwrap_or([0; 4]))
}

/// Changes 32 bits.
pub(super) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Changes 16 bits.
pub(super) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
}
