//! `backstitch trace why`.

use super::{COMMAND, opened, patch, read, warn_of_missing};
use backstitch_files::error::{Error, Result};
use backstitch_files::show;
use backstitch_trace::graph::Wanted;
use backstitch_trace::why::{crash, dirty, versions, wait};
use backstitch_trace::{Keep, Moment, State, Trace, normal_path, walk_to};
use serde_json::Value;
use std::path::PathBuf;

/// Say why something is not on the disk yet, what an fsync waited for, why a block was written again,
/// or whether a crash can leave one change without another.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("question").required(true),
    after_help = "A round is a batch of writes: what waits for something on another block takes one round more than that. Patches have the numbers that
show prints.

Examples:
  backstitch trace why t.trace --at 1.5s --path /src/main.c     why is it not on the disk?
  backstitch trace why t.trace --wait                           what did the longest fsync wait for?
  backstitch trace why t.trace --block 34                       why was this block written, and again?
  backstitch trace why t.trace --at '#812' --with p40 --without p38
                                                                can a crash leave p40 without p38?"
)]
pub(super) struct Args {
    /// The trace
    file: PathBuf,
    /// The moment: end, #RECORD or batch:NUMBER as show numbers them, 1.5s or 20ms after the mount
    #[arg(long, value_name = "MOMENT", default_value = "end")]
    at: Moment,
    /// Why is what operations about this path changed not on the disk?
    #[arg(long, group = "question")]
    path: Option<String>,
    /// Why is what operations about this inode changed not on the disk?
    #[arg(long, value_name = "N", group = "question")]
    inode: Option<u64>,
    /// Why is this patch not on the disk?
    #[arg(long, value_name = "N", value_parser = patch, group = "question")]
    patch: Option<u64>,
    /// What did the wait with this ticket (as show prints it) wait for? Without one, the wait that
    /// took the most rounds
    #[arg(long, value_name = "TICKET", group = "question", conflicts_with = "at")]
    wait: Option<Option<u64>>,
    /// Why was the block with this number written, each time?
    #[arg(long, value_name = "N", group = "question", conflicts_with = "at")]
    block: Option<u64>,
    /// Can a crash leave this patch on the disk, without the one of --without?
    #[arg(long, value_name = "N", value_parser = patch, group = "question", requires = "without")]
    with: Option<u64>,
    /// See --with
    #[arg(long, value_name = "N", value_parser = patch, requires = "with")]
    without: Option<u64>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// The answer, for people and for programs.
type Answer = (String, Value);

pub(super) fn run(args: &Args) -> Result<()> {
    let bytes = read(&args.file)?;
    let trace = opened(&args.file, &bytes)?;
    let failed = |why| Error::at_path(COMMAND, &args.file, why);
    if args.wait.is_some() || args.block.is_some() {
        let (is_cut, lost) = trace.missing().map_err(failed)?;
        warn_of_missing(&args.file, is_cut, lost);
    }
    let (text, json) = match (args.wait, args.block) {
        (Some(ticket), _) => about_wait(args, &trace, ticket)?,
        (None, Some(block)) => {
            let found = versions::versions(&trace, block).map_err(failed)?;
            (versions::text(&found), versions::json(&found))
        }
        (None, None) => {
            let wanted = Wanted {
                path: args.path.as_deref().map(normal_path),
                object: args.inode,
                patch: args.patch,
            };
            let mut is_known = args.patch.is_some();
            let seen = |state: &State| is_known |= wanted.is_under_way(state);
            // What became of a patch is to be known of a crash.
            let keep = match args.with {
                Some(_) => Keep::Everything,
                None => Keep::Live,
            };
            let state = walk_to(&trace, args.at, keep, seen).map_err(failed)?;
            warn_of_missing(&args.file, state.is_cut, state.lost);
            match (args.with, args.without) {
                (Some(with), Some(without)) => about_crash(args, &state, with, without)?,
                _ => about_dirt(args, &state, &wanted, is_known)?,
            }
        }
    };
    match args.json {
        true => show::print_json(COMMAND, &json),
        false => show::print_bytes(COMMAND, text.as_bytes()),
    }
}

fn about_wait(args: &Args, trace: &Trace<'_>, ticket: Option<u64>) -> Result<Answer> {
    let failed = |why: String| Error::at_path(COMMAND, &args.file, why);
    let found = wait::wait(trace, ticket).map_err(|why| failed(why.to_string()))?;
    let none = || match ticket {
        Some(ticket) => failed(format!("nobody waits under ticket {ticket}")),
        None => failed("nobody waits for anything in it".to_owned()),
    };
    let found = found.ok_or_else(none)?;
    Ok((found.text(), found.json()))
}

/// Fails where the state has no patches with these numbers.
fn check_patches(args: &Args, state: &State, patches: &[u64]) -> Result<()> {
    let newest = state.newest();
    if patches.iter().all(|patch| (1..=newest).contains(patch)) {
        return Ok(());
    }
    let why = format!("at this moment the patches are p1 to p{newest}");
    Err(Error::at_path(COMMAND, &args.file, why))
}

fn about_crash(args: &Args, state: &State, with: u64, without: u64) -> Result<Answer> {
    check_patches(args, state, &[with, without])?;
    let verdict = crash::crash(state, with, without);
    Ok((
        crash::text(state, with, without, &verdict),
        crash::json(state, with, without, &verdict),
    ))
}

/// `is_known` says that an operation up to this moment was about what is wanted.
fn about_dirt(args: &Args, state: &State, wanted: &Wanted, is_known: bool) -> Result<Answer> {
    check_patches(args, state, wanted.patch.as_slice())?;
    let found = dirty::dirty(state, wanted);
    if found.is_empty() && !is_known {
        let why = "no operation in the trace is about it up to this moment";
        let error = Error::at_path(COMMAND, &args.file, why);
        return Err(match &wanted.path {
            Some(_) => error.hint("a file older than the recording has no path there: --inode"),
            None => error,
        });
    }
    let untold = dirty::untold(state, wanted);
    Ok((
        dirty::text(state, &found, untold),
        dirty::json(state, &found, untold),
    ))
}
