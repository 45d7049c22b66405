//! UFS1 from before UFS2 existed, and what a kernel that knows UFS2 makes of its superblock.

use super::{OLD_FLAG_MOVED, RawSuperblock, Superblock, Version};
use crate::format::RawSummaryTotal;

/// The size of a file that the choice of a directory's group expects, in bytes, and the files of a
/// directory, where the superblock does not say.
const EXPECTED: (u32, u32) = (16_384, 64);

impl Superblock {
    /// Whether it was made before UFS2 existed: its groups may consist of several cylinders
    /// (`fs_old_cpg`), and masks stand where there are spares now.
    pub fn is_of_old_make(&self) -> bool {
        self.version == Version::Ufs1 && (self.is_old || self.raw.fs_spare1 != [0; 2])
    }

    /// A superblock from before UFS2 as FreeBSD 5 and later leave it once they have had the file system
    /// mounted for writing (`ffs_oldfscompat_read`): what came with UFS2 is what the fields of before
    /// say. `None` where it is not from before, or has what those kernels do not write either.
    pub fn upgraded(&self) -> Option<RawSuperblock> {
        let old = &*self.raw;
        let is_usual = old.fs_old_inodefmt == 2
            && (old.fs_old_postblformat, old.fs_old_nrpos) == (1, 1)
            && old.fs_maxsymlinklen == self.version.symlink_max() as i32
            && (old.fs_old_cgoffset == 0 || old.fs_old_cgmask == -1)
            && old.fs_snapinum == [0; 20];
        if !self.is_old || !is_usual {
            return None;
        }
        let none = RawSuperblock::default();
        let mut raw = old.clone();
        raw.fs_maxbsize = old.fs_bsize;
        raw.fs_old_flags |= OLD_FLAG_MOVED;
        raw.fs_flags = self.flags as i32;
        raw.fs_sblockloc = self.place as i64;
        raw.fs_size = old.fs_old_size.into();
        raw.fs_dsize = old.fs_old_dsize.into();
        raw.fs_csaddr = old.fs_old_csaddr.into();
        raw.fs_time = old.fs_old_time.into();
        raw.fs_cstotal = RawSummaryTotal::default();
        raw.fs_cstotal.add(&old.fs_old_cstotal);
        raw.fs_maxfilesize = self.file_bytes_max;
        raw.fs_metaspace = 0;
        raw.fs_mtime = 0;
        (raw.fs_pendingblocks, raw.fs_pendinginodes) = (0, 0);
        (raw.fs_unrefs, raw.fs_providersize) = (0, 0);
        (raw.fs_sujfree, raw.fs_sblockactualloc) = (0, 0);
        (raw.fs_sparecon64, raw.fs_sparecon32) = (none.fs_sparecon64, none.fs_sparecon32);
        if raw.fs_avgfilesize == 0 || raw.fs_avgfpdir == 0 {
            (raw.fs_avgfilesize, raw.fs_avgfpdir) = EXPECTED;
        }
        Some(raw)
    }

    /// The two writes that bring a superblock up to date. The first one counts only once the second one
    /// is there, so a crash between them leaves the old superblock. Of the second write one sector or
    /// both may arrive: [`needs_mark`](Self::needs_mark).
    pub fn upgrade(&self) -> Option<[RawSuperblock; 2]> {
        let last = self.upgraded()?;
        let first = RawSuperblock {
            fs_maxbsize: self.raw.fs_maxbsize,
            fs_old_flags: self.raw.fs_old_flags,
            ..last.clone()
        };
        Some([first, last])
    }

    /// Whether one of the two marks is missing by which kernels tell that a UFS1 is up to date: a crash
    /// came when it was being written. The other one counts as well.
    pub fn needs_mark(&self) -> bool {
        let is_marked = self.raw.fs_old_flags & OLD_FLAG_MOVED != 0;
        self.version == Version::Ufs1
            && !self.is_old
            && (!is_marked || !is_possible_extent(self.raw.fs_maxbsize, self.raw.fs_bsize))
    }
}

/// Whether `fs_maxbsize` can be what newfs wrote there: a block, or up to sixteen of them.
pub fn is_possible_extent(extent: i32, block_bytes: i32) -> bool {
    let is_power = u32::try_from(extent).is_ok_and(u32::is_power_of_two);
    is_power && (block_bytes..=block_bytes.saturating_mul(16)).contains(&extent)
}
