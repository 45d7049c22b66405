//! `backstitch trace`: what waits for what.

mod graph;
mod judge;
mod output;
mod record;
mod replay;
mod script;
mod serve;
mod show;
mod stats;
mod why;

use backstitch_files::error::{Error, Result, host, warn_line};
use backstitch_trace::Trace;
use clap::Subcommand;
use std::path::Path;
use std::process::ExitCode;

const COMMAND: &str = "trace";

/// Record what waits for what, and show, draw, explain, count or replay it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch trace record -o t.trace /mnt -- cp -r src /mnt     record a mount while a command runs
  backstitch trace record -o t.trace --script 'mkdir d; creat d/a; fsync d/a'
                                                                a script in memory, without a mount
  backstitch trace show t.trace --path /src/main.c              what became of one file's changes
  backstitch trace graph t.trace --at 1.5s --format svg > g.svg
  backstitch trace why t.trace --at 1.5s --path /src/main.c     why it is not on the disk yet
  backstitch trace serve t.trace                                all of that as a page for a browser
  backstitch trace stats t.trace

Each of them has more with --help. A moment is end, #RECORD (as show numbers them), batch:NUMBER, or a time since the mount: 1.5s, 20ms.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    Record(record::Args),
    Show(show::Args),
    Graph(graph::Args),
    Why(why::Args),
    Serve(serve::Args),
    Stats(stats::Args),
    Replay(replay::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let done = match &args.what {
        What::Record(args) => return record::run(args),
        What::Show(args) => show::run(args),
        What::Graph(args) => graph::run(args),
        What::Why(args) => why::run(args),
        What::Serve(args) => serve::run(args),
        What::Stats(args) => stats::run(args),
        What::Replay(args) => replay::run(args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Reads a file that should be a trace.
fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::at_path(COMMAND, path, host(&error)))
}

/// The head of a trace.
fn opened<'t>(path: &Path, bytes: &'t [u8]) -> Result<Trace<'t>> {
    Trace::new(bytes).map_err(|why| Error::at_path(COMMAND, path, why))
}

/// A patch's number, as `show` prints it or without the letter.
fn patch(text: &str) -> std::result::Result<u64, String> {
    let digits = text.strip_prefix('p').unwrap_or(text);
    digits.parse().map_err(|_| "a number was expected".into())
}

/// Says so where a trace does not have all of its recording.
fn warn_of_missing(path: &Path, is_cut: bool, lost_events: Option<u64>) {
    let path = path.display();
    if is_cut {
        warn_line(&format!(
            "trace: {path}: cut off before its end: its recorder was killed, or is still writing"
        ));
    }
    if let Some(events) = lost_events {
        warn_line(&format!(
            "trace: {path}: not complete: at least {events} events at its end could not be kept"
        ));
    }
}
