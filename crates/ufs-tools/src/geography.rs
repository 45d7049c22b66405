//! What each fragment of an image is for: read off its superblock and inodes, where these can be
//! read.

use crate::{entries, fsck};
use backstitch_layout::tools::{Geography, Source, Use};
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use backstitch_ufs::format::inode::DIRECT_POINTERS;
use backstitch_ufs::format::{CylinderGroup, Inode, ROOT_INODE, Superblock, Version};
use rustc_hash::FxHashMap;

/// The fragments of an image.
pub(crate) struct Fragments {
    sb: Superblock,
    owners: FxHashMap<u64, Use>,
}

/// The inode at hand.
struct Owner {
    number: InodeNumber,
    is_directory: bool,
    /// Blocks that its size asks for.
    blocks: u64,
}

impl Fragments {
    /// Reads an image; `None` where the superblock cannot be read.
    pub(crate) fn read(source: &dyn Source) -> Option<Fragments> {
        let sb = fsck::superblock::find(source).ok()?;
        let mut fragments = Fragments {
            sb,
            owners: FxHashMap::default(),
        };
        for group in GroupNumber::all(fragments.sb.groups) {
            let first = group.0 * fragments.sb.inodes_per_group;
            let end = first + fragments.initialised(source, group);
            for number in (first..end).map(InodeNumber) {
                if number >= ROOT_INODE
                    && let Some(inode) = fragments.inode(source, number)
                    && inode.mode != 0
                {
                    fragments.add_inode(source, number, &inode);
                }
            }
        }
        Some(fragments)
    }

    fn bytes(&self, source: &dyn Source, fragment: u64, len: usize) -> Option<Vec<u8>> {
        let mut scratch = Vec::new();
        let at = fragment.checked_mul(self.sb.fragment_bytes.into())?;
        Some(source.bytes(at, len, &mut scratch).ok()?.to_vec())
    }

    /// The inodes of a group that were initialised, as far as its header can be read.
    fn initialised(&self, source: &dyn Source, group: GroupNumber) -> u32 {
        let at = self.sb.group_header(group);
        let bytes = self.bytes(source, at, self.sb.group_bytes as usize);
        let parsed = bytes
            .as_deref()
            .and_then(|bytes| CylinderGroup::parse(&self.sb, group, bytes).ok());
        parsed.map_or(0, |header| header.initialised_inodes)
    }

    fn inode(&self, source: &dyn Source, number: InodeNumber) -> Option<Inode> {
        let (fragment, offset) = self.sb.inode_place(number);
        let bytes = self.bytes(source, fragment, self.sb.fragment_bytes as usize)?;
        Inode::parse(self.sb.version, self.sb.order, bytes.get(offset..)?).ok()
    }

    fn add_inode(&mut self, source: &dyn Source, number: InodeNumber, inode: &Inode) {
        let attributes = inode
            .attribute_pointers
            .into_iter()
            .filter(|pointer| *pointer != 0);
        for pointer in attributes {
            self.add_block(pointer, |_| Use::Attributes(number));
        }
        if !inode.has_block_map(self.sb.symlink_max) {
            return;
        }
        let owner = Owner {
            number,
            is_directory: inode.is_directory(),
            blocks: inode.size.div_ceil(self.sb.block_bytes.into()),
        };
        let mut next = 0;
        for (slot, pointer) in inode.pointers.into_iter().enumerate() {
            let depth = slot.saturating_sub(DIRECT_POINTERS - 1);
            self.add_pointer(source, &owner, pointer, depth, &mut next);
        }
    }

    /// Adds a block's fragments, but those that are somebody else's.
    fn add_block(&mut self, first: u64, what: impl Fn(u64) -> Use) {
        let per_block = u64::from(self.sb.fragments_per_block);
        let end = first / per_block * per_block + per_block;
        for fragment in first..end.min(self.sb.fragments) {
            self.owners
                .entry(fragment)
                .or_insert(what(fragment - first));
        }
    }

    /// A pointer, `depth` levels above contents; `next` is the file's block that it leads to first.
    fn add_pointer(
        &mut self,
        source: &dyn Source,
        owner: &Owner,
        pointer: u64,
        depth: usize,
        next: &mut u64,
    ) {
        let span = u64::from(self.sb.pointers_per_block).pow(depth as u32);
        if pointer == 0 || pointer >= self.sb.fragments || *next >= owner.blocks {
            *next += span;
            return;
        }
        let (number, per_block) = (owner.number, u64::from(self.sb.fragments_per_block));
        let (logical, is_directory) = (*next, owner.is_directory);
        // A block that was followed before, by this inode or another.
        let is_known = self.owners.contains_key(&pointer);
        self.add_block(pointer, |index| match (depth, is_directory) {
            (0, true) => Use::Names(number),
            (0, false) => Use::Contents(number, logical * per_block + index),
            _ => Use::Pointers(number),
        });
        if depth == 0 || is_known {
            *next += span;
            return;
        }
        let width = self.sb.version.pointer_bytes();
        let words = self.bytes(source, pointer, self.sb.block_bytes as usize);
        for word in words.unwrap_or_default().chunks_exact(width) {
            let word = match self.sb.version {
                Version::Ufs1 => self.sb.order.u32(word, 0).into(),
                Version::Ufs2 => self.sb.order.u64(word, 0),
            };
            self.add_pointer(source, owner, word, depth - 1, next);
        }
    }

    /// What a fragment is for among those that a group has for itself, or `None`.
    fn own_use(&self, fragment: u64) -> Option<Use> {
        let sb = &self.sb;
        let home = sb.place / u64::from(sb.fragment_bytes);
        if fragment == home {
            return Some(Use::Superblock);
        }
        if sb.summary_fragments().contains(&fragment) {
            return Some(Use::Descriptors);
        }
        let group = sb.group_of(fragment);
        if !sb.own_fragments(group).contains(&fragment) {
            return None;
        }
        let inodes = sb.group_inodes(group);
        Some(if fragment >= inodes {
            let per_fragment = sb.fragment_bytes / sb.version.inode_bytes() as u32;
            let before = (fragment - inodes) as u32 * per_fragment;
            Use::Inodes(InodeNumber(group.0 * sb.inodes_per_group + before))
        } else if fragment >= sb.group_header(group) {
            // The map of inodes is in the same block.
            Use::BlockBitmap(group)
        } else if fragment >= sb.superblock_copy(group) {
            Use::Backup
        } else {
            Use::Superblock
        })
    }
}

impl Geography for Fragments {
    #[expect(
        clippy::misnamed_getters,
        reason = "what all layouts call a block is the unit of allocation"
    )]
    fn block_bytes(&self) -> u32 {
        self.sb.fragment_bytes
    }

    fn inode_bytes(&self) -> u32 {
        self.sb.version.inode_bytes() as u32
    }

    fn what(&self, block: BlockNumber) -> Use {
        let block = block.0;
        if block >= self.sb.fragments {
            return Use::Unknown;
        }
        let own = self.own_use(block);
        own.or(self.owners.get(&block).copied())
            .unwrap_or(Use::Unknown)
    }

    fn inode_difference(&self, before: &[u8], after: &[u8]) -> String {
        let parse = |bytes| Inode::parse(self.sb.version, self.sb.order, bytes);
        match (parse(before), parse(after)) {
            (Ok(before), Ok(after)) => difference(&before, &after),
            _ => String::new(),
        }
    }

    fn names(&self, block: &[u8]) -> Vec<(Vec<u8>, InodeNumber)> {
        entries::live(self.sb.order, block)
            .map(|entry| (entry.name.to_vec(), entry.inode))
            .collect()
    }
}

/// What differs, but for times; empty where nothing does.
fn difference(before: &Inode, after: &Inode) -> String {
    let mut parts = Vec::new();
    if before.mode == 0 || after.generation != before.generation {
        parts.push("made".to_owned());
    } else if after.mode != before.mode {
        parts.push(format!("mode {:o} → {:o}", before.mode, after.mode));
    }
    let mut number = |name: &str, from: u64, to: u64| {
        if from != to {
            parts.push(format!("{name} {from} → {to}"));
        }
    };
    number("size", before.size, after.size);
    number("links", before.links.into(), after.links.into());
    number("owner", before.uid.into(), after.uid.into());
    if before.pointers != after.pointers {
        parts.push("pointers".to_owned());
    }
    parts.join(", ")
}
