//! A file on its way to its name.
//!
//! A copy that fails must not cost the file it was to replace. So the new contents are complete,
//! under a name beside it, before the old ones are touched; then, and this is the commit point, the
//! new file takes the name in one step.
//!
//! Not every file can be replaced by another one: it may have further names, an owner or attributes
//! that the user of the command cannot give away, or lie in a directory in which he may make
//! nothing. It is overwritten then, as cp(1) does it: the space for that is reserved first, and the
//! complete new contents go only after they are all in it.

use super::{Meta, Source, Target};
use crate::error::{Error, Result};
use backstitch_vfs::FileType;
use std::cell::Cell;

/// How much is copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// The longest part of a name that is kept in the name beside it; with what is added it stays below
/// 255 bytes.
const KEPT_NAME_BYTES: usize = 200;

/// How a file gets its name.
enum Way<N> {
    /// It has it already: nothing was there.
    Direct,
    /// It takes the name of what is there.
    Replace,
    /// As [`Replace`](Way::Replace), with what a regular file keeps when its contents change.
    Succeed(N),
    /// What is written goes into a special file.
    Stream,
}

/// A file on its way to its name. It goes where [`keep`](Self::keep) is not called.
pub(crate) struct Staged<'a, T: Target> {
    what: &'static str,
    target: &'a T,
    dir: &'a T::Node,
    name: &'a [u8],
    way: Way<T::Node>,
    /// The file to fill.
    node: T::Node,
    /// Whether it stays when this goes.
    stays: Cell<bool>,
}

impl<'a, T: Target> Staged<'a, T> {
    /// Makes the file that is to have the name `name` in `dir`, where `there` is now. A special
    /// file is written to where the user `named` it.
    pub(crate) fn new(
        what: &'static str,
        target: &'a T,
        (dir, name): (&'a T::Node, &'a [u8]),
        there: Option<(T::Node, FileType)>,
        (meta, link_target): (&Meta, &[u8]),
        named: bool,
    ) -> Result<Self> {
        let is_regular = meta.file_type == FileType::Regular;
        let staged = |way, node| Staged {
            what,
            target,
            dir,
            name,
            way,
            node,
            stays: Cell::new(false),
        };
        let Some((there, kind)) = there else {
            let made = target.create(dir, name, meta, link_target)?;
            return Ok(staged(Way::Direct, made));
        };
        let is_special = !matches!(kind, FileType::Regular | FileType::Directory);
        if is_regular
            && named
            && is_special
            && let Some(stream) = target.stream(&there)?
        {
            return Ok(staged(Way::Stream, stream));
        }
        let succeeds = is_regular && kind == FileType::Regular && target.may_write(&there);
        let beside = beside(target, dir, name)?;
        target.begin_order()?;
        let shown = Meta {
            // Until it has those of the file that it replaces.
            permissions: if succeeds { 0o600 } else { meta.permissions },
            ..*meta
        };
        let made = match target.create(dir, &beside, &shown, link_target) {
            Ok(made) => made,
            // Where nothing can be made beside it, it can still be overwritten.
            Err(error) => match succeeds.then(|| target.spool()) {
                Some(Ok(Some(made))) => made,
                _ => {
                    target.end_order();
                    return Err(error);
                }
            },
        };
        let way = match succeeds {
            true => Way::Succeed(there),
            false => Way::Replace,
        };
        Ok(staged(way, made))
    }

    /// The file to fill.
    pub(crate) fn node(&self) -> &T::Node {
        &self.node
    }

    /// Whether what is written goes into a special file, which keeps all else.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.way, Way::Stream)
    }

    fn replaces(&self) -> bool {
        matches!(self.way, Way::Replace | Way::Succeed(_))
    }

    /// An error as the user sees it, who knows nothing of the name beside.
    pub(crate) fn explained(&self, error: Error) -> Error {
        if !self.replaces() || self.stays.get() {
            return error;
        }
        let beside = Source::name(self.target, &self.node);
        error
            .renamed(&beside, &self.place())
            .or_hint("the file that was there is unchanged")
    }

    fn place(&self) -> String {
        self.target.place(self.dir, self.name)
    }

    /// Gives it its name, after `finish` has set what is kept of the original.
    pub(crate) fn keep(&self, finish: impl FnMut(&T::Node) -> Result<()>) -> Result<()> {
        self.give_name(finish)
            .map_err(|error| self.explained(error))
    }

    fn give_name(&self, mut finish: impl FnMut(&T::Node) -> Result<()>) -> Result<()> {
        let node = &self.node;
        match &self.way {
            Way::Stream => {}
            Way::Direct => finish(node)?,
            Way::Replace => {
                finish(node)?;
                self.target.sync(node)?;
                self.take_name()?;
            }
            Way::Succeed(there) => {
                let is_only_name = self.target.meta(there)?.links == 1;
                let replaced = is_only_name && self.target.take_after(node, there)? && {
                    finish(node)?;
                    self.target.sync(node)?;
                    self.target.rename(node, self.dir, self.name)?
                };
                if !replaced {
                    self.overwrite(there)?;
                    finish(there)?;
                    self.target.sync(there)?;
                    self.target.remove(node)?;
                }
            }
        }
        self.stays.set(true);
        Ok(())
    }

    fn take_name(&self) -> Result<()> {
        match self.target.rename(&self.node, self.dir, self.name)? {
            true => Ok(()),
            false => Err(Error::failed(
                self.what,
                self.place(),
                "it may not be replaced: permission denied",
            )),
        }
    }

    /// Puts the new contents into a file that is there, which has its space before it loses
    /// anything.
    fn overwrite(&self, to: &T::Node) -> Result<()> {
        let from = &self.node;
        let size = self.target.meta(from)?.size_bytes;
        self.target.sync(from)?;
        self.target.reserve(to, size)?;
        self.copy(from, to, size).map_err(|error| {
            self.stays.set(true);
            let kept = Source::name(self.target, from);
            error.hint(format!("the new contents are complete in {kept}"))
        })
    }

    fn copy(&self, from: &T::Node, to: &T::Node, size: u64) -> Result<()> {
        let target = self.target;
        let mut buffer = Vec::new();
        let mut offset = 0;
        while let Some((start, end)) = target.next_data(from, offset, size)? {
            target.punch(to, offset, start)?;
            let mut at = start;
            while at < end {
                buffer.clear();
                target.read(from, at, (end - at).min(CHUNK_BYTES) as usize, &mut buffer)?;
                if buffer.is_empty() {
                    let why = "it became shorter meanwhile";
                    return Err(Error::failed(self.what, Source::name(target, from), why));
                }
                target.write(to, at, &buffer)?;
                at += buffer.len() as u64;
            }
            offset = end;
        }
        target.punch(to, offset, size)?;
        target.set_size(to, size)
    }
}

impl<T: Target> Drop for Staged<'_, T> {
    fn drop(&mut self) {
        // A part of a file looks like the file. That it cannot be removed either is not what went
        // wrong.
        if !self.stays.get() && !self.is_stream() {
            let _ = self.target.remove(&self.node);
        }
        if self.replaces() {
            self.target.end_order();
        }
    }
}

/// Gives a file a further name, in place of what has it.
pub(crate) fn link<T: Target>(
    target: &T,
    node: &T::Node,
    (dir, name): (&T::Node, &[u8]),
    there: Option<&T::Node>,
) -> Result<bool> {
    let Some(there) = there else {
        target.link(node, dir, name)?;
        return Ok(true);
    };
    // A rename between two names of one file does nothing.
    if target.meta(there)?.identity == target.meta(node)?.identity {
        return Ok(true);
    }
    let linked = target.link(node, dir, &beside(target, dir, name)?)?;
    let renamed = target.rename(&linked, dir, name);
    if !matches!(renamed, Ok(true)) {
        let _ = target.remove(&linked);
    }
    renamed
}

/// A name in `dir` that is not taken, for what is to have the name `name`.
fn beside<T: Target>(target: &T, dir: &T::Node, name: &[u8]) -> Result<Vec<u8>> {
    let kept = &name[..name.len().min(KEPT_NAME_BYTES)];
    let mut number = std::process::id();
    loop {
        let mut beside = [b".", kept].concat();
        beside.extend_from_slice(format!(".partial-{number}").as_bytes());
        if target.find(dir, &beside)?.is_none() {
            return Ok(beside);
        }
        number = number.wrapping_add(1);
    }
}
