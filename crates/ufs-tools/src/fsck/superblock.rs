//! Pass 0: the superblock and its copy in the last group.

use super::state::Context;
use super::{CheckError, Code, Location, Source};
use backstitch_layout::tools::Findings;
use backstitch_layout::{BlockNumber, FormatError, GroupNumber};
use backstitch_ufs::format::superblock::{
    FLAG_JOURNAL, FLAG_NEEDS_CHECK, FLAG_UNCLEAN, OLD_FLAG_MOVED, READ_BYTES, SUPERBLOCK_BYTES,
};
use backstitch_ufs::format::{OnDisk, RawSuperblock, Superblock, Version};

/// Reads the superblock; `None` where it is damaged, which is then a finding.
pub(super) fn read<S: Source + ?Sized>(
    source: &S,
    findings: &mut Findings,
) -> Result<Option<Superblock>, CheckError> {
    match find(source) {
        Ok(sb) => Ok(Some(sb)),
        Err(CheckError::Format(FormatError::Corrupt(corruption))) => {
            findings.add(Code::SuperblockCorrupt, Location::FILE_SYSTEM, || {
                corruption.to_string()
            });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The superblock of an image: the first that there is where kernels look for one.
pub(crate) fn find<S: Source + ?Sized>(source: &S) -> Result<Superblock, CheckError> {
    let size = source.size_bytes();
    let mut scratch = Vec::new();
    let sb = Superblock::find(size, |place| {
        if size < place + READ_BYTES as u64 {
            return Ok(None);
        }
        let bytes = source.bytes(place, READ_BYTES, &mut scratch)?;
        Ok::<_, CheckError>(Some(bytes.to_vec()))
    })?;
    // Another length of short symbolic links keeps a mount away; here it is a field to be repaired.
    match sb.has_old_directories() {
        false => Ok(sb),
        true => Err(FormatError::Incompatible {
            features: sb.read_support().join(", "),
        }
        .into()),
    }
}

/// A field that follows from others, or is always the same.
pub(crate) struct Derived {
    pub(crate) name: &'static str,
    pub(crate) found: i64,
    pub(crate) expected: i64,
    set: fn(&mut RawSuperblock, i64),
}

impl Derived {
    /// Puts the field right.
    pub(crate) fn put(&self, raw: &mut RawSuperblock) {
        (self.set)(raw, self.expected);
    }
}

macro_rules! derived {
    ($raw:ident, $($field:ident = $expected:expr;)*) => {
        vec![$(Derived {
            name: stringify!($field),
            found: $raw.$field as i64,
            expected: $expected as i64,
            set: |raw, value| raw.$field = value as _,
        },)*]
    };
}

/// All fields that follow from those that are checked as the superblock is parsed.
pub(crate) fn derived(sb: &Superblock) -> Vec<Derived> {
    let raw = &sb.raw;
    let (block, fragment) = (i64::from(sb.block_bytes), i64::from(sb.fragment_bytes));
    let mut all = derived! { raw,
        fs_bmask = -block;
        fs_fmask = -fragment;
        fs_bshift = sb.block_bytes.ilog2();
        fs_fshift = sb.fragment_bytes.ilog2();
        fs_fragshift = sb.fragments_per_block.ilog2();
        fs_fsbtodb = (sb.fragment_bytes / 512).ilog2();
        fs_qbmask = block - 1;
        fs_qfmask = fragment - 1;
    };
    if sb.is_old {
        return all;
    }
    if sb.version == Version::Ufs2 {
        all.extend(derived! { raw, fs_sblockloc = sb.place; });
    }
    let pointers = u64::from(sb.pointers_per_block);
    let blocks = 12 + pointers + pointers.pow(2) + pointers.pow(3);
    let longest = blocks.saturating_mul(sb.block_bytes.into()) - 1;
    all.extend(derived! { raw,
        fs_maxfilesize = longest.min(i64::MAX as u64);
        fs_maxsymlinklen = 15 * sb.version.pointer_bytes();
    });
    if sb.version == Version::Ufs1 {
        all.extend(derived! { raw,
            fs_old_size = raw.fs_size;
            fs_old_dsize = raw.fs_dsize;
            fs_old_csaddr = raw.fs_csaddr;
            fs_old_inodefmt = 2;
            fs_old_postblformat = 1;
            fs_old_nrpos = 1;
        });
    }
    if sb.version == Version::Ufs1 && !sb.is_of_old_make() {
        all.extend(derived! { raw,
            fs_old_cpg = 1;
            fs_old_cgoffset = 0;
            fs_old_cgmask = -1;
        });
    }
    all
}

/// Looks at what nothing depends on here, but kernels and checkers do.
pub(super) fn check(sb: &Superblock, findings: &mut Findings) {
    for field in derived(sb)
        .iter()
        .filter(|field| field.found != field.expected)
    {
        findings.add(Code::SuperblockField, Location::FILE_SYSTEM, || {
            format!(
                "{} is {}, must be {}",
                field.name, field.found, field.expected
            )
        });
    }
    if sb.needs_mark() {
        findings.add(Code::UpgradeUnfinished, Location::FILE_SYSTEM, || {
            "fs_maxbsize and fs_old_flags do not both say that it is not from before UFS2"
                .to_owned()
        });
    }
    let is_ufs2 = sb.version == Version::Ufs2;
    if is_ufs2 && sb.raw.fs_old_flags & OLD_FLAG_MOVED == 0 {
        findings.add(Code::SuperblockField, Location::FILE_SYSTEM, || {
            "the flags are said to be where they were before UFS2".to_owned()
        });
    }
    if !spares_are_zero(sb.version, &sb.raw) {
        findings.add(Code::FieldNotZero, Location::FILE_SYSTEM, || {
            "a spare field of the superblock is in use".to_owned()
        });
    }
}

macro_rules! spares {
    ($($field:ident)* ; $($later:ident)*) => {
        /// Whether the fields that nobody uses are zero.
        fn spares_are_zero(version: Version, raw: &RawSuperblock) -> bool {
            let none = RawSuperblock::default();
            let is_ufs2 = version == Version::Ufs2;
            true $(&& raw.$field == none.$field)* $(&& (!is_ufs2 || raw.$later == none.$later))*
        }

        /// Clears the fields that nobody uses.
        pub(crate) fn clear_spares(version: Version, raw: &mut RawSuperblock) {
            let none = RawSuperblock::default();
            $(raw.$field = none.$field;)*
            if version == Version::Ufs2 {
                $(raw.$later = none.$later;)*
            }
        }
    };
}

// Where UFS2 has spares, UFS1 has had the number of tracks, masks, and tables of rotational positions,
// which file systems of that time still hold.
spares! { fs_sparecon64 fs_sparecon32 ; fs_spare1 fs_spare2 fs_spare5 }

/// Whether the file system was unmounted; no fault, since everybody who mounts it can tell. Our own
/// mount for writing marks the image for a check as a kernel does that met errors; its record tells
/// the two apart.
pub(super) fn note_state(sb: &Superblock, notes: &mut Findings) {
    if sb.raw.fs_clean != 1 || sb.flags_at_rest() & FLAG_UNCLEAN != 0 {
        notes.add(Code::NotUnmounted, Location::FILE_SYSTEM, || {
            match sb.flags & FLAG_JOURNAL {
                0 => "not unmounted".to_owned(),
                _ => "not unmounted; its journal was not replayed".to_owned(),
            }
        });
    }
    let is_trusted = sb.is_clean() || sb.is_left_in_order();
    if sb.flags & FLAG_NEEDS_CHECK != 0 && !is_trusted {
        notes.add(Code::ErrorsRecorded, Location::FILE_SYSTEM, || {
            "marked for a check: a mount without order was cut off, or a kernel met errors"
                .to_owned()
        });
    }
}

/// Looks at the copy of the superblock in the last group: what never changes must be the same.
pub(super) fn check_copy<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
) -> Result<(), CheckError> {
    let sb = context.sb;
    let group = GroupNumber(sb.groups - 1);
    let place = sb.superblock_copy(group);
    let mut scratch = Vec::new();
    let bytes = context.bytes(place, SUPERBLOCK_BYTES, &mut scratch)?;
    let copy = RawSuperblock::decode(sb.order, bytes);
    if is_same(&copy, &sb.raw) {
        return Ok(());
    }
    let at = Location::group(group).at_block(BlockNumber(place));
    // Where both can be, the copy may be the one that is right.
    match Superblock::parse(bytes, sb.place, context.source.size_bytes()) {
        Ok(_) => findings.add(Code::SuperblockContradicted, at, || {
            "the superblock and its copy in the last group differ in what never changes".to_owned()
        }),
        Err(_) => findings.add(Code::BackupDiffers, at, || {
            "the last group has no sound copy of the superblock".to_owned()
        }),
    }
    Ok(())
}

macro_rules! constants {
    ($($field:ident)*) => {
        /// Whether two superblocks are the same in what never changes.
        pub(crate) fn is_same(one: &RawSuperblock, other: &RawSuperblock) -> bool {
            true $(&& one.$field == other.$field)*
        }

        /// Takes what never changes from another superblock.
        pub(crate) fn take_constants(to: &mut RawSuperblock, from: &RawSuperblock) {
            $(to.$field = from.$field;)*
        }
    };
}

// What never changes, in FreeBSD's order.
constants! {
    fs_sblkno fs_cblkno fs_iblkno fs_dblkno fs_bsize fs_fsize fs_frag fs_sbsize fs_bmask fs_fmask
    fs_bshift fs_fshift fs_fragshift fs_fsbtodb fs_nindir fs_inopb fs_ncg fs_cssize fs_cgsize fs_ipg
    fs_fpg fs_magic
}
