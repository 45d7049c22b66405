//! Pass 1: every inode.

use super::CheckError;
use super::attributes;
use super::blocks::{Purpose, Walk, Walker};
use super::reserved;
use super::state::{
    BlockSet, Context, Directory, DirectoryBlock, Gathered, InodeInfo, XattrUse, in_chunks,
};
use backstitch_ext::format::directory::type_code;
use backstitch_ext::format::features::{
    COMPAT_DIR_INDEX, COMPAT_EXT_ATTR, COMPAT_HAS_JOURNAL, COMPAT_IMAGIC_INODES,
    RO_COMPAT_HUGE_FILE,
};
use backstitch_ext::format::inode::{self, BASE_SIZE, FAST_SYMLINK_MAX, Inode, RawInode, offset};
use backstitch_ext::format::{BAD_BLOCKS_INODE, JOURNAL_INODE, RESIZE_INODE, ROOT_INODE};
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, FileType, GroupNumber, InodeNumber};
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

/// `i_flags` that need features which this check refuses.
const FOREIGN_FLAGS: u32 =
    inode::FLAG_EXTENTS | inode::FLAG_INLINE_DATA | inode::FLAG_ENCRYPTED | inode::FLAG_CASEFOLD;
/// Chunks for each thread: several, so that all threads end at about the same time.
const CHUNKS_PER_THREAD: usize = 16;

/// Looks at all inodes.
pub(crate) fn scan<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
) -> Result<Gathered, CheckError> {
    let metadata = context.metadata_blocks();
    let groups = context.groups.len();
    let chunks = if context.threads > 1 {
        context.threads * CHUNKS_PER_THREAD
    } else {
        1
    };
    let per_chunk = groups.div_ceil(chunks);
    let (workers, parts) = in_chunks(
        context.threads,
        groups.div_ceil(per_chunk),
        || metadata.clone(),
        |used, chunk| {
            let mut scan = Scan::new(context, used);
            for group in chunk * per_chunk..groups.min((chunk + 1) * per_chunk) {
                scan.group(GroupNumber::at(group))?;
            }
            Ok(scan.part)
        },
    )?;
    let mut gathered = Gathered {
        used: metadata.clone(),
        inodes: Vec::with_capacity(groups),
        directories: Vec::new(),
        directory_blocks: Vec::new(),
        xattr_blocks: FxHashMap::default(),
        has_large_file: false,
    };
    for part in parts {
        part.join(&mut gathered, findings);
    }
    for used in workers {
        for block in gathered.used.join(&used, &metadata) {
            findings.add(Code::BlockClaimedTwice, Location::block(block), || {
                format!("block {block} is claimed by more than one pointer")
            });
        }
    }
    Ok(gathered)
}

/// What one chunk of groups gives.
struct Part {
    findings: Findings,
    inodes: Vec<Option<Box<[InodeInfo]>>>,
    directories: Vec<Directory>,
    directory_blocks: Vec<DirectoryBlock>,
    xattr_blocks: FxHashMap<BlockNumber, XattrUse>,
    has_large_file: bool,
}

impl Part {
    /// Appends to what earlier groups gave.
    fn join(self, gathered: &mut Gathered, findings: &mut Findings) {
        findings.append(self.findings);
        gathered.inodes.extend(self.inodes);
        let shift = gathered.directory_blocks.len();
        gathered
            .directories
            .extend(self.directories.into_iter().map(|directory| Directory {
                blocks: directory.blocks.start + shift..directory.blocks.end + shift,
                ..directory
            }));
        gathered.directory_blocks.extend(self.directory_blocks);
        for (block, use_) in self.xattr_blocks {
            let known = gathered
                .xattr_blocks
                .entry(block)
                .or_insert(XattrUse { count: 0, ..use_ });
            known.count += use_.count;
            known.inode = known.inode.min(use_.inode);
        }
        gathered.has_large_file |= self.has_large_file;
    }
}

/// The scan of one chunk.
pub(super) struct Scan<'s, 'c, S: Source + ?Sized> {
    pub(super) context: &'s Context<'c, S>,
    pub(super) used: &'s mut BlockSet,
    part: Part,
    pub(super) scratch: [Vec<u8>; 4],
}

impl<'s, 'c, S: Source + ?Sized> Scan<'s, 'c, S> {
    fn new(context: &'s Context<'c, S>, used: &'s mut BlockSet) -> Self {
        let part = Part {
            findings: Findings::new(context.max_findings),
            inodes: Vec::new(),
            directories: Vec::new(),
            directory_blocks: Vec::new(),
            xattr_blocks: FxHashMap::default(),
            has_large_file: false,
        };
        Scan {
            context,
            used,
            part,
            scratch: Default::default(),
        }
    }

    /// One group's inode table, in runs.
    fn group(&mut self, group: GroupNumber) -> Result<(), CheckError> {
        let (context, sb) = (self.context, self.context.sb);
        self.part.inodes.push(None);
        let inode_size = sb.inode_size as usize;
        let length = sb.inodes_per_group as usize * inode_size;
        let start = sb.block_offset(context.groups[group.index()].inode_table);
        let run = (context.source.run_bytes() >> sb.block_size_bits).max(1) << sb.block_size_bits;
        let mut number = sb.group_first_inode(group);
        let (mut scratch, mut at) = (Vec::new(), 0);
        while at < length {
            let count = run.min(length - at);
            let offset = start + at as u64;
            at += count;
            let is_reserved = number < sb.first_inode;
            if !is_reserved && context.source.is_known_zero(offset, count) {
                number = number + (count / inode_size) as u32;
                continue;
            }
            for bytes in context
                .source
                .bytes(offset, count, &mut scratch)?
                .chunks_exact(inode_size)
            {
                if number < sb.first_inode || !is_empty(bytes) {
                    self.inode(number, bytes)?;
                }
                number = number + 1;
            }
        }
        Ok(())
    }

    pub(super) fn add(&mut self, code: Code, number: InodeNumber, what: impl FnOnce() -> String) {
        self.part.findings.add(code, Location::inode(number), what);
    }

    /// Notes that an inode is in use.
    fn mark_used(&mut self, number: InodeNumber, inode: &Inode) {
        let sb = self.context.sb;
        let per_group = sb.inodes_per_group;
        let Some(slot) = self.part.inodes.last_mut() else {
            return;
        };
        let infos =
            slot.get_or_insert_with(|| (0..per_group).map(|_| InodeInfo::default()).collect());
        let info = &mut infos[sb.index_in_group(number) as usize];
        info.is_used = true;
        info.links = inode.links;
        info.is_imagic =
            inode.flags & inode::FLAG_IMAGIC != 0 && sb.features.has_compat(COMPAT_IMAGIC_INODES);
        info.type_code = inode.file_type().map_or(0, type_code);
    }

    /// One inode that is not empty, or reserved.
    fn inode(&mut self, number: InodeNumber, bytes: &[u8]) -> Result<(), CheckError> {
        let sb = self.context.sb;
        let inode = Inode::parse(bytes)?;
        if inode.dtime != 0 && self.context.can_tell_low_times && inode.dtime < sb.inodes_count {
            self.add(Code::DeletionTimeLow, number, || {
                format!("its deletion time {} is an inode number", inode.dtime)
            });
        }
        if inode.links == 0 && number >= sb.first_inode {
            if inode.dtime == 0 && inode.mode != 0 {
                self.add(Code::DeletionTimeMissing, number, || {
                    "has no links, but no deletion time either".into()
                });
            }
            return Ok(());
        }
        self.check_foreign_flags(number, &inode);
        if number < sb.first_inode && number != ROOT_INODE {
            self.mark_used(number, &inode);
            return self.reserved_inode(number, &inode, bytes);
        }
        if number == ROOT_INODE && !inode.is_directory() {
            self.add(Code::RootInvalid, number, || {
                "the root is no directory".into()
            });
        }
        if inode.links == 0 {
            return Ok(());
        }
        self.mark_used(number, &inode);
        self.used_inode(number, &inode, bytes)
    }

    fn check_foreign_flags(&mut self, number: InodeNumber, inode: &Inode) {
        let foreign = inode.flags & FOREIGN_FLAGS;
        let counts =
            inode.links > 0 || matches!(number, BAD_BLOCKS_INODE | ROOT_INODE | JOURNAL_INODE);
        if foreign != 0 && counts {
            self.add(Code::FlagInvalid, number, || {
                format!("flags {foreign:#x} need features that the file system does not have")
            });
        }
    }

    /// A reserved inode other than the root.
    fn reserved_inode(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
        bytes: &[u8],
    ) -> Result<(), CheckError> {
        let sb = self.context.sb;
        if number == BAD_BLOCKS_INODE {
            return self.bad_blocks_inode(inode);
        }
        let has_journal = sb.features.has_compat(COMPAT_HAS_JOURNAL);
        if number == JOURNAL_INODE && has_journal && sb.journal_inode == JOURNAL_INODE {
            if inode.file_type() != Some(FileType::Regular) {
                self.add(Code::ReservedInodeInvalid, number, || {
                    format!("the journal has mode {:o}", inode.mode)
                });
            }
            self.check_index_flag(number, inode);
            return self.check_blocks(number, inode, bytes);
        }
        if number == JOURNAL_INODE || reserved::QUOTA_INODES.contains(&number) {
            if inode.links != 0 || inode.sectors != 0 || inode.block[0] != 0 {
                self.add(Code::ReservedInodeInvalid, number, || {
                    "in use, but the feature that it is for is missing".into()
                });
            }
            if inode.links == 0 {
                return Ok(());
            }
            return self.used_inode(number, inode, bytes);
        }
        if let Some(what) = reserved::bad_mode(number, inode) {
            self.add(Code::ReservedInodeInvalid, number, || what);
        }
        self.check_index_flag(number, inode);
        self.check_blocks(number, inode, bytes)
    }

    fn bad_blocks_inode(&mut self, inode: &Inode) -> Result<(), CheckError> {
        let number = BAD_BLOCKS_INODE;
        if inode.mode != 0
            || inode.uid != 0
            || inode.gid != 0
            || inode.links != 0
            || inode.file_acl != BlockNumber::NONE
        {
            self.add(Code::ReservedInodeInvalid, number, || {
                "the list of bad blocks looks like a file".into()
            });
        }
        let mut walk = Walk::new(number, Purpose::BadBlocks);
        self.walk(&mut walk, inode)
    }

    /// An inode with links.
    fn used_inode(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
        bytes: &[u8],
    ) -> Result<(), CheckError> {
        if inode.dtime != 0 {
            self.add(Code::DeletionTimeSet, number, || {
                format!("in use, but deleted at {}", inode.dtime)
            });
        }
        self.check_fields(number, inode, bytes);
        self.check_extra(number, inode, bytes);
        if self.looks_like_directory(number, inode)? {
            self.add(Code::LooksLikeDirectory, number, || {
                format!(
                    "mode {:o}, but it has the blocks of a directory",
                    inode.mode
                )
            });
        }
        match inode.file_type() {
            None => {
                self.add(Code::ModeInvalid, number, || {
                    format!("mode {:o}", inode.mode)
                });
            }
            Some(FileType::Regular | FileType::Directory) => {}
            Some(FileType::Symlink) => {
                self.check_flags(number, inode);
                if let Some(what) = self.bad_symlink(inode, bytes)? {
                    self.add(Code::SymlinkInvalid, number, || what);
                }
            }
            Some(_) => self.check_special(number, inode, bytes),
        }
        self.check_blocks(number, inode, bytes)
    }

    /// Fields that ext2 does not use, and flags that only AFS does.
    fn check_fields(&mut self, number: InodeNumber, inode: &Inode, bytes: &[u8]) {
        let Ok((raw, _)) = RawInode::ref_from_prefix(bytes) else {
            return;
        };
        let features = self.context.sb.features;
        let size_high = if inode.is_directory() {
            raw.i_size_high.get()
        } else {
            0
        };
        let has_huge = features.has_ro_compat(RO_COMPAT_HUGE_FILE);
        let blocks_high = if has_huge { 0 } else { raw.i_blocks_high.get() };
        let fields = [
            ("i_faddr", raw.i_faddr.get()),
            ("i_size_high", size_high),
            ("i_file_acl_high", raw.i_file_acl_high.get().into()),
            ("i_blocks_high", blocks_high.into()),
        ];
        for (name, value) in fields {
            if value != 0 {
                self.add(Code::FieldNotZero, number, || {
                    format!("{name} is {value}, not 0")
                });
            }
        }
        let is_imagic = inode.flags & inode::FLAG_IMAGIC != 0;
        if is_imagic && !features.has_compat(COMPAT_IMAGIC_INODES) {
            self.add(Code::FlagInvalid, number, || {
                "the imagic flag without the feature".into()
            });
        }
        self.check_index_flag(number, inode);
    }

    fn check_index_flag(&mut self, number: InodeNumber, inode: &Inode) {
        let has_feature = self.context.sb.features.has_compat(COMPAT_DIR_INDEX);
        let can_have = inode.is_directory() && has_feature;
        if inode.flags & inode::FLAG_INDEX != 0 && !can_have {
            self.add(Code::FlagInvalid, number, || {
                "the index flag on what cannot be a hashed directory".into()
            });
        }
    }

    /// What lies behind the first 128 bytes.
    fn check_extra(&mut self, number: InodeNumber, inode: &Inode, bytes: &[u8]) {
        if bytes.len() <= BASE_SIZE {
            return;
        }
        let size = u16::from_le_bytes([bytes[BASE_SIZE], bytes[BASE_SIZE + 1]]);
        if size != inode.extra_isize {
            self.add(Code::ExtraSizeInvalid, number, || {
                format!("i_extra_isize is {size}")
            });
            return;
        }
        if let Some(what) = attributes::bad_inline(bytes, size) {
            self.add(Code::XattrInodeInvalid, number, || what);
        }
        if inode::misdated_times(bytes).next().is_some() {
            self.add(Code::TimeInvalid, number, || {
                "a time behind the year 2310, which is one before 1970 written wrongly".into()
            });
        }
    }

    fn walk(&mut self, walk: &mut Walk, inode: &Inode) -> Result<(), CheckError> {
        let mut walker = Walker {
            context: self.context,
            used: self.used,
            findings: &mut self.part.findings,
            directory_blocks: &mut self.part.directory_blocks,
            scratch: &mut self.scratch,
        };
        walker.walk(walk, inode)
    }

    /// Everything that the inode takes, against its size and its block count.
    fn check_blocks(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
        bytes: &[u8],
    ) -> Result<(), CheckError> {
        let attribute_blocks = self.use_attribute_block(number, inode);
        let start = self.part.directory_blocks.len();
        let purpose = match inode.file_type() {
            Some(FileType::Regular) => Some(Purpose::Data),
            Some(FileType::Directory) => Some(Purpose::Directory),
            Some(FileType::Symlink) if full_size(bytes) > FAST_SYMLINK_MAX as u64 => {
                Some(Purpose::Target)
            }
            _ => None,
        };
        let mut walk = Walk::new(number, purpose.unwrap_or(Purpose::Data));
        if number == RESIZE_INODE && purpose.is_some() {
            // Pass 0 has checked its tree. All its blocks but the root are the file system's own,
            // and marked already.
            walk.blocks = match self.context.resize_blocks {
                Some(blocks) => blocks,
                None => reserved::resize_blocks(self.context, inode)?,
            };
            walk.end = reserved::resize_end(self.context.sb);
            let root = BlockNumber(inode.block[inode::DOUBLE_INDIRECT].into());
            if root != BlockNumber::NONE
                && self.context.sb.is_valid_pointer(root)
                && !self.used.insert(root)
            {
                self.add(Code::BlockClaimedTwice, number, || {
                    format!("block {root} is claimed by another pointer too")
                });
            }
        } else if purpose.is_some() {
            self.walk(&mut walk, inode)?;
        }
        if purpose == Some(Purpose::Directory) {
            self.add_directory(number, inode, start, &walk);
        }
        self.check_size(number, inode, bytes, &walk);
        self.check_block_count(number, inode, bytes, walk.blocks + attribute_blocks);
        Ok(())
    }

    fn add_directory(&mut self, number: InodeNumber, inode: &Inode, start: usize, walk: &Walk) {
        if walk.end == 0 {
            self.add(Code::DirectoryEmpty, number, || {
                "a directory without blocks".into()
            });
        }
        let has_feature = self.context.sb.features.has_compat(COMPAT_DIR_INDEX);
        self.part.directories.push(Directory {
            inode: number,
            blocks: start..self.part.directory_blocks.len(),
            mapped_blocks: walk.end,
            has_index: has_feature && inode.flags & inode::FLAG_INDEX != 0,
        });
    }

    /// Counts the inode among the users of its attribute block. Returns how many blocks that adds
    /// to the inode's.
    fn use_attribute_block(&mut self, number: InodeNumber, inode: &Inode) -> u64 {
        let block = inode.file_acl;
        let is_reserved = number < self.context.sb.first_inode && number != ROOT_INODE;
        if block == BlockNumber::NONE || is_reserved && !self.context.sb.is_valid_pointer(block) {
            // No system reads attributes of reserved inodes.
            return 0;
        }
        if !self.context.sb.features.has_compat(COMPAT_EXT_ATTR) {
            self.add(Code::FieldNotZero, number, || {
                "an attribute block, but the ext_attr feature is missing".into()
            });
            return 0;
        }
        if !self.context.sb.is_valid_pointer(block) {
            self.add(Code::BlockOutOfRange, number, || {
                format!("its attribute block {block} does not exist")
            });
            return 0;
        }
        let first = XattrUse {
            count: 0,
            inode: number,
        };
        self.part.xattr_blocks.entry(block).or_insert(first).count += 1;
        1
    }

    /// The size against what is mapped.
    fn check_size(&mut self, number: InodeNumber, inode: &Inode, bytes: &[u8], walk: &Walk) {
        let sb = self.context.sb;
        let block_size = u64::from(sb.block_size);
        let size = full_size(bytes);
        let end = walk.end;
        match inode.file_type() {
            Some(FileType::Symlink) => {}
            Some(FileType::Directory) => {
                let blocks = inode.size / block_size;
                if !inode.size.is_multiple_of(block_size) || blocks > end {
                    self.add(Code::SizeInvalid, number, || {
                        format!("a directory of {} bytes in {end} blocks", inode.size)
                    });
                } else if blocks < end {
                    self.add(Code::SizeBelowMapped, number, || {
                        format!("{blocks} blocks by its size, {end} are mapped")
                    });
                }
            }
            _ if end > 0 && size < (end - 1) * block_size => {
                self.add(Code::SizeBelowMapped, number, || {
                    format!("{size} bytes by its size, {end} blocks are mapped")
                });
            }
            _ if size > mappable_bytes(block_size) => {
                self.add(Code::SizeInvalid, number, || format!("a size of {size}"));
            }
            _ => {}
        }
        let is_regular = inode.file_type() == Some(FileType::Regular);
        self.part.has_large_file |= is_regular && size >= 1 << 31;
    }

    fn check_block_count(&mut self, number: InodeNumber, inode: &Inode, bytes: &[u8], blocks: u64) {
        let sb = self.context.sb;
        let mut found = u64::from(inode.sectors);
        let mut expected = blocks * u64::from(sb.block_size / 512);
        if sb.features.has_ro_compat(RO_COMPAT_HUGE_FILE) {
            if let Ok((raw, _)) = RawInode::ref_from_prefix(bytes) {
                found |= u64::from(raw.i_blocks_high.get()) << 32;
            }
            if inode.flags & inode::FLAG_HUGE_FILE != 0 {
                expected = blocks;
            }
        }
        if found != expected {
            self.add(Code::BlockCountWrong, number, || {
                format!("i_blocks is {found}, should be {expected}")
            });
        }
    }
}

/// Whether an inode is free and always was, or was deleted properly: the quick test before anything
/// is parsed.
fn is_empty(bytes: &[u8]) -> bool {
    bytes[offset::LINKS] == 0
        && bytes[offset::LINKS + 1] == 0
        && bytes[offset::MODE] == 0
        && bytes[offset::MODE + 1] == 0
        && bytes[offset::DTIME..offset::DTIME + 4] == [0; 4]
}

/// The size with its high word, whatever the inode is.
pub(super) fn full_size(bytes: &[u8]) -> u64 {
    RawInode::ref_from_prefix(bytes).map_or(0, |(raw, _)| {
        u64::from(raw.i_size_lo.get()) | u64::from(raw.i_size_high.get()) << 32
    })
}

/// What fifteen pointers can map.
fn mappable_bytes(block_size: u64) -> u64 {
    let pointers = block_size / 4;
    (12 + pointers + pointers.pow(2) + pointers.pow(3)) * block_size
}
