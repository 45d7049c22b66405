//! Reading and writing the contents of files.

use backstitch_layout::{
    BlockNumber, Error, FileType, InodeNumber, Piece, Seek, Step, Stop, Timestamp, flags,
    pieces_of_blocks,
};
use backstitch_ordering::{PatchId, Volume};

use crate::extend::NewContents;
use crate::format::{Format, Inode, InodeEditor};
use crate::map::Growth;
use crate::rules::{Rule, note_by, wait_for, wait_for_all};
use crate::state::UnixFs;
use crate::state::patches::PatchIds;
use backstitch_blocks::runs::{Mapped, Run};

/// The blocks that one part of a write goes into.
enum Stretch {
    Mapped(Run),
    New(Growth),
}

/// Checks that an inode is a regular file's: only these have contents that programs read and cut.
///
/// # Errors
/// [`Error::IsADirectory`], and [`Error::Invalid`] for all others.
pub(crate) fn check_regular(inode: &impl Inode) -> Result<(), Error> {
    match inode.file_type() {
        Some(FileType::Regular) => Ok(()),
        Some(FileType::Directory) => Err(Error::IsADirectory),
        _ => Err(Error::Invalid),
    }
}

impl<F: Format> UnixFs<F> {
    pub(crate) fn map_for_reading(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        offset: u64,
        len: usize,
        pieces: &mut Vec<Piece>,
    ) -> Step<()> {
        let inode = self.read_inode(v, number)?;
        check_regular(&inode)?;
        let bs = self.block_size() as u64;
        let end = inode.size().min(offset.saturating_add(len as u64));
        let mut at = offset;
        while at < end {
            let within = at % bs;
            let blocks = (end - at + within).div_ceil(bs);
            match self.map_blocks(v, &inode, at / bs, blocks)? {
                Mapped::Hole(count) => {
                    let len = (count * bs - within).min(end - at);
                    pieces.push(Piece::Hole {
                        len_bytes: len as usize,
                    });
                    at += len;
                }
                Mapped::Blocks(run) => {
                    let stop = end.min(at - within + run.len * bs);
                    pieces_of_blocks(v, run.start, within, stop - at, pieces);
                    at = stop;
                }
            }
        }
        Ok(())
    }

    /// Writes one stretch: what is mapped up to the first hole, or what one run of new blocks fills
    /// of a hole.
    pub(crate) fn write_step(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Step<usize> {
        let inode = self.read_inode(v, number)?;
        if inode.file_type() != Some(FileType::Regular) {
            return Err(Error::Invalid.into());
        }
        if inode.flags() & flags::IMMUTABLE != 0
            || (inode.flags() & flags::APPEND != 0 && offset != inode.size())
        {
            return Err(Error::NotPermitted.into());
        }
        let max = self.format.max_file_bytes();
        if offset >= max {
            return Err(Error::FileTooLarge.into());
        }
        let most = self.contents_in_step(v);
        let most = most.saturating_mul(self.block_size() as u64);
        let most = (max - offset).min(most).min(usize::MAX as u64) as usize;
        let data = &data[..data.len().min(most)];
        if data.is_empty() {
            return Ok(0);
        }
        self.format.declare_size(v, offset + data.len() as u64)?;
        if offset + data.len() as u64 > inode.size() {
            self.drop_leftovers(v, number, &inode, now)?;
        }
        let bs = self.block_size() as u64;
        let (first, last) = (offset / bs, (offset + data.len() as u64 - 1) / bs);
        let stretch = self.gather_stretch(v, number, &inode, first, last - first + 1)?;
        let stretch_end = match &stretch {
            Stretch::Mapped(run) => first + run.len,
            Stretch::New(extension) => extension.logical + extension.run.len,
        };
        let data = &data[..data.len().min((stretch_end * bs - offset) as usize)];
        let end = offset + data.len() as u64;
        let stale = if offset > inode.size() {
            self.gather_stale_tail(v, &inode)?
        } else {
            Default::default()
        };
        if let Stretch::Mapped(run) = &stretch {
            self.check_tail_is_last(v, number, &inode, first)?;
            v.expect_places(run.start, run.len)?;
            self.gather_partial_blocks(v, *run, offset, end)?;
        }
        let mut before_size = if end > inode.size() {
            self.zero_stale_tail(v, number, stale)
        } else {
            PatchIds::new()
        };
        match stretch {
            Stretch::Mapped(run) => {
                let behind = self.overwrite(v, number, &inode, run, offset, data);
                if end > inode.size() {
                    before_size.extend_from_slice(wait_for_all(Rule::SizeAfterContents, &behind));
                    let filled = self.inodes.get(&number).and_then(|s| s.end_filled);
                    before_size.extend(filled.map(|id| wait_for(Rule::SizeAfterFilledEnd, id)));
                }
                self.note_written(v, number, &inode, end, &before_size, now);
            }
            Stretch::New(extension) => {
                let within = (offset - extension.logical * bs) as usize;
                let moved = self.moved_contents(v, &inode, &extension, within, data);
                let contents = match &moved {
                    Some(contents) => NewContents::data(contents, 0),
                    None => NewContents::data(data, within),
                };
                self.extend(
                    v,
                    number,
                    &inode,
                    &extension,
                    contents,
                    end,
                    before_size,
                    now,
                );
            }
        }
        Ok(data.len())
    }

    /// Where blocks of a file are: how many from `first` on are together, and the first of them, or
    /// `None` where they are a hole.
    pub(crate) fn extent_at(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        first: u64,
        count: u64,
    ) -> Step<(Option<BlockNumber>, u64)> {
        let inode = self.read_inode(v, number)?;
        if inode.file_type() != Some(FileType::Regular) {
            return Err(Error::Invalid.into());
        }
        Ok(match self.map_blocks(v, &inode, first, count)? {
            Mapped::Hole(len) => (None, len.min(count)),
            Mapped::Blocks(run) => (Some(run.start), run.len.min(count)),
        })
    }

    /// One step of reserving blocks that read as zeros.
    pub(crate) fn reserve_step(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        from: u64,
        to: u64,
        now: Timestamp,
    ) -> Step<()> {
        let bs = self.block_size() as u64;
        let (mut at, end) = (from / bs, to.div_ceil(bs));
        if to > inode.size() {
            self.drop_leftovers(v, number, inode, now)?;
        }
        while at < end {
            match self.map_blocks(v, inode, at, end - at)? {
                Mapped::Blocks(run) => at += run.len,
                Mapped::Hole(count) => {
                    const STEP_BLOCKS: u64 = 256;
                    let most = self.contents_in_step(v).min(STEP_BLOCKS);
                    let extension =
                        self.gather_extension(v, number, inode, at, count.min(end - at).min(most))?;
                    let stale = self.gather_stale_tail(v, inode)?;
                    let reached = to.min((extension.logical + extension.run.len) * bs);
                    let before = if reached > inode.size() {
                        self.zero_stale_tail(v, number, stale)
                    } else {
                        PatchIds::new()
                    };
                    let moved = self.moved_contents(v, inode, &extension, 0, &[]);
                    self.extend(
                        v,
                        number,
                        inode,
                        &extension,
                        NewContents::data(moved.as_deref().unwrap_or(&[]), 0),
                        reached,
                        before,
                        now,
                    );
                    return Err(Stop::Again);
                }
            }
        }
        if to > inode.size() {
            self.resize(v, number, inode, to, now)
        } else {
            Ok(())
        }
    }

    fn gather_stretch(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        first: u64,
        count: u64,
    ) -> Step<Stretch> {
        match self.map_blocks(v, inode, first, count)? {
            Mapped::Blocks(run) => Ok(Stretch::Mapped(Run {
                len: run.len.min(count),
                ..run
            })),
            Mapped::Hole(len) => {
                // A hole at the border of an indirect block goes on behind it more often than not.
                let mut hole = len.min(count);
                while hole < count {
                    match self.map_blocks(v, inode, first + hole, count - hole)? {
                        Mapped::Hole(more) => hole += more.min(count - hole),
                        Mapped::Blocks(_) => break,
                    }
                }
                Ok(Stretch::New(
                    self.gather_extension(v, number, inode, first, hole)?,
                ))
            }
        }
    }

    fn gather_partial_blocks(
        &mut self,
        v: &mut Volume<'_>,
        run: Run,
        offset: u64,
        end: u64,
    ) -> Step<()> {
        let bs = self.block_size() as u64;
        if !offset.is_multiple_of(bs) {
            v.read(run.start)?;
        }
        if !end.is_multiple_of(bs) {
            v.read(run.start + (end - 1) / bs - offset / bs)?;
        }
        Ok(())
    }

    /// Writes contents that wait for nothing: those of one file are one patch as far as they can
    /// be.
    pub(crate) fn write_contents(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        block: BlockNumber,
        offset: usize,
        contents: &[u8],
    ) -> PatchId {
        let state = self.state(number);
        let run = state.run.unwrap_or(PatchId::COMMITTED);
        let id = v.write_in_run(block, offset, contents, run);
        state.run = Some(id);
        id
    }

    /// Writes into mapped blocks: no order among them. Returns the patches of those that get bytes
    /// behind the file's end: a larger size shows nothing new of the others.
    fn overwrite(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        run: Run,
        offset: u64,
        data: &[u8],
    ) -> PatchIds {
        let bs = self.block_size();
        let mut within = (offset % bs as u64) as usize;
        let mut rest = data;
        let mut block = run.start;
        let mut behind = PatchIds::new();
        let new = self.new_object(v, number);
        while !rest.is_empty() {
            let len = rest.len().min(bs - within);
            let at = offset + (data.len() - rest.len()) as u64;
            let is_new = new.as_ref().is_some_and(|n| v.is_contents_of_new(block, n));
            let is_hidden = is_new || self.is_behind_end(v, number, inode, at);
            let id = v.hidden(is_hidden, |v| {
                self.write_contents(v, number, block, within, &rest[..len])
            });
            self.note_change(v, number, note_by(Rule::FsyncWaitsForOverwrites, id));
            if at + len as u64 > inode.size() {
                behind.push(id);
            }
            rest = &rest[len..];
            within = 0;
            block += 1;
        }
        behind
    }

    /// Whether a file ends before `offset`, in memory and on the disk: nobody sees what is written
    /// there until the size says so.
    pub(crate) fn is_behind_end(
        &self,
        v: &Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        offset: u64,
    ) -> bool {
        let shrunk = self.inodes.get(&number).and_then(|s| s.shrunk);
        offset >= inode.size() && !shrunk.is_some_and(|shrunk| v.is_live(shrunk))
    }

    fn note_written(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        end: u64,
        before_size: &[PatchId],
        now: Timestamp,
    ) {
        if end > inode.size() {
            let id = self.change_inode(v, number, before_size, |e| {
                e.set_size(end);
                e.set_modified(now);
                e.set_changed(now);
            });
            self.note_contents_apart(v, number, id, false);
            self.state(number).lengthened = Some(id);
        } else {
            self.touch_modified(v, number, now);
        }
    }

    pub(crate) fn find_data_or_hole(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        offset: u64,
        what: Seek,
    ) -> Step<u64> {
        let inode = self.read_inode(v, number)?;
        // A short symlink has its target where others have their map.
        if inode.file_type() != Some(FileType::Regular) {
            return Err(Error::Invalid.into());
        }
        let bs = self.block_size() as u64;
        if offset >= inode.size() {
            return Err(Error::NoSuchAddress.into());
        }
        let end = inode.size().div_ceil(bs);
        let mut at = offset / bs;
        while at < end {
            let (is_data, len) = match self.map_blocks(v, &inode, at, end - at)? {
                Mapped::Blocks(run) => (true, run.len),
                Mapped::Hole(len) => (false, len),
            };
            if is_data == (what == Seek::Data) {
                return Ok(offset.max(at * bs));
            }
            at += len;
        }
        match what {
            Seek::Data => Err(Error::NoSuchAddress.into()),
            Seek::Hole => Ok(inode.size()),
        }
    }
}
