//! Pictures of runs, as SVG.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::paper::{FIGURE_9, OptimisationRow, PROTOTYPE, find};
use crate::series::Series;
use crate::table::thousands;
use crate::{Error, Result, Run};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

/// Bars of one colour: a name, and a value or none for each place on the axis.
struct Bars {
    name: String,
    values: Vec<Option<f64>>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Plot(error.to_string())
}

/// Draws `optimisations.svg` in `directory`: patches and undo bytes, ours, the paper's and the
/// prototype's.
///
/// # Errors
///
/// Where the picture cannot be written.
pub fn plot_optimisations(all: &[Series], directory: &Path) -> Result<PathBuf> {
    let path = directory.join("optimisations.svg");
    let runs: Vec<&Run> = all.iter().map(Series::median).collect();
    let opt = |run: &Run| run.opt.clone().unwrap_or_default();
    let places: Vec<String> = runs
        .iter()
        .map(|run| format!("{} {}", run.workload, opt(run)))
        .collect();
    let rows = |table: &[OptimisationRow], figure: fn(OptimisationRow) -> f64| -> Vec<_> {
        let found = runs.iter().map(|run| find(table, run.workload, &opt(run)));
        found.map(|row| row.map(figure)).collect()
    };
    let bars = |ours: Vec<Option<f64>>, figure: fn(OptimisationRow) -> f64| {
        let named = [
            ("Backstitch", ours),
            ("Frost et al. 2007", rows(&FIGURE_9, figure)),
            ("the prototype", rows(&PROTOTYPE, figure)),
        ];
        named.map(|(name, values)| Bars {
            name: name.to_owned(),
            values,
        })
    };
    let patches = runs
        .iter()
        .map(|run| run.engine.map(|e| e.patches_created as f64));
    let undo = runs
        .iter()
        .map(|run| run.engine.map(|e| e.undo_bytes_total as f64));
    let patches = bars(patches.collect(), |row| row.patches as f64);
    let undo = bars(undo.collect(), |row| row.undo_megabytes * 1e6);
    let root = SVGBackend::new(&path, (1400, 900)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let (upper, lower) = root.split_vertically(450);
    draw_logarithmic(&upper, "Patches created", &places, &patches)?;
    draw_logarithmic(&lower, "Undo bytes", &places, &undo)?;
    root.present().map_err(failed)?;
    drop((upper, lower, root));
    Ok(path)
}

/// Draws `runs.svg` in `directory`: elapsed and CPU seconds of each series.
///
/// # Errors
///
/// Where the picture cannot be written.
pub fn plot_runs(all: &[Series], directory: &Path) -> Result<PathBuf> {
    let path = directory.join("runs.svg");
    let places: Vec<String> = all
        .iter()
        .map(|series| {
            let run = series.median();
            let words = [Some(run.workload.to_owned()), run.ordering.clone()];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        })
        .collect();
    let median = |figure: fn(&Run) -> f64| {
        let values = all.iter().map(|series| Some(series.spread(figure)[0]));
        values.collect::<Vec<_>>()
    };
    let bars = [
        Bars {
            name: "elapsed".to_owned(),
            values: median(|run| run.elapsed_seconds),
        },
        Bars {
            name: "CPU".to_owned(),
            values: median(Run::cpu_seconds),
        },
    ];
    let root = SVGBackend::new(&path, (1000, 450)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let largest = largest(&bars);
    let mut chart = ChartBuilder::on(&root)
        .caption("Seconds, median", ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..places.len() as f64, 0.0..largest * 1.1)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * places.len() + 1)
        .x_label_formatter(&|x| label(&places, *x))
        .draw()
        .map_err(failed)?;
    draw_bars(&mut chart, &bars, 0.0)?;
    drop(chart);
    root.present().map_err(failed)?;
    drop(root);
    Ok(path)
}

fn draw_logarithmic(area: &Area<'_>, title: &str, places: &[String], bars: &[Bars]) -> Result<()> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(90)
        .build_cartesian_2d(
            0.0..places.len() as f64,
            (1.0..largest(bars).max(10.0) * 2.0).log_scale(),
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * places.len() + 1)
        .x_label_formatter(&|x| label(places, *x))
        .y_label_formatter(&|y| thousands(*y as u64))
        .draw()
        .map_err(failed)?;
    draw_bars(&mut chart, bars, 1.0)
}

/// Draws the bars upwards from `base`, and the legend.
fn draw_bars<'a, 'b: 'a, Y: Ranged<ValueType = f64> + 'a>(
    chart: &mut Chart<'a, 'b, Y>,
    bars: &[Bars],
    base: f64,
) -> Result<()> {
    for (index, set) in bars.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(rectangles(set, index, bars.len(), base, colour))
            .map_err(failed)?
            .label(set.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    }
    chart.configure_series_labels().draw().map_err(failed)
}

fn largest(bars: &[Bars]) -> f64 {
    let all = bars.iter().flat_map(|set| set.values.iter().flatten());
    all.copied().fold(1e-3, f64::max)
}

/// The name of a place, in the middle of it.
fn label(places: &[String], x: f64) -> String {
    let middle = (x.fract() - 0.5).abs() < 0.01;
    let place = places.get(x as usize).filter(|_| middle);
    place.cloned().unwrap_or_default()
}

fn rectangles(
    set: &Bars,
    index: usize,
    of: usize,
    base: f64,
    colour: RGBAColor,
) -> Vec<Rectangle<(f64, f64)>> {
    let width = 0.8 / of as f64;
    let shown = set.values.iter().enumerate();
    shown
        .filter_map(|(place, value)| {
            let left = place as f64 + 0.1 + width * index as f64;
            let top = value.filter(|value| *value > base)?;
            Some(Rectangle::new(
                [(left, base), (left + width * 0.95, top)],
                colour.filled(),
            ))
        })
        .collect()
}
