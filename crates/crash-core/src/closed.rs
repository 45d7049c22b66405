//! The sets of patches that hold, for each of their patches, what must be on disk before it.
//!
//! Sets are visited instead of sequences of writes: every order in which the same patches reach the
//! disk leads to the same set, so all of those are one state. There are fewer still, because some
//! patches do not interact with each other: contents of files, bits of bitmaps. Of these
//! *independent* patches not every combination is taken. Each set of the other, *ordered* patches
//! is combined with none of them, with all of them, with all but each one, and with each one alone,
//! as far as dependencies leave a choice.

use crate::frontier::Node;
use fastrand::Rng as Random;

/// How many sets to visit at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// More sets of patches than this are not all visited, but sampled. Contents and bits of
    /// bitmaps are not counted.
    pub exhaustive: usize,
    /// How many random sets are visited then.
    pub samples: usize,
}

/// How many of the sets were visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All of them, but contents only one at a time instead of in every combination.
    Everything,
    /// As [`Everything`](Self::Everything), with bits of bitmaps one at a time as well.
    Reduced,
    /// A sample of them.
    Sampled,
}

/// Up to this many sets, bits of bitmaps are taken in every combination too.
const WITH_BITS: usize = 200;

/// Visits the sets.
pub fn visit(
    nodes: &[Node],
    bounds: Bounds,
    random: &mut Random,
    emit: &mut dyn FnMut(&[bool]),
) -> Coverage {
    let mut sets = Sets::new(nodes, emit, Node::is_contents);
    sets.corners();
    if sets.all(bounds.exhaustive.min(WITH_BITS)) {
        return Coverage::Everything;
    }
    let has_bits = nodes
        .iter()
        .any(|node| node.is_independent() && !node.is_contents());
    if has_bits || bounds.exhaustive > WITH_BITS {
        let mut sets = Sets::new(nodes, emit, Node::is_independent);
        if sets.all(bounds.exhaustive) {
            return match has_bits {
                true => Coverage::Reduced,
                false => Coverage::Everything,
            };
        }
    }
    Sets::new(nodes, emit, Node::is_independent).sample(bounds.samples, random);
    Coverage::Sampled
}

/// Visits a number of random sets.
pub fn sample(nodes: &[Node], samples: usize, random: &mut Random, emit: &mut dyn FnMut(&[bool])) {
    let mut sets = Sets::new(nodes, emit, Node::is_independent);
    sets.corners();
    sets.sample(samples, random);
}

/// A random set of patches, with all that must be on disk before them.
pub fn some(nodes: &[Node], random: &mut Random) -> Vec<bool> {
    let density = 1 + random.usize(..15);
    let mut included = vec![false; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let is_founded = node.befores.iter().all(|before| included[*before]);
        included[at] = is_founded && random.usize(..16) <= density;
    }
    included
}

struct Sets<'a> {
    nodes: &'a [Node],
    /// The ordered nodes.
    ordered: Vec<usize>,
    /// For each of them, the ordered nodes that must be there before it, with only independent ones
    /// between.
    ordered_befores: Vec<Vec<usize>>,
    /// The independent nodes.
    independent: Vec<usize>,
    included: Vec<bool>,
    emit: &'a mut dyn FnMut(&[bool]),
}

impl<'a> Sets<'a> {
    /// `alone` says which nodes are independent.
    fn new(
        nodes: &'a [Node],
        emit: &'a mut dyn FnMut(&[bool]),
        alone: fn(&Node) -> bool,
    ) -> Sets<'a> {
        let (independent, ordered): (Vec<usize>, Vec<usize>) =
            (0..nodes.len()).partition(|node| alone(&nodes[*node]));
        let ordered_befores = ordered
            .iter()
            .map(|node| ordered_behind(nodes, *node, alone))
            .collect();
        Sets {
            nodes,
            ordered,
            ordered_befores,
            independent,
            included: vec![false; nodes.len()],
            emit,
        }
    }

    /// Adds what a set needs before it, and visits it.
    fn close_and_emit(&mut self) {
        for node in (0..self.nodes.len()).rev() {
            if self.included[node] {
                for before in &self.nodes[node].befores {
                    self.included[*before] = true;
                }
            }
        }
        (self.emit)(&self.included);
    }

    /// The smallest set with each patch, and the largest without it. A dependency that was left out
    /// shows in these first.
    fn corners(&mut self) {
        self.included.fill(false);
        (self.emit)(&self.included);
        for node in 0..self.nodes.len() {
            self.included.fill(false);
            self.included[node] = true;
            self.close_and_emit();
        }
        for node in 0..self.nodes.len() {
            self.included.fill(true);
            self.remove(node);
            (self.emit)(&self.included);
        }
        self.included.fill(true);
        (self.emit)(&self.included);
    }

    /// Takes a patch away, and what cannot be there without it.
    fn remove(&mut self, node: usize) {
        self.included[node] = false;
        for after in node + 1..self.nodes.len() {
            let befores = &self.nodes[after].befores;
            if befores.iter().any(|before| !self.included[*before]) {
                self.included[after] = false;
            }
        }
    }

    /// All sets, unless there are more than `limit`.
    fn all(&mut self, limit: usize) -> bool {
        // A counter that goes through all closed subsets of `ordered`, with the last node as its
        // lowest digit.
        let count = self.ordered.len();
        let mut chosen = vec![false; count];
        let mut visited = 0;
        loop {
            visited += 1;
            if visited > limit {
                return false;
            }
            self.emit_with_independent(&chosen);
            // The next set: adds the last node that can be added, and takes away all behind it.
            let mut at = count;
            loop {
                if at == 0 {
                    return true;
                }
                at -= 1;
                if !chosen[at] && self.ordered_befores[at].iter().all(|b| chosen[*b]) {
                    chosen[at] = true;
                    break;
                }
                chosen[at] = false;
            }
        }
    }

    /// Visits a set of ordered patches with the independent ones that it needs, then with some
    /// combinations of those that it leaves free.
    fn emit_with_independent(&mut self, chosen: &[bool]) {
        self.included.fill(false);
        for (node, _) in self.ordered.iter().zip(chosen).filter(|(_, is)| **is) {
            self.included[*node] = true;
        }
        self.close_and_emit();
        let forced = self.included.clone();
        let mut free = Vec::new();
        for node in &self.independent {
            let befores = &self.nodes[*node].befores;
            if !self.included[*node] && befores.iter().all(|b| self.included[*b]) {
                self.included[*node] = true;
                free.push(*node);
            }
        }
        if free.is_empty() {
            return;
        }
        let all = self.included.clone();
        (self.emit)(&all);
        if free.len() == 1 {
            return;
        }
        for node in free {
            self.included.copy_from_slice(&all);
            self.included[node] = false;
            self.take_away_unfounded();
            (self.emit)(&self.included);
            self.included.copy_from_slice(&forced);
            self.included[node] = true;
            self.close_and_emit();
        }
    }

    /// Takes away the independent patches whose dependencies are missing.
    fn take_away_unfounded(&mut self) {
        for node in &self.independent {
            let befores = &self.nodes[*node].befores;
            if befores.iter().any(|before| !self.included[*before]) {
                self.included[*node] = false;
            }
        }
    }

    /// Random sets, some with few patches and some with most.
    fn sample(&mut self, samples: usize, random: &mut Random) {
        if self.nodes.is_empty() {
            return;
        }
        for _ in 0..samples {
            let density = 1 + random.usize(..15) as u64;
            self.included.fill(false);
            if random.usize(..2) == 0 {
                // A few patches with what they need.
                for _ in 0..density {
                    let node = random.usize(..self.nodes.len());
                    self.included[node] = true;
                }
                self.close_and_emit();
                continue;
            }
            for node in 0..self.nodes.len() {
                let founded = self.nodes[node].befores.iter().all(|b| self.included[*b]);
                self.included[node] = founded && random.usize(..16) as u64 <= density;
            }
            (self.emit)(&self.included);
        }
    }
}

/// The ordered patches that must be there before a node, as places among the ordered ones. Those
/// with another ordered one between are left out.
fn ordered_behind(nodes: &[Node], node: usize, alone: fn(&Node) -> bool) -> Vec<usize> {
    let mut found = Vec::new();
    let mut seen = vec![false; nodes.len()];
    let mut stack = nodes[node].befores.clone();
    while let Some(before) = stack.pop() {
        if std::mem::replace(&mut seen[before], true) {
            continue;
        }
        if alone(&nodes[before]) {
            stack.extend(&nodes[before].befores);
        } else {
            let place = nodes[..before].iter().filter(|node| !alone(node));
            found.push(place.count());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_store::{BlockClass, PatchKind};
    use std::collections::BTreeSet;

    /// Patches each of which waits for some earlier ones. Every `data`-th is a file's contents;
    /// none is where `data` is 0.
    fn nodes(count: usize, data: usize, random: &mut Random) -> Vec<Node> {
        (0..count)
            .map(|at| {
                let class = match data {
                    0 => BlockClass::Metadata,
                    _ if at % data == 0 => BlockClass::Data,
                    _ => BlockClass::Directory,
                };
                let befores = (0..at).filter(|_| random.usize(..4) == 0).collect();
                Node::new(class, PatchKind::Soft, befores)
            })
            .collect()
    }

    fn is_closed(nodes: &[Node], set: &[bool]) -> bool {
        (0..nodes.len()).all(|at| !set[at] || nodes[at].befores.iter().all(|b| set[*b]))
    }

    fn visited(nodes: &[Node], exhaustive: usize) -> (BTreeSet<Vec<bool>>, Coverage) {
        let bounds = Bounds {
            exhaustive,
            samples: 50,
        };
        let mut sets = BTreeSet::new();
        let coverage = visit(nodes, bounds, &mut Random::with_seed(1), &mut |set| {
            assert!(is_closed(nodes, set), "{set:?}");
            sets.insert(set.to_vec());
        });
        (sets, coverage)
    }

    #[test]
    fn all_closed_sets_and_no_others() {
        let mut random = Random::with_seed(7);
        for count in 0..11 {
            let nodes = nodes(count, 0, &mut random);
            let all: BTreeSet<Vec<bool>> = (0..1u32 << count)
                .map(|bits| (0..count).map(|at| bits & (1 << at) != 0).collect())
                .filter(|set: &Vec<bool>| is_closed(&nodes, set))
                .collect();
            assert_eq!(visited(&nodes, usize::MAX), (all, Coverage::Everything));
        }
    }

    #[test]
    fn contents_are_there_missing_and_alone() {
        let mut random = Random::with_seed(3);
        for count in 1..12 {
            let nodes = nodes(count, 2, &mut random);
            let (sets, coverage) = visited(&nodes, usize::MAX);
            assert_eq!(coverage, Coverage::Everything);
            let ordered = |set: &Vec<bool>| -> Vec<bool> {
                let ordered = (0..count).filter(|at| !nodes[*at].is_independent());
                ordered.map(|at| set[at]).collect()
            };
            // Every combination of the ordered patches that dependencies allow, with nothing more
            // than it needs.
            let possible: BTreeSet<Vec<bool>> = (0..1u32 << count)
                .map(|bits| (0..count).map(|at| bits & (1 << at) != 0).collect())
                .filter(|set: &Vec<bool>| is_closed(&nodes, set))
                .map(|set| ordered(&set))
                .collect();
            assert_eq!(sets.iter().map(ordered).collect::<BTreeSet<_>>(), possible);
            // Everything but one piece of contents, and what waits for it.
            for missing in (0..count).filter(|at| nodes[*at].is_independent()) {
                let largest = sets.iter().filter(|set| !set[missing]);
                assert!(largest.count() > 0, "{missing} of {count} is never missing");
            }
        }
    }

    #[test]
    fn too_many_are_sampled() {
        let nodes = nodes(60, 0, &mut Random::with_seed(5));
        let (sets, coverage) = visited(&nodes, 100);
        assert_eq!(coverage, Coverage::Sampled);
        assert!(sets.len() > 130, "{}", sets.len());
        assert_eq!(visited(&nodes, 100).0, sets);
    }
}
