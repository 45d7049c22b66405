//! `backstitch trace serve`.

use super::judge::ByTools;
use super::{COMMAND, opened, read, record, warn_of_missing};
use crate::commands::stats::failure;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::show;
use backstitch_fuse::TraceStream;
use backstitch_trace_page::{Answering, Answers, Live, Server};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Show a trace, or a mount in use, in a browser: when what happened, the graph at each moment, and answers.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The page is at the address that is printed, for this machine only, and only for those who know that address. It is there until Ctrl-C.
What is damaged or missing in a trace is said there; what comes before it can be looked at.

A mount is recorded while it is served, under the rules of trace record. The page has its last minute, or less where more than 16 MiB were
recorded in that time. It follows until it is halted at a moment.

Examples:
  backstitch trace serve t.trace
  backstitch trace serve /mnt
  backstitch trace serve --image before.img t.trace
  backstitch trace serve --port 8000 t.trace"
)]
pub(super) struct Args {
    /// The trace, or the directory of a mount
    target: PathBuf,
    /// The image as it was when the recording with --contents began: the page then shows what a check and a mount find of each state that a
    /// crash can leave
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The same of the device that the image's log or journal has to itself
    #[arg(long, value_name = "FILE", requires = "image")]
    log_device: Option<PathBuf>,
    /// The port; 0 for one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

pub(super) fn run(args: &Args) -> Result<()> {
    if args.target.is_dir() {
        return of_mount(args, &args.target);
    }
    let bytes = read(&args.target)?;
    let trace = opened(&args.target, &bytes)?;
    let server = bind(args)?;
    let judge = ByTools {
        image: args.image.clone(),
        log: args.log_device.clone(),
    };
    // What cannot be opened is said now.
    judge.open()?;
    let answers = Answers::new(args.target.display().to_string(), trace).judged_by(&judge);
    warn_of_missing(&args.target, answers.is_cut(), answers.lost_events());
    serve(args, &server, &answers)
}

fn failed(args: &Args, error: &std::io::Error) -> Error {
    let place = match args.port {
        0 => "serve".to_owned(),
        port => format!("port {port}"),
    };
    Error::failed(COMMAND, &place, host(error))
}

fn bind(args: &Args) -> Result<Server> {
    Server::bind(args.port).map_err(|error| failed(args, &error))
}

fn serve(args: &Args, server: &Server, answers: &impl Answering) -> Result<()> {
    show::print_bytes(COMMAND, format!("{}\n", server.address()).as_bytes())?;
    server.run(answers).map_err(|error| failed(args, &error))
}

/// The recording ends with this process, which closes its connection.
fn of_mount(args: &Args, dir: &Path) -> Result<()> {
    backstitch_fuse::stats_of(dir).map_err(|error| failure(COMMAND, dir, &error))?;
    let server = bind(args)?;
    let stream = record::begin(dir, false)?;
    let live = Live::new(dir.display().to_string());
    std::thread::scope(|scope| {
        scope.spawn(|| live.end(&follow(dir, stream, &live)));
        serve(args, &server, &live)
    })
}

/// Passes a recording on, and after a gap in it the next one; why there is no more.
fn follow(dir: &Path, mut stream: TraceStream, live: &Live) -> String {
    loop {
        match pass_on(&mut stream, live) {
            Ok(None) => return "the mount has ended".to_owned(),
            Ok(Some(_)) => {}
            Err(why) => return why,
        }
        stream = match backstitch_fuse::begin_trace(dir, false) {
            Ok(stream) => stream,
            Err(error) => return format!("the recording cannot go on: {}", host(&error)),
        };
    }
}

/// Passes one recording on; how many events are missing at its end, where some are.
fn pass_on(stream: &mut TraceStream, live: &Live) -> std::result::Result<Option<u64>, String> {
    let mut has_begun = false;
    loop {
        let mut piece = Vec::new();
        let ended = stream
            .next(&mut piece)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => "the mount's daemon has died".to_owned(),
                _ => host(&error),
            })?;
        if let Some(end) = ended {
            return Ok(end.lost_events);
        }
        // The first piece is the head, each further one a chunk.
        let taken = match has_begun {
            false => live.begin(piece),
            true => live.take(piece),
        };
        has_begun = true;
        taken.map_err(|error| error.to_string())?;
    }
}
