//! Chooses the states to visit, and finds those that are the same.

use crate::choose::{Choices, picks};
use crate::contents::Contents;
use crate::error::ScheduleResult;
use crate::recording::{Change, Moment, Recording};
use crate::variant::Variant;
use fastrand::Rng;
use rustc_hash::FxHashSet;

/// The fewest states that a moment gets if it is not visited exhaustively; otherwise it gets none.
const LEAST_SHARE: u64 = 8;

/// How many states are looked at for each one that is wanted, if many turn out to be known.
const TRIES: u64 = 3;

/// A state to visit.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) moment: Moment,
    pub(crate) variant: Variant,
}

/// All that is visited, in the log's order.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) jobs: Vec<Job>,
    /// States that were looked at, including those with known contents.
    pub(crate) states: u64,
    pub(crate) moments: usize,
    pub(crate) exhaustive_moments: usize,
    pub(crate) skipped_moments: usize,
    pub(crate) largest_epoch: usize,
    pub(crate) torn: u64,
    pub(crate) reordered: u64,
}

impl Plan {
    fn add(&mut self, moment: Moment, variant: Variant) {
        self.torn += u64::from(!variant.torn.is_empty());
        self.reordered += u64::from(variant.is_reordered());
        self.jobs.push(Job { moment, variant });
    }

    /// Whether all states are visited.
    pub(crate) fn is_exhaustive(&self) -> bool {
        self.exhaustive_moments == self.moments
    }
}

/// Chooses at most about `states` states.
pub(crate) fn plan(
    recording: &Recording,
    states: u64,
    seed: u64,
    torn: bool,
) -> ScheduleResult<Plan> {
    let moments = recording.moments();
    let mut rng = Rng::with_seed(seed);
    let changes_of = |moment: &Moment| -> (Vec<&Change>, Vec<usize>) {
        let optional = recording.optional(moment);
        let segments = recording.segments(moment, &optional);
        let changes = optional.iter().map(|&index| &recording.changes()[index]);
        (changes.collect(), segments)
    };
    let counts: Vec<u64> = moments
        .iter()
        .map(|moment| {
            let (changes, segments) = changes_of(moment);
            Choices::new(changes, &segments, torn).count()
        })
        .collect();
    let shares = shares(&counts, states.max(1), &mut rng);
    let mut plan = Plan {
        moments: moments.len(),
        ..Plan::default()
    };
    let mut contents = Contents::new(recording);
    let mut seen: FxHashSet<State> = FxHashSet::default();
    for (moment, share) in moments.into_iter().zip(shares) {
        let (changes, segments) = changes_of(&moment);
        plan.largest_epoch = plan.largest_epoch.max(changes.len());
        if share == 0 {
            plan.skipped_moments += 1;
            continue;
        }
        let choices = Choices::new(changes, &segments, torn);
        let mut known = |variant: &Variant| -> ScheduleResult<Option<State>> {
            let state = (contents.state(&moment, variant)?, moment.marks);
            Ok((!seen.contains(&state)).then_some(state))
        };
        let chosen = choose(&choices, share, &mut rng, &mut known)?;
        plan.states += chosen.looked_at;
        plan.exhaustive_moments += usize::from(chosen.exhaustive);
        for (state, variant) in chosen.new {
            seen.insert(state);
            plan.add(moment, variant);
        }
    }
    Ok(plan)
}

/// Identifies a state: the hash of its bytes, and how many marks have passed.
type State = (u128, usize);

/// The chosen states of a moment.
struct Chosen {
    new: Vec<(State, Variant)>,
    looked_at: u64,
    exhaustive: bool,
}

/// Chooses up to `share` states that differ. Looking at a state costs little compared with visiting
/// it. So if there are not many more than wanted, all are looked at, since many may be the same.
fn choose(
    choices: &Choices<'_>,
    share: u64,
    rng: &mut Rng,
    known: &mut dyn FnMut(&Variant) -> ScheduleResult<Option<State>>,
) -> ScheduleResult<Chosen> {
    let most = share.saturating_mul(TRIES);
    let all = choices.count() <= most;
    let mut variants = match all {
        true => choices.all(),
        false => choices.samples(share, rng),
    }
    .into_iter();
    let mut here: FxHashSet<State> = FxHashSet::default();
    let mut new = Vec::new();
    let mut looked_at = 0;
    // Samples that turn out to be known are replaced by random ones.
    while let Some(variant) = variants.next().or_else(|| {
        let wanted = !all && (new.len() as u64) < share && looked_at < most;
        wanted.then(|| choices.any(rng))
    }) {
        looked_at += 1;
        if let Some(state) = known(&variant)?
            && here.insert(state)
        {
            new.push((state, variant));
        }
    }
    let exhaustive = all && new.len() as u64 <= share;
    if all && !exhaustive {
        let picks: FxHashSet<u64> = picks(new.len() as u64, share, rng).into_iter().collect();
        let mut number = 0;
        new.retain(|_| {
            number += 1;
            picks.contains(&(number - 1))
        });
    }
    Ok(Chosen {
        new,
        looked_at,
        exhaustive,
    })
}

/// Divides states among moments. Moments that need the fewest come first, and what they do not need
/// goes to the others. If there are not even [`LEAST_SHARE`] for each, some moments get none; the
/// last one always gets its share.
fn shares(counts: &[u64], states: u64, rng: &mut Rng) -> Vec<u64> {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let least = |moment: usize| counts[moment].min(LEAST_SHARE);
    let needed: u64 = order.iter().map(|&moment| least(moment)).sum();
    if needed > states {
        rng.shuffle(&mut order);
        let last = counts.len() - 1;
        order.retain(|&moment| moment != last);
        order.insert(0, last);
        let mut left = states.max(least(last));
        order.retain(|&moment| {
            let taken = least(moment) <= left;
            left -= if taken { least(moment) } else { 0 };
            taken
        });
    }
    order.sort_by_key(|&moment| (counts[moment], moment));
    let mut shares = vec![0; counts.len()];
    let (mut left, mut others) = (states, order.len() as u64);
    for moment in order {
        let share = counts[moment].min(left / others.max(1));
        shares[moment] = share;
        left -= share;
        others -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_moments_come_first_and_leave_the_rest() {
        let mut rng = Rng::with_seed(1);
        assert_eq!(
            shares(&[4, u64::MAX, 2, 1000], 1006, &mut rng),
            [4, 500, 2, 500]
        );
        assert_eq!(shares(&[4, 8], 12, &mut rng), [4, 8]);
        assert_eq!(shares(&[1; 50], 50, &mut rng), [1; 50]);
    }

    #[test]
    fn too_few_states_leave_moments_out() {
        let shares = shares(&[u64::MAX; 100], 80, &mut Rng::with_seed(1));
        assert_eq!(shares.iter().filter(|&&share| share == 8).count(), 10);
        assert_eq!(shares.iter().sum::<u64>(), 80);
        assert_eq!(shares[99], 8);
        let few = [&[2; 20][..], &[u64::MAX; 20]].concat();
        let shares = self::shares(&few, 30, &mut Rng::with_seed(1));
        assert!(shares.iter().sum::<u64>() > 20, "{shares:?}");
        assert_eq!(self::shares(&[9, 9], 1, &mut Rng::with_seed(1)), [0, 1]);
    }
}
