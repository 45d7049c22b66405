//! Patchgroups: order between sets of operations, stated from above the layout (Frost et al., SOSP
//! 2007, §5).
//!
//! A program *engages* a group: from then on, until it disengages it, what it changes belongs to the
//! group. A group stands between two empty patches, its *head* and its *tail*. Every patch that
//! belongs to it depends on the head; the tail depends on every such patch. That group
//! Q comes after group P is one edge, from Q's head to P's tail (figure 6).
//!
//! # Why there can be no circle
//!
//! A group takes its dependencies first, then it is engaged, and it is *sealed* as soon as
//! something depends on it (figure 5):
//!
//! ```text
//!   new ──depend(G, …)──▶ new ──engage──▶ used ──depend(…, G)──▶ sealed
//!    └──────────────────────depend(…, G)──────────────────────────▶┘
//! ```
//!
//! So the head can be made with the first engagement and the tail with the sealing, each with
//! everything it will ever depend on, all of which exists by then. An edge always leads from a new
//! patch to an older one, and nothing is ever held: no group, however it is used or forgotten,
//! keeps a block in memory. Until it is sealed a group is a list of the patches that are not on
//! stable storage.
//!
//! # Few empty patches
//!
//! A head that comes after one tail *is* that tail, and a tail over one patch is that patch. A
//! chain of a thousand groups, each of which changes one inode, makes no empty patch at all.
//!
//! # What need not wait
//!
//! What nothing on the disk leads to shows nothing: contents of new blocks, bits of bitmaps,
//! whatever lies behind a file's end. The layout says so ([`Volume::hidden`](crate::Volume::hidden)),
//! and these patches are in no group. The patch that makes them visible (the pointer, the size) is in
//! the group, and depends on them under every mechanism that keeps order. So the contents of a thousand
//! appends in a thousand groups go to the disk at once.
//!
//! # Under a journal
//!
//! A transaction is there as a whole or not at all, and transactions reach the disk in sequence:
//! what is made later is never there earlier, and the edges would say nothing (§5.1: they collapse
//! into edges between commit records). Contents of files do not go through the journal, and so would
//! come in any order: those that are written while a group is engaged go through it.

use backstitch_patch::{Graph, PatchId};
use thiserror::Error;

use crate::rules::{Rule, holds};

/// A patchgroup. Ids are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    index: u32,
    generation: u32,
}

/// What a group cannot do.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GroupError {
    /// It was closed, or never made.
    #[error("no such patchgroup")]
    Unknown,
    /// Something depends on it: it takes no further operations and no further dependencies.
    #[error("the patchgroup is sealed: something depends on it")]
    Sealed,
    /// It was engaged: it takes no further dependencies.
    #[error("the patchgroup has been engaged already: add dependencies before that")]
    Used,
    /// It is engaged: nothing can depend on it yet.
    #[error("the patchgroup is engaged: disengage it before something depends on it")]
    Engaged,
    /// It is not engaged.
    #[error("the patchgroup is not engaged")]
    NotEngaged,
    /// It cannot depend on itself.
    #[error("a patchgroup cannot depend on itself")]
    Itself,
    /// There are as many groups, or a group has as many dependencies, as there may be.
    #[error("too many patchgroups, or dependencies of one")]
    TooMany,
}

/// The most groups that are open in all: a slot takes about a hundred bytes.
const MOST_GROUPS: usize = 1 << 20;
/// The most groups that one depends on; more go through a group between.
const MOST_DEPENDENCIES: usize = 1 << 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Used,
    Sealed,
}

#[derive(Debug)]
struct Group {
    generation: u32,
    stage: Stage,
    /// Engagements under way.
    engaged: u32,
    /// The tails of the groups that it comes after; once it has a head, the head.
    before: Vec<PatchId>,
    /// What was made under it and may not be on stable storage yet; once it is sealed, its tail.
    members: Vec<PatchId>,
    /// Changes of times that moved along with something else, here and in the groups that it comes
    /// after: they are on stable storage once the group is, but nothing done under other groups
    /// waits for them. Once the group is sealed, an empty patch that stands for them.
    times: Vec<PatchId>,
    prune_at: usize,
    prune_times_at: usize,
}

/// The open patchgroups of a volume.
#[derive(Debug, Default)]
pub struct Groups {
    slots: Vec<Option<Group>>,
    /// Free slots, each with the generation that it had last.
    free: Vec<(u32, u32)>,
}

impl Groups {
    /// How many groups are open.
    pub fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many engagements there are.
    pub fn engaged(&self) -> u64 {
        let groups = self.slots.iter().flatten();
        groups.map(|g| u64::from(g.engaged)).sum()
    }

    /// Makes a group.
    ///
    /// # Errors
    /// Where there are too many.
    pub fn create(&mut self) -> Result<GroupId, GroupError> {
        let (index, generation) = match self.free.pop() {
            Some((index, last)) => (index, last.wrapping_add(1)),
            None if self.slots.len() >= MOST_GROUPS => return Err(GroupError::TooMany),
            None => {
                self.slots.push(None);
                (self.slots.len() as u32 - 1, 0)
            }
        };
        self.slots[index as usize] = Some(Group {
            generation,
            stage: Stage::New,
            engaged: 0,
            before: Vec::new(),
            members: Vec::new(),
            times: Vec::new(),
            prune_at: 0,
            prune_times_at: 0,
        });
        Ok(GroupId { index, generation })
    }

    /// Forgets a group. What was made under it stays as it is, and so do dependencies on it.
    pub fn close(&mut self, id: GroupId) {
        if self.get(id).is_ok() {
            self.slots[id.index as usize] = None;
            self.free.push((id.index, id.generation));
        }
    }

    /// Makes `after` come after `before`, which is sealed.
    ///
    /// # Errors
    /// Where `after` was engaged or is sealed, or `before` is engaged.
    pub fn depend(
        &mut self,
        graph: &mut Graph,
        after: GroupId,
        before: GroupId,
    ) -> Result<(), GroupError> {
        if after == before {
            return Err(GroupError::Itself);
        }
        let later = self.get(after)?;
        match later.stage {
            Stage::Used => return Err(GroupError::Used),
            Stage::Sealed => return Err(GroupError::Sealed),
            Stage::New if later.before.len() >= MOST_DEPENDENCIES => {
                return Err(GroupError::TooMany);
            }
            Stage::New => {}
        }
        let earlier = self.get_mut(before)?;
        if earlier.engaged > 0 {
            return Err(GroupError::Engaged);
        }
        earlier.seal(graph);
        let tail = earlier.members.first().copied();
        let times = earlier.times.first().copied();
        let later = self.get_mut(after)?;
        later.before.retain(|id| graph.is_live(*id));
        later.before.extend(tail.filter(|id| graph.is_live(*id)));
        later.times.extend(times.filter(|id| graph.is_live(*id)));
        Ok(())
    }

    /// From now on operations may be run under the group, until [`disengage`](Self::disengage) was
    /// called as often.
    ///
    /// # Errors
    /// Where it is sealed.
    pub fn engage(&mut self, graph: &mut Graph, id: GroupId) -> Result<(), GroupError> {
        let group = self.get_mut(id)?;
        match group.stage {
            Stage::Sealed => return Err(GroupError::Sealed),
            Stage::Used => {}
            Stage::New => {
                group.before.retain(|id| graph.is_live(*id));
                if group.before.len() > 1 {
                    group.before = vec![graph.create_empty(&group.before, None, false)];
                }
                group.stage = Stage::Used;
            }
        }
        group.engaged += 1;
        Ok(())
    }

    /// Takes an engagement back.
    ///
    /// # Errors
    /// Where there is none.
    pub fn disengage(&mut self, id: GroupId) -> Result<(), GroupError> {
        let group = self.get_mut(id)?;
        group.engaged = group.engaged.checked_sub(1).ok_or(GroupError::NotEngaged)?;
        Ok(())
    }

    /// Whether nothing that counts was made under the group yet: to come after the group is then
    /// the same as to come after what it comes after.
    ///
    /// # Errors
    /// Where there is no such group.
    pub fn is_blank(&self, id: GroupId) -> Result<bool, GroupError> {
        let group = self.get(id)?;
        Ok(group.stage != Stage::Sealed && group.members.is_empty())
    }

    /// What must be on stable storage for everything that was made under the group to be, and all
    /// that it comes after.
    ///
    /// # Errors
    /// Where there is no such group.
    pub fn targets(&self, graph: &Graph, id: GroupId) -> Result<Vec<PatchId>, GroupError> {
        let group = self.get(id)?;
        let all = group.before.iter().chain(&group.members);
        let all = all.chain(&group.times);
        Ok(all.copied().filter(|id| graph.is_live(*id)).collect())
    }

    /// Appends what a patch made under these groups must come after.
    pub fn heads(&self, graph: &Graph, engaged: &[GroupId], into: &mut Vec<PatchId>) {
        if !holds(Rule::GroupAfterEarlierGroups) {
            return;
        }
        for group in engaged.iter().filter_map(|id| self.get(*id).ok()) {
            into.extend(group.before.iter().filter(|id| graph.is_live(**id)));
        }
    }

    /// Notes a patch that was made under these groups.
    pub(crate) fn note(&mut self, graph: &Graph, engaged: &[GroupId], id: PatchId) {
        if !holds(Rule::LaterGroupsAfterMembers) {
            return;
        }
        for group in engaged {
            if let Ok(group) = self.get_mut(*group) {
                group.note(graph, id);
            }
        }
    }

    /// As [`note`](Self::note), of times that moved along with something else.
    pub(crate) fn note_times(&mut self, graph: &Graph, engaged: &[GroupId], id: PatchId) {
        if !holds(Rule::GroupSyncIncludesTimes) {
            return;
        }
        for group in engaged {
            if let Ok(group) = self.get_mut(*group) {
                let Group {
                    times,
                    prune_times_at,
                    ..
                } = group;
                append(graph, times, prune_times_at, id);
            }
        }
    }

    fn get(&self, id: GroupId) -> Result<&Group, GroupError> {
        let group = self.slots.get(id.index as usize).and_then(Option::as_ref);
        group
            .filter(|g| g.generation == id.generation)
            .ok_or(GroupError::Unknown)
    }

    fn get_mut(&mut self, id: GroupId) -> Result<&mut Group, GroupError> {
        let slot = self.slots.get_mut(id.index as usize);
        slot.and_then(Option::as_mut)
            .filter(|g| g.generation == id.generation)
            .ok_or(GroupError::Unknown)
    }
}

impl Group {
    fn note(&mut self, graph: &Graph, id: PatchId) {
        if self.stage != Stage::Sealed {
            append(graph, &mut self.members, &mut self.prune_at, id);
        }
    }

    /// Makes the tail.
    fn seal(&mut self, graph: &mut Graph) {
        if self.stage == Stage::Sealed {
            return;
        }
        self.stage = Stage::Sealed;
        let mut of = std::mem::take(&mut self.members);
        // The members come after these, but there may be no members.
        of.append(&mut self.before);
        self.members = as_one(graph, of);
        let times = std::mem::take(&mut self.times);
        self.times = as_one(graph, times);
    }
}

/// Those of a list that are not on stable storage, as one patch that stands for them.
fn as_one(graph: &mut Graph, mut of: Vec<PatchId>) -> Vec<PatchId> {
    of.retain(|id| graph.is_live(*id));
    match of.len() {
        0 | 1 => of,
        _ => vec![graph.create_empty(&of, None, false)],
    }
}

/// Appends a patch that is not on stable storage to a list of such patches. Those that have reached
/// stable storage meanwhile are dropped as the list grows.
fn append(graph: &Graph, list: &mut Vec<PatchId>, prune_at: &mut usize, id: PatchId) {
    // An operation changes the same few patches again and again.
    if !graph.is_live(id) || list.iter().rev().take(4).any(|m| *m == id) {
        return;
    }
    if list.len() >= (*prune_at).max(16) {
        list.retain(|id| graph.is_live(*id));
        *prune_at = list.len() * 2;
    }
    list.push(id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_patch::{BlockId, Change, Optimisations, Version};

    struct Disk {
        graph: Graph,
        blocks: Vec<Vec<u8>>,
    }

    impl Disk {
        fn new() -> Disk {
            Disk {
                graph: Graph::new(Optimisations::BOTH),
                blocks: vec![vec![0; 512]; 8],
            }
        }

        fn patch(&mut self, groups: &mut Groups, engaged: &[GroupId], block: u32) -> PatchId {
            let mut after = Vec::new();
            groups.heads(&self.graph, engaged, &mut after);
            let change = Change::Bytes {
                offset_bytes: 0,
                bytes: &[1; 8],
            };
            let bytes = &mut self.blocks[block as usize];
            let id = self.graph.create(BlockId(block), bytes, change, &after);
            groups.note(&self.graph, engaged, id);
            id
        }

        fn can_write(&mut self, block: u32) -> bool {
            let bytes = self.blocks[block as usize].clone();
            let version = self.graph.start_write(BlockId(block), &bytes);
            !matches!(version, Version::Nothing)
        }
    }

    #[test]
    fn a_group_comes_after_the_one_it_depends_on_and_after_those_before_that() {
        let (mut disk, mut groups) = (Disk::new(), Groups::default());
        let [first, between, last] = [(); 3].map(|()| groups.create().unwrap());
        groups.engage(&mut disk.graph, first).unwrap();
        disk.patch(&mut groups, &[first], 0);
        disk.patch(&mut groups, &[first], 1);
        groups.disengage(first).unwrap();
        groups.depend(&mut disk.graph, between, first).unwrap();
        groups.depend(&mut disk.graph, last, between).unwrap();
        groups.engage(&mut disk.graph, last).unwrap();
        disk.patch(&mut groups, &[last], 2);
        assert!(!disk.can_write(2));
        assert!(disk.can_write(0) && disk.can_write(1));
        disk.graph.complete_write(BlockId(0));
        assert!(!disk.can_write(2));
        disk.graph.complete_write(BlockId(1));
        assert!(disk.can_write(2));
    }

    #[test]
    fn dependencies_come_first_and_what_something_depends_on_is_sealed() {
        let (mut disk, mut groups) = (Disk::new(), Groups::default());
        let graph = &mut disk.graph;
        let [p, q, r] = [(); 3].map(|()| groups.create().unwrap());
        assert_eq!(groups.depend(graph, p, p), Err(GroupError::Itself));
        groups.engage(graph, p).unwrap();
        assert_eq!(groups.depend(graph, p, q), Err(GroupError::Used));
        assert_eq!(groups.depend(graph, q, p), Err(GroupError::Engaged));
        groups.disengage(p).unwrap();
        assert_eq!(groups.disengage(p), Err(GroupError::NotEngaged));
        groups.depend(graph, q, p).unwrap();
        assert_eq!(groups.engage(graph, p), Err(GroupError::Sealed));
        // A circle cannot even be written down.
        assert_eq!(groups.depend(graph, p, q), Err(GroupError::Sealed));
        groups.depend(graph, r, q).unwrap();
        assert_eq!(groups.depend(graph, q, r), Err(GroupError::Sealed));
        groups.close(q);
        assert_eq!(groups.engage(graph, q), Err(GroupError::Unknown));
        assert_eq!(groups.open(), 2);
    }

    #[test]
    fn a_closed_group_leaves_its_order_and_nothing_else() {
        let (mut disk, mut groups) = (Disk::new(), Groups::default());
        let [p, q] = [(); 2].map(|()| groups.create().unwrap());
        groups.engage(&mut disk.graph, p).unwrap();
        disk.patch(&mut groups, &[p], 0);
        groups.disengage(p).unwrap();
        groups.depend(&mut disk.graph, q, p).unwrap();
        groups.close(p);
        groups.engage(&mut disk.graph, q).unwrap();
        disk.patch(&mut groups, &[q], 1);
        groups.close(q);
        assert_eq!((groups.open(), groups.engaged()), (0, 0));
        assert!(!disk.can_write(1));
        assert!(disk.can_write(0));
        disk.graph.complete_write(BlockId(0));
        assert!(disk.can_write(1));
        disk.graph.complete_write(BlockId(1));
        assert_eq!(disk.graph.counters().live, 0);
        // Neither of the two made an empty patch.
        assert_eq!(disk.graph.counters().created_empty, 0);
        let again = groups.create().unwrap();
        assert!(again != p && again != q);
    }

    #[test]
    fn a_chain_on_one_block_is_one_write() {
        let (mut disk, mut groups) = (Disk::new(), Groups::default());
        let mut before = None;
        for _ in 0..100 {
            let group = groups.create().unwrap();
            if let Some(before) = before {
                groups.depend(&mut disk.graph, group, before).unwrap();
                groups.close(before);
            }
            groups.engage(&mut disk.graph, group).unwrap();
            disk.patch(&mut groups, &[group], 0);
            groups.disengage(group).unwrap();
            before = Some(group);
        }
        assert!(disk.can_write(0));
        assert!(!disk.graph.has_uncommitted(BlockId(0)));
    }
}
