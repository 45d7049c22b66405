//! Walking the trees of an image.

use crate::error::Result;
use crate::image::{Access, Held, Image, with_files};
use crate::paths::{ImagePath, joined};
use backstitch_vfs::InodeNumber;
use std::collections::HashSet;
use std::vec::IntoIter;

/// A file that a walk visits.
pub(crate) struct Visited<'a> {
    /// Its path.
    pub(crate) path: &'a [u8],
    /// The file.
    pub(crate) held: &'a Held,
    /// The number of levels below the start: 0 for the start itself.
    pub(crate) depth: usize,
}

/// When a walk shows a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Before its contents.
    Before,
    /// After its contents.
    After,
}

/// A directory whose names are being visited.
struct Frame {
    path: Vec<u8>,
    held: Held,
    names: IntoIter<Vec<u8>>,
}

/// Calls `work` for each file that the operands stand for, and with `is_recursive` for everything
/// below it. With `follows` a link named as an operand is followed.
pub(crate) fn with_trees(
    what: &'static str,
    access: Access,
    operands: &[ImagePath],
    (follows, is_recursive): (bool, bool),
    mut work: impl FnMut(&Image, &[u8], &Held) -> Result<()>,
) -> Result<()> {
    let depth_max = if is_recursive { usize::MAX } else { 0 };
    with_files(what, access, operands, |image, path| {
        let start = image.resolve(path, follows)?;
        walk(
            image,
            path,
            start,
            depth_max,
            Order::Before,
            &mut |visited| work(image, visited.path, visited.held),
        )
    })
}

/// Visits everything below a path down to `depth_max`, the path itself included. Names come sorted;
/// symbolic links are not followed. There is no recursion: an image may nest deeper than the stack
/// allows.
pub(crate) fn walk(
    image: &Image,
    path: &[u8],
    start: Held,
    depth_max: usize,
    order: Order,
    visit: &mut dyn FnMut(&Visited<'_>) -> Result<()>,
) -> Result<()> {
    let mut seen: HashSet<InodeNumber> = HashSet::new();
    let mut stack: Vec<Frame> = Vec::new();
    let mut next = Some((path.to_vec(), start));
    loop {
        if let Some((path, held)) = next.take() {
            let depth = stack.len();
            let is_entered = held.is_directory() && depth < depth_max;
            if !is_entered || order == Order::Before {
                let (path, held) = (&path[..], &held);
                visit(&Visited { path, held, depth })?;
            }
            if is_entered {
                if !seen.insert(held.inode()) {
                    let why = "this directory has two names: the file system is corrupt";
                    return Err(image.error(&path, why));
                }
                let names = image.names(held.inode());
                let mut names = names.map_err(|error| image.error(&path, error))?;
                names.sort_unstable();
                let names = names.into_iter();
                stack.push(Frame { path, held, names });
            }
        }
        let Some(frame) = stack.last_mut() else {
            return Ok(());
        };
        match frame.names.next() {
            Some(name) => {
                let path = joined(&frame.path, &name);
                let found = image.engine.lookup(frame.held.inode(), &name);
                let found = found.map_err(|error| image.error(&path, error))?;
                next = Some((path, image.hold(found)));
            }
            None => {
                let done = stack.pop();
                if let (Some(Frame { path, held, .. }), Order::After) = (done, order) {
                    let depth = stack.len();
                    let (path, held) = (&path[..], &held);
                    visit(&Visited { path, held, depth })?;
                }
            }
        }
    }
}
