//! Results of a deterministic function, remembered by the blocks that it read: states that show it
//! the same blocks have the same result.

use std::rc::Rc;

use rustc_hash::FxHashSet;

use crate::image::Fork;

/// The fingerprint of a block's bytes: 0 for those of the base.
type Shown = u128;

/// The blocks that were read before they were written, in the order of reading, and their bytes.
#[derive(Debug, Default)]
pub struct Reads {
    list: Vec<(u64, Shown)>,
    /// Blocks that are in the list, or that need not be, since they were written as a whole first.
    known: FxHashSet<u64>,
}

impl Reads {
    /// Notes that a block of a state is read.
    pub(crate) fn note(&mut self, state: &Fork, block: u64) {
        if self.known.insert(block) {
            self.list.push((block, state.adds(block)));
        }
    }

    /// Notes that a block is written as a whole: later reads of it do not depend on the state.
    pub(crate) fn overwrite(&mut self, block: u64) {
        self.known.insert(block);
    }

    /// Adds a block that was not read, but on which the result depends all the same.
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

/// The results of a function, in a tree by what it read.
#[derive(Debug)]
pub struct ByReads<T> {
    root: Option<Node<T>>,
    len: usize,
}

/// What follows from the blocks that were read so far.
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
    /// How many results are known.
    pub fn count(&self) -> usize {
        self.len
    }

    /// The function's result for a state, if a state that shows it the same blocks is known.
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

    /// Remembers the function's result, and the blocks on which it depends.
    ///
    /// # Panics
    /// If the function read another block than before after the same reads: then it is not
    /// deterministic.
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
