//! `backstitch trace replay`.

use super::{COMMAND, opened, read};
use backstitch_device::{BlockDevice, FileDevice, OpenOptions, WriteRequest};
use backstitch_files::error::{Error, Result, host};
use backstitch_files::show;
use backstitch_trace::replay::{Replayed, replay};
use serde_json::json;
use std::path::PathBuf;

/// Write again what a trace with contents wrote, onto an image as it was when the recording began.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The result is what was on the disk when the recording ended. Batches that were on their way then are left out, and counted.
Of a trace that is not complete the result is what was on the disk where it ends, and the command fails.

Examples:
  backstitch sync /mnt && cp disk.img before.img      with nobody writing meanwhile
  backstitch trace record --contents -o t.trace /mnt -- make
  backstitch trace replay t.trace before.img"
)]
pub(super) struct Args {
    /// The trace, recorded with --contents
    file: PathBuf,
    /// The image, which is changed
    image: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let bytes = read(&args.file)?;
    let trace = opened(&args.file, &bytes)?;
    // All that can be wrong with it is found before anything is written.
    let failed = |why| Error::at_path(COMMAND, &args.file, why);
    let device = FileDevice::open(&args.image, OpenOptions::default())
        .map_err(|why| Error::at_path(COMMAND, &args.image, why))?;
    let size_bytes = device.size_bytes();
    replay(&trace, |volume, offset_bytes, bytes| {
        check_place(volume, offset_bytes + bytes.len() as u64, size_bytes)
    })
    .map_err(failed)?;
    let done = replay(&trace, |_, offset_bytes, bytes| {
        let request = WriteRequest {
            offset_bytes,
            buffers: vec![bytes.into()],
        };
        device.submit(&[request]).map_err(|why| why.to_string())
    });
    let done = done.map_err(failed)?;
    let flushed = device.flush();
    flushed.map_err(|why| Error::at_path(COMMAND, &args.image, why))?;
    drop(device);
    let length = std::fs::metadata(&args.image)
        .map_err(|error| Error::at_path(COMMAND, &args.image, host(&error)))?;
    if args.json {
        let report = json!({
            "image": args.image.display().to_string(),
            "size_bytes": length.len(),
            "batches": done.batches,
            "bytes": done.bytes,
            "left_out": done.left_out,
            "unknown": done.unknown,
            "is_whole": done.is_whole,
        });
        show::print_json(COMMAND, &report)?;
        return check(args, &done);
    }
    let line = format!(
        "{}: {} batches, {} bytes written, {} batches left out\n",
        args.image.display(),
        done.batches,
        done.bytes,
        done.left_out
    );
    show::print_bytes(COMMAND, line.as_bytes())?;
    check(args, &done)
}

/// Fails where a write, which ends at an offset, is not to the image.
fn check_place(volume: u32, end: u64, size_bytes: u64) -> std::result::Result<(), String> {
    match volume {
        0 if end <= size_bytes => Ok(()),
        // So a mount counts what lies on the device of its log.
        0 => Err(format!(
            "it wrote up to byte {end}, behind the image's end at {size_bytes}: the image is shorter than that of \
             the recording, or its log was on another device, which cannot be replayed"
        )),
        _ => Err("it wrote to several devices: a log on another device cannot be replayed".into()),
    }
}

/// Fails where the image is not what it was when the recording ended.
fn check(args: &Args, done: &Replayed) -> Result<()> {
    if done.is_whole {
        return Ok(());
    }
    let why = match done.unknown {
        0 => {
            let seconds = done.until.as_secs_f64();
            format!("not complete: the image is what it was {seconds:.3} s after the mount")
        }
        unknown => format!(
            "not complete: {unknown} batches were on their way when the recording began, and what they wrote is not in it"
        ),
    };
    Err(Error::at_path(COMMAND, &args.file, why))
}
