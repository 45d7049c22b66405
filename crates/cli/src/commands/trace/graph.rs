//! `backstitch trace graph`.

use super::{COMMAND, opened, patch, read, warn_of_missing};
use backstitch_files::error::{Error, Result};
use backstitch_files::show;
use backstitch_trace::graph::{By, Drawing, Wanted};
use backstitch_trace::{Keep, Moment, normal_path, state_at};
use clap::ValueEnum;
use std::path::PathBuf;

/// Draw the graph at a moment: which patches there are, how each stands, which waits for which.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Patches are in flight (on their way to the disk), ready (they could be written), or waiting; with --all also committed. An arrow leads
from a patch to one that must be on the disk no later. A patch with a heavy border has no undo data.

Examples:
  backstitch trace graph t.trace --at batch:3 --format svg > g.svg
  backstitch trace graph t.trace --at 1.5s --by operation | dot -Tsvg > g.svg
  backstitch trace graph t.trace --at '#812' --path /src/main.c     what keeps this file from the disk"
)]
pub(super) struct Args {
    /// The trace
    file: PathBuf,
    /// The moment: end, #RECORD or batch:NUMBER as show numbers them, 1.5s or 20ms after the mount
    #[arg(long, value_name = "MOMENT", default_value = "end")]
    at: Moment,
    /// What to put patches together by
    #[arg(long, default_value = "block")]
    by: Together,
    /// dot for Graphviz, svg for a picture, json for programs
    #[arg(long, default_value = "dot")]
    format: Format,
    /// Draw what is on the disk already too
    #[arg(long)]
    all: bool,
    /// Only patches of operations about this path, and what they wait for
    #[arg(long)]
    path: Option<String>,
    /// Only patches of operations about this inode, and what they wait for
    #[arg(long, value_name = "N")]
    inode: Option<u64>,
    /// Only this patch, and what it waits for: its number as show prints it
    #[arg(long, value_name = "N", value_parser = patch)]
    patch: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Together {
    /// The block that they change
    Block,
    /// The operation that they were made for
    Operation,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For Graphviz
    Dot,
    /// A picture
    Svg,
    /// For programs
    Json,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let bytes = read(&args.file)?;
    let trace = opened(&args.file, &bytes)?;
    let keep = match args.all {
        true => Keep::Everything,
        false => Keep::Live,
    };
    let state =
        state_at(&trace, args.at, keep).map_err(|why| Error::at_path(COMMAND, &args.file, why))?;
    let by = match args.by {
        Together::Block => By::Block,
        Together::Operation => By::Operation,
    };
    let wanted = Wanted {
        path: args.path.as_deref().map(normal_path),
        object: args.inode,
        patch: args.patch,
    };
    let drawing = Drawing::of(&state, by, &wanted);
    match args.format {
        Format::Dot => show::print_bytes(COMMAND, drawing.dot().as_bytes())?,
        Format::Svg => show::print_bytes(COMMAND, drawing.svg().as_bytes())?,
        Format::Json => show::print_json(COMMAND, &drawing.json())?,
    }
    warn_of_missing(&args.file, state.is_cut, state.lost);
    Ok(())
}
