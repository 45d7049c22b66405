//! Chooses the states of a moment to visit: all of them, or samples.

use crate::recording::Change;
use crate::variant::Variant;
use fastrand::Rng;

/// The states to choose from, by the changes that may be missing at a moment.
pub(crate) struct Choices<'a> {
    changes: Vec<&'a Change>,
    /// Groups of two or more changes whose order shows, as positions in `changes`.
    tangles: Vec<Vec<u32>>,
    torn: bool,
}

impl<'a> Choices<'a> {
    /// `segments` has, for each change, how many FUA writes come before it: changes with different
    /// numbers keep their order.
    pub(crate) fn new(changes: Vec<&'a Change>, segments: &[usize], torn: bool) -> Self {
        let tangles = tangles(&changes, segments);
        Self {
            changes,
            tangles,
            torn,
        }
    }

    /// How many parts can be missing independently: changes, or their sectors.
    fn units(&self) -> u64 {
        let parts = |change: &&Change| match self.torn && !change.is_discard() {
            true => change.sectors(),
            false => 1,
        };
        self.changes.iter().map(parts).sum()
    }

    /// An upper bound on the number of states: every subset, in each order that shows.
    pub(crate) fn count(&self) -> u64 {
        let subsets = match u32::try_from(self.units()) {
            Ok(units) if units < 63 => 1_u64 << units,
            _ => u64::MAX,
        };
        let orders = self.tangles.iter().map(|tangle| factorial(tangle.len()));
        orders.fold(subsets, u64::saturating_mul)
    }

    /// Every subset in every order.
    pub(crate) fn all(&self) -> Vec<Variant> {
        let units = self.units();
        let mut variants = Vec::new();
        for bits in 0..1_u64 << units {
            let subset = self.subset(bits);
            self.each_order(subset, &mut variants);
        }
        variants
    }

    /// The state with the parts whose bits are set.
    fn subset(&self, bits: u64) -> Variant {
        let mut variant = Variant::default();
        let mut at = 0;
        for (position, change) in (0_u32..).zip(&self.changes) {
            if !self.torn || change.is_discard() {
                if bits >> at & 1 == 1 {
                    variant.kept.push(position);
                }
                at += 1;
                continue;
            }
            let sectors = change.sectors();
            let mask: Vec<bool> = (at..at + sectors).map(|bit| bits >> bit & 1 == 1).collect();
            at += sectors;
            keep_torn(&mut variant, position, mask);
        }
        variant
    }

    /// Adds a subset once for each order that shows.
    fn each_order(&self, subset: Variant, variants: &mut Vec<Variant>) {
        let mut orders = vec![subset.kept.clone()];
        for tangle in &self.tangles {
            let places = places_of(tangle, &subset.kept);
            if places.len() < 2 {
                continue;
            }
            let mut more = Vec::new();
            for order in &orders {
                let members: Vec<u32> = places.iter().map(|&place| order[place]).collect();
                each_permutation(members, &mut |members| {
                    let mut order = order.clone();
                    for (&place, &member) in places.iter().zip(members) {
                        order[place] = member;
                    }
                    more.push(order);
                });
            }
            orders = more;
        }
        variants.extend(orders.into_iter().map(|kept| Variant {
            kept,
            torn: subset.torn.clone(),
        }));
    }

    /// At most `share` samples. First all changes, none, and all with every order that shows
    /// reversed; then each change missing, alone, torn, and last of a prefix, as many of these as
    /// fit; then random ones.
    pub(crate) fn samples(&self, share: u64, rng: &mut Rng) -> Vec<Variant> {
        let count = self.changes.len() as u32;
        let mut variants = vec![Variant::of((0..count).collect()), Variant::of(Vec::new())];
        if !self.tangles.is_empty() {
            variants.push(self.reordered(&mut |members| members.reverse()));
        }
        let left = share.saturating_sub(variants.len() as u64);
        let kinds: u64 = if self.torn { 4 } else { 3 };
        let systematic = u64::from(count) * kinds;
        let quota = match systematic <= left / 2 {
            true => systematic,
            // Leaves room for random subsets, which find failures that need two missing changes.
            false => left / 2,
        };
        for number in picks(systematic, quota, rng) {
            let position = (number / kinds) as u32;
            variants.push(self.systematic(number % kinds, position, rng));
        }
        while (variants.len() as u64) < share {
            variants.push(self.any(rng));
        }
        variants.truncate(usize::try_from(share).unwrap_or(usize::MAX).max(1));
        variants
    }

    fn systematic(&self, kind: u64, position: u32, rng: &mut Rng) -> Variant {
        let count = self.changes.len() as u32;
        match kind {
            0 => Variant::of((0..count).filter(|&other| other != position).collect()),
            1 => Variant::of((0..=position).collect()),
            2 => Variant::of(vec![position]),
            _ => {
                // Everything before it, and a part of it: what a drive leaves that stops in the
                // middle of its work.
                let mut variant = Variant::of((0..position).collect());
                self.keep_torn_somehow(&mut variant, position, rng);
                variant
            }
        }
    }

    /// A random part of the changes, from few to nearly all, sometimes in another order, sometimes
    /// torn.
    pub(crate) fn any(&self, rng: &mut Rng) -> Variant {
        let density = rng.u32(1..8);
        let reorder = !self.tangles.is_empty() && rng.bool();
        let mut variant = Variant::default();
        for position in 0..self.changes.len() as u32 {
            if rng.u32(0..8) >= density {
                continue;
            }
            match self.torn && rng.u32(0..4) == 0 {
                true => self.keep_torn_somehow(&mut variant, position, rng),
                false => variant.kept.push(position),
            }
        }
        if reorder {
            self.permute(&mut variant.kept, &mut |members| rng.shuffle(members));
        }
        variant
    }

    fn keep_torn_somehow(&self, variant: &mut Variant, position: u32, rng: &mut Rng) {
        let change = self.changes[position as usize];
        let sectors = change.sectors() as usize;
        if change.is_discard() || sectors < 2 {
            variant.kept.push(position);
            return;
        }
        let at = rng.usize(1..sectors);
        let mask = match rng.u32(0..3) {
            0 => (0..sectors).map(|sector| sector < at).collect(),
            1 => (0..sectors).map(|sector| sector >= at).collect(),
            _ => (0..sectors).map(|_| rng.bool()).collect(),
        };
        keep_torn(variant, position, mask);
    }

    fn reordered(&self, permute: &mut dyn FnMut(&mut [u32])) -> Variant {
        let mut kept: Vec<u32> = (0..self.changes.len() as u32).collect();
        self.permute(&mut kept, permute);
        Variant::of(kept)
    }

    fn permute(&self, kept: &mut [u32], permute: &mut dyn FnMut(&mut [u32])) {
        for tangle in &self.tangles {
            let places = places_of(tangle, kept);
            let mut members: Vec<u32> = places.iter().map(|&place| kept[place]).collect();
            permute(&mut members);
            for (place, member) in places.into_iter().zip(members) {
                kept[place] = member;
            }
        }
    }
}

/// Adds a change of which only some sectors are there. With no sector it is left out, with all it
/// is not torn.
fn keep_torn(variant: &mut Variant, position: u32, mask: Vec<bool>) {
    if !mask.contains(&true) {
        return;
    }
    variant.kept.push(position);
    if mask.contains(&false) {
        variant.torn.push((position, mask));
    }
}

/// The indices in `kept` of a tangle's members.
fn places_of(tangle: &[u32], kept: &[u32]) -> Vec<usize> {
    (0..kept.len())
        .filter(|&place| tangle.contains(&kept[place]))
        .collect()
}

fn factorial(n: usize) -> u64 {
    (1..=n as u64).fold(1, u64::saturating_mul)
}

fn each_permutation(mut members: Vec<u32>, look: &mut dyn FnMut(&[u32])) {
    fn go(members: &mut Vec<u32>, from: usize, look: &mut dyn FnMut(&[u32])) {
        if from + 1 >= members.len() {
            return look(members);
        }
        for at in from..members.len() {
            // Rotating keeps the rest sorted, so the log's order comes first.
            members[from..=at].rotate_right(1);
            go(members, from + 1, look);
            members[from..=at].rotate_left(1);
        }
    }
    go(&mut members, 0, look);
}

/// `quota` different random numbers below `count`, ascending.
pub(crate) fn picks(count: u64, quota: u64, rng: &mut Rng) -> Vec<u64> {
    if quota >= count {
        return (0..count).collect();
    }
    // Robert Floyd's sampling: one draw for each number.
    let mut chosen = std::collections::BTreeSet::new();
    for last in count - quota..count {
        let drawn = rng.u64(0..=last);
        if !chosen.insert(drawn) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

/// Groups of changes whose order shows. The order of two writes shows if they overlap and the
/// earlier one does not cover all of the later one. If it does, then having it on top is the same
/// as the later one missing, which is visited anyway.
fn tangles(changes: &[&Change], segments: &[usize]) -> Vec<Vec<u32>> {
    let mut by_start: Vec<usize> = (0..changes.len()).collect();
    by_start.sort_by_key(|&n| (changes[n].start(), n));
    let mut leader: Vec<usize> = (0..changes.len()).collect();
    for (at, &one) in by_start.iter().enumerate() {
        for &other in &by_start[at + 1..] {
            if changes[other].start() >= changes[one].end() {
                break;
            }
            let (first, second) = (one.min(other), one.max(other));
            let covers = changes[first].start() <= changes[second].start()
                && changes[first].end() >= changes[second].end();
            if !covers && segments[first] == segments[second] {
                let (a, b) = (find(&mut leader, first), find(&mut leader, second));
                leader[a.max(b)] = a.min(b);
            }
        }
    }
    let mut groups: Vec<Vec<u32>> = vec![Vec::new(); changes.len()];
    for n in 0..changes.len() {
        let leader = find(&mut leader, n);
        groups[leader].push(n as u32);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

fn find(leader: &mut [usize], mut n: usize) -> usize {
    while leader[n] != n {
        leader[n] = leader[leader[n]];
        n = leader[n];
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::write_log::{Entry, EntryFlags};
    use std::collections::BTreeSet;

    fn changes(ranges: &[(u64, u64)]) -> Vec<Change> {
        let change = |(number, &(start, len)): (usize, &(u64, u64))| Change {
            entry: Entry {
                number: number as u64,
                offset_bytes: start * 512,
                len_bytes: len * 512,
                flags: EntryFlags::default(),
                data_at_bytes: 0,
                mark: None,
            },
        };
        ranges.iter().enumerate().map(change).collect()
    }

    fn choices(changes: &[Change], torn: bool) -> Choices<'_> {
        let segments = vec![0; changes.len()];
        Choices::new(changes.iter().collect(), &segments, torn)
    }

    fn distinct(variants: &[Variant]) -> usize {
        let shape = |v: &Variant| format!("{v:?}");
        variants.iter().map(shape).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn every_subset_once() {
        let changes = changes(&[(0, 8), (8, 8), (100, 1)]);
        let all = choices(&changes, false).all();
        assert_eq!((all.len(), distinct(&all)), (8, 8));
    }

    #[test]
    fn the_order_of_overlapping_writes_shows() {
        // The second covers a part of the first. The third covers a part of the second, and nothing
        // of the first.
        let partly = changes(&[(0, 8), (4, 8), (11, 2)]);
        let all = choices(&partly, false).all();
        // Subsets with 0, 1 and 2 changes: 1 + 3 + 3 × 2; and all three changes, in 6 orders.
        assert_eq!(all.len(), 1 + 3 + 6 + 6);
        assert!(all.iter().any(|v| v.kept == [2, 1, 0]));
        let same = changes(&[(0, 8), (0, 8), (2, 2)]);
        assert_eq!(choices(&same, false).count(), 8, "subsets show it all");
        let within = changes(&[(2, 2), (0, 8)]);
        assert_eq!(choices(&within, false).count(), 8);
        let between = Choices::new(within.iter().collect(), &[0, 1], false);
        assert_eq!(
            between.count(),
            4,
            "a FUA write between them keeps the order"
        );
    }

    #[test]
    fn torn_writes_are_taken_apart() {
        let changes = changes(&[(0, 2), (9, 1)]);
        let all = choices(&changes, true).all();
        assert_eq!((all.len(), distinct(&all)), (8, 8));
        let torn = |v: &Variant| v.torn == [(0, vec![true, false])];
        assert_eq!(all.iter().filter(|v| torn(v)).count(), 2);
    }

    #[test]
    fn samples_hold_the_plain_cases_and_are_the_seeds() {
        let ranges: Vec<(u64, u64)> = (0..40).map(|n| (n * 8, 8)).collect();
        let changes = changes(&ranges);
        let sample = |seed, share| {
            let chosen = choices(&changes, true).samples(share, &mut Rng::with_seed(seed));
            assert_eq!(chosen.len() as u64, share);
            chosen
        };
        let many = sample(7, 1000);
        assert!(many.iter().any(|v| v.kept.is_empty()));
        assert!(many.iter().any(|v| v.kept.len() == 40 && v.torn.is_empty()));
        for position in 0..40 {
            assert!(many.contains(&Variant::of(vec![position])));
            assert!(many.contains(&Variant::of((0..=position).collect())));
            let missing = (0..40).filter(|&other| other != position).collect();
            assert!(many.contains(&Variant::of(missing)));
        }
        assert_eq!(sample(7, 100), sample(7, 100));
        assert_ne!(sample(7, 100), sample(8, 100));
        assert_eq!(sample(7, 1).len(), 1);
    }
}
