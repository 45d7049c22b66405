//! New contents of a file, complete before they take the file's name.
//!
//! A copy that fails must not cost the file that it was to replace. So the new contents are
//! complete, under a name beside it, before the old ones are touched. Then the new file takes the
//! name in one step, which is the commit point.
//!
//! Not every file can be replaced by another one: it may have further names, an owner or attributes
//! that the user cannot give to a new file, or be in a directory in which the user can make no
//! files. Then it is overwritten, as cp(1) does it. Space for that is reserved first, and the
//! complete copy of the new contents is removed only once all of them are in the file.

use super::{Meta, Source, Target};
use crate::error::{Error, Result};
use backstitch_vfs::FileType;
use std::cell::Cell;

/// Bytes that are copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Bytes of a name that are kept in the name beside it, at most. With the addition that stays below
/// 255 bytes.
const KEPT_NAME_BYTES: usize = 200;

/// How a file gets its name.
enum Way<N> {
    /// It has the name already: there was no file before.
    Direct,
    /// It replaces an existing file.
    Replace,
    /// As [`Replace`](Way::Replace), and keeps what a regular file keeps when its contents change.
    Succeed(N),
    /// It is a special file, into which the contents are written.
    Stream,
}

/// A file that is being filled. It is removed unless [`keep`](Self::keep) is called.
pub(crate) struct Staged<'a, T: Target> {
    what: &'static str,
    target: &'a T,
    dir: &'a T::Node,
    name: &'a [u8],
    way: Way<T::Node>,
    /// The file to fill.
    node: T::Node,
    /// Whether the file stays when this is dropped.
    stays: Cell<bool>,
}

impl<'a, T: Target> Staged<'a, T> {
    /// Makes the file for the name `name` in `dir`, where `there` is now. If the user has `named` a
    /// special file, that is written to instead.
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
            // Private until it gets the permissions of the file that it replaces.
            permissions: if succeeds { 0o600 } else { meta.permissions },
            ..*meta
        };
        let made = match target.create(dir, &beside, &shown, link_target) {
            Ok(made) => made,
            // If no file can be made beside it, it can still be overwritten.
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

    /// Whether the contents go into a special file, which keeps its other attributes.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.way, Way::Stream)
    }

    fn replaces(&self) -> bool {
        matches!(self.way, Way::Replace | Way::Succeed(_))
    }

    /// An error in the user's terms: without the name beside.
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

    /// Calls `finish`, which sets what is kept of the original, and gives the file its name.
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

    /// Puts the new contents into an existing file. Its space is reserved before it loses anything.
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
        // A partial file must not be taken for the whole. An error of the removal is not the one to
        // report.
        if !self.stays.get() && !self.is_stream() {
            let _ = self.target.remove(&self.node);
        }
        if self.replaces() {
            self.target.end_order();
        }
    }
}

/// Gives a file a further name, replacing the file that has it.
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

/// A name in `dir` that is not taken, for the file that will get the name `name`.
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
