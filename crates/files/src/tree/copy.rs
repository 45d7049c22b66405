//! Copying a tree, from any kind to any kind.

use super::{Meta, Source, Staged, Target, link};
use crate::error::{Error, Result, warn_line};
use crate::interrupt::Interrupt;
use crate::show;
use backstitch_vfs::FileType;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

/// Bytes that are copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// What a copy keeps of its original besides contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preserve {
    /// Permission bits, exactly.
    pub(crate) mode: bool,
    /// Owner and group.
    pub(crate) owner: bool,
    /// Access and modification times.
    pub(crate) times: bool,
    /// Extended attributes, ACLs among them.
    pub(crate) xattrs: bool,
    /// Hard links: the names of one file stay names of one file.
    pub(crate) links: bool,
}

impl Preserve {
    /// Everything.
    pub const ALL: Preserve = Preserve {
        mode: true,
        owner: true,
        times: true,
        xattrs: true,
        links: true,
    };
}

/// What happens to a file that a copy would replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The copy takes its place.
    #[default]
    Replace,
    /// It stays.
    Keep,
    /// It stays unless the original was changed later.
    KeepNewer,
}

/// How a copy is made.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// What the copy keeps of the original besides its contents.
    pub preserve: Preserve,
    /// What happens to an existing file of that name.
    pub existing: Existing,
    /// Whether each file is named on standard output, in place of a progress bar.
    pub verbose: bool,
    /// The file that holds the image, which is not copied into itself.
    pub excluded: Option<(u64, u64)>,
    /// Ends the copy.
    pub interrupt: Interrupt,
}

/// How far a copy has come, shown where there is a terminal.
struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar on stderr if that is a terminal and nothing else is printed.
    fn start(verbose: bool) -> Progress {
        let is_shown = !verbose && std::io::stderr().is_terminal();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::new_spinner();
            let style = "{spinner} {msg} files, {bytes} at {bytes_per_sec}, {elapsed}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { bar }
    }

    fn files(&self, files: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(files.to_string());
        }
    }

    fn bytes(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Files of which more names are expected, and how many.
type Linked<N> = HashMap<(u64, u64), (Rc<N>, u32)>;

/// A copy under way.
pub struct Copy<'a, S: Source, T: Target> {
    what: &'static str,
    source: &'a S,
    target: &'a T,
    options: CopyOptions,
    progress: Progress,
    linked: Linked<T::Node>,
    /// Directories seen, in trees where none may be seen twice.
    seen: HashSet<(u64, u64)>,
    /// Extended attributes that the target cannot store.
    pub xattrs_lost: u64,
    /// Files that are complete, directories that were made among them.
    pub files: u64,
}

/// A directory whose names are being copied.
struct Frame<S, T> {
    from: S,
    to: T,
    meta: Meta,
    names: std::vec::IntoIter<Vec<u8>>,
    is_new: bool,
}

impl<'a, S: Source, T: Target> Copy<'a, S, T> {
    /// A copy for the command `what`.
    pub fn new(what: &'static str, source: &'a S, target: &'a T, options: CopyOptions) -> Self {
        let progress = Progress::start(options.verbose);
        Copy {
            what,
            source,
            target,
            options,
            progress,
            linked: HashMap::new(),
            seen: HashSet::new(),
            xattrs_lost: 0,
            files: 0,
        }
    }

    /// Notes that a file is complete.
    fn done(&mut self, from: &S::Node, dir: &T::Node, name: &[u8]) -> Result<()> {
        self.files += 1;
        self.progress.files(self.files);
        if !self.options.verbose {
            return Ok(());
        }
        let (from, to) = (self.source.name(from), self.target.place(dir, name));
        show::print_bytes(self.what, format!("'{from}' -> '{to}'\n").as_bytes())
    }

    /// Fails once a signal to end has come.
    fn check(&self, dir: &T::Node, name: &[u8]) -> Result<()> {
        match self.options.interrupt.came() {
            false => Ok(()),
            true => {
                let place = self.target.place(dir, name);
                let error = Error::failed(self.what, place, "interrupted");
                Err(error.hint(format!(
                    "{} files were copied completely, this one was not; run it again with -u to skip those",
                    self.files
                )))
            }
        }
    }

    /// Whether the existing file stays, and nothing is copied.
    fn stays(&self, meta: &Meta, there: &T::Node) -> Result<bool> {
        Ok(match self.options.existing {
            Existing::Replace => false,
            Existing::Keep => true,
            Existing::KeepNewer => self.target.meta(there)?.modified >= meta.modified,
        })
    }

    /// Copies `from`, which is not a directory, to the name `name` in `dir`, replacing a file
    /// there. If the user has `named` that name, a symbolic link there stands for its target, and a
    /// special file is written to. A name that comes from the source never leads out of the target
    /// in this way.
    pub fn file(&mut self, from: &S::Node, dir: &T::Node, name: &[u8], named: bool) -> Result<()> {
        self.check(dir, name)?;
        let meta = self.source.meta(from)?;
        if named
            && meta.file_type == FileType::Regular
            && let Some((dir, name)) = self.target.through(dir, name)?
        {
            return self.file_at(from, &meta, (&dir, &name), named);
        }
        self.file_at(from, &meta, (dir, name), named)
    }

    fn file_at(
        &mut self,
        from: &S::Node,
        meta: &Meta,
        (dir, name): (&T::Node, &[u8]),
        named: bool,
    ) -> Result<()> {
        let there = self.target.find(dir, name)?;
        if let Some((there, kind)) = &there {
            if *kind == FileType::Directory {
                let place = self.target.place(dir, name);
                return Err(Error::failed(self.what, place, "a directory is in the way"));
            }
            if self.stays(meta, there)? {
                return Ok(());
            }
        }
        let has_names = self.options.preserve.links && meta.links > 1;
        let there_node = there.as_ref().map(|(node, _)| node);
        if has_names && self.link_known(meta, dir, name, there_node)? {
            return self.done(from, dir, name);
        }
        let link_target = match meta.file_type {
            FileType::Symlink => self.source.read_link(from)?,
            _ => Vec::new(),
        };
        let made = (meta, link_target.as_slice());
        let staged = Staged::new(self.what, self.target, (dir, name), there, made, named)?;
        if meta.file_type == FileType::Regular {
            let copied = self.contents(from, staged.node(), meta.size_bytes, (dir, name));
            copied.map_err(|error| staged.explained(error))?;
        }
        let mut lost = 0;
        staged.keep(|node| {
            lost = self.finish(from, node, meta)?;
            Ok(())
        })?;
        drop(staged);
        self.xattrs_lost += lost;
        self.done(from, dir, name)?;
        if has_names && let Some((kept, _)) = self.target.find(dir, name)? {
            self.linked
                .insert(meta.identity, (Rc::new(kept), meta.links - 1));
        }
        Ok(())
    }

    /// Copies the directory `from` and everything in it to the name `name` in `dir`, which may be
    /// an existing directory.
    pub(crate) fn tree(&mut self, from: S::Node, dir: &T::Node, name: &[u8]) -> Result<()> {
        let meta = self.source.meta(&from)?;
        let (to, is_new) = self.directory(&from, &meta, dir, name)?;
        self.walk(from, to, meta, is_new)
    }

    /// Copies what is in the directory `from` into the directory `to`. With `takes_over`, `to`
    /// itself also gets what is preserved of `from`.
    pub fn contents_of(&mut self, from: S::Node, to: T::Node, takes_over: bool) -> Result<()> {
        let meta = self.source.meta(&from)?;
        self.walk(from, to, meta, takes_over)
    }

    fn walk(&mut self, from: S::Node, to: T::Node, meta: Meta, is_new: bool) -> Result<()> {
        let mut stack = vec![self.enter(from, to, meta, is_new)?];
        while let Some(frame) = stack.last_mut() {
            let Some(name) = frame.names.next() else {
                if let Some(done) = stack.pop()
                    && done.is_new
                {
                    self.xattrs_lost += self.finish(&done.from, &done.to, &done.meta)?;
                }
                continue;
            };
            let child = self.source.child(&frame.from, &name)?;
            let meta = self.source.meta(&child)?;
            if self.options.excluded == Some(meta.identity) {
                let place = self.source.name(&child);
                warn_line(&format!(
                    "{}: {place}: this is the image that is written; it is left out",
                    self.what
                ));
                continue;
            }
            if meta.file_type == FileType::Directory {
                let (to, is_new) = self.directory(&child, &meta, &frame.to, &name)?;
                let next = self.enter(child, to, meta, is_new)?;
                stack.push(next);
            } else {
                self.file(&child, &frame.to, &name, false)?;
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        from: S::Node,
        to: T::Node,
        meta: Meta,
        is_new: bool,
    ) -> Result<Frame<S::Node, T::Node>> {
        if S::STRICT && !self.seen.insert(meta.identity) {
            let why = "this directory has two names: the file system is corrupt";
            return Err(Error::failed(self.what, self.source.name(&from), why));
        }
        let names = self.source.names(&from)?.into_iter();
        Ok(Frame {
            from,
            to,
            meta,
            names,
            is_new,
        })
    }

    /// The directory to copy into, made if it is not there.
    fn directory(
        &mut self,
        from: &S::Node,
        meta: &Meta,
        dir: &T::Node,
        name: &[u8],
    ) -> Result<(T::Node, bool)> {
        self.check(dir, name)?;
        match self.target.find(dir, name)? {
            Some((there, FileType::Directory)) => Ok((there, false)),
            Some(_) => {
                let place = self.target.place(dir, name);
                Err(Error::failed(
                    self.what,
                    place,
                    "a file is in a directory's way",
                ))
            }
            None => {
                let made = self.target.create(dir, name, meta, &[])?;
                self.done(from, dir, name)?;
                Ok((made, true))
            }
        }
    }

    /// Gives a further name to a file that was already copied.
    fn link_known(
        &mut self,
        meta: &Meta,
        dir: &T::Node,
        name: &[u8],
        there: Option<&T::Node>,
    ) -> Result<bool> {
        let Some((node, left)) = self.linked.get_mut(&meta.identity) else {
            return Ok(false);
        };
        *left -= 1;
        let (node, is_last) = (node.clone(), *left == 0);
        if !link(self.target, &node, (dir, name), there)? {
            let place = self.target.place(dir, name);
            return Err(Error::failed(self.what, place, "it may not be replaced"));
        }
        if is_last {
            self.linked.remove(&meta.identity);
        }
        Ok(true)
    }

    /// Copies the stored bytes; holes stay holes.
    fn contents(
        &self,
        from: &S::Node,
        to: &T::Node,
        size: u64,
        (dir, name): (&T::Node, &[u8]),
    ) -> Result<()> {
        let mut buffer = Vec::new();
        let mut written = 0;
        let mut offset = 0;
        while let Some((start, end)) = self.source.next_data(from, offset, size)? {
            let mut at = start;
            while at < end {
                self.check(dir, name)?;
                buffer.clear();
                let len = (end - at).min(CHUNK_BYTES);
                self.source.read(from, at, len as usize, &mut buffer)?;
                if buffer.is_empty() {
                    // The original became shorter meanwhile.
                    return Ok(());
                }
                self.target.write(to, at, &buffer)?;
                at += buffer.len() as u64;
                written = at;
                self.progress.bytes(buffer.len() as u64);
            }
            offset = end;
        }
        if written < size {
            self.target.set_size(to, size)?;
        }
        Ok(())
    }

    /// Sets the attributes that are kept of the original. Returns how many extended attributes the
    /// target could not store.
    fn finish(&self, from: &S::Node, to: &T::Node, meta: &Meta) -> Result<u64> {
        let mut lost = 0;
        if self.options.preserve.xattrs {
            // The owner first: a change of owner removes a file's capabilities.
            let owner = Preserve {
                owner: self.options.preserve.owner,
                ..Preserve::default()
            };
            self.target.finish(to, meta, owner)?;
            for xattr in self.source.xattrs(from)? {
                if !self.target.set_xattr(to, &xattr)? {
                    lost += 1;
                }
            }
        }
        self.target.finish(to, meta, self.options.preserve)?;
        Ok(lost)
    }
}
