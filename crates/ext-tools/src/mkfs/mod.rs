//! Making an ext2 or ext3 file system: what `mke2fs -t ext2` (or `ext3`) makes, with the same
//! geometry. The journal of the latter lies behind the first directories, where mke2fs looks for a
//! place in the middle.
//!
//! Nothing here reads a clock or makes random numbers: UUID, hash seed and time are arguments, so
//! the same options give the same bytes. Works on plain bytes of a device; filling it with files is
//! the layout's work.
//!
//! ```
//! use backstitch_device::MemoryDevice;
//! use backstitch_ext_tools::mkfs::{Mkfs, write};
//!
//! let device = MemoryDevice::new(8 << 20);
//! let superblock = write(&Mkfs::new([1; 16], [2; 16], 1_700_000_000), &device)?;
//! assert_eq!(superblock.block_size, 1024);
//! # Ok::<(), backstitch_ext_tools::mkfs::MkfsError>(())
//! ```

mod geometry;
mod journal;
mod journal_device;
mod log_file;
mod writer;

use backstitch_device::BlockDevice;
use backstitch_ext::format::Features;
use backstitch_ext::format::superblock::Superblock;

pub use backstitch_layout::tools::{Mkfs, MkfsError, MkfsJournal};
pub use geometry::Geometry;
pub(crate) use journal::usual_blocks as usual_journal_blocks;
pub use journal_device::{attach_journal, write as write_journal};

/// Computes what [`write()`] would make on a device of this size, without touching one.
///
/// # Errors
///
/// Everything but [`MkfsError::Device`].
pub fn geometry(wanted: &Mkfs, device_size_bytes: u64) -> Result<Geometry, MkfsError> {
    Geometry::compute(wanted, device_size_bytes)
}

/// How many inodes [`write()`] would make on a device of this size, without touching one.
///
/// # Errors
///
/// Everything but [`MkfsError::Device`].
pub fn planned_inodes(wanted: &Mkfs, device_size_bytes: u64) -> Result<u64, MkfsError> {
    let superblock = geometry(wanted, device_size_bytes)?.superblock;
    Ok(u64::from(superblock.groups) * u64::from(superblock.inodes_per_group))
}

/// Makes the file system and flushes the device.
///
/// The primary superblock is written last, behind a flush, so that a crash in the middle leaves no
/// file system rather than half of one.
///
/// # Errors
///
/// Options that cannot be had (the device is then untouched), and the device's errors.
pub fn write(wanted: &Mkfs, device: &dyn BlockDevice) -> Result<Superblock, MkfsError> {
    let geometry = geometry(wanted, device.size_bytes())?;
    writer::write(wanted, &geometry, device)
}

/// The feature word for a log of ours in a file.
const LOG_FILE: &str = "lffs_log";

/// The feature word for a write-ahead log of ours behind the file system.
const LOG_BEHIND: &str = "wafs_log";

/// Whether a feature word asks for a log of ours.
pub(crate) fn is_log(name: &str) -> bool {
    [LOG_FILE, LOG_BEHIND].contains(&name)
}

/// Whether this feature word was given, and the last time without a `^`.
fn has_word(wanted: &Mkfs, name: &str) -> bool {
    let last = wanted.features.iter().rev();
    let mut last = last.filter(|word| word.trim_start_matches('^') == name);
    last.next().is_some_and(|word| word == name)
}

/// The features that are asked for: those that mke2fs gives ext2 (revision 0 has none), as the
/// words change them.
fn features(wanted: &Mkfs) -> Result<Features, MkfsError> {
    let mut features = match wanted.revision {
        0 => Features::default(),
        _ => Features::EXT2_DEFAULT,
    };
    for word in &wanted.features {
        let (name, on) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (&**word, true),
        };
        match name {
            // These set no feature bit: to other systems the one log is a file, and they do not see
            // the other.
            LOG_FILE | LOG_BEHIND => {}
            "none" => features = Features::default(),
            name if features.set_by_name(name, on) => {}
            name => return Err(MkfsError::Unsupported(name.to_owned())),
        }
    }
    Ok(features)
}
