//! Writing a new file system.

use super::{Geometry, Mkfs, MkfsError, log_file};
use backstitch_device::{BlockDevice, Buffer, WriteRequest};
use backstitch_ext::format::directory;
use backstitch_ext::format::features::{INCOMPAT_FILETYPE, RO_COMPAT_LARGE_FILE};
use backstitch_ext::format::group::{FLAG_INODE_TABLE_ZEROED, RawGroupDescriptor};
use backstitch_ext::format::inode::{
    BASE_SIZE, DIRECT_POINTERS, DOUBLE_INDIRECT, EXTRA_SIZE, RawInode, RawInodeExtra, encode_time,
};
use backstitch_ext::format::log_record::LogRecord;
use backstitch_ext::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use backstitch_ext::format::{
    FIRST_LOG_INODE, GOOD_OLD_FIRST_INODE, JOURNAL_INODE, RESIZE_INODE, ROOT_INODE, bitmap,
};
use backstitch_ext::journal::BACKUP_BLOCKS;
use backstitch_layout::{BlockNumber, FileType, GroupNumber, InodeNumber, Timestamp};
use std::ops::Range;
use zerocopy::{FromZeros, IntoBytes};

/// Batches are handed to the device when they have this many bytes.
const BATCH_BYTES: u64 = 4 << 20;
/// Zeros are written in pieces of this size.
const ZEROS_BYTES: usize = 64 << 10;
/// lost+found is the first inode that is not reserved.
const LOST_AND_FOUND_INODE: InodeNumber = GOOD_OLD_FIRST_INODE;

/// Writes everything that the geometry says.
pub(super) fn write(
    options: &Mkfs,
    geometry: &Geometry,
    device: &dyn BlockDevice,
) -> Result<Superblock, MkfsError> {
    let mut writer = Writer::new(options, geometry, device);
    writer.clear_start()?;
    writer.write_files()?;
    writer.write_groups()?;
    writer.write_descriptors()?;
    writer.finish()
}

/// Collects writes into batches.
struct Batch<'a> {
    device: &'a dyn BlockDevice,
    requests: Vec<WriteRequest>,
    bytes: u64,
}

impl Batch<'_> {
    fn push(&mut self, offset_bytes: u64, buffers: Vec<Buffer>) -> Result<(), MkfsError> {
        let request = WriteRequest {
            offset_bytes,
            buffers,
        };
        self.bytes += request.len_bytes();
        self.requests.push(request);
        if self.bytes >= BATCH_BYTES {
            self.submit()
        } else {
            Ok(())
        }
    }

    fn submit(&mut self) -> Result<(), MkfsError> {
        if !self.requests.is_empty() {
            self.device.submit(&self.requests)?;
        }
        self.requests.clear();
        self.bytes = 0;
        Ok(())
    }
}

pub(super) struct Writer<'a> {
    pub(super) options: &'a Mkfs,
    pub(super) geometry: &'a Geometry,
    pub(super) sb: &'a Superblock,
    batch: Batch<'a>,
    zeros: Buffer,
    /// Blocks that the first files got, in ascending order.
    allocated: Vec<BlockNumber>,
    /// The inodes that are not empty, with their bytes.
    inodes: Vec<(InodeNumber, Vec<u8>)>,
    /// The free blocks of all groups, known once the first files are written.
    free_blocks_total: u64,
    /// The journal's pointers and size, for the superblock's copy.
    pub(super) journal: Option<[u32; 17]>,
}

impl<'a> Writer<'a> {
    fn new(options: &'a Mkfs, geometry: &'a Geometry, device: &'a dyn BlockDevice) -> Writer<'a> {
        Writer {
            options,
            geometry,
            sb: &geometry.superblock,
            batch: Batch {
                device,
                requests: Vec::new(),
                bytes: 0,
            },
            zeros: Buffer::zeroed(ZEROS_BYTES),
            allocated: Vec::new(),
            inodes: Vec::new(),
            free_blocks_total: 0,
            journal: None,
        }
    }

    pub(super) fn block_size(&self) -> usize {
        self.sb.block_size as usize
    }

    pub(super) fn write_block(
        &mut self,
        block: BlockNumber,
        bytes: Vec<u8>,
    ) -> Result<(), MkfsError> {
        self.batch
            .push(self.sb.block_offset(block), vec![bytes.into()])
    }

    /// Writes zeros unless they are there already.
    fn write_zeros(&mut self, bytes: Range<u64>) -> Result<(), MkfsError> {
        if self.options.device_is_zero {
            return Ok(());
        }
        let mut at = bytes.start;
        while at < bytes.end {
            let length = (bytes.end - at).min(ZEROS_BYTES as u64);
            let zeros = match length as usize {
                ZEROS_BYTES => self.zeros.clone(),
                length => Buffer::from(&self.zeros[..length]),
            };
            self.batch.push(at, vec![zeros])?;
            at += length;
        }
        Ok(())
    }

    pub(super) fn write_zero_blocks(
        &mut self,
        blocks: Range<BlockNumber>,
    ) -> Result<(), MkfsError> {
        let [start, end] = [blocks.start, blocks.end].map(|block| self.sb.block_offset(block));
        self.write_zeros(start..end)
    }

    /// Clears the places where another file system would be recognised, the superblock's included.
    /// Until the new superblock is written, last, the device holds no file system.
    fn clear_start(&mut self) -> Result<(), MkfsError> {
        self.write_zeros(self.options.first_byte()..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64)?;
        self.batch.submit()
    }

    /// Takes free blocks, in order, skipping what belongs to the groups.
    pub(super) fn allocate(&mut self, count: u32) -> Vec<BlockNumber> {
        let mut taken = Vec::new();
        for group in GroupNumber::all(self.sb.groups) {
            let first = self.sb.group_first_block(group);
            let data = first + self.geometry.overhead_of_group(group);
            let end = first + u64::from(self.sb.blocks_in_group(group));
            let start = self
                .allocated
                .last()
                .map_or(data, |last| data.max(*last + 1));
            for block in start.up_to(end) {
                if taken.len() == count as usize {
                    return taken;
                }
                taken.push(block);
                self.allocated.push(block);
            }
        }
        taken
    }

    /// The root directory, lost+found and the resize inode.
    fn write_files(&mut self) -> Result<(), MkfsError> {
        let root = self.allocate(1);
        let lost_and_found = self.allocate(self.geometry.lost_and_found_blocks);
        self.write_root(&root)?;
        self.write_lost_and_found(&lost_and_found)?;
        if self.geometry.has_resize_inode() {
            self.write_resize_inode()?;
        }
        if self.geometry.journal_blocks > 0 {
            self.write_journal()?;
        }
        if self.geometry.log_blocks > 0 {
            self.write_log_file()?;
        }
        self.free_blocks_total = GroupNumber::all(self.sb.groups)
            .map(|group| self.free_blocks(group))
            .sum();
        Ok(())
    }

    /// The last inode that is in use.
    fn last_inode(&self) -> InodeNumber {
        match self.geometry.log_blocks {
            0 => LOST_AND_FOUND_INODE,
            _ => FIRST_LOG_INODE,
        }
    }

    fn directory_code(&self) -> u8 {
        if self.sb.features.has_incompat(INCOMPAT_FILETYPE) {
            directory::type_code(FileType::Directory)
        } else {
            directory::TYPE_UNKNOWN
        }
    }

    fn write_root(&mut self, blocks: &[BlockNumber]) -> Result<(), MkfsError> {
        let code = self.directory_code();
        let name = b"lost+found";
        let mut block =
            directory::new_directory_block(self.block_size(), ROOT_INODE, ROOT_INODE, code);
        let dots = 2 * directory::required_len(1);
        let mut at = dots;
        let mut rest = self.block_size() - dots;
        if self.geometry.log_blocks > 0 {
            let code = match self.directory_code() {
                directory::TYPE_UNKNOWN => directory::TYPE_UNKNOWN,
                _ => directory::type_code(FileType::Regular),
            };
            let len = directory::required_len(log_file::NAME.len());
            let entry = directory::encode_entry(FIRST_LOG_INODE, code, log_file::NAME, len);
            block[at..at + entry.len()].copy_from_slice(&entry);
            (at, rest) = (at + len, rest - len);
        }
        let entry = directory::encode_entry(LOST_AND_FOUND_INODE, code, name, rest);
        block[at..at + entry.len()].copy_from_slice(&entry);
        let rec_len = directory::encode_rec_len(dots / 2).to_le_bytes();
        block[dots / 2 + directory::OFFSET_REC_LEN..][..2].copy_from_slice(&rec_len);
        let mut raw = self.new_inode(0o040_755, 3, blocks);
        let (uid, gid) = (self.options.root_uid, self.options.root_gid);
        raw.i_uid = (uid as u16).into();
        raw.i_uid_high = ((uid >> 16) as u16).into();
        raw.i_gid = (gid as u16).into();
        raw.i_gid_high = ((gid >> 16) as u16).into();
        self.add_inode(ROOT_INODE, &raw);
        self.write_block(blocks[0], block)
    }

    fn write_lost_and_found(&mut self, blocks: &[BlockNumber]) -> Result<(), MkfsError> {
        let block_size = self.block_size();
        let code = self.directory_code();
        let first =
            directory::new_directory_block(block_size, LOST_AND_FOUND_INODE, ROOT_INODE, code);
        self.write_block(blocks[0], first)?;
        for block in &blocks[1..] {
            self.write_block(*block, directory::empty_block(block_size))?;
        }
        let raw = self.new_inode(0o040_700, 2, blocks);
        self.add_inode(LOST_AND_FOUND_INODE, &raw);
        Ok(())
    }

    /// The resize inode maps the blocks kept for descriptors: its double indirect block points to
    /// the ones behind the primary table, each of which, as an indirect block, points to its
    /// counterparts in the backup groups.
    fn write_resize_inode(&mut self) -> Result<(), MkfsError> {
        let tree = self.allocate(1)[0];
        let pointers = self.block_size() / 4;
        let descriptor_blocks = self.sb.descriptor_blocks as usize;
        let reserved = self.sb.reserved_gdt_blocks as usize;
        let backups: Vec<u64> = GroupNumber::all(self.sb.groups)
            .skip(1)
            .filter(|group| self.sb.has_super(*group))
            .map(|group| u64::from(group.0) * u64::from(self.sb.blocks_per_group))
            .collect();
        let mut tree_block = vec![0; self.block_size()];
        for index in 0..reserved {
            let slot = (descriptor_blocks + index) % pointers;
            let block = self.sb.first_data_block + 1 + (descriptor_blocks + index) as u64;
            put_pointer(&mut tree_block, slot, block);
            let mut indirect = vec![0; self.block_size()];
            for (slot, distance) in backups.iter().take(pointers).enumerate() {
                put_pointer(&mut indirect, slot, block + *distance);
            }
            self.write_block(block, indirect)?;
        }
        self.write_block(tree, tree_block)?;
        let mut raw = self.new_inode(0o100_600, 1, &[]);
        let per_block = self.sb.block_size / 512;
        let blocks = 1 + reserved * (1 + backups.len().min(pointers));
        raw.i_blocks_lo = (blocks as u32 * per_block).into();
        raw.i_block[DOUBLE_INDIRECT] = (tree.0 as u32).into();
        let mapped = (DIRECT_POINTERS + pointers + pointers * pointers) as u64;
        let size = mapped << self.sb.block_size_bits;
        raw.i_size_lo = (size as u32).into();
        raw.i_size_high = ((size >> 32) as u32).into();
        debug_assert!(
            size >> 32 == 0 || self.sb.features.has_ro_compat(RO_COMPAT_LARGE_FILE),
            "the geometry sets large_file"
        );
        self.add_inode(RESIZE_INODE, &raw);
        Ok(())
    }

    /// An inode with these direct blocks, owned by root, all times now.
    pub(super) fn new_inode(&self, mode: u16, links: u16, blocks: &[BlockNumber]) -> RawInode {
        let mut raw = RawInode::new_zeroed();
        let (seconds, _) = encode_time(self.now(), self.has_extra());
        raw.i_mode = mode.into();
        raw.i_links_count = links.into();
        raw.i_size_lo = (blocks.len() as u32 * self.sb.block_size).into();
        raw.i_blocks_lo = (blocks.len() as u32 * (self.sb.block_size / 512)).into();
        (raw.i_atime, raw.i_ctime, raw.i_mtime) = (seconds.into(), seconds.into(), seconds.into());
        for (pointer, block) in raw.i_block.iter_mut().zip(blocks) {
            *pointer = (block.0 as u32).into();
        }
        raw
    }

    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: self.options.time_seconds as i64,
            nanoseconds: 0,
        }
    }

    fn has_extra(&self) -> bool {
        self.sb.inode_size as usize > BASE_SIZE
    }

    pub(super) fn add_inode(&mut self, number: InodeNumber, raw: &RawInode) {
        let mut bytes = raw.as_bytes().to_vec();
        if self.has_extra() {
            let (seconds, epoch) = encode_time(self.now(), true);
            let mut extra = RawInodeExtra::new_zeroed();
            extra.i_extra_isize = (EXTRA_SIZE as u16).into();
            extra.i_atime_extra = epoch.into();
            extra.i_ctime_extra = epoch.into();
            extra.i_mtime_extra = epoch.into();
            extra.i_crtime = seconds.into();
            extra.i_crtime_extra = epoch.into();
            bytes.extend_from_slice(extra.as_bytes());
        }
        self.inodes.push((number, bytes));
    }

    /// Bitmaps and inode table of every group.
    fn write_groups(&mut self) -> Result<(), MkfsError> {
        for group in GroupNumber::all(self.sb.groups) {
            let first = self.sb.group_first_block(group);
            let block_bitmap = first + u64::from(self.sb.super_blocks_in_group(group));
            let bitmaps = vec![
                self.block_bitmap(group).into(),
                self.inode_bitmap(group).into(),
            ];
            self.batch
                .push(self.sb.block_offset(block_bitmap), bitmaps)?;
            self.write_inode_table(group, block_bitmap + 2)?;
        }
        Ok(())
    }

    /// What the first files got of a group.
    fn allocated_in_group(&self, group: GroupNumber) -> &[BlockNumber] {
        let first = self.sb.group_first_block(group);
        let end = first + u64::from(self.sb.blocks_in_group(group));
        let place = |block| self.allocated.partition_point(|taken| *taken < block);
        &self.allocated[place(first)..place(end)]
    }

    fn block_bitmap(&self, group: GroupNumber) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size()];
        let first = self.sb.group_first_block(group);
        let blocks = self.sb.blocks_in_group(group) as usize;
        bitmap::set_range(
            &mut bytes,
            0,
            self.geometry.overhead_of_group(group) as usize,
        );
        for block in self.allocated_in_group(group) {
            bitmap::set(&mut bytes, (*block - first) as usize);
        }
        // What lies behind the group's end cannot be allocated.
        bitmap::set_range(&mut bytes, blocks, self.block_size() * 8);
        bytes
    }

    fn inode_bitmap(&self, group: GroupNumber) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size()];
        for inode in InodeNumber::FIRST.through(self.last_inode()) {
            if self.sb.group_of_inode(inode) == group {
                bitmap::set(&mut bytes, self.sb.index_in_group(inode) as usize);
            }
        }
        let inodes = self.sb.inodes_per_group as usize;
        bitmap::set_range(&mut bytes, inodes, self.block_size() * 8);
        bytes
    }

    /// The blocks with inodes in them, and zeros for the others.
    fn write_inode_table(
        &mut self,
        group: GroupNumber,
        table: BlockNumber,
    ) -> Result<(), MkfsError> {
        let mut used: Vec<(u64, Vec<u8>)> = Vec::new();
        for (number, bytes) in &self.inodes {
            if self.sb.group_of_inode(*number) != group {
                continue;
            }
            let (block, offset) = self.sb.inode_position(*number);
            let index = match used.iter().position(|(known, _)| *known == block) {
                Some(index) => index,
                None => {
                    used.push((block, vec![0; self.sb.block_size as usize]));
                    used.len() - 1
                }
            };
            used[index].1[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        used.sort_by_key(|(block, _)| *block);
        let mut next = 0;
        for (block, bytes) in used {
            self.write_zero_blocks(table + next..table + block)?;
            self.write_block(table + block, bytes)?;
            next = block + 1;
        }
        self.write_zero_blocks(table + next..table + u64::from(self.sb.inode_table_blocks))
    }

    /// The free blocks of a group once the first files have theirs.
    fn free_blocks(&self, group: GroupNumber) -> u64 {
        let used = self.allocated_in_group(group).len() as u64;
        self.geometry.free_in_group(group) - used
    }

    fn free_inodes(&self, group: GroupNumber) -> u32 {
        let used = InodeNumber::FIRST
            .through(self.last_inode())
            .filter(|i| self.sb.group_of_inode(*i) == group);
        self.sb.inodes_per_group - used.count() as u32
    }

    fn descriptor(&self, group: GroupNumber) -> RawGroupDescriptor {
        let first = self.sb.group_first_block(group);
        let block_bitmap = first + u64::from(self.sb.super_blocks_in_group(group));
        let directories = [ROOT_INODE, LOST_AND_FOUND_INODE];
        let own = directories
            .iter()
            .filter(|inode| self.sb.group_of_inode(**inode) == group);
        let mut raw = RawGroupDescriptor::new_zeroed();
        raw.bg_block_bitmap_lo = (block_bitmap.0 as u32).into();
        raw.bg_inode_bitmap_lo = (block_bitmap.0 as u32 + 1).into();
        raw.bg_inode_table_lo = (block_bitmap.0 as u32 + 2).into();
        raw.bg_free_blocks_count_lo = (self.free_blocks(group) as u16).into();
        raw.bg_free_inodes_count_lo = (self.free_inodes(group) as u16).into();
        raw.bg_used_dirs_count_lo = (own.count() as u16).into();
        raw.bg_flags = FLAG_INODE_TABLE_ZEROED.into();
        raw
    }

    /// The descriptor table behind every superblock, and the backups of the superblock.
    fn write_descriptors(&mut self) -> Result<(), MkfsError> {
        let mut table = vec![0; self.sb.descriptor_blocks as usize * self.block_size()];
        for group in GroupNumber::all(self.sb.groups) {
            let start = group.index() * size_of::<RawGroupDescriptor>();
            let end = start + size_of::<RawGroupDescriptor>();
            table[start..end].copy_from_slice(self.descriptor(group).as_bytes());
        }
        let table: Buffer = table.into();
        for group in GroupNumber::all(self.sb.groups).filter(|group| self.sb.has_super(*group)) {
            let first = self.sb.group_first_block(group);
            let behind = self.sb.block_offset(first + 1);
            self.batch.push(behind, vec![table.clone()])?;
            if group.0 > 0 {
                let mut block = self.superblock(group).to_vec();
                block.resize(self.block_size(), 0);
                self.write_block(first, block)?;
                // Blocks kept for growing: the backups' are data of the resize inode.
                let reserved = first + 1 + u64::from(self.sb.descriptor_blocks);
                let count = u64::from(self.sb.reserved_gdt_blocks);
                self.write_zero_blocks(reserved..reserved + count)?;
            }
        }
        self.batch.submit()
    }

    /// The superblock's bytes for a group's copy, with the free counts.
    fn superblock(&self, group: GroupNumber) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = self.geometry.raw;
        let free_blocks: u64 = GroupNumber::all(self.sb.groups)
            .map(|group| self.free_blocks(group))
            .sum();
        raw.s_free_blocks_count_lo = (free_blocks as u32).into();
        raw.s_free_inodes_count = (self.sb.inodes_count - self.last_inode().0).into();
        if self.geometry.log_blocks > 0 {
            let (inode, uuid) = (FIRST_LOG_INODE, [0; 16]);
            raw.s_backstitch_log = LogRecord { inode, uuid }.encode();
        } else if self.geometry.behind_bytes > 0 {
            let (inode, uuid) = (InodeNumber::NONE, log_file::uuid(self.options));
            raw.s_backstitch_log = LogRecord { inode, uuid }.encode();
        }
        if let Some(copy) = self.journal {
            raw.s_journal_inum = JOURNAL_INODE.0.into();
            raw.s_jnl_backup_type = BACKUP_BLOCKS;
            raw.s_jnl_blocks = copy.map(Into::into);
        }
        if self.sb.revision > 0 {
            raw.s_block_group_nr = (group.0 as u16).into();
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The primary superblock, once all else is stable.
    ///
    /// The commit point of mkfs.
    fn finish(mut self) -> Result<Superblock, MkfsError> {
        self.batch.submit()?;
        let behind_bytes = self.geometry.behind_bytes;
        if behind_bytes > 0 {
            let end_bytes = self.sb.blocks_count << self.sb.block_size_bits;
            log_file::write_behind(self.options, self.batch.device, end_bytes, behind_bytes)?;
        }
        self.batch.device.flush()?;
        let bytes = self.superblock(GroupNumber(0));
        self.batch.device.write(SUPERBLOCK_OFFSET, &bytes)?;
        self.batch.device.flush()?;
        Ok(Superblock::parse(&bytes, self.batch.device.size_bytes())?)
    }
}

/// Sets pointer `slot` of an indirect block.
pub(super) fn put_pointer(block: &mut [u8], slot: usize, target: BlockNumber) {
    block[slot * 4..slot * 4 + 4].copy_from_slice(&(target.0 as u32).to_le_bytes());
}
