//! One round of a repair: the facts of the last check, and the image to change.

use super::raw::InodeBytes;
use super::{Log, Step, step_of};
use crate::bits::Bits;
use crate::fsck::{CheckError, Facts, Finding, Location};
use backstitch_blocks::bitmap;
use backstitch_layout::tools::Overlay;
use backstitch_layout::tools::rounds::first_step;
use backstitch_layout::{GroupNumber, InodeNumber};
use backstitch_ufs::format::{CylinderGroup, Inode, ROOT_INODE, Superblock};
use rustc_hash::FxHashSet;

pub(super) use backstitch_layout::tools::tree::ByInode;

/// One round.
pub(super) struct Fixer<'a, 'd> {
    pub(super) image: &'a mut Overlay<'d>,
    log: &'a mut Log,
    pub(super) facts: &'a Facts,
    pub(super) sb: &'a Superblock,
    /// Fragments that cannot be taken: those in use, those marked as used on the image, and those
    /// taken in this round.
    taken: Option<Bits>,
    new_inodes: FxHashSet<InodeNumber>,
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
            taken: None,
            new_inodes: FxHashSet::default(),
            now_seconds,
            is_trusted,
        }
    }

    /// Repairs the most basic of what was found.
    pub(super) fn round(&mut self, findings: &[Finding]) -> Result<(), CheckError> {
        let Some((first, mine, by_inode)) = first_step(findings, step_of) else {
            return Ok(());
        };
        match first {
            Step::Superblock => self.superblock(&mine),
            Step::Groups => self.headers(&mine),
            Step::Inodes => self.inodes(&by_inode),
            Step::Sizes => self.sizes(&by_inode),
            Step::Pointers => self.pointers(&by_inode),
            Step::Holes => self.holes(&by_inode),
            Step::Entries => self.entries(&by_inode),
            Step::Names => self.names(&mine),
            Step::Unconnected => self.unconnected(&by_inode),
            Step::Counts => self.counts(&by_inode),
            Step::Bitmaps => self.bitmaps(&mine),
        }
    }

    /// Notes a repair.
    pub(super) fn note(&mut self, location: Location, what: impl Into<String>) {
        self.log.add(location, what);
    }

    /// Counts pointers that a repair cleared, for [`Losses`](super::Losses).
    pub(super) fn count_cleared(&mut self, pointers: u64) {
        self.log.pointers_cleared += pointers;
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.sb.block_bytes as usize
    }

    /// Bytes from the start of a fragment on, which must exist.
    pub(super) fn read(&self, fragment: u64, len: usize) -> Result<Vec<u8>, CheckError> {
        let offset = fragment * u64::from(self.sb.fragment_bytes);
        Ok(self.image.read(offset, len)?)
    }

    /// Changes bytes from the start of a fragment on, which must exist.
    pub(super) fn write(&mut self, fragment: u64, bytes: &[u8]) -> Result<(), CheckError> {
        let offset = fragment * u64::from(self.sb.fragment_bytes);
        Ok(self.image.write(offset, bytes)?)
    }

    fn inode_offset(&self, number: InodeNumber) -> u64 {
        let (fragment, offset) = self.sb.inode_place(number);
        fragment * u64::from(self.sb.fragment_bytes) + offset as u64
    }

    /// An inode's bytes.
    pub(super) fn inode_bytes(&self, number: InodeNumber) -> Result<InodeBytes, CheckError> {
        let len = self.sb.version.inode_bytes();
        let bytes = self.image.read(self.inode_offset(number), len)?;
        Ok(InodeBytes::new(self.sb, bytes))
    }

    /// An inode.
    pub(super) fn inode(&self, number: InodeNumber) -> Result<Inode, CheckError> {
        Ok(self.inode_bytes(number)?.parse()?)
    }

    /// Changes an inode.
    pub(super) fn put_inode(
        &mut self,
        number: InodeNumber,
        inode: &InodeBytes,
    ) -> Result<(), CheckError> {
        Ok(self.image.write(self.inode_offset(number), &inode.bytes)?)
    }

    /// Whether a run of fragments exists, is in one block, and is not the file system's own.
    pub(super) fn is_possible(&self, pointer: u64, fragments: u64) -> bool {
        let sb = self.sb;
        let per_block = u64::from(sb.fragments_per_block);
        let end = pointer.checked_add(fragments);
        let Some(end) = end.filter(|end| *end <= sb.fragments) else {
            return false;
        };
        let overlaps = |own: std::ops::Range<u64>| pointer < own.end && own.start < end;
        pointer % per_block + fragments <= per_block
            && !overlaps(sb.own_fragments(sb.group_of(pointer)))
            && !overlaps(sb.summary_fragments())
    }

    fn taken(&mut self) -> Result<&mut Bits, CheckError> {
        if self.taken.is_none() {
            let mut taken = self.facts.gathered.used.clone();
            self.add_marked(&mut taken)?;
            self.taken = Some(taken);
        }
        let none = || Bits::new(0);
        Ok(self.taken.get_or_insert_with(none))
    }

    /// Adds what is marked as used on the image: pointers that no check has followed, since what
    /// they are in is somebody else's, may lead there.
    fn add_marked(&self, taken: &mut Bits) -> Result<(), CheckError> {
        let sb = self.sb;
        for group in GroupNumber::all(sb.groups) {
            let bytes = self.read(sb.group_header(group), sb.group_bytes as usize)?;
            let Ok(header) = CylinderGroup::parse(sb, group, &bytes) else {
                continue;
            };
            let start = sb.group_start(group);
            for index in 0..header.fragments {
                if !bitmap::test(header.fragment_map(), index as usize) {
                    taken.insert(start + u64::from(index));
                }
            }
        }
        Ok(())
    }

    /// That many free fragments in one block; `None` where none are left. Where fewer than a whole
    /// block are asked for, they are the first ones of a free block.
    pub(super) fn allocate(&mut self, fragments: u32) -> Result<Option<u64>, CheckError> {
        let (end, per_block) = (self.sb.fragments, u64::from(self.sb.fragments_per_block));
        let taken = self.taken()?;
        let count = u64::from(fragments);
        let mut block = 0;
        while block + count <= end {
            if (block..block + count).all(|fragment| !taken.contains(fragment)) {
                for fragment in block..block + count {
                    taken.insert(fragment);
                }
                return Ok(Some(block));
            }
            block += per_block;
        }
        Ok(None)
    }

    /// An inode that nobody uses and that is initialised; `None` where there is none left.
    pub(super) fn allocate_inode(&mut self) -> Option<InodeNumber> {
        let facts = self.facts;
        for (group, header) in GroupNumber::all(self.sb.groups).zip(&facts.groups) {
            let first = group.0 * self.sb.inodes_per_group;
            let mut numbers = (first..first + header.initialised)
                .map(InodeNumber)
                .filter(|number| *number > ROOT_INODE);
            let is_free = |number: &InodeNumber| {
                facts.gathered.inode(self.sb, *number).is_none()
                    && !self.new_inodes.contains(number)
            };
            if let Some(number) = numbers.find(is_free) {
                self.new_inodes.insert(number);
                return Some(number);
            }
        }
        None
    }
}
