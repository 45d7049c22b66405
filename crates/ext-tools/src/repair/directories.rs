//! Directories, entry by entry.

use super::entries::{Saved, build, is_good_name, salvage};
use super::fixer::{ByInode, Fixer, get_u32, put_u16, put_u32};
use crate::fsck::{CheckError, Code, Finding, Location};
use backstitch_ext::BlockEdit;
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::{
    self, OFFSET_FILE_TYPE, OFFSET_INODE, empty_block, entries, new_directory_block, type_code,
};
use backstitch_ext::format::features::INCOMPAT_FILETYPE;
use backstitch_ext::format::htree::{self, block::Root};
use backstitch_ext::format::inode::{self, offset};
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks at the end of a directory in which room for a new name is looked for. Where none has
/// room, the directory gets a new block.
const TRIED_BLOCKS: usize = 16;

/// A block, and an offset in it.
type Place = (BlockNumber, usize);

/// An entry of a sound block, to be judged.
struct Found {
    at: usize,
    inode: InodeNumber,
    file_type: u8,
    name: Vec<u8>,
}

impl Fixer<'_, '_> {
    /// The type code of entries for directories.
    pub(super) fn directory_code(&self) -> u8 {
        self.entry_code(type_code(FileType::Directory))
    }

    /// A type code as entries of this file system have it.
    pub(super) fn entry_code(&self, code: u8) -> u8 {
        if self.sb.features.has_incompat(INCOMPAT_FILETYPE) {
            code
        } else {
            directory::TYPE_UNKNOWN
        }
    }

    /// The blocks of a directory in order, without those that another inode has.
    pub(super) fn directory_blocks(&self, number: InodeNumber) -> Vec<(u64, BlockNumber)> {
        let Some(index) = self.facts.gathered.directory_index(number) else {
            return Vec::new();
        };
        let range = self.facts.gathered.directories[index].blocks.clone();
        self.facts.gathered.directory_blocks[range]
            .iter()
            .filter(|block| block.block != 0)
            .map(|block| (block.logical.into(), BlockNumber(block.block.into())))
            .collect()
    }

    /// A directory that contains this one: by a name, or the root.
    fn parent_of(&self, number: InodeNumber) -> InodeNumber {
        let parents = self.parents_of(number);
        parents.first().copied().unwrap_or(ROOT_INODE)
    }

    /// Clears the index flag: the names are no longer in the order of their hashes.
    pub(super) fn drop_index(&mut self, number: InodeNumber) -> Result<(), CheckError> {
        let mut bytes = self.inode_bytes(number)?;
        let flags = get_u32(&bytes, offset::FLAGS);
        put_u32(&mut bytes, offset::FLAGS, flags & !inode::FLAG_INDEX);
        self.put_inode(number, &bytes)
    }

    /// Directories without blocks, or with holes: the blocks that are there move together.
    pub(super) fn holes(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for number in found.keys() {
            let mut blocks: Vec<BlockNumber> =
                self.directory_blocks(*number).iter().map(|b| b.1).collect();
            if blocks.is_empty() {
                let Some(block) = self.allocate()? else {
                    continue;
                };
                let parent = self.parent_of(*number);
                let code = self.directory_code();
                let fresh = new_directory_block(self.block_size(), *number, parent, code);
                self.put_block(block, &fresh)?;
                blocks.push(block);
            }
            let mut bytes = self.inode_bytes(*number)?;
            bytes[offset::BLOCK..offset::BLOCK + 60].fill(0);
            let mut count = 0;
            for block in blocks {
                if !self.set_pointer(&mut bytes, count, block)? {
                    break;
                }
                count += 1;
            }
            put_u32(&mut bytes, offset::SIZE, count as u32 * self.sb.block_size);
            self.put_inode(*number, &bytes)?;
            self.drop_index(*number)?;
            self.note(
                Location::inode(*number),
                format!("has {count} blocks without holes now"),
            );
        }
        Ok(())
    }

    pub(super) fn entries(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        let mut damaged: BTreeMap<InodeNumber, BTreeSet<BlockNumber>> = BTreeMap::new();
        let mut codes = ByInode::new();
        for finding in findings {
            let Some(number) = finding.location.inode else {
                continue;
            };
            codes.entry(number).or_default().insert(finding.code);
            let is_structure = matches!(
                finding.code,
                Code::EntryCorrupt | Code::DotInvalid | Code::DotDotInvalid
            );
            if let (true, Some(block)) = (is_structure, finding.location.block) {
                damaged.entry(number).or_default().insert(block);
            }
        }
        let types = match damaged.is_empty() {
            true => FxHashMap::default(),
            false => self.entry_types()?,
        };
        for (number, codes) in codes {
            match damaged.get(&number) {
                Some(blocks) if self.was_file(number, blocks, &types)? => {}
                Some(blocks) => self.rebuild(number, blocks)?,
                None => self.judge(number, codes.contains(&Code::EntryDuplicate))?,
            }
            if codes.contains(&Code::IndexInvalid) {
                self.drop_index(number)?;
                self.note(Location::inode(number), "index dropped");
            }
        }
        Ok(())
    }

    /// Makes an inode a regular file again that is a directory by its mode, where its first block
    /// is no directory block and its names say "file".
    fn was_file(
        &mut self,
        number: InodeNumber,
        damaged: &BTreeSet<BlockNumber>,
        types: &FxHashMap<InodeNumber, u8>,
    ) -> Result<bool, CheckError> {
        let first = self.directory_blocks(number).first().copied();
        let is_file = types.get(&number) == Some(&type_code(FileType::Regular));
        let is_damaged = first.is_some_and(|(_, block)| damaged.contains(&block));
        if !is_file || !is_damaged || number == ROOT_INODE {
            return Ok(false);
        }
        let mut bytes = self.inode_bytes(number)?;
        let mode = u16::from_le_bytes([bytes[offset::MODE], bytes[offset::MODE + 1]]);
        put_u16(&mut bytes, offset::MODE, mode & 0o7777 | 0o100_000);
        self.put_inode(number, &bytes)?;
        self.drop_index(number)?;
        self.note(
            Location::inode(number),
            "made a regular file, as its name tells",
        );
        Ok(true)
    }

    /// Makes damaged blocks of a directory anew, from the names that can be saved.
    fn rebuild(
        &mut self,
        number: InodeNumber,
        damaged: &BTreeSet<BlockNumber>,
    ) -> Result<(), CheckError> {
        let code = self.directory_code();
        for (logical, block) in self.directory_blocks(number) {
            if !damaged.contains(&block) {
                continue;
            }
            let bytes = self.block(block)?;
            let mut saved = salvage(&bytes, &|inode, file_type| {
                self.info(inode).is_some_and(|info| {
                    // Unknown types are accepted: the feature that says that entries have types may
                    // be what was damaged.
                    file_type == info.type_code || file_type == directory::TYPE_UNKNOWN
                })
            });
            if logical == 0 {
                let dot_dot = saved.iter().find(|entry| entry.name == b"..");
                let is_possible = |parent: &InodeNumber| {
                    self.facts.gathered.directory_index(*parent).is_some() && *parent != number
                };
                let parent = dot_dot.map(|entry| entry.inode).filter(is_possible);
                let parent = match parent {
                    _ if number == ROOT_INODE => ROOT_INODE,
                    Some(parent) => parent,
                    None => self.parent_of(number),
                };
                saved.retain(|entry| entry.name != b"." && entry.name != b"..");
                let head = [(number, &b"."[..]), (parent, b"..")].map(|(inode, name)| Saved {
                    inode,
                    file_type: code,
                    name: name.to_vec(),
                });
                saved.splice(0..0, head);
            }
            let (fresh, fitting) = build(self.block_size(), &saved);
            self.put_block(block, &fresh)?;
            let what = format!("block made anew, with {fitting} of {} names", saved.len());
            self.note(Location::inode(number).at_block(block), what);
        }
        self.drop_index(number)
    }

    /// Goes through the entries of a directory whose blocks are sound. `has_twins` says that a name
    /// is there twice.
    fn judge(&mut self, number: InodeNumber, has_twins: bool) -> Result<(), CheckError> {
        let misplaced = match has_twins {
            true => self.misplaced(number)?,
            false => FxHashSet::default(),
        };
        let mut seen = FxHashSet::default();
        let mut is_renamed = false;
        for (logical, block) in self.directory_blocks(number) {
            let mut bytes = self.block(block)?;
            let before = bytes.clone();
            let list: Vec<Found> = entries(&before, u32::MAX)
                .map_while(Result::ok)
                .map(|entry| Found {
                    at: entry.offset,
                    inode: entry.inode,
                    file_type: entry.file_type,
                    name: entry.name.to_vec(),
                })
                .collect();
            for (index, entry) in list.into_iter().enumerate() {
                let place = Location::inode(number).at_block(block).at_offset(entry.at);
                if logical == 0 && index < 2 {
                    self.dots(number, index, &entry, &mut bytes, place);
                } else if entry.inode != InodeNumber::NONE {
                    // Of two equal names the misplaced one counts as the second, wherever it is.
                    let is_second = misplaced.contains(&(block, entry.at));
                    let twin = Some(entry.name.clone()).filter(|_| is_second);
                    let twin = twin.filter(|name| seen.insert(name.clone()));
                    is_renamed |= self.name(number, entry, &mut bytes, &mut seen, place);
                    if let Some(name) = twin {
                        seen.remove(&name);
                    }
                }
            }
            if bytes != before {
                self.put_block(block, &bytes)?;
            }
        }
        if is_renamed {
            self.drop_index(number)?;
        }
        Ok(())
    }

    /// For names that a directory with an index has twice: the places that are not in the leaf of
    /// the name's hash, where the other one is.
    fn misplaced(&self, number: InodeNumber) -> Result<FxHashSet<Place>, CheckError> {
        let mut misplaced = FxHashSet::default();
        let blocks = self.directory_blocks(number);
        let has_index = self.inode(number)?.flags & inode::FLAG_INDEX != 0;
        let (true, Some((0, first))) = (has_index, blocks.first().copied()) else {
            return Ok(misplaced);
        };
        let Ok(root) = Root::parse(&self.block(first)?, htree::max_indirect_levels(self.sb)) else {
            return Ok(misplaced);
        };
        let version = htree::effective_version(self.sb, root.hash_version);
        let mut by_name: FxHashMap<Vec<u8>, Vec<(Place, bool)>> = FxHashMap::default();
        for (_, block) in blocks.into_iter().skip(1) {
            let bytes = self.block(block)?;
            let list: Vec<_> = entries(&bytes, u32::MAX)
                .map_while(Result::ok)
                .filter(|entry| entry.inode != InodeNumber::NONE)
                .filter_map(|entry| {
                    let hash = htree::hash(version, &self.sb.hash_seed, entry.name)?;
                    Some((hash, entry))
                })
                .collect();
            let lowest = list.iter().map(|(hash, _)| *hash).min().unwrap_or(0);
            let highest = list.iter().map(|(hash, _)| *hash).max().unwrap_or(0);
            for (hash, entry) in list {
                // The lowest and the highest hash prove nothing: a misplaced name may be what made
                // them so.
                let fits = lowest < hash && hash < highest;
                let places = by_name.entry(entry.name.to_vec()).or_default();
                places.push(((block, entry.offset), fits));
            }
        }
        for twins in by_name.values().filter(|twins| twins.len() > 1) {
            if twins.iter().any(|(_, fits)| *fits) {
                let wrong = twins.iter().filter(|(_, fits)| !fits);
                misplaced.extend(wrong.map(|(place, _)| *place));
            }
        }
        Ok(misplaced)
    }

    /// `.` and `..`: only the type, and the inode of `..`, can be wrong.
    fn dots(
        &mut self,
        number: InodeNumber,
        index: usize,
        entry: &Found,
        bytes: &mut [u8],
        place: Location,
    ) {
        let is_directory = self.facts.gathered.directory_index(entry.inode).is_some();
        if index == 1 && !is_directory {
            let parent = self.parent_of(number);
            put_u32(bytes, entry.at + OFFSET_INODE, parent.0);
            self.note(place, format!(".. is {parent} now, not {}", entry.inode));
        }
        let code = self.directory_code();
        if entry.file_type != code && entry.file_type != directory::TYPE_UNKNOWN {
            bytes[entry.at + OFFSET_FILE_TYPE] = code;
            self.note(place, "type corrected");
        }
    }

    /// Repairs an entry. Returns whether its name was changed, or removed because it was invalid or
    /// taken.
    fn name(
        &mut self,
        number: InodeNumber,
        entry: Found,
        bytes: &mut [u8],
        seen: &mut FxHashSet<Vec<u8>>,
        place: Location,
    ) -> bool {
        let shown = format!("entry \"{}\"", entry.name.escape_ascii());
        let is_circular = entry.inode == number || entry.inode == ROOT_INODE;
        let is_reserved = entry.inode < self.sb.first_inode;
        let info = self.info(entry.inode);
        let Some(info) = info.filter(|_| !is_circular && !is_reserved) else {
            put_u32(bytes, entry.at + OFFSET_INODE, 0);
            self.note(place, format!("{shown} for inode {} removed", entry.inode));
            return false;
        };
        let code = self.entry_code(info.type_code);
        if entry.file_type != code && entry.file_type != directory::TYPE_UNKNOWN {
            bytes[entry.at + OFFSET_FILE_TYPE] = code;
            self.note(place, format!("type of {shown} corrected"));
        }
        let is_dots = entry.name == b"." || entry.name == b"..";
        if !is_dots && is_good_name(&entry.name) && seen.insert(entry.name.clone()) {
            return false;
        }
        match another_name(&entry.name, seen) {
            Some(name) => {
                let start = entry.at + directory::HEADER_SIZE;
                bytes[start..start + name.len()].copy_from_slice(&name);
                self.note(
                    place,
                    format!("{shown} renamed to \"{}\"", name.escape_ascii()),
                );
                seen.insert(name);
            }
            None => {
                put_u32(bytes, entry.at + OFFSET_INODE, 0);
                self.note(place, format!("{shown} removed, which is no name"));
            }
        }
        true
    }

    /// Puts a name into a directory, growing it where it is full. `false` where there is no space.
    pub(super) fn add_name(
        &mut self,
        directory: InodeNumber,
        blocks: &mut Vec<BlockNumber>,
        entry: &Saved,
    ) -> Result<bool, CheckError> {
        for block in blocks.iter().rev().take(TRIED_BLOCKS) {
            let bytes = self.block(*block)?;
            let mut edit = BlockEdit::new(&bytes, bytes.len());
            if edit
                .add_entry(entry.inode, entry.file_type, &entry.name)
                .is_some()
            {
                let (from, patch) = edit.patch();
                let mut bytes = bytes;
                bytes[from..from + patch.len()].copy_from_slice(patch);
                self.put_block(*block, &bytes)?;
                return Ok(true);
            }
        }
        let Some(block) = self.allocate()? else {
            return Ok(false);
        };
        let mut inode = self.inode_bytes(directory)?;
        if !self.set_pointer(&mut inode, blocks.len() as u64, block)? {
            return Ok(false);
        }
        let size = (blocks.len() as u32 + 1) * self.sb.block_size;
        put_u32(&mut inode, offset::SIZE, size);
        self.put_inode(directory, &inode)?;
        self.put_block(block, &empty_block(self.block_size()))?;
        blocks.push(block);
        self.add_name(directory, blocks, entry)
    }
}

/// A valid name of the same length that is not taken.
fn another_name(name: &[u8], seen: &FxHashSet<Vec<u8>>) -> Option<Vec<u8>> {
    let mut fixed: Vec<u8> = name
        .iter()
        .map(|byte| {
            if matches!(byte, b'/' | 0) {
                b'_'
            } else {
                *byte
            }
        })
        .collect();
    if fixed == b"." || fixed == b".." {
        fixed.fill(b'_');
    }
    let last = fixed.len().checked_sub(1)?;
    if !seen.contains(&fixed) {
        return Some(fixed);
    }
    for number in 0..1000_u32 {
        let digits = format!("~{number}").into_bytes();
        if digits.len() <= last {
            fixed[last + 1 - digits.len()..].copy_from_slice(&digits);
            if !seen.contains(&fixed) {
                return Some(fixed);
            }
        }
    }
    (b'0'..=b'z').find_map(|byte| {
        fixed[last] = byte;
        (byte != b'/' && !seen.contains(&fixed)).then(|| fixed.clone())
    })
}
