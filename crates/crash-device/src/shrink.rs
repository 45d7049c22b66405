//! Looks for the smallest state that still fails.

use crate::error::ScheduleResult;
use crate::recording::{Moment, Recording};
use crate::variant::{StateId, Variant};
use backstitch_crash_core::fewest;

/// Asks whether a state fails. Counts the questions, and answers "no" when there were too many.
pub(crate) struct Judge<'a> {
    /// Builds a state and runs the check.
    pub(crate) fails: &'a mut dyn FnMut(&StateId) -> ScheduleResult<bool>,
    /// How many questions are left.
    pub(crate) left: u32,
}

impl Judge<'_> {
    fn fails(&mut self, moment: Moment, variant: &Variant) -> ScheduleResult<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let variant = variant.clone();
        (self.fails)(&StateId { moment, variant })
    }
}

/// If a state misses so many more changes than it has, it is described by the changes that are
/// there.
const RATHER_MISSING: usize = 8;

/// Looks for a failing state that is easy to understand. Nothing is torn and changes are in the
/// log's order, if the state fails like that too. Then as few changes as possible are missing or,
/// where these are many, as few changes as possible are there.
pub(crate) fn shrink(
    recording: &Recording,
    state: &StateId,
    judge: &mut Judge<'_>,
) -> ScheduleResult<StateId> {
    let moment = state.moment;
    let mut best = state.variant.clone();
    plain(moment, &mut best, judge)?;
    let count = recording.optional(&moment).len() as u32;
    let all_missing: Vec<u32> = (0..count).filter(|n| !best.kept.contains(n)).collect();
    let with = |missing: &[u32]| {
        let mut variant = best.clone();
        if missing.len() == all_missing.len() {
            return variant;
        }
        let back = all_missing.iter().filter(|n| !missing.contains(n));
        variant.kept.extend(back);
        if best.kept.is_sorted() {
            variant.kept.sort_unstable();
        } else {
            let segments = recording.segments(&moment, &recording.optional(&moment));
            variant.kept.sort_by_key(|&n| segments[n as usize]);
        }
        variant
    };
    let missing = fewest(&all_missing, &mut |m| judge.fails(moment, &with(m)))?;
    let by_missing = with(&missing);
    let without = |kept: &[u32]| Variant {
        kept: kept.to_vec(),
        torn: best
            .torn
            .iter()
            .filter(|(n, _)| kept.contains(n))
            .cloned()
            .collect(),
    };
    let kept = fewest(&best.kept, &mut |k| judge.fails(moment, &without(k)))?;
    best = match kept.len() + RATHER_MISSING < missing.len() {
        true => without(&kept),
        false => by_missing,
    };
    plain(moment, &mut best, judge)?;
    Ok(StateId {
        moment: earliest(recording, moment, &best),
        variant: best,
    })
}

/// Undoes tearing and reordering as far as the state fails without them.
fn plain(moment: Moment, best: &mut Variant, judge: &mut Judge<'_>) -> ScheduleResult<()> {
    for at in (0..best.torn.len()).rev() {
        let mut tried = best.clone();
        let (position, _) = tried.torn.remove(at);
        if judge.fails(moment, &tried)? {
            *best = tried.clone();
            continue;
        }
        // Tries it without the torn change, too.
        tried.kept.retain(|&n| n != position);
        if judge.fails(moment, &tried)? {
            *best = tried;
        }
    }
    if best.is_reordered() {
        let mut tried = best.clone();
        tried.kept.sort_unstable();
        if judge.fails(moment, &tried)? {
            *best = tried;
        }
    }
    Ok(())
}

/// The same state at the earliest possible cut: changes after the last one that is there need not
/// be called missing. The passed marks and the durable FUA writes stay the same.
fn earliest(recording: &Recording, moment: Moment, variant: &Variant) -> Moment {
    if moment.in_flight {
        return moment;
    }
    let optional = recording.optional(&moment);
    let last = variant.kept.iter().max();
    let last = last.map_or(0, |&n| {
        recording.changes()[optional[n as usize]].entry.number + 1
    });
    let mut best = moment;
    for cut in (last..moment.cut).rev() {
        let Some(tried) = recording.moment_at(cut, false) else {
            break;
        };
        let fua = |m: &Moment| m.end - m.stable - recording.optional(m).len();
        let same = tried.stable == moment.stable
            && tried.marks == moment.marks
            && fua(&tried) == fua(&moment);
        if !same {
            break;
        }
        best = tried;
    }
    best
}
