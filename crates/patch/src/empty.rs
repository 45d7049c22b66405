//! Empty patches: a name for a set of dependencies, and a way to hear that all of them are on disk.

use crate::Event;
use crate::block::NIL;
use crate::graph::Graph;
use crate::patch::{DEPTH_OF_TRANSACTION, PatchId, PatchKind, State};
use crate::planted::Planted;
use crate::search::Target;
use crate::undo::Undo;
use thiserror::Error;

/// A dependency that an empty patch cannot be given.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DependencyError {
    /// It would close a circle. Hard patches are part of every version of their block, so they wait
    /// for each other even where nobody said so: a circle may lead through two patches of one
    /// block.
    #[error(
        "patch {on:?} already depends on empty patch {empty:?}: a further dependency the other way would close a circle"
    )]
    Circle {
        /// The empty patch that was to depend on `on`.
        empty: PatchId,
        /// What depends on it already.
        on: PatchId,
    },
    /// The empty patch is not held (any more): what depends on it may be on its way to the device.
    #[error("empty patch {empty:?} is not held: nothing can be added to what it stands for")]
    Released {
        /// The empty patch.
        empty: PatchId,
    },
}

impl Graph {
    /// Makes an empty patch. It commits by itself once all its dependencies have (at once, where
    /// they have already), and then, if it was given a `token`, the token is reported by
    /// [`take_fired`](Self::take_fired). A `held` one waits for its [`release`](Self::release) as
    /// well.
    pub fn create_empty(
        &mut self,
        dependencies: &[PatchId],
        token: Option<u64>,
        held: bool,
    ) -> PatchId {
        if !held && token.is_none() && !dependencies.iter().any(|d| self.is_live(*d)) {
            return PatchId::COMMITTED;
        }
        let bits = token.unwrap_or(0);
        let index = self.new_patch(
            State::Empty,
            NIL,
            bits as u32,
            (bits >> 32) as u32,
            Undo::None,
        );
        self.counters.created_empty += 1;
        let p = &mut self.patches[index as usize];
        p.held = held;
        p.watched = token.is_some();
        for d in dependencies {
            if let Some(before) = self.index_of(*d) {
                self.add_edge(index, before);
            }
        }
        let id = self.id_of(index);
        self.emit(&Event::Create {
            id,
            kind: PatchKind::Empty,
            block: None,
            change: None,
            held,
            dependencies,
        });
        self.counters.note_peak();
        self.commit_empty_if_done(index);
        id
    }

    /// Reports a token by [`take_fired`](Self::take_fired) once a hard patch has committed:
    /// `token`, or the one that was asked for earlier, which is returned. `None` where the patch is
    /// not live or not hard; there an empty patch that depends on it can be watched.
    pub fn watch(&mut self, on: PatchId, token: u64) -> Option<u64> {
        let index = self.index_of(on)?;
        let p = &mut self.patches[index as usize];
        if p.state != State::Hard {
            return None;
        }
        if !p.watched {
            p.watched = true;
            p.offset = token as u32;
            p.len = (token >> 32) as u32;
        }
        Some(u64::from(p.offset) | u64::from(p.len) << 32)
    }

    /// Lets a held empty patch also depend on `on`. Dead ids count for nothing.
    ///
    /// # Errors
    /// Where `on` depends on the empty patch already, or the empty patch is not held; nothing is
    /// changed then.
    pub fn add_dependency(&mut self, empty: PatchId, on: PatchId) -> Result<(), DependencyError> {
        let (Some(index), Some(before)) = (self.index_of(empty), self.index_of(on)) else {
            return Ok(());
        };
        let p = &self.patches[index as usize];
        if !p.held || p.state != State::Empty {
            return Err(DependencyError::Released { empty });
        }
        let somebody_depends = self.patches[index as usize].afters != NIL;
        if index == before
            || (somebody_depends
                && self.may_reach(&[before], Target::Patch(index), usize::MAX)
                && !self.planted(Planted::CircleAccepted))
        {
            return Err(DependencyError::Circle { empty, on });
        }
        self.add_edge(index, before);
        Ok(())
    }

    /// Makes an empty patch, held until it is released, that stands for a transaction: what depends
    /// on it is changed as a whole or not at all. It does not count in the depth of what depends on
    /// it, so blocks need no undo data however many transactions come before.
    pub fn create_transaction(&mut self, dependencies: &[PatchId]) -> PatchId {
        let id = self.create_empty(dependencies, None, true);
        if let Some(index) = self.index_of(id) {
            self.patches[index as usize].depth = DEPTH_OF_TRANSACTION;
        }
        id
    }

    /// Lets a held empty patch commit as soon as its dependencies have.
    pub fn release(&mut self, empty: PatchId) {
        let index = self.index_of(empty);
        if let Some(index) = index.filter(|i| self.patches[*i as usize].state == State::Empty) {
            self.patches[index as usize].held = false;
            let id = self.id_of(index);
            self.emit(&Event::Release { id });
            self.commit_empty_if_done(index);
        }
    }

    fn commit_empty_if_done(&mut self, index: u32) {
        let p = &self.patches[index as usize];
        if p.befores_count > 0 || p.held {
            return;
        }
        if self.is_behind(index) {
            self.pass(index);
        } else {
            let mut work = std::mem::take(&mut self.stack);
            work.clear();
            work.push(index);
            self.retire(&mut work);
            self.stack = work;
        }
    }
}
