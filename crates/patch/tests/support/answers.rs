//! Compares what a graph answers with its other answers and with what the test knows.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_patch::model::Model;
use backstitch_patch::{
    BlockId, Change, Counters, PatchId, PatchInfo, PatchKind, Stating, Version,
};

use super::{BLOCKS, Run};

/// Dependencies that a short look goes through.
const LOOK: usize = 16;
/// Newest changes that are asked about in pairs.
const NEWEST: usize = 5;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, expected {expected:?}")),
    }
}

/// The state before a change was made.
pub(super) struct Before {
    counters: Counters,
    softs: usize,
    /// Whether some of the block is in a run.
    in_run: bool,
    /// The block's patches that no write has taken up, and whether the change was said to join
    /// them.
    joins: Vec<(PatchId, bool)>,
}

/// The state before a write was started.
pub(super) struct BeforeWrite {
    counters: Counters,
    may_write: bool,
    is_simple: bool,
    rolls_back: bool,
}

impl Run {
    fn info_of(&self, id: PatchId) -> Result<PatchInfo, String> {
        let info = self.graph.info(id);
        info.ok_or_else(|| format!("{id:?} is listed and not live"))
    }

    fn kinds(&self, block: BlockId) -> Result<Vec<PatchKind>, String> {
        let uncommitted = self.graph.uncommitted(block).into_iter();
        uncommitted.map(|id| Ok(self.info_of(id)?.kind)).collect()
    }

    fn softs(&self, block: BlockId) -> Result<usize, String> {
        let kinds = self.kinds(block)?.into_iter();
        let is_soft = |kind: &PatchKind| matches!(kind, PatchKind::Soft | PatchKind::Bits);
        Ok(kinds.filter(is_soft).count())
    }

    pub(super) fn before_change(
        &mut self,
        block: BlockId,
        change: Change<'_>,
        deps: &[PatchId],
    ) -> Result<Before, String> {
        let targets = self.graph.uncommitted(block);
        let newest = self.ids.iter().rev().take(NEWEST);
        let stating = Stating {
            after: deps,
            standing: self.standing,
        };
        let joins = (targets.iter().chain(newest))
            .map(|into| (*into, self.graph.would_join(block, &change, stating, *into)))
            .collect();
        Ok(Before {
            counters: *self.graph.counters(),
            softs: self.softs(block)?,
            in_run: targets.iter().any(|id| self.graph.is_run(*id)),
            joins,
        })
    }

    /// A change was made, and took this many blocks' parts out of runs.
    pub(super) fn after_change(
        &self,
        before: &Before,
        block: BlockId,
        change: Change<'_>,
        id: PatchId,
        splits: u64,
    ) -> Result<(), String> {
        let (old, new) = (&before.counters, self.graph.counters());
        let is_new = new.created - old.created == 1 + splits;
        let merged = |c: &Counters| c.merged_hard + c.merged_overlap + c.merged_bits;
        let told = new.created - old.created + merged(new) - merged(old);
        same("a change is one patch, or part of one", told, 1 + splits)?;
        let info = self.info_of(id)?;
        let is_hard = info.kind == PatchKind::Hard;
        let hard = u64::from(is_hard && is_new) + splits;
        same("created_hard", new.created_hard - old.created_hard, hard)?;
        let softs = self.softs(block)?;
        let converted = if softs == 0 { before.softs as u64 } else { 0 };
        let counted = new.converted_to_hard - old.converted_to_hard;
        same("converted_to_hard", counted, converted)?;
        self.check_peaks(old)?;
        match (info.kind, change) {
            (
                PatchKind::Soft,
                Change::Bytes {
                    offset_bytes,
                    bytes,
                },
            ) => {
                let end = info.offset_bytes + info.len_bytes;
                if offset_bytes < info.offset_bytes || offset_bytes + bytes.len() as u32 > end {
                    return Err(format!("{change:?} lies outside of its patch {info:?}"));
                }
            }
            (PatchKind::Bits, Change::Flip { offset_bytes, .. }) => {
                let place = (info.offset_bytes, info.len_bytes);
                same("the word of a flip", place, (offset_bytes, 4))?;
            }
            _ => same(
                "bytes of a hard patch",
                (info.offset_bytes, info.len_bytes),
                (0, 0),
            )
            .map_err(|reason| format!("{reason}, {info:?}"))?,
        }
        // "No" is not certain for flips of other bits of a word, and where patches were settled.
        let is_certain = !self.settles && !before.in_run && new.merged_bits == old.merged_bits;
        for (into, said) in &before.joins {
            let does = self.graph.is_same(*into, id);
            if *said && !does || is_certain && does != *said {
                return Err(format!("joins {into:?}: {does}, was told {said}"));
            }
        }
        Ok(())
    }

    fn check_peaks(&self, old: &Counters) -> Result<(), String> {
        let new = self.graph.counters();
        same("peak", new.peak, old.peak.max(new.live))?;
        let undo = old.undo_bytes_peak.max(new.undo_bytes_live);
        same("undo_bytes_peak", new.undo_bytes_peak, undo)?;
        let bytes = old.bytes_peak.max(new.bytes_live());
        same("bytes_peak", new.bytes_peak, bytes)
    }

    /// Whether the change must go into a run, as was said before.
    pub(super) fn will_be_in_run(&self, block: BlockId, deps: &[PatchId]) -> bool {
        let is_idle = !self.graph.has_uncommitted(block) && self.graph.run_at(block).is_none();
        is_idle
            && self.graph.goes_into_runs(Stating {
                after: deps,
                standing: self.standing,
            })
    }

    pub(super) fn before_write(&mut self, block: BlockId) -> Result<BeforeWrite, String> {
        let has_ready = self.graph.has_ready(block);
        let graph = &self.graph;
        let kinds = self.kinds(block)?;
        let hard_goes = (graph.uncommitted(block).iter()).any(|id| match graph.info(*id) {
            Some(info) if info.kind == PatchKind::Hard => info.dependencies == 0,
            Some(info) => info.kind == PatchKind::Run && has_ready && self.run_goes(*id),
            None => false,
        });
        let must = graph.optimisations().hard && kinds.len() > 1 && hard_goes;
        same("must_roll_back", graph.must_roll_back(block), must)?;
        let is_simple = has_ready && kinds.len() == 1;
        same("is_simply_ready", graph.is_simply_ready(block), is_simple)?;
        Ok(BeforeWrite {
            counters: *self.graph.counters(),
            may_write: has_ready && !self.in_flight.contains(&block),
            is_simple,
            rolls_back: self.graph.would_roll_back(block),
        })
    }

    /// Whether the blocks of a run may be written: it waits for no empty patch.
    fn run_goes(&self, run: PatchId) -> bool {
        let mut waits_for = self.graph.dependencies(run).into_iter();
        waits_for.all(|(_, block)| block.is_some())
    }

    pub(super) fn after_write(
        &self,
        before: &BeforeWrite,
        block: BlockId,
        version: &Version,
    ) -> Result<(), String> {
        let is_written = *version != Version::Nothing;
        same("a version", is_written, before.may_write)?;
        let (old, new) = (&before.counters, self.graph.counters());
        same(
            "versions",
            new.versions - old.versions,
            u64::from(is_written),
        )?;
        let is_rolled_back = matches!(version, Version::RolledBack(_));
        if is_written {
            same("would_roll_back", before.rolls_back, is_rolled_back)?;
        }
        let counted = new.versions_with_rollback - old.versions_with_rollback;
        same("versions_with_rollback", counted, u64::from(is_rolled_back))?;
        let left = match is_rolled_back {
            true => u64::from(self.graph.uncommitted_count(block)),
            false => 0,
        };
        same("rollbacks", new.rollbacks - old.rollbacks, left)?;
        match before.is_simple && is_rolled_back {
            true => Err("a simple block is rolled back".into()),
            false => Ok(()),
        }
    }

    /// The tokens fired since the last call, each taken once: the even ones first, then the rest.
    pub(super) fn take_fired(&mut self) -> Result<Vec<u64>, String> {
        let had = self.graph.has_fired();
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        self.graph
            .take_fired_where(&mut even, |t| t.is_multiple_of(2));
        self.graph.take_fired(&mut odd);
        let is_parted = even.iter().all(|t| t % 2 == 0) && odd.iter().all(|t| t % 2 == 1);
        same("tokens taken by what they are", is_parted, true)?;
        even.append(&mut odd);
        same("has_fired", had, !even.is_empty())?;
        same(
            "has_fired, when all are taken",
            self.graph.has_fired(),
            false,
        )?;
        Ok(even)
    }

    /// Everything that can be asked between two steps.
    pub(super) fn compare_answers(&mut self) -> Result<(), String> {
        let mut order = Vec::new();
        for block in (0..BLOCKS).map(BlockId) {
            order.extend(self.patches_of(block)?);
        }
        let mut empties: BTreeSet<PatchId> = BTreeSet::new();
        empties.extend(self.ids.iter().chain(&self.runs).filter(|id| {
            let kind = self.graph.info(**id).map(|info| info.kind);
            matches!(kind, Some(PatchKind::Empty | PatchKind::Run))
        }));
        order.extend(empties.into_iter().map(|id| (id, None)));
        self.compare_snapshot(&order)?;
        self.compare_ids(&order)?;
        let c = self.graph.counters();
        let [patch, edge, _] = backstitch_patch::Graph::unit_bytes();
        let bytes = c.live * patch + c.edges_live * edge + c.undo_bytes_live;
        same("bytes_live", c.bytes_live(), bytes + 12 * c.run_blocks_live)?;
        let mut told = Vec::new();
        self.graph.take_became_ready(&mut told);
        for block in (0..BLOCKS).map(BlockId) {
            let is_ready = self.graph.has_ready(block);
            let was_ready = std::mem::replace(&mut self.was_ready[block.0 as usize], is_ready);
            if is_ready && !was_ready && !told.contains(&block) {
                return Err(format!("{block:?} became ready and nobody was told"));
            }
        }
        Ok(())
    }

    /// A block's patches in the order of a snapshot, a part of a run as the run.
    fn patches_of(&self, block: BlockId) -> Result<Vec<(PatchId, Option<BlockId>)>, String> {
        let graph = &self.graph;
        let uncommitted = graph.uncommitted(block);
        same(
            "uncommitted_count",
            graph.uncommitted_count(block) as usize,
            uncommitted.len(),
        )?;
        same(
            "has_uncommitted",
            graph.has_uncommitted(block),
            !uncommitted.is_empty(),
        )?;
        same(
            "is_in_flight",
            graph.is_in_flight(block),
            self.in_flight.contains(&block),
        )?;
        let mut live = Vec::new();
        graph.collect_live(block, &mut live);
        let run = graph.run_at(block);
        let mut rest = live.into_iter();
        if run.is_some() {
            same("the run comes first", rest.next(), run)?;
        }
        let (in_flight, pending): (Vec<PatchId>, Vec<PatchId>) =
            rest.partition(|id| graph.info(*id).is_some_and(|info| info.in_flight));
        let mut expected = pending.clone();
        if let Some(run) = run.filter(|run| uncommitted.first() == Some(run)) {
            expected.insert(0, run);
        }
        same("uncommitted", &uncommitted, &expected)?;
        let mut is_ready = false;
        for id in &uncommitted {
            let info = self.info_of(*id)?;
            is_ready |= match info.kind {
                PatchKind::Run => self.run_goes(*id),
                _ => info.dependencies == 0,
            };
        }
        same("has_ready", graph.has_ready(block), is_ready)?;
        let all = run.into_iter().chain(in_flight).chain(pending);
        Ok(all.map(|id| (id, Some(block))).collect())
    }

    fn compare_snapshot(&self, order: &[(PatchId, Option<BlockId>)]) -> Result<(), String> {
        let graph = &self.graph;
        let snapshot = graph.snapshot();
        same("patches in a snapshot", snapshot.len(), order.len())?;
        let is_part =
            |(id, block): &(PatchId, Option<BlockId>)| block.is_some() && graph.is_run(*id);
        let mut places = BTreeMap::new();
        let mut parts: BTreeMap<PatchId, Vec<usize>> = BTreeMap::new();
        for (at, entry) in order.iter().enumerate() {
            match is_part(entry) {
                true => parts.entry(entry.0).or_default().push(at),
                false => drop(places.insert(entry.0, at)),
            }
        }
        for (shown, entry) in snapshot.iter().zip(order) {
            let (id, block) = *entry;
            let info = self.info_of(id)?;
            let dependencies = graph.dependencies(id).into_iter();
            let mut befores: Vec<usize> =
                (dependencies.clone()).map(|(id, _)| places[&id]).collect();
            let (kind, in_flight) = match info.kind {
                PatchKind::Run if block.is_some() => {
                    let waits_for = dependencies.filter(|(_, block)| block.is_none());
                    befores = waits_for.map(|(id, _)| places[&id]).collect();
                    let is_pending = graph.uncommitted(block.unwrap()).contains(&id);
                    (PatchKind::Hard, !is_pending)
                }
                PatchKind::Run => {
                    befores.extend(parts.remove(&id).unwrap_or_default());
                    (PatchKind::Empty, false)
                }
                kind => (kind, info.in_flight),
            };
            same("kind in a snapshot", shown.kind, kind)?;
            same("block in a snapshot", shown.block, block)?;
            same("in_flight in a snapshot", shown.in_flight, in_flight)?;
            same("befores in a snapshot", &shown.befores, &befores)?;
            let is_held = info.kind == PatchKind::Empty && graph.is_held(id);
            same("held in a snapshot", shown.held, is_held)?;
        }
        // Taken back one after the other, the newest first.
        for block in (0..BLOCKS).map(BlockId) {
            let mut bytes = self.newest[block.0 as usize].clone();
            let mut taken: Vec<usize> = Vec::new();
            for (shown, (id, at)) in snapshot.iter().zip(order).rev() {
                let is_soft = matches!(shown.kind, PatchKind::Soft | PatchKind::Bits);
                if *at == Some(block) && is_soft && !shown.in_flight {
                    shown.undo.apply(&mut bytes);
                    taken.extend(self.held.get(&(*id, block)).into_iter().flatten());
                    let expected = Model::without(&self.model, block, &taken);
                    same("bytes that are taken back", &bytes, &expected)?;
                }
            }
        }
        Ok(())
    }

    fn compare_ids(&self, order: &[(PatchId, Option<BlockId>)]) -> Result<(), String> {
        let graph = &self.graph;
        let from = self.ids.len().saturating_sub(NEWEST);
        for (number, a) in self.ids.iter().enumerate().skip(from) {
            let info = graph.info(*a);
            let is_run = info.is_some_and(|info| info.kind == PatchKind::Run);
            same("is_live", graph.is_live(*a), info.is_some())?;
            same("is_run", graph.is_run(*a), is_run)?;
            let is_pending = info.is_some_and(|info| !info.in_flight) && !is_run;
            same("is_pending", graph.is_pending(*a), is_pending)?;
            let is_listed = order.iter().any(|(id, _)| id == a);
            same(
                "was_merged",
                graph.was_merged(*a),
                info.is_some() && !is_listed,
            )?;
            if !is_run {
                same("is_held", graph.is_held(*a), self.model.is_held(number))?;
            }
            let dependencies = graph.dependencies(*a);
            let counted = info.map_or(0, |info| info.dependencies as usize);
            same("dependencies", counted, dependencies.len())?;
            for (id, block) in &dependencies {
                same("a dependency's block", *block, self.info_of(*id)?.block)?;
            }
            let hangs_on = |b: PatchId| dependencies.iter().any(|(id, _)| graph.is_same(*id, b));
            // A short look may miss what lies behind many others.
            let is_short = dependencies.len() <= LOOK;
            for b in &self.ids[from..] {
                same(
                    "is_same, the other way round",
                    graph.is_same(*a, *b),
                    graph.is_same(*b, *a),
                )?;
                let waits = match (info, graph.is_live(*b)) {
                    (_, false) => true,
                    (None, true) => false,
                    (Some(_), true) => graph.is_same(*a, *b) || hangs_on(*b),
                };
                let said = graph.waits_directly(*a, *b);
                if said && !waits || is_short && said != waits {
                    return Err(format!("{a:?} waits for {b:?}: {waits}, was told {said}"));
                }
            }
            for block in (0..BLOCKS).map(BlockId) {
                let joins = match graph.uncommitted(block)[..] {
                    [run] if graph.is_run(run) => hangs_on(run),
                    _ => false,
                };
                let said = graph.joins_contents_before(*a, block);
                if said && !joins || is_short && said != joins {
                    return Err(format!(
                        "{a:?} after contents of {block:?}: {joins}, told {said}"
                    ));
                }
            }
        }
        Ok(())
    }
}
