//! Swapping two names.
//!
//! No state may show one of the two without a name, or a directory whose `..` agrees with none of
//! its names. Within the part of a block that is written at once, one patch does it under any
//! mechanism; elsewhere only where scopes are atomic, and all others refuse it.

use crate::index::entry_unit;
use backstitch_layout::{Error, InodeNumber, Rename, Step, Timestamp, flags};
use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::format::{Format, Inode, InodeEditor};
use crate::rules::{Rule, holds, note_by, wait_for_all};
use crate::state::UnixFs;
use crate::state::inode::PendingName;
use backstitch_blocks::block_edit::BlockEdit;
use backstitch_blocks::directory::Found;
use backstitch_blocks::directory::{EntryLayout, HEADER_SIZE, OFFSET_INODE, TYPE_UNKNOWN};

/// One of the two names, and what it stands for so far.
struct Side<F: Format> {
    directory: InodeNumber,
    parent: F::Inode,
    found: Found,
    inode: F::Inode,
    /// The `..` of a directory that gets another parent.
    dotdot: Option<Found>,
}

impl<F: Format> UnixFs<F> {
    /// Swaps what two names stand for.
    ///
    /// # Errors
    /// [`Error::Invalid`] where one of the two would be inside itself, and where the mechanism
    /// cannot do it at once.
    pub(crate) fn exchange_names(
        &mut self,
        v: &mut Volume<'_>,
        rename: &Rename<'_>,
        old: Found,
        other: Found,
        now: Timestamp,
    ) -> Step<()> {
        if old.inode == other.inode {
            return Ok(());
        }
        let (from, to) = (old.offset.min(other.offset), old.offset.max(other.offset));
        let within_block = rename.from == rename.to
            && old.block == other.block
            && (v.is_atomic(from..to + HEADER_SIZE) || !holds(Rule::ExchangeWithinUnit));
        if !within_block && !v.scopes_are_atomic() {
            return Err(Error::Invalid.into());
        }
        let moves = rename.from != rename.to;
        let first = self.gather_side(v, rename.from, old, moves)?;
        let second = self.gather_side(v, rename.to, other, moves)?;
        if moves {
            for (side, into) in [(&first, rename.to), (&second, rename.from)] {
                if side.inode.is_directory() {
                    self.check_not_inside(v, side.found.inode, into)?;
                }
            }
            for (side, comes) in [(&first, &second.inode), (&second, &first.inode)] {
                let gains = comes.is_directory() && !side.inode.is_directory();
                if gains && side.parent.links() >= F::LINK_MAX {
                    return Err(Error::TooManyLinks.into());
                }
            }
        }
        let names = if within_block {
            let id = self.swap_within_block(v, &first, &second);
            [id, id]
        } else {
            let second_name = self.swap_one(v, &second, &first);
            let first_name = match !holds(Rule::ExchangeBoth) {
                true => PatchId::COMMITTED,
                false => self.swap_one(v, &first, &second),
            };
            [first_name, second_name]
        };
        if moves {
            self.swap_parents(v, &first, &second);
        }
        self.note_swapped(v, &first, &second, names[1], now);
        self.note_swapped(v, &second, &first, names[0], now);
        for directory in [rename.from, rename.to] {
            self.touch_modified(v, directory, now);
        }
        Ok(())
    }

    fn gather_side(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        found: Found,
        moves: bool,
    ) -> Step<Side<F>> {
        let parent = self.read_parent(v, directory)?;
        let inode = self.read_named(v, directory, found.inode)?;
        if inode.flags() & (flags::IMMUTABLE | flags::APPEND) != 0
            || parent.flags() & flags::APPEND != 0
        {
            return Err(Error::NotPermitted.into());
        }
        let mut dotdot = None;
        if inode.is_directory() {
            self.check_settled(found.inode)?;
            if moves {
                dotdot = Some(self.find_dotdot(v, found.inode, &inode)?);
            }
        }
        Ok(Side {
            directory,
            parent,
            found,
            inode,
            dotdot,
        })
    }

    /// The header of a side's entry with what the other one stands for.
    fn swapped_header(&self, v: &Volume<'_>, side: &Side<F>, comes: &Side<F>) -> Vec<u8> {
        let kind = comes.inode.file_type();
        let kind = kind.map_or(TYPE_UNKNOWN, |t| self.type_code(t));
        self.entry_header(v, &side.found, comes.found.inode, kind)
    }

    fn swap_within_block(
        &mut self,
        v: &mut Volume<'_>,
        first: &Side<F>,
        second: &Side<F>,
    ) -> PatchId {
        let (block, unit) = (first.found.block, entry_unit::<F::Entries>(v));
        let Some(bytes) = v.peek(block) else {
            debug_assert!(false, "block {block} is changed but was not read");
            return PatchId::COMMITTED;
        };
        let mut edit = BlockEdit::<F::Entries>::new(bytes, unit);
        let header = self.swapped_header(v, first, second);
        edit.put(first.found.offset, &header);
        let header = self.swapped_header(v, second, first);
        edit.put(second.found.offset, &header);
        // As with a rename: a program that gives a new file another name expects its contents
        // there.
        let sides = [first.found.inode, second.found.inode];
        let contents = sides.map(|number| self.contents_apart(v, number));
        let contents: SmallVec<[PatchId; 2]> = contents.into_iter().flatten().collect();
        let after = wait_for_all(Rule::RenameAfterContents, &contents);
        self.write_edit(v, first.directory, block, &edit, after)
    }

    fn swap_one(&mut self, v: &mut Volume<'_>, side: &Side<F>, comes: &Side<F>) -> PatchId {
        let header = self.swapped_header(v, side, comes);
        let Found {
            block,
            offset,
            logical,
            inode,
        } = side.found;
        let directory = side.directory;
        self.track_name_removed(directory, logical, inode, side.inode.is_directory());
        let is_directory = comes.inode.is_directory();
        self.track_name_added(directory, logical, comes.found.inode, is_directory);
        self.change_entry(v, directory, (block, offset + OFFSET_INODE), &header, &[])
    }

    /// Directories get another parent, and these another number of subdirectories.
    fn swap_parents(&mut self, v: &mut Volume<'_>, first: &Side<F>, second: &Side<F>) {
        for (goes, comes) in [(first, second), (second, first)] {
            if let Some(dotdot) = goes.dotdot {
                let parent = F::Entries::encode_inode(comes.directory);
                let place = (dotdot.block, dotdot.offset + OFFSET_INODE);
                self.change_entry(v, goes.found.inode, place, &parent, &[]);
            }
            let links = (goes.parent.links())
                .saturating_add(comes.inode.is_directory().into())
                .saturating_sub(goes.inode.is_directory().into());
            if links != goes.parent.links() {
                self.change_inode(v, goes.directory, &[], |e| e.set_links(links));
            }
        }
    }

    /// `goes` has the other one's name from here on, written by `name`.
    fn note_swapped(
        &mut self,
        v: &mut Volume<'_>,
        goes: &Side<F>,
        comes: &Side<F>,
        name: PatchId,
        now: Timestamp,
    ) {
        let number = goes.found.inode;
        let noted = note_by(Rule::FsyncOfDirectoryWaitsForExchange, name);
        self.note_change(v, comes.directory, noted);
        let old_name = self.take_name(number, goes.found.block, goes.found.offset);
        if holds(Rule::MoveIsClearing) {
            self.note_clearing(v, number, old_name, name);
        }
        let pending = PendingName {
            directory: comes.directory,
            block: comes.found.block,
            offset: comes.found.offset,
            name,
            pointer: self.pointer_of(v, comes.directory, comes.found.block),
        };
        if goes.dotdot.is_some() {
            self.note_reach(v, number, &pending, PatchId::COMMITTED);
        }
        self.note_name(v, number, pending);
        self.touch_inode(v, number, |e| e.set_changed(now));
    }
}
