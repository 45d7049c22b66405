//! An order of blocks that grows by one dependency at a time, and stays without circles.
//!
//! Each block has a rank; what comes earlier has a lower one. A dependency that agrees with the
//! ranks costs one comparison. Only where it does not are blocks looked at, and those alone whose
//! ranks lie between the two (Pearce and Kelly 2006).

use backstitch_store::{BlockId, PatchId};
use rustc_hash::{FxHashMap, FxHashSet};

/// One block is to be written before another, until these patches of it are on stable storage: the
/// oldest and the newest of those that it was stated for.
#[derive(Clone, Copy)]
struct Edge {
    to: BlockId,
    oldest: PatchId,
    newest: PatchId,
}

impl Edge {
    fn holds(&self, is_live: &dyn Fn(PatchId) -> bool) -> bool {
        is_live(self.newest) || is_live(self.oldest)
    }

    /// Notes in a list that the order with `to` is stated for `until` as well.
    fn note(edges: &mut Vec<Edge>, to: BlockId, until: PatchId, is_live: &dyn Fn(PatchId) -> bool) {
        match edges.iter_mut().find(|edge| edge.to == to) {
            Some(edge) => {
                if !is_live(edge.oldest) {
                    edge.oldest = edge.newest;
                }
                edge.newest = until;
            }
            None => edges.push(Edge {
                to,
                oldest: until,
                newest: until,
            }),
        }
    }
}

#[derive(Default)]
struct Node {
    rank: i64,
    /// What is written before it, and what after.
    befores: Vec<Edge>,
    afters: Vec<Edge>,
}

/// Blocks in the order in which they are to be written.
#[derive(Default)]
pub(super) struct BlockOrder {
    nodes: FxHashMap<BlockId, Node>,
    lowest: i64,
    highest: i64,
    /// How many blocks there were after the last sweep.
    swept: usize,
}

/// Fewer blocks are not worth a sweep.
const SWEPT_LEAST: usize = 256;

impl BlockOrder {
    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Has `after` come after `before`, until `until` is on stable storage. False, with nothing
    /// done, where that would close a circle.
    pub(super) fn put_behind(
        &mut self,
        after: BlockId,
        before: BlockId,
        until: PatchId,
        is_live: &dyn Fn(PatchId) -> bool,
    ) -> bool {
        self.sweep(is_live);
        let known = self.nodes.get(&after).map(|node| node.rank);
        let rank_before = match self.nodes.get(&before) {
            Some(node) => node.rank,
            None => {
                self.lowest -= 1;
                self.add(before, self.lowest)
            }
        };
        let rank_after = known.unwrap_or_else(|| {
            self.highest += 1;
            self.add(after, self.highest)
        });
        if rank_after < rank_before && !self.reorder(after, before, is_live) {
            return false;
        }
        let node = self.nodes.entry(after).or_default();
        Edge::note(&mut node.befores, before, until, is_live);
        let node = self.nodes.entry(before).or_default();
        Edge::note(&mut node.afters, after, until, is_live);
        true
    }

    fn add(&mut self, block: BlockId, rank: i64) -> i64 {
        let node = Node {
            rank,
            ..Node::default()
        };
        self.nodes.insert(block, node);
        rank
    }

    /// Ranks the blocks between the two anew, so that `after` has the higher rank. False where
    /// `before` comes after it already.
    fn reorder(
        &mut self,
        after: BlockId,
        before: BlockId,
        is_live: &dyn Fn(PatchId) -> bool,
    ) -> bool {
        let (lower, upper) = (self.nodes[&after].rank, self.nodes[&before].rank);
        let behind = self.reach(after, |node| &mut node.afters, |r| r <= upper, is_live);
        if behind.contains(&before) {
            return false;
        }
        let ahead = self.reach(before, |node| &mut node.befores, |r| r >= lower, is_live);
        // These blocks share out the ranks that they have: those ahead first, each part in its old
        // order.
        let by_rank = |set: FxHashSet<BlockId>| {
            let mut blocks: Vec<BlockId> = set.into_iter().collect();
            blocks.sort_unstable_by_key(|block| self.nodes[block].rank);
            blocks
        };
        let mut blocks = by_rank(ahead);
        blocks.extend(by_rank(behind));
        let mut ranks: Vec<i64> = blocks.iter().map(|block| self.nodes[block].rank).collect();
        ranks.sort_unstable();
        for (block, rank) in blocks.into_iter().zip(ranks) {
            self.nodes.entry(block).or_default().rank = rank;
        }
        true
    }

    /// The blocks that edges lead to from one on, through ranks for which `is_between` is true.
    /// Drops edges that no longer hold.
    fn reach(
        &mut self,
        from: BlockId,
        edges: impl Fn(&mut Node) -> &mut Vec<Edge>,
        is_between: impl Fn(i64) -> bool,
        is_live: &dyn Fn(PatchId) -> bool,
    ) -> FxHashSet<BlockId> {
        let mut found = FxHashSet::from_iter([from]);
        let mut stack = vec![from];
        while let Some(block) = stack.pop() {
            let Some(node) = self.nodes.get_mut(&block) else {
                continue;
            };
            let edges = edges(node);
            edges.retain(|edge| edge.holds(is_live));
            let next: Vec<BlockId> = edges.iter().map(|edge| edge.to).collect();
            for to in next {
                let rank = self.nodes.get(&to).map(|node| node.rank);
                if rank.is_some_and(&is_between) && found.insert(to) {
                    stack.push(to);
                }
            }
        }
        found
    }

    /// Drops edges and blocks that no longer count, each time that the number of blocks has
    /// doubled.
    fn sweep(&mut self, is_live: &dyn Fn(PatchId) -> bool) {
        if self.nodes.len() < SWEPT_LEAST.max(2 * self.swept) {
            return;
        }
        for node in self.nodes.values_mut() {
            node.befores.retain(|edge| edge.holds(is_live));
            node.afters.retain(|edge| edge.holds(is_live));
        }
        let is_used = |node: &Node| !node.befores.is_empty() || !node.afters.is_empty();
        self.nodes.retain(|_, node| is_used(node));
        self.swept = self.nodes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_store::{Change, Graph, Optimisations};
    use proptest::prelude::*;

    /// Live patches to name edges by.
    fn patches(count: u32) -> (Graph, Vec<PatchId>) {
        let mut graph = Graph::new(Optimisations::default());
        let ids = (0..count).map(|block| {
            let change = Change::Bytes {
                offset_bytes: 0,
                bytes: &[1],
            };
            graph.create(BlockId(block), &mut [0; 4], change, &[][..])
        });
        let ids = ids.collect();
        (graph, ids)
    }

    /// Whether `to` can be reached over edges from `from`.
    fn leads(edges: &[(u32, u32)], from: u32, to: u32) -> bool {
        let (mut seen, mut stack) = (vec![from], vec![from]);
        while let Some(at) = stack.pop() {
            if at == to {
                return true;
            }
            for (_, next) in edges.iter().filter(|(a, _)| *a == at) {
                if !seen.contains(next) {
                    seen.push(*next);
                    stack.push(*next);
                }
            }
        }
        false
    }

    proptest! {
        #[test]
        fn exactly_what_closes_a_circle_is_refused(
            edges in prop::collection::vec((0..12_u32, 0..12_u32), 1..80),
        ) {
            let (graph, ids) = patches(1);
            let (mut order, mut kept) = (BlockOrder::default(), Vec::new());
            for (after, before) in edges.into_iter().filter(|(a, b)| a != b) {
                let is_live = |id| graph.is_live(id);
                let put = order.put_behind(BlockId(after), BlockId(before), ids[0], &is_live);
                prop_assert_eq!(put, !leads(&kept, before, after));
                if put {
                    kept.push((after, before));
                }
            }
        }
    }

    #[test]
    fn what_is_on_stable_storage_closes_no_circle_and_is_dropped() {
        let (mut graph, ids) = patches(2);
        let mut order = BlockOrder::default();
        let (a, b) = (BlockId(10), BlockId(11));
        assert!(order.put_behind(a, b, ids[0], &|id| graph.is_live(id)));
        assert!(!order.put_behind(b, a, ids[1], &|id| graph.is_live(id)));
        graph.start_write(BlockId(0), &[1, 0, 0, 0]);
        graph.complete_write(BlockId(0));
        assert!(order.put_behind(b, a, ids[1], &|id| graph.is_live(id)));
        for block in 0..10_000 {
            order.put_behind(BlockId(100 + block), a, ids[0], &|id| graph.is_live(id));
        }
        assert!(order.len() <= 2 * SWEPT_LEAST, "{}", order.len());
    }
}
