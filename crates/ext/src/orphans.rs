//! The list of orphans: inodes that have no name and are not freed, and those with blocks behind
//! their size.
//!
//! Somebody has them open, or their freeing or truncation is not at its end. Where scopes are
//! atomic, and only there, the disk lists them, from the superblock on through the field in which
//! other inodes have the time of their deletion, so that each replay of the journal can free them,
//! or what they have behind their size. The list is brought up to date once, at the end of a
//! transaction: what comes and goes within one is never in it.

use std::collections::BTreeSet;

use backstitch_layout::{Result, Timestamp};
use backstitch_ordering::Volume;

use crate::format::inode::offset;
use crate::format::superblock::OFFSET_LAST_ORPHAN;
use crate::kinds;
use crate::rules::{Rule, holds};
use crate::state::Ext;

impl Ext {
    /// Makes the list on the disk what it should be. May miss, before anything is changed.
    pub(crate) fn write_orphans(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Result<()> {
        let held = self.inodes.iter().filter_map(|(number, state)| {
            let is_dead = state.freed.is_some() && holds(Rule::DeadAreListed);
            let is_orphan = is_dead || state.is_truncating;
            is_orphan.then_some(*number)
        });
        let orphans: BTreeSet<u32> = held.chain(self.deferred.inodes_under_way()).collect();
        if self.orphans.len() == orphans.len() && self.orphans.iter().all(|o| orphans.contains(o)) {
            return Ok(());
        }
        let (kept, gone): (Vec<u32>, Vec<u32>) =
            self.orphans.iter().partition(|o| orphans.contains(o));
        let known: BTreeSet<u32> = kept.iter().copied().collect();
        let list: Vec<u32> = orphans.difference(&known).chain(&kept).copied().collect();
        let mut fields = Vec::new();
        let deleted = now.seconds.clamp(1, u32::MAX.into()) as u32;
        for inode in gone {
            fields.push((self.inode_place(inode)?, None));
        }
        for (index, inode) in list.iter().enumerate() {
            let next = list.get(index + 1).copied().unwrap_or(0);
            fields.push((self.inode_place(*inode)?, Some(next)));
        }
        let missing = fields
            .iter()
            .filter(|((block, _), _)| !v.want(*block))
            .count();
        if missing > 0 {
            return Err(backstitch_layout::Error::Miss);
        }
        let head = list.first().copied().unwrap_or(0);
        self.write_superblock(v, OFFSET_LAST_ORPHAN, &head.to_le_bytes(), &[])?;
        for ((block, inode), next) in fields {
            let at = inode + offset::DTIME;
            let links = inode + offset::LINKS;
            // Off the list it is deleted, or it lives on, truncated.
            let lives = v.read(block)?[links..links + 2] != [0, 0];
            let value = next.unwrap_or(if lives { 0 } else { deleted });
            if v.read(block)?[at..at + 4] != value.to_le_bytes() {
                v.write(block, kinds::INODES, at, &value.to_le_bytes(), &[]);
            }
        }
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
