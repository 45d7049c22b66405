//! Making room for a name in a hashed directory.

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Timestamp};
use backstitch_ordering::Volume;
use backstitch_unixfs::block_edit::find_gap;
use backstitch_unixfs::format::InodeEditor as _;
use backstitch_unixfs::{Growth, NewContents, PatchIds, Room, corrupt_directory};

use super::leaf::{self, Item};
use super::{ByIndex, Halt, Indexes, Level, Path};
use crate::format::Inode;
use crate::format::directory::{ExtEntries, entries, required_len};
use crate::format::htree::block::{IndexBlock, IndexEntries};
use crate::format::htree::{HASH_TEA, effective_version, max_indirect_levels};
use crate::format::inode::FLAG_INDEX;
use crate::kinds;
use crate::rules::{Rule, holds};

/// A directory that a name goes into, in one step.
struct Target<'a> {
    number: InodeNumber,
    inode: &'a Inode,
    now: Timestamp,
}

impl Indexes<'_> {
    /// Room for a new name where its hash belongs, by splits where there is none. `None` where the
    /// directory has no index that is kept, and gets none.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the index is full.
    pub(crate) fn room(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        parent: &Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Step<Option<Room>> {
        if parent.flags & FLAG_INDEX == 0 && !self.make_index(v, number, parent, name, now)? {
            return Ok(None);
        }
        loop {
            let inode = self.read_directory_inode(v, number)?;
            if !self.keeps_index(v, number, &inode) {
                return Ok(None);
            }
            let target = Target {
                number,
                inode: &inode,
                now,
            };
            let step = self.room_or_step(v, &target, name);
            match self.unless_fault(number, step)? {
                Some(Some(room)) => return Ok(Some(room)),
                Some(None) => {}
                None => return Ok(None),
            }
        }
    }

    /// Room for a name; `None` where there was none and something was done about it.
    fn room_or_step(
        &mut self,
        v: &mut Volume<'_>,
        target: &Target<'_>,
        name: &[u8],
    ) -> ByIndex<Option<Room>> {
        let number = target.number;
        self.verify_once(v, number, target.inode)?;
        let path = self.way_to_name(v, target.inode, name)?;
        let (logical, block) = (path.leaf, path.physical);
        let bytes = v.read_shared(block)?;
        let gap = find_gap::<ExtEntries>(&bytes, name.len(), v.atomic_bytes())
            .map_err(|e| corrupt_directory(number, logical, e))?;
        if let Some(gap) = gap {
            return Ok(Some(Room {
                logical,
                block,
                gap,
            }));
        }
        let version = path.version;
        let items = leaf::items(&bytes, false, |name| self.name_hash(version, name))
            .map_err(|e| corrupt_directory(number, logical, e))?;
        if leaf::used(&items) + required_len(name.len()) <= bytes.len() {
            self.join_gaps(v, target, &path, &bytes, items);
            return Ok(None);
        }
        let most = usize::from(max_indirect_levels(&self.format.sb)) + 1;
        match path.levels.iter().rposition(|l| l.count < l.limit) {
            Some(level) if level + 1 == path.levels.len() => {
                self.split_leaf(v, target, &path, &bytes, &items)?;
            }
            Some(level) => {
                self.split_node(v, target, path.levels[level], path.levels[level + 1])?
            }
            None if path.levels.len() < most => self.grow_root(v, target, path.levels[0])?,
            // As in Linux: the index is full.
            None => return Err(Error::NoSpace.into()),
        }
        Ok(None)
    }

    /// The leaf has room, but not in one place: its names move together.
    fn join_gaps(
        &mut self,
        v: &mut Volume<'_>,
        target: &Target<'_>,
        path: &Path,
        bytes: &[u8],
        mut items: Vec<Item>,
    ) {
        items.sort_unstable_by_key(|item| item.offset);
        let packed = leaf::pack(bytes, &items);
        self.rewrite(v, target.number, path.physical, &packed);
    }

    /// Half of a leaf's names move to a new one.
    fn split_leaf(
        &mut self,
        v: &mut Volume<'_>,
        target: &Target<'_>,
        path: &Path,
        bytes: &[u8],
        items: &[Item],
    ) -> ByIndex<()> {
        let parent = path.levels[path.levels.len() - 1];
        let extension = self.gather_index_block(v, target)?;
        let kept = leaf::cut(items);
        let border = match !holds(Rule::SplitAtBorder) {
            true => leaf::border(items, items.len() - 1),
            false => leaf::border(items, kept),
        };
        let mut stay = items[..kept].to_vec();
        stay.sort_unstable_by_key(|item| item.offset);
        let high = leaf::pack(bytes, &items[kept..]);
        let low = leaf::pack(bytes, &stay);
        let mut index = IndexBlock::of(&v.read_shared(parent.physical)?, parent.logical);
        insert_entry(&mut index, parent, border, extension.logical);
        self.add_block(v, target, &extension, &high);
        self.rewrite(v, target.number, path.physical, &low);
        if holds(Rule::SplitGetsEntry) {
            self.rewrite(v, target.number, parent.physical, index.bytes());
        }
        Ok(())
    }

    /// Half of an index block's entries move to a new one beside it; the one above has room for
    /// that.
    fn split_node(
        &mut self,
        v: &mut Volume<'_>,
        target: &Target<'_>,
        above: Level,
        node: Level,
    ) -> ByIndex<()> {
        let extension = self.gather_index_block(v, target)?;
        let bytes = v.read_shared(node.physical)?;
        let list = IndexEntries::parse(&bytes, node.logical, 0)?.list();
        let (low, high) = list.split_at(list.len() / 2);
        let border = high[0].0;
        let mut first = IndexBlock::of(&bytes, node.logical);
        first.set_entries(low);
        let second = IndexBlock::new(bytes.len(), high);
        let mut parent = IndexBlock::of(&v.read_shared(above.physical)?, above.logical);
        insert_entry(&mut parent, above, border, extension.logical);
        self.add_block(v, target, &extension, second.bytes());
        self.rewrite(v, target.number, node.physical, first.bytes());
        self.rewrite(v, target.number, above.physical, parent.bytes());
        Ok(())
    }

    /// The root's entries move into a new block, to which alone it leads.
    fn grow_root(&mut self, v: &mut Volume<'_>, target: &Target<'_>, level: Level) -> ByIndex<()> {
        let extension = self.gather_index_block(v, target)?;
        let bytes = v.read_shared(level.physical)?;
        let list = IndexEntries::parse(&bytes, 0, 0)?.list();
        let node = IndexBlock::new(bytes.len(), &list);
        let mut root = IndexBlock::of(&bytes, 0);
        root.set_entries(&[(0, extension.logical)]);
        root.add_level();
        self.add_block(v, target, &extension, node.bytes());
        self.rewrite(v, target.number, level.physical, root.bytes());
        Ok(())
    }

    /// Gives a directory of one block that is full an index: its names move to a leaf. False where
    /// it gets none.
    fn make_index(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        parent: &Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Step<bool> {
        let wanted = self.can_keep_indexes(v)
            && self.format.sb.default_hash <= HASH_TEA
            && !self.format.hashed.is_distrusted(number)
            && self.directory_blocks(parent) == 1;
        if !wanted {
            return Ok(false);
        }
        let Some(first) = self.directory_block(v, parent, 0)? else {
            return Ok(false);
        };
        let bytes = v.read_shared(first)?;
        let corrupt = |e| corrupt_directory(number, 0, e);
        if find_gap::<ExtEntries>(&bytes, name.len(), v.atomic_bytes())
            .map_err(corrupt)?
            .is_some()
            || !starts_with_dots(&bytes)
        {
            return Ok(false);
        }
        let version = effective_version(&self.format.sb, self.format.sb.default_hash);
        let mut items =
            leaf::items(&bytes, true, |name| self.name_hash(version, name)).map_err(corrupt)?;
        if items.is_empty() {
            return Ok(false);
        }
        items.sort_unstable_by_key(|item| item.offset);
        let packed = leaf::pack(&bytes, &items);
        let target = Target {
            number,
            inode: parent,
            now,
        };
        let extension = match self.gather_index_block(v, &target) {
            Ok(extension) => extension,
            Err(Halt::Step(stop)) => return Err(stop),
            Err(Halt::Fault(_)) => return Ok(false),
        };
        let root = IndexBlock::new_root(&bytes, self.format.sb.default_hash, extension.logical);
        self.add_block(v, &target, &extension, &packed);
        self.rewrite(v, number, first, root.bytes());
        self.change_inode(v, number, &[], |e| e.set_flags(parent.flags | FLAG_INDEX));
        self.format.hashed.note(number, true);
        Ok(true)
    }

    /// Picks a new block at the directory's end.
    fn gather_index_block(&mut self, v: &mut Volume<'_>, target: &Target<'_>) -> ByIndex<Growth> {
        let blocks = self.directory_blocks(target.inode);
        self.check_directory_size(blocks + 1)?;
        Ok(self.gather_extension(v, target.number, target.inode, blocks, 1)?)
    }

    /// Adds the block that was picked.
    fn add_block(
        &mut self,
        v: &mut Volume<'_>,
        target: &Target<'_>,
        extension: &Growth,
        bytes: &[u8],
    ) {
        let end = (extension.logical + 1) * bytes.len() as u64;
        let contents = NewContents {
            kind: kinds::DIRECTORY,
            bytes,
            within: 0,
            after: &[],
        };
        let (Target { number, inode, now }, none) = (target, PatchIds::new());
        let (id, pointer) = self.extend(v, *number, inode, extension, contents, end, none, *now);
        self.note_change(v, *number, id);
        self.note_new_block(v, *number, extension.run.start, pointer);
    }

    /// Replaces what differs of a block of the directory.
    fn rewrite(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        block: BlockNumber,
        bytes: &[u8],
    ) {
        let Some(old) = v.peek(block) else {
            debug_assert!(false, "block {block} is changed but was not read");
            return;
        };
        let differs = |i: &usize| old[*i] != bytes[*i];
        let first = (0..bytes.len()).find(differs);
        if let (Some(first), Some(last)) = (first, (0..bytes.len()).rev().find(differs)) {
            let id = v.write(block, kinds::DIRECTORY, first, &bytes[first..=last], &[]);
            self.note_change(v, number, id);
        }
    }
}

/// Puts an entry behind the one that was taken.
fn insert_entry(index: &mut IndexBlock, level: Level, hash: u32, block: u64) {
    let entries = IndexEntries::parse(index.bytes(), level.logical, 0);
    let Ok(mut list) = entries.map(|e| e.list()) else {
        debug_assert!(false, "an index block that was read is one");
        return;
    };
    let at = match !holds(Rule::IndexEntryInOrder) && list.len() > 1 {
        true => 1,
        false => level.at + 1,
    };
    list.insert(at, (hash, block));
    index.set_entries(&list);
}

/// Whether a directory's first block begins with `.` and `..`, as an index root must.
fn starts_with_dots(block: &[u8]) -> bool {
    let mut entries = entries(block, u32::MAX).map_while(std::result::Result::ok);
    let dot = entries.next();
    dot.is_some_and(|e| e.name == b"." && e.rec_len == 12)
        && entries.next().is_some_and(|e| e.name == b"..")
}
