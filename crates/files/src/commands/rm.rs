//! `backstitch rm IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Held, Image, with_files};
use crate::paths::{ImagePath, joined};
use backstitch_vfs::{FileType, InodeNumber, LayoutError};
use std::collections::HashSet;
use std::ffi::OsString;

/// Remove files from an image.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch rm disk.img:/etc/motd
  backstitch rm -r disk.img:/var/cache disk.img:/tmp/x
  backstitch rm -f 'disk.img:/tmp/*'")]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Directories too, with everything in them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    force: bool,
}

/// Removes the files.
pub fn run(args: &Args) -> Result<()> {
    let paths = ImagePath::all_required("rm", &args.paths)?;
    with_files("rm", Access::Write, &paths, |image, path| {
        remove(args, image, path)
    })
}

fn remove(args: &Args, image: &Image, path: &[u8]) -> Result<()> {
    if args.force && image.find(path, false)?.is_none() {
        return Ok(());
    }
    let (dir, name) = image.resolve_parent(path)?;
    let found = image.engine.lookup(dir.inode(), name);
    let found = image.hold(found.map_err(|error| image.error(path, error))?);
    if !found.is_directory() {
        return image
            .engine
            .unlink(dir.inode(), name)
            .map_err(|error| image.error(path, error));
    }
    if !args.recursive {
        return Err(image
            .error(path, LayoutError::IsADirectory)
            .hint("-r removes directories"));
    }
    remove_tree(image, &dir, name, found, path)
}

/// A directory that is being emptied.
struct Frame {
    parent: InodeNumber,
    name: Vec<u8>,
    path: Vec<u8>,
    dir: Held,
    names: std::vec::IntoIter<Vec<u8>>,
}

/// Empties and removes a directory, without recursion: an image may nest deeper than the stack
/// allows.
fn remove_tree(image: &Image, parent: &Held, name: &[u8], dir: Held, path: &[u8]) -> Result<()> {
    let mut seen = HashSet::new();
    let mut enter = |parent: InodeNumber, name: &[u8], dir: Held, path: Vec<u8>| {
        if !seen.insert(dir.inode()) {
            let why = "this directory has two names: the file system is corrupt";
            return Err(image.error(&path, why));
        }
        let names = image
            .names(dir.inode())
            .map_err(|error| image.error(&path, error))?;
        Ok(Frame {
            parent,
            name: name.to_vec(),
            path,
            dir,
            names: names.into_iter(),
        })
    };
    let mut stack = vec![enter(parent.inode(), name, dir, path.to_vec())?];
    while let Some(frame) = stack.last_mut() {
        let Some(name) = frame.names.next() else {
            let done = image.engine.rmdir(frame.parent, &frame.name);
            done.map_err(|error| image.error(&frame.path, error))?;
            stack.pop();
            continue;
        };
        let path = joined(&frame.path, &name);
        let found = image.engine.lookup(frame.dir.inode(), &name);
        let found = image.hold(found.map_err(|error| image.error(&path, error))?);
        if found.attributes.file_type == FileType::Directory {
            let parent = frame.dir.inode();
            stack.push(enter(parent, &name, found, path)?);
        } else {
            let done = image.engine.unlink(frame.dir.inode(), &name);
            done.map_err(|error| image.error(&path, error))?;
        }
    }
    Ok(())
}
