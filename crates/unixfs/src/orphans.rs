//! The list of orphans: inodes that have no name and are not freed, and those with blocks behind
//! their size.
//!
//! Somebody has them open, or their freeing or truncation is not at its end. Where scopes are
//! atomic, and only there, the disk lists them, from the superblock on through a field of each
//! inode (on ext the one in which others have the time of their deletion), so that each replay of
//! the journal can free them, or what they have behind their size. The list is brought up to date once, at the end of a
//! transaction: what comes and goes within one is never in it.

use std::collections::BTreeSet;

use backstitch_layout::{InodeNumber, Step, Timestamp};
use backstitch_ordering::Volume;

use crate::format::Format;
use crate::rules::{Rule, holds};
use crate::state::UnixFs;

impl<F: Format> UnixFs<F> {
    /// Makes the list on the disk what it should be. May miss, before anything is changed.
    pub(crate) fn write_orphans(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        let held = self.inodes.iter().filter_map(|(number, state)| {
            let is_dead = state.freed.is_some() && holds(Rule::DeadAreListed);
            let is_orphan = is_dead || state.is_truncating;
            is_orphan.then_some(*number)
        });
        let orphans: BTreeSet<InodeNumber> = held.chain(self.deferred.inodes_under_way()).collect();
        if self.orphans.len() == orphans.len() && self.orphans.iter().all(|o| orphans.contains(o)) {
            return Ok(());
        }
        let (kept, gone): (Vec<InodeNumber>, Vec<InodeNumber>) =
            self.orphans.iter().partition(|o| orphans.contains(o));
        let known: BTreeSet<InodeNumber> = kept.iter().copied().collect();
        let list: Vec<InodeNumber> = orphans.difference(&known).chain(&kept).copied().collect();
        self.format.write_orphans(v, &list, &gone, now)?;
        for inode in &list {
            // From this transaction on it is on the disk, though none before may have shown it: it
            // is freed at a transaction's end, and not to be had again before.
            if let Some(state) = self.inodes.get_mut(inode)
                && holds(Rule::ListedWereAlive)
            {
                state.never_alive = false;
            }
        }
        self.orphans = list;
        Ok(())
    }
}
