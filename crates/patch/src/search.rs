//! The bounded search behind hard patches and merging.

use crate::block::NIL;
use crate::graph::Graph;
use crate::patch::State;
use crate::planted::Planted;

/// How many dependencies a search looks at before it gives up. Long enough for what file systems do
/// to one block and its neighbours, short enough that creating a patch stays a matter of a
/// microsecond.
pub(crate) const SEARCH_LIMIT: usize = 64;

/// What a search looks for.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Any uncommitted patch of this block.
    Block(u32),
    /// This patch.
    Patch(u32),
}

impl Graph {
    /// Whether `target` may be among the uncommitted dependencies of `starts` (or the starts
    /// themselves). `true` also where the search gave up after `limit` dependencies: only "no" is
    /// certain.
    ///
    /// Patches in flight are not followed: all that they wait for is committed, or in flight with
    /// them.
    pub(crate) fn may_reach(&mut self, starts: &[u32], target: Target, limit: usize) -> bool {
        self.next_mark();
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.extend_from_slice(starts);
        let mut looked_at = 0;
        let mut found = false;
        'search: while let Some(index) = stack.pop() {
            let patch = &mut self.patches[index as usize];
            if patch.mark == self.search_mark || patch.in_flight {
                continue;
            }
            patch.mark = self.search_mark;
            if self.is_target(index, target) {
                found = true;
                break;
            }
            let mut edge = self.patches[index as usize].befores;
            if self.patches[index as usize].state == State::Empty
                && self.planted(Planted::SearchStopsAtEmpty)
            {
                continue;
            }
            while edge != NIL {
                looked_at += 1;
                if looked_at > limit {
                    found = true;
                    break 'search;
                }
                let e = &self.edges[edge as usize];
                stack.push(e.before);
                edge = e.next_before;
            }
        }
        self.stack = stack;
        found
    }

    /// Whether a search that starts here ends here without a find.
    #[inline]
    pub(crate) fn is_dead_end(&self, index: u32, target: Target) -> bool {
        let p = &self.patches[index as usize];
        p.in_flight || (p.befores == NIL && !self.is_target(index, target))
    }

    /// A mark that no patch bears yet.
    pub(crate) fn next_mark(&mut self) -> u32 {
        self.search_mark = self.search_mark.wrapping_add(1);
        if self.search_mark == 0 {
            // Marks of four billion searches ago must not look like ours.
            self.patches.iter_mut().for_each(|p| p.mark = 0);
            self.search_mark = 1;
        }
        self.search_mark
    }

    /// The first of a row of marks, one for each edge, that no patch bears yet. A caller that gives
    /// them to patches moves `search_mark` to the last one given.
    pub(crate) fn first_of_marks(&mut self) -> u32 {
        if self.search_mark > u32::MAX - 2 - self.edges.len() as u32 {
            self.search_mark = u32::MAX;
        }
        self.next_mark()
    }

    fn is_target(&self, index: u32, target: Target) -> bool {
        match target {
            Target::Block(block) => {
                self.patches[index as usize].block == block
                    || (self.blocks[block as usize].run() == Some(index)
                        && !self.planted(Planted::SearchOverlooksRuns))
            }
            Target::Patch(wanted) => index == wanted,
        }
    }
}
