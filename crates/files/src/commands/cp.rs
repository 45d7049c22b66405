//! `backstitch cp`: between the host and images, or within them.

use super::cat;
use crate::error::{Error, Result, host, warn_line};
use crate::image::{Access, Image, is_inside, with_files, with_image};
use crate::interrupt::Interrupt;
use crate::paths::{ImagePath, split_last};
use crate::tree::{
    Copy, CopyOptions, Existing, HostNode, HostTree, ImageTree, Meta, Preserve, Source, Staged,
    Target, umask,
};
use backstitch_vfs::{FileType, Timestamp};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes of standard input that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Copy files into an image, out of one, or within one. Either side may be a path of the host or
/// IMAGE:/path.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Quote patterns within images, or the shell expands them. By default an existing file gets the new contents and keeps
its owner and permissions. A copy that fails or is interrupted leaves it as it was: the new contents are complete, under a name beside
it, before it changes. Where PATH is a symbolic link, what it leads to gets the contents; links that -r finds in the way are replaced.
^C ends the copy between two files: what was copied is complete, and the image is clean. A second ^C kills.

Examples:
  backstitch cp notes.txt disk.img:/home/me/
  backstitch cp -r src disk.img:/src
  backstitch cp -a disk.img:/etc backup-of-etc
  backstitch cp -a old.img:/ new.img:/
  backstitch cp -v 'disk.img:/etc/*.conf' .
  backstitch cp -au src disk.img:/            again, only what has changed since
  tar cf - src | backstitch cp - disk.img:/src.tar
  backstitch cp disk.img:/src.tar - | tar tf -"
)]
pub struct Args {
    /// What to copy, and where to: a host path or IMAGE:/path each, or - for standard input or
    /// output
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
    /// Keep hard links, and symbolic links as they are
    #[arg(short = 'd')]
    links: bool,
    /// Copy symbolic links as they are
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// Do not replace existing files
    #[arg(short, long, conflicts_with = "update")]
    no_clobber: bool,
    /// Replace files only if the original was changed later
    #[arg(short, long)]
    update: bool,
    /// Replace existing files, also those without write permission (always on)
    #[arg(short, long)]
    force: bool,
    /// Name each file
    #[arg(short, long)]
    verbose: bool,
}

/// The names of standard input and output. As a path, the name of standard output would lead to the
/// file that it is redirected to.
const STREAMS: [&str; 5] = ["-", "/dev/stdin", "/dev/fd/0", "/dev/stdout", "/dev/fd/1"];

/// One side of a copy.
enum Side {
    Host(PathBuf),
    Image(ImagePath),
    /// Standard input or output.
    Stream,
}

impl Side {
    fn parse(word: OsString) -> Side {
        match ImagePath::parse(&word) {
            Some(path) => Side::Image(path),
            None if STREAMS.iter().any(|name| word == *name) => Side::Stream,
            None => Side::Host(word.into()),
        }
    }
}

impl Args {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Whether a symbolic link named as an operand stands for its target.
    fn follow(&self) -> bool {
        !(self.recursive() || self.links || self.no_dereference)
    }

    fn keep(&self) -> Preserve {
        let owner_mode_times = self.preserve || self.archive;
        Preserve {
            mode: owner_mode_times,
            owner: owner_mode_times,
            times: owner_mode_times,
            xattrs: self.archive,
            links: self.archive || self.links,
        }
    }

    fn options(&self, interrupt: &Interrupt, excluded: Option<(u64, u64)>) -> CopyOptions {
        CopyOptions {
            excluded,
            preserve: self.keep(),
            existing: match (self.no_clobber, self.update) {
                (true, _) => Existing::Keep,
                (_, true) => Existing::KeepNewer,
                _ => Existing::Replace,
            },
            verbose: self.verbose,
            interrupt: interrupt.clone(),
        }
    }
}

/// A copy under way.
struct Job<'a> {
    args: &'a Args,
    interrupt: Interrupt,
    /// Whether more than one file goes to the same place, which must be a directory then.
    several: bool,
    /// The names that got a file: a second file of that name would replace the first.
    made: Rc<RefCell<HashSet<Vec<u8>>>>,
}

/// Copies the sources to the destination; either may be in an image.
pub fn run(args: &Args) -> Result<()> {
    let mut sides: Vec<Side> = args.paths.iter().cloned().map(Side::parse).collect();
    let Some(to) = sides.pop() else {
        return Err(Error::usage("cp", "a path is missing"));
    };
    let job = Job {
        args,
        interrupt: Interrupt::catch("cp")?,
        several: sides.len() > 1,
        made: Rc::default(),
    };
    match to {
        Side::Host(to) => {
            for from in sides {
                let from = in_image(from)?;
                with_image("cp", &from.image, Access::Read, |image| {
                    let paths = image.expand(&from.path)?;
                    let job = job.of(&paths);
                    paths
                        .iter()
                        .try_for_each(|from| job.out_of(image, from, &to))
                })?;
            }
            Ok(())
        }
        Side::Stream => {
            let from: Vec<ImagePath> = sides.into_iter().map(in_image).collect::<Result<_>>()?;
            let mut goes_on = true;
            with_files("cp", Access::Read, &from, |image, path| {
                goes_on = goes_on && cat::print_file(image, "cp", path)?;
                Ok(())
            })
        }
        Side::Image(to) => with_image("cp", &to.image, Access::Write, |image| {
            sides
                .into_iter()
                .try_for_each(|from| job.bring_in(image, from, &to))
        }),
    }
}

/// The path of a side that must be in an image.
fn in_image(side: Side) -> Result<ImagePath> {
    match side {
        Side::Image(path) => Ok(path),
        _ => Err(Error::usage(
            "cp",
            "neither side lies in an image; cp(1) copies between host paths",
        )
        .hint("a file in an image is written IMAGE:/path; IMAGE:/ is its root directory")),
    }
}

/// Where a copy goes: a directory, and the name in it. Without a name the directory itself takes
/// the contents.
struct Place<N> {
    dir: N,
    name: Vec<u8>,
}

impl Job<'_> {
    /// A job for the files that a pattern stands for.
    fn of(&self, paths: &[Vec<u8>]) -> Job<'_> {
        Job {
            args: self.args,
            interrupt: self.interrupt.clone(),
            several: self.several || paths.len() > 1,
            made: self.made.clone(),
        }
    }

    fn bring_in(&self, image: &Image, from: Side, to: &ImagePath) -> Result<()> {
        let args = self.args;
        let target = ImageTree::new(image);
        match from {
            Side::Host(path) => {
                let source = HostTree::new("cp");
                let name = host_name(&path);
                let place = place_in_image(&target, &to.path, &name, self.several)?;
                let node = HostNode::new(&path, args.follow());
                let meta = source.meta(&node)?;
                if image.file() == Some(meta.identity) {
                    let why = "this is the image that is written";
                    return Err(Error::at_path("cp", &path, why));
                }
                if is_special(meta.file_type) && !args.recursive() {
                    let input = std::fs::File::open(&path)
                        .map_err(|error| Error::at_path("cp", &path, host(&error)))?;
                    return self.read_input(&target, place, input, &path);
                }
                self.copy(&source, node, &target, place)
            }
            Side::Stream => {
                let place = place_in_image(&target, &to.path, b"", self.several)?;
                if place.name.is_empty() {
                    let why = "standard input needs the name of a file";
                    return Err(image.error(&to.path, why));
                }
                let input = std::io::stdin().lock();
                self.read_input(&target, place, input, Path::new("standard input"))
            }
            Side::Image(from) if from.image == to.image => {
                let paths = image.expand(&from.path)?;
                let job = self.of(&paths);
                (paths.iter()).try_for_each(|from| job.within(&target, from, &to.path))
            }
            Side::Image(from) => with_image("cp", &from.image, Access::Read, |other| {
                let source = ImageTree::new(other);
                let paths = other.expand(&from.path)?;
                let job = self.of(&paths);
                for from in &paths {
                    let name = split_last(from).1;
                    let place = place_in_image(&target, &to.path, name, job.several)?;
                    let node = source.node(from, args.follow())?;
                    job.copy(&source, node, &target, place)?;
                }
                Ok(())
            }),
        }
    }

    /// Copies within one image.
    fn within(&self, tree: &ImageTree<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        let image = tree.image;
        let name = split_last(from).1;
        let place = place_in_image(tree, to, name, self.several)?;
        let node = tree.node(from, self.args.follow())?;
        let inside = node.held.is_directory()
            && is_inside(image, &node.held, &place.dir.held)
                .map_err(|error| image.error(to, error))?;
        if inside {
            return Err(image.error(from, "a directory cannot be copied into itself"));
        }
        if !node.held.is_directory()
            && let Some((there, _)) = tree.find(&place.dir, &place.name)?
            && there.held.inode() == node.held.inode()
        {
            return Err(image.error(from, "it would be copied onto itself"));
        }
        self.copy(&ImageTree::new(image), node, tree, place)
    }

    fn out_of(&self, image: &Image, from: &[u8], to: &PathBuf) -> Result<()> {
        let source = ImageTree::new(image);
        let target = HostTree::beside("cp", image.file());
        let node = source.node(from, self.args.follow())?;
        let name = split_last(from).1;
        let place = if to.is_dir() {
            Place {
                dir: HostNode::new(to, true),
                name: name.to_vec(),
            }
        } else if self.several {
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
        self.copy(&source, node, &target, place)
    }

    fn copy<S: Source, T: Target>(
        &self,
        source: &S,
        from: S::Node,
        target: &T,
        place: Place<T::Node>,
    ) -> Result<()> {
        let meta = source.meta(&from)?;
        let options = self.args.options(&self.interrupt, target.image_file());
        let mut copy = Copy::new("cp", source, target, options);
        if meta.file_type == FileType::Directory {
            if !self.args.recursive() {
                let error = Error::failed("cp", source.name(&from), "is a directory");
                return Err(error.hint("-r copies directories"));
            }
            match place.name.as_slice() {
                [] => copy.contents_of(from, place.dir, self.args.archive)?,
                name => copy.tree(from, &place.dir, name)?,
            }
        } else {
            self.note(target, &place)?;
            copy.file(&from, &place.dir, &place.name, true)?;
        }
        report_lost("cp", copy.xattrs_lost);
        Ok(())
    }

    /// Refuses a second file of one name, as cp(1) does: it would replace the first one.
    fn note<T: Target>(&self, target: &T, place: &Place<T::Node>) -> Result<()> {
        match self.several && !self.made.borrow_mut().insert(place.name.clone()) {
            false => Ok(()),
            true => {
                let place = target.place(&place.dir, &place.name);
                let why = "it was just made of another file of that name, which is not replaced";
                Err(Error::failed("cp", place, why))
            }
        }
    }

    /// Makes a file from a stream.
    fn read_input(
        &self,
        tree: &ImageTree<'_>,
        place: Place<<ImageTree<'static> as Source>::Node>,
        input: impl Read,
        input_name: &Path,
    ) -> Result<()> {
        self.note(tree, &place)?;
        let place = match tree.through(&place.dir, &place.name)? {
            Some((dir, name)) => Place { dir, name },
            None => place,
        };
        let (dir, name) = (&place.dir, place.name.as_slice());
        let there = tree.find(dir, name)?;
        if let Some((_, kind)) = &there {
            if *kind == FileType::Directory {
                let place = tree.place(dir, name);
                return Err(Error::failed("cp", place, "a directory is in the way"));
            }
            if self.args.no_clobber {
                return Ok(());
            }
        }
        let staged = Staged::new("cp", tree, (dir, name), there, (&new_file(), &[]), true)?;
        let copied = copy_input(tree, staged.node(), (input, input_name), || {
            match self.interrupt.came() {
                true => Err(Error::failed("cp", tree.place(dir, name), "interrupted")),
                false => Ok(()),
            }
        });
        copied.map_err(|error| staged.explained(error).or_hint("nothing of it was kept"))?;
        staged.keep(|_| Ok(()))
    }
}

/// Whether a file has no stored contents: another program provides or takes them.
fn is_special(kind: FileType) -> bool {
    !matches!(
        kind,
        FileType::Regular | FileType::Directory | FileType::Symlink
    )
}

/// The attributes of a file that a shell makes for redirected output.
fn new_file() -> Meta {
    let now = Timestamp::default();
    Meta {
        file_type: FileType::Regular,
        permissions: 0o666 & !umask(),
        uid: 0,
        gid: 0,
        size_bytes: 0,
        device_number: 0,
        links: 1,
        accessed: now,
        modified: now,
        identity: (0, 0),
    }
}

/// Copies a stream into a file; calls `check` before each piece and at the end.
fn copy_input<T: Target>(
    tree: &T,
    node: &T::Node,
    (mut input, input_name): (impl Read, &Path),
    check: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let mut len = 0;
        while len < buffer.len() {
            match input.read(&mut buffer[len..]) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::at_path("cp", input_name, host(&error))),
            }
        }
        check()?;
        if len == 0 {
            return Ok(());
        }
        tree.write(node, offset, &buffer[..len])?;
        offset += len as u64;
    }
}

/// The name that a file of the host gets in a directory. Empty where only its contents are copied,
/// as for `DIR/.`.
fn host_name(path: &Path) -> Vec<u8> {
    match path.file_name() {
        Some(name) if !path.as_os_str().as_bytes().ends_with(b"/.") => name.as_bytes().to_vec(),
        _ => Vec::new(),
    }
}

fn place_in_image(
    tree: &ImageTree<'_>,
    to: &[u8],
    name: &[u8],
    several: bool,
) -> Result<Place<<ImageTree<'static> as Source>::Node>> {
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

fn os_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Reports how many extended attributes the target could not store.
pub fn report_lost(what: &str, lost: u64) {
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
        assert!(matches!(Side::parse("-".into()), Side::Stream));
    }

    #[test]
    fn a_dot_behind_a_directory_means_what_is_in_it() {
        let name = |path: &str| host_name(Path::new(path));
        assert_eq!(name("a/b"), b"b");
        assert_eq!(name("a/b/"), b"b");
        assert_eq!([name("a/b/."), name("."), name("..")], [b"", b"", b""]);
    }
}
