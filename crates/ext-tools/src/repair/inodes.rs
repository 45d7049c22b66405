//! Each inode by itself.

use super::fixer::{ByInode, Fixer, get_u32, put_u16, put_u32};
use crate::fsck::kinds::FLAGS_OF_FILES;
use crate::fsck::{CheckError, Code, Location};
use backstitch_ext::format::directory::{entries, type_of_code};
use backstitch_ext::format::features::{COMPAT_DIR_INDEX, COMPAT_EXT_ATTR, COMPAT_IMAGIC_INODES};
use backstitch_ext::format::inode::{self, BASE_SIZE, FAST_SYMLINK_MAX, Inode, POINTERS, offset};
use backstitch_ext::format::{BAD_BLOCKS_INODE, JOURNAL_INODE, RESIZE_INODE, ROOT_INODE, RawInode};
use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use core::mem::offset_of;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The type bits of a mode.
const TYPE_MASK: u16 = 0o170_000;
/// Flags that need features which the file system does not have.
const FOREIGN_FLAGS: u32 =
    inode::FLAG_EXTENTS | inode::FLAG_INLINE_DATA | inode::FLAG_ENCRYPTED | inode::FLAG_CASEFOLD;

impl Fixer<'_, '_> {
    pub(super) fn inodes(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let typeless = found
            .iter()
            .filter(|(_, codes)| codes.contains(&Code::ModeInvalid));
        let mut types = FxHashMap::default();
        if typeless.count() > 0 {
            types = self.entry_types()?;
        }
        for (number, codes) in found {
            let mut bytes = self.inode_bytes(*number)?;
            let before = bytes.clone();
            let mut done = Vec::new();
            self.deletion_time(*number, &mut bytes, codes, &mut done);
            if codes.contains(&Code::RootInvalid) {
                make_root(&mut bytes);
                done.push("made a directory".to_owned());
            }
            if codes.contains(&Code::ReservedInodeInvalid) {
                self.reserved(*number, &mut bytes);
                done.push("emptied of what a reserved inode must not have".into());
            }
            self.fields(&mut bytes, codes, &mut done)?;
            self.attributes(&mut bytes, codes, &mut done);
            self.times(&mut bytes, codes, &mut done);
            // The root is a directory now, and needs no repair of its former type.
            let is_root = codes.contains(&Code::RootInvalid);
            if codes.contains(&Code::SymlinkInvalid) && !is_root {
                self.symlink(&mut bytes, &mut done)?;
            }
            if codes.contains(&Code::LooksLikeDirectory) {
                let mode = u16::from_le_bytes([bytes[offset::MODE], bytes[offset::MODE + 1]]);
                put_u16(&mut bytes, offset::MODE, mode & !TYPE_MASK | 0o040_000);
                done.push("a directory again, as its blocks tell".into());
            } else if codes.contains(&Code::ModeInvalid) && !is_root {
                self.mode(&mut bytes, types.get(number).copied(), &mut done);
            }
            if bytes != before {
                self.put_inode(*number, &bytes)?;
                self.note(Location::inode(*number), done.join(", "));
            }
        }
        Ok(())
    }

    /// Frees an inode.
    pub(super) fn clear(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        put_u32(bytes, offset::DTIME, self.now_seconds);
    }

    fn deletion_time(
        &self,
        number: InodeNumber,
        bytes: &mut [u8],
        codes: &BTreeSet<Code>,
        done: &mut Vec<String>,
    ) {
        let is_wrong = [
            Code::DeletionTimeSet,
            Code::DeletionTimeMissing,
            Code::DeletionTimeLow,
        ]
        .iter()
        .any(|code| codes.contains(code));
        if !is_wrong {
            return;
        }
        let links = u16::from_le_bytes([bytes[offset::LINKS], bytes[offset::LINKS + 1]]);
        let is_deleted = links == 0 && number >= self.sb.first_inode;
        let time = if is_deleted { self.now_seconds } else { 0 };
        put_u32(bytes, offset::DTIME, time);
        let what = if is_deleted {
            "freed, as deleted"
        } else {
            "deletion time taken away"
        };
        done.push(what.into());
    }

    fn reserved(&self, number: InodeNumber, bytes: &mut [u8]) {
        match number {
            BAD_BLOCKS_INODE => {
                for field in [offset::MODE, offset::UID, offset::GID, offset::LINKS] {
                    put_u16(bytes, field, 0);
                }
                put_u16(bytes, offset::UID_HIGH, 0);
                put_u16(bytes, offset::GID_HIGH, 0);
                put_u32(bytes, offset::FILE_ACL, 0);
            }
            RESIZE_INODE => put_u16(bytes, offset::MODE, 0o100_600),
            JOURNAL_INODE if self.sb.journal_inode == JOURNAL_INODE => {
                put_u16(bytes, offset::MODE, 0o100_600);
            }
            // No tool gives such an inode this mode: the rest of it makes no sense either.
            _ => bytes.fill(0),
        }
    }

    fn fields(
        &self,
        bytes: &mut [u8],
        codes: &BTreeSet<Code>,
        done: &mut Vec<String>,
    ) -> Result<(), CheckError> {
        let parsed = Inode::parse(bytes)?;
        let features = self.sb.features;
        if codes.contains(&Code::FieldNotZero) {
            put_u32(bytes, offset_of!(RawInode, i_faddr), 0);
            put_u16(bytes, offset_of!(RawInode, i_file_acl_high), 0);
            put_u16(bytes, offset_of!(RawInode, i_blocks_high), 0);
            if parsed.is_directory() {
                put_u32(bytes, offset::SIZE_HIGH, 0);
            }
            if !features.has_compat(COMPAT_EXT_ATTR) {
                put_u32(bytes, offset::FILE_ACL, 0);
            }
            done.push("fields that ext2 does not use made zero".into());
        }
        if codes.contains(&Code::FlagInvalid) {
            let mut flags = parsed.flags & !FOREIGN_FLAGS;
            if !features.has_compat(COMPAT_IMAGIC_INODES) {
                flags &= !inode::FLAG_IMAGIC;
            }
            if !matches!(
                parsed.file_type(),
                Some(FileType::Regular | FileType::Directory)
            ) {
                flags &= !FLAGS_OF_FILES;
            }
            if !parsed.is_directory() || !features.has_compat(COMPAT_DIR_INDEX) {
                flags &= !inode::FLAG_INDEX;
            }
            put_u32(bytes, offset::FLAGS, flags);
            done.push(format!("flags {:#x} taken away", parsed.flags & !flags));
        }
        if codes.contains(&Code::SpecialFileInvalid) {
            put_u32(bytes, offset::SIZE, 0);
            put_u32(bytes, offset::SIZE_HIGH, 0);
            for index in 4..POINTERS {
                put_u32(bytes, offset::pointer(index), 0);
            }
            done.push("size and pointers of a special file made zero".into());
        }
        Ok(())
    }

    fn attributes(&self, bytes: &mut [u8], codes: &BTreeSet<Code>, done: &mut Vec<String>) {
        if codes.contains(&Code::ExtraSizeInvalid) {
            let size = inode::new_extra_isize(self.sb);
            put_u16(bytes, offset::EXTRA_ISIZE, size);
            done.push(format!("i_extra_isize is {size} now"));
        } else if codes.contains(&Code::XattrInodeInvalid) && bytes.len() > BASE_SIZE + 2 {
            let size = u16::from_le_bytes([bytes[BASE_SIZE], bytes[BASE_SIZE + 1]]);
            let start = BASE_SIZE + usize::from(size);
            if let Some(area) = bytes.get_mut(start..) {
                area.fill(0);
            }
            done.push("damaged attributes in the inode taken away".into());
        }
    }

    /// Takes the high bits from times before 1970.
    fn times(&self, bytes: &mut [u8], codes: &BTreeSet<Code>, done: &mut Vec<String>) {
        if !codes.contains(&Code::TimeInvalid) {
            return;
        }
        let misdated: Vec<usize> = inode::misdated_times(bytes).collect();
        for high in misdated {
            bytes[high] &= !inode::EPOCH_MASK;
        }
        done.push("times before 1970 written as such".into());
    }

    /// Sets the size to the length of the target; an inode without a target is freed.
    fn symlink(&self, bytes: &mut [u8], done: &mut Vec<String>) -> Result<(), CheckError> {
        let parsed = Inode::parse(bytes)?;
        put_u32(bytes, offset::SIZE_HIGH, 0);
        let attributes =
            u32::from(parsed.file_acl != BlockNumber::NONE) * (self.sb.block_size / 512);
        let first = BlockNumber(parsed.block[0].into());
        let takes_blocks = parsed.sectors > attributes && self.sb.is_valid_pointer(first);
        let end = |target: &[u8]| target.iter().position(|byte| *byte == 0);
        let in_block = match takes_blocks {
            true => end(&self.block(first)?).filter(|length| *length > FAST_SYMLINK_MAX),
            false => None,
        };
        // The target is believed to be in the block if there is no other pointer, or if its length
        // in the block is the inode's size.
        let is_alone = parsed.block[1..].iter().all(|pointer| *pointer == 0);
        let slow = in_block.filter(|length| is_alone || *length as u64 == parsed.size);
        let has_block = takes_blocks && (is_alone || slow.is_some());
        let fast = end(&parsed.inline_bytes()).filter(|length| *length > 0 && !has_block);
        match slow.or(fast) {
            Some(length) => {
                if slow.is_some() {
                    (1..POINTERS).for_each(|index| put_u32(bytes, offset::pointer(index), 0));
                }
                put_u32(bytes, offset::SIZE, length as u32);
                done.push(format!("a target of {length} bytes now"));
            }
            None => {
                self.clear(bytes);
                done.push("a symlink without target freed".into());
            }
        }
        Ok(())
    }

    /// Sets the type to what the inode's names say; frees the inode where they say nothing.
    fn mode(&self, bytes: &mut [u8], code: Option<u8>, done: &mut Vec<String>) {
        let mode = u16::from_le_bytes([bytes[offset::MODE], bytes[offset::MODE + 1]]);
        let kind = code.and_then(type_of_code).map(|kind| match kind {
            FileType::Regular => 0o100_000,
            FileType::Directory => 0o040_000,
            FileType::CharacterDevice => 0o020_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Fifo => 0o010_000,
            FileType::Socket => 0o140_000,
            FileType::Symlink => 0o120_000,
        });
        match kind {
            Some(kind) => {
                put_u16(bytes, offset::MODE, mode & !TYPE_MASK | kind);
                done.push("given the type that its name tells".into());
            }
            None => {
                self.clear(bytes);
                done.push(format!("mode {mode:o} is none: freed"));
            }
        }
    }

    /// The types that directory entries state for inodes; 0 where they disagree.
    pub(super) fn entry_types(&self) -> Result<FxHashMap<InodeNumber, u8>, CheckError> {
        let mut types = FxHashMap::default();
        for block in &self.facts.gathered.directory_blocks {
            if block.block == 0 {
                continue;
            }
            let bytes = self.block(BlockNumber(block.block.into()))?;
            for entry in entries(&bytes, u32::MAX).map_while(Result::ok) {
                let known = types.entry(entry.inode).or_insert(entry.file_type);
                if *known != entry.file_type {
                    *known = 0;
                }
            }
        }
        Ok(types)
    }
}

fn make_root(bytes: &mut [u8]) {
    let mode = u16::from_le_bytes([bytes[offset::MODE], bytes[offset::MODE + 1]]);
    if mode & TYPE_MASK != 0o040_000 {
        let permissions = if mode == 0 { 0o755 } else { mode & 0o7777 };
        put_u16(bytes, offset::MODE, 0o040_000 | permissions);
    }
    let links = u16::from_le_bytes([bytes[offset::LINKS], bytes[offset::LINKS + 1]]);
    put_u16(bytes, offset::LINKS, links.max(2));
    put_u32(bytes, offset::DTIME, 0);
    let flags = get_u32(bytes, offset::FLAGS);
    put_u32(bytes, offset::FLAGS, flags & !FOREIGN_FLAGS);
    debug_assert_eq!(ROOT_INODE, InodeNumber(2));
}
