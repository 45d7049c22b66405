//! Making a UFS1 or UFS2 file system: what newfs(8) of FreeBSD makes, with the same geometry.
//!
//! Nothing here reads a clock or makes random numbers: UUID, seed and time are arguments, so the
//! same options give the same bytes. Works on plain bytes of a device; filling it with files is the
//! layout's work.
//!
//! ```
//! use backstitch_device::MemoryDevice;
//! use backstitch_ufs_tools::mkfs::{Mkfs, write};
//!
//! let device = MemoryDevice::new(8 << 20);
//! let superblock = write(&Mkfs::new([1; 16], [2; 16], 1_700_000_000), &device)?;
//! assert_eq!(superblock.block_bytes, 32_768);
//! # Ok::<(), backstitch_ufs_tools::mkfs::MkfsError>(())
//! ```

mod geometry;
mod log_file;
mod writer;

use backstitch_device::BlockDevice;
use backstitch_ufs::format::superblock::{FLAG_ACLS, FLAG_NFS4_ACLS, FLAG_SOFT_UPDATES};
use backstitch_ufs::format::{ByteOrder, RawSuperblock, Superblock, Version};

pub use backstitch_layout::tools::{Mkfs, MkfsError};
use log_file::{Log, LogPlace};

/// A label's bytes; a zero must fit behind it.
pub(crate) const LABEL_BYTES_MAX: usize = 31;

/// A feature that can be asked for: its name and its bit in `fs_flags`.
const FLAGS: &[(&str, u32)] = &[
    (SOFT_UPDATES, FLAG_SOFT_UPDATES),
    ("acls", FLAG_ACLS),
    ("nfs4acls", FLAG_NFS4_ACLS),
];
/// A kernel orders its writes so that a crash leaves what can be mounted again.
const SOFT_UPDATES: &str = "soft_updates";
/// The version of 1994.
pub(crate) const UFS1: &str = "ufs1";
/// The version of 2003.
pub(crate) const UFS2: &str = "ufs2";
/// Numbers with the highest byte first.
pub(crate) const BIG_ENDIAN: &str = "big_endian";

/// What is asked for, features resolved.
struct Wanted<'m> {
    mkfs: &'m Mkfs,
    version: Version,
    order: ByteOrder,
    flags: u32,
    /// Where a log of operations is to be.
    log: Option<LogPlace>,
}

/// Whether [`write()`] knows a feature of this name.
pub fn has_feature(name: &str) -> bool {
    let others = [
        UFS1,
        UFS2,
        BIG_ENDIAN,
        log_file::LOG_FILE,
        log_file::LOG_BEHIND,
    ];
    others.contains(&name) || FLAGS.iter().any(|(known, _)| *known == name)
}

/// The names of the features of a file system, beside its version.
pub(crate) fn feature_names(sb: &Superblock) -> Vec<String> {
    let mut names = Vec::new();
    if sb.order == ByteOrder::Big {
        names.push(BIG_ENDIAN.to_owned());
    }
    let set = FLAGS.iter().filter(|(_, flag)| sb.flags & flag != 0);
    names.extend(set.map(|(name, _)| (*name).to_owned()));
    names
}

impl<'m> Wanted<'m> {
    fn of(mkfs: &'m Mkfs) -> Result<Wanted<'m>, MkfsError> {
        let mut wanted = Wanted {
            mkfs,
            version: Version::Ufs2,
            order: ByteOrder::Little,
            flags: FLAG_SOFT_UPDATES,
            log: None,
        };
        for word in &mkfs.features {
            match word.strip_prefix('^') {
                Some(name) => wanted.set(name, false)?,
                None => wanted.set(word, true)?,
            }
        }
        wanted.check()?;
        Ok(wanted)
    }

    fn set(&mut self, name: &str, on: bool) -> Result<(), MkfsError> {
        match (name, on) {
            ("none", true) => self.flags = 0,
            (UFS1, true) => self.version = Version::Ufs1,
            (UFS2, true) => self.version = Version::Ufs2,
            (BIG_ENDIAN, true) => self.order = ByteOrder::Big,
            (BIG_ENDIAN, false) => self.order = ByteOrder::Little,
            (log_file::LOG_FILE, on) => self.set_log(LogPlace::File, on)?,
            (log_file::LOG_BEHIND, on) => self.set_log(LogPlace::Behind, on)?,
            (name, on) => {
                let known = FLAGS.iter().find(|(known, _)| *known == name);
                let Some((_, flag)) = known else {
                    return Err(MkfsError::Unsupported(name.to_owned()));
                };
                self.flags = self.flags & !flag | if on { *flag } else { 0 };
            }
        }
        Ok(())
    }

    fn set_log(&mut self, place: LogPlace, on: bool) -> Result<(), MkfsError> {
        self.log = match (self.log, on) {
            (Some(other), true) if other != place => {
                let what = "a log is in a file or behind the file system".to_owned();
                return Err(MkfsError::BadOption(what));
            }
            (_, true) => Some(place),
            (found, false) => found.filter(|found| *found != place),
        };
        Ok(())
    }

    /// Refuses options that only other layouts have, and values out of bounds.
    fn check(&self) -> Result<(), MkfsError> {
        let mkfs = self.mkfs;
        let bad = |what: String| Err(MkfsError::BadOption(what));
        let own = self.version.inode_bytes();
        if let Some(size) = mkfs.inode_size.filter(|size| *size as usize != own) {
            let name = self.version.name();
            return bad(format!("inodes of {size} bytes: {name} has {own}"));
        }
        let has_size = mkfs.journal_bytes.is_some() && self.log.is_none();
        if has_size || mkfs.journal_uuid.is_some() {
            return Err(MkfsError::Unsupported("a journal".to_owned()));
        }
        if mkfs.label.len() > LABEL_BYTES_MAX {
            return bad(format!("the label has more than {LABEL_BYTES_MAX} bytes"));
        }
        if mkfs.reserved_percent > 50 {
            let percent = mkfs.reserved_percent;
            return bad(format!("{percent} % reserved: 0 to 50 expected"));
        }
        if mkfs.revision != 1 {
            return bad("UFS has no revisions".to_owned());
        }
        let acls = FLAGS.iter().filter(|(name, _)| name.ends_with("acls"));
        if acls.filter(|(_, flag)| self.flags & flag != 0).count() > 1 {
            return bad("acls and nfs4acls exclude each other".to_owned());
        }
        Ok(())
    }
}

/// The bytes of a UUID are in `fs_id`, which FreeBSD names a file system by, and in `fs_swuid`.
pub(crate) fn set_uuid(raw: &mut RawSuperblock, uuid: &[u8; 16]) {
    let word = |at: usize| i32::from_be_bytes([uuid[at], uuid[at + 1], uuid[at + 2], uuid[at + 3]]);
    raw.fs_id = [word(0), word(4)];
    raw.fs_swuid = u64::from(word(8) as u32) << 32 | u64::from(word(12) as u32);
}

/// The inverse of [`set_uuid`].
pub(crate) fn uuid(raw: &RawSuperblock) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&raw.fs_id[0].to_be_bytes());
    uuid[4..8].copy_from_slice(&raw.fs_id[1].to_be_bytes());
    uuid[8..].copy_from_slice(&raw.fs_swuid.to_be_bytes());
    uuid
}

/// How many inodes [`write()`] would make on a device of this size, without touching one.
///
/// # Errors
/// Everything but [`MkfsError::Device`].
pub fn planned_inodes(mkfs: &Mkfs, device_bytes: u64) -> Result<u64, MkfsError> {
    Plan::of(&Wanted::of(mkfs)?, device_bytes).map(|plan| u64::from(plan.sb.inodes()))
}

/// What will be made.
struct Plan {
    raw: RawSuperblock,
    sb: Superblock,
    log: Log,
}

impl Plan {
    fn of(wanted: &Wanted<'_>, device_bytes: u64) -> Result<Plan, MkfsError> {
        let bytes = wanted.mkfs.size_bytes.unwrap_or(device_bytes);
        if bytes > device_bytes {
            let what = format!("{bytes} bytes on a device of {device_bytes}");
            return Err(MkfsError::BadOption(what));
        }
        let (home_bytes, behind_bytes) = log_file::divided(wanted, bytes)?;
        let raw = geometry::superblock(wanted, home_bytes)?;
        let sb = writer::parsed(&raw, wanted, device_bytes)?;
        let log = Log::of(wanted, &sb, behind_bytes, writer::first_free(&sb))?;
        Ok(Plan { raw, sb, log })
    }
}

/// Makes the file system and flushes the device.
///
/// The superblock is written last, behind a flush, so that a crash in the middle leaves no file
/// system rather than half of one.
///
/// # Errors
/// Options that cannot be had (the device is then untouched), and the device's errors.
pub fn write(mkfs: &Mkfs, device: &dyn BlockDevice) -> Result<Superblock, MkfsError> {
    let wanted = Wanted::of(mkfs)?;
    let plan = Plan::of(&wanted, device.size_bytes())?;
    writer::write(&wanted, plan, device)
}
