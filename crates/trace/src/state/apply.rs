//! What each record does to the graph.

use std::collections::BTreeSet;
use std::sync::Arc;

use backstitch_store::PatchKind;

use super::{Keep, MOST_REMEMBERED, Part, Patch, Scope, Standing, State};
use crate::names::{MOST_NAME_BYTES, cut_short, printable};
use crate::record::{Change, Record};

/// Objects of one operation of which the paths are known.
const MOST_PATHS: usize = 8;
/// Bytes of an operation in words.
const MOST_LABEL_BYTES: usize = 2 * 4096;

impl State {
    /// Applies the record that follows.
    pub fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::Time(time) => self.time = time,
            Record::Place { block, place } => drop(self.places.insert(u64::from(block), place)),
            Record::Begin {
                scope,
                word,
                objects,
                names,
                range_bytes,
            } => self.begin(scope, word, objects, names, range_bytes),
            Record::End => self.end_scope(),
            Record::Made { object } => self.made(object),
            Record::Create {
                patch,
                kind,
                held,
                block,
                change,
                ..
            } => {
                self.make(patch, kind, block, false);
                self.patch_mut(patch).is_held = held;
                self.add_change(patch, change);
            }
            Record::Merge {
                into,
                kind,
                block,
                change,
                ..
            } => {
                self.make(into, kind, Some(block), false);
                self.add_change(into, change);
            }
            Record::Present {
                patch,
                kind,
                held,
                in_flight,
                block,
                offset_bytes,
                len_bytes,
            } => {
                self.make(patch, kind, block, in_flight);
                self.patch_mut(patch).is_held = held;
                if len_bytes > 0 {
                    self.add_change(
                        patch,
                        Change::Bytes {
                            offset_bytes,
                            len_bytes,
                        },
                    );
                }
            }
            Record::Forward { from, to } | Record::Supersede { from, to, .. } => {
                self.stand_in(from, to);
            }
            Record::Split { from, block, to } | Record::Leave { from, block, to } => {
                self.leave_run(from, block, to);
            }
            Record::Wait { after, before } => self.wait(after, before),
            Record::StopWaiting { after, before } => self.stop_waiting(after, before),
            Record::Release { patch } => {
                if let Some(patch) = self.patches.get_mut(&patch).map(Arc::make_mut) {
                    patch.is_held = false;
                }
            }
            Record::Write {
                block,
                rolled_back,
                patches,
            } => self.write(block, rolled_back, patches),
            Record::Commit { patch } => self.commit(patch),
            Record::Batch { number, .. } => {
                let written = std::mem::take(&mut self.written);
                self.batches.insert(number, written);
            }
            Record::Flushed { number } => self.flushed(number),
            Record::Failed { number } => self.failed(number),
            Record::Awaited { ticket, patches } => {
                self.waits.insert(ticket, patches.to_vec());
            }
            Record::Reached { ticket } => drop(self.waits.remove(&ticket)),
            Record::Lost { events } => self.lost = Some(events),
            Record::Harden { patch } => {
                if let Some(patch) = self.patches.get_mut(&patch).map(Arc::make_mut) {
                    patch.kind = PatchKind::Hard;
                }
            }
            Record::Discard { block } => self.discard(block),
            Record::Settle { .. } | Record::Contents { .. } | Record::Finished => {}
        }
        self.records += 1;
    }

    fn begin(
        &mut self,
        number: u64,
        word: &[u8],
        objects: &[u64],
        names: [Option<&[u8]>; 2],
        range_bytes: (u64, u64),
    ) {
        self.end_scope();
        let text = |bytes| cut_short(&String::from_utf8_lossy(bytes), MOST_NAME_BYTES);
        let (word, names) = (text(word), names.map(|name| name.map(text)));
        let mut paths = Vec::new();
        for (object, name) in objects.iter().zip(names.iter().flatten()) {
            paths.push(self.names.path_in(*object, name));
        }
        if paths.is_empty() {
            let objects = objects.iter().take(MOST_PATHS);
            paths.extend(objects.map(|object| self.names.path(*object)));
        }
        self.note_names(&word, objects, &names);
        let mut label = printable(&word);
        for path in &paths {
            label += " ";
            label += &printable(path);
        }
        if objects.len() > paths.len().max(MOST_PATHS) {
            label += &format!(" and {} more", objects.len() - paths.len());
        }
        let mut label = cut_short(&label, MOST_LABEL_BYTES);
        if range_bytes.1 > 0 {
            label += &format!(" {}+{}", range_bytes.0, range_bytes.1);
        }
        let scope = Scope {
            word,
            label,
            objects: objects.to_vec(),
            paths,
            began: self.time,
            live: 0,
        };
        self.scopes.insert(number, Arc::new(scope));
        self.scope = Some(number);
    }

    fn note_names(&mut self, word: &str, objects: &[u64], names: &[Option<String>; 2]) {
        match (word, objects, names) {
            ("remove", [directory], [Some(name), _]) => self.names.take(*directory, name),
            ("link", [directory, object], [Some(name), _]) => {
                self.names.give(*object, *directory, name);
            }
            ("rename", [from, to], [Some(old), Some(new)]) => {
                if let Some(object) = self.names.find(*from, old) {
                    self.names.give(object, *to, new);
                }
            }
            ("exchange", [from, to], [Some(old), Some(new)]) => {
                self.names.swap((*from, old), (*to, new));
            }
            _ => {}
        }
    }

    fn end_scope(&mut self) {
        let Some(scope) = self.scope.take() else {
            return;
        };
        let is_empty = self.scopes.get(&scope).is_some_and(|s| s.live == 0);
        if self.keep == Keep::Live && is_empty {
            self.scopes.remove(&scope);
        }
    }

    fn made(&mut self, object: u64) {
        let scope = self
            .scope
            .and_then(|scope| self.scopes.get_mut(&scope).map(Arc::make_mut));
        if let Some(scope) = scope {
            // One that is made without a name has the path of its directory.
            let is_named = scope.word != "create-unnamed";
            if let (Some(directory), Some(path), true) =
                (scope.objects.first(), scope.paths.first(), is_named)
            {
                let name = path.rsplit('/').next().unwrap_or(path);
                self.names.give(object, *directory, name);
            }
            scope.objects.push(object);
        }
    }

    /// The patch with this number, which is only named where it was not made known.
    fn patch_mut(&mut self, number: u64) -> &mut Patch {
        self.newest = self.newest.max(number);
        let (time, record) = (self.time, self.records);
        let new = || {
            Arc::new(Patch {
                kind: PatchKind::Empty,
                standing: Standing::Uncommitted,
                parts: Vec::new(),
                changes: Vec::new(),
                changes_count: 0,
                befores: BTreeSet::new(),
                afters: BTreeSet::new(),
                scopes: Vec::new(),
                is_held: false,
                made: time,
                made_at: record,
                is_known: false,
                was_discarded: false,
            })
        };
        Arc::make_mut(self.patches.entry(number).or_insert_with(new))
    }

    fn make(&mut self, number: u64, kind: PatchKind, block: Option<u32>, is_in_flight: bool) {
        let scope = self.scope;
        let patch = self.patch_mut(number);
        patch.kind = kind;
        patch.is_known = true;
        if is_in_flight && kind != PatchKind::Run && patch.standing != Standing::Committed {
            patch.standing = Standing::InFlight;
        }
        let mut is_new_in_scope = false;
        if let Some(scope) = scope {
            is_new_in_scope =
                patch.scopes.last() != Some(&scope) && patch.scopes.len() < MOST_REMEMBERED;
            if is_new_in_scope {
                patch.scopes.push(scope);
            }
        }
        if let Some(block) = block {
            if !patch.parts.iter().rev().any(|part| part.block == block) {
                patch.parts.push(Part {
                    block,
                    is_in_flight,
                    is_stable: false,
                    is_rolled_back: false,
                });
            }
            Arc::make_mut(self.blocks.entry(block).or_default())
                .patches
                .insert(number);
        }
        if let Some(scope) = scope.and_then(|scope| self.scopes.get_mut(&scope).map(Arc::make_mut))
        {
            scope.live += u64::from(is_new_in_scope);
        }
    }

    fn add_change(&mut self, number: u64, change: Change) {
        let patch = self.patch_mut(number);
        patch.changes_count += 1;
        if change != Change::Nothing && patch.changes.len() < MOST_REMEMBERED {
            patch.changes.push(change);
        }
    }

    fn wait(&mut self, after: u64, before: u64) {
        if after == before || before == 0 || after == 0 {
            return;
        }
        self.patch_mut(after).befores.insert(before);
        self.patch_mut(before).afters.insert(after);
    }

    fn stop_waiting(&mut self, after: u64, before: u64) {
        if let Some(patch) = self.patches.get_mut(&after).map(Arc::make_mut) {
            patch.befores.remove(&before);
        }
        if let Some(patch) = self.patches.get_mut(&before).map(Arc::make_mut) {
            patch.afters.remove(&after);
        }
    }

    /// Takes a patch out of everything that names it.
    fn forget(&mut self, number: u64) -> Option<Patch> {
        let patch = Arc::unwrap_or_clone(self.patches.remove(&number)?);
        if self.keep == Keep::Live && patch.standing == Standing::Committed {
            self.arrived -= 1;
        }
        for before in &patch.befores {
            if let Some(before) = self.patches.get_mut(before).map(Arc::make_mut) {
                before.afters.remove(&number);
            }
        }
        for after in &patch.afters {
            if let Some(after) = self.patches.get_mut(after).map(Arc::make_mut) {
                after.befores.remove(&number);
            }
        }
        for part in &patch.parts {
            self.leave_block(part.block, number);
        }
        Some(patch)
    }

    fn leave_block(&mut self, block: u32, number: u64) {
        if let Some(b) = self.blocks.get_mut(&block).map(Arc::make_mut) {
            b.patches.remove(&number);
            if b.patches.is_empty() {
                self.blocks.remove(&block);
            }
        }
    }

    fn stand_in(&mut self, from: u64, to: u64) {
        if from == to || !self.patches.contains_key(&to) {
            return;
        }
        self.forwards.insert(from, to);
        let Some(gone) = self.forget(from) else {
            return;
        };
        let into = self.patch_mut(to);
        let mut left = Vec::new();
        for scope in gone.scopes {
            match into.scopes.len() < MOST_REMEMBERED && !into.scopes.contains(&scope) {
                true => into.scopes.push(scope),
                false => left.push(scope),
            }
        }
        into.changes_count += gone.changes_count;
        let room = MOST_REMEMBERED - into.changes.len().min(MOST_REMEMBERED);
        into.changes.extend(gone.changes.into_iter().take(room));
        self.leave_scopes(&left);
    }

    fn leave_scopes(&mut self, scopes: &[u64]) {
        for number in scopes {
            if let Some(scope) = self.scopes.get_mut(number).map(Arc::make_mut) {
                scope.live = scope.live.saturating_sub(1);
                let is_over = scope.live == 0 && self.scope != Some(*number);
                if is_over && self.keep == Keep::Live {
                    self.scopes.remove(number);
                }
            }
        }
    }

    fn leave_run(&mut self, run: u64, block: u32, to: u64) {
        let mut is_in_flight = false;
        let (mut made, mut scopes) = (None, Vec::new());
        if let Some(run) = self.patches.get_mut(&run).map(Arc::make_mut) {
            let part = run.parts.iter().position(|part| part.block == block);
            is_in_flight = part.is_some_and(|part| run.parts.swap_remove(part).is_in_flight);
            made = Some(run.made);
            scopes.clone_from(&run.scopes);
        }
        self.leave_block(block, run);
        self.make(to, PatchKind::Hard, Some(block), is_in_flight);
        let Some(patch) = self.patches.get_mut(&to).map(Arc::make_mut) else {
            return;
        };
        patch.made = made.unwrap_or(patch.made);
        patch.changes_count += 1;
        for scope in scopes {
            if !patch.scopes.contains(&scope) && patch.scopes.len() < MOST_REMEMBERED {
                patch.scopes.push(scope);
                if let Some(scope) = self.scopes.get_mut(&scope).map(Arc::make_mut) {
                    scope.live += 1;
                }
            }
        }
    }

    /// The block's part of a run that no write has taken up is gone.
    fn discard(&mut self, block: u32) {
        let here = self.blocks.get(&block).map(|b| b.patches.clone());
        for number in here.unwrap_or_default() {
            let Some(run) = self.patches.get_mut(&number).map(Arc::make_mut) else {
                continue;
            };
            let is_gone = |part: &Part| part.block == block && !part.is_in_flight;
            if run.kind == PatchKind::Run && run.parts.iter().any(is_gone) {
                run.parts.retain(|part| !is_gone(part));
                self.leave_block(block, number);
            }
        }
    }

    fn write(&mut self, block: u32, rolled_back: u32, patches: &[u64]) {
        let left_out = self.left_out(block, patches);
        self.mismatches += u64::from(left_out.len() as u32 != rolled_back);
        self.note_rolled_back(block, &left_out);
        for number in patches {
            let Some(patch) = self.patches.get_mut(number).map(Arc::make_mut) else {
                continue;
            };
            let parts = patch.parts.iter_mut().filter(|part| part.block == block);
            parts.for_each(|part| part.is_in_flight = true);
            if patch.standing == Standing::Committed {
                continue;
            }
            let is_run = patch.kind == PatchKind::Run;
            let has_left = |part: &Part| part.is_in_flight || part.is_stable;
            if !is_run || patch.parts.iter().all(has_left) {
                patch.standing = Standing::InFlight;
            }
        }
        self.written.push(block);
    }

    /// These patches of a block, in the order of their numbers, and no others are left out of the
    /// version on its way.
    fn note_rolled_back(&mut self, block: u32, left_out: &[u64]) {
        let here: Vec<u64> = self.patches_of(block).collect();
        for number in here {
            let is_left_out = left_out.binary_search(&number).is_ok();
            let Some(patch) = self.patches.get_mut(&number) else {
                continue;
            };
            let differs = |part: &Part| part.block == block && part.is_rolled_back != is_left_out;
            if patch.parts.iter().any(differs) {
                let parts = Arc::make_mut(patch).parts.iter_mut();
                let parts = parts.filter(|part| part.block == block);
                parts.for_each(|part| part.is_rolled_back = is_left_out);
            }
        }
    }

    /// What is on its way with a batch is on stable storage from here on. The commits, which the
    /// trace has next, tell the same of whole patches once more.
    fn flushed(&mut self, number: u64) {
        for block in self.batches.remove(&number).unwrap_or_default() {
            self.note_rolled_back(block, &[]);
            let here: Vec<u64> = self.in_flight_of(block).collect();
            for number in here {
                self.arrive(block, number);
            }
        }
    }

    /// Nobody knows what of a batch is there, and it is no longer on its way.
    fn failed(&mut self, number: u64) {
        for block in self.batches.remove(&number).unwrap_or_default() {
            self.note_rolled_back(block, &[]);
        }
    }

    /// A version of a block with this patch is on stable storage.
    fn arrive(&mut self, block: u32, number: u64) {
        let keep = self.keep;
        let Some(patch) = self.patches.get_mut(&number).map(Arc::make_mut) else {
            return;
        };
        let is_run = patch.kind == PatchKind::Run;
        if is_run {
            for part in patch.parts.iter_mut().filter(|part| part.block == block) {
                (part.is_in_flight, part.is_stable) = (false, true);
            }
            if keep == Keep::Live {
                patch.parts.retain(|part| !part.is_stable);
            }
        }
        if !is_run || patch.parts.iter().all(|part| part.is_stable) {
            patch.standing = Standing::Committed;
            self.arrived += usize::from(keep == Keep::Live);
        }
        if is_run {
            self.leave_block(block, number);
        }
    }

    fn commit(&mut self, number: u64) {
        let is_unwritten =
            |patch: &Patch| patch.standing == Standing::Uncommitted && !patch.parts.is_empty();
        self.has_discarded = self.patch_there(number).is_some_and(is_unwritten);
        match self.keep {
            Keep::Live => {
                if let Some(patch) = self.forget(number) {
                    self.leave_scopes(&patch.scopes);
                }
                if self.has_discarded {
                    self.discarded.insert(number, ());
                }
                // What was merged into it cannot be named any more.
                if self.forwards.len() > 1024 && self.forwards.len() > 2 * self.patches.len() {
                    let patches = &self.patches;
                    let forwards = std::mem::take(&mut self.forwards);
                    let is_live = |to: &u64| patches.contains_key(to) || forwards.contains_key(to);
                    let kept = forwards.iter().filter(|(_, to)| is_live(to));
                    self.forwards = kept.map(|(from, to)| (*from, *to)).collect();
                }
            }
            Keep::Everything => {
                let Some(patch) = self.patches.get_mut(&number).map(Arc::make_mut) else {
                    return;
                };
                patch.standing = Standing::Committed;
                patch.was_discarded = self.has_discarded;
                let blocks: Vec<u32> = patch.parts.iter().map(|part| part.block).collect();
                for block in blocks {
                    self.leave_block(block, number);
                }
            }
        }
    }
}
