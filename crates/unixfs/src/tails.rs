//! The end of a file in a format whose pointers lead to several units: its last block has as many as
//! its size needs.
//!
//! As the file grows, the run of units at its end takes those behind it where they are free, with
//! the size that says so as the commit point. Else it moves: what it holds and what is added is
//! written to a new place, the pointer to that with the size is the commit point, and the old units
//! are freed once the pointer is on the disk. As a file gets another block the one that was the last
//! becomes whole, in the same patch of the inode. Where a pointer leads to one unit none of this
//! applies.

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Stop, Structure};
use backstitch_ordering::{PatchId, Volume};

use crate::extend::NewContents;
use crate::fault::Fault;
use crate::format::{DIRECT_POINTERS, Format, Inode, Picks, Purpose};
use crate::map::{ChangeableMap, Growth, Links};
use crate::rules::{Rule, wait_for_all};
use crate::space::{checked_run, read_bits};
use crate::state::UnixFs;
use crate::state::patches::PatchIds;
use backstitch_blocks::directory::entries;
use backstitch_blocks::runs::Run;
use backstitch_blocks::tail::{Tail, Units};

impl<F: Format> UnixFs<F> {
    /// How many units a hole gets from `logical` on, where a block begins: whole blocks up to `end`,
    /// or a part of the last block of the file.
    pub(crate) fn units_for(&self, inode: &F::Inode, logical: u64, end: u64) -> u64 {
        let units = self.format.units_per_pointer();
        match end - logical {
            len if len >= units => len / units * units,
            _ if logical / units >= DIRECT_POINTERS as u64 => units,
            _ => {
                let file_end = inode.size().div_ceil(self.block_size() as u64);
                (end.max(file_end) - logical).min(units)
            }
        }
    }

    /// The run of units at a file's end, where it is shorter than a block, and the unit of the file
    /// with which it begins.
    fn tail_of(&self, inode: &F::Inode) -> Step<Option<(u64, Run)>> {
        let units = self.format.units_per_pointer();
        let Some(end) = self.tail_end(inode) else {
            return Ok(None);
        };
        let pointer = inode.pointer((end / units) as usize);
        let tail = Run {
            start: pointer,
            len: end % units,
        };
        Ok(match pointer {
            BlockNumber::NONE => None,
            _ => Some((end - end % units, self.checked_units(tail)?)),
        })
    }

    /// What becomes of the units at a file's end as it grows up to unit `logical + want`, where
    /// `logical` is in its last block; `None` where that is not the case.
    pub(crate) fn gather_tail(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        logical: u64,
        want: u64,
    ) -> Step<Option<Growth>> {
        let units = self.format.units_per_pointer();
        if units == 1 {
            return Ok(None);
        }
        let found = self.tail_of(inode)?;
        let Some((start, tail)) = found.filter(|(start, _)| logical / units == start / units)
        else {
            return Ok(None);
        };
        let wanted = (logical + want - start).min(units);
        let growth = |logical, run, replaces| Growth {
            logical,
            run,
            indirects: Default::default(),
            moves: Default::default(),
            replaces,
            completes: None,
        };
        let plan = self.plan_tail(v, tail, wanted as u32)?;
        // Where it moves, what it leaves becomes free: a reserve is short of that only until then.
        let is_allowed = self.allowed_blocks(v) >= wanted.saturating_sub(tail.len);
        if !is_allowed && matches!(plan, Tail::Grows(_) | Tail::Moves { .. }) {
            return Err(self.no_blocks());
        }
        match plan {
            Tail::Stays | Tail::Shrinks(_) => Ok(None),
            Tail::Grows(more) => {
                checked_run(&self.format, more)?;
                v.expect_places(more.start, more.len)?;
                Ok(Some(growth(start + tail.len, more, None)))
            }
            Tail::Moves { .. } => {
                let missing = tail.blocks().filter(|unit| !v.want(*unit));
                if missing.count() > 0 {
                    return Err(Stop::Miss);
                }
                let (purpose, picks) = (Purpose::Contents, Picks::default());
                let run = (self.format)
                    .pick_run(v, number, purpose, tail.start, wanted, false, &picks)?;
                if run.len < wanted {
                    return Err(self.no_blocks());
                }
                Ok(Some(growth(start, run, Some(tail))))
            }
        }
    }

    fn plan_tail(&self, v: &mut Volume<'_>, tail: Run, wanted: u32) -> Step<Tail> {
        let units = Units {
            per_block: self.format.units_per_pointer() as u32,
        };
        let group = self.format.group_of_block(tail.start);
        let first = self.format.group_first_block(group);
        let count = u64::from(self.format.blocks_in_group(group));
        // Only units of the same block are looked at.
        let from = (tail.start - first) as usize;
        let (bits, base) = (self.format.block_bits(group)).narrowed(
            from,
            from + units.per_block as usize,
            self.format.block_size(),
        );
        let bytes = read_bits(v, &bits)?;
        let marks = bits.marks(&bytes);
        let is_free = |unit: BlockNumber| {
            unit - first < count && !marks.is_used((unit - first) as usize - base)
        };
        Ok(units.plan_tail(tail, wanted, is_free))
    }

    /// What the last block of a file gets before the file becomes as long as `size`: units up to there,
    /// or to the block's end. `None` where it has them.
    pub(crate) fn gather_longer_tail(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        size: u64,
    ) -> Step<Option<Growth>> {
        let Some(end) = self.tail_end(inode) else {
            return Ok(None);
        };
        let block_end = end.next_multiple_of(self.format.units_per_pointer());
        match size.div_ceil(self.block_size() as u64).min(block_end) - end {
            0 => Ok(None),
            wanted => self.gather_tail(v, number, inode, end, wanted),
        }
    }

    /// What the last block of a file gets before it has another one, at unit `logical`.
    pub(crate) fn gather_whole_tail(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        logical: u64,
    ) -> Step<Option<Growth>> {
        let units = self.format.units_per_pointer();
        match self.tail_end(inode) {
            Some(end) if logical / units > end / units => {
                self.gather_longer_tail(v, number, inode, u64::MAX)
            }
            _ => Ok(None),
        }
    }

    /// Checks that a block of a file, which is mapped, is not behind a last one that is not whole: as
    /// the file grows that far, the last one would count as whole.
    pub(crate) fn check_tail_is_last(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        logical: u64,
    ) -> Step<()> {
        match self.gather_whole_tail(v, number, inode, logical)? {
            None => Ok(()),
            Some(_) => {
                let fault = Fault::PlaceIsTaken { logical };
                Err(Error::corrupt(Structure::inode(number), fault).into())
            }
        }
    }

    /// Writes what a last block gets that becomes whole beside another growth: zeros, behind what it
    /// held where that moves. Returns what links it to the file.
    pub(crate) fn complete_tail(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        growth: &Growth,
        bits: &mut PatchIds,
        before_inode: &mut PatchIds,
    ) -> Links {
        self.set_block_bits(v, growth.run, bits);
        let moved = self.moved_contents(v, inode, growth, 0, &[]);
        let contents = NewContents::data(moved.as_deref().unwrap_or(&[]), 0);
        let data = v.hidden(true, |v| {
            self.write_new_blocks(v, number, growth.run, contents)
        });
        (self.changeable_map(inode)).link(v, growth, &data, before_inode)
    }

    /// The contents of a run to whose beginning a file's last units go: their bytes up to the
    /// file's end, then zeros, with `data` from byte `within` of the run on. `None` where no units
    /// go there.
    pub(crate) fn moved_contents(
        &self,
        v: &Volume<'_>,
        inode: &F::Inode,
        growth: &Growth,
        within: usize,
        data: &[u8],
    ) -> Option<Vec<u8>> {
        let old = growth.replaces?;
        let mut contents = Vec::with_capacity(growth.run.len as usize * self.block_size());
        for unit in old.blocks() {
            contents.extend_from_slice(v.peek(unit).map_or(&[], |bytes| &bytes[..]));
        }
        let start = growth.logical * self.block_size() as u64;
        contents.truncate((inode.size() - start) as usize);
        if !data.is_empty() {
            contents.resize(contents.len().max(within + data.len()), 0);
            contents[within..within + data.len()].copy_from_slice(data);
        }
        Some(contents)
    }

    /// The same for a directory, with the number of units. What is pending on these must be on the
    /// disk before they are anywhere else, so it is appended to `after`.
    pub(crate) fn moved_entries(
        &self,
        v: &mut Volume<'_>,
        growth: &Growth,
        after: &mut PatchIds,
    ) -> (Vec<u8>, u64) {
        let Some(old) = growth.replaces else {
            return (Vec::new(), 0);
        };
        let mut contents = Vec::new();
        let mut pending: Vec<PatchId> = Vec::new();
        for unit in old.blocks() {
            contents.extend_from_slice(v.peek(unit).map_or(&[], |bytes| &bytes[..]));
            v.pending(unit, &mut pending);
        }
        after.extend_from_slice(wait_for_all(Rule::TailHeadAfterPending, &pending));
        (contents, old.len)
    }

    /// Names went with the units that they are in, to the beginning of `contents`. Those that were not
    /// on the disk yet are looked for where they are now, and found once `pointer` is there.
    pub(crate) fn note_moved_names(
        &mut self,
        v: &Volume<'_>,
        directory: InodeNumber,
        growth: &Growth,
        contents: &[u8],
        pointer: PatchId,
    ) {
        let Some(old) = growth.replaces else {
            return;
        };
        let names = self.state(directory).names_in_mut();
        for unit in growth.run.start.run(old.len) {
            names.moved_units.add(v, unit.0, pointer);
        }
        let moved = &contents[..old.len as usize * self.block_size()];
        for entry in entries::<F::Entries>(moved, self.format.inodes_count()).flatten() {
            let state = self.inodes.get_mut(&entry.inode);
            let names = state.into_iter().flat_map(|state| &mut state.names);
            for name in names.filter(|n| n.directory == directory && old.contains(n.block)) {
                (name.block, name.pointer) = (growth.place_of(name.block), pointer);
            }
        }
    }
}
