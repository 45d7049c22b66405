//! Feature bits: what a file system uses, and what we can do with it.
//!
//! A system that does not know a *compat* feature may ignore it; with an unknown *ro_compat*
//! feature it may only read, with an unknown *incompat* feature it may not even read.

/// Blocks are preallocated for directories.
pub const COMPAT_DIR_PREALLOC: u32 = 0x1;
/// AFS "imagic" inodes.
pub const COMPAT_IMAGIC_INODES: u32 = 0x2;
/// A journal (ext3).
pub const COMPAT_HAS_JOURNAL: u32 = 0x4;
/// Extended attributes.
pub const COMPAT_EXT_ATTR: u32 = 0x8;
/// Descriptor blocks are kept for growing.
pub const COMPAT_RESIZE_INODE: u32 = 0x10;
/// Hashed directories may exist.
pub const COMPAT_DIR_INDEX: u32 = 0x20;
/// At most two backups of the superblock.
pub const COMPAT_SPARSE_SUPER2: u32 = 0x200;
/// Inode numbers and UUID may not change (encryption).
pub const COMPAT_STABLE_INODES: u32 = 0x800;
/// The journal may hold fast commits.
pub const COMPAT_FAST_COMMIT: u32 = 0x400;
/// Orphans are listed in a file.
pub const COMPAT_ORPHAN_FILE: u32 = 0x1000;

/// Few groups have backups of superblock and descriptors.
pub const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
/// Files may be larger than 2 GiB.
pub const RO_COMPAT_LARGE_FILE: u32 = 0x2;
/// Directories as B-trees; never implemented.
pub const RO_COMPAT_BTREE_DIR: u32 = 0x4;
/// `i_blocks` may count file-system blocks.
pub const RO_COMPAT_HUGE_FILE: u32 = 0x8;
/// Group descriptors have checksums.
pub const RO_COMPAT_GDT_CSUM: u32 = 0x10;
/// Directories may have more than 65,000 subdirectories.
pub const RO_COMPAT_DIR_NLINK: u32 = 0x20;
/// Inodes have extra fields of a guaranteed size.
pub const RO_COMPAT_EXTRA_ISIZE: u32 = 0x40;
/// Quotas in hidden inodes.
pub const RO_COMPAT_QUOTA: u32 = 0x100;
/// Clusters of blocks.
pub const RO_COMPAT_BIGALLOC: u32 = 0x200;
/// The format allows reading this `ro_compat` feature; but with `bigalloc` bitmaps and counters are
/// of clusters, and groups have another length.
const RO_COMPAT_UNREADABLE: u32 = RO_COMPAT_BIGALLOC;
/// All metadata has checksums.
pub const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
/// Project quotas.
pub const RO_COMPAT_PROJECT: u32 = 0x2000;
/// The orphan file lists orphans.
pub const RO_COMPAT_ORPHAN_PRESENT: u32 = 0x1_0000;

/// File contents may be compressed; never merged.
pub const INCOMPAT_COMPRESSION: u32 = 0x1;
/// Directory entries tell the file type.
pub const INCOMPAT_FILETYPE: u32 = 0x2;
/// The journal must be replayed first.
pub const INCOMPAT_RECOVER: u32 = 0x4;
/// This is a journal and no file system.
pub const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
/// Descriptors are spread over meta groups.
pub const INCOMPAT_META_BG: u32 = 0x10;
/// Files are mapped by extents.
pub const INCOMPAT_EXTENTS: u32 = 0x40;
/// Block numbers have 64 bits.
pub const INCOMPAT_64BIT: u32 = 0x80;
/// Groups are packed together.
pub const INCOMPAT_FLEX_BG: u32 = 0x200;
/// The seed of checksums is in the superblock, not derived from the UUID.
pub const INCOMPAT_CSUM_SEED: u32 = 0x2000;
/// Hashed directories may have an index of three levels.
pub const INCOMPAT_LARGE_DIR: u32 = 0x4000;

/// The ones that we write as compatible: `ext_attr`, `resize_inode`, `dir_index` and two that mean
/// nothing to us.
const COMPAT_WRITABLE: u32 = COMPAT_DIR_PREALLOC
    | COMPAT_IMAGIC_INODES
    | COMPAT_EXT_ATTR
    | COMPAT_RESIZE_INODE
    | COMPAT_DIR_INDEX;
const RO_COMPAT_WRITABLE: u32 = RO_COMPAT_SPARSE_SUPER | RO_COMPAT_LARGE_FILE;
/// The incompat features that we write, and that the check knows.
pub const INCOMPAT_WRITABLE: u32 = INCOMPAT_FILETYPE | INCOMPAT_LARGE_DIR;
/// What ext4 images have beside these. Reading needs no checksums, so it needs no seed either.
const INCOMPAT_READABLE: u32 =
    INCOMPAT_WRITABLE | INCOMPAT_EXTENTS | INCOMPAT_64BIT | INCOMPAT_FLEX_BG | INCOMPAT_CSUM_SEED;

const COMPAT_NAMES: &[(u32, &str)] = &[
    (COMPAT_DIR_PREALLOC, "dir_prealloc"),
    (COMPAT_IMAGIC_INODES, "imagic_inodes"),
    (COMPAT_HAS_JOURNAL, "has_journal"),
    (COMPAT_EXT_ATTR, "ext_attr"),
    (COMPAT_RESIZE_INODE, "resize_inode"),
    (COMPAT_DIR_INDEX, "dir_index"),
    (0x40, "lazy_bg"),
    (0x80, "exclude_inode"),
    (0x100, "snapshot_bitmap"),
    (COMPAT_SPARSE_SUPER2, "sparse_super2"),
    (COMPAT_FAST_COMMIT, "fast_commit"),
    (COMPAT_STABLE_INODES, "stable_inodes"),
    (COMPAT_ORPHAN_FILE, "orphan_file"),
];

const RO_COMPAT_NAMES: &[(u32, &str)] = &[
    (RO_COMPAT_SPARSE_SUPER, "sparse_super"),
    (RO_COMPAT_LARGE_FILE, "large_file"),
    (RO_COMPAT_BTREE_DIR, "btree_dir"),
    (RO_COMPAT_HUGE_FILE, "huge_file"),
    (RO_COMPAT_GDT_CSUM, "uninit_bg"),
    (RO_COMPAT_DIR_NLINK, "dir_nlink"),
    (RO_COMPAT_EXTRA_ISIZE, "extra_isize"),
    (0x80, "snapshot"),
    (RO_COMPAT_QUOTA, "quota"),
    (RO_COMPAT_BIGALLOC, "bigalloc"),
    (RO_COMPAT_METADATA_CSUM, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (RO_COMPAT_PROJECT, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (RO_COMPAT_ORPHAN_PRESENT, "orphan_present"),
];

const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (INCOMPAT_COMPRESSION, "compression"),
    (INCOMPAT_FILETYPE, "filetype"),
    (INCOMPAT_RECOVER, "needs_recovery"),
    (INCOMPAT_JOURNAL_DEV, "journal_dev"),
    (INCOMPAT_META_BG, "meta_bg"),
    (INCOMPAT_EXTENTS, "extent"),
    (INCOMPAT_64BIT, "64bit"),
    (0x100, "mmp"),
    (INCOMPAT_FLEX_BG, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (INCOMPAT_CSUM_SEED, "metadata_csum_seed"),
    (INCOMPAT_LARGE_DIR, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];

/// The three feature words of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`
    pub compat: u32,
    /// `s_feature_incompat`
    pub incompat: u32,
    /// `s_feature_ro_compat`
    pub ro_compat: u32,
}

impl Features {
    /// Every feature that mke2fs gives an ext2 file system by default.
    pub const EXT2_DEFAULT: Features = Features {
        compat: COMPAT_EXT_ATTR | COMPAT_RESIZE_INODE | COMPAT_DIR_INDEX,
        incompat: INCOMPAT_FILETYPE,
        ro_compat: RO_COMPAT_SPARSE_SUPER | RO_COMPAT_LARGE_FILE,
    };

    /// Whether all of these compat bits are set.
    pub fn has_compat(&self, bits: u32) -> bool {
        self.compat & bits == bits
    }

    /// Whether all of these incompat bits are set.
    pub fn has_incompat(&self, bits: u32) -> bool {
        self.incompat & bits == bits
    }

    /// Whether all of these ro_compat bits are set.
    pub fn has_ro_compat(&self, bits: u32) -> bool {
        self.ro_compat & bits == bits
    }

    /// The names of all features, as dumpe2fs writes them; unknown bits as `FEATURE_C13` and so on,
    /// as e2fsprogs does.
    pub fn names(&self) -> Vec<String> {
        let mut names = names_of(self.compat, COMPAT_NAMES, 'C');
        names.extend(names_of(self.incompat, INCOMPAT_NAMES, 'I'));
        names.extend(names_of(self.ro_compat, RO_COMPAT_NAMES, 'R'));
        names
    }

    /// The features that keep us from reading the image; empty where it can be read.
    pub fn unreadable(&self) -> Vec<String> {
        let mut names = names_of(self.incompat & !INCOMPAT_READABLE, INCOMPAT_NAMES, 'I');
        names.extend(names_of(
            self.ro_compat & RO_COMPAT_UNREADABLE,
            RO_COMPAT_NAMES,
            'R',
        ));
        names
    }

    /// The features that we read and do not write: they change where things are.
    pub fn only_readable(&self) -> Vec<String> {
        let bits = INCOMPAT_READABLE & !INCOMPAT_WRITABLE;
        names_of(self.incompat & bits, INCOMPAT_NAMES, 'I')
    }

    /// The features that keep us from writing the image (it may be readable all the same); empty
    /// where it can be written.
    ///
    /// A compat feature that we do not know counts as one. The format would let us write, but where
    /// the feature lists what a crash left (orphan files, snapshots) the list would become false.
    pub fn unwritable(&self) -> Vec<String> {
        let mut names = self.unreadable();
        names.extend(self.only_readable());
        names.extend(names_of(
            self.ro_compat & !(RO_COMPAT_WRITABLE | RO_COMPAT_UNREADABLE),
            RO_COMPAT_NAMES,
            'R',
        ));
        names.extend(names_of(self.compat & !COMPAT_WRITABLE, COMPAT_NAMES, 'C'));
        names
    }

    /// Sets or clears the feature of this mke2fs name. `false` where no feature is called so.
    pub fn set_by_name(&mut self, name: &str, on: bool) -> bool {
        let words = [
            (&mut self.compat, COMPAT_NAMES),
            (&mut self.incompat, INCOMPAT_NAMES),
            (&mut self.ro_compat, RO_COMPAT_NAMES),
        ];
        for (word, names) in words {
            if let Some((bit, _)) = names.iter().find(|(_, known)| *known == name) {
                *word = if on { *word | bit } else { *word & !bit };
                return true;
            }
        }
        false
    }
}

/// The names of the set bits of one feature word.
fn names_of(bits: u32, known: &[(u32, &str)], kind: char) -> Vec<String> {
    (0..32)
        .filter(|shift| bits & (1 << shift) != 0)
        .map(
            |shift| match known.iter().find(|(bit, _)| *bit == 1 << shift) {
                Some((_, name)) => (*name).to_owned(),
                None => format!("FEATURE_{kind}{shift}"),
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_features_are_writable_and_named() {
        let features = Features::EXT2_DEFAULT;
        assert!(features.unwritable().is_empty());
        assert_eq!(
            features.names(),
            [
                "ext_attr",
                "resize_inode",
                "dir_index",
                "filetype",
                "sparse_super",
                "large_file"
            ]
        );
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let mut features = Features::EXT2_DEFAULT;
        assert!(features.set_by_name("has_journal", true));
        assert!(features.unreadable().is_empty());
        assert_eq!(features.unwritable(), ["has_journal"]);
        assert!(features.set_by_name("extent", true));
        features.incompat |= 1 << 30;
        assert_eq!(features.unreadable(), ["FEATURE_I30"]);
        assert_eq!(features.only_readable(), ["extent"]);
        features.incompat &= !(1 << 30);
        assert!(features.set_by_name("bigalloc", true));
        assert_eq!(features.unreadable(), ["bigalloc"]);
        assert_eq!(features.unwritable(), ["bigalloc", "extent", "has_journal"]);
        assert!(!features.set_by_name("no_such_feature", true));
        assert!(features.set_by_name("has_journal", false));
        assert!(!features.has_compat(COMPAT_HAS_JOURNAL));
    }
}
