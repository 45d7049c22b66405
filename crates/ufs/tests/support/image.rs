//! An image in memory, and the check that what it counts is what its maps and inodes say.

use backstitch_blocks::directory::entries;
use backstitch_layout::{FileType, FormatError, GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::{UfsEntries, type_of_code};
use backstitch_ufs::format::group::{Derived, RawSummaryCounts, reserved_inodes};
use backstitch_ufs::format::{
    ByteOrder, CylinderGroup, Inode, OnDisk, ROOT_INODE, RawSummary, RawSummaryTotal,
    RawSuperblock, Superblock, Version,
};
use std::collections::{BTreeMap, BTreeSet};

/// An image in memory.
pub(crate) struct Image {
    pub(crate) sb: Superblock,
    pub(crate) bytes: Vec<u8>,
}

impl Image {
    pub(crate) fn read(bytes: Vec<u8>) -> Image {
        let read = |place: u64| -> Result<_, FormatError> {
            let area = bytes.get(place as usize..place as usize + RawSuperblock::SIZE);
            Ok(area.map(<[u8]>::to_vec))
        };
        let sb = Superblock::find(bytes.len() as u64, read).unwrap();
        Image { sb, bytes }
    }

    pub(crate) fn fragments(&self, first: u64, len: usize) -> &[u8] {
        let at = first as usize * self.sb.fragment_bytes as usize;
        &self.bytes[at..at + len]
    }

    pub(crate) fn group(&self, group: GroupNumber) -> CylinderGroup<'_> {
        let at = self.sb.group_header(group);
        let bytes = self.fragments(at, self.sb.group_bytes as usize);
        CylinderGroup::parse(&self.sb, group, bytes).unwrap()
    }

    pub(crate) fn inode(&self, number: u32) -> Inode {
        let (fragment, offset) = self.sb.inode_place(InodeNumber(number));
        let bytes = self.fragments(fragment, self.sb.fragment_bytes as usize);
        Inode::parse(self.sb.version, self.sb.order, &bytes[offset..]).unwrap()
    }

    fn has_map(&self, inode: &Inode) -> bool {
        inode.has_block_map(self.sb.symlink_max)
    }

    /// The fragments of an inode: those of its contents by the first one of each block, with how
    /// many there are, in the order of the file; then all of its indirect blocks.
    fn blocks(&self, inode: &Inode) -> (Vec<(u64, u64)>, Vec<u64>) {
        let (mut contents, mut indirect) = (Vec::new(), Vec::new());
        if !self.has_map(inode) {
            return (contents, indirect);
        }
        let block = u64::from(self.sb.block_bytes);
        let whole = u64::from(self.sb.fragments_per_block);
        for (index, pointer) in (0..12).zip(inode.pointers) {
            let left = inode.size.saturating_sub(index * block).min(block);
            let len = left.div_ceil(self.sb.fragment_bytes.into());
            assert!(pointer == 0 || len > 0, "a block behind the end: {inode:?}");
            contents.push((pointer, len.min(whole)));
        }
        for (depth, pointer) in (1..).zip(&inode.pointers[12..]) {
            self.tree(*pointer, depth, &mut contents, &mut indirect);
        }
        contents.retain(|(pointer, _)| *pointer != 0);
        (contents, indirect)
    }

    fn tree(&self, at: u64, depth: u32, contents: &mut Vec<(u64, u64)>, indirect: &mut Vec<u64>) {
        let whole = u64::from(self.sb.fragments_per_block);
        if at == 0 || depth == 0 {
            contents.push((at, whole));
            return;
        }
        indirect.push(at);
        let bytes = self.fragments(at, self.sb.block_bytes as usize);
        for index in 0..self.sb.pointers_per_block as usize {
            let pointer = match self.sb.version {
                Version::Ufs1 => self.sb.order.u32(bytes, index * 4).into(),
                Version::Ufs2 => self.sb.order.u64(bytes, index * 8),
            };
            self.tree(pointer, depth - 1, contents, indirect);
        }
    }

    /// The names of a directory, with their inodes and type codes.
    pub(crate) fn names(&self, directory: &Inode) -> Vec<(String, u32, u8)> {
        let mut names = Vec::new();
        let block_bytes = u64::from(self.sb.block_bytes);
        let mut left = directory.size;
        for (start, _) in self.blocks(directory).0 {
            let len = left.min(block_bytes) as usize;
            left -= len as u64;
            let block = self.fragments(start, len);
            match self.sb.order {
                ByteOrder::Little => collect::<false>(block, &mut names),
                ByteOrder::Big => collect::<true>(block, &mut names),
            }
        }
        names
    }
}

fn collect<const BIG: bool>(block: &[u8], names: &mut Vec<(String, u32, u8)>) {
    for entry in entries::<UfsEntries<BIG>>(block, u32::MAX) {
        let entry = entry.unwrap();
        if entry.inode.0 != 0 {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            names.push((name, entry.inode.0, entry.file_type));
        }
    }
}

/// Checks that the counts of all groups, and their sums, are what their maps say.
pub(crate) fn check_groups(image: &Image, what: &str) {
    let sb = &image.sb;
    let mut total = RawSummaryTotal::default();
    for group in GroupNumber::all(sb.groups) {
        let cg = image.group(group);
        let what = format!("{what}: group {group}");
        let derived = Derived::of(sb, cg.fragment_map(), cg.fragments);
        for length in 1..8 {
            let counted = derived.fragment_sums[length];
            assert_eq!(cg.fragment_sum(length), counted, "{what}: runs of {length}");
        }
        for length in 1..=sb.cluster_sums as usize {
            let counted = derived.cluster_sums[length];
            let found = cg.cluster_sum(length);
            assert_eq!(found, counted, "{what}: clusters of {length}");
        }
        assert_eq!(cg.cluster_map(), derived.cluster_map, "{what}");
        let raw = cg.raw();
        let is_within = raw.cg_rotor < cg.fragments && raw.cg_frotor < cg.fragments;
        assert!(
            is_within && raw.cg_irotor < sb.inodes_per_group,
            "{what}: {raw:?}"
        );
        let used = (0..sb.inodes_per_group).filter(|index| cg.is_inode_used(*index));
        let used: BTreeSet<u32> = used.collect();
        let is_directory = |index: &u32| {
            let number = group.0 * sb.inodes_per_group + index;
            *index >= reserved_inodes(group) && image.inode(number).is_directory()
        };
        assert!(
            used.iter().all(|index| *index < cg.initialised_inodes),
            "{what}"
        );
        let directories = used.iter().filter(|index| is_directory(index)).count();
        let counted = RawSummaryCounts {
            directories: directories as u32,
            free_blocks: derived.free_blocks,
            free_inodes: sb.inodes_per_group - used.len() as u32,
            free_fragments: derived.free_fragments,
        };
        assert_eq!(cg.summary, counted, "{what}");
        let at = group.index() * RawSummary::SIZE;
        let array = image.fragments(sb.summary_at, sb.summary_bytes as usize);
        let summary = RawSummary::decode(sb.order, &array[at..]);
        assert_eq!(RawSummaryCounts::from(&summary), counted, "{what}");
        total.add(&summary);
        let own = sb.own_fragments(group);
        let first = sb.group_start(group);
        let mut own_bits = own.map(|fragment| (fragment - first) as u32);
        assert!(own_bits.all(|bit| !cg.is_fragment_free(bit)), "{what}");
    }
    assert_eq!(sb.summary_total(), total, "{what}");
}

/// Checks that each fragment in use is one inode's or the format's own, that each inode in use has
/// a name, and that all of its counts are right.
pub(crate) fn check_inodes(image: &Image, what: &str) {
    let sb = &image.sb;
    let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
    let mut own = |range: std::ops::Range<u64>, owner: u32| {
        for fragment in range {
            let other = owners.insert(fragment, owner);
            assert_eq!(other, None, "{what}: fragment {fragment} of {owner}");
        }
    };
    for group in GroupNumber::all(sb.groups) {
        own(sb.own_fragments(group), 0);
    }
    own(sb.summary_fragments(), 0);
    let mut links: BTreeMap<u32, u32> = BTreeMap::new();
    let mut reached = BTreeSet::from([ROOT_INODE.0]);
    let mut queue = vec![ROOT_INODE.0];
    while let Some(number) = queue.pop() {
        let inode = image.inode(number);
        let (contents, indirect) = image.blocks(&inode);
        let whole = u64::from(sb.fragments_per_block);
        let runs = contents
            .into_iter()
            .chain(indirect.iter().map(|at| (*at, whole)));
        let mut fragments = 0;
        for (start, len) in runs {
            own(start..start + len, number);
            fragments += len;
        }
        let sectors = fragments * u64::from(sb.fragment_bytes / 512);
        assert_eq!(inode.sectors, sectors, "{what}: inode {number}");
        if inode.file_type() != Some(FileType::Directory) {
            continue;
        }
        let names = image.names(&inode);
        assert_eq!((names[0].0.as_str(), names[0].1), (".", number), "{what}");
        assert_eq!(names[1].0, "..", "{what}");
        for (name, child, code) in names {
            *links.entry(child).or_default() += 1;
            let child_type = image.inode(child).file_type();
            assert_eq!(type_of_code(code), child_type, "{what}: {name}");
            if reached.insert(child) {
                queue.push(child);
            }
        }
    }
    for number in 2..sb.inodes() {
        let group = sb.group_of_inode(InodeNumber(number));
        let is_used = image
            .group(group)
            .is_inode_used(number % sb.inodes_per_group);
        assert_eq!(is_used, reached.contains(&number), "{what}: inode {number}");
        let is_initialised = number % sb.inodes_per_group < image.group(group).initialised_inodes;
        let inode = is_initialised.then(|| image.inode(number));
        match inode {
            Some(inode) if is_used => {
                let counted = links.get(&number).copied().unwrap_or(0);
                assert_eq!(u32::from(inode.links), counted, "{what}: inode {number}");
            }
            // What a checker takes for partly allocated.
            Some(inode) => assert!(
                inode.mode == 0 && inode.size == 0 && inode.pointers == [0; 15],
                "{what}: free inode {number}: {inode:?}"
            ),
            None => {}
        }
    }
    for group in GroupNumber::all(sb.groups) {
        let cg = image.group(group);
        let first = sb.group_start(group);
        for bit in 0..cg.fragments {
            let owner = owners.get(&(first + u64::from(bit)));
            let is_free = cg.is_fragment_free(bit);
            assert_eq!(
                owner.is_none(),
                is_free,
                "{what}: {bit} of group {group}: {owner:?}"
            );
        }
    }
}
