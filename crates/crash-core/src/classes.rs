//! The states of a moment where a journal is replayed, in classes: all states of one class are the
//! same after recovery, and one of them is visited.
//!
//! A transaction without a commit record may have any of its copies in the log, and one with a
//! record any of its blocks at home: very many states. But recovery does not read the former, and
//! overwrites the latter. So whether a patch is on the disk is decided only when recovery asks:
//! recovery runs with what is decided so far. Where it read a block, or left one as it is, that an
//! undecided patch would change, this patch is decided, once each way, and recovery runs again for
//! both. When it asks for nothing more, the undecided patches make no difference to what recovery
//! reads, does and leaves: they are one class. Every set of patches that may be on the disk belongs
//! to exactly one of the classes that are visited.
//!
//! Contents of files are taken one at a time, as in [`closed`](crate::closed).

use std::rc::Rc;

use crate::image::Fork;
use crate::recovered::{Recovered, Recoveries};

/// The patches of a moment, or the blocks of a batch: pieces each of which a crash may lose.
pub trait Choices {
    /// How many pieces there are.
    fn count(&self) -> usize;

    /// The pieces that must be on the disk before this one. Their numbers are smaller.
    fn befores(&self, piece: usize) -> &[usize];

    /// The block that this piece changes.
    fn block(&self, piece: usize) -> u64;

    /// Whether this piece is a file's contents.
    fn is_contents(&self, piece: usize) -> bool;

    /// The image with these pieces, and its fingerprint.
    fn state(&mut self, included: &[bool]) -> (Fork, u128);

    /// The fingerprint alone.
    fn fingerprint(&mut self, included: &[bool]) -> u128 {
        self.state(included).1
    }
}

/// A state that represents its class.
pub struct State {
    /// Which pieces are there.
    pub included: Vec<bool>,
    /// The image's fingerprint.
    pub fingerprint: u128,
    /// What recovery does to it.
    pub recovered: Rc<Recovered>,
}

impl State {
    /// The state with these pieces.
    pub fn of(
        choices: &mut dyn Choices,
        recoveries: &mut Recoveries,
        included: Vec<bool>,
    ) -> State {
        let fingerprint = choices.fingerprint(&included);
        // Most states were already seen at an earlier moment.
        let known = recoveries.known(fingerprint);
        State {
            recovered: known.unwrap_or_else(|| recoveries.of(&choices.state(&included).0)),
            included,
            fingerprint,
        }
    }
}

/// Called with each state; the choices make its image. Returns false to end the visit.
pub type Emit<'a> = &'a mut dyn FnMut(State, &mut dyn Choices) -> bool;

/// Visits one state of each class, until `emit` says no or there were more than `limit` classes.
/// False where not all were visited.
pub fn visit(
    choices: &mut dyn Choices,
    recoveries: &mut Recoveries,
    limit: usize,
    emit: Emit<'_>,
) -> bool {
    let open = vec![None; choices.count()];
    let mut visitor = Visitor {
        choices,
        recoveries,
        left: limit,
        emit,
    };
    let start = visitor.look(&open);
    visitor.descend(open, start)
}

struct Visitor<'v> {
    choices: &'v mut dyn Choices,
    recoveries: &'v mut Recoveries,
    left: usize,
    emit: Emit<'v>,
}

/// For each piece whether it is on the disk; `None` while that is undecided.
type Chosen = Vec<Option<bool>>;

impl Visitor<'_> {
    /// The state in which only the pieces that were decided to be there are on the disk.
    fn look(&mut self, chosen: &Chosen) -> State {
        let included: Vec<bool> = chosen.iter().map(|is| *is == Some(true)).collect();
        State::of(self.choices, self.recoveries, included)
    }

    /// Visits the classes that follow from these decisions. False if the visit is to end.
    fn descend(&mut self, mut chosen: Chosen, state: State) -> bool {
        loop {
            let is_next = |piece: &usize| {
                chosen[*piece].is_none()
                    && !self.choices.is_contents(*piece)
                    && state.recovered.concerns(self.choices.block(*piece))
            };
            let Some(piece) = (0..chosen.len()).find(is_next) else {
                return self.end(&chosen, state);
            };
            let with = self.with(&chosen, piece);
            let next = self.look(&with);
            if !self.descend(with, next) {
                return false;
            }
            // Without the piece the image is the one that was just looked at.
            self.leave_out(&mut chosen, piece);
        }
    }

    /// The decisions with an undecided piece there, and everything that it needs. None of that was
    /// left out, since a piece is left out together with all that need it.
    fn with(&self, chosen: &Chosen, piece: usize) -> Chosen {
        let mut with = chosen.clone();
        let mut stack = vec![piece];
        while let Some(piece) = stack.pop() {
            debug_assert_ne!(with[piece], Some(false), "left out with what needs it");
            if with[piece].replace(true).is_none() {
                stack.extend(self.choices.befores(piece));
            }
        }
        with
    }

    /// Leaves out an undecided piece and all that need it. None of these was decided to be there.
    fn leave_out(&self, chosen: &mut Chosen, piece: usize) {
        chosen[piece] = Some(false);
        for after in piece + 1..chosen.len() {
            let mut befores = self.choices.befores(after).iter();
            if befores.any(|before| chosen[*before] == Some(false)) {
                debug_assert_ne!(chosen[after], Some(true), "there without what it needs");
                chosen[after] = Some(false);
            }
        }
    }

    /// Visits the state of a class, then those that differ in contents still undecided.
    fn end(&mut self, chosen: &Chosen, state: State) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let recovered = state.recovered.clone();
        if !(self.emit)(state, self.choices) {
            return false;
        }
        let free: Vec<usize> = (0..chosen.len())
            .filter(|piece| chosen[*piece].is_none() && self.choices.is_contents(*piece))
            .filter(|piece| recovered.concerns(self.choices.block(*piece)))
            .collect();
        if free.is_empty() {
            return true;
        }
        let mut all = chosen.clone();
        for piece in &free {
            all = self.with(&all, *piece);
        }
        let mut sets = vec![all];
        for piece in free.iter().filter(|_| free.len() > 1) {
            let mut missing = chosen.clone();
            self.leave_out(&mut missing, *piece);
            for other in &free {
                if missing[*other].is_none() {
                    missing = self.with(&missing, *other);
                }
            }
            sets.push(missing);
            sets.push(self.with(chosen, *piece));
        }
        sets.iter().all(|set| {
            let state = self.look(set);
            (self.emit)(state, self.choices)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use backstitch_device::BlockDevice;
    use fastrand::Rng as Random;

    use crate::formatted::ImageOptions;

    /// A file system with a journal that needs no recovery. Each piece decides whether a block has
    /// contents or is zeros.
    struct Blocks {
        base: Fork,
        blocks: Vec<u64>,
        befores: Vec<Vec<usize>>,
    }

    impl Choices for Blocks {
        fn count(&self) -> usize {
            self.blocks.len()
        }

        fn befores(&self, piece: usize) -> &[usize] {
            &self.befores[piece]
        }

        fn block(&self, piece: usize) -> u64 {
            self.blocks[piece]
        }

        fn is_contents(&self, _: usize) -> bool {
            false
        }

        fn state(&mut self, included: &[bool]) -> (Fork, u128) {
            let mut state = self.base.clone();
            for (block, _) in self.blocks.iter().zip(included).filter(|(_, is)| **is) {
                let bytes = vec![*block as u8 | 1; state.block_bytes() as usize];
                state.set_block(*block, bytes.into());
            }
            let fingerprint = state.fingerprint();
            (state, fingerprint)
        }
    }

    fn is_closed(befores: &[Vec<usize>], set: &[bool]) -> bool {
        (0..set.len()).all(|at| !set[at] || befores[at].iter().all(|before| set[*before]))
    }

    /// Every closed set belongs to one class, and recovery makes the same of it as of its class. No
    /// two classes have the same result.
    #[test]
    fn classes_are_what_recovery_tells_apart() {
        let base = ImageOptions::default().make_journaled().unwrap();
        let device = crate::device::ForkDevice::new(base.clone());
        let (home, _) = device.parts();
        let setup =
            backstitch_mechanisms::jbd2::setup(&home, None, backstitch_formats::journal_host());
        let setup = setup.unwrap().unwrap();
        let log = |position: u32| setup.map.block(position).unwrap().0;
        let free = home.size_bytes() / u64::from(base.block_bytes()) - 9;
        let mut random = Random::with_seed(3);
        for _ in 0..20 {
            let mut places = vec![log(5), log(6), log(9), free, free + 1, free + 3, free + 5];
            random.shuffle(&mut places);
            let befores: Vec<Vec<usize>> = (0..places.len())
                .map(|at| (0..at).filter(|_| random.usize(..3) == 0).collect())
                .collect();
            let mut blocks = Blocks {
                base: base.clone(),
                blocks: places,
                befores: befores.clone(),
            };
            let count = blocks.count();
            let expected: BTreeSet<u128> = (0..1_u32 << count)
                .map(|bits| (0..count).map(|at| bits & (1 << at) != 0).collect())
                .filter(|set: &Vec<bool>| is_closed(&befores, set))
                .map(|set| {
                    let (state, _) = blocks.state(&set);
                    Recoveries::default()
                        .of(&state)
                        .result(&state)
                        .fingerprint()
                })
                .collect();
            let mut found = Vec::new();
            let mut recoveries = Recoveries::default();
            let all = visit(&mut blocks, &mut recoveries, 1000, &mut |state, blocks| {
                assert!(is_closed(&befores, &state.included));
                let (image, _) = blocks.state(&state.included);
                found.push(state.recovered.result(&image).fingerprint());
                true
            });
            assert!(all);
            assert_eq!(found.len(), expected.len(), "a class twice");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
