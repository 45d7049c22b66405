//! The superblock: 1376 bytes in an area of 8192, with a copy in each cylinder group.

use super::fault::SuperblockFault;
use super::log_record::{LOG_RECORD_END, LogRecord};
use super::order::{ByteOrder, OnDisk};
use super::record::MountRecord;
use super::{FormatError, not_ufs};
use backstitch_layout::{GroupNumber, InodeNumber, Structure};
use core::mem::offset_of;
use std::ops::Range;

mod check;
mod older;
mod raw;
#[cfg(test)]
mod tests;

pub use older::is_possible_extent;
pub use raw::RawSuperblock;

/// `fs_magic` of UFS1.
pub const MAGIC_UFS1: i32 = 0x0001_1954;
/// `fs_magic` of UFS2.
pub const MAGIC_UFS2: i32 = 0x1954_0119;
/// Where a superblock may be on the device, in the order in which they are tried.
pub const PLACES: [u64; 4] = [65_536, 8_192, 0, 262_144];
/// The bytes of the area that a superblock lies in.
pub const AREA_BYTES: usize = 8_192;
/// The bytes of the superblock itself.
pub const SUPERBLOCK_BYTES: usize = RawSuperblock::SIZE;
/// The bytes that a superblock is [parsed](Superblock::parse) from: with our records behind it.
pub const READ_BYTES: usize = LOG_RECORD_END;
const OFFSET_MAGIC: usize = offset_of!(RawSuperblock, fs_magic);

/// `fs_flags`: not clean when it was mounted.
pub const FLAG_UNCLEAN: u32 = 0x1;
/// `fs_flags`: managed by soft updates.
pub const FLAG_SOFT_UPDATES: u32 = 0x2;
/// `fs_flags`: a check without a mount is needed.
pub const FLAG_NEEDS_CHECK: u32 = 0x4;
/// `fs_flags`: soft updates keep a journal.
pub const FLAG_JOURNAL: u32 = 0x8;
/// `fs_flags`: POSIX.1e access control lists.
pub const FLAG_ACLS: u32 = 0x10;
/// `fs_flags`: labels of the MAC framework.
pub const FLAG_MULTILABEL: u32 = 0x20;
/// `fs_flags`: journaled below the file system (`gjournal`).
pub const FLAG_GJOURNAL: u32 = 0x40;
/// `fs_old_flags`: the flags are in `fs_flags`.
pub const OLD_FLAG_MOVED: u8 = 0x80;
/// `fs_flags`: NFSv4 access control lists.
pub const FLAG_NFS4_ACLS: u32 = 0x100;
/// `fs_flags`: metadata has check hashes.
pub const FLAG_CHECK_HASHES: u32 = 0x200;
/// `fs_flags`: freed blocks are told to the device.
pub const FLAG_TRIM: u32 = 0x400;

/// All flags that are known here. Those of the old place may have been copied with the mark that they
/// have moved.
const FLAGS_KNOWN: u32 = FLAG_UNCLEAN
    | FLAG_SOFT_UPDATES
    | FLAG_NEEDS_CHECK
    | FLAG_JOURNAL
    | FLAG_ACLS
    | FLAG_MULTILABEL
    | FLAG_GJOURNAL
    | OLD_FLAG_MOVED as u32
    | FLAG_NFS4_ACLS
    | FLAG_CHECK_HASHES
    | FLAG_TRIM;
/// Flags that tell of a mount, and which our record has as they were before.
const FLAGS_OF_MOUNT: u32 = FLAG_UNCLEAN | FLAG_SOFT_UPDATES | FLAG_NEEDS_CHECK;

/// Where a field of the superblock lies.
macro_rules! field {
    ($($name:ident = $field:ident $bytes:literal;)*) => {
        $(
            #[doc = concat!("`", stringify!($field), "` (", $bytes, " bytes).")]
            pub const $name: usize = offset_of!(RawSuperblock, $field);
        )*
    };
}

/// Where fields lie, for those who change single ones.
pub mod offset {
    use super::{RawSuperblock, offset_of};

    field! {
        OLD_TIME = fs_old_time "4";
        OLD_SUMMARY_TOTAL = fs_old_cstotal "16";
        MODIFIED = fs_fmod "1";
        CLEAN = fs_clean "1";
        OLD_FLAGS = fs_old_flags "1";
        MOUNTED_ON = fs_fsmnt "468";
        GROUP_ROTOR = fs_cgrotor "4";
        SUMMARY_TOTAL = fs_cstotal "64";
        TIME = fs_time "8";
        PENDING_BLOCKS = fs_pendingblocks "8";
        PENDING_INODES = fs_pendinginodes "4";
        MOUNT_TIME = fs_mtime "8";
        ORPHANS = fs_sujfree "4";
        FLAGS = fs_flags "4";
        PLACE = fs_sblockloc "8";
        EXTENT = fs_maxbsize "4";
        UNREFERENCED = fs_unrefs "8";
        SPARES = fs_sparecon32 "84";
        FILE_BYTES_MAX = fs_maxfilesize "8";
    }
}

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 32-bit addresses, inodes of 128 bytes.
    Ufs1,
    /// 64-bit addresses, inodes of 256 bytes that are initialised when they are needed.
    Ufs2,
}

impl Version {
    /// Its name, as `mkfs -t` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Ufs1 => "ufs1",
            Version::Ufs2 => "ufs2",
        }
    }

    /// Its magic number.
    pub const fn magic(self) -> i32 {
        match self {
            Version::Ufs1 => MAGIC_UFS1,
            Version::Ufs2 => MAGIC_UFS2,
        }
    }

    /// The bytes of an inode.
    pub const fn inode_bytes(self) -> usize {
        match self {
            Version::Ufs1 => 128,
            Version::Ufs2 => 256,
        }
    }

    /// The bytes of a pointer.
    pub const fn pointer_bytes(self) -> usize {
        match self {
            Version::Ufs1 => 4,
            Version::Ufs2 => 8,
        }
    }

    /// A symbolic link with a target shorter than this has it in its inode, in the place of the
    /// pointers.
    pub const fn symlink_max(self) -> u32 {
        15 * self.pointer_bytes() as u32
    }

    /// Where `newfs` has the superblock.
    pub const fn usual_place(self) -> u64 {
        match self {
            Version::Ufs1 => 8_192,
            Version::Ufs2 => 65_536,
        }
    }
}

/// The version and the byte order that the magic number of these bytes tells, if it is one.
pub fn magic(bytes: &[u8]) -> Option<(Version, ByteOrder)> {
    let found = |order: ByteOrder| match order.u32(bytes, OFFSET_MAGIC) as i32 {
        MAGIC_UFS1 => Some((Version::Ufs1, order)),
        MAGIC_UFS2 => Some((Version::Ufs2, order)),
        _ => None,
    };
    ByteOrder::ALL.into_iter().find_map(found)
}

/// A superblock whose geometry has been checked: every computation on these fields stays within the
/// device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Which format it is.
    pub version: Version,
    /// The order of bytes in all structures.
    pub order: ByteOrder,
    /// Where it was found, in bytes from the start of the device.
    pub place: u64,
    /// Bytes of a block, a power of two: 4096 … 65536.
    pub block_bytes: u32,
    /// Bytes of a fragment, a power of two, at least 512.
    pub fragment_bytes: u32,
    /// Fragments of a block: 1, 2, 4 or 8.
    pub fragments_per_block: u32,
    /// Fragments in all.
    pub fragments: u64,
    /// The number of cylinder groups, at least 1.
    pub groups: u32,
    /// Fragments of every group but the last one, a multiple of a block's.
    pub fragments_per_group: u32,
    /// Inodes of every group, a multiple of a block's.
    pub inodes_per_group: u32,
    /// Inodes of a block.
    pub inodes_per_block: u32,
    /// Pointers of an indirect block.
    pub pointers_per_block: u32,
    /// Fragments from a group's start to its copy of the superblock.
    pub superblock_at: u32,
    /// Fragments from a group's start to its header.
    pub header_at: u32,
    /// Fragments from a group's start to its inodes.
    pub inodes_at: u32,
    /// Fragments from a group's start to its first data.
    pub data_at: u32,
    /// Bytes of a group's header and maps, at most a block's.
    pub group_bytes: u32,
    /// The fragment with which the summary array begins.
    pub summary_at: u64,
    /// Bytes of the summary array, a multiple of a fragment's.
    pub summary_bytes: u32,
    /// The greatest length of a run of free blocks that is counted by itself; 0 without clusters.
    pub cluster_sums: u32,
    /// A symbolic link with a target shorter than this has it in its inode.
    pub symlink_max: u32,
    /// The most bytes of a file.
    pub file_bytes_max: u64,
    /// `fs_flags`, or what older versions had in their place.
    pub flags: u32,
    /// Our record of the last mount, where no other mount nor check came after it.
    pub record: Option<MountRecord>,
    /// Where a log of operations lies, where there is one.
    pub log: Option<LogRecord>,
    /// Whether the numbers that UFS2 brought are missing: a UFS1 of a kernel that did not know it.
    pub is_old: bool,
    /// All fields as they are on the disk.
    pub raw: Box<RawSuperblock>,
}

impl Superblock {
    /// Checks a superblock against itself and against the device it came from. `place` is where its
    /// `bytes` begin on the device; without those behind the superblock it has no records.
    ///
    /// # Errors
    /// [`FormatError::NotAFileSystem`] without the magic number, [`FormatError::Corrupt`] for
    /// numbers that cannot be. Features that we cannot read or write do *not* fail here, so that
    /// they can be named: see [`read_support`](Self::read_support).
    pub fn parse(bytes: &[u8], place: u64, device_bytes: u64) -> Result<Superblock, FormatError> {
        let Some((version, order)) = magic(bytes) else {
            let found = ByteOrder::Little.u32(bytes, OFFSET_MAGIC);
            return Err(not_ufs(format!(
                "magic number {MAGIC_UFS1:#x} or {MAGIC_UFS2:#x} expected, {found:#x} found"
            )));
        };
        let raw = Box::new(RawSuperblock::decode(order, bytes));
        let corrupt = |fault: SuperblockFault| FormatError::corrupt(Structure::SUPERBLOCK, fault);
        let mut sb = check::checked(raw, version, order, place).map_err(corrupt)?;
        sb.record = MountRecord::parse(&sb.raw, order, bytes);
        sb.log = LogRecord::parse(&sb.raw, order, bytes);
        let file_system = sb.fragments * u64::from(sb.fragment_bytes);
        match file_system > device_bytes {
            true => Err(corrupt(SuperblockFault::DeviceTooSmall {
                file_system,
                device: device_bytes,
            })),
            false => Ok(sb),
        }
    }

    /// Finds the superblock of a device: the first with a magic number that is where it says, or else
    /// a UFS2's at its usual place whose `fs_sblockloc` names no possible place. `read` reads
    /// [`READ_BYTES`] from a place, `None` where that is behind the device's end.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), of the first place with a magic number; those of `read`.
    pub fn find<E: From<FormatError>>(
        device_bytes: u64,
        mut read: impl FnMut(u64) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Superblock, E> {
        let mut doubtful = None;
        for place in PLACES {
            let Some(bytes) = read(place)? else {
                continue;
            };
            match home(&bytes, place) {
                Home::Here => return Ok(Superblock::parse(&bytes, place, device_bytes)?),
                Home::Unknown => doubtful = doubtful.or(Some((bytes, place))),
                Home::Elsewhere => {}
            }
        }
        match doubtful {
            Some((bytes, place)) => Ok(Superblock::parse(&bytes, place, device_bytes)?),
            None => Err(not_ufs("no superblock at byte 65536, 8192, 0 or 262144".into()).into()),
        }
    }

    /// The names of the features that keep us from reading; empty where we can.
    pub fn read_support(&self) -> Vec<String> {
        let mut names = Vec::new();
        let symlink_max = self.raw.fs_maxsymlinklen;
        if self.has_old_directories() {
            names.push("4.3BSD directories".into());
        } else if symlink_max != self.version.symlink_max() as i32 {
            names.push(format!("short symbolic links of {symlink_max} bytes"));
        }
        names
    }

    /// Whether entries of directories are those of 4.3BSD, which tell no types.
    pub fn has_old_directories(&self) -> bool {
        self.raw.fs_maxsymlinklen <= 0
    }

    /// The names of the features that keep us from writing; empty where we can.
    pub fn write_support(&self) -> Vec<String> {
        let mut names = self.read_support();
        let mut add = |is: bool, name: &str| {
            if is {
                names.push(name.into());
            }
        };
        let is_too_old = self.is_old && self.upgraded().is_none();
        add(
            is_too_old,
            "a superblock from before UFS2 with tables of that time",
        );
        add(self.flags & FLAG_CHECK_HASHES != 0, "check hashes");
        add(self.flags & FLAG_GJOURNAL != 0, "gjournal");
        add(self.flags & FLAG_MULTILABEL != 0, "MAC labels");
        add(self.raw.fs_snapinum[0] != 0, "snapshots");
        // NetBSD has this flag for its log, which is an inode without a name, and notes where that is
        // in fields that nobody else uses.
        let has_log = self.flags & FLAG_NFS4_ACLS != 0 && self.raw.fs_sparecon32 != [0; 21];
        add(has_log, "a log of NetBSD");
        let unknown = self.flags & !FLAGS_KNOWN;
        add(unknown != 0, &format!("unknown flags {unknown:#x}"));
        names
    }

    /// Whether it was unmounted cleanly. NetBSD has 2 in `fs_clean` while it has the image mounted, and
    /// others may have more. A mount of ours marks the image for a check before it says
    /// that it is in use, and until after it says that it is clean.
    pub fn is_clean(&self) -> bool {
        let marks = self.flags_at_rest() & (FLAG_UNCLEAN | FLAG_NEEDS_CHECK);
        self.raw.fs_clean == 1 && marks == 0
    }

    /// The flags as they are while the image is not mounted.
    pub fn flags_at_rest(&self) -> u32 {
        let before = self.record.map_or(self.flags, |record| record.flags);
        self.flags & !FLAGS_OF_MOUNT | before & FLAGS_OF_MOUNT
    }

    /// Whether a crash left the image, under a mechanism that keeps order: one of ours, as the
    /// record tells, or FreeBSD's soft updates.
    pub fn is_left_in_order(&self) -> bool {
        let marks = FLAG_SOFT_UPDATES | FLAG_NEEDS_CHECK | FLAG_JOURNAL;
        let by_soft_updates = self.flags & marks == FLAG_SOFT_UPDATES;
        let in_order = |record: MountRecord| record.mechanism.is_trusted();
        self.raw.fs_clean == 0 && self.record.map_or(by_soft_updates, in_order)
    }

    /// Whether soft updates keep a journal that may hold what the rest of the image lacks.
    pub fn has_dirty_journal(&self) -> bool {
        self.record.is_none() && self.flags & FLAG_JOURNAL != 0 && !self.is_clean()
    }

    /// Bytes that it takes on the disk: `fs_sbsize`.
    pub fn superblock_bytes(&self) -> u32 {
        self.raw.fs_sbsize as u32
    }

    /// Inodes in all.
    pub fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }

    /// The first fragment of a group.
    pub fn group_start(&self, group: GroupNumber) -> u64 {
        u64::from(group.0) * u64::from(self.fragments_per_group)
    }

    /// Fragments of a group.
    pub fn fragments_in_group(&self, group: GroupNumber) -> u32 {
        let left = self.fragments.saturating_sub(self.group_start(group));
        left.min(u64::from(self.fragments_per_group)) as u32
    }

    /// The group of a fragment, which must exist.
    pub fn group_of(&self, fragment: u64) -> GroupNumber {
        GroupNumber((fragment / u64::from(self.fragments_per_group)) as u32)
    }

    /// The group of an inode.
    pub fn group_of_inode(&self, inode: InodeNumber) -> GroupNumber {
        GroupNumber(inode.0 / self.inodes_per_group)
    }

    /// Where the structures of a group are counted from: its start, but in UFS1 from before UFS2
    /// another place in each group, so that not all are on one platter (`cgstart`).
    fn group_base(&self, group: GroupNumber) -> u64 {
        let shift = match self.version {
            Version::Ufs1 => {
                let turn = group.0 & !(self.raw.fs_old_cgmask as u32);
                u64::from(self.raw.fs_old_cgoffset as u32) * u64::from(turn)
            }
            Version::Ufs2 => 0,
        };
        self.group_start(group) + shift
    }

    /// The fragment with which a group's copy of the superblock begins.
    pub fn superblock_copy(&self, group: GroupNumber) -> u64 {
        self.group_base(group) + u64::from(self.superblock_at)
    }

    /// The fragment with which a group's header begins.
    pub fn group_header(&self, group: GroupNumber) -> u64 {
        self.group_base(group) + u64::from(self.header_at)
    }

    /// The fragment with which a group's inodes begin.
    pub fn group_inodes(&self, group: GroupNumber) -> u64 {
        self.group_base(group) + u64::from(self.inodes_at)
    }

    /// The first fragment of a group that can be a file's, but for the summary array.
    pub fn group_data(&self, group: GroupNumber) -> u64 {
        self.group_base(group) + u64::from(self.data_at)
    }

    /// The fragment that an inode is in, and its offset there in bytes. An inode does not cross a
    /// fragment. The inode must be less than [`inodes`](Self::inodes).
    pub fn inode_place(&self, inode: InodeNumber) -> (u64, usize) {
        let index = u64::from(inode.0 % self.inodes_per_group);
        let byte = index * self.version.inode_bytes() as u64;
        let fragment_bytes = u64::from(self.fragment_bytes);
        let start = self.group_inodes(self.group_of_inode(inode));
        (
            start + byte / fragment_bytes,
            (byte % fragment_bytes) as usize,
        )
    }

    /// The fragments that are the format's own in a group: those before its data, in the first one
    /// also the boot blocks.
    pub fn own_fragments(&self, group: GroupNumber) -> Range<u64> {
        let start = match group.0 {
            0 => 0,
            _ => self.superblock_copy(group),
        };
        start..self.group_data(group)
    }

    /// Fragments of whole blocks, from a group's first data on, that are kept for directories and
    /// indirect blocks as long as there is room behind them.
    pub fn metadata_fragments(&self) -> u32 {
        let most = i64::from(self.fragments_per_group / 2);
        let kept = self.raw.fs_metaspace.clamp(0, most) as u32;
        kept - kept % self.fragments_per_block
    }

    /// Where contents of files begin in a group, counted in it: behind what is kept for metadata.
    pub fn contents_begin(&self, group: GroupNumber) -> u32 {
        let data = self
            .group_data(group)
            .saturating_sub(self.group_start(group));
        data as u32 + self.metadata_fragments()
    }

    /// The fragments of the summary array.
    pub fn summary_fragments(&self) -> Range<u64> {
        let length = self.summary_bytes.div_ceil(self.fragment_bytes);
        self.summary_at..self.summary_at + u64::from(length)
    }

    /// The label, without the padding.
    pub fn label(&self) -> &[u8] {
        let end = self.raw.fs_volname.iter().position(|byte| *byte == 0);
        &self.raw.fs_volname[..end.unwrap_or(self.raw.fs_volname.len())]
    }

    /// What all groups have together, as the superblock says.
    pub fn summary_total(&self) -> super::RawSummaryTotal {
        match self.is_old {
            true => {
                let mut total = super::RawSummaryTotal::default();
                total.add(&self.raw.fs_old_cstotal);
                total
            }
            false => self.raw.fs_cstotal.clone(),
        }
    }
}

/// Whether bytes are a superblock at its own place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// It says so.
    Here,
    /// They are a copy, or none.
    Elsewhere,
    /// It should be here, but has a number there that is no place of one.
    Unknown,
}

/// The version of a superblock that is at its own place, if these bytes, which begin there, are one.
pub fn version_at_home(bytes: &[u8], place: u64) -> Option<Version> {
    let (version, _) = magic(bytes)?;
    (home(bytes, place) != Home::Elsewhere).then_some(version)
}

/// Tells a superblock from copies, which may be where another one would be: that of a first group
/// with blocks of 64 KiB is at 65536 in a UFS1, and in a UFS2 of `makefs`, whose superblock is at 8192.
fn home(bytes: &[u8], place: u64) -> Home {
    let Some((version, order)) = magic(bytes) else {
        return Home::Elsewhere;
    };
    let told = order.u64(bytes, offset_of!(RawSuperblock, fs_sblockloc));
    let is_usual = place == version.usual_place();
    match version {
        Version::Ufs1 if is_usual || (place == told && place != 65_536) => Home::Here,
        Version::Ufs2 if place == told => Home::Here,
        Version::Ufs2 if is_usual && !PLACES.contains(&told) => Home::Unknown,
        _ => Home::Elsewhere,
    }
}
