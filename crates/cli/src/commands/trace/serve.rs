//! `backstitch trace serve`.

use super::{COMMAND, opened, read, warn_of_missing};
use backstitch_files::error::{Error, Result, host};
use backstitch_files::show;
use backstitch_trace_page::{Answers, Server};
use std::path::PathBuf;

/// Show a trace in a browser: when what happened, the graph at each moment, and answers.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The page is at the address that is printed, for this machine only, and only for those who know that address. It is there until Ctrl-C.
What is damaged or missing in the trace is said there; what comes before it can be looked at.

Examples:
  backstitch trace serve t.trace
  backstitch trace serve --port 8000 t.trace"
)]
pub(super) struct Args {
    /// The trace
    file: PathBuf,
    /// The port; 0 for one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

pub(super) fn run(args: &Args) -> Result<()> {
    if args.file.is_dir() {
        let error = Error::at_path(COMMAND, &args.file, "a trace was expected, not a directory");
        return Err(error.hint("what a mount does can be recorded: backstitch trace record"));
    }
    let place = match args.port {
        0 => "serve".to_owned(),
        port => format!("port {port}"),
    };
    let failed = |error: std::io::Error| Error::failed(COMMAND, &place, host(&error));
    let bytes = read(&args.file)?;
    let trace = opened(&args.file, &bytes)?;
    let server = Server::bind(args.port).map_err(failed)?;
    let answers = Answers::new(args.file.display().to_string(), trace);
    warn_of_missing(&args.file, answers.is_cut(), answers.lost_events());
    show::print_bytes(COMMAND, format!("{}\n", server.address()).as_bytes())?;
    server.run(&answers).map_err(failed)
}
