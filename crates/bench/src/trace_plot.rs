//! A picture of the requests of a simulated disk: their place on the disk over time.

use std::path::Path;

use backstitch_drives::{Completion, Kind};
use plotters::prelude::*;

use crate::series::Series;
use crate::{Error, Result, Run};

/// Sectors of a MiB.
const SECTORS_PER_MIB: f64 = 2048.0;

/// The kinds in the order of the legend, with colours that most people can tell apart.
const KINDS: [(Kind, &str, RGBColor); 4] = [
    (Kind::Read, "read", RGBColor(0, 114, 178)),
    (Kind::Write, "write", RGBColor(213, 94, 0)),
    (Kind::WriteThrough, "forced write", RGBColor(204, 121, 167)),
    (Kind::Flush, "flush", RGBColor(0, 158, 115)),
];

/// Draws `trace-WORKLOAD-ORDERING….svg` in `directory` for each run whose requests were recorded:
/// one line for each request, at its first block, from its submission to its end.
///
/// # Errors
///
/// Where a picture cannot be written.
pub fn plot_traces(all: &[Series], directory: &Path) -> Result<()> {
    for series in all {
        let run = &series.runs[0];
        if !run.trace.is_empty() {
            draw(run, &directory.join(file_name(run)))?;
        }
    }
    Ok(())
}

/// The name of a run, in characters that need no quoting.
fn file_name(run: &Run) -> String {
    let words = [Some(run.workload), run.variant.as_deref()];
    let words = words.into_iter().chain([run.ordering.as_deref()]).flatten();
    let name = words.fold("trace".to_owned(), |name, word| name + "-" + word);
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "-") + ".svg"
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Plot(error.to_string())
}

fn draw(run: &Run, path: &Path) -> Result<()> {
    let trace = &run.trace;
    let begin_ns = trace.iter().map(|c| c.submitted_ns).min().unwrap_or(0);
    let seconds = |ns: u64| (ns - begin_ns) as f64 / 1e9;
    let mib = |sector: u64| sector as f64 / SECTORS_PER_MIB;
    let end = trace
        .iter()
        .map(|c| seconds(c.completed_ns))
        .fold(1e-6, f64::max);
    let top = trace.iter().map(|c| mib(c.sector)).fold(1.0, f64::max);
    let root = SVGBackend::new(path, (1200, 600)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let ordering = run.ordering.as_deref().unwrap_or_default();
    let title = format!("{} under {ordering}, {}", run.workload, run.target);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..end, 0.0..top * 1.05)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("seconds")
        .y_desc("place on the disk, MiB")
        .draw()
        .map_err(failed)?;
    let line = |c: &Completion, colour: RGBColor| {
        let from = (seconds(c.submitted_ns), mib(c.sector));
        PathElement::new(vec![from, (seconds(c.completed_ns), from.1)], colour)
    };
    for (kind, name, colour) in KINDS {
        let of_kind = trace.iter().filter(|c| c.kind == kind);
        let mut of_kind = of_kind.peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        chart
            .draw_series(of_kind.map(|c| line(c, colour)))
            .map_err(failed)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .draw()
        .map_err(failed)?;
    drop(chart);
    root.present().map_err(failed)
}
