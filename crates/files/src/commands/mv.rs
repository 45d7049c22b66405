//! `backstitch mv IMAGE:/a IMAGE:/b`.

use crate::error::{Error, Result};
use crate::image::{Access, Image, is_inside, with_image};
use crate::paths::{ImagePath, joined, same_image, split_last};
use backstitch_vfs::{LayoutError, RenameMode};
use std::ffi::OsString;

/// Rename files in an image, or move them into a directory of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch mv disk.img:/a disk.img:/b
  backstitch mv disk.img:/x disk.img:/y disk.img:/dir
  backstitch mv 'disk.img:/*.log' disk.img:/old")]
pub struct Args {
    /// What to move, and where to
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Fail rather than replace a file
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

/// Moves or renames the files.
pub fn run(args: &Args) -> Result<()> {
    let paths = args
        .paths
        .iter()
        .map(|word| ImagePath::required("mv", word));
    let mut paths: Vec<ImagePath> = paths.collect::<Result<_>>()?;
    let image = same_image("mv", &paths)?;
    let Some(to) = paths.pop() else {
        return Err(Error::usage("mv", "a path is missing"));
    };
    if args.exchange && paths.len() != 1 {
        return Err(Error::usage("mv", "--exchange takes two names"));
    }
    with_image("mv", &image, Access::Write, |image| {
        let into = !args.exchange && is_directory(image, &to.path)?;
        let mut from = Vec::new();
        for path in &paths {
            from.extend(image.expand(&path.path)?);
        }
        if from.len() > 1 && !into {
            return Err(image.error(&to.path, LayoutError::NotADirectory));
        }
        for from in &from {
            let to = match into {
                true => joined(&to.path, split_last(from).1),
                false => to.path.clone(),
            };
            rename(args, image, from, &to)?;
        }
        Ok(())
    })
}

fn is_directory(image: &Image, path: &[u8]) -> Result<bool> {
    Ok(image
        .find(path, true)?
        .is_some_and(|found| found.is_directory()))
}

fn rename(args: &Args, image: &Image, from: &[u8], to: &[u8]) -> Result<()> {
    let mode = match (args.exchange, args.no_clobber) {
        (true, _) => RenameMode::Exchange,
        (_, true) => RenameMode::NoReplace,
        _ => RenameMode::Replace,
    };
    let (from_dir, from_name) = image.resolve_parent(from)?;
    let (to_dir, to_name) = image.resolve_parent(to)?;
    let moved = image.resolve(from, false)?;
    if moved.is_directory() && is_inside(image, &moved, &to_dir).map_err(|e| image.error(to, e))? {
        return Err(image.error(from, "a directory cannot move into itself"));
    }
    let done = image
        .engine
        .rename(from_dir.inode(), from_name, to_dir.inode(), to_name, mode);
    done.map_err(|error| image.error(from, error))
}
