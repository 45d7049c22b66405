//! Opening an image, recovering it, and leaving it clean.
//!
//! # The clean mark and the record
//!
//! While an image is mounted for writing its superblock says "not clean", and a record of ours in
//! reserved bytes names the mechanism, with the mount's time and count. The record becomes stable
//! before the mark is taken away, and both before anything else is written. A dirty image is
//! believed to be what the mechanism leaves only where record, time and count match: a mount in
//! between by software that does not know the record changes time and count.

use crate::fault::InodeFault;
use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, FileType, GroupNumber, JournalHost, JournalLocation, JournalMap,
    LayoutKind, OpenRequest, Opened, Step, Stop, Structure, Timestamp,
};
use backstitch_ordering::{CrashRecord, PatchId, Volume};
use backstitch_unixfs::format::Format;
use backstitch_unixfs::{Windows, bitmap};

use crate::format::features::{COMPAT_HAS_JOURNAL, INCOMPAT_RECOVER, RO_COMPAT_LARGE_FILE};
use crate::format::group::{FLAG_INODES_UNINITIALISED, OFFSET_FLAGS, OFFSET_UNUSED_INODES};
use crate::format::superblock::{
    OFFSET_FEATURE_COMPAT, OFFSET_FEATURE_INCOMPAT, OFFSET_FEATURE_RO_COMPAT,
    OFFSET_FREE_BLOCKS_COUNT, OFFSET_FREE_INODES_COUNT, OFFSET_MNT_COUNT, OFFSET_MTIME,
    OFFSET_RECORD, OFFSET_STATE, OFFSET_WTIME, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET,
};
use crate::format::{GroupDescriptor, MountRecord, ROOT_INODE, Superblock, group};
use crate::groups::Groups;
use crate::image::{Ext2, from_format, read_superblock, refuse_unreadable};
use crate::kinds;
use crate::rules::{Rule, holds, wait_for};
use crate::state::{Ext, ExtFormat};

/// The directory that all names begin at.
const ROOT: Structure = Structure::Sole("the root directory");

impl LayoutKind for Ext2 {
    fn block_bytes(&self, device: &dyn BlockDevice) -> backstitch_layout::Result<u32> {
        Ok(read_superblock(device)?.block_size)
    }

    fn journal_host(&self) -> Option<&dyn JournalHost> {
        Some(self)
    }

    fn open(
        &self,
        v: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened> {
        let sb = read_superblock(device)?;
        refuse_unreadable(&sb)?;
        if v.atomic_bytes() < sb.inode_size as usize {
            return Err(Error::Unsupported(format!(
                "an atomic unit of {} bytes: the image has inodes of {}, and each must lie in one unit; \
                 mount with atomic={} or atomic=block",
                v.atomic_bytes(),
                sb.inode_size,
                sb.inode_size
            )).into());
        }
        let mut table = Vec::new();
        let first = group::descriptor_table_block(&sb);
        for block in first.run(sb.descriptor_blocks.into()) {
            v.want(block);
        }
        for block in first.run(sb.descriptor_blocks.into()) {
            table.extend_from_slice(v.read(block)?);
        }
        let descriptors = group::parse_table(&sb, &table).map_err(from_format)?;
        let (trust, read_only) = judge(&sb, request);
        let is_in_log = v.crash_record() == Some(CrashRecord::IN_LOG);
        if trust == Trust::AfterCrash && read_only.is_none() && is_in_log {
            let why = "a crash under another ordering left leaks in the image, and its state has no \
                       room for both them and a log of operations: mount it with --ordering soft \
                       until they are found, or run fsck";
            return Err(Error::Unsupported(why.to_owned()).into());
        }
        let max_file_bytes = sb.max_file_size();
        let mut format = ExtFormat {
            groups: Groups::new(&sb, &descriptors),
            journal: self.own_journal(device, request)?,
            windows: Windows::default(),
            hashed: Default::default(),
            shared_blocks: Default::default(),
            max_file_bytes,
            is_journaled: request.journaled && sb.features.has_compat(COMPAT_HAS_JOURNAL),
            sb,
        };
        format.check_root(v)?;
        let has_leaks = trust == Trust::AfterCrash;
        let mut actions = Vec::new();
        if has_leaks && holds(Rule::FreeSpaceIsRecounted) {
            actions.push(format.recount(v)?);
        }
        let mut first = Vec::new();
        if read_only.is_none() {
            let recorded = format.write_record(v, has_leaks, request.now)?;
            first.extend(
                recorded
                    .into_iter()
                    .map(|id| wait_for(Rule::MarkAfterRecord, id)),
            );
            format.forget_unused_inodes(v, &descriptors, &mut first)?;
        }
        let ext = Ext::new(format, read_only, has_leaks, request.now);
        let recovery_needed = trust == Trust::AfterCrash;
        Ok(Opened {
            file_system: Box::new(ext),
            recovery_needed,
            actions,
            first,
        })
    }
}

impl ExtFormat {
    /// A mount whose root cannot be read would be of no use to anybody.
    fn check_root(&mut self, v: &mut Volume<'_>) -> Step<()> {
        let inode = self.read_inode(v, ROOT_INODE)?;
        match inode.file_type() {
            _ if inode.links == 0 => Err(Error::corrupt(ROOT, InodeFault::RootFree).into()),
            Some(FileType::Directory) => Ok(()),
            _ => Err(Error::corrupt(ROOT, InodeFault::RootNoDirectory).into()),
        }
    }
}

/// What an image's state says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Clean,
    /// Left by a crash under a mechanism that keeps order.
    AfterCrash,
    No,
}

/// Whether the image can be trusted; and why it must not be written to, if so.
fn judge(sb: &Superblock, request: &OpenRequest) -> (Trust, Option<String>) {
    let trust = if sb.state & STATE_ERROR != 0 {
        Trust::No
    } else if sb.state & STATE_VALID != 0 {
        Trust::Clean
    } else if sb.record.is_some_and(|r| {
        let is_of_this = r.matches(sb.mtime, sb.mount_count);
        r.mechanism.is_trusted() && (is_of_this || !holds(Rule::RecordIsOfThisMount))
    }) {
        Trust::AfterCrash
    } else {
        Trust::No
    };
    let unwritable = sb.write_support_beside_journal();
    let has_journal = sb.features.has_compat(COMPAT_HAS_JOURNAL);
    let reason = if request.read_only {
        Some("mounted read-only".to_string())
    } else if !unwritable.is_empty() {
        Some(format!(
            "the image uses {}, which this version cannot write",
            unwritable.join(", ")
        ))
    } else if has_journal && !request.journaled && !request.without_journal {
        let why = request.unwritable_journal.as_deref();
        let why = why.unwrap_or("the image has a journal, which this ordering does not write");
        Some(format!("{why}; -o nojournal writes it without its journal"))
    } else if trust == Trust::No && is_left_with_log(sb) {
        let why = "the image was left by a crash, and the log that has the rest is not at hand; \
                   mount -o log_device= or fsck -j names it";
        Some(why.to_string())
    } else if trust == Trust::No {
        Some("the image was not unmounted cleanly and may be damaged; run fsck on it".to_string())
    } else {
        None
    };
    (trust, reason)
}

/// Whether the last mount wrote a log of ours and was ended by a crash.
fn is_left_with_log(sb: &Superblock) -> bool {
    sb.state & STATE_ERROR == 0
        && sb.record.is_some_and(|r| {
            r.mechanism == CrashRecord::IN_LOG && r.matches(sb.mtime, sb.mount_count)
        })
}

impl Ext2 {
    /// The blocks of the journal inside the file system, if it has one and the mount may write.
    fn own_journal(
        &self,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Option<Arc<JournalMap>>> {
        if request.read_only {
            return Ok(None);
        }
        Ok(self.place(device)?.and_then(|place| match place.location {
            JournalLocation::Inside(map) => Some(map),
            JournalLocation::Outside(_) => None,
        }))
    }
}

impl ExtFormat {
    /// The block that holds the superblock, and its offset therein.
    fn superblock_place(&self) -> (BlockNumber, usize) {
        let bs = u64::from(self.sb.block_size);
        (
            BlockNumber(SUPERBLOCK_OFFSET / bs),
            (SUPERBLOCK_OFFSET % bs) as usize,
        )
    }

    pub(crate) fn write_superblock(
        &self,
        v: &mut Volume<'_>,
        at: usize,
        bytes: &[u8],
        after: &[PatchId],
    ) -> Step<PatchId> {
        let (block, base) = self.superblock_place();
        v.read(block)?;
        Ok(v.write(block, kinds::SUPERBLOCK, base + at, bytes, after))
    }

    /// Counts what the bitmaps say is free: the counters on the disk are not kept up to date while
    /// mounted.
    fn recount(&mut self, v: &mut Volume<'_>) -> Step<String> {
        let mut missing = false;
        for g in &self.groups.list {
            missing |= !v.want(g.block_bitmap);
            missing |= !v.want(g.inode_bitmap);
        }
        if missing {
            return Err(Stop::Miss);
        }
        for index in 0..self.groups.list.len() {
            let blocks = self.sb.blocks_in_group(GroupNumber::at(index)) as usize;
            let bits = v.read(self.groups.list[index].block_bitmap)?;
            let free_blocks = bitmap::count_zeros(bits, blocks) as u32;
            let bits = v.read(self.groups.list[index].inode_bitmap)?;
            let free_inodes = bitmap::count_zeros(bits, self.sb.inodes_per_group as usize) as u32;
            self.groups.recount(index, free_blocks, free_inodes);
        }
        Ok(format!(
            "counted free blocks and inodes of {} groups",
            self.groups.list.len()
        ))
    }

    /// Clears flags and counts of descriptors that say that a part of their inode table is not in
    /// use. Without checksums they mean nothing, but e2fsck reports inodes made there as damage.
    fn forget_unused_inodes(
        &self,
        v: &mut Volume<'_>,
        descriptors: &[GroupDescriptor],
        first: &mut Vec<PatchId>,
    ) -> Step<()> {
        for (number, descriptor) in (0..).map(GroupNumber).zip(descriptors) {
            let flags = descriptor.flags & !FLAG_INODES_UNINITIALISED;
            if flags == descriptor.flags && descriptor.unused_inodes == 0 {
                continue;
            }
            let (block, at) = group::descriptor_location(&self.sb, number);
            v.read(block)?;
            for (offset, value) in [(OFFSET_FLAGS, flags), (OFFSET_UNUSED_INODES, 0)] {
                let (kind, value) = (kinds::DESCRIPTORS, value.to_le_bytes());
                first.push(v.write(block, kind, at + offset, &value, &[]));
            }
        }
        Ok(())
    }

    /// The record of this mount. An image that a crash left keeps the time and the count that it
    /// has: with others, a crash between the record and the superblock's first sector would leave
    /// the two at odds, and the image not to be trusted.
    fn write_record(
        &mut self,
        v: &mut Volume<'_>,
        has_leaks: bool,
        now: Timestamp,
    ) -> Step<Vec<PatchId>> {
        if !has_leaks {
            self.sb.mount_count = self.sb.mount_count.wrapping_add(1);
            self.sb.mtime = now.seconds.max(0) as u32;
        }
        if self.is_journaled {
            // What a crash leaves is in the journal; a record of an earlier crash stays true until
            // its leaks are gone. The code that takes the clean mark away relies on the superblock
            // being in memory.
            v.read(self.superblock_place().0)?;
            return Ok(Vec::new());
        }
        let entry = MountRecord {
            mechanism: v.crash_record().unwrap_or(CrashRecord::ANYTHING),
            mount_count: self.sb.mount_count,
            mount_time_seconds: self.sb.mtime.into(),
            atomic_unit_bytes: v.atomic_bytes() as u32,
        };
        let record = entry.encode(&self.sb.uuid);
        let recorded = self.write_superblock(v, OFFSET_RECORD, &record, &[])?;
        Ok(vec![recorded])
    }

    /// Says "not clean", with the time and the count that the record has.
    ///
    /// The commit point of a mount for writing.
    pub(crate) fn say_in_use(&mut self, v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        // Time, count and state are within twelve bytes of each other: one patch.
        let (block, base) = self.superblock_place();
        let start = OFFSET_MTIME;
        let end = OFFSET_STATE + 2;
        let mut bytes = v.read(block)?[base + start..base + end].to_vec();
        bytes[..4].copy_from_slice(&self.sb.mtime.to_le_bytes());
        bytes[OFFSET_MNT_COUNT - start..OFFSET_MNT_COUNT - start + 2]
            .copy_from_slice(&self.sb.mount_count.to_le_bytes());
        if self.is_journaled {
            // As in Linux: with a journal the state stays "clean", and the recovery mark tells that
            // the journal must be replayed.
            if holds(Rule::RecoveryMarkWhileInUse) {
                self.set_recover_mark(v, true)?;
            }
        } else {
            let state = (self.sb.state & !STATE_VALID).to_le_bytes();
            bytes[OFFSET_STATE - start..].copy_from_slice(&state);
        }
        let marked = self.write_superblock(v, start, &bytes, &[])?;
        Ok(v.heeded_first(vec![wait_for(Rule::ChangesAfterMark, marked)]))
    }

    /// Writes the counters: groups, then the totals.
    pub(crate) fn write_free_counts(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        let mut missing = false;
        for group in GroupNumber::all(self.sb.groups) {
            let (block, _) = group::descriptor_location(&self.sb, group);
            missing |= !v.want(block);
        }
        if missing {
            return Err(Stop::Miss);
        }
        for (index, g) in self.groups.list.iter().enumerate() {
            let (block, at) = group::descriptor_location(&self.sb, GroupNumber::at(index));
            let fields = [
                g.free_blocks as u16,
                g.free_inodes as u16,
                g.directories as u16,
            ];
            let bytes: Vec<u8> = fields.iter().flat_map(|f| f.to_le_bytes()).collect();
            let start = at + group::OFFSET_FREE_BLOCKS_COUNT;
            if v.read(block)?[start..start + bytes.len()] != bytes {
                v.write(block, kinds::DESCRIPTORS, start, &bytes, &[]);
            }
        }
        let free_blocks = (self.groups.free_blocks() as u32).to_le_bytes();
        self.write_superblock(v, OFFSET_FREE_BLOCKS_COUNT, &free_blocks, &[])?;
        let free_inodes = self.groups.free_inodes().to_le_bytes();
        self.write_superblock(v, OFFSET_FREE_INODES_COUNT, &free_inodes, &[])?;
        let time = (now.seconds.max(0) as u32).to_le_bytes();
        self.write_superblock(v, OFFSET_WTIME, &time, &[])?;
        Ok(())
    }

    /// The very last write: the image is clean again. Where a crash left leaks it stays as it is:
    /// with our record, so that the next mount trusts it as this one did, and not clean, so that a
    /// checker looks at it.
    ///
    /// The commit point of an unmount.
    pub(crate) fn say_clean(&mut self, v: &mut Volume<'_>, has_leaks: bool) -> Step<()> {
        if self.is_journaled {
            self.set_recover_mark(v, false)?;
        }
        if has_leaks && holds(Rule::CleanOnlyWithoutLeaks) {
            return Ok(());
        }
        let state = (self.sb.state | STATE_VALID).to_le_bytes();
        self.write_superblock(v, OFFSET_STATE, &state, &[])?;
        Ok(())
    }

    /// Says whether the journal must be replayed before the image is used.
    fn set_recover_mark(&mut self, v: &mut Volume<'_>, needed: bool) -> Step<()> {
        let others = self.sb.features.incompat & !INCOMPAT_RECOVER;
        let incompat = others | if needed { INCOMPAT_RECOVER } else { 0 };
        self.write_superblock(v, OFFSET_FEATURE_INCOMPAT, &incompat.to_le_bytes(), &[])?;
        self.sb.features.incompat = incompat;
        Ok(())
    }

    /// Sets the feature that says that some file has 2 GiB or more, before the first one does.
    pub(crate) fn declare_large_file(&mut self, v: &mut Volume<'_>, size: u64) -> Step<()> {
        if size <= i32::MAX as u64 || self.sb.features.has_ro_compat(RO_COMPAT_LARGE_FILE) {
            return Ok(());
        }
        if self.sb.revision == 0 {
            return Err(Error::FileTooLarge.into());
        }
        let ro_compat = self.sb.features.ro_compat | RO_COMPAT_LARGE_FILE;
        self.write_superblock(v, OFFSET_FEATURE_RO_COMPAT, &ro_compat.to_le_bytes(), &[])?;
        self.sb.features.ro_compat = ro_compat;
        Ok(())
    }

    /// Sets a compatible feature in the superblock where an image lacks it and is about to need it.
    pub(crate) fn declare_compat_feature(&mut self, v: &mut Volume<'_>, bit: u32) -> Step<()> {
        if self.sb.features.has_compat(bit) {
            return Ok(());
        }
        if self.sb.revision == 0 {
            return Err(Error::NotSupported.into());
        }
        let compat = self.sb.features.compat | bit;
        self.write_superblock(v, OFFSET_FEATURE_COMPAT, &compat.to_le_bytes(), &[])?;
        self.sb.features.compat = compat;
        Ok(())
    }
}
