//! `backstitch mkdir IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Image, with_image};
use crate::mode::ModeChange;
use crate::paths::ImagePath;
use crate::tree::umask;
use backstitch_vfs::{FileType, LayoutError, NewInode};
use std::ffi::OsString;

/// Make directories in an image.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch mkdir disk.img:/home
  backstitch mkdir -p disk.img:/srv/www/html
  backstitch mkdir -m 1777 disk.img:/tmp")]
pub struct Args {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Make parent directories as needed; an existing directory is no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions, in octal digits or as chmod(1) has them
    #[arg(short, long, value_name = "MODE", value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
}

/// Makes the directories.
pub fn run(args: &Args) -> Result<()> {
    let mode = (args.mode.as_ref()).map(|mode| mode.apply(0o777, true, umask()));
    for path in ImagePath::all_required("mkdir", &args.paths)? {
        with_image("mkdir", &path.image, Access::Write, |image| {
            match args.parents {
                true => make_all(image, &path.path, mode),
                false => make(image, &path.path, mode),
            }
        })?;
    }
    Ok(())
}

fn make(image: &Image, path: &[u8], mode: Option<u16>) -> Result<()> {
    let (dir, name) = image.resolve_parent(path)?;
    let new = NewInode {
        file_type: FileType::Directory,
        permissions: mode.unwrap_or(0o777),
        umask: if mode.is_some() { 0 } else { umask() },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        device_number: 0,
        target: &[],
    };
    let made = image.engine.create(dir.inode(), name, &new);
    drop(image.hold(made.map_err(|error| image.error(path, error))?));
    Ok(())
}

/// Makes every missing directory of a path; `mode` is for the last one.
fn make_all(image: &Image, path: &[u8], mode: Option<u16>) -> Result<()> {
    let ends = (1..path.len()).filter(|&at| path[at] == b'/' && path[at - 1] != b'/');
    let mut ways: Vec<&[u8]> = ends.map(|end| &path[..end]).collect();
    if !path.ends_with(b"/") {
        ways.push(path);
    }
    let last = ways.len().saturating_sub(1);
    for (index, way) in ways.into_iter().enumerate() {
        match image.find(way, true)? {
            Some(there) if there.is_directory() => {}
            Some(_) => return Err(image.error(way, LayoutError::NotADirectory)),
            None => make(image, way, mode.filter(|_| index == last))?,
        }
    }
    Ok(())
}
