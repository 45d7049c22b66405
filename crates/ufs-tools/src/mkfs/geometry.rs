//! Where everything goes: the numbers of a superblock, computed as FreeBSD's newfs(8) does.

use super::{Mkfs, MkfsError, Wanted};
use backstitch_ufs::format::group::HEADER_BYTES;
use backstitch_ufs::format::superblock::{AREA_BYTES, OLD_FLAG_MOVED};
use backstitch_ufs::format::{OnDisk, RawSummary, RawSuperblock, SECTOR_BYTES, Version};

/// The block size of newfs(8).
const USUAL_BLOCK_BYTES: u64 = 32 << 10;
/// A block has at most this many fragments.
const MOST_FRAGMENTS: u64 = 8;
/// Fragments for each inode, where nobody says otherwise.
const FRAGMENTS_PER_INODE: u64 = 2;
/// Groups get smaller so that there are this many.
const WANTED_GROUPS: u64 = 4;
/// UFS1 counts the inodes of a group in 15 bits.
const UFS1_MOST_INODES_PER_GROUP: u64 = 0x7fff;
/// Most bytes of one transfer; that many bytes of blocks are laid out one behind the other.
const TRANSFER_BYTES: u64 = 128 << 10;
/// The longest run of free blocks that groups count by its length.
const LONGEST_CLUSTER: u64 = 16;
/// The size of a file that the choice of a directory's group expects, in bytes.
const EXPECTED_FILE_BYTES: u32 = 16_384;
/// The number of files in a directory that it expects.
const EXPECTED_FILES_PER_DIRECTORY: u32 = 64;

/// The sizes that all else follows from.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    version: Version,
    block: u64,
    fragment: u64,
    /// Fragments of the file system.
    fragments: u64,
    /// Fragments for each inode.
    per_inode: u64,
    /// Runs of free blocks up to this length are counted; 0 for none.
    clusters: u64,
}

/// What a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    fragments: u64,
    inodes: u64,
}

impl Sizes {
    fn of(wanted: &Wanted<'_>, bytes: u64) -> Result<Sizes, MkfsError> {
        let mkfs = wanted.mkfs;
        let (block, fragment) = block_and_fragment(mkfs)?;
        let fragments = bytes / fragment;
        let most = match wanted.version {
            Version::Ufs1 => i32::MAX as u64,
            Version::Ufs2 => i64::MAX as u64 / fragment,
        };
        if fragments > most {
            let what = format!("{}: {fragments} fragments", wanted.version.name());
            return Err(MkfsError::TooLarge(what));
        }
        let contiguous = (TRANSFER_BYTES / block).max(1);
        let mut sizes = Sizes {
            version: wanted.version,
            block,
            fragment,
            fragments,
            per_inode: FRAGMENTS_PER_INODE,
            clusters: match contiguous {
                1 => 0,
                contiguous => contiguous.min(LONGEST_CLUSTER),
            },
        };
        sizes.per_inode = sizes.fragments_per_inode(mkfs)?;
        Ok(sizes)
    }

    /// Fragments for each inode, as asked for, and so that inodes can be numbered.
    fn fragments_per_inode(&self, mkfs: &Mkfs) -> Result<u64, MkfsError> {
        let bytes = match (mkfs.inodes, mkfs.bytes_per_inode) {
            (Some(0), _) | (_, Some(0)) => {
                let what = "0 inodes, or 0 bytes for each".to_owned();
                return Err(MkfsError::BadOption(what));
            }
            (Some(inodes), _) if u64::from(inodes) > self.fragments => {
                let what = format!(
                    "{inodes} inodes: at most {}, one for each fragment",
                    self.fragments
                );
                return Err(MkfsError::BadOption(what));
            }
            (Some(inodes), _) => self.fragments * self.fragment / u64::from(inodes),
            (None, Some(bytes)) => bytes,
            (None, None) => FRAGMENTS_PER_INODE * self.fragment,
        };
        let most_inodes = (1 << 32) - self.inodes_per_block();
        let least = 1 + self.fragments / most_inodes;
        Ok((bytes / self.fragment).max(least))
    }

    fn per_block(&self) -> u64 {
        self.block / self.fragment
    }

    fn inodes_per_block(&self) -> u64 {
        self.block / self.version.inode_bytes() as u64
    }

    fn inodes_per_fragment(&self) -> u64 {
        self.fragment / self.version.inode_bytes() as u64
    }

    /// Where a superblock's copy is in a group, in fragments.
    fn copy_at(&self) -> u64 {
        let area = self.version.usual_place() + AREA_BYTES as u64;
        area.div_ceil(self.fragment)
            .next_multiple_of(self.per_block())
    }

    fn header_at(&self) -> u64 {
        let area = AREA_BYTES as u64;
        self.copy_at()
            + area
                .div_ceil(self.fragment)
                .next_multiple_of(self.per_block())
    }

    fn inodes_at(&self) -> u64 {
        self.header_at() + self.per_block()
    }

    /// Where a group's data begins, in fragments.
    fn data_at(&self, group: Group) -> u64 {
        self.inodes_at() + group.inodes / self.inodes_per_fragment()
    }

    /// The least number of fragments that a group takes for itself.
    fn overhead(&self, group: Group) -> u64 {
        self.data_at(group).next_multiple_of(self.per_block())
    }

    /// A group of that many fragments.
    fn group(&self, fragments: u64) -> Group {
        let inodes = fragments.div_ceil(self.per_inode);
        Group {
            fragments,
            inodes: inodes.next_multiple_of(self.inodes_per_block()),
        }
    }

    /// The bytes of a group's header with its maps, with four to spare as newfs(8) has them.
    fn header_bytes(&self, group: Group) -> u64 {
        let clusters = match self.clusters {
            0 => 0,
            clusters => clusters * 4 + (group.fragments / self.per_block()).div_ceil(8),
        };
        let old_totals = match self.version {
            Version::Ufs1 => 6,
            Version::Ufs2 => 0,
        };
        let maps = group.inodes.div_ceil(8) + group.fragments.div_ceil(8) + 4;
        HEADER_BYTES as u64 + old_totals + maps + clusters
    }

    fn can_count_inodes(&self, group: Group) -> bool {
        self.version == Version::Ufs2 || group.inodes <= UFS1_MOST_INODES_PER_GROUP
    }

    /// The smallest group that has enough fragments for its inodes. Where its maps do not fit into
    /// a block there are more inodes.
    fn smallest_group(&mut self) -> Result<Group, MkfsError> {
        let start = Group {
            fragments: 0,
            inodes: self.inodes_per_block(),
        };
        loop {
            let least = (self.per_inode * self.inodes_per_block()).min(self.fragments);
            let mut group = start;
            for _ in 0..2 {
                group = self.group(self.overhead(group).max(least));
            }
            group.fragments = group.fragments.next_multiple_of(self.per_block());
            if self.header_bytes(group) < self.block {
                return Ok(group);
            }
            if self.per_inode == 1 {
                let what = "a group's maps do not fit into a block".to_owned();
                return Err(MkfsError::BadOption(what));
            }
            self.per_inode -= 1;
        }
    }

    /// The group that newfs(8) makes: large, but so that there are a few, its maps fit into a
    /// block, and the last group has room for data.
    fn best_group(&mut self, most_fragments: u64) -> Result<Group, MkfsError> {
        let smallest = self.smallest_group()?;
        let step = self.per_block();
        let is_possible = |group: Group| {
            self.can_count_inodes(group)
                && group.fragments <= most_fragments.max(smallest.fragments)
                && self.fragments / (group.fragments - step).max(step) >= WANTED_GROUPS
                && self.header_bytes(group) <= self.block
        };
        // The first size with too few groups is still taken. By bisection, since whatever is possible is so for all smaller groups too.
        let steps_of = |group: Group| group.fragments / step;
        let (mut low, mut high) = (steps_of(smallest), self.fragments / step + 1);
        while high > low + 1 {
            let middle = low + (high - low) / 2;
            match is_possible(self.group(middle * step)) {
                true => low = middle,
                false => high = middle,
            }
        }
        let mut group = self.group(low * step);
        if group.fragments == smallest.fragments {
            group = smallest;
        }
        while group.fragments >= self.overhead(group) {
            if self.has_room(group) {
                return Ok(group);
            }
            group = self.group(group.fragments - step);
        }
        self.few_groups(most_fragments).ok_or_else(|| {
            MkfsError::TooSmall(format!(
                "{} bytes, at least {} are needed",
                self.fragments * self.fragment,
                self.least_fragments(smallest) * self.fragment
            ))
        })
    }

    /// Behind the root directory's first block, which follows the summary array in the first group.
    fn root_end(&self, group: Group) -> u64 {
        let groups = self.fragments.div_ceil(group.fragments.max(1));
        let summary = (groups * RawSummary::SIZE as u64).div_ceil(self.fragment);
        (self.data_at(group) + summary).next_multiple_of(self.per_block()) + self.per_block()
    }

    /// Whether each group has room for what is its own, the last one too, and the first one for the root.
    fn has_room(&self, group: Group) -> bool {
        if group.fragments == 0 {
            return false;
        }
        let (rest, overhead) = (self.fragments % group.fragments, self.overhead(group));
        let is_last_possible = rest == 0 || rest >= overhead;
        is_last_possible
            && group.fragments >= overhead
            && group.fragments.min(self.fragments) >= self.root_end(group)
    }

    /// A group where there is no room for as many groups as wanted.
    fn few_groups(&self, most_fragments: u64) -> Option<Group> {
        let groups = (1..WANTED_GROUPS).rev().map(|count| {
            let fragments = self.fragments.div_ceil(count);
            self.group(fragments.next_multiple_of(self.per_block()))
        });
        let is_possible = |group: &Group| {
            self.has_room(*group)
                && group.fragments <= most_fragments
                && self.can_count_inodes(*group)
                && self.header_bytes(*group) <= self.block
        };
        groups.into_iter().find(is_possible)
    }

    /// The fewest fragments that a file system can have: one group, and a block of data.
    fn least_fragments(&self, smallest: Group) -> u64 {
        let mut least = self.root_end(smallest);
        loop {
            let needed = self.root_end(self.group(least));
            if needed <= least {
                return least;
            }
            least = needed;
        }
    }
}

/// The sizes of block and fragment.
fn block_and_fragment(mkfs: &Mkfs) -> Result<(u64, u64), MkfsError> {
    let fragment = mkfs.fragment_size.map(u64::from);
    let usual_block = fragment.map_or(USUAL_BLOCK_BYTES, |bytes| {
        (bytes.saturating_mul(MOST_FRAGMENTS)).clamp(4 << 10, 64 << 10)
    });
    let block = mkfs.block_size.map_or(usual_block, u64::from);
    let bad = |what: String| Err(MkfsError::BadOption(what));
    if !block.is_power_of_two() || !((4 << 10)..=(64 << 10)).contains(&block) {
        return bad(format!("blocks of {block} bytes: 4096 to 65536 expected"));
    }
    let fragment = fragment.unwrap_or(block / MOST_FRAGMENTS);
    let possible = (block / MOST_FRAGMENTS).max(SECTOR_BYTES)..=block;
    if !fragment.is_power_of_two() || !possible.contains(&fragment) {
        return bad(format!(
            "fragments of {fragment} bytes: {} to {} expected in blocks of {block}",
            possible.start(),
            possible.end()
        ));
    }
    Ok((block, fragment))
}

/// The superblock of a file system of so many bytes, with all that does not depend on its
/// contents.
pub(super) fn superblock(wanted: &Wanted<'_>, bytes: u64) -> Result<RawSuperblock, MkfsError> {
    let mut sizes = Sizes::of(wanted, bytes)?;
    let most = wanted.mkfs.blocks_per_group.map_or(u64::MAX, |blocks| {
        u64::from(blocks).saturating_mul(sizes.per_block())
    });
    let group = sizes.best_group(most.min(i32::MAX as u64))?;
    let mut raw = RawSuperblock::default();
    set_sizes(&mut raw, &sizes);
    set_groups(&mut raw, &sizes, group);
    set_choices(&mut raw, &sizes, wanted);
    if wanted.version == Version::Ufs1 {
        set_ufs1(&mut raw, &sizes, group);
    }
    Ok(raw)
}

fn set_sizes(raw: &mut RawSuperblock, sizes: &Sizes) {
    let per_block = sizes.per_block();
    raw.fs_bsize = sizes.block as i32;
    raw.fs_fsize = sizes.fragment as i32;
    raw.fs_frag = per_block as i32;
    raw.fs_bmask = -(sizes.block as i32);
    raw.fs_fmask = -(sizes.fragment as i32);
    raw.fs_qbmask = sizes.block as i64 - 1;
    raw.fs_qfmask = sizes.fragment as i64 - 1;
    raw.fs_bshift = sizes.block.ilog2() as i32;
    raw.fs_fshift = sizes.fragment.ilog2() as i32;
    raw.fs_fragshift = per_block.ilog2() as i32;
    raw.fs_fsbtodb = (sizes.fragment / SECTOR_BYTES).ilog2() as i32;
    let pointers = sizes.block / sizes.version.pointer_bytes() as u64;
    raw.fs_nindir = pointers as i32;
    raw.fs_inopb = sizes.inodes_per_block() as u32;
    let blocks = 12 + pointers + pointers.pow(2) + pointers.pow(3);
    raw.fs_maxfilesize = blocks * sizes.block - 1;
    let bytes = (RawSuperblock::SIZE as u64).next_multiple_of(sizes.fragment);
    raw.fs_sbsize = bytes.min(AREA_BYTES as u64) as i32;
    raw.fs_maxsymlinklen = 15 * sizes.version.pointer_bytes() as i32;
    raw.fs_maxbsize = sizes.block as i32;
    raw.fs_maxcontig = (TRANSFER_BYTES / sizes.block).max(1) as i32;
    raw.fs_contigsumsize = sizes.clusters as i32;
}

fn set_groups(raw: &mut RawSuperblock, sizes: &Sizes, group: Group) {
    let groups = sizes.fragments.div_ceil(group.fragments);
    raw.fs_size = sizes.fragments as i64;
    raw.fs_providersize = raw.fs_size;
    raw.fs_ncg = groups as u32;
    raw.fs_fpg = group.fragments as i32;
    raw.fs_ipg = group.inodes as u32;
    raw.fs_sblkno = sizes.copy_at() as i32;
    raw.fs_cblkno = sizes.header_at() as i32;
    raw.fs_iblkno = sizes.inodes_at() as i32;
    raw.fs_dblkno = sizes.data_at(group) as i32;
    raw.fs_cgsize = sizes.header_bytes(group).next_multiple_of(sizes.fragment) as i32;
    let summaries = groups * RawSummary::SIZE as u64;
    let summary_fragments = summaries.div_ceil(sizes.fragment);
    raw.fs_csaddr = sizes.data_at(group) as i64;
    raw.fs_cssize = (summary_fragments * sizes.fragment) as i32;
    let own = sizes.copy_at() + groups * (sizes.data_at(group) - sizes.copy_at());
    raw.fs_dsize = (sizes.fragments - own.min(sizes.fragments)) as i64 - summary_fragments as i64;
}

fn set_choices(raw: &mut RawSuperblock, sizes: &Sizes, wanted: &Wanted<'_>) {
    let mkfs = wanted.mkfs;
    raw.fs_magic = sizes.version.magic();
    raw.fs_sblockloc = sizes.version.usual_place() as i64;
    raw.fs_minfree = mkfs.reserved_percent as i32;
    raw.fs_maxbpg = (sizes.block / 8) as i32;
    raw.fs_avgfilesize = EXPECTED_FILE_BYTES;
    raw.fs_avgfpdir = EXPECTED_FILES_PER_DIRECTORY;
    let meta = raw.fs_fpg as i64 * i64::from(mkfs.reserved_percent) / 200;
    raw.fs_metaspace = meta / i64::from(raw.fs_frag) * i64::from(raw.fs_frag);
    raw.fs_old_flags = OLD_FLAG_MOVED;
    raw.fs_flags = wanted.flags as i32;
    raw.fs_clean = 1;
    raw.fs_time = mkfs.time_seconds as i64;
    super::set_uuid(raw, &mkfs.uuid);
    raw.fs_volname[..mkfs.label.len()].copy_from_slice(&mkfs.label);
}

/// Fields of UFS1 from the time before UFS2; its checkers still look at them.
fn set_ufs1(raw: &mut RawSuperblock, sizes: &Sizes, group: Group) {
    raw.fs_old_inodefmt = 2;
    raw.fs_old_cgmask = -1;
    raw.fs_old_size = raw.fs_size as i32;
    raw.fs_old_dsize = raw.fs_dsize as i32;
    raw.fs_old_csaddr = raw.fs_csaddr as i32;
    raw.fs_old_time = raw.fs_time as i32;
    raw.fs_old_rps = 60;
    raw.fs_old_nspf = (sizes.fragment / SECTOR_BYTES) as i32;
    raw.fs_old_cpg = 1;
    raw.fs_old_interleave = 1;
    raw.fs_old_postblformat = 1;
    raw.fs_old_nrpos = 1;
    let sectors = group.fragments * (sizes.fragment / SECTOR_BYTES);
    raw.fs_old_spc = sectors as i32;
    raw.fs_old_nsect = sectors as i32;
    raw.fs_old_npsect = sectors as i32;
    raw.fs_old_ncyl = raw.fs_ncg as i32;
}
