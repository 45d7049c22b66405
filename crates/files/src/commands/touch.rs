//! `backstitch touch IMAGE:/path`.

use crate::error::{Error, Result, host};
use crate::image::{Access, Image, now, timestamp, with_files};
use crate::paths::ImagePath;
use crate::time;
use crate::tree::umask;
use backstitch_vfs::{FileType, NewInode, SetAttributes, Timestamp};
use clap::ArgAction;
use std::ffi::OsString;
use std::path::Path;

/// Change the times of files in an image; make those that are not there, empty.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "A moment without a time zone is UTC: 2026-01-31, 2026-01-31 12:34:56.5, 2026-01-31T12:34:56+02:00, @SECONDS since 1970, or now.

Examples:
  backstitch touch disk.img:/etc/nologin
  backstitch touch -d '2026-01-31 12:00' disk.img:/notes
  backstitch touch -d @0 'disk.img:/usr/share/doc/*'
  backstitch touch -r original.txt disk.img:/copy.txt"
)]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Only the time of access
    #[arg(short)]
    accessed: bool,
    /// Only the time of modification
    #[arg(short)]
    modified: bool,
    /// Make no file
    #[arg(short = 'c', long)]
    no_create: bool,
    /// A symbolic link itself, not what it leads to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// This moment instead of now
    #[arg(short, long, value_name = "MOMENT", value_parser = time::parse, allow_hyphen_values = true)]
    date: Option<Timestamp>,
    /// This moment, as touch(1) takes it: MMDDhhmm, with YY or CCYY before it and .ss behind it if
    /// wanted
    #[arg(short = 't', value_name = "STAMP", value_parser = time::parse_stamp, conflicts_with = "date")]
    stamp: Option<Timestamp>,
    /// The times of this file, which is the host's or IMAGE:/path
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["date", "stamp"])]
    reference: Option<OsString>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Sets the times of the files, and makes those that are missing.
pub fn run(args: &Args) -> Result<()> {
    let paths = ImagePath::all_required("touch", &args.paths)?;
    let (accessed, modified) = match &args.reference {
        Some(reference) => times_of(reference)?,
        None => {
            let time = args.date.or(args.stamp).unwrap_or_else(now);
            (time, time)
        }
    };
    let both = args.accessed == args.modified;
    let set = SetAttributes {
        accessed: (both || args.accessed).then_some(accessed),
        modified: (both || args.modified).then_some(modified),
        ..SetAttributes::default()
    };
    with_files("touch", Access::Write, &paths, |image, path| {
        touch(args, image, path, &set)
    })
}

fn touch(args: &Args, image: &Image, path: &[u8], set: &SetAttributes) -> Result<()> {
    let held = match image.find(path, !args.no_dereference)? {
        Some(held) => held,
        None if args.no_create || args.no_dereference => return Ok(()),
        None => {
            let (dir, name) = image.resolve_parent(path)?;
            let new = NewInode {
                file_type: FileType::Regular,
                permissions: 0o666,
                umask: umask(),
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                device_number: 0,
                target: &[],
            };
            let made = image.engine.create(dir.inode(), name, &new);
            image.hold(made.map_err(|error| image.error(path, error))?)
        }
    };
    let done = image.engine.set_attributes(held.inode(), set);
    done.map(drop).map_err(|error| image.error(path, error))
}

/// When a file was accessed and modified last.
fn times_of(word: &OsString) -> Result<(Timestamp, Timestamp)> {
    let Some(path) = ImagePath::parse(word) else {
        let path = Path::new(word);
        let found = path
            .metadata()
            .and_then(|found| Ok((timestamp(found.accessed()?), timestamp(found.modified()?))));
        return found.map_err(|error| Error::at_path("touch", path, host(&error)));
    };
    let mut times = (Timestamp::default(), Timestamp::default());
    with_files("touch", Access::Read, &[path], |image, path| {
        let found = image.resolve(path, true)?.attributes;
        times = (found.accessed, found.modified);
        Ok(())
    })?;
    Ok(times)
}
