//! `backstitch cp`: between the host and images, or within them.

use crate::error::{Error, Result, warn_line};
use crate::image::{Access, Image, ImagePath, is_inside, split_last, with_image};
use crate::tree::{Copy, HostNode, HostTree, ImageTree, Preserve, Progress, Source, Target};
use backstitch_vfs::FileType;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Copy files into an image, out of one, or within one. Either side may be a path of the host or IMAGE:/path.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch cp notes.txt disk.img:/home/me/
  backstitch cp -r src disk.img:/src
  backstitch cp -a disk.img:/etc backup-of-etc
  backstitch cp -a old.img:/ new.img:/")]
pub(crate) struct Args {
    /// What to copy, and where to: a host path or IMAGE:/path each
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Directories too, with everything in them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Keep permissions, owner, group and times
    #[arg(short, long)]
    preserve: bool,
    /// Keep everything: -r, -p, extended attributes, hard links, symbolic links as they are
    #[arg(short, long)]
    archive: bool,
}

/// One side of a copy.
enum Side {
    Host(PathBuf),
    Image(ImagePath),
}

impl Side {
    fn parse(word: OsString) -> Side {
        match ImagePath::parse(&word) {
            Some(path) => Side::Image(path),
            None => Side::Host(word.into()),
        }
    }
}

impl Args {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Whether a symbolic link that was named stands for what it leads to.
    fn follow(&self) -> bool {
        !self.recursive()
    }

    fn keep(&self) -> Preserve {
        let owner_mode_times = self.preserve || self.archive;
        Preserve {
            mode: owner_mode_times,
            owner: owner_mode_times,
            times: owner_mode_times,
            xattrs: self.archive,
            links: self.archive,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut sides: Vec<Side> = args.paths.iter().cloned().map(Side::parse).collect();
    let Some(to) = sides.pop() else {
        return Err(Error::usage("cp", "a path is missing"));
    };
    let several = sides.len() > 1;
    match to {
        Side::Host(to) => {
            for from in sides {
                let Side::Image(from) = from else {
                    let why = "neither side lies in an image (IMAGE:/path); cp(1) copies between host paths";
                    return Err(Error::usage("cp", why));
                };
                with_image("cp", &from.image, Access::Read, |image| {
                    out_of(args, image, &from.path, &to, several)
                })?;
            }
            Ok(())
        }
        Side::Image(to) => with_image("cp", &to.image, Access::Write, |image| {
            sides
                .into_iter()
                .try_for_each(|from| into(args, image, from, &to, several))
        }),
    }
}

/// Where a copy goes: a directory, and the name in it; no name means the directory itself takes the contents.
struct Place<N> {
    dir: N,
    name: Vec<u8>,
}

fn into(args: &Args, image: &Image, from: Side, to: &ImagePath, several: bool) -> Result<()> {
    let target = ImageTree::new(image);
    match from {
        Side::Host(path) => {
            let source = HostTree::new("cp");
            let name = path
                .file_name()
                .map(|name| name.as_bytes().to_vec())
                .unwrap_or_default();
            let place = place_in_image(&target, &to.path, &name, several)?;
            copy(
                args,
                &source,
                HostNode::new(path, args.follow()),
                &target,
                place,
            )
        }
        Side::Image(from) if from.image == to.image => {
            let name = split_last(&from.path).1;
            let place = place_in_image(&target, &to.path, name, several)?;
            let node = target.node(&from.path, args.follow())?;
            let inside = node.held.is_directory()
                && is_inside(image, &node.held, &place.dir.held)
                    .map_err(|error| image.error(&to.path, error))?;
            if inside {
                return Err(image.error(&from.path, "a directory cannot be copied into itself"));
            }
            copy(args, &ImageTree::new(image), node, &target, place)
        }
        Side::Image(from) => with_image("cp", &from.image, Access::Read, |other| {
            let source = ImageTree::new(other);
            let name = split_last(&from.path).1;
            let place = place_in_image(&target, &to.path, name, several)?;
            let node = source.node(&from.path, args.follow())?;
            copy(args, &source, node, &target, place)
        }),
    }
}

fn place_in_image(
    tree: &ImageTree<'_>,
    to: &[u8],
    name: &[u8],
    several: bool,
) -> Result<Place<<ImageTree<'static> as Target>::Node>> {
    match tree.image.find(to, true)? {
        Some(there) if there.is_directory() => {
            let name = if name == b".." || name == b"." {
                &[][..]
            } else {
                name
            };
            Ok(Place {
                dir: tree.node(to, true)?,
                name: name.to_vec(),
            })
        }
        _ if several => Err(tree.image.error(to, "not a directory")),
        _ => {
            let (parent, name) = split_last(to);
            drop(tree.image.resolve_parent(to)?);
            Ok(Place {
                dir: tree.node(parent, true)?,
                name: name.to_vec(),
            })
        }
    }
}

fn out_of(args: &Args, image: &Image, from: &[u8], to: &PathBuf, several: bool) -> Result<()> {
    let source = ImageTree::new(image);
    let target = HostTree::new("cp");
    let node = source.node(from, args.follow())?;
    let name = split_last(from).1;
    let place = if to.is_dir() {
        Place {
            dir: HostNode::new(to, true),
            name: name.to_vec(),
        }
    } else if several {
        return Err(Error::at_path("cp", to, "not a directory"));
    } else {
        let (dir, name) = split_last(to.as_os_str().as_bytes());
        let is_relative = !to.as_os_str().as_bytes().contains(&b'/');
        let parent = if is_relative {
            PathBuf::from(".")
        } else {
            os_path(dir)
        };
        Place {
            dir: HostNode::new(parent, true),
            name: name.to_vec(),
        }
    };
    copy(args, &source, node, &target, place)
}

fn os_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

fn copy<S: Source, T: Target>(
    args: &Args,
    source: &S,
    from: S::Node,
    target: &T,
    place: Place<T::Node>,
) -> Result<()> {
    let meta = source.meta(&from)?;
    let mut copy = Copy::new("cp", source, target, args.keep(), Progress::start());
    if meta.file_type == FileType::Directory {
        if !args.recursive() {
            let error = Error::failed("cp", source.name(&from), "is a directory");
            return Err(error.hint("-r copies directories"));
        }
        match place.name.as_slice() {
            [] => copy.contents_of(from, place.dir, args.archive)?,
            name => copy.tree(from, &place.dir, name)?,
        }
    } else {
        copy.file(&from, &place.dir, &place.name)?;
    }
    report_lost("cp", copy.xattrs_lost);
    Ok(())
}

/// Says how many extended attributes the target could not take.
pub(super) fn report_lost(what: &str, lost: u64) {
    if lost > 0 {
        warn_line(&format!(
            "{what}: {lost} extended attributes could not be kept"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        assert!(matches!(Side::parse("a.img:/x".into()), Side::Image(_)));
        assert!(matches!(Side::parse("/tmp/x".into()), Side::Host(_)));
    }
}
