//! Pass 5: what is marked against what is used, and everything that is counted.
//!
//! The maps are compared with what was found in use; what a group counts and sums up is compared
//! with its own maps, so that one fault gives one finding.

use super::state::{Context, Gathered, Group};
use super::{CheckError, Code, Location, Source};
use crate::bits::{Difference, differences};
use crate::group::{self, Contents};
use backstitch_blocks::bitmap;
use backstitch_layout::tools::{Findings, Summary};
use backstitch_layout::{BlockNumber, FileType, GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::type_code;
use backstitch_ufs::format::group::{Derived, Maps};
use backstitch_ufs::format::{
    OnDisk, RawCylinderGroup, RawSummary, RawSummaryTotal, Superblock, Version,
};

/// Compares everything; gives what was counted.
pub(super) fn check<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    findings: &mut Findings,
) -> Result<Summary, CheckError> {
    let sb = context.sb;
    let mut scratch = Vec::new();
    let mut total = RawSummaryTotal::default();
    let mut array = Vec::new();
    let array = context.bytes(sb.summary_at, sb.summary_bytes as usize, &mut array)?;
    for (number, group) in GroupNumber::all(sb.groups).zip(&context.groups) {
        let own = RawSummary::decode(sb.order, &array[number.index() * RawSummary::SIZE..]);
        if !group.is_sound {
            total.add(&own);
            continue;
        }
        total.add(&group.raw.cg_cs);
        if own != group.raw.cg_cs {
            findings.add(Code::SummaryWrong, Location::group(number), || {
                format!("the summary says {own:?}, the group {:?}", group.raw.cg_cs)
            });
        }
        let place = sb.group_header(number);
        let bytes = context.bytes(place, sb.group_bytes as usize, &mut scratch)?;
        GroupCheck {
            sb,
            gathered,
            number,
            raw: &group.raw,
            maps: maps_of(sb, group),
            bytes,
            findings,
        }
        .check();
    }
    check_total(sb, &total, findings);
    Ok(summary(sb, gathered))
}

/// Where a group's maps are by its header, which was checked.
fn maps_of(sb: &Superblock, group: &Group) -> Maps {
    let usual = Maps::new(sb);
    let raw = &group.raw;
    Maps {
        inodes_used: raw.cg_iusedoff as usize,
        fragments_free: raw.cg_freeoff as usize,
        cluster_sums: raw.cg_clustersumoff as usize,
        clusters_free: raw.cg_clusteroff as usize,
        ..usual
    }
}

/// The superblock's total against the groups'.
fn check_total(sb: &Superblock, total: &RawSummaryTotal, findings: &mut Findings) {
    let add = |findings: &mut Findings, what: String| {
        findings.add(Code::SummaryWrong, Location::FILE_SYSTEM, || what);
    };
    let counts = |t: &RawSummaryTotal| (t.cs_ndir, t.cs_nbfree, t.cs_nifree, t.cs_nffree);
    let old = &sb.raw.fs_old_cstotal;
    let old = (
        i64::from(old.cs_ndir),
        i64::from(old.cs_nbfree),
        i64::from(old.cs_nifree),
        i64::from(old.cs_nffree),
    );
    let own = &sb.raw.fs_cstotal;
    let rest = (own.cs_numclusters, own.cs_spare);
    if !sb.is_old && rest != (0, [0; 3]) {
        add(
            findings,
            format!("the superblock's total has more, {rest:?}"),
        );
    }
    if !sb.is_old && counts(own) != counts(total) {
        let (own, total) = (counts(own), counts(total));
        add(
            findings,
            format!("the superblock says {own:?}, the groups {total:?}"),
        );
    }
    if sb.version == Version::Ufs1 && old != counts(total) {
        let total = counts(total);
        add(
            findings,
            format!("the superblock's old total is {old:?}, the groups' {total:?}"),
        );
    }
}

struct GroupCheck<'c> {
    sb: &'c Superblock,
    gathered: &'c Gathered,
    number: GroupNumber,
    raw: &'c RawCylinderGroup,
    maps: Maps,
    bytes: &'c [u8],
    findings: &'c mut Findings,
}

impl GroupCheck<'_> {
    fn add(&mut self, code: Code, what: impl FnOnce() -> String) {
        let place = Location::group(self.number);
        self.findings.add(code, place, what);
    }

    fn check(&mut self) {
        let fragments = self.sb.fragments_in_group(self.number);
        let inodes = self.map(self.maps.inodes_used, self.sb.inodes_per_group);
        let free = self.map(self.maps.fragments_free, self.sb.fragments_per_group);
        let derived = Derived::of(self.sb, &free, fragments);
        self.check_padding(&inodes, &free, fragments);
        self.check_gaps(&inodes, &free, &derived);
        self.check_fragments(&free, fragments);
        self.check_inodes(&inodes);
        self.check_counts(&inodes, &derived);
        self.check_clusters(&derived);
        self.check_header(&inodes, &free, &derived);
    }

    fn map(&self, at: usize, bits: u32) -> Vec<u8> {
        self.bytes[at..at + (bits as usize).div_ceil(8)].to_vec()
    }

    /// Bits behind the last inode and the last fragment are zero.
    fn check_padding(&mut self, inodes: &[u8], free: &[u8], fragments: u32) {
        let has_more = |map: &[u8], bits: u32| {
            (bits as usize..map.len() * 8).any(|bit| bitmap::test(map, bit))
        };
        if has_more(inodes, self.sb.inodes_per_group) || has_more(free, fragments) {
            self.add(Code::BitmapPadding, || {
                "bits behind the end of a map are set".to_owned()
            });
        }
    }

    /// What lies between the maps is zero.
    fn check_gaps(&mut self, inodes: &[u8], free: &[u8], derived: &Derived) {
        if self.sb.is_old {
            return;
        }
        let (maps, bytes) = (self.maps, self.bytes);
        let mut ends = vec![
            (maps.inodes_used, inodes.len()),
            (maps.fragments_free, free.len()),
        ];
        if self.sb.cluster_sums > 0 {
            // The sum of length 0 is not there: its place is the end of the map before.
            ends.push((maps.cluster_sums + 4, derived.cluster_sums.len() * 4 - 4));
            ends.push((maps.clusters_free, derived.cluster_map.len()));
        }
        let gaps = ends.windows(2).map(|pair| pair[0].0 + pair[0].1..pair[1].0);
        let is_in_use = |gap| {
            bytes
                .get(gap)
                .is_some_and(|gap: &[u8]| gap.iter().any(|byte| *byte != 0))
        };
        if gaps.into_iter().any(is_in_use) {
            self.add(Code::BitmapPadding, || {
                "there is something between the maps".to_owned()
            });
        }
    }

    fn check_fragments(&mut self, free: &[u8], fragments: u32) {
        let start = self.sb.group_start(self.number);
        let expected = self.gathered.used.free_map(start, fragments, free.len());
        for run in differences(&expected, free) {
            if run.start >= fragments {
                continue;
            }
            let first = start + u64::from(run.start);
            // What nobody uses and is not marked as free.
            let code = match run.is_in_first {
                true => Code::BlockLeaked,
                false => Code::BlockNotMarked,
            };
            let place = Location::group(self.number).at_block(BlockNumber(first));
            self.findings
                .add(code, place, || describe("fragment", first, &run));
        }
    }

    fn check_inodes(&mut self, inodes: &[u8]) {
        let first = InodeNumber(self.number.0 * self.sb.inodes_per_group);
        let expected = self.gathered.inode_map(self.sb, self.number);
        for run in differences(inodes, &expected) {
            let inode = first + run.start;
            let code = match run.is_in_first {
                true => Code::InodeLeaked,
                false => Code::InodeNotMarked,
            };
            let place = Location {
                group: Some(self.number),
                ..Location::inode(inode)
            };
            self.findings
                .add(code, place, || describe("inode", inode.0.into(), &run));
        }
    }

    fn check_counts(&mut self, inodes: &[u8], derived: &Derived) {
        let counts = self.raw.cg_cs.clone();
        let used: u32 = inodes.iter().map(|byte| byte.count_ones()).sum();
        let free_inodes = self.sb.inodes_per_group.saturating_sub(used);
        let found = (counts.cs_nbfree, counts.cs_nffree);
        let expected = (derived.free_blocks as i32, derived.free_fragments as i32);
        if found != expected {
            self.add(Code::FreeBlocksWrong, || {
                format!("counts {found:?} free blocks and fragments, the map has {expected:?}")
            });
        }
        if counts.cs_nifree != free_inodes as i32 {
            self.add(Code::FreeInodesWrong, || {
                format!(
                    "counts {} free inodes, the map has {free_inodes}",
                    counts.cs_nifree
                )
            });
        }
        let infos = self.gathered.inodes[self.number.index()]
            .as_deref()
            .unwrap_or(&[]);
        let marked = infos.iter().enumerate().filter(|(index, info)| {
            info.is_used && info.is_directory() && bitmap::test(inodes, *index)
        });
        let directories = marked.count() as i32;
        if counts.cs_ndir != directories {
            self.add(Code::DirectoryCountWrong, || {
                format!("counts {} directories, has {directories}", counts.cs_ndir)
            });
        }
        let (sums, expected) = (self.raw.cg_frsum, derived.fragment_sums);
        if sums != expected {
            self.add(Code::FragmentSumsWrong, || {
                format!("counts runs of free fragments {sums:?}, the map has {expected:?}")
            });
        }
    }

    fn check_clusters(&mut self, derived: &Derived) {
        let (sb, maps, bytes) = (self.sb, self.maps, self.bytes);
        let sum = |length: usize| sb.order.u32(bytes, maps.cluster_sums + length * 4);
        let mut lengths = 1..derived.cluster_sums.len();
        if lengths.any(|length| sum(length) != derived.cluster_sums[length]) {
            self.add(Code::ClustersWrong, || {
                "the counts of runs of free blocks differ from the map".to_owned()
            });
        }
        let map = &derived.cluster_map;
        if bytes.get(maps.clusters_free..maps.clusters_free + map.len()) != Some(map) {
            self.add(Code::ClustersWrong, || {
                "the map of free blocks differs from that of fragments".to_owned()
            });
        }
    }

    /// The header's fields that are not counted.
    fn check_header(&mut self, inodes: &[u8], free: &[u8], derived: &Derived) {
        let contents = Contents {
            group: self.number,
            inodes,
            free,
            directories: 0,
            kept: self.raw,
        };
        let mut expected = group::header(self.sb, &contents, derived);
        let found = self.raw.clone();
        let limits = [
            (found.cg_rotor, found.cg_ndblk),
            (found.cg_frotor, found.cg_ndblk),
            (found.cg_irotor, self.sb.inodes_per_group),
        ];
        if limits.iter().any(|(rotor, end)| rotor >= end) {
            self.add(Code::RotorInvalid, || {
                "a search would begin outside of the group".to_owned()
            });
        }
        let is_ufs2 = self.sb.version == Version::Ufs2;
        if is_ufs2 && found.cg_initediblk > self.sb.inodes_per_group {
            self.add(Code::GroupHeaderCorrupt, || {
                format!("{} inodes are initialised, of fewer", found.cg_initediblk)
            });
        }
        if self.sb.is_old {
            return;
        }
        // Counted above.
        expected.cg_cs = found.cg_cs.clone();
        expected.cg_frsum = found.cg_frsum;
        expected.cg_firstfield = 0;
        if let Some(field) = first_difference(&found, &expected) {
            self.add(Code::GroupHeaderCorrupt, || field);
        }
    }
}

/// The first field of a header that is not what it must be.
fn first_difference(found: &RawCylinderGroup, expected: &RawCylinderGroup) -> Option<String> {
    macro_rules! fields {
        ($($field:ident)*) => {
            [$((stringify!($field), found.$field as i64, expected.$field as i64),)*]
        };
    }
    let numbers = fields! {
        cg_firstfield cg_initediblk cg_old_ncyl cg_old_niblk cg_ndblk cg_old_btotoff cg_old_boff cg_iusedoff cg_freeoff
        cg_nextfreeoff cg_clustersumoff cg_clusteroff cg_nclusterblks cg_niblk cg_sparecon32
    };
    let wrong = numbers
        .iter()
        .find(|(_, found, expected)| found != expected);
    if let Some((name, found, expected)) = wrong {
        return Some(format!("{name} is {found}, must be {expected}"));
    }
    let is_zero = found.cg_sparecon64 == [0; 3];
    (!is_zero).then(|| "a spare field of the header is in use".to_owned())
}

fn describe(one: &str, first: u64, run: &Difference) -> String {
    let state = match (one, run.is_in_first) {
        ("fragment", true) | ("inode", true) => "marked as used, but not in use",
        _ => "in use, but marked as free",
    };
    match run.last - run.start {
        0 => format!("{one} {first} is {state}"),
        more => format!("{one}s {first} … {} are {state}", first + u64::from(more)),
    }
}

fn summary(sb: &Superblock, gathered: &Gathered) -> Summary {
    let mut summary = Summary {
        inodes: u64::from(sb.inodes_per_group) * u64::from(sb.groups),
        blocks: sb.fragments,
        used_blocks: gathered.used.count(),
        ..Summary::default()
    };
    for (_, info) in gathered.used_inodes(sb) {
        summary.used_inodes += 1;
        let code = |file_type| info.type_code == type_code(file_type);
        if info.is_directory() {
            summary.directories += 1;
        } else if code(FileType::Regular) {
            summary.regular_files += 1;
        } else if code(FileType::Symlink) {
            summary.symlinks += 1;
        } else if info.type_code != 0 {
            summary.special_files += 1;
        }
    }
    summary
}
