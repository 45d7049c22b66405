//! Block pointers: every block to one owner, and maps changed.

use super::fixer::{ByInode, Fixer, get_u32, put_u32};
use crate::fsck::state::BlockSet;
use crate::fsck::{CheckError, Code, Location};
use backstitch_ext::format::directory::{self, entries};
use backstitch_ext::format::inode::{
    DIRECT_POINTERS, DOUBLE_INDIRECT, FAST_SYMLINK_MAX, POINTERS, offset,
};
use backstitch_ext::format::{BAD_BLOCKS_INODE, Inode, RESIZE_INODE};
use backstitch_layout::tools::Overlay;
use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use rustc_hash::FxHashSet;

/// A pointer on the way through an inode's map.
#[derive(Clone, Copy)]
pub(super) struct Pointer {
    pub(super) block: BlockNumber,
    /// The first block of the file that it maps.
    pub(super) logical: u64,
    /// 0 for data.
    pub(super) level: usize,
}

/// What to do with a pointer.
pub(super) enum Verdict {
    /// It stays, and what is below it is looked at.
    Keep,
    /// It stays, and nobody looks below it.
    Pass,
    /// It is replaced, and what is below the new one is looked at. 0 clears it.
    Set(BlockNumber),
}

type Visit<'v, 'a, 'd> =
    &'v mut dyn FnMut(&mut Fixer<'a, 'd>, Pointer) -> Result<Verdict, CheckError>;

/// Who has which blocks so far.
struct Claims<'d> {
    /// The image before this round: a copy of a block is made from it, so that it has no repair of
    /// the block's first owner.
    before: Overlay<'d>,
    all: BlockSet,
    /// The blocks claimed by the inode at hand.
    own: FxHashSet<BlockNumber>,
    cleared: u64,
    copied: u64,
    /// How many more copies may be made.
    budget: u64,
}

/// Copies that a round may make: they are in memory until they are written, and a hostile image
/// must not ask for more. Further claims are cleared.
const MAX_COPIES: u64 = 1 << 16;

/// The type by which the check follows an inode's pointers; `None` where it does not follow them.
fn purpose(inode: &Inode, bytes: &[u8]) -> Option<FileType> {
    let size = u64::from(get_u32(bytes, offset::SIZE))
        | u64::from(get_u32(bytes, offset::SIZE_HIGH)) << 32;
    match inode.file_type()? {
        FileType::Symlink if size <= FAST_SYMLINK_MAX as u64 => None,
        kind @ (FileType::Regular | FileType::Directory | FileType::Symlink) => Some(kind),
        _ => None,
    }
}

impl<'a, 'd> Fixer<'a, 'd> {
    /// Goes through an inode's pointers in the check's order, and changes them as `visit` says.
    /// `bytes` is the inode.
    pub(super) fn each_pointer(
        &mut self,
        bytes: &mut [u8],
        visit: Visit<'_, 'a, 'd>,
    ) -> Result<(), CheckError> {
        let per_block = u64::from(self.sb.block_size / 4);
        let (mut logical, mut span) = (0, 1);
        for index in 0..POINTERS {
            let level = index.saturating_sub(DIRECT_POINTERS - 1);
            if level > 1 {
                span *= per_block;
            } else if level == 1 {
                span = per_block;
            }
            self.one_pointer(bytes, offset::pointer(index), logical, level, visit)?;
            logical += span;
        }
        Ok(())
    }

    fn one_pointer(
        &mut self,
        bytes: &mut [u8],
        at: usize,
        logical: u64,
        level: usize,
        visit: Visit<'_, 'a, 'd>,
    ) -> Result<(), CheckError> {
        let mut block = BlockNumber(get_u32(bytes, at).into());
        if block == BlockNumber::NONE {
            return Ok(());
        }
        let pointer = Pointer {
            block,
            logical,
            level,
        };
        match visit(self, pointer)? {
            Verdict::Keep => {}
            Verdict::Pass => return Ok(()),
            Verdict::Set(other) => {
                put_u32(bytes, at, other.0 as u32);
                block = other;
            }
        }
        if level == 0 || !self.sb.is_valid_pointer(block) {
            return Ok(());
        }
        let before = self.block(block)?;
        let mut below = before.clone();
        let span = u64::from(self.sb.block_size / 4).pow(level as u32 - 1);
        for slot in 0..below.len() / 4 {
            let logical = logical + slot as u64 * span;
            self.one_pointer(&mut below, slot * 4, logical, level - 1, visit)?;
        }
        if below != before {
            self.put_block(block, &below)?;
        }
        Ok(())
    }

    /// The blocks that an inode takes for its contents, and one more than the last one that it
    /// maps.
    pub(super) fn extent(&mut self, number: InodeNumber) -> Result<(u64, u64), CheckError> {
        let mut bytes = self.inode_bytes(number)?;
        if purpose(&Inode::parse(&bytes)?, &bytes).is_none() {
            return Ok((0, 0));
        }
        let (mut blocks, mut end) = (0, 0);
        self.each_pointer(&mut bytes, &mut |fixer, pointer| {
            if !fixer.sb.is_valid_pointer(pointer.block) {
                return Ok(Verdict::Pass);
            }
            blocks += 1;
            if pointer.level == 0 {
                end = end.max(pointer.logical + 1);
            }
            Ok(Verdict::Keep)
        })?;
        Ok((blocks, end))
    }

    /// Whether an inode's contents are in this block, among others. Indirect blocks in `seen` were
    /// looked at before.
    pub(super) fn has_block(
        &mut self,
        number: InodeNumber,
        block: BlockNumber,
        seen: &mut FxHashSet<BlockNumber>,
    ) -> Result<bool, CheckError> {
        let mut bytes = self.inode_bytes(number)?;
        if purpose(&Inode::parse(&bytes)?, &bytes).is_none() {
            return Ok(false);
        }
        let mut is_found = false;
        self.each_pointer(&mut bytes, &mut |fixer, pointer| {
            is_found |= pointer.block == block;
            let is_new = pointer.level > 0 && seen.insert(pointer.block);
            Ok(
                match fixer.sb.is_valid_pointer(pointer.block) && is_new && !is_found {
                    true => Verdict::Keep,
                    false => Verdict::Pass,
                },
            )
        })?;
        Ok(is_found)
    }

    /// Marks every block that any pointer leads to as used.
    pub(super) fn use_all_pointers(&mut self) -> Result<(), CheckError> {
        let mut followed = FxHashSet::default();
        for number in self.used_inodes() {
            let mut bytes = self.inode_bytes(number)?;
            if purpose(&Inode::parse(&bytes)?, &bytes).is_none() {
                continue;
            }
            self.each_pointer(&mut bytes, &mut |fixer, pointer| {
                if !fixer.sb.is_valid_pointer(pointer.block) {
                    return Ok(Verdict::Pass);
                }
                fixer.used.insert(pointer.block);
                let is_new = pointer.level > 0 && followed.insert((pointer.block, pointer.level));
                Ok(if is_new { Verdict::Keep } else { Verdict::Pass })
            })?;
        }
        Ok(())
    }

    /// Gives every block to one owner: inodes whose pointers all lead somewhere choose first. Other
    /// inodes get a copy where a copy makes sense, so that both can be read, whichever is right.
    /// Pointers that lead nowhere are cleared.
    pub(super) fn blocks(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let mut claims = Claims {
            before: self.image.fork(),
            all: self.metadata(),
            own: FxHashSet::default(),
            cleared: 0,
            copied: 0,
            budget: MAX_COPIES,
        };
        // Where some of an inode's pointers lead nowhere, others of it may lead to blocks of other
        // inodes: such an inode chooses last.
        let wrong = [
            Code::BlockOutOfRange,
            Code::BlockInMetadata,
            Code::SizeInvalid,
        ];
        let is_doubtful = |number: &InodeNumber| {
            let codes = found.get(number);
            codes.is_some_and(|codes| wrong.iter().any(|code| codes.contains(code)))
        };
        let mut numbers = self.used_inodes();
        numbers.sort_by_key(is_doubtful);
        for number in numbers {
            let mut bytes = self.inode_bytes(number)?;
            let before = bytes.clone();
            if number == RESIZE_INODE {
                let tree = BlockNumber(get_u32(&bytes, offset::pointer(DOUBLE_INDIRECT)).into());
                if self.sb.is_valid_pointer(tree)
                    && !claims.all.insert(tree)
                    && found.contains_key(&number)
                {
                    // The next round makes the tree anew.
                    put_u32(&mut bytes, offset::pointer(DOUBLE_INDIRECT), 0);
                    claims.cleared = 1;
                }
            } else {
                self.claim_inode(number, &mut bytes, &mut claims)?;
            }
            self.note_claims(number, &mut claims);
            if bytes != before {
                self.put_inode(number, &bytes)?;
            }
        }
        self.attribute_blocks(&claims.all)
    }

    fn note_claims(&mut self, number: InodeNumber, claims: &mut Claims<'d>) {
        claims.own.clear();
        let (cleared, copied) = (claims.cleared, claims.copied);
        (claims.cleared, claims.copied) = (0, 0);
        if cleared > 0 {
            self.count_cleared(cleared);
            let what = format!("{cleared} block pointers cleared");
            self.note(Location::inode(number), what);
        }
        if copied > 0 {
            let what = format!("{copied} blocks that others use too copied");
            self.note(Location::inode(number), what);
        }
    }

    fn claim_inode(
        &mut self,
        number: InodeNumber,
        bytes: &mut [u8],
        claims: &mut Claims<'d>,
    ) -> Result<(), CheckError> {
        let inode = Inode::parse(bytes)?;
        if inode.file_acl != BlockNumber::NONE && !self.sb.is_valid_pointer(inode.file_acl) {
            put_u32(bytes, offset::FILE_ACL, 0);
            claims.cleared += 1;
        }
        let is_bad_blocks = number == BAD_BLOCKS_INODE;
        let Some(kind) = purpose(&inode, bytes).or(is_bad_blocks.then_some(FileType::Regular))
        else {
            return Ok(());
        };
        let shift = self.sb.block_size_bits - 10;
        let highest = match kind {
            FileType::Directory => 1 << (21 - shift),
            FileType::Symlink => 0,
            _ => u64::MAX,
        };
        self.each_pointer(bytes, &mut |fixer, pointer| {
            let is_high = pointer.level == 0 && pointer.logical > highest;
            if !fixer.sb.is_valid_pointer(pointer.block) || is_high {
                claims.cleared += 1;
                return Ok(Verdict::Set(BlockNumber::NONE));
            }
            if claims.all.insert(pointer.block) {
                claims.own.insert(pointer.block);
                return Ok(Verdict::Keep);
            }
            // A copy of a bad block is not bad, and metadata that can be read is no bad block.
            if is_bad_blocks {
                claims.cleared += 1;
                return Ok(Verdict::Set(BlockNumber::NONE));
            }
            fixer.copy_of(number, kind, pointer, claims)
        })
    }

    /// What becomes of a pointer to a block that is claimed already.
    fn copy_of(
        &mut self,
        number: InodeNumber,
        kind: FileType,
        pointer: Pointer,
        claims: &mut Claims<'d>,
    ) -> Result<Verdict, CheckError> {
        // Twice in one file the same block is garbage, and superblocks and descriptors are never a
        // file's: no copy. A block that is a bitmap or an inode table too may be the file's, for
        // the descriptor may be what was damaged: a copy.
        let is_own = claims.own.contains(&pointer.block) || self.is_superblock_area(pointer.block);
        let at = self.sb.block_offset(pointer.block);
        let bytes = claims.before.read(at, self.block_size())?;
        let is_sensible = match (pointer.level, kind) {
            (0, FileType::Directory) => self.could_be_directory(number, pointer, &bytes),
            (0, _) => true,
            _ => bytes.chunks_exact(4).all(|chunk| {
                let below = BlockNumber(get_u32(chunk, 0).into());
                below == BlockNumber::NONE
                    || self.sb.is_valid_pointer(below) && !claims.own.contains(&below)
            }),
        };
        let copy = if is_own || !is_sensible || claims.budget == 0 {
            None
        } else {
            self.allocate()?
        };
        let Some(copy) = copy else {
            claims.cleared += 1;
            return Ok(Verdict::Set(BlockNumber::NONE));
        };
        self.put_block(copy, &bytes)?;
        claims.all.insert(copy);
        claims.own.insert(copy);
        claims.copied += 1;
        claims.budget -= 1;
        Ok(Verdict::Set(copy))
    }

    /// Whether a block can be this one of a directory.
    fn could_be_directory(&self, number: InodeNumber, pointer: Pointer, bytes: &[u8]) -> bool {
        let mut is_sound = true;
        let mut first = InodeNumber::NONE;
        for entry in entries(bytes, self.sb.inodes_count) {
            match entry {
                Ok(entry) if entry.offset == 0 => first = entry.inode,
                Ok(_) => {}
                Err(_) => is_sound = false,
            }
        }
        let is_first = bytes.len() > directory::HEADER_SIZE
            && bytes[directory::OFFSET_REC_LEN + 2] == 1
            && bytes[directory::HEADER_SIZE] == b'.';
        is_sound && (pointer.logical != 0 || is_first && first == number)
    }

    /// Makes an inode's block `logical` this one, with the indirect blocks that it needs. `false`
    /// where there is no space for them, or no pointer leads so far.
    pub(super) fn set_pointer(
        &mut self,
        bytes: &mut [u8],
        logical: u64,
        block: BlockNumber,
    ) -> Result<bool, CheckError> {
        let per_block = u64::from(self.sb.block_size / 4);
        if logical < DIRECT_POINTERS as u64 {
            put_u32(bytes, offset::pointer(logical as usize), block.0 as u32);
            return Ok(true);
        }
        let (mut rest, mut span) = (logical - DIRECT_POINTERS as u64, per_block);
        for (level, index) in (DIRECT_POINTERS..POINTERS).enumerate() {
            if rest < span {
                let at = offset::pointer(index);
                let Some(root) = self.indirect(bytes, at)? else {
                    return Ok(false);
                };
                return self.set_below(root, level, rest, block);
            }
            rest -= span;
            span *= per_block;
        }
        Ok(false)
    }

    /// The indirect block that a pointer leads to, made where there is none.
    fn indirect(&mut self, bytes: &mut [u8], at: usize) -> Result<Option<BlockNumber>, CheckError> {
        let known = BlockNumber(get_u32(bytes, at).into());
        if known != BlockNumber::NONE {
            return Ok(self.sb.is_valid_pointer(known).then_some(known));
        }
        let Some(block) = self.allocate()? else {
            return Ok(None);
        };
        self.put_block(block, &vec![0; self.block_size()])?;
        put_u32(bytes, at, block.0 as u32);
        Ok(Some(block))
    }

    fn set_below(
        &mut self,
        indirect: BlockNumber,
        level: usize,
        rest: u64,
        block: BlockNumber,
    ) -> Result<bool, CheckError> {
        let span = u64::from(self.sb.block_size / 4).pow(level as u32);
        let at = (rest / span) as usize * 4;
        let mut bytes = self.block(indirect)?;
        if level == 0 {
            put_u32(&mut bytes, at, block.0 as u32);
            self.put_block(indirect, &bytes)?;
            return Ok(true);
        }
        let Some(below) = self.indirect(&mut bytes, at)? else {
            return Ok(false);
        };
        self.put_block(indirect, &bytes)?;
        self.set_below(below, level - 1, rest % span, block)
    }
}
