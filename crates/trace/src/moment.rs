//! Moments of a trace.

use std::str::FromStr;
use std::time::Duration;

use crate::record::Record;
use crate::state::{Keep, State};
use crate::{Error, Trace};

/// A moment of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the last record.
    End,
    /// After this record.
    Record(u64),
    /// After everything that happened up to this time, counted from the mount.
    Time(Duration),
    /// While this batch is on its way.
    Batch(u64),
}

impl FromStr for Moment {
    type Err = String;

    /// `end`, `#RECORD`, `batch:NUMBER`, or a time: `1.5s`, `20ms`.
    fn from_str(text: &str) -> Result<Moment, String> {
        let wrong = || format!("'{text}' is no moment: end, #RECORD, batch:NUMBER, 1.5s or 20ms");
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
        if text == "end" {
            return Ok(Moment::End);
        }
        if let Some(digits) = text.strip_prefix('#') {
            return number(digits).map(Moment::Record);
        }
        if let Some(digits) = text.strip_prefix("batch:") {
            return number(digits).map(Moment::Batch);
        }
        let (digits, unit_seconds) = match text.strip_suffix("ms") {
            Some(digits) => (digits, 1e-3),
            None => (text.strip_suffix('s').ok_or_else(wrong)?, 1.0),
        };
        let time = digits.parse::<f64>().map_err(|_| wrong())? * unit_seconds;
        let time = Duration::try_from_secs_f64(time).map_err(|_| wrong())?;
        Ok(Moment::Time(time))
    }
}

/// The graph at a moment.
///
/// # Errors
/// Where the trace is damaged before it, or has no such moment.
pub fn state_at(trace: &Trace<'_>, moment: Moment, keep: Keep) -> Result<State, Error> {
    walk_to(trace, moment, keep, |_| ())
}

/// The same; `seen` is called with the state after each operation's beginning, and after whatever it
/// made.
///
/// # Errors
/// As [`state_at`].
pub fn walk_to(
    trace: &Trace<'_>,
    moment: Moment,
    keep: Keep,
    mut seen: impl FnMut(&State),
) -> Result<State, Error> {
    let mut state = State::of(trace, keep);
    let mut records = trace.records();
    let mut list = Vec::new();
    let mut last = 0;
    let mut batches: Option<(u64, u64)> = None;
    while let Some((number, record)) = records.next(&mut list)? {
        if let (Moment::Time(until), Record::Time(time)) = (moment, &record)
            && *time > until
        {
            return Ok(state);
        }
        state.apply(&record);
        if matches!(record, Record::Begin { .. } | Record::Made { .. }) {
            seen(&state);
        }
        last = number;
        if let Record::Batch { number, .. } = record {
            batches = Some((batches.map_or(number, |(first, _)| first), number));
        }
        match (moment, record) {
            (Moment::Record(wanted), _) if number >= wanted => return Ok(state),
            (Moment::Batch(wanted), Record::Batch { number, .. }) if number == wanted => {
                return Ok(state);
            }
            _ => {}
        }
    }
    state.is_cut = records.is_cut();
    match moment {
        Moment::End | Moment::Time(_) => Ok(state),
        Moment::Record(_) | Moment::Batch(_) => Err(Error::NoMoment {
            last,
            seconds: state.time.as_secs_f64(),
            batches,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_parsed() {
        let parsed = |text: &str| text.parse::<Moment>().ok();
        assert_eq!(parsed("end"), Some(Moment::End));
        assert_eq!(parsed("#12"), Some(Moment::Record(12)));
        assert_eq!(parsed("batch:3"), Some(Moment::Batch(3)));
        let time = Moment::Time(Duration::from_millis(1500));
        assert_eq!((parsed("1.5s"), parsed("1500ms")), (Some(time), Some(time)));
        for wrong in ["", "12", "-1s", "s", "#x", "batch:", "infs"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
