//! The open volume.

use backstitch_layout::{
    AccessTimes, Allocate, Attributes, BlockNumber, Changed, DeferredStatistics, DirectoryEntry,
    Error, FileSystem, FileSystemStatistics, FileType, InodeNumber, OpenRequest, Piece,
    ReclaimProgress, ReclaimStep, Seek, SetAttributes, Step, Timestamp, pieces_of_blocks,
};
use backstitch_ordering::{PatchId, Volume};

use crate::Raw;

/// The volume's name in the root directory.
pub const VOLUME_NAME: &str = "volume";

const ROOT: InodeNumber = InodeNumber(1);
const FILE: InodeNumber = InodeNumber(2);

/// The attributes of an inode, which are in memory only.
#[derive(Clone, Copy, Debug)]
struct Node {
    permissions: u16,
    uid: u32,
    gid: u32,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
}

/// A volume as a directory with one file.
pub(crate) struct RawVolume {
    block_bytes: u64,
    blocks: u64,
    root: Node,
    file: Node,
    read_only: Option<String>,
    /// The patch of the last write if it waits for nothing: further writes can join it.
    run: PatchId,
    /// The patches of writes that may not be on stable storage yet.
    unstable: Vec<PatchId>,
    prune_at: usize,
}

impl RawVolume {
    pub(crate) fn new(kind: Raw, block_bytes: u64, blocks: u64, request: &OpenRequest) -> Self {
        let node = |permissions| Node {
            permissions,
            uid: kind.uid,
            gid: kind.gid,
            accessed: request.now,
            modified: request.now,
            changed: request.now,
        };
        RawVolume {
            block_bytes,
            blocks,
            root: node(0o755),
            // As for a disk's device node.
            file: node(0o600),
            read_only: request.read_only.then(|| "asked for".to_owned()),
            run: PatchId::COMMITTED,
            unstable: Vec::new(),
            prune_at: 0,
        }
    }

    fn size_bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    fn node(&mut self, inode: InodeNumber) -> Step<&mut Node> {
        match inode {
            ROOT => Ok(&mut self.root),
            FILE => Ok(&mut self.file),
            _ => Err(Error::NotFound.into()),
        }
    }

    /// Refuses an inode that is not the volume's.
    fn check_file(inode: InodeNumber) -> Step<()> {
        match inode {
            FILE => Ok(()),
            ROOT => Err(Error::IsADirectory.into()),
            _ => Err(Error::NotFound.into()),
        }
    }

    fn check_directory(inode: InodeNumber) -> Step<()> {
        match inode {
            ROOT => Ok(()),
            FILE => Err(Error::NotADirectory.into()),
            _ => Err(Error::NotFound.into()),
        }
    }

    fn check_writable(&self) -> Step<()> {
        match self.read_only {
            Some(_) => Err(Error::ReadOnly.into()),
            None => Ok(()),
        }
    }

    fn note_unstable(&mut self, v: &Volume<'_>, id: PatchId) {
        if self.unstable.last() == Some(&id) {
            return;
        }
        if self.unstable.len() >= self.prune_at.max(64) {
            self.unstable.retain(|id| v.is_live(*id));
            self.prune_at = self.unstable.len() * 2;
        }
        self.unstable.push(id);
    }
}

impl FileSystem for RawVolume {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn root(&self) -> InodeNumber {
        ROOT
    }

    fn read_only_reason(&self) -> Option<String> {
        self.read_only.clone()
    }

    fn mark_in_use(&mut self, _v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        Ok(Vec::new())
    }

    fn become_read_only(&mut self, reason: &str) {
        self.read_only.get_or_insert_with(|| reason.to_owned());
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            block_size_bytes: self.block_bytes as u32,
            blocks: self.blocks,
            inodes: 2,
            name_max_bytes: VOLUME_NAME.len() as u32,
            ..FileSystemStatistics::default()
        }
    }

    fn attributes(&mut self, _v: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        let (size_bytes, block_bytes) = (self.size_bytes(), self.block_bytes);
        let node = *self.node(inode)?;
        let is_file = inode == FILE;
        Ok(Attributes {
            inode,
            generation: 0,
            file_type: match is_file {
                true => FileType::Regular,
                false => FileType::Directory,
            },
            permissions: node.permissions,
            links: if is_file { 1 } else { 2 },
            uid: node.uid,
            gid: node.gid,
            device_number: 0,
            size_bytes: if is_file { size_bytes } else { block_bytes },
            sectors: if is_file { size_bytes / 512 } else { 0 },
            block_size_bytes: block_bytes as u32,
            accessed: node.accessed,
            modified: node.modified,
            changed: node.changed,
            created: None,
            flags: 0,
        })
    }

    fn set_attributes(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Step<Attributes> {
        self.check_writable()?;
        if let Some(size_bytes) = set.size_bytes {
            Self::check_file(inode)?;
            if size_bytes != self.size_bytes() {
                return Err(Error::NotPermitted.into());
            }
        }
        if set.flags.is_some_and(|flags| flags != 0) {
            return Err(Error::NotSupported.into());
        }
        let node = self.node(inode)?;
        node.permissions = set.permissions.unwrap_or(node.permissions);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.accessed = set.accessed.unwrap_or(node.accessed);
        node.modified = set.modified.unwrap_or(node.modified);
        node.changed = now;
        self.attributes(v, inode)
    }

    fn touch_accessed(
        &mut self,
        _v: &mut Volume<'_>,
        inode: InodeNumber,
        _rule: AccessTimes,
        now: Timestamp,
    ) -> Step<()> {
        self.node(inode)?.accessed = now;
        Ok(())
    }

    fn lookup(
        &mut self,
        _v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
    ) -> Step<InodeNumber> {
        Self::check_directory(directory)?;
        match name {
            b"." | b".." => Ok(ROOT),
            name if name == VOLUME_NAME.as_bytes() => Ok(FILE),
            _ => Err(Error::NotFound.into()),
        }
    }

    fn read_directory(
        &mut self,
        _v: &mut Volume<'_>,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<()> {
        Self::check_directory(directory)?;
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (FILE, FileType::Regular, VOLUME_NAME),
        ];
        for (at, (inode, file_type, name)) in (1..).zip(entries).skip(cookie.min(3) as usize) {
            let entry = DirectoryEntry {
                inode,
                file_type: Some(file_type),
                name: name.as_bytes(),
                next_cookie: at,
            };
            if !emit(&entry) {
                break;
            }
        }
        Ok(())
    }

    fn map(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        pieces: &mut Vec<Piece>,
    ) -> Step<()> {
        Self::check_file(inode)?;
        let end = offset_bytes.saturating_add(len_bytes as u64);
        let end = end.min(self.size_bytes());
        if offset_bytes < end {
            let (block, within) = (
                BlockNumber(offset_bytes / self.block_bytes),
                offset_bytes % self.block_bytes,
            );
            pieces_of_blocks(v, block, within, end - offset_bytes, pieces);
        }
        Ok(())
    }

    fn extent(
        &mut self,
        _v: &mut Volume<'_>,
        inode: InodeNumber,
        first: u64,
        count: u64,
    ) -> Step<(Option<BlockNumber>, u64)> {
        Self::check_file(inode)?;
        match self.blocks.checked_sub(first) {
            Some(rest @ 1..) => Ok((Some(BlockNumber(first)), count.min(rest))),
            _ => Ok((None, count)),
        }
    }

    fn free_epoch(&self) -> u64 {
        0
    }

    fn write(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Step<usize> {
        self.check_writable()?;
        Self::check_file(inode)?;
        let room = self.size_bytes().saturating_sub(offset_bytes);
        if data.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            // As at the end of a disk.
            return Err(Error::NoSpace.into());
        }
        let data = &data[..data.len().min(room.min(usize::MAX as u64) as usize)];
        let bs = self.block_bytes;
        let end = offset_bytes + data.len() as u64;
        let (first, behind) = (
            BlockNumber(offset_bytes / bs),
            BlockNumber(end.div_ceil(bs)),
        );
        v.expect_places(first, behind - first)?;
        if !offset_bytes.is_multiple_of(bs) {
            v.read(first)?;
        }
        if !end.is_multiple_of(bs) {
            v.read(behind - 1)?;
        }
        let mut within = (offset_bytes % bs) as usize;
        let mut rest = data;
        for block in first.up_to(behind) {
            let (here, after) = rest.split_at(rest.len().min(bs as usize - within));
            self.run = v.write_in_run(block, within, here, self.run);
            self.note_unstable(v, self.run);
            (rest, within) = (after, 0);
        }
        (self.file.modified, self.file.changed) = (now, now);
        Ok(data.len())
    }

    fn allocate(
        &mut self,
        _v: &mut Volume<'_>,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
        _now: Timestamp,
    ) -> Step<()> {
        self.check_writable()?;
        Self::check_file(inode)?;
        match how {
            // All blocks are always there.
            Allocate::Reserve { .. } => match offset_bytes.checked_add(len_bytes) {
                Some(end) if end <= self.size_bytes() => Ok(()),
                _ => Err(Error::NoSpace.into()),
            },
            Allocate::PunchHole | Allocate::ZeroRange { .. } => Err(Error::NotSupported.into()),
        }
    }

    fn seek(
        &mut self,
        _v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        what: Seek,
    ) -> Step<u64> {
        Self::check_file(inode)?;
        match what {
            _ if offset_bytes >= self.size_bytes() => Err(Error::NoSuchAddress.into()),
            Seek::Data => Ok(offset_bytes),
            Seek::Hole => Ok(self.size_bytes()),
        }
    }

    fn sync_targets(
        &mut self,
        v: &mut Volume<'_>,
        _inode: InodeNumber,
        _data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        self.unstable.retain(|id| v.is_live(*id));
        targets.extend_from_slice(&self.unstable);
    }

    // Both inodes always exist: there is nothing to count.
    fn hold(&mut self, _inode: InodeNumber) {}

    fn release(&mut self, _inode: InodeNumber) {}

    fn release_all(&mut self) {}

    fn background(&mut self, _v: &mut Volume<'_>, _now: Timestamp) -> Step<bool> {
        Ok(false)
    }

    fn free_ready(&mut self, _v: &mut Volume<'_>) -> Step<bool> {
        Ok(false)
    }

    fn deferred(&self) -> DeferredStatistics {
        DeferredStatistics::default()
    }

    fn reclaim(&mut self, _v: &mut Volume<'_>, _now: Timestamp) -> Step<ReclaimStep> {
        Ok(ReclaimStep::Done)
    }

    fn reclaim_progress(&self) -> ReclaimProgress {
        ReclaimProgress {
            is_settled: true,
            done_fraction: 1.0,
            ..ReclaimProgress::default()
        }
    }

    fn take_changed(&mut self, _into: &mut Vec<Changed>) {}

    fn write_counters(&mut self, _v: &mut Volume<'_>, _now: Timestamp) -> Step<()> {
        Ok(())
    }

    fn mark_clean(&mut self, _v: &mut Volume<'_>, _now: Timestamp) -> Step<()> {
        Ok(())
    }
}
