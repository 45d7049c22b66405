//! Runs, one patch for many blocks: which changes are parts of a run, and which have to be patches
//! of their own.
//!
//! What a transaction changes waits for its hold and for nothing else, so it is one run, as far as
//! nothing older is pending on the blocks. Its copies in the log are one run, and the contents of a
//! file that its commit record waits for are one. A run belongs to one transaction: contents that
//! join it later would have an earlier commit record wait for them.
//!
//! Two things take a block out of its run:
//!
//! * *A later transaction changes it.* The block stays back until that is committed, and the run
//!   must not: the log's tail waits for it, and no room in the log might be left for the later one.
//! * *It held contents, and goes through the log now.* Its patch waits for the hold, so the commit
//!   record must not wait for a run that it is in: it waits for each of the other blocks instead.

use backstitch_ordering::{Logged, PatchId};
use backstitch_store::Store;

use super::{JournalMechanism, JournalMode};
use crate::rules::{Rule, holds};

impl JournalMechanism {
    /// The run for contents that go past the log. They wait for nothing, or for the transaction
    /// that freed their block.
    pub(super) fn run_of_contents(
        &self,
        offered: Option<PatchId>,
        dependencies: &[PatchId],
    ) -> Option<PatchId> {
        let run = offered.filter(|_| dependencies.len() <= 1)?;
        let is_of_running =
            self.mode != JournalMode::Ordered || self.transactions.running.own.runs.contains(&run);
        Some(match is_of_running {
            true => run,
            false => PatchId::COMMITTED,
        })
    }

    /// Notes a patch of contents that was made or took a further change. One of an earlier
    /// transaction is not noted: its commit record waits for all of the run, so further blocks must
    /// not join it.
    pub(super) fn note_run(&mut self, id: PatchId) {
        let is_of_earlier =
            (self.transactions.not_committed()).any(|earlier| earlier.own.runs.contains(&id));
        if !is_of_earlier || !holds(Rule::RunsBelongToOneTransaction) {
            self.transactions.running.own.runs.insert(id);
        }
    }

    /// Takes a block that is about to be changed in the running transaction out of a run that must
    /// not wait for that.
    pub(super) fn part_from_runs(&mut self, store: &mut Store, block: u64) {
        if self.transactions.running.has_logged(block) {
            return;
        }
        let Some(run) = store.run_at(self.transactions.volume, block) else {
            return;
        };
        if self.transactions.running.own.runs.contains(&run) {
            if holds(Rule::RunsArePartedForLog) {
                self.part_contents(store, run);
            }
        } else {
            self.part_original(store, block, run);
        }
    }

    /// Takes a block that the running transaction is about to change for the first time out of
    /// `run`, where that is an earlier transaction's. See the module's documentation.
    fn part_original(&mut self, store: &mut Store, block: u64, run: PatchId) {
        let volume = self.transactions.volume;
        let logged = &mut self.transactions.logged;
        let is_original = |l: &Logged| l.original == run;
        if !logged.get(&block).is_some_and(is_original) || !holds(Rule::OriginalsArePartedFromRuns)
        {
            return;
        }
        if let Some(own) = store.leave_run(volume, block) {
            if let Some(logged) = logged.get_mut(&block)
                && holds(Rule::PartOfOriginalsIsNoted)
            {
                logged.original = own;
            }
            return;
        }
        // A caller waits for the run, and still waits for all of it. So the run stays as it is, and
        // the log gets patches of the single blocks to wait for.
        for (block, logged) in logged {
            if logged.original == run
                && store.run_at(volume, *block) == Some(run)
                && let Some(own) = store.take_from_run(volume, *block)
            {
                logged.original = own;
            }
        }
    }

    /// Makes contents that the commit record waits for patches of their own. If a block is no
    /// longer in the run, it is on the disk, was given up, or has a patch of its own, which is
    /// waited for already. For such a block the commit record must not wait for the run: another
    /// block of the run is about to wait for the hold.
    fn part_contents(&mut self, store: &mut Store, run: PatchId) {
        self.transactions.running.own.runs.remove(&run);
        let volume = self.transactions.volume;
        self.transactions
            .running
            .own
            .contents
            .retain_mut(|(block, id)| {
                if *id != run {
                    return true;
                }
                let own = match store.run_at(volume, *block) {
                    Some(at) if at == run => store.take_from_run(volume, *block),
                    _ => None,
                };
                *id = own.unwrap_or(*id);
                own.is_some()
            });
    }
}
