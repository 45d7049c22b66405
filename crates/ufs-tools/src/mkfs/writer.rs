//! Writing a new file system.

use super::log_file::{self, Log, LogPlace, Tree, wide};
use super::{MkfsError, Plan, Wanted};
use crate::group::{self, Contents};
use backstitch_blocks::bitmap;
use backstitch_blocks::directory::{EntryLayout, encode_entry, new_directory_block, required_len};
use backstitch_device::{BlockDevice, Buffer, WriteRequest};
use backstitch_layout::{FileType, GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::{CHUNK_BYTES, UfsEntries, type_code};
use backstitch_ufs::format::inode::{Offsets, POINTERS, SF_IMMUTABLE};
use backstitch_ufs::format::log_record::LOG_RECORD_AT;
use backstitch_ufs::format::superblock::{AREA_BYTES, PLACES};
use backstitch_ufs::format::{
    ByteOrder, OnDisk, ROOT_INODE, RawCylinderGroup, RawSummary, RawSuperblock, SECTOR_BYTES,
    Superblock, Version,
};
use std::ops::Range;

/// Zeros are written in pieces of this size.
const ZEROS_BYTES: u64 = 64 << 10;
/// The mode of the root directory.
const ROOT_MODE: u16 = 0o040_755;
/// The mode of the file that a log is in.
const LOG_MODE: u16 = 0o100_400;
/// Blocks of inodes that UFS2 initialises at once; the others are when they are used first.
const FIRST_INODE_BLOCKS: u32 = 2;

/// Checks a superblock as every mount does.
pub(super) fn parsed(
    raw: &RawSuperblock,
    wanted: &Wanted<'_>,
    device_bytes: u64,
) -> Result<Superblock, MkfsError> {
    let bytes = raw.to_bytes(wanted.order);
    let place = wanted.version.usual_place();
    let sb = Superblock::parse(&bytes, place, device_bytes)?;
    let end = root_fragment(&sb) + u64::from(sb.fragments_per_block);
    if end > u64::from(sb.fragments_in_group(GroupNumber(0))) {
        let what = "the summary and the root do not fit into the first group".to_owned();
        return Err(MkfsError::TooSmall(what));
    }
    Ok(sb)
}

/// Where the root directory's names are: behind the summary, at the start of a block.
fn root_fragment(sb: &Superblock) -> u64 {
    let end = sb.summary_fragments().end;
    end.next_multiple_of(sb.fragments_per_block.into())
}

/// The first fragment behind what every new file system has.
pub(super) fn first_free(sb: &Superblock) -> u64 {
    root_fragment(sb) + u64::from(sb.fragments_per_block)
}

/// Writes everything that the superblock says, and the superblock last, which is the commit point.
pub(super) fn write(
    wanted: &Wanted<'_>,
    plan: Plan,
    device: &dyn BlockDevice,
) -> Result<Superblock, MkfsError> {
    let Plan { raw, sb, log } = plan;
    let tree = Tree::new(&sb, &log);
    let mut writer = Writer {
        wanted,
        sb: &sb,
        log: &log,
        tree: &tree,
        raw,
        device,
        summaries: Vec::new(),
    };
    writer.clear_places()?;
    for group in GroupNumber::all(sb.groups) {
        writer.group(group)?;
    }
    writer.root()?;
    writer.log()?;
    writer.summaries()?;
    writer.copies()?;
    device.flush()?;
    let bytes = writer.superblock();
    writer.put(sb.place, bytes.clone())?;
    device.flush()?;
    Ok(Superblock::parse(&bytes, sb.place, device.size_bytes())?)
}

/// An inode that is not empty.
struct NewInode {
    mode: u16,
    links: u16,
    owner: (u32, u32),
    size: u64,
    fragments: u64,
    flags: u32,
    pointers: [u64; POINTERS],
}

struct Writer<'a> {
    wanted: &'a Wanted<'a>,
    sb: &'a Superblock,
    log: &'a Log,
    /// The map of the file that the log is in, if it is in one.
    tree: &'a Tree<'a>,
    raw: RawSuperblock,
    device: &'a dyn BlockDevice,
    summaries: Vec<RawSummary>,
}

impl Writer<'_> {
    fn put(&self, offset_bytes: u64, bytes: Vec<u8>) -> Result<(), MkfsError> {
        let buffers = vec![Buffer::from(bytes)];
        let request = WriteRequest {
            offset_bytes,
            buffers,
        };
        Ok(self.device.submit(&[request])?)
    }

    fn put_fragment(&self, fragment: u64, bytes: Vec<u8>) -> Result<(), MkfsError> {
        self.put(fragment * u64::from(self.sb.fragment_bytes), bytes)
    }

    fn zeros(&self, range: Range<u64>) -> Result<(), MkfsError> {
        if self.wanted.mkfs.device_is_zero {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(ZEROS_BYTES);
            self.put(at, vec![0; len as usize])?;
            at += len;
        }
        Ok(())
    }

    /// Removes what another file system may have left where one is recognised.
    fn clear_places(&self) -> Result<(), MkfsError> {
        let end = self.device.size_bytes();
        let area = AREA_BYTES as u64;
        // Also copies of an earlier file system, up to where this one's first group begins.
        let first = self.sb.group_header(GroupNumber(0)) * u64::from(self.sb.fragment_bytes);
        let start = self.wanted.mkfs.first_byte();
        self.zeros(start..first.min(end))?;
        for place in PLACES.into_iter().filter(|place| *place >= first) {
            self.zeros(place.min(end)..(place + area).min(end))?;
        }
        Ok(self.device.flush()?)
    }

    /// Writes a group's header and inodes.
    fn group(&mut self, group: GroupNumber) -> Result<(), MkfsError> {
        let sb = self.sb;
        let inodes_per_block = sb.inodes_per_block;
        let initialised = match sb.version {
            Version::Ufs1 => sb.inodes_per_group,
            Version::Ufs2 => sb
                .inodes_per_group
                .min(FIRST_INODE_BLOCKS * inodes_per_block),
        };
        let time = self.wanted.mkfs.time_seconds;
        let kept = RawCylinderGroup {
            cg_old_time: match sb.version {
                Version::Ufs1 => time as i32,
                Version::Ufs2 => 0,
            },
            cg_time: match sb.version {
                Version::Ufs1 => 0,
                Version::Ufs2 => time as i64,
            },
            cg_initediblk: initialised,
            ..RawCylinderGroup::default()
        };
        let mut inodes = group::empty_inode_map(sb, group);
        let mut free = free_map(sb, group);
        if group.0 == 0 {
            let root = root_fragment(self.sb) as usize;
            bitmap::clear(&mut free, root);
            bitmap::set(&mut inodes, ROOT_INODE.0 as usize);
            if self.has_log_file() {
                bitmap::set(&mut inodes, log_file::INODE.0 as usize);
            }
        }
        for fragment in self.log.in_group(sb, group).into_iter().flatten() {
            bitmap::clear(&mut free, fragment);
        }
        let contents = Contents {
            group,
            inodes: &inodes,
            free: &free,
            directories: u32::from(group.0 == 0),
            kept: &kept,
        };
        let bytes = group::block(sb, &contents);
        let header = RawCylinderGroup::decode(sb.order, &bytes);
        self.summaries.push(header.cg_cs);
        self.put_fragment(sb.group_header(group), bytes)?;
        for block in 0..initialised / inodes_per_block {
            let first = group.0 * sb.inodes_per_group + block * inodes_per_block;
            let at = sb.group_inodes(group) + u64::from(block * sb.fragments_per_block);
            self.put_fragment(at, self.inode_block(first))?;
        }
        Ok(())
    }

    /// A block of inodes that are free, each with a generation that nobody can guess from another.
    fn inode_block(&self, first: u32) -> Vec<u8> {
        let sb = self.sb;
        let mut bytes = vec![0; sb.block_bytes as usize];
        let inode_bytes = sb.version.inode_bytes();
        let offset = Offsets::of(sb.version).generation;
        for (index, inode) in bytes.chunks_exact_mut(inode_bytes).enumerate() {
            let number = InodeNumber(first + index as u32);
            if number < ROOT_INODE {
                continue;
            }
            let generation = generation(&self.wanted.mkfs.hash_seed, number);
            inode[offset..offset + 4].copy_from_slice(&sb.order.bytes_of_u32(generation));
            if number == ROOT_INODE {
                self.fill(inode, &self.root_inode());
            } else if number == log_file::INODE && self.has_log_file() {
                self.fill(inode, &self.log_inode());
            }
        }
        bytes
    }

    fn has_log_file(&self) -> bool {
        self.wanted.log == Some(LogPlace::File)
    }

    fn root_inode(&self) -> NewInode {
        let mut pointers = [0; POINTERS];
        pointers[0] = root_fragment(self.sb);
        NewInode {
            mode: ROOT_MODE,
            links: 2,
            owner: (self.wanted.mkfs.root_uid, self.wanted.mkfs.root_gid),
            size: CHUNK_BYTES as u64,
            fragments: 1,
            flags: 0,
            pointers,
        }
    }

    /// Nobody may change the file but who writes the log.
    fn log_inode(&self) -> NewInode {
        let blocks = self.log.taken.len() as u64;
        NewInode {
            mode: LOG_MODE,
            links: 1,
            owner: (0, 0),
            size: self.log.blocks * u64::from(self.sb.block_bytes),
            fragments: blocks * u64::from(self.sb.fragments_per_block),
            flags: SF_IMMUTABLE,
            pointers: self.tree.pointers,
        }
    }

    fn fill(&self, inode: &mut [u8], new: &NewInode) {
        let (sb, mkfs) = (self.sb, self.wanted.mkfs);
        let at = Offsets::of(sb.version);
        let order = sb.order;
        let mut put = |at: usize, bytes: &[u8]| inode[at..at + bytes.len()].copy_from_slice(bytes);
        put(at.mode, &order.bytes_of_u16(new.mode));
        put(at.links, &order.bytes_of_u16(new.links));
        put(at.uid, &order.bytes_of_u32(new.owner.0));
        put(at.gid, &order.bytes_of_u32(new.owner.1));
        put(at.size, &order.bytes_of_u64(new.size));
        put(at.flags, &order.bytes_of_u32(new.flags));
        let sectors = new.fragments * u64::from(sb.fragment_bytes) / SECTOR_BYTES;
        let wide = |value: u64| wide(sb, value);
        put(at.sectors, &wide(sectors));
        for (index, pointer) in new.pointers.iter().enumerate() {
            put(at.pointer(sb.version, index), &wide(*pointer));
        }
        let times = [
            Some(at.accessed),
            Some(at.modified),
            Some(at.changed),
            at.created,
        ];
        for (seconds, _) in times.into_iter().flatten() {
            put(seconds, &wide(mkfs.time_seconds));
        }
    }

    fn root(&self) -> Result<(), MkfsError> {
        let mut bytes = match self.sb.order {
            ByteOrder::Little => self.root_names::<UfsEntries<false>>(),
            ByteOrder::Big => self.root_names::<UfsEntries<true>>(),
        };
        bytes.resize(self.sb.fragment_bytes as usize, 0);
        self.put_fragment(root_fragment(self.sb), bytes)
    }

    fn root_names<L: EntryLayout>(&self) -> Vec<u8> {
        let code = type_code(FileType::Directory);
        let mut bytes = new_directory_block::<L>(CHUNK_BYTES, ROOT_INODE, ROOT_INODE, code);
        if self.has_log_file() {
            let dot = required_len::<L>(1);
            bytes.truncate(dot);
            bytes.extend(encode_entry::<L>(ROOT_INODE, code, b"..", dot));
            let code = type_code(FileType::Regular);
            let rest = CHUNK_BYTES - bytes.len();
            bytes.extend(encode_entry::<L>(
                log_file::INODE,
                code,
                log_file::NAME,
                rest,
            ));
        }
        bytes
    }

    /// The file with an empty log, or the log behind the file system. The rest of the file is zeros,
    /// so that nothing that was there before shows.
    fn log(&self) -> Result<(), MkfsError> {
        let block_bytes = self.sb.block_bytes as usize;
        if self.log.behind_bytes > 0 {
            let end_bytes = self.sb.fragments * u64::from(self.sb.fragment_bytes);
            self.log.write_behind(self.wanted, self.device, end_bytes)?;
        }
        if !self.has_log_file() {
            return Ok(());
        }
        let bytes = self.log.blocks * u64::from(self.sb.block_bytes);
        let start = log_file::superblocks(self.wanted, bytes);
        for (index, block) in self.tree.data.iter().enumerate() {
            let from = (index * block_bytes).min(start.len());
            let to = (from + block_bytes).min(start.len());
            let at = block * u64::from(self.sb.fragment_bytes);
            self.zeros(at..at + block_bytes as u64)?;
            if from < to {
                self.put(at, start[from..to].to_vec())?;
            }
        }
        for (block, bytes) in &self.tree.indirect {
            self.put_fragment(*block, bytes.clone())?;
        }
        Ok(())
    }

    fn summaries(&mut self) -> Result<(), MkfsError> {
        let sb = self.sb;
        let mut bytes = vec![0; sb.summary_bytes as usize];
        for (summary, to) in self
            .summaries
            .iter()
            .zip(bytes.chunks_exact_mut(RawSummary::SIZE))
        {
            summary.encode(sb.order, to);
            self.raw.fs_cstotal.add(summary);
        }
        if sb.version == Version::Ufs1 {
            let total = &self.raw.fs_cstotal;
            self.raw.fs_old_cstotal = RawSummary {
                cs_ndir: total.cs_ndir as i32,
                cs_nbfree: total.cs_nbfree as i32,
                cs_nifree: total.cs_nifree as i32,
                cs_nffree: total.cs_nffree as i32,
            };
        }
        self.put_fragment(sb.summary_at, bytes)
    }

    /// The superblock's bytes, with our record of a log behind it.
    fn superblock(&self) -> Vec<u8> {
        let mut bytes = self.raw.to_bytes(self.sb.order);
        if let Some(record) = self.log.record(self.wanted) {
            bytes.resize(LOG_RECORD_AT, 0);
            bytes.extend(record.encode(self.sb.order));
        }
        bytes
    }

    /// Writes the superblock's copy in each group.
    fn copies(&self) -> Result<(), MkfsError> {
        let bytes = self.superblock();
        for group in GroupNumber::all(self.sb.groups) {
            self.put_fragment(self.sb.superblock_copy(group), bytes.clone())?;
        }
        Ok(())
    }
}

/// The free fragments of a group that has nothing but its own structures, and the summary.
fn free_map(sb: &Superblock, group: GroupNumber) -> Vec<u8> {
    let mut map = vec![0; (sb.fragments_per_group as usize).div_ceil(8)];
    let start = sb.group_start(group);
    bitmap::set_range(&mut map, 0, sb.fragments_in_group(group) as usize);
    let summary = (group.0 == 0).then(|| sb.summary_fragments());
    for fragment in sb.own_fragments(group).chain(summary.into_iter().flatten()) {
        bitmap::clear(&mut map, (fragment - start) as usize);
    }
    map
}

/// A number that looks random, from the seed and the inode's (splitmix64).
fn generation(seed: &[u8; 16], inode: InodeNumber) -> u32 {
    let (low, high) = seed.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    let step = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(inode.0) + 1);
    let mut mixed = word(low) ^ word(high).rotate_left(32) ^ step;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    // 0 says that there is none.
    ((mixed ^ mixed >> 31) as u32).max(1)
}
