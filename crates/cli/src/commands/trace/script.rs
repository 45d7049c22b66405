//! `backstitch trace record --script`: the patches of a script that runs in memory.

use super::COMMAND;
use super::output::{Output, Taken};
use super::record::Args;
use backstitch_crash::{ImageOptions, ScriptError, parse_script, run_watched};
use backstitch_crash_core::geography::Blocks;
use backstitch_crash_core::mount::Engine;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::show;
use backstitch_layout::InodeNumber;
use backstitch_trace::{Area, Recorder, Recording};
use backstitch_vfs::Optimisations;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// The longest trace: it is kept in memory up to the script's end.
const MOST_BYTES: usize = 256 << 20;

/// Runs the script on a new file system in memory. The same script gives the same bytes every time.
pub(super) fn run(args: &Args, script: &str) -> Result<ExitCode> {
    let operations = parse_script(script).map_err(|why| Error::usage(COMMAND, why))?;
    let options = ImageOptions {
        layout: args.layout,
        ..ImageOptions::default()
    };
    let image = options
        .make_for(args.ordering)
        .map_err(|why| Error::usage(COMMAND, why))?;
    let engine = Engine {
        ordering: args.ordering,
        optimisations: Optimisations::BOTH,
        unit_bytes: None,
    };
    let taken = Taken {
        device: None,
        image: None,
    };
    let mut output = Output::open(&args.output, &taken)?;
    let mut recorder = None;
    let ran = run_watched(&image, engine, &operations, |root, blocks, begins| {
        let mut recording = Recording {
            description: description(args, root, blocks, image.home_bytes()),
            with_contents: args.contents,
        };
        if args.contents {
            let (image, all) = (begins.home_bytes(), begins.all_bytes());
            recording.description["image_bytes"] = image.into();
            if image < all {
                recording.description["log_bytes"] = (all - image).into();
            }
        }
        let begun = Arc::new(Recorder::in_memory(&recording, MOST_BYTES));
        if args.contents {
            begun.put_image(&begins.to_bytes());
        }
        recorder = Some(begun.clone());
        begun
    });
    ran.map_err(|why| match why {
        ScriptError::EndsMount { .. } => Error::usage(COMMAND, why),
        _ => Error::failed(COMMAND, "the script", why),
    })?;
    let (trace, records) = match recorder {
        Some(recorder) if recorder.lost() > 0 => {
            let why = format!("the trace would be longer than {} MiB", MOST_BYTES >> 20);
            return Err(Error::failed(COMMAND, "the script", why));
        }
        Some(recorder) => (recorder.finish(), recorder.records()),
        None => (Vec::new(), 0),
    };
    let written = output.begin()?.write_all(&trace);
    written.map_err(|error| Error::at_path(COMMAND, &args.output, host(&error)))?;
    if args.json {
        let report = json!({
            "output": args.output.display().to_string(),
            "bytes": trace.len(),
            "records": records,
            "lost_events": null,
        });
        show::print_json(COMMAND, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the trace is of, with the places that the file system keeps for ever.
fn description(args: &Args, root: InodeNumber, blocks: &Blocks, size_bytes: u64) -> Value {
    let (block_bytes, inode_bytes) = blocks.reader().map_or((0, 0), |reader| {
        (
            u64::from(reader.block_bytes()),
            u64::from(reader.inode_bytes()),
        )
    });
    let areas = blocks.areas(size_bytes.checked_div(block_bytes).unwrap_or(0));
    let areas = areas.into_iter().map(|area| {
        let len = area.blocks.end - area.blocks.start;
        let inodes = area
            .first_inode
            .map(|first| (u64::from(first.0), inode_bytes));
        let area = Area {
            offset_bytes: area.blocks.start * block_bytes,
            len_bytes: len * block_bytes,
            what: area.what.to_owned(),
            inodes,
        };
        area.json()
    });
    json!({
        "image": "a script",
        "layout": args.layout.name(),
        "ordering": args.ordering.to_string(),
        "root": root.0,
        "areas": areas.collect::<Vec<_>>(),
    })
}
