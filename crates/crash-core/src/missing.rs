//! Which order would have forbidden a state that is wrong.
//!
//! A state is a set of changes that holds, with each of them, what must be on the disk before it.
//! Had a change of the set been made to wait for one that is not in it, no crash could have left the
//! set. There are many such pairs. A pair is *told* if the judge confirms it:
//!
//! 1. The set is made small: what is left needs each of its last changes, the *tops*, to be wrong.
//!    Where it is right without one of them, and wrong in another way without each of the others,
//!    that one alone is meant.
//! 2. For each top the fewest changes are looked for that make the state right once they are there
//!    too. Changes that themselves wait for the top are not tried: it cannot wait for them.
//! 3. If they make the small set right as well, nothing else is needed.
//! 4. Without them, everything else that can be there is put there. Where that is right, something
//!    else makes the state right too: another order that is possible. Where it is not, this is the
//!    only one.
//!
//! Where no change that can be waited for makes the state right, one may that itself waits for the
//! top: the order between the two is *reversed*.
//!
//! If the state is wrong even where nothing at all is there, no order among the changes forbids it:
//! somebody who gave a promise has not waited for what makes it right.
//!
//! The judge is asked a bounded number of times.

use crate::fewest;

/// What a judge says of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is right.
    Good,
    /// It is wrong, as the failure is.
    Alike,
    /// It is wrong in another way.
    Otherwise,
}

/// An order that would have forbidden a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The change that had to wait. `None`: a promise, given before what it promised was on the
    /// disk.
    pub after: Option<usize>,
    /// What had to be waited for: all of these.
    pub befores: Vec<usize>,
    /// They wait for `after` themselves: the order is there, the wrong way round.
    pub is_reversed: bool,
}

/// What was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Orders each of which would have forbidden the state.
    pub orders: Vec<Order>,
    /// There is one order, and nothing else that could be on the disk makes the state right.
    pub is_only: bool,
    /// An order makes the state right only together with something else that is on the disk.
    pub needs_more: bool,
    /// Other changes may be meant as well, which were not looked at.
    pub has_more: bool,
    /// The judge, asked again, did not say that the state is wrong. Nothing was looked for.
    pub is_right: bool,
    /// The judge was asked as often as it may be.
    pub is_cut_short: bool,
    /// How often it was asked.
    pub asked: u32,
}

/// The most orders that are told.
pub const MOST_ORDERS: usize = 3;

/// Judges a set of changes, or fails.
pub type Judge<'j, E> = &'j mut dyn FnMut(&[bool]) -> Result<Said, E>;

/// A state that is wrong.
pub struct Question<'q> {
    /// For each change, those that must be on the disk before it. Their numbers are smaller.
    pub befores: &'q [Vec<usize>],
    /// The changes that are there.
    pub state: &'q [bool],
    /// A part of them that is wrong as well. It may be all of them.
    pub part: &'q [bool],
    /// Candidates with a smaller number are tried first.
    pub rank: &'q dyn Fn(usize) -> u8,
    /// How often the judge is asked at most.
    pub most: u32,
}

/// Looks for the orders that would have forbidden a state.
///
/// # Errors
/// The judge's.
pub fn missing<E>(question: &Question<'_>, judge: Judge<'_, E>) -> Result<Found, E> {
    let mut search = Search {
        befores: question.befores,
        judge,
        most: question.most,
        found: Found::default(),
    };
    search.run(question)?;
    Ok(search.found)
}

struct Search<'s, E> {
    befores: &'s [Vec<usize>],
    judge: Judge<'s, E>,
    most: u32,
    found: Found,
}

impl<E> Search<'_, E> {
    fn run(&mut self, question: &Question<'_>) -> Result<(), E> {
        let (state, part) = (question.state, question.part);
        if self.ask(state)? != Said::Alike {
            self.found.is_right = true;
            return Ok(());
        }
        let nothing = vec![false; state.len()];
        let small = self.smallest(&nothing, part, Said::Alike)?;
        let mut tops = self.blamed(self.tops(&small, &nothing), &small)?;
        tops.sort_by_key(|top| (question.rank)(*top));
        if tops.is_empty() {
            let all = vec![true; state.len()];
            return self.orders_of(None, (state, &small), all);
        }
        for top in tops.iter().copied() {
            if self.found.orders.len() >= MOST_ORDERS {
                self.found.has_more = true;
                break;
            }
            let mut others = vec![true; state.len()];
            self.remove(top, &mut others);
            let others = union(&others, state);
            self.orders_of(Some(top), (state, &small), others)?;
        }
        match self.found.orders.is_empty() {
            true => self.reversed(&tops, state),
            false => Ok(()),
        }
    }

    /// If the state is right without exactly one of the tops, that one; else all. Without the
    /// others the state is wrong in another way, so an order of theirs would forbid states that are
    /// right.
    fn blamed(&mut self, tops: Vec<usize>, small: &[bool]) -> Result<Vec<usize>, E> {
        if tops.len() < 2 {
            return Ok(tops);
        }
        let mut blamed = Vec::new();
        for top in &tops {
            let mut without = small.to_vec();
            self.remove(*top, &mut without);
            if self.ask(&without)? == Said::Good {
                blamed.push(*top);
            }
        }
        Ok(match blamed.len() {
            1 => blamed,
            _ => tops,
        })
    }

    /// The reversed order, if there is one.
    fn reversed(&mut self, tops: &[usize], state: &[bool]) -> Result<(), E> {
        let all = vec![true; state.len()];
        if self.ask(&all)? != Said::Good {
            return Ok(());
        }
        let right = self.smallest(state, &all, Said::Good)?;
        let befores = self.tops(&right, state);
        for top in tops {
            let mut without = right.clone();
            self.remove(*top, &mut without);
            let waits = |before: &usize| !without[*before];
            if befores.iter().all(waits) && self.found.orders.len() < MOST_ORDERS {
                self.found.orders.push(Order {
                    after: Some(*top),
                    befores: befores.clone(),
                    is_reversed: true,
                });
            }
        }
        Ok(())
    }

    /// The orders of one change, whose befores are among the changes that are `open`.
    fn orders_of(
        &mut self,
        after: Option<usize>,
        (state, small): (&[bool], &[bool]),
        mut open: Vec<bool>,
    ) -> Result<(), E> {
        self.found.is_only = false;
        while self.found.orders.len() < MOST_ORDERS {
            if self.ask(&open)? != Said::Good {
                self.found.is_only = self.found.orders.len() == 1;
                return Ok(());
            }
            let right = self.smallest(state, &open, Said::Good)?;
            let befores = self.tops(&right, state);
            let Some(first) = befores.first().copied() else {
                return Ok(());
            };
            let mut least = small.to_vec();
            befores.iter().for_each(|before| least[*before] = true);
            self.close(&mut least);
            self.found.needs_more |= self.ask(&least)? != Said::Good;
            self.found.orders.push(Order {
                after,
                befores,
                is_reversed: false,
            });
            self.remove(first, &mut open);
        }
        Ok(())
    }

    /// Asks the judge; answers `Otherwise` once it was asked too often.
    fn ask(&mut self, set: &[bool]) -> Result<Said, E> {
        if self.found.asked >= self.most {
            self.found.is_cut_short = true;
            return Ok(Said::Otherwise);
        }
        self.found.asked += 1;
        (self.judge)(set)
    }

    /// `base` with the fewest of `more` for which the judge says the same as for all of it.
    fn smallest(&mut self, base: &[bool], more: &[bool], wanted: Said) -> Result<Vec<bool>, E> {
        let list: Vec<u32> = (0..more.len() as u32)
            .filter(|at| more[*at as usize] && !base[*at as usize])
            .collect();
        let with = |search: &Self, part: &[u32]| {
            let mut set = base.to_vec();
            part.iter().for_each(|at| set[*at as usize] = true);
            search.close(&mut set);
            set
        };
        let few = fewest(&list, &mut |part| {
            let set = with(self, part);
            Ok(self.ask(&set)? == wanted)
        })?;
        let mut set = with(self, &few);
        // What these few need may do without them. Goes from the last one down, so that nothing
        // that stays waits for what is removed.
        for at in (0..set.len()).rev() {
            let is_last = set[at] && !base[at] && !self.is_waited_for(at, &set);
            if is_last {
                set[at] = false;
                set[at] = self.ask(&set)? != wanted;
            }
        }
        Ok(set)
    }

    fn is_waited_for(&self, at: usize, set: &[bool]) -> bool {
        (at + 1..set.len()).any(|after| set[after] && self.befores[after].contains(&at))
    }

    /// The changes of a set, without those of `base`, that no other change of the set waits for.
    fn tops(&self, set: &[bool], base: &[bool]) -> Vec<usize> {
        let is_top = |at: &usize| set[*at] && !base[*at] && !self.is_waited_for(*at, set);
        (0..set.len()).filter(is_top).collect()
    }

    /// Adds everything that must be on the disk before the set's changes.
    fn close(&self, set: &mut [bool]) {
        for at in (0..set.len()).rev() {
            if set[at] {
                self.befores[at].iter().for_each(|b| set[*b] = true);
            }
        }
    }

    /// Takes a change away, and what cannot be there without it.
    fn remove(&self, change: usize, set: &mut [bool]) {
        set[change] = false;
        for after in change + 1..set.len() {
            set[after] &= self.befores[after].iter().all(|b| set[*b]);
        }
    }
}

fn union(one: &[bool], other: &[bool]) -> Vec<bool> {
    one.iter().zip(other).map(|(a, b)| *a || *b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(
        befores: &[Vec<usize>],
        state: &[bool],
        most: u32,
        judge: Judge<'_, ()>,
    ) -> Result<Found, ()> {
        let question = Question {
            befores,
            state,
            part: state,
            rank: &|at| at as u8,
            most,
        };
        missing(&question, judge)
    }

    /// The result where `wrong` says which sets are wrong.
    fn told(
        befores: &[&[usize]],
        state: &[usize],
        wrong: impl Fn(&dyn Fn(usize) -> bool) -> bool,
    ) -> Found {
        let befores: Vec<Vec<usize>> = befores.iter().map(|b| b.to_vec()).collect();
        let included: Vec<bool> = (0..befores.len()).map(|at| state.contains(&at)).collect();
        let found = asked(&befores, &included, 500, &mut |set| {
            let founded = |at: usize| befores[at].iter().all(|b| set[*b]);
            assert!((0..set.len()).all(|at| !set[at] || founded(at)), "{set:?}");
            Ok(match wrong(&|at| set[at]) {
                true => Said::Alike,
                false => Said::Good,
            })
        });
        found.unwrap()
    }

    fn orders(found: &Found) -> Vec<(Option<usize>, Vec<usize>)> {
        let all = found.orders.iter();
        all.map(|o| (o.after, o.befores.clone())).collect()
    }

    /// A bit, an inode after it, a name that should wait for the inode, and other changes.
    const NAMES: [&[usize]; 7] = [&[], &[0], &[], &[], &[3], &[2], &[1, 2]];

    #[test]
    fn the_edge_that_was_left_out_is_told() {
        let found = told(&NAMES, &[2, 3, 4], |has| has(2) && !has(1));
        assert_eq!(orders(&found), [(Some(2), vec![1])]);
        assert!(found.is_only && !found.needs_more);
        assert!(!found.is_cut_short && !found.is_right);
        assert!(found.asked < 40, "{}", found.asked);
    }

    #[test]
    fn of_several_that_do_each_is_told() {
        let found = told(&NAMES, &[2], |has| has(2) && !has(1) && !has(4));
        let mut told = orders(&found);
        told.sort();
        assert_eq!(told, [(Some(2), vec![1]), (Some(2), vec![4])]);
        assert!(!found.is_only);
    }

    #[test]
    fn what_is_right_only_with_what_is_there_is_told_with_that() {
        // The name (2) needs the inode (1), and that needs the bit (0), which is there.
        let befores = [vec![], vec![], vec![]];
        let state = [true, false, true];
        let found = asked(&befores, &state, 50, &mut |set| {
            Ok(match set[2] && !(set[0] && set[1]) {
                true => Said::Alike,
                false => Said::Good,
            })
        });
        let found = found.unwrap();
        assert_eq!(orders(&found), [(Some(2), vec![1])]);
        assert!(found.is_only && found.needs_more);
    }

    #[test]
    fn what_would_be_wrong_otherwise_is_not_blamed() {
        // Without the bit (0) the name (2) is wrong in another way.
        let befores = [vec![], vec![], vec![]];
        let found = asked(&befores, &[true, false, true], 50, &mut |set| {
            Ok(match (set[0], set[1], set[2]) {
                (true, false, true) => Said::Alike,
                (false, _, true) => Said::Otherwise,
                _ => Said::Good,
            })
        });
        let found = found.unwrap();
        assert_eq!(orders(&found), [(Some(2), vec![1])]);
        assert!(found.is_only);
    }

    #[test]
    fn no_more_than_a_few_are_told_those_that_are_preferred_first() {
        // Five changes that are wrong together, as long as the last one is not there.
        let befores = vec![Vec::new(); 6];
        let state = [true, true, true, true, true, false];
        let question = Question {
            befores: &befores,
            state: &state,
            part: &state,
            rank: &|at| 9 - at as u8,
            most: 100,
        };
        let found = missing::<()>(&question, &mut |set| {
            Ok(match set[..5].iter().all(|is| *is) && !set[5] {
                true => Said::Alike,
                false => Said::Good,
            })
        });
        let found = found.unwrap();
        let afters: Vec<_> = found.orders.iter().map(|order| order.after).collect();
        assert_eq!(afters, [Some(4), Some(3), Some(2)]);
        assert!(found.has_more && !found.is_only);
    }

    #[test]
    fn what_only_helps_together_is_told_together() {
        let found = told(&NAMES, &[2], |has| has(2) && !(has(1) && has(3)));
        assert_eq!(orders(&found), [(Some(2), vec![1, 3])]);
        assert!(found.is_only);
    }

    #[test]
    fn a_promise_that_was_not_waited_for_is_told() {
        let found = told(&NAMES, &[2, 3], |has| !has(1));
        assert_eq!(orders(&found), [(None, vec![1])]);
        assert!(found.is_only);
    }

    #[test]
    fn what_waits_for_it_the_wrong_way_round_is_told() {
        // Only what waits for the name makes it right.
        let found = told(&NAMES, &[2], |has| has(2) && !has(5));
        assert_eq!(orders(&found), [(Some(2), vec![5])]);
        assert!(found.orders[0].is_reversed && !found.is_only);
    }

    #[test]
    fn where_nothing_helps_nothing_is_told() {
        let found = told(&NAMES, &[2], |has| has(2));
        assert_eq!(orders(&found), []);
        assert!(!found.is_only && !found.is_right);
    }

    #[test]
    fn what_is_right_after_all_is_said_to_be() {
        let found = told(&NAMES, &[2], |_| false);
        assert!(found.is_right && found.orders.is_empty());
    }

    #[test]
    fn the_judge_is_not_asked_for_ever() {
        let befores: Vec<Vec<usize>> = (0..200).map(|_| Vec::new()).collect();
        let (all, mut times) = (vec![true; 200], 0);
        let found = asked(&befores, &all, 50, &mut |set: &[bool]| {
            times += 1;
            // No part of it is any smaller.
            Ok(match set.iter().filter(|is| **is).count() {
                150.. => Said::Alike,
                _ => Said::Good,
            })
        });
        assert!(found.unwrap().is_cut_short);
        assert_eq!(times, 50);
    }
}
