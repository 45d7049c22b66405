//! The reclaim: what a crash left is found and given back, while the file system is in use.
//!
//! After a crash the image is trusted as soft updates leave it: what is marked as used may not be,
//! and counts may be too high. Nothing of that does harm, so the reclaim works in the background,
//! in steps that look at a bounded number of blocks each:
//!
//! 1. *scan* the inode tables for what is in use, and of which type;
//! 2. look at the *maps* of all that is in use, whether it has a name or not: correct block counts,
//!    take out blocks beyond the size, and note all blocks that are mapped; then *free* in the
//!    bitmaps, group after group, what nobody noted;
//! 3. *walk* all directories from the root on, counting names; settle directories with two names,
//!    and correct each `..` that leads elsewhere. From then on the names are *settled*;
//! 4. once that is on the disk, take the names out of directories that nobody can reach, and then,
//!    once that is on the disk, mark everything without a name as *dead*: what it has is freed as
//!    that of any removed file is, each as soon as its end is on the disk;
//! 5. once that is on the disk, *correct* the link counts of what lives.
//!
//! The second and the third need nothing of each other. The second comes first, since it gives back
//! space; where a caller has to wait for the names, the third does.
//!
//! Blocks are freed for one reason alone: no inode in use maps them. So no fault elsewhere can make
//! the reclaim free what is in use. Whatever soft updates cannot have left is taken for corruption
//! and ends the reclaim; the image is then not called clean.
//!
//! # When it is cut off
//!
//! Every change is an ordinary patch, and each phase is on the disk before one begins that relies
//! on it: a crash in between leaves what any crash may leave. What was freed or corrected until
//! then stays so, and the next reclaim has less to do. What was *seen* is not kept: a crash may
//! have left more since, anywhere. So each reclaim looks at all inodes and their maps before it
//! frees the first block, and at all names before the first nameless inode; from then on every step
//! frees something for good.
//!
//! # While in use
//!
//! Each step is one of many operations under the engine's lock, and others come between. That they
//! may rests on two facts. What a crash left stays as it is: what is marked as used is given to
//! nobody, and what cannot be reached stays out of reach. And every operation changes a count and
//! what it counts by the same amount, so that what is too much by the crash stays constant. So it
//! is enough to be told (see [`tracking`]) what operations do to the part of the file system that
//! was looked at already:
//!
//! - names that come and go in the part of a directory that was walked are counted; a directory
//!   that gets a name there is walked too (the walk misses nothing, as with the write barrier of an
//!   incremental garbage collector);
//! - blocks that are allocated, unmapped or freed are *touched*: they are the operations' business,
//!   and never freed here;
//! - inodes that are made are new, and right in everything; those that lose their last name are
//!   freed by the operation that took it.
//!
//! What would change the name of a directory from before the crash waits until the names are
//! settled: it may have two.

mod bitmaps;
mod inodes;
mod maps;
mod names;
mod tracking;

use backstitch_layout::{ReclaimProgress, ReclaimStep, Step, Stop, Timestamp};
use backstitch_ordering::Volume;

use crate::format::Format;
use crate::state::UnixFs;
use crate::state::reclaim::{Phase, Reclaim};

impl<F: Format> UnixFs<F> {
    /// One step of the reclaim.
    pub(crate) fn reclaim_step(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<ReclaimStep> {
        // Out of its place, so that it and the file system can be changed side by side. What it
        // changes itself it need not be told.
        let Some(mut state) = self.reclaim.take() else {
            return Ok(ReclaimStep::Done);
        };
        if self.read_only.is_some() {
            return Ok(ReclaimStep::Done);
        }
        if v.is_live(state.barrier) {
            let barrier = state.barrier;
            self.reclaim = Some(state);
            return Ok(ReclaimStep::Wait(barrier));
        }
        let step = self.reclaim_part(v, &mut state, now);
        match &step {
            Ok(ReclaimStep::Done) => {
                self.has_leaks = false;
                self.reclaimed = (state.freed_blocks, state.freed_inodes);
            }
            Ok(_) | Err(Stop::Miss) => self.reclaim = Some(state),
            Err(_) => {}
        }
        step
    }

    pub(crate) fn show_reclaim(&self) -> ReclaimProgress {
        let (freed_blocks, freed_inodes) = match &self.reclaim {
            Some(state) => (state.freed_blocks, state.freed_inodes),
            None => self.reclaimed,
        };
        ReclaimProgress {
            running: self.reclaim.is_some(),
            is_settled: self.reclaim.as_ref().is_none_or(|r| r.is_settled),
            done_fraction: match &self.reclaim {
                Some(state) => {
                    state.done_fraction((self.format.groups_count(), self.format.inodes_count()))
                }
                None if self.has_leaks => 0.0,
                None => 1.0,
            },
            freed_blocks,
            freed_inodes,
            put_aside: self.reclaim.as_ref().map_or(0, |r| r.times_aside),
        }
    }

    fn reclaim_part(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        now: Timestamp,
    ) -> Step<ReclaimStep> {
        match r.phase {
            Phase::Scan { group, block } => self.scan_inodes(v, r, group, block),
            Phase::Map { .. } => self.look_at_maps(v, r),
            Phase::Walk => self.walk_directories(v, r),
            Phase::Replaced(inode) => self.note_marks(v, r, inode),
            Phase::Doubles(at) => self.settle_double(v, r, at),
            Phase::Parents(at) => self.correct_parent(v, r, at),
            Phase::Orphans { inode, block } => self.clear_orphan(v, r, inode, block),
            Phase::KillOrphans(at) => self.kill_orphans(v, r, at, now),
            Phase::Kill(inode) => self.kill_inodes(v, r, inode, now),
            Phase::Correct(inode) => self.correct_links(v, r, inode, now),
            Phase::Attributes(at) => self.correct_references(v, r, at),
            Phase::Verify(group) => self.verify_group(v, r, group),
            Phase::Free(group) => self.free_rest_of_group(v, r, group),
        }
    }
}
