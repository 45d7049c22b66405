//! `backstitch undo UNDO_FILE IMAGE`.

use backstitch_device::undo::{UndoError, UndoFile};
use backstitch_device::{BlockDevice, FileDevice, OpenOptions};
use backstitch_files::error::{Error, Result};
use backstitch_files::named::{Named, Part};
use backstitch_files::{show, size};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Take a repair back: put the old contents of an image where they were.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "`backstitch fsck -y` says which undo file it wrote. Those of e2fsprogs (`e2fsck -z`, `tune2fs -z`, …) are taken as well, and
e2undo takes ours.

The undo file is read and checked before anything is written. It is refused if the file system was changed since then: the later
changes would be torn apart. If the power fails in the middle, run it again.

Examples:
  backstitch undo -n disk.img.undo-20261124-174500 disk.img
  backstitch undo disk.img.undo-20261124-174500 disk.img
  backstitch undo /var/lib/backstitch/sdb1.undo-20261124-174500 /dev/sdb1"
)]
pub(crate) struct Args {
    /// The undo file
    undo_file: PathBuf,
    /// The image: a file or a block device
    image: PathBuf,
    /// Only check the file, and whether it is for this image
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Put the contents back even if the file system was changed since then, or the undo file is
    /// incomplete; give the image its old size
    #[arg(short, long)]
    force: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let undo = UndoFile::open(&args.undo_file)
        .and_then(|undo| undo.verify().map(|()| undo))
        .map_err(|error| of_undo(args, error))?;
    let device = open(args, &undo)?;
    match undo.fits(&*device) {
        Ok(()) => {}
        Err(UndoError::OtherState(_) | UndoError::Unfinished) if args.force => {}
        Err(error) => return Err(of_undo(args, error)),
    }
    if !args.dry_run {
        let applied = undo.apply(&*device);
        applied.map_err(|error| of_undo(args, error))?;
    }
    report(args, &undo)
}

fn of_undo(args: &Args, error: UndoError) -> Error {
    match error {
        UndoError::Device(error) => Error::at_path("undo", &args.image, error),
        UndoError::OtherState(_) | UndoError::Unfinished => {
            let error = Error::at_path("undo", &args.image, error);
            error.hint("--force puts the old contents back anyway")
        }
        error => Error::at_path("undo", &args.undo_file, error),
    }
}

/// Opens the image, or the part of it that the file is for; with `--force` a file gets its size
/// back.
fn open(args: &Args, undo: &UndoFile) -> Result<Arc<dyn BlockDevice>> {
    let failed = |error: backstitch_device::DeviceError| Error::at_path("undo", &args.image, error);
    let mut named = Named::of("undo", &args.image)?;
    if named.part == Part::Whole && undo.offset_bytes() > 0 {
        named.part = Part::Range(undo.offset_bytes(), undo.device_bytes());
    }
    let options = OpenOptions {
        read_only: args.dry_run,
        ..OpenOptions::default()
    };
    let (mut file, part): (FileDevice, _) = named.open("undo", options)?;
    if let Some(part) = part {
        return Ok(Arc::new(part.on(Arc::new(file)).map_err(failed)?));
    }
    let is_file = std::fs::metadata(&named.file).is_ok_and(|seen| seen.is_file());
    let other_size = undo.device_bytes().filter(|was| *was != file.size_bytes());
    if let (Some(was), true, true, false) = (other_size, is_file, args.force, args.dry_run) {
        file.resize(was).map_err(failed)?;
    }
    Ok(Arc::new(file))
}

fn report(args: &Args, undo: &UndoFile) -> Result<()> {
    let (image, bytes) = (args.image.display().to_string(), undo.total_bytes());
    if args.json {
        let document = json!({
            "image": image,
            "undo_file": args.undo_file.display().to_string(),
            "stretches": undo.stretches(),
            "restored_bytes": bytes,
            "dry_run": args.dry_run,
        });
        return show::print_json("undo", &document);
    }
    let (size, stretches) = (size::show(bytes), undo.stretches());
    let places = match stretches {
        1 => "one place".to_owned(),
        n => format!("{n} places"),
    };
    let line = match args.dry_run {
        true => format!("{image}: {size} in {places} would be put back\n"),
        false => format!("{image}: {size} in {places} put back\n"),
    };
    show::print_bytes("undo", line.as_bytes())
}
