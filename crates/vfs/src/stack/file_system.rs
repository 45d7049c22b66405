//! An open stack as one file system: operations go to the file system that their inode is in.

use backstitch_layout::{
    AccessTimes, Allocate, Attributes, BlockNumber, Changed, DeferredStatistics, DirectoryEntry,
    Error, FileSystem, FileSystemStatistics, FreeSpaceReader, InodeNumber, NewInode, Piece,
    ReclaimProgress, ReclaimStep, Rename, RenameMode, Seek, SetAttributes, SetXattrMode, Step,
    Stop, Timestamp,
};
use backstitch_ordering::{Log, PatchId, Volume, VolumeId};

use super::members::Members;

/// See the module's documentation.
pub(super) struct Stacked {
    members: Members,
    /// The index of the file system that did deferred work last.
    last_worked: usize,
}

impl Stacked {
    pub(super) fn new(members: Members) -> Stacked {
        Stacked {
            members,
            last_worked: 0,
        }
    }

    /// Runs a step on the file system that an inode is in.
    fn at<T>(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, InodeNumber) -> Step<T>,
    ) -> Step<T> {
        let (member, inode) = self.members.split(inode)?;
        self.members.call(member, v, |fs, v| body(fs, v, inode))
    }

    /// As [`at`](Self::at), for steps that change a file's length or blocks.
    fn at_contents<T>(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, InodeNumber) -> Step<T>,
    ) -> Step<T> {
        let (member, own) = self.members.split(inode)?;
        match self.members.is_in_use(member, own) {
            true => Err(Error::Busy.into()),
            false => self.at(v, inode, body),
        }
    }

    /// Runs a step on each file system, those inside before those that hold them.
    fn each(
        &mut self,
        v: &mut Volume<'_>,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>) -> Step<()>,
    ) -> Step<()> {
        let mut members = (0..self.members.all.len()).rev();
        members.try_for_each(|member| self.members.call(member, v, &mut body))
    }

    /// Removes a name: checks that it is not in use, then calls `body` on the directory's file
    /// system with the directory's own number there.
    fn take_away(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, InodeNumber) -> Step<InodeNumber>,
    ) -> Step<InodeNumber> {
        self.members.now = now;
        self.check_name(v, directory, name)?;
        let (member, own) = self.members.split(directory)?;
        let gone = self.members.call(member, v, |fs, v| body(fs, v, own))?;
        Ok(self.members.join(member, gone))
    }

    /// Refuses to remove a name of an inode that is in use.
    fn check_name(&mut self, v: &mut Volume<'_>, directory: InodeNumber, name: &[u8]) -> Step<()> {
        let (member, own) = self.members.split(directory)?;
        if !self.members.has_uses(member) {
            return Ok(());
        }
        match self
            .members
            .call(member, v, |fs, v| fs.lookup(v, own, name))
        {
            Ok(inode) => self.members.check_free(member, inode),
            Err(Stop::Miss) => Err(Stop::Miss),
            // The operation itself will report the error.
            Err(_) => Ok(()),
        }
    }

    fn attributes_in(&self, like: InodeNumber, attributes: Attributes) -> Step<Attributes> {
        let (member, _) = self.members.split(like)?;
        Ok(Attributes {
            inode: self.members.join(member, attributes.inode),
            ..attributes
        })
    }

    fn inside(&self) -> impl Iterator<Item = &dyn FileSystem> {
        self.members.all.iter().map(|member| &*member.fs)
    }
}

impl FileSystem for Stacked {
    fn name(&self) -> &'static str {
        self.members.all[self.members.front].fs.name()
    }

    fn root(&self) -> InodeNumber {
        let front = self.members.front;
        self.members.join(front, self.members.all[front].fs.root())
    }

    fn read_only_reason(&self) -> Option<String> {
        let mut reasons = self.inside().map(FileSystem::read_only_reason);
        let all = reasons.try_fold(None, |_, reason| reason.map(Some));
        all.flatten()
    }

    fn mark_in_use(&mut self, _v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        // Each file system was marked when it was opened.
        Ok(Vec::new())
    }

    fn become_read_only(&mut self, reason: &str) {
        for member in &mut self.members.all {
            member.fs.become_read_only(reason);
        }
    }

    fn statistics(&self) -> FileSystemStatistics {
        self.members.all[self.members.front].fs.statistics()
    }

    fn statistics_at(&self, inode: InodeNumber) -> FileSystemStatistics {
        match self.members.split(inode) {
            Ok((member, inode)) => self.members.all[member].fs.statistics_at(inode),
            Err(_) => self.statistics(),
        }
    }

    fn attributes(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        let found = self.at(v, inode, |fs, v, inode| fs.attributes(v, inode))?;
        self.attributes_in(inode, found)
    }

    fn find(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        let found = self.at(v, inode, |fs, v, inode| fs.find(v, inode))?;
        self.attributes_in(inode, found)
    }

    fn set_attributes(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Step<Attributes> {
        self.members.now = now;
        let change = |fs: &mut dyn FileSystem, v: &mut Volume<'_>, inode| {
            fs.set_attributes(v, inode, set, now)
        };
        let changed = match set.size_bytes {
            Some(_) => self.at_contents(v, inode, change)?,
            None => self.at(v, inode, change)?,
        };
        self.attributes_in(inode, changed)
    }

    fn touch_accessed(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        rule: AccessTimes,
        now: Timestamp,
    ) -> Step<()> {
        self.members.now = now;
        self.at(v, inode, |fs, v, inode| {
            fs.touch_accessed(v, inode, rule, now)
        })
    }

    fn lookup(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
    ) -> Step<InodeNumber> {
        let (member, own) = self.members.split(directory)?;
        let found = self
            .members
            .call(member, v, |fs, v| fs.lookup(v, own, name))?;
        Ok(self.members.shown(member, found))
    }

    fn read_directory(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<()> {
        let (member, own) = self.members.split(directory)?;
        let mut entries: Vec<(DirectoryEntry<'static>, Vec<u8>)> = Vec::new();
        self.members.call(member, v, |fs, v| {
            entries.clear();
            fs.read_directory(v, own, cookie, &mut |entry| {
                let (inode, file_type) = (entry.inode, entry.file_type);
                let next_cookie = entry.next_cookie;
                let name = &[];
                let without_name = DirectoryEntry {
                    inode,
                    file_type,
                    name,
                    next_cookie,
                };
                entries.push((without_name, entry.name.to_vec()));
                entries.len() < ENTRIES_AT_ONCE
            })
        })?;
        let is_whole = entries.len() < ENTRIES_AT_ONCE;
        let mut last = cookie;
        for (entry, name) in &entries {
            last = entry.next_cookie;
            let inode = match &name[..] {
                b"." | b".." => self.members.join(member, entry.inode),
                _ => self.members.shown(member, entry.inode),
            };
            let shown = DirectoryEntry {
                inode,
                name,
                ..entry.clone()
            };
            if !emit(&shown) {
                return Ok(());
            }
        }
        match is_whole {
            true => Ok(()),
            false => self.read_directory(v, directory, last, emit),
        }
    }

    fn create(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.members.now = now;
        let (member, own) = self.members.split(directory)?;
        let made = self
            .members
            .call(member, v, |fs, v| fs.create(v, own, name, new, now))?;
        Ok(self.members.join(member, made))
    }

    fn create_unnamed(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.members.now = now;
        let (member, own) = self.members.split(directory)?;
        let made = self
            .members
            .call(member, v, |fs, v| fs.create_unnamed(v, own, new, now))?;
        Ok(self.members.join(member, made))
    }

    fn link(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<()> {
        self.members.now = now;
        let (member, inode) = self.members.split(inode)?;
        let (other, directory) = self.members.split(directory)?;
        if member != other {
            return Err(Error::OtherFileSystem.into());
        }
        self.members
            .call(member, v, |fs, v| fs.link(v, inode, directory, name, now))
    }

    fn unlink(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.take_away(v, directory, name, now, |fs, v, own| {
            fs.unlink(v, own, name, now)
        })
    }

    fn remove_directory(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.take_away(v, directory, name, now, |fs, v, own| {
            fs.remove_directory(v, own, name, now)
        })
    }

    fn rename(
        &mut self,
        v: &mut Volume<'_>,
        rename: &Rename<'_>,
        now: Timestamp,
    ) -> Step<Option<InodeNumber>> {
        self.members.now = now;
        let (member, from) = self.members.split(rename.from)?;
        let (other, to) = self.members.split(rename.to)?;
        if member != other {
            return Err(Error::OtherFileSystem.into());
        }
        // A file that holds a volume may be renamed. A covered directory may not, and neither of
        // them may be replaced.
        if rename.mode != RenameMode::NoReplace {
            self.check_name(v, rename.to, rename.to_name)?;
        }
        let inner = Rename {
            from,
            to,
            ..*rename
        };
        let covers = self.members.has_uses(member);
        let is_covered = covers
            && match self
                .members
                .call(member, v, |fs, v| fs.lookup(v, from, rename.from_name))
            {
                Ok(inode) => self.members.covers.contains_key(&(member, inode)),
                Err(Stop::Miss) => return Err(Stop::Miss),
                Err(_) => false,
            };
        if is_covered {
            return Err(Error::Busy.into());
        }
        let gone = self
            .members
            .call(member, v, |fs, v| fs.rename(v, &inner, now))?;
        Ok(gone.map(|inode| self.members.join(member, inode)))
    }

    fn read_link(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        self.at(v, inode, |fs, v, inode| fs.read_link(v, inode))
    }

    fn map(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        pieces: &mut Vec<Piece>,
    ) -> Step<()> {
        let block_bytes = self.members.block_bytes;
        let start = pieces.len();
        self.at(v, inode, |fs, v, inode| {
            pieces.truncate(start);
            fs.map(v, inode, offset_bytes, len_bytes, pieces)?;
            if pieces[start..]
                .iter()
                .any(|piece| matches!(piece, Piece::Device { .. }))
            {
                let found = pieces.split_off(start);
                for piece in found {
                    put_on_device(v, block_bytes, piece, pieces);
                }
            }
            Ok(())
        })
    }

    fn extent(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        first: u64,
        count: u64,
    ) -> Step<(Option<BlockNumber>, u64)> {
        self.at(v, inode, |fs, v, inode| fs.extent(v, inode, first, count))
    }

    fn log(&mut self) -> Option<(&mut dyn Log, VolumeId)> {
        self.members.log()
    }

    fn free_epoch(&self) -> u64 {
        self.inside().map(FileSystem::free_epoch).sum()
    }

    fn write(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Step<usize> {
        self.members.now = now;
        self.at_contents(v, inode, |fs, v, inode| {
            fs.write(v, inode, offset_bytes, data, now)
        })
    }

    fn allocate(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
        now: Timestamp,
    ) -> Step<()> {
        self.members.now = now;
        self.at_contents(v, inode, |fs, v, inode| {
            fs.allocate(v, inode, how, offset_bytes, len_bytes, now)
        })
    }

    fn seek(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        what: Seek,
    ) -> Step<u64> {
        self.at(v, inode, |fs, v, inode| {
            fs.seek(v, inode, offset_bytes, what)
        })
    }

    fn xattr(&mut self, v: &mut Volume<'_>, inode: InodeNumber, name: &[u8]) -> Step<Vec<u8>> {
        self.at(v, inode, |fs, v, inode| fs.xattr(v, inode, name))
    }

    fn list_xattrs(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        self.at(v, inode, |fs, v, inode| fs.list_xattrs(v, inode))
    }

    fn set_xattr(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        name: &[u8],
        value: Option<&[u8]>,
        mode: SetXattrMode,
        now: Timestamp,
    ) -> Step<()> {
        self.members.now = now;
        self.at(v, inode, |fs, v, inode| {
            fs.set_xattr(v, inode, name, value, mode, now)
        })
    }

    fn sync_targets(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        let collected = self.at(v, inode, |fs, v, inode| {
            fs.sync_targets(v, inode, data_only, targets);
            Ok(())
        });
        debug_assert!(collected.is_ok(), "nothing is read for this");
    }

    fn flush_targets(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        let collected = self.at(v, inode, |fs, v, inode| {
            fs.flush_targets(v, inode, data_only, targets);
            Ok(())
        });
        debug_assert!(collected.is_ok(), "nothing is read for this");
    }

    fn prepare_commit(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.members.now = now;
        for member in 0..self.members.all.len() {
            let above = self.members.all[member].above.as_mut();
            if above.is_some_and(|above| above.mechanism.log().is_some()) {
                self.members
                    .call(member, v, |fs, v| fs.prepare_commit(v, now))?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, inode: InodeNumber) {
        if let Ok((member, inode)) = self.members.split(inode) {
            self.members.all[member].fs.hold(inode);
        }
    }

    fn release(&mut self, inode: InodeNumber) {
        if let Ok((member, inode)) = self.members.split(inode) {
            self.members.all[member].fs.release(inode);
        }
    }

    fn release_all(&mut self) {
        for member in &mut self.members.all {
            member.fs.release_all();
        }
    }

    fn background(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<bool> {
        self.members.now = now;
        for member in 0..self.members.all.len() {
            self.last_worked = member;
            if self
                .members
                .call(member, v, |fs, v| fs.background(v, now))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn free_ready(&mut self, v: &mut Volume<'_>) -> Step<bool> {
        for member in 0..self.members.all.len() {
            if self.members.call(member, v, |fs, v| fs.free_ready(v))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn put_deferred_aside(&mut self) -> bool {
        self.members.all[self.last_worked].fs.put_deferred_aside()
    }

    fn retry_deferred(&mut self) {
        for member in &mut self.members.all {
            member.fs.retry_deferred();
        }
    }

    fn free_space(&self) -> FreeSpaceReader {
        self.members.all[0].fs.free_space()
    }

    fn deferred(&self) -> DeferredStatistics {
        let each = self.inside().map(FileSystem::deferred);
        each.fold(DeferredStatistics::default(), |sum, one| {
            DeferredStatistics {
                pending: sum.pending + one.pending,
                ready: sum.ready + one.ready,
                done: sum.done + one.done,
                unreadable: sum.unreadable + one.unreadable,
                bytes: sum.bytes + one.bytes,
                index_bytes: sum.index_bytes + one.index_bytes,
            }
        })
    }

    fn reclaim(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<ReclaimStep> {
        self.members.now = now;
        let is_running = |member: &super::members::Member| member.fs.reclaim_progress().running;
        let Some(member) = self.members.all.iter().position(is_running) else {
            return Ok(ReclaimStep::Done);
        };
        let step = self.members.call(member, v, |fs, v| fs.reclaim(v, now))?;
        Ok(match step {
            ReclaimStep::Done if self.members.all.iter().any(is_running) => ReclaimStep::More,
            step => step,
        })
    }

    fn put_reclaim_aside(&mut self) -> bool {
        let mut members = self.members.all.iter_mut();
        let running = members.find(|member| member.fs.reclaim_progress().running);
        running.is_some_and(|member| member.fs.put_reclaim_aside())
    }

    fn reclaim_progress(&self) -> ReclaimProgress {
        let each = self.inside().map(FileSystem::reclaim_progress);
        let none = ReclaimProgress {
            is_settled: true,
            done_fraction: 1.0,
            ..ReclaimProgress::default()
        };
        each.fold(none, |sum, one| ReclaimProgress {
            running: sum.running || one.running,
            is_settled: sum.is_settled && one.is_settled,
            done_fraction: sum.done_fraction.min(one.done_fraction),
            freed_blocks: sum.freed_blocks + one.freed_blocks,
            freed_inodes: sum.freed_inodes + one.freed_inodes,
            put_aside: sum.put_aside + one.put_aside,
        })
    }

    fn take_changed(&mut self, into: &mut Vec<Changed>) {
        for member in 0..self.members.all.len() {
            let mut own = Vec::new();
            self.members.all[member].fs.take_changed(&mut own);
            into.extend(own.into_iter().map(|changed| match changed {
                Changed::Name { directory, name } => Changed::Name {
                    directory: self.members.join(member, directory),
                    name,
                },
                Changed::Attributes(inode) => Changed::Attributes(self.members.join(member, inode)),
            }));
        }
    }

    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.members.now = now;
        self.each(v, |fs, v| fs.write_counters(v, now))
    }

    fn mark_clean(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.members.now = now;
        self.each(v, |fs, v| fs.mark_clean(v, now))
    }
}

/// Names that are read from a directory at a time.
const ENTRIES_AT_ONCE: usize = 256;

/// Adds a piece of a file, given by its place in the volume, to `into` as pieces on the device.
fn put_on_device(v: &Volume<'_>, block_bytes: u64, piece: Piece, into: &mut Vec<Piece>) {
    let Piece::Device {
        offset_bytes,
        len_bytes,
    } = piece
    else {
        into.push(piece);
        return;
    };
    let (mut at, end) = (offset_bytes, offset_bytes + len_bytes as u64);
    while at < end {
        let within = at % block_bytes;
        let len_bytes = (block_bytes - within).min(end - at) as usize;
        let there = v.place(at / block_bytes).map(|b| b * block_bytes + within);
        match (there, into.last_mut()) {
            (
                Some(there),
                Some(Piece::Device {
                    offset_bytes,
                    len_bytes: so_far,
                }),
            ) if *offset_bytes + *so_far as u64 == there => *so_far += len_bytes,
            (Some(offset_bytes), _) => into.push(Piece::Device {
                offset_bytes,
                len_bytes,
            }),
            (None, _) => into.push(Piece::Hole { len_bytes }),
        }
        at += len_bytes as u64;
    }
}
