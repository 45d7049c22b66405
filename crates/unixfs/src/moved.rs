//! Appends that somebody flushes: indirect blocks go to new places.
//!
//! Behind the twelfth block an append takes three rounds of writing by the rules of soft updates,
//! each with a flush: the contents, the entry of an indirect block, the size. Where each append is
//! flushed, two do: the indirect block is written to another place, with the new entry, beside the
//! contents that it leads to, since nothing leads to it. Then the inode shows both, the block's new
//! place and the size, in one patch. (Shadow pages, as far as one inode reaches.)
//!
//! The old place of the indirect block is kept, and is the new place the next time: two places are
//! used in turn. It can be used once the inode on the disk no longer points to it. Until then, and
//! after a crash, the old place is marked as used although nothing is in it.

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Stop, Timestamp};
use backstitch_ordering::{PatchId, Volume};

use crate::format::{Format, Inode, Picks};
use crate::map::{Moved, Moves};
use crate::rules::{Rule, holds, wait_for};
use crate::space::are_in_memory;
use crate::state::UnixFs;
use crate::state::left_places::Left;
use crate::state::patches::PatchIds;
use backstitch_blocks::runs::Run;

/// The most places that are kept.
const PLACES_MAX: usize = 64;
/// Where only this part of all blocks (one in so many) is free, no more places are kept: an allocation
/// that finds no space has them freed, and must not wait for new ones again and again.
const SCARCE_PART: u64 = 64;

impl<F: Format> UnixFs<F> {
    /// The new places for all indirect blocks on the way to blocks that a file gets at its end;
    /// none where they stay.
    pub(crate) fn gather_moves(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        run: Run,
        logical: u64,
    ) -> Step<Moves> {
        let stay = Moves::new();
        // With several units to a block there would be as many patches for each.
        if self.format.units_per_pointer() > 1
            || !self.left_places.expected.holds()
            || !self.can_look_ahead(v)
            || inode.is_directory()
        {
            return Ok(stay);
        }
        let is_append = logical * self.block_size() as u64 >= inode.size();
        let are_scarce = self.format.free_blocks() <= self.format.blocks_count() / SCARCE_PART;
        let is_in_one = self.leaf_starts(logical, run.len).nth(1).is_none();
        if !is_append || are_scarce || !is_in_one && holds(Rule::MovedOnlyInOneLeaf) {
            return Ok(stay);
        }
        let Some(path) = self.path_of(logical).filter(|path| path.depth > 0) else {
            return Ok(stay);
        };
        let (indirects, _) = self.resolve(v, inode, &path)?;
        let mut picks = Picks(smallvec::smallvec![run]);
        let mut moves = Moves::new();
        for from in &indirects[..path.depth] {
            let mut pending = Vec::new();
            if *from != BlockNumber::NONE {
                v.pending(*from, &mut pending);
            }
            // It has changes that have yet to be written where it is: these would be written in both
            // places. An append that nobody flushes leaves such changes, and would move the block
            // each time.
            if *from == BlockNumber::NONE || !pending.is_empty() {
                return Ok(stay);
            }
            // An append must not fail because this bitmap cannot be read: it can do without.
            let group = self.format.group_of_block(*from);
            let is_there = group.0 < self.format.groups_count();
            if !is_there || !are_in_memory(v, &self.format.block_bits(group)) {
                return Ok(stay);
            }
            // In a damaged file a block may be mapped twice, or be marked as free: then it stays.
            let run = Run::one(*from);
            match self.format.check_blocks_used(v, run) {
                Ok(()) if moves.iter().all(|m: &Moved| m.from != *from) => {}
                Ok(()) | Err(Stop::Failed(Error::Corrupt(_))) => return Ok(stay),
                Err(error) => return Err(error),
            }
            let left = self.left_places.list.iter().find(|place| {
                place.inode == number
                    && !v.is_live_by(Rule::LeftPlaceAfterPointer, place.left)
                    && !moves.iter().any(|m| m.to == place.block)
            });
            let (to, is_marked) = match left {
                Some(place) => (place.block, true),
                None => match self.pick_single(v, number, &picks)? {
                    Some(block) => (block, false),
                    None => return Ok(stay),
                },
            };
            picks.0.push(Run::one(to));
            moves.push(Moved {
                from: *from,
                to,
                is_marked,
            });
        }
        Ok(moves)
    }

    /// Marks the new places as used. Appends the patches.
    pub(crate) fn mark_moves(&mut self, v: &mut Volume<'_>, moves: &[Moved], bits: &mut PatchIds) {
        for moved in moves {
            if moved.is_marked {
                self.left_places
                    .list
                    .retain(|place| place.block != moved.to);
            } else {
                let run = Run::one(moved.to);
                self.set_block_bits(v, run, bits);
            }
        }
    }

    /// Notes that the indirect blocks are in their new places once `shown` is on the disk.
    pub(crate) fn note_moves(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        moves: &[Moved],
        shown: PatchId,
    ) {
        for moved in moves {
            if self.left_places.list.len() >= PLACES_MAX {
                let oldest = self.left_places.list.remove(0);
                self.give_place_back(v, oldest);
            }
            self.left_places.list.push(Left {
                inode: number,
                block: moved.from,
                left: shown,
            });
        }
    }

    fn give_place_back(&mut self, v: &mut Volume<'_>, place: Left) {
        let run = Run::one(place.block);
        let left = wait_for(Rule::LeftPlaceFreedAfterPointer, place.left);
        self.defer_blocks(v, vec![run], &[left]);
    }

    /// Frees all places that are kept for nothing, or that were asked back.
    pub(crate) fn give_places_back(&mut self, v: &mut Volume<'_>, now: Timestamp) {
        let is_asked = std::mem::take(&mut self.left_places.is_asked_back);
        if !is_asked && !self.left_places.expected.is_over(now) {
            return;
        }
        for place in std::mem::take(&mut self.left_places.list) {
            self.give_place_back(v, place);
        }
    }

    /// Frees the places kept for a file that has no name any more.
    pub(crate) fn give_places_of(&mut self, v: &mut Volume<'_>, inode: InodeNumber) {
        while let Some(at) = (self.left_places.list.iter()).position(|place| place.inode == inode) {
            let place = self.left_places.list.swap_remove(at);
            self.give_place_back(v, place);
        }
    }
}
