//! What a deterministic function comes to, by the blocks that it reads: states that show it the
//! same have it in common.

use std::rc::Rc;

use rustc_hash::FxHashSet;

use crate::image::Fork;

/// What identifies a block's bytes: 0 for those of the base.
type Shown = u128;

/// Which blocks were looked at before they were written, in this order, and what they showed.
#[derive(Debug, Default)]
pub struct Reads {
    list: Vec<(u64, Shown)>,
    /// What is noted, or need not be, for it was written as a whole.
    known: FxHashSet<u64>,
}

impl Reads {
    /// A block of a state is looked at.
    pub(crate) fn note(&mut self, state: &Fork, block: u64) {
        if self.known.insert(block) {
            self.list.push((block, state.adds(block)));
        }
    }

    /// A block is written as a whole: what is read of it later is no news.
    pub(crate) fn overwrite(&mut self, block: u64) {
        self.known.insert(block);
    }

    /// Something hangs on a block after all, though it was not looked at.
    pub fn also(&mut self, start: &Fork, block: u64) {
        if !self.list.iter().any(|(noted, _)| *noted == block) {
            self.list.push((block, start.adds(block)));
        }
    }

    /// The blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.list.iter().map(|(block, _)| *block)
    }
}

/// What a function came to: a tree over what it read.
#[derive(Debug)]
pub struct ByReads<T> {
    root: Option<Node<T>>,
    len: usize,
}

/// What is known once the blocks above were read.
#[derive(Debug)]
enum Node<T> {
    /// This block is read next; what follows depends on what it shows.
    Reads(u64, Vec<(Shown, Option<Node<T>>)>),
    /// No more is read.
    Ended(Rc<T>),
}

impl<T> Default for ByReads<T> {
    fn default() -> ByReads<T> {
        ByReads { root: None, len: 0 }
    }
}

impl<T> ByReads<T> {
    /// How many different ones are known.
    pub fn count(&self) -> usize {
        self.len
    }

    /// What the function comes to for a state, where one that shows it the same is known.
    pub fn get(&self, state: &Fork) -> Option<Rc<T>> {
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Ended(result) => return Some(result.clone()),
                Node::Reads(block, next) => {
                    let shown = state.adds(*block);
                    let found = next.iter().find(|(bytes, _)| *bytes == shown);
                    node = found?.1.as_ref()?;
                }
            }
        }
    }

    /// Remembers what the function came to where it read this.
    ///
    /// # Panics
    /// Where it read something else after it had read the same.
    pub fn insert(&mut self, reads: Reads, result: T) -> Rc<T> {
        let result = Rc::new(result);
        insert(&mut self.root, reads.list.into_iter(), &result);
        self.len += 1;
        result
    }
}

fn insert<T>(
    place: &mut Option<Node<T>>,
    reads: impl Iterator<Item = (u64, Shown)>,
    ended: &Rc<T>,
) {
    let mut place = place;
    for (block, shown) in reads {
        let node = place.get_or_insert_with(|| Node::Reads(block, Vec::new()));
        let Node::Reads(there, next) = node else {
            unreachable!("what has ended reads nothing more");
        };
        assert_eq!(*there, block, "it depends on what it reads alone");
        let known = next.iter().position(|(bytes, _)| *bytes == shown);
        let at = known.unwrap_or_else(|| {
            next.push((shown, None));
            next.len() - 1
        });
        place = &mut next[at].1;
    }
    *place = Some(Node::Ended(ended.clone()));
}
