//! The states that a crash may leave of the changes in memory: every set of patches that holds, for
//! each of its patches, what must be on disk before it.

use std::collections::BTreeMap;
use std::ops::Range;

use backstitch_device::Buffer;
use backstitch_store::{BlockClass, BlockSeal, PatchId, PatchKind, SnapshotPatch, Store};
use rustc_hash::FxHashMap;

use crate::classes::Choices;
use crate::image::Fork;

/// A block may have 64 times as many patches. A moment with a block that has more is not explored.
const MASK_WORDS: usize = 8;

/// Some patches of one block.
type Mask = [u64; MASK_WORDS];

/// A patch that is not on disk.
#[derive(Debug)]
pub struct Node {
    /// Its block's place in [`States::blocks`].
    block: usize,
    /// Its number among the patches of its block.
    bit: usize,
    /// The patch in the graph; for a block of a run, the run.
    pub id: PatchId,
    /// What it changes.
    pub class: BlockClass,
    /// How.
    pub kind: PatchKind,
    /// The patches that must be on disk before it.
    pub befores: Vec<usize>,
}

impl Node {
    #[cfg(test)]
    pub(crate) fn new(class: BlockClass, kind: PatchKind, befores: Vec<usize>) -> Node {
        Node {
            block: 0,
            bit: 0,
            id: PatchId::COMMITTED,
            class,
            kind,
            befores,
        }
    }

    /// Whether it changes what a file contains.
    pub fn is_contents(&self) -> bool {
        self.class == BlockClass::Data
    }

    /// Whether it is independent (see [`closed`](crate::closed)): contents, and bits of bitmaps.
    pub fn is_independent(&self) -> bool {
        self.is_contents() || self.kind == PatchKind::Bits
    }
}

#[derive(Debug)]
struct Patched {
    block: u64,
    newest: Buffer,
    disk: Buffer,
    /// The units with patches, as ranges of bytes of the block, each with the numbers of its
    /// patches in the order in which they were applied.
    units: Vec<(Range<usize>, Vec<usize>)>,
    /// The patches of all units.
    patches: Vec<SnapshotPatch>,
    /// What the layout does to the bytes before they are written, such as setting a checksum.
    seal: Option<BlockSeal>,
    /// The versions made so far, each with what it adds to the fingerprint.
    versions: FxHashMap<Mask, (Buffer, u128)>,
    /// The set of patches that was asked for last, and what it adds. Consecutive sets mostly have
    /// the same patches of a block.
    last: (Mask, u128),
    /// What the bytes on disk add to the fingerprint.
    disk_fingerprint: u128,
}

/// A patch that is not on disk, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The patch in the graph; for a block of a run, the run.
    pub id: PatchId,
    /// The block that it changes.
    pub block: u64,
    /// What it changes.
    pub class: BlockClass,
    /// How.
    pub kind: PatchKind,
    /// Those that must be on disk before it, as places in the list that it is in.
    pub befores: Vec<usize>,
    /// Whether it is on its way to the disk.
    pub in_flight: bool,
}

/// The patches of a store that are not on disk, whether or not they are on their way. Those that
/// wait for a hold that nobody has released cannot be on disk yet and are left out.
pub fn pending(store: &Store) -> Vec<Pending> {
    let patches = store.graph().snapshot();
    let (befores, is_held) = real_befores(&patches);
    let mut place = vec![usize::MAX; patches.len()];
    let mut found = Vec::new();
    for (index, patch) in patches.iter().enumerate() {
        let Some(id) = patch.block.filter(|_| !is_held[index]) else {
            continue;
        };
        place[index] = found.len();
        found.push(Pending {
            id: patch.id,
            block: store.place_of(id).1,
            class: store.class_of(id),
            kind: patch.kind,
            befores: befores[index].clone(),
            in_flight: patch.in_flight,
        });
    }
    for (at, pending) in found.iter_mut().enumerate() {
        let real = pending.befores.iter().map(|before| place[*before]);
        let mut real: Vec<usize> = real.filter(|before| *before != at).collect();
        real.sort_unstable();
        real.dedup();
        pending.befores = real;
    }
    found
}

/// The patches of a store that are not on disk, none of them on its way.
pub struct Frontier {
    /// The patches; each comes behind those that must be on disk before it.
    pub nodes: Vec<Node>,
    /// What the disk holds with some of them.
    pub states: States,
}

/// What the disk holds with some of the patches.
pub struct States {
    blocks: Vec<Patched>,
    /// The patches of each block that are in the set that was asked for last.
    masks: Vec<Mask>,
    disk: Fork,
    disk_fingerprint: u128,
    /// False if a block had too many patches to tell them apart. Then only what is on disk is
    /// visited.
    pub is_complete: bool,
}

impl Frontier {
    /// The patches that a store has in memory, over what the disk holds.
    pub fn new(store: &Store, disk: Fork) -> Frontier {
        let patches = store.graph().snapshot();
        let (befores, is_held) = real_befores(&patches);
        let mut frontier = Frontier {
            nodes: Vec::new(),
            states: States {
                blocks: Vec::new(),
                masks: Vec::new(),
                disk_fingerprint: disk.fingerprint(),
                disk,
                is_complete: true,
            },
        };
        let mut place = vec![usize::MAX; patches.len()];
        let mut blocks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, patch) in patches.iter().enumerate() {
            if let Some(id) = patch.block {
                blocks.entry(store.place_of(id).1).or_default().push(index);
            }
        }
        if blocks
            .values()
            .any(|indices| indices.len() > MASK_WORDS * 64)
        {
            frontier.states.is_complete = false;
            return frontier;
        }
        for (block, indices) in blocks {
            if indices.iter().any(|index| !is_held[*index]) {
                frontier.add_block(store, block, &indices, &patches, &is_held, &mut place);
            }
        }
        for (index, at) in place
            .iter()
            .enumerate()
            .filter(|(_, at)| **at != usize::MAX)
        {
            let node = &mut frontier.nodes[*at];
            let befores = befores[index].iter().map(|before| place[*before]);
            node.befores.extend(befores.filter(|before| before != at));
            node.befores.sort_unstable();
            node.befores.dedup();
        }
        frontier.sort();
        frontier
    }

    fn add_block(
        &mut self,
        store: &Store,
        block: u64,
        indices: &[usize],
        patches: &[SnapshotPatch],
        is_held: &[bool],
        place: &mut [usize],
    ) {
        let id = patches[indices[0]].block.expect("it is of this block");
        let (volume, _) = store.place_of(id);
        let newest = store
            .peek(volume, block)
            .expect("a dirty block is in memory");
        let states = &mut self.states;
        let disk = Buffer::from(states.disk.block(block));
        for (bit, index) in indices.iter().enumerate() {
            let patch = &patches[*index];
            debug_assert!(!patch.in_flight, "nothing is on its way");
            // A patch that cannot be on disk yet is undone in every version of its block.
            if is_held[*index] {
                continue;
            }
            place[*index] = self.nodes.len();
            self.nodes.push(Node {
                block: states.blocks.len(),
                bit,
                id: patch.id,
                class: store.class_of(id),
                kind: patch.kind,
                befores: Vec::new(),
            });
        }
        let mut units: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        for (bit, index) in indices.iter().enumerate() {
            let range = store.range_of(patches[*index].block.expect("it is of this block"));
            match units.iter_mut().find(|(unit, _)| *unit == range) {
                Some((_, of_unit)) => of_unit.push(bit),
                None => units.push((range, vec![bit])),
            }
        }
        states.blocks.push(Patched {
            block,
            newest: newest.clone(),
            disk_fingerprint: states.disk.adds(block),
            last: (Mask::default(), states.disk.adds(block)),
            disk,
            units,
            patches: indices.iter().map(|i| patches[*i].clone()).collect(),
            seal: store.seal_of(volume, block).cloned(),
            versions: FxHashMap::default(),
        });
    }

    /// Puts every patch behind those that must be on disk before it.
    fn sort(&mut self) {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut state = vec![0u8; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut stack = vec![(start, 0)];
            while let Some((node, next)) = stack.pop() {
                if next == 0 && std::mem::replace(&mut state[node], 1) != 0 {
                    continue;
                }
                match self.nodes[node].befores.get(next) {
                    Some(before) => {
                        stack.push((node, next + 1));
                        stack.push((*before, 0));
                    }
                    None => order.push(node),
                }
            }
        }
        let mut place = vec![0; order.len()];
        for (at, node) in order.iter().enumerate() {
            place[*node] = at;
        }
        let mut nodes: Vec<Option<Node>> = self.nodes.drain(..).map(Some).collect();
        for node in order {
            let mut node = nodes[node].take().expect("each has one place");
            for before in &mut node.befores {
                *before = place[*before];
            }
            self.nodes.push(node);
        }
    }
}

impl States {
    /// The fingerprint of the image with these patches on disk.
    pub fn fingerprint(&mut self, nodes: &[Node], included: &[bool]) -> u128 {
        self.find_masks(nodes, included);
        let mut sum = self.disk_fingerprint;
        for (patched, mask) in self.blocks.iter_mut().zip(&self.masks) {
            if *mask == Mask::default() {
                continue;
            }
            if patched.last.0 != *mask {
                patched.last = (*mask, patched.version(*mask, &self.disk).1);
            }
            sum = sum
                .wrapping_sub(patched.disk_fingerprint)
                .wrapping_add(patched.last.1);
        }
        sum
    }

    /// The image with these patches on disk.
    pub fn fork(&mut self, nodes: &[Node], included: &[bool]) -> Fork {
        self.find_masks(nodes, included);
        let mut fork = self.disk.clone();
        for (patched, mask) in self.blocks.iter_mut().zip(&self.masks) {
            if *mask != Mask::default() {
                let (bytes, adds) = patched.version(*mask, &self.disk);
                fork.set_known(patched.block, bytes, adds);
            }
        }
        fork
    }

    /// Finds the patches of each block that are in the set.
    fn find_masks(&mut self, nodes: &[Node], included: &[bool]) {
        self.masks.clear();
        self.masks.resize(self.blocks.len(), Mask::default());
        for (node, _) in nodes.iter().zip(included).filter(|(_, is)| **is) {
            self.masks[node.block][node.bit / 64] |= 1 << (node.bit % 64);
        }
    }

    /// The patches, for reports.
    pub fn pending(&self, nodes: &[Node]) -> Vec<Pending> {
        let described = nodes.iter().map(|node| Pending {
            id: node.id,
            block: self.blocks[node.block].block,
            class: node.class,
            kind: node.kind,
            befores: node.befores.clone(),
            in_flight: false,
        });
        described.collect()
    }

    /// The blocks, each with the number of its patches, and how many of them are on the disk.
    pub fn blocks(&self, nodes: &[Node], included: &[bool]) -> Vec<(u64, usize, usize)> {
        let mut counts: Vec<(u64, usize, usize)> =
            self.blocks.iter().map(|b| (b.block, 0, 0)).collect();
        for (node, is) in nodes.iter().zip(included) {
            counts[node.block].1 += 1;
            counts[node.block].2 += usize::from(*is);
        }
        counts
    }
}

/// The sets of patches of a moment as choices.
pub struct Moment<'m> {
    /// The patches in memory.
    pub nodes: &'m [Node],
    /// What the disk holds with some of them.
    pub states: &'m mut States,
}

impl Choices for Moment<'_> {
    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn befores(&self, piece: usize) -> &[usize] {
        &self.nodes[piece].befores
    }

    fn block(&self, piece: usize) -> u64 {
        self.states.blocks[self.nodes[piece].block].block
    }

    fn is_contents(&self, piece: usize) -> bool {
        self.nodes[piece].is_contents()
    }

    fn state(&mut self, included: &[bool]) -> (Fork, u128) {
        let fingerprint = self.states.fingerprint(self.nodes, included);
        (self.states.fork(self.nodes, included), fingerprint)
    }

    fn fingerprint(&mut self, included: &[bool]) -> u128 {
        self.states.fingerprint(self.nodes, included)
    }
}

impl Patched {
    /// The block's bytes with these of its patches.
    fn version(&mut self, mask: Mask, disk: &Fork) -> (Buffer, u128) {
        if let Some((bytes, fingerprint)) = self.versions.get(&mask) {
            return (bytes.clone(), *fingerprint);
        }
        let is_there = |at: &usize| mask[at / 64] & (1 << (at % 64)) != 0;
        // A unit of which no patch is there shows the bytes on disk. To undo all patches in the
        // newest bytes would be wrong: a block that was initialised without being read would have
        // zeros there.
        let mut bytes = self.disk.to_vec();
        for (unit, patches) in &self.units {
            if !patches.iter().any(is_there) {
                continue;
            }
            let bytes = &mut bytes[unit.clone()];
            bytes.copy_from_slice(&self.newest[unit.clone()]);
            for at in patches.iter().rev().filter(|at| !is_there(at)) {
                self.patches[*at].undo.apply(bytes);
            }
        }
        if let Some(seal) = &self.seal
            && mask != Mask::default()
        {
            seal.apply(&mut bytes);
        }
        let bytes = Buffer::from(bytes);
        let fingerprint = disk.fingerprint_of(self.block, &bytes);
        self.versions.insert(mask, (bytes.clone(), fingerprint));
        (bytes, fingerprint)
    }
}

/// For each patch with bytes, what must be on disk before it, with the empty patches resolved to
/// what they stand for; and whether it waits, however far away, for an empty patch that nobody has
/// released: then it cannot be on disk at all.
fn real_befores(patches: &[SnapshotPatch]) -> (Vec<Vec<usize>>, Vec<bool>) {
    let mut found = vec![Vec::new(); patches.len()];
    let mut is_held: Vec<bool> = patches.iter().map(|p| p.held).collect();
    let mut afters = vec![Vec::new(); patches.len()];
    for (index, patch) in patches.iter().enumerate() {
        for before in &patch.befores {
            afters[*before].push(index);
        }
        if patch.block.is_none() {
            continue;
        }
        let mut stack = patch.befores.clone();
        let mut seen = Vec::new();
        while let Some(before) = stack.pop() {
            if patches[before].block.is_some() {
                found[index].push(before);
            } else if !seen.contains(&before) {
                seen.push(before);
                stack.extend(&patches[before].befores);
            }
        }
    }
    let mut stack: Vec<usize> = (0..patches.len()).filter(|i| is_held[*i]).collect();
    while let Some(index) = stack.pop() {
        for after in &afters[index] {
            if !std::mem::replace(&mut is_held[*after], true) {
                stack.push(*after);
            }
        }
    }
    (found, is_held)
}
