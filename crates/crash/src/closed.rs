//! The sets of patches that hold, for each of their patches, what must be on disk before it.
//!
//! Sets instead of sequences of writes: every order in which the same patches reach the disk leads to the same set, so all of those
//! are one state. A further reduction is for patches that are judged for themselves (contents of files, bits of bitmaps): to
//! each set of the others belong the sets with none of those that are free to be there or not, with all of them, with each one of
//! them missing, and with each one alone.

use crate::frontier::Node;
use fastrand::Rng as Random;

/// How many sets to visit at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// More sets of patches than this (those judged for themselves left aside) are not all visited, but sampled.
    pub(crate) exhaustive: usize,
    /// How many random sets are visited then.
    pub(crate) samples: usize,
}

/// Visits the sets. Returns whether they were all.
pub(crate) fn visit(
    nodes: &[Node],
    bounds: Bounds,
    random: &mut Random,
    emit: &mut dyn FnMut(&[bool]),
) -> bool {
    let mut sets = Sets::new(nodes, emit);
    sets.corners();
    let complete = sets.all(bounds.exhaustive);
    if !complete {
        sets.sample(bounds.samples, random);
    }
    complete
}

struct Sets<'a> {
    nodes: &'a [Node],
    /// The nodes that are not judged for themselves.
    ordered: Vec<usize>,
    /// For each of them, those among them that must be there before it, directly or by way of others.
    ordered_befores: Vec<Vec<usize>>,
    /// The nodes that are judged for themselves.
    independent: Vec<usize>,
    included: Vec<bool>,
    emit: &'a mut dyn FnMut(&[bool]),
}

impl<'a> Sets<'a> {
    fn new(nodes: &'a [Node], emit: &'a mut dyn FnMut(&[bool])) -> Sets<'a> {
        let (independent, ordered): (Vec<usize>, Vec<usize>) =
            (0..nodes.len()).partition(|node| nodes[*node].is_independent());
        let ordered_befores = ordered
            .iter()
            .map(|node| ordered_behind(nodes, *node))
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

    /// The smallest set with each patch, the largest without it: what a dependency left out shows first.
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
        // A counter that goes through all closed subsets of `ordered`: the choices are made in order, each first without.
        let count = self.ordered.len();
        let mut chosen = vec![false; count];
        let mut visited = 0;
        loop {
            visited += 1;
            if visited > limit {
                return false;
            }
            self.emit_with_independent(&chosen);
            // The next set: the last patch that can be added is, and all behind it are taken away.
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

    /// A set of the ordered patches, with what it needs of the others, and with those that it leaves free in a few ways.
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

    /// Random sets of every density.
    fn sample(&mut self, samples: usize, random: &mut Random) {
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

/// The ordered patches that must be there before a node, as places among the ordered ones, where no other ordered one lies between.
fn ordered_behind(nodes: &[Node], node: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut seen = vec![false; nodes.len()];
    let mut stack = nodes[node].befores.clone();
    while let Some(before) = stack.pop() {
        if std::mem::replace(&mut seen[before], true) {
            continue;
        }
        if nodes[before].is_independent() {
            stack.extend(&nodes[before].befores);
        } else {
            let place = nodes[..before].iter().filter(|n| !n.is_independent());
            found.push(place.count());
        }
    }
    found
}
