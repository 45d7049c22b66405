//! The file systems of an open stack, and what an operation on one of them takes.

use backstitch_layout::{
    Awaited, Error, FileSystem, FileSystemStatistics, InodeNumber, Step, Stop, Timestamp,
};
use backstitch_ordering::{Log, Mechanism, Volume, VolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The low bits of an inode's number, its own; the bits above say which file system it is in.
const OWN_BITS: u32 = 28;
/// The most file systems of a stack.
pub(super) const MOST_MEMBERS: usize = 1 << (32 - OWN_BITS);

/// A file that holds blocks of a volume, all of it or a part.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The file system that has the file.
    pub(super) host: usize,
    pub(super) inode: InodeNumber,
    /// The block of the volume that the file's first block is.
    pub(super) first: u64,
    pub(super) blocks: u64,
}

/// What only a file system has that lies in files of other ones.
pub(super) struct Above {
    pub(super) mechanism: Box<dyn Mechanism>,
    pub(super) volume: VolumeId,
    /// Where its blocks are, in order.
    pub(super) parts: Vec<Part>,
}

/// A file system of an open stack.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) fs: Box<dyn FileSystem>,
    /// `None` for the one on the device, whose mechanism and volume are the engine's.
    pub(super) above: Option<Above>,
    /// Its files that hold volumes.
    pub(super) in_use: FxHashSet<InodeNumber>,
}

/// The open file systems of a stack.
pub(super) struct Members {
    pub(super) all: Vec<Member>,
    /// Directories in whose place the root of a file system shows.
    pub(super) covers: FxHashMap<(usize, InodeNumber), usize>,
    /// The file system whose root is the stack's. Its inodes keep their own numbers.
    pub(super) front: usize,
    /// The time of the last operation that stated one.
    pub(super) now: Timestamp,
    pub(super) block_bytes: u64,
}

impl Members {
    /// Which file system an inode of the stack is in, and its number there.
    pub(super) fn split(&self, inode: InodeNumber) -> Step<(usize, InodeNumber)> {
        let member = self.swap((inode.0 >> OWN_BITS) as usize);
        if member >= self.all.len() {
            return Err(Error::NotFound.into());
        }
        Ok((member, InodeNumber(inode.0 & ((1 << OWN_BITS) - 1))))
    }

    /// The number that an inode has in the stack.
    pub(super) fn join(&self, member: usize, inode: InodeNumber) -> InodeNumber {
        InodeNumber(inode.0 | (self.swap(member) as u32) << OWN_BITS)
    }

    /// As [`join`](Self::join), for an inode that a name leads to: a covered directory becomes the
    /// root of the file system that covers it.
    pub(super) fn shown(&self, member: usize, inode: InodeNumber) -> InodeNumber {
        match self.covers.get(&(member, inode)) {
            Some(other) => self.shown(*other, self.all[*other].fs.root()),
            None => self.join(member, inode),
        }
    }

    /// Exchanges number 0 and the front's, so that the front's inodes keep their own numbers.
    fn swap(&self, number: usize) -> usize {
        match number {
            0 => self.front,
            _ if number == self.front => 0,
            _ => number,
        }
    }

    /// Refuses a file system with inodes whose numbers do not fit.
    pub(super) fn check_numbers(
        name: &str,
        statistics: &FileSystemStatistics,
    ) -> backstitch_layout::Result<()> {
        if statistics.inodes < 1 << OWN_BITS {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "{name} has {} inodes; in a stack a file system has fewer than {}",
            statistics.inodes,
            1 << OWN_BITS
        )))
    }

    /// Runs a step of an operation on one of the file systems. Where it wants to change blocks that
    /// have no place, they get one, and the step runs again.
    pub(super) fn call<T>(
        &mut self,
        member: usize,
        v: &mut Volume<'_>,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>) -> Step<T>,
    ) -> Step<T> {
        loop {
            let Member { fs, above, .. } = &mut self.all[member];
            let done = match above {
                None => body(&mut **fs, v),
                Some(above) => {
                    let mut inner = v.enter(&mut *above.mechanism, above.volume, member as u8);
                    let done = match inner.come_after_groups() {
                        true => body(&mut **fs, &mut inner),
                        false => Err(Stop::WaitFor(Awaited::Transaction)),
                    };
                    let wait_for = inner.leave();
                    v.answer_after(wait_for);
                    done
                }
            };
            let is_miss = matches!(done, Err(Stop::Miss));
            if !(is_miss && self.give_places(member, v)?) {
                return done;
            }
        }
    }

    /// Gives blocks that a step wanted to change a place in the files that hold the volume. False
    /// where there were none.
    fn give_places(&mut self, member: usize, v: &mut Volume<'_>) -> Step<bool> {
        let Some(above) = &self.all[member].above else {
            return Ok(false);
        };
        let wanted = v.take_places_wanted(above.volume);
        let mut rest = &wanted[..];
        while let Some(first) = rest.first().copied() {
            let run = (first..).zip(rest).take_while(|(at, b)| at == *b).count();
            self.fill(member, v, first, run as u64)?;
            rest = &rest[run..];
        }
        Ok(!wanted.is_empty())
    }

    fn fill(&mut self, member: usize, v: &mut Volume<'_>, first: u64, count: u64) -> Step<()> {
        let Some(above) = &self.all[member].above else {
            return Err(Error::Invalid.into());
        };
        let (parts, volume) = (above.parts.clone(), above.volume);
        self.fill_parts(&parts, volume, v, first, count)
    }

    /// Writes zeros into blocks of the files that hold a volume, so that they have a place.
    pub(super) fn fill_parts(
        &mut self,
        parts: &[Part],
        volume: VolumeId,
        v: &mut Volume<'_>,
        first: u64,
        count: u64,
    ) -> Step<()> {
        let (mut at, end) = (first, first + count);
        while at < end {
            let is_in = |part: &&Part| (part.first..part.first + part.blocks).contains(&at);
            let part = parts.iter().find(is_in).ok_or(Error::Invalid)?;
            let within = at - part.first;
            let blocks = (end - at).min(part.blocks - within);
            self.write_zeros(part, v, within, blocks)?;
            self.learn(part, v, volume, within, blocks)?;
            let mut by = Vec::new();
            self.call(part.host, v, |fs, v| {
                by.clear();
                fs.sync_targets(v, part.inode, true, &mut by);
                v.show_blocks_by(volume, at, blocks, &by);
                Ok(())
            })?;
            at += blocks;
        }
        Ok(())
    }

    fn write_zeros(
        &mut self,
        part: &Part,
        v: &mut Volume<'_>,
        within: u64,
        blocks: u64,
    ) -> Step<()> {
        let (now, block_bytes) = (self.now, self.block_bytes);
        let zeros = vec![0; (blocks * block_bytes) as usize];
        let mut done = 0;
        while done < zeros.len() {
            let offset = within * block_bytes + done as u64;
            // A hole reads as zeros, too, so that no patchgroup can see this write.
            done += v.without_groups(|v| {
                self.call(part.host, v, |fs, v| {
                    fs.write(v, part.inode, offset, &zeros[done..], now)
                })
            })?;
        }
        Ok(())
    }

    /// Notes where blocks of a file are on the device, where that is not known yet.
    pub(super) fn learn(
        &mut self,
        part: &Part,
        v: &mut Volume<'_>,
        volume: VolumeId,
        within: u64,
        blocks: u64,
    ) -> Step<()> {
        let (mut at, end) = (within, within + blocks);
        while at < end {
            let (there, count) =
                self.call(part.host, v, |fs, v| fs.extent(v, part.inode, at, end - at))?;
            if let Some(there) = there {
                for i in 0..count {
                    let block = part.first + at + i;
                    if !v.has_place_here(volume, block) {
                        v.place_blocks(volume, block, (there + i).0, 1);
                    }
                }
            }
            at += count.max(1);
        }
        Ok(())
    }

    /// The log of the one file system that has one.
    pub(super) fn log(&mut self) -> Option<(&mut dyn Log, VolumeId)> {
        self.all.iter_mut().find_map(|member| {
            let above = member.above.as_mut()?;
            Some((above.mechanism.log()?, above.volume))
        })
    }

    /// Whether the file holds a volume.
    pub(super) fn is_in_use(&self, member: usize, inode: InodeNumber) -> bool {
        self.all[member].in_use.contains(&inode)
    }

    /// Refuses to remove a file that holds a volume, or a directory that is covered.
    pub(super) fn check_free(&self, member: usize, inode: InodeNumber) -> Step<()> {
        let is_covered = self.covers.contains_key(&(member, inode));
        match is_covered || self.is_in_use(member, inode) {
            true => Err(Error::Busy.into()),
            false => Ok(()),
        }
    }

    /// Whether any inode of the file system is refused by [`check_free`](Self::check_free).
    pub(super) fn has_uses(&self, member: usize) -> bool {
        !self.all[member].in_use.is_empty() || self.covers.keys().any(|(m, _)| *m == member)
    }
}
