//! `backstitch trace show`.

use super::{COMMAND, opened, read, warn_of_missing};
use backstitch_files::error::{Error, Result, host};
use backstitch_ordering::Operation;
use backstitch_trace::show::{Filter, Lines};
use backstitch_trace::{Keep, Moment, State, normal_path};
use clap::builder::PossibleValuesParser;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Print a trace, record by record.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Filters that are given together must all hold. Of an operation that is shown, what becomes of its patches later is shown too.

Examples:
  backstitch trace show t.trace
  backstitch trace show t.trace --path /src --operation create
  backstitch trace show t.trace --block 34 --json | jq 'select(.event == \"write\")'
  backstitch trace show t.trace --from 1.5s --until 2s"
)]
pub(super) struct Args {
    /// The trace
    file: PathBuf,
    /// Operations about this path, or about something below it
    #[arg(long)]
    path: Option<String>,
    /// Operations about the inode with this number
    #[arg(long, value_name = "N")]
    inode: Option<u64>,
    /// Records about the block with this number
    #[arg(long, value_name = "N")]
    block: Option<u64>,
    /// Operations of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Operation::WORDS))]
    operation: Option<String>,
    /// Records from this time on: 1.5s, 20ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Duration>,
    /// Records before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Duration>,
    /// One JSON document a line
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> std::result::Result<Duration, String> {
    match text.parse()? {
        Moment::Time(time) => Ok(time),
        _ => Err("a time was expected: 1.5s, 20ms".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let bytes = read(&args.file)?;
    let trace = opened(&args.file, &bytes)?;
    let mut lines = Lines::new(Filter {
        path: args.path.as_deref().map(normal_path),
        object: args.inode,
        block: args.block,
        operation: args.operation.clone(),
        from: args.from,
        until: args.until,
    });
    let mut state = State::of(&trace, Keep::Live);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut records, mut list) = (trace.records(), Vec::new());
    loop {
        let next = records.next(&mut list);
        let next = next.map_err(|why| Error::at_path(COMMAND, &args.file, why));
        let (number, record) = match next {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(error) => {
                // What can be read is shown.
                let _ = out.flush();
                return Err(error);
            }
        };
        state.apply(&record);
        let Some(line) = lines.line(number, &record, &state) else {
            continue;
        };
        let written = match args.json {
            true => writeln!(out, "{}", line.json),
            false => {
                let seconds = line.time.as_secs_f64();
                writeln!(out, "#{:<8} {seconds:>11.6} {}", line.record, line.text)
            }
        };
        match written {
            Ok(()) => {}
            // Who reads has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Error::failed(COMMAND, "standard output", host(&error))),
        }
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(Error::failed(COMMAND, "standard output", host(&error)));
        }
        _ => {}
    }
    warn_of_missing(&args.file, records.is_cut(), state.lost);
    Ok(())
}
