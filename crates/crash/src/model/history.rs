//! The values that something had, and which of them a crash may leave.

use std::sync::Arc;

/// The values of something, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct History<T> {
    values: Vec<T>,
    /// For each value the patchgroups under which it was made.
    under: Vec<Under>,
    stable: usize,
}

/// Numbers of patchgroups.
pub(crate) type Under = Arc<[u32]>;

impl<T> History<T> {
    pub(super) fn new(first: T) -> History<T> {
        History {
            values: vec![first],
            under: vec![Under::from([])],
            stable: 0,
        }
    }

    pub(super) fn push(&mut self, value: T, under: &Under) {
        self.values.push(value);
        self.under.push(under.clone());
    }

    /// The newest value is on stable storage.
    pub(super) fn settle(&mut self) {
        self.stable = self.values.len() - 1;
    }

    /// The values made under a patchgroup are on stable storage, up to the first one that was not
    /// made under it.
    pub(super) fn settle_under(&mut self, group: u32) {
        let later = self.under[self.stable + 1..].iter();
        self.stable += later.take_while(|under| under.contains(&group)).count();
    }

    /// Inserts a value that came just before the newest one, in the same operation.
    pub(super) fn insert_before_current(&mut self, value: T) {
        let newest = self.values.len() - 1;
        if self.stable < newest {
            self.values.insert(newest, value);
            self.under.insert(newest, self.under[newest].clone());
        }
    }

    /// Every value that it ever had.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    /// The number of the newest value.
    pub(super) fn newest(&self) -> usize {
        self.values.len() - 1
    }

    /// The number of the oldest value that a crash may leave.
    pub(super) fn oldest(&self) -> usize {
        self.stable
    }

    /// The value with this number, or a newer one, is on stable storage.
    pub(super) fn settle_up_to(&mut self, number: usize) {
        self.stable = self.stable.max(number);
    }

    /// No value that a crash may leave is this one: each such value becomes the one before it.
    pub(super) fn never_was(&mut self, value: &T)
    where
        T: Clone + PartialEq,
    {
        for number in self.stable + 1..self.values.len() {
            if self.values[number] == *value {
                self.values[number] = self.values[number - 1].clone();
            }
        }
    }

    pub(crate) fn current(&self) -> &T {
        &self.values[self.values.len() - 1]
    }

    /// The values that a crash may leave, without the first of them: for each its number among
    /// [`allowed`](Self::allowed), and the patchgroups under which it was made.
    pub(crate) fn grouped(&self) -> impl Iterator<Item = (usize, &Under)> {
        let later = self.under[self.stable..].iter().enumerate().skip(1);
        later.filter(|(_, under)| !under.is_empty())
    }

    /// The values that a crash may leave.
    pub(crate) fn allowed(&self) -> &[T] {
        &self.values[self.stable..]
    }
}
