//! Charts: our values filled, the paper's as outlines of the same colour.

use super::ChartKind;
use super::judge::{number, sentence};
use super::run::MeasuredFigure;
use super::svg::{Anchor, Svg, TYPE, width_of};

/// Width of every chart: one that a phone shows without making the text too small.
const WIDTH: f64 = 560.0;
/// Between parts of a chart.
const GAP: f64 = 8.0;
/// The height of a bar.
const BAR: f64 = 12.0;
/// The height of a chart of lines, without its legend.
const PLOT: f64 = 260.0;
/// A line of a legend.
const LEGEND: f64 = 20.0;

/// Colours and fonts of all charts: dark if the reader prefers that, but not on paper.
pub(super) const STYLE: &str = "\
.chart{font-family:system-ui,sans-serif;font-size:13px;\
--ink:#1b1b1b;--soft:#5b5b5b;--grid:#d9d9d9;--ground:#fff;\
--c0:#0072b2;--c1:#00805c;--c2:#c04f00;--c3:#a8527f;--c4:#8a6a00;--c5:#2a7fb8;--c6:#6b6b6b}\
@media screen and (prefers-color-scheme:dark){.chart{\
--ink:#ececec;--soft:#b4b4b4;--grid:#444;--ground:#161616;\
--c0:#5ab4ec;--c1:#37c79d;--c2:#ff935a;--c3:#e59cc4;--c4:#e6bd4a;--c5:#9ad4f5;--c6:#b8b8b8}}\
.chart text{fill:var(--ink)}.chart .quiet{fill:var(--soft)}.chart .head{font-weight:600}\
.chart .ground{fill:var(--ground)}.chart .grid{stroke:var(--grid);stroke-width:1}\
.chart polyline{fill:none;stroke-width:2}.chart polyline.theirs{stroke-dasharray:3 4}\
.chart .ours.mark,.chart rect.ours{stroke:none}\
.chart .theirs.mark,.chart rect.theirs{fill:var(--ground);stroke-width:1.6}\
.chart .k0{--c:var(--c0)}.chart .k1{--c:var(--c1)}.chart .k2{--c:var(--c2)}.chart .k3{--c:var(--c3)}\
.chart .k4{--c:var(--c4)}.chart .k5{--c:var(--c5)}.chart .k6{--c:var(--c6)}\
.chart .ours.mark,.chart rect.ours{fill:var(--c)}\
.chart polyline.ours,.chart polyline.theirs,.chart .theirs.mark,.chart rect.theirs{stroke:var(--c)}";

/// The chart of a figure.
pub(super) fn chart(measured: &MeasuredFigure) -> Svg {
    match measured.figure.chart {
        ChartKind::Lines => lines(measured),
        ChartKind::Bars | ChartKind::LogBars => bars(measured),
    }
}

/// A description of a chart for readers who cannot see it.
pub(super) fn description(measured: &MeasuredFigure) -> String {
    let figure = measured.figure;
    let kind = match figure.chart {
        ChartKind::Lines => "Lines",
        _ => "Bars",
    };
    format!(
        "{kind}: {} by {}. {} The table below has every value.",
        figure.measure.unit(),
        if figure.axis.is_empty() {
            "workload"
        } else {
            figure.axis
        },
        sentence(measured)
    )
}

/// The colour of a line. An ordering has the same one in all figures in which it is compared.
fn colour(measured: &MeasuredFigure, line: usize) -> usize {
    let is_by_ordering = measured.of.lines[0].ordering != measured.of.lines[1].ordering;
    match measured.of.lines[line].ordering {
        _ if !is_by_ordering => line,
        "async" => 0,
        "soft" => 1,
        "sync" => 2,
        "journal=writeback" => 3,
        "journal=full" => 4,
        // In these tables the schemes are compared with `sync` only.
        _ => [6, 0, 1, 3, 4, 5, 6][line % 7],
    }
}

fn class(measured: &MeasuredFigure, line: usize, whose: &str) -> String {
    format!("{whose} k{}", colour(measured, line))
}

/// The largest value, ours or the paper's.
fn largest(measured: &MeasuredFigure) -> f64 {
    let figure = measured.figure;
    let places = 0..figure.places.len();
    let all = (0..measured.of.lines.len()).flat_map(|line| {
        places.clone().flat_map(move |place| {
            [
                Some(measured.ours(line, place)),
                measured.printed(line, place),
            ]
        })
    });
    all.flatten().fold(1e-9, f64::max)
}

/// The step of an axis from zero: 1, 2 or 5 times a power of ten, so that there are four to nine.
fn step(largest: f64) -> f64 {
    let power = 10_f64.powf((largest / 5.0).log10().floor());
    let fits = |step: &f64| largest / step <= 6.0;
    let steps = [power, 2.0 * power, 5.0 * power, 10.0 * power];
    steps.into_iter().find(fits).unwrap_or(10.0 * power)
}

/// A number at an axis.
fn tick(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        large if large >= 1e6 => format!("{} M", large / 1e6),
        whole if whole.fract() == 0.0 => number(whole).replace(".00", "").replace(".0", ""),
        other => format!("{other}"),
    }
}

/// A horizontal axis for bars.
struct Scale {
    left: f64,
    width: f64,
    largest: f64,
    /// The smallest value of a logarithmic scale.
    least: Option<f64>,
}

impl Scale {
    fn of(measured: &MeasuredFigure, left: f64, width: f64) -> Scale {
        let largest = largest(measured);
        let is_logarithmic = measured.figure.chart == ChartKind::LogBars;
        Scale {
            left,
            width,
            largest,
            // Five powers of ten, enough for the values of undo data.
            least: is_logarithmic.then(|| 10_f64.powf(largest.log10().ceil() - 6.0)),
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.least {
            Some(least) if value <= least => 0.0,
            Some(least) => (value / least).log10() / (self.largest / least).log10(),
            None => value / self.largest,
        };
        self.left + self.width * part
    }

    fn ticks(&self) -> Vec<f64> {
        match self.least {
            Some(least) => {
                let powers = (0..7).map(|power| least * 10_f64.powi(power));
                powers.filter(|tick| *tick <= self.largest).collect()
            }
            None => {
                let step = step(self.largest);
                let count = (self.largest / step).floor() as u32;
                (0..=count).map(|tick| step * f64::from(tick)).collect()
            }
        }
    }
}

fn bars(measured: &MeasuredFigure) -> Svg {
    let figure = measured.figure;
    let names = measured.of.lines.iter().map(|line| width_of(line.name));
    let left = names.fold(0.0, f64::max) + 2.0 * GAP;
    // After the longest bar there is room for its value.
    let scale = Scale::of(measured, left, WIDTH - left - width_of("0,000,000") - GAP);
    let has_heads = figure.places.len() > 1;
    let bars_of = |line: usize| if measured.has_printed(line) { 2.0 } else { 1.0 };
    let lines_height: f64 = (0..measured.of.lines.len())
        .map(|line| bars_of(line) * (BAR + 1.0) + GAP)
        .sum();
    let head = if has_heads { TYPE + GAP } else { 0.0 };
    let group = head + lines_height + GAP;
    let top = LEGEND + GAP;
    let bottom = top + group * figure.places.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 2.0 * TYPE + 2.0 * GAP);
    bar_legend(&mut svg);
    for value in scale.ticks() {
        let x = scale.at(value);
        svg.line((x, top), (x, bottom), "grid");
        svg.text(
            x,
            bottom + TYPE + 2.0,
            Anchor::Middle,
            "quiet",
            &tick(value),
        );
    }
    let unit = match scale.least {
        Some(_) => format!(
            "{}, each line ten times the one before",
            figure.measure.unit()
        ),
        None => figure.measure.unit().to_owned(),
    };
    let below = bottom + 2.0 * TYPE + GAP;
    svg.text(WIDTH - GAP, below, Anchor::End, "quiet", &unit);
    let mut y = top;
    for (place, named) in figure.places.iter().enumerate() {
        if has_heads {
            svg.text(GAP, y + TYPE, Anchor::Start, "head", named.name);
            y += head;
        }
        for (line, of) in measured.of.lines.iter().enumerate() {
            let middle = y + bars_of(line) * (BAR + 1.0) / 2.0 + TYPE / 3.0;
            svg.text(left - GAP, middle, Anchor::End, "", of.name);
            let ours = ("ours", Some(measured.ours(line, place)));
            let theirs = ("theirs", measured.printed(line, place));
            for (whose, value) in [ours, theirs] {
                let Some(value) = value else { continue };
                let class = class(measured, line, whose);
                let end = scale.at(value);
                svg.rectangle(left, y + 0.5, end - left, BAR - 1.0, &class);
                let label = number(value);
                svg.text(end + 5.0, y + BAR - 1.5, Anchor::Start, "quiet", &label);
                y += BAR + 1.0;
            }
            y += GAP;
        }
        y += GAP;
    }
    svg
}

fn bar_legend(svg: &mut Svg) {
    let mut x = GAP;
    for (whose, label) in [("ours", "Backstitch"), ("theirs", "the paper")] {
        svg.rectangle(x, 5.0, 22.0, BAR - 1.0, &format!("{whose} k6"));
        svg.text(x + 28.0, 5.0 + BAR - 1.5, Anchor::Start, "", label);
        x += 28.0 + width_of(label) + 3.0 * GAP;
    }
}

/// Places points in a chart of lines.
struct Plane {
    left: f64,
    top: f64,
    width: f64,
    largest: f64,
    places: usize,
}

impl Plane {
    fn x(&self, place: usize) -> f64 {
        let by = self.width / self.places.max(1) as f64;
        self.left + by * (place as f64 + 0.5)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + PLOT * (1.0 - value / self.largest)
    }

    fn point(&self, place: usize, value: f64) -> (f64, f64) {
        (self.x(place), self.y(value))
    }
}

fn lines(measured: &MeasuredFigure) -> Svg {
    let figure = measured.figure;
    let largest = largest(measured);
    let step = step(largest);
    let largest = (largest / step).ceil() * step;
    let count = (largest / step).round() as u32;
    let ticks = (0..=count).map(|number| step * f64::from(number));
    let left = ticks
        .clone()
        .map(|value| width_of(&tick(value)))
        .fold(0.0, f64::max)
        + 2.0 * GAP;
    let legend = legend_lines(measured) as f64 * LEGEND;
    let plane = Plane {
        left,
        top: legend + 2.0 * GAP + TYPE,
        width: WIDTH - left - GAP,
        largest,
        places: figure.places.len(),
    };
    let bottom = plane.top + PLOT;
    let mut svg = Svg::new(WIDTH, bottom + 2.0 * TYPE + 3.0 * GAP);
    line_legend(&mut svg, measured);
    svg.text(
        GAP,
        legend + TYPE + 2.0,
        Anchor::Start,
        "quiet",
        figure.measure.unit(),
    );
    for value in ticks {
        let y = plane.y(value);
        svg.line((left, y), (WIDTH - GAP, y), "grid");
        svg.text(
            left - 6.0,
            y + TYPE / 3.0,
            Anchor::End,
            "quiet",
            &tick(value),
        );
    }
    for (place, named) in figure.places.iter().enumerate() {
        let label = named.name.replace(" KB", "K").replace(" MB", "M");
        svg.text(
            plane.x(place),
            bottom + TYPE + 4.0,
            Anchor::Middle,
            "quiet",
            &label,
        );
    }
    let below = bottom + 2.0 * TYPE + 2.0 * GAP;
    svg.text(WIDTH - GAP, below, Anchor::End, "quiet", figure.axis);
    for line in 0..measured.of.lines.len() {
        let ours = |place| Some(measured.ours(line, place));
        let theirs = |place| measured.printed(line, place);
        draw_line(&mut svg, measured, &plane, line, "theirs", theirs);
        draw_line(&mut svg, measured, &plane, line, "ours", ours);
    }
    svg
}

fn draw_line(
    svg: &mut Svg,
    measured: &MeasuredFigure,
    plane: &Plane,
    line: usize,
    whose: &str,
    value: impl Fn(usize) -> Option<f64>,
) {
    let places = 0..measured.figure.places.len();
    let points = places.filter_map(|place| Some(plane.point(place, value(place)?)));
    let points: Vec<(f64, f64)> = points.collect();
    let class = class(measured, line, whose);
    if points.len() > 1 {
        svg.path(&points, &class);
    }
    for point in points {
        svg.mark(line, point, &format!("{class} mark"));
    }
}

/// The entries of a legend: for each line ours, and the paper's.
fn legend(measured: &MeasuredFigure) -> Vec<(usize, &'static str, String)> {
    let named = measured.of.lines.iter().enumerate();
    let mut all: Vec<_> = named
        .map(|(line, named)| (line, "ours", named.name.to_owned()))
        .collect();
    let printed = (0..measured.of.lines.len()).filter(|line| measured.has_printed(*line));
    all.extend(printed.map(|line| {
        let name = format!("{}, the paper", measured.of.lines[line].name);
        (line, "theirs", name)
    }));
    all
}

fn legend_places(measured: &MeasuredFigure) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (GAP, 0.0);
    let places = legend(measured).into_iter().map(|(_, _, name)| {
        let width = 34.0 + width_of(&name) + 2.0 * GAP;
        if x + width > WIDTH {
            (x, y) = (GAP, y + LEGEND);
        }
        let place = (x, y);
        x += width;
        place
    });
    places.collect()
}

fn legend_lines(measured: &MeasuredFigure) -> usize {
    let last = legend_places(measured).last().map_or(0.0, |(_, y)| *y);
    (last / LEGEND) as usize + 1
}

fn line_legend(svg: &mut Svg, measured: &MeasuredFigure) {
    let places = legend_places(measured);
    for ((line, whose, name), (x, y)) in legend(measured).into_iter().zip(places) {
        let class = class(measured, line, whose);
        let middle = y + LEGEND / 2.0;
        svg.path(&[(x, middle), (x + 28.0, middle)], &class);
        svg.mark(line, (x + 14.0, middle), &format!("{class} mark"));
        svg.text(x + 34.0, middle + TYPE / 3.0, Anchor::Start, "", &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_steps() {
        assert_eq!(
            [0.9, 3.6, 12.0, 165.0, 4.2e6].map(step),
            [0.2, 1.0, 2.0, 50.0, 1e6]
        );
        assert_eq!([0.0, 0.2, 50.0, 1e6].map(tick), ["0", "0.2", "50", "1 M"]);
    }
}
