//! The journal: its inode, its blocks, and its superblock. What was in its log was replayed before,
//! or given up.

use super::fixer::{Fixer, put_u16, put_u32};
use super::superblock::{put, raw};
use crate::fsck::journal::find;
use crate::fsck::state::Context;
use crate::fsck::{CheckError, Finding, Location, Options};
use crate::mkfs::usual_journal_blocks;
use backstitch_ext::format::JOURNAL_INODE;
use backstitch_ext::format::features::COMPAT_HAS_JOURNAL;
use backstitch_ext::format::inode::{Inode, POINTERS, offset};
use backstitch_ext::format::superblock::RawSuperblock;
use backstitch_ext::journal::{BACKUP_BLOCKS, Copy, Faults, map, superblock_copy};
use backstitch_journal::format::superblock::{MIN_BLOCKS, SUPERBLOCK_BYTES};
use backstitch_journal::format::{Features, Sequence, Superblock as JournalSuperblock};
use backstitch_layout::{BlockNumber, Error, JournalMap, Structure};
use rustc_hash::FxHashSet;

impl Fixer<'_, '_> {
    /// Puts the journal right: the inode first, then what is in its first block.
    pub(super) fn journal(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        let is_map = findings
            .iter()
            .any(|finding| finding.location.block.is_some());
        let inode = self.inode(JOURNAL_INODE)?;
        let copy = Copy {
            pointers: inode.block,
            size: inode.size,
        };
        let raw = raw(self.image)?;
        let backup = superblock_copy(&raw).filter(|backup| *backup != copy);
        if let Some(backup) = backup
            && (is_map || !self.is_journal(&copy)?)
            && self.is_journal(&backup)?
            && self.is_free_for_journal(&copy, &backup)?
        {
            return self.restore_journal_inode(&backup);
        }
        match is_map {
            true => self.fill_journal(&inode, raw),
            false => self.journal_superblock(&inode),
        }
    }

    fn journal_context<T>(
        &self,
        look: impl FnOnce(&Context<'_, backstitch_layout::tools::Overlay<'_>>) -> Result<T, CheckError>,
    ) -> Result<T, CheckError> {
        let options = Options::default();
        let groups = &self.facts.groups;
        look(&Context::new(&*self.image, self.sb, groups, &options))
    }

    /// Whether these pointers lead to a whole journal.
    fn is_journal(&self, copy: &Copy) -> Result<bool, CheckError> {
        let Ok(map) = self.journal_context(|context| find(context, copy))? else {
            return Ok(false);
        };
        let first = map.block(0).unwrap_or_default();
        let bytes = self.block(first)?;
        let (blocks, size) = (map.blocks(), self.sb.block_size);
        let superblock = mended(&bytes, size, blocks);
        Ok(blocks >= MIN_BLOCKS && superblock.is_some())
    }

    /// Whether nobody but the journal has the blocks of the copy.
    fn is_free_for_journal(&self, own: &Copy, copy: &Copy) -> Result<bool, CheckError> {
        let own: FxHashSet<BlockNumber> = self.blocks_of(own)?.0.into_iter().collect();
        let blocks = self.blocks_of(copy)?.0;
        let is_taken =
            |block: BlockNumber| self.used.bits_from(block) & 1 != 0 && !own.contains(&block);
        Ok(!blocks.into_iter().any(is_taken))
    }

    /// The blocks that these pointers lead to, indirect ones among them, and the journal's map,
    /// with gaps where pointers lead nowhere.
    fn blocks_of(&self, copy: &Copy) -> Result<(Vec<BlockNumber>, Option<JournalMap>), CheckError> {
        let indirect = std::cell::RefCell::new(Vec::new());
        let read = |block: BlockNumber| {
            indirect.borrow_mut().push(block);
            self.block(block).map_err(|error| match error {
                CheckError::Device(error) => Error::Device(error),
                error => Error::corrupt(Structure::JOURNAL, error),
            })
        };
        let map = match map(
            &read,
            self.sb,
            copy,
            Structure::Sole("the journal"),
            Faults::LeaveOut,
        ) {
            Err(Error::Device(error)) => return Err(error.into()),
            found => found.ok(),
        };
        let mut blocks = indirect.into_inner();
        for run in map.iter().flat_map(|map| map.runs()) {
            blocks.extend(run.block.run(run.blocks.into()));
        }
        Ok((blocks, map))
    }

    fn restore_journal_inode(&mut self, copy: &Copy) -> Result<(), CheckError> {
        let mut bytes = self.inode_bytes(JOURNAL_INODE)?;
        for (index, pointer) in copy.pointers.iter().enumerate() {
            put_u32(&mut bytes, offset::pointer(index), *pointer);
        }
        self.put_journal_inode(&mut bytes, copy.size)?;
        let what = "the journal's inode is restored from its copy in the superblock";
        self.note(Location::inode(JOURNAL_INODE), what);
        Ok(())
    }

    fn put_journal_inode(&mut self, bytes: &mut [u8], size: u64) -> Result<(), CheckError> {
        put_u16(bytes, offset::MODE, 0o100_600);
        put_u16(bytes, offset::LINKS, 1);
        put_u32(bytes, offset::DTIME, 0);
        put_u32(bytes, offset::FLAGS, 0);
        put_u32(bytes, offset::SIZE, size as u32);
        put_u32(bytes, offset::SIZE_HIGH, (size >> 32) as u32);
        self.put_inode(JOURNAL_INODE, bytes)
    }

    /// Gives the journal the blocks that it lacks. Where not enough are free, the file system loses
    /// its journal.
    fn fill_journal(&mut self, inode: &Inode, raw: RawSuperblock) -> Result<(), CheckError> {
        let bits = self.sb.block_size_bits;
        let is_usable =
            |blocks: u64| (u64::from(MIN_BLOCKS)..=self.sb.blocks_count / 2).contains(&blocks);
        let backup = superblock_copy(&raw).map_or(0, |copy| copy.size >> bits);
        let usual = u64::from(usual_journal_blocks(self.sb.blocks_count));
        let sizes = [inode.size >> bits, backup, usual];
        let Some(blocks) = sizes.into_iter().find(|blocks| is_usable(*blocks)) else {
            return self.give_journal_up(raw);
        };
        let copy = Copy {
            pointers: inode.block,
            size: blocks << bits,
        };
        let known = self.blocks_of(&copy)?.1;
        let mut bytes = self.inode_bytes(JOURNAL_INODE)?;
        if known.is_none() {
            bytes[offset::BLOCK..offset::BLOCK + 4 * POINTERS].fill(0);
        }
        let has_block = |position: u64| {
            let block = known.as_ref().and_then(|map| map.block(position as u32));
            block.is_some()
        };
        let mut added = 0_u64;
        for position in (0..blocks).filter(|position| !has_block(*position)) {
            let block = self.allocate()?;
            let is_placed = match block {
                Some(block) => self.set_pointer(&mut bytes, position, block)?,
                None => false,
            };
            if !is_placed {
                return self.give_journal_up(raw);
            }
            added += 1;
            if position == 0 {
                let zeros = vec![0; self.block_size()];
                self.put_block(block.unwrap_or_default(), &zeros)?;
            }
        }
        self.put_journal_inode(&mut bytes, copy.size)?;
        self.copy_journal_inode(&bytes, copy.size, raw)?;
        let what = match added {
            0 => "the journal's inode is put right".to_owned(),
            added => format!("{added} blocks added to the journal"),
        };
        self.note(Location::inode(JOURNAL_INODE), what);
        // The new blocks still have their old contents: with a new superblock these are not taken
        // for records.
        let inode = self.inode(JOURNAL_INODE)?;
        self.journal_superblock(&inode)
    }

    /// Sets the superblock's copy of the journal's inode to what the inode is.
    fn copy_journal_inode(
        &mut self,
        bytes: &[u8],
        size: u64,
        mut raw: RawSuperblock,
    ) -> Result<(), CheckError> {
        let pointers = Inode::parse(bytes)?.block;
        let sizes = [(size >> 32) as u32, size as u32];
        for (field, word) in raw
            .s_jnl_blocks
            .iter_mut()
            .zip(pointers.into_iter().chain(sizes))
        {
            *field = word.into();
        }
        raw.s_jnl_backup_type = BACKUP_BLOCKS;
        put(self.image, &raw)
    }

    fn give_journal_up(&mut self, mut raw: RawSuperblock) -> Result<(), CheckError> {
        let features = raw.s_feature_compat.get() & !COMPAT_HAS_JOURNAL;
        raw.s_feature_compat = features.into();
        raw.s_journal_inum = 0.into();
        raw.s_journal_uuid = [0; 16];
        raw.s_jnl_backup_type = 0;
        raw.s_jnl_blocks.fill(0.into());
        put(self.image, &raw)?;
        let empty = vec![0; self.sb.inode_size as usize];
        self.put_inode(JOURNAL_INODE, &empty)?;
        let what = "no space for a journal: the file system has none any more";
        self.note(Location::inode(JOURNAL_INODE), what);
        Ok(())
    }

    /// Makes an empty journal in the blocks of the old one, and keeps fields that can be believed.
    fn journal_superblock(&mut self, inode: &Inode) -> Result<(), CheckError> {
        let first = BlockNumber(inode.block[0].into());
        let blocks = u32::try_from(inode.size >> self.sb.block_size_bits).unwrap_or(0);
        let bytes = self.block(first)?;
        // The next transaction gets a number that no record in the log has: one log's length after
        // the old number, or one by the time.
        let made = match mended(&bytes, self.sb.block_size, blocks) {
            Some(mut journal) => {
                let next = journal.sequence.0.wrapping_add(blocks);
                journal.set_tail(0, Sequence(next));
                journal
            }
            None => {
                let (size, uuid) = (self.sb.block_size, self.sb.uuid);
                let mut journal = JournalSuperblock::new(size, blocks, 0, uuid);
                journal.set_tail(0, Sequence(self.now_seconds));
                journal
            }
        };
        let at = self.sb.block_offset(first);
        self.image.write(at, &made.encode())?;
        let what = "the journal's superblock is made anew, with an empty log";
        self.note(Location::inode(JOURNAL_INODE), what);
        Ok(())
    }
}

/// The superblock of a journal of `blocks` blocks, with impossible fields corrected; `None` where
/// the block is no such superblock.
fn mended(bytes: &[u8], block_bytes: u32, blocks: u32) -> Option<JournalSuperblock> {
    let bytes: &[u8; SUPERBLOCK_BYTES] = bytes.get(..SUPERBLOCK_BYTES)?.try_into().ok()?;
    let mended = JournalSuperblock::mended(bytes, block_bytes, blocks, 0);
    let (mut journal, _) = mended.ok()?;
    if !journal.features.unreplayable().is_empty() {
        journal.set_features(Features::default());
    }
    Some(journal)
}
