//! Says what a figure shows: a sentence with its ratios, where our values differ from the paper's,
//! and how the counters of the runs explain that.

use super::run::MeasuredFigure;
use super::{Claim, Counter, Measure, Reason};
use backstitch_bench::thousands;

/// The relative deviation from the paper above which our value differs.
const DIFFERENCE: f64 = 0.15;
/// The relative deviation up to which two values are called equal.
const EQUAL: f64 = 0.05;

/// A statement of a paper, and what was measured.
pub(super) struct JudgedClaim {
    pub(super) says: &'static str,
    /// The range of ratios that the paper's words allow.
    pub(super) paper: String,
    /// The range of our ratios.
    pub(super) ours: String,
    /// Whether it holds for our values, as they are shown.
    pub(super) holds: bool,
}

/// A difference between our values and the paper's.
pub(super) struct Difference {
    /// The values, and by how much they differ.
    pub(super) what: String,
    /// The reason with its counter's value, or that there is none.
    pub(super) why: String,
    /// Whether a counter shows the reason.
    pub(super) is_explained: bool,
    /// The counters of the runs.
    pub(super) counters: String,
}

/// A value with three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 999.5 => thousands(value.round() as u64),
        _ => format!("{value:.*}", decimals(value)),
    }
}

/// The digits behind the point with which a value has three significant ones.
fn decimals(value: f64) -> usize {
    match value.abs() {
        some if some >= 99.95 => 0,
        some if some >= 9.995 => 1,
        some if some >= 0.9995 || some == 0.0 => 2,
        _ => 3,
    }
}

/// A value as [`number`] shows it.
fn as_shown(value: f64) -> f64 {
    let factor = 10_f64.powi(decimals(value) as i32);
    (value * factor).round() / factor
}

/// A range of two values; one value if they look the same.
fn range(low: f64, high: f64) -> String {
    let (low, high) = (number(low), number(high));
    if low == high {
        return low;
    }
    format!("{low} to {high}")
}

/// The relative difference of two values, with a minus sign as wide as the plus: `−16 %`.
pub(super) fn percent(ours: f64, printed: f64) -> String {
    let by = 100.0 * (ours / printed - 1.0);
    match by.abs() {
        large if large >= 1_000.0 => format!("{} times", number(ours / printed)),
        _ => format!("{by:+.0} %").replace('-', "−"),
    }
}

fn is_different(ours: f64, printed: f64) -> bool {
    // The paper printed 0.0, so ours should round to that too.
    if printed == 0.0 {
        return ours >= 0.05;
    }
    (ours / printed - 1.0).abs() > DIFFERENCE
}

/// A figure in one sentence: the ratio of each line to the base line, ours and the paper's.
pub(super) fn sentence(measured: &MeasuredFigure) -> String {
    let figure = measured.figure;
    let base = measured.of.lines[measured.of.base].name;
    let others = (0..measured.of.lines.len()).filter(|line| *line != measured.of.base);
    let parts = others.map(|line| {
        let name = measured.of.lines[line].name;
        let ours = mean_ratio(measured, line, |line, place| {
            Some(measured.ours(line, place))
        });
        let printed = mean_ratio(measured, line, |line, place| measured.printed(line, place));
        let Some(ours) = ours else {
            return format!("{name} has no figure");
        };
        let paper = printed.map_or(String::new(), |printed| {
            format!(" (the paper: {})", relation(figure.measure, printed))
        });
        format!("{name} {} {base}{paper}", verb(figure.measure, ours))
    });
    let mut text = parts.collect::<Vec<_>>().join("; ");
    if figure.places.len() > 1 {
        text = match figure.measure.is_rate() || figure.measure == Measure::WritesPerFile {
            true => format!("On average over the {} points, {text}", figure.places.len()),
            false => format!("Taken together, {text}"),
        };
    }
    text + "."
}

/// The ratio of a line to the base line: for rates the geometric mean over the places, for values
/// that add up the ratio of the sums. A ratio above one is more, or longer.
fn mean_ratio(
    measured: &MeasuredFigure,
    line: usize,
    value: impl Fn(usize, usize) -> Option<f64>,
) -> Option<f64> {
    let figure = measured.figure;
    let places = 0..figure.places.len();
    let pairs =
        places.filter_map(|place| Some((value(line, place)?, value(measured.of.base, place)?)));
    let pairs: Vec<(f64, f64)> = pairs.filter(|(_, base)| *base > 0.0).collect();
    if pairs.is_empty() {
        return None;
    }
    if figure.measure.is_rate() || figure.measure == Measure::WritesPerFile {
        let logarithms = pairs.iter().map(|(of, base)| (of / base).max(1e-9).ln());
        return Some((logarithms.sum::<f64>() / pairs.len() as f64).exp());
    }
    let sum = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    Some(sum(|pair| pair.0) / sum(|pair| pair.1))
}

/// `is 3.6 times slower than`.
fn verb(measure: Measure, ratio: f64) -> String {
    let relation = relation(measure, ratio);
    let is_speed = measure.is_rate() || measure.is_time();
    match (is_speed, is_equal(ratio)) {
        (true, true) => format!("is {relation} as"),
        (true, false) => format!("is {relation} than"),
        (false, true) => format!("takes {relation} as"),
        (false, false) => format!("takes {relation} than"),
    }
}

fn is_equal(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= EQUAL
}

/// The relation of two values, in words: `3.6 times slower`.
fn relation(measure: Measure, ratio: f64) -> String {
    let is_speed = measure.is_rate() || measure.is_time();
    let what = match measure {
        _ if is_speed => "",
        Measure::Patches => " patches",
        Measure::UndoMegabytes => " undo data",
        _ => " writes",
    };
    let is_mass = measure == Measure::UndoMegabytes;
    if is_equal(ratio) {
        return match (is_speed, is_mass) {
            (true, _) => "as fast".to_owned(),
            (false, true) => format!("as much{what}"),
            (false, false) => format!("as many{what}"),
        };
    }
    let is_more = ratio > 1.0;
    let word = match (is_speed, is_mass) {
        (true, _) if is_more == measure.is_rate() => "faster",
        (true, _) => "slower",
        (false, _) if is_more => "more",
        (false, true) => "less",
        (false, false) => "fewer",
    };
    let times = if is_more {
        ratio
    } else {
        1.0 / ratio.max(1e-9)
    };
    match times >= 1.95 {
        true => format!("{} times {word}{what}", number(times)),
        // For a speed, the per cents by which the time is longer or the rate larger.
        false if is_more || is_speed => format!("{:.0} % {word}{what}", 100.0 * (times - 1.0)),
        false => format!("{:.0} % {word}{what}", 100.0 * (1.0 - ratio)),
    }
}

/// The paper's statements, and our ratios.
pub(super) fn claims(measured: &MeasuredFigure) -> Vec<JudgedClaim> {
    let judged = measured.of.claims.iter().map(|claim| {
        let (least, largest) = extremes(ratios(measured, claim).map(|(_, ratio)| ratio));
        JudgedClaim {
            says: claim.says,
            paper: match claim.high.is_finite() {
                true => range(claim.low, claim.high),
                false => format!("{} or more", number(claim.low)),
            },
            ours: range(least, largest),
            holds: ratios(measured, claim).all(|(_, ratio)| misses(claim, ratio).is_none()),
        }
    });
    judged.collect()
}

fn ratios<'m>(
    measured: &'m MeasuredFigure,
    claim: &'m Claim,
) -> impl Iterator<Item = (usize, f64)> + 'm {
    (claim.first..=claim.last).map(|place| {
        let of = |line| measured.ours(line, place);
        (place, of(claim.line) / of(claim.by).max(1e-9))
    })
}

/// Whether a ratio, as it is shown, is above or below what a claim allows. How exactly the paper's
/// words are meant is part of the claim: nothing is allowed on top of that.
fn misses(claim: &Claim, ratio: f64) -> Option<bool> {
    let shown = as_shown(ratio);
    if shown > claim.high {
        return Some(true);
    }
    (shown < claim.low).then_some(false)
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// A value of ours that differs from the paper's, or a ratio outside a claim.
struct Miss {
    /// Indices of the line and the place of its run.
    line: usize,
    place: usize,
    is_larger: bool,
    /// The index of the claim, if it is about one.
    claim: Option<usize>,
    by: String,
}

/// The remarks on a figure whose lines the layout has.
pub(super) fn remarks(measured: &MeasuredFigure) -> Vec<String> {
    let figure = measured.figure;
    let remarks = figure.remarks.iter().filter_map(|remark| {
        let place = figure
            .places
            .iter()
            .position(|place| place.name == remark.place)?;
        let mut says = remark.says.to_owned();
        for (ordering, of) in remark.counters {
            let lines = &measured.of.lines;
            let line = lines.iter().position(|line| line.ordering == *ordering)?;
            says = says.replacen("{}", &number(counter(measured, *of, line, place)), 1);
        }
        Some(says)
    });
    remarks.collect()
}

/// Where our values differ from the paper's. Differences of one line with one reason are joined.
pub(super) fn differences(measured: &MeasuredFigure) -> Vec<Difference> {
    let mut groups: Vec<(Option<&'static Reason>, Vec<Miss>)> = Vec::new();
    for miss in cell_misses(measured).chain(claim_misses(measured)) {
        let reason = reason(measured, &miss);
        let is_same = |(other, misses): &&mut (Option<&'static Reason>, Vec<Miss>)| {
            let same_reason = match (*other, reason) {
                (Some(one), Some(two)) => std::ptr::eq(one, two),
                (one, two) => one.is_none() && two.is_none(),
            };
            same_reason
                && misses[0].line == miss.line
                && misses[0].claim == miss.claim
                && misses[0].is_larger == miss.is_larger
        };
        match groups.iter_mut().find(is_same) {
            Some((_, misses)) => misses.push(miss),
            None => groups.push((reason, vec![miss])),
        }
    }
    let told = groups
        .iter()
        .map(|(reason, misses)| tell(measured, *reason, misses));
    told.collect()
}

fn cell_misses(measured: &MeasuredFigure) -> impl Iterator<Item = Miss> + '_ {
    let figure = measured.figure;
    let cells = (0..measured.of.lines.len())
        .flat_map(|line| (0..figure.places.len()).map(move |place| (line, place)));
    cells.filter_map(|(line, place)| {
        let (ours, printed) = (measured.ours(line, place), measured.printed(line, place)?);
        is_different(ours, printed).then(|| Miss {
            line,
            place,
            is_larger: ours > printed,
            claim: None,
            by: match printed == 0.0 {
                true => format!("{} instead of nothing", number(ours)),
                false => percent(ours, printed),
            },
        })
    })
}

fn claim_misses(measured: &MeasuredFigure) -> impl Iterator<Item = Miss> + '_ {
    let claims = measured.of.claims.iter().enumerate();
    claims.flat_map(move |(number_of_claim, claim)| {
        ratios(measured, claim).filter_map(move |(place, ratio)| {
            Some(Miss {
                // The difference is ascribed to the line that is divided.
                line: claim.line,
                place,
                is_larger: misses(claim, ratio)?,
                claim: Some(number_of_claim),
                by: number(ratio),
            })
        })
    })
}

/// The first reason that fits a difference and that its counter confirms.
fn reason(measured: &MeasuredFigure, miss: &Miss) -> Option<&'static Reason> {
    let figure = measured.figure;
    let claim = miss.claim.map(|claim| &measured.of.claims[claim]);
    figure.reasons.iter().find(|reason| {
        let is_about = |line: usize| reason.is_about(&measured.of.lines[line]);
        let of_line = is_about(miss.line) && reason.larger == miss.is_larger;
        // A smaller value of the line that divides makes the ratio larger.
        let of_other =
            claim.is_some_and(|claim| is_about(claim.by) && reason.larger != miss.is_larger);
        let line = match (of_line, claim) {
            (true, _) => miss.line,
            (false, Some(claim)) if of_other => claim.by,
            _ => return false,
        };
        let value = counter(measured, reason.counter, line, miss.place);
        reason.is_at(&figure.places[miss.place])
            && (reason.at_least..=reason.at_most).contains(&value)
    })
}

fn counter(measured: &MeasuredFigure, counter: Counter, line: usize, place: usize) -> f64 {
    counter.of(
        &measured.runs[line][place],
        measured.figure.places[place].phases,
    )
}

/// The line whose counter confirms a reason.
fn line_of(measured: &MeasuredFigure, reason: &Reason, miss: &Miss) -> usize {
    let is_about = |line: usize| reason.is_about(&measured.of.lines[line]);
    let claim = miss.claim.map(|claim| &measured.of.claims[claim]);
    match claim {
        Some(claim) if !(is_about(miss.line) && reason.larger == miss.is_larger) => claim.by,
        _ => miss.line,
    }
}

fn tell(measured: &MeasuredFigure, reason: Option<&Reason>, misses: &[Miss]) -> Difference {
    let figure = measured.figure;
    let first = &misses[0];
    let line = reason.map_or(first.line, |reason| line_of(measured, reason, first));
    let places: Vec<&str> = misses
        .iter()
        .map(|miss| figure.places[miss.place].name)
        .collect();
    let at = match (&places[..], figure.places.len()) {
        (_, 1) => String::new(),
        (all, count) if all.len() == count => ", everywhere".to_owned(),
        ([one], _) => format!(", {one}"),
        ([one, .., last], _) if is_a_row(misses) => format!(", {one} to {last}"),
        (some, _) => format!(", {}", some.join(", ")),
    };
    let by = match misses {
        [one] => one.by.clone(),
        [one, .., last] => format!("{} … {}", one.by, last.by),
        [] => String::new(),
    };
    let what = match first.claim {
        Some(claim) => format!("“{}”{at}: here {by}", measured.of.claims[claim].says),
        None => format!("{}{at}: {by}", measured.of.lines[first.line].name),
    };
    let values = |of: Counter| {
        let at = misses
            .iter()
            .map(|miss| counter(measured, of, line, miss.place));
        let (least, largest) = extremes(at);
        range(least, largest)
    };
    Difference {
        what,
        why: match reason {
            Some(reason) => {
                let says = reason.says.replace("{}", &values(reason.counter));
                says + &test(measured, reason, line, misses)
            }
            None => "No counter of the runs shows a reason.".to_owned(),
        },
        is_explained: reason.is_some(),
        counters: format!(
            "{}: {} writes of {} KiB and {} reads of the drive; of the time {} % without a request \
             for it, {} % for seeks and rotation, {} % for transfer, {} % for flushes; the processor \
             was busy for {} %; {} batches in the whole run",
            measured.of.lines[line].name,
            values(Counter::Writes),
            values(Counter::KibibytesPerWrite),
            values(Counter::Reads),
            values(Counter::IdlePercent),
            values(Counter::PositioningPercent),
            values(Counter::TransferPercent),
            values(Counter::FlushPercent),
            values(Counter::ProcessorPercent),
            values(Counter::Flushes),
        ),
    }
}

/// A sentence with the values on the changed machine that tests a reason; empty if none does.
fn test(measured: &MeasuredFigure, reason: &Reason, line: usize, misses: &[Miss]) -> String {
    let Some(change) = reason.test else {
        return String::new();
    };
    let values = misses.iter().filter_map(|miss| {
        Some((
            measured.changed(change, line, miss.place)?,
            measured.ours(line, miss.place),
        ))
    });
    let values: Vec<(f64, f64)> = values.collect();
    if values.is_empty() {
        return String::new();
    }
    let (least, largest) = extremes(values.iter().map(|pair| pair.0));
    let (least_here, largest_here) = extremes(values.iter().map(|pair| pair.1));
    format!(
        " With {} the value is {} instead of {}.",
        change.says(),
        range(least, largest),
        range(least_here, largest_here)
    )
}

/// Whether there are at least three places, and they are consecutive.
fn is_a_row(misses: &[Miss]) -> bool {
    misses.len() >= 3
        && misses
            .windows(2)
            .all(|pair| pair[1].place == pair[0].place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_with_three_digits() {
        let written = [0.0, 0.0123, 0.99951, 9.996, 45.44, 99.96, 1234.5].map(number);
        assert_eq!(
            written,
            ["0.00", "0.012", "1.00", "10.0", "45.4", "100", "1,235"]
        );
    }

    #[test]
    fn a_claim_is_judged_by_what_is_shown_of_a_ratio() {
        let claim = Claim {
            line: 1,
            by: 0,
            first: 0,
            last: 0,
            low: 0.93,
            high: 1.0,
            says: "",
        };
        let judged = [0.881, 0.9294, 0.9296, 0.95, 1.004, 1.006].map(|r| misses(&claim, r));
        let within = None;
        assert_eq!(
            judged,
            [Some(false), Some(false), within, within, within, Some(true)]
        );
    }

    #[test]
    fn ratios_become_words() {
        let words = [
            relation(Measure::Seconds, 3.64),
            relation(Measure::TransactionsPerSecond, 0.275),
            relation(Measure::TransactionsPerSecond, 1.03),
            relation(Measure::Patches, 0.1),
            relation(Measure::Seconds, 1.25),
            relation(Measure::UndoMegabytes, 0.5),
        ];
        assert_eq!(
            words,
            [
                "3.64 times slower",
                "3.64 times slower",
                "as fast",
                "10.0 times fewer patches",
                "25 % slower",
                "2.00 times less undo data"
            ]
        );
    }
}
