//! `backstitch ln TARGET IMAGE:/link`.

use crate::error::{Error, Result};
use crate::image::{Access, Image, with_image};
use crate::paths::{ImagePath, joined, same_image, split_last};
use backstitch_vfs::{FileType, LayoutError, NewInode};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Make links in an image.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch ln disk.img:/bin/sh disk.img:/bin/bash
  backstitch ln -s ../lib disk.img:/usr/lib64")]
pub struct Args {
    /// What to link to: IMAGE:/path, or with -s any text
    target: OsString,
    /// The new name, or a directory for it
    #[arg(value_name = "IMAGE:/PATH")]
    link: OsString,
    /// A symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
}

/// Makes a link.
pub fn run(args: &Args) -> Result<()> {
    let link = ImagePath::required("ln", &args.link)?;
    if args.symbolic {
        let target = args.target.as_bytes();
        return with_image("ln", &link.image, Access::Write, |image| {
            let path = place(args, image, &link.path, split_last(target).1)?;
            symbolic(image, target, &path)
        });
    }
    let target = ImagePath::required("ln", &args.target)?;
    let image = same_image("ln", &[target.clone(), link.clone()])?;
    with_image("ln", &image, Access::Write, |image| {
        let path = place(args, image, &link.path, split_last(&target.path).1)?;
        hard(image, &target.path, &path)
    })
}

/// Where the link goes: into the directory, if that exists. With `-f` an existing file is removed
/// first.
fn place(args: &Args, image: &Image, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let into = image.find(path, true)?.filter(|found| found.is_directory());
    let path = if into.is_some() {
        joined(path, name)
    } else {
        path.to_vec()
    };
    match image.find(&path, false)? {
        Some(there) if args.force && !there.is_directory() => {
            let (dir, name) = image.resolve_parent(&path)?;
            image
                .engine
                .unlink(dir.inode(), name)
                .map_err(|error| image.error(&path, error))?;
        }
        Some(_) => return Err(image.error(&path, LayoutError::Exists)),
        None => {}
    }
    Ok(path)
}

fn symbolic(image: &Image, target: &[u8], path: &[u8]) -> Result<()> {
    if target.is_empty() {
        return Err(Error::usage("ln", "the target is empty"));
    }
    let (dir, name) = image.resolve_parent(path)?;
    let new = NewInode {
        file_type: FileType::Symlink,
        permissions: 0o777,
        umask: 0,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        device_number: 0,
        target,
    };
    let made = image.engine.create(dir.inode(), name, &new);
    drop(image.hold(made.map_err(|error| image.error(path, error))?));
    Ok(())
}

fn hard(image: &Image, target: &[u8], path: &[u8]) -> Result<()> {
    let held = image.resolve(target, false)?;
    if held.is_directory() {
        return Err(image.error(target, "a directory cannot have hard links"));
    }
    let (dir, name) = image.resolve_parent(path)?;
    let made = image.engine.link(held.inode(), dir.inode(), name);
    drop(image.hold(made.map_err(|error| image.error(path, error))?));
    Ok(())
}
