//! Opening an image, recovering it, and leaving it clean.
//!
//! # The marks and the record
//!
//! While an image is mounted for writing its superblock says that it is not clean, that it needs a
//! check, and, under a mechanism that keeps order, that soft updates manage it. FreeBSD then has
//! `fsck -p` run, which takes what soft updates may leave, before it mounts the image. It could do
//! without if the counts of groups were exact on the disk at all times, since it relies on them.
//! Ours are not: a group's header, maps and counts take several sectors, and a power cut may leave
//! some of them old and some new. They are recounted from the maps after a crash, and written at
//! the unmount.
//!
//! A record of ours behind the superblock ([`record`](crate::format::record)) names the mechanism and
//! has the flags to return to. It becomes stable before the clean mark is taken away, and both
//! before anything else is written. The image is believed to be what soft updates leave where the
//! record is of its last mount, or where the flags are those of FreeBSD's soft updates.

use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, FileSystem, FileType, GroupNumber, JournalHost, LayoutKind, OpenRequest,
    Opened, Step, Stop, Structure, Timestamp,
};
use backstitch_ordering::{CrashRecord, PatchId, Volume};
use backstitch_unixfs::format::Format;
use backstitch_unixfs::{UnixFs, Windows};

use crate::fault::InodeFault;
use crate::format::superblock::{FLAG_NEEDS_CHECK, FLAG_UNCLEAN, RawSuperblock};
use crate::format::{ByteOrder, GroupHeader, MountRecord, OnDisk, Superblock};
use crate::groups::Groups;
use crate::image::{Ufs, from_format, read_superblock, refuse_unreadable};
use crate::rules::{Rule, holds, wait_for};
use crate::state::UfsFormat;

/// The directory that all names begin at.
const ROOT: Structure = Structure::Sole("the root directory");

impl LayoutKind for Ufs {
    /// The fragment: it is what bits stand for.
    fn block_bytes(&self, device: &dyn BlockDevice) -> backstitch_layout::Result<u32> {
        Ok(read_superblock(device)?.fragment_bytes)
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
        let sb = match request.read_only {
            true => sb,
            false => for_writing(sb, device.size_bytes())?,
        };
        let inode_bytes = sb.version.inode_bytes();
        if v.atomic_bytes() < inode_bytes {
            let why = format!(
                "an atomic unit of {} bytes: the image has inodes of {inode_bytes}, and each must lie in one unit; \
                 mount with atomic={inode_bytes} or atomic=block",
                v.atomic_bytes(),
            );
            return Err(Error::Unsupported(why).into());
        }
        match sb.order {
            ByteOrder::Little => open::<false>(sb, v, request),
            ByteOrder::Big => open::<true>(sb, v, request),
        }
    }
}

/// The superblock of an image that may be written to. One from before UFS2 is brought up to date, in memory:
/// it reaches the disk with the marks of the mount.
fn for_writing(sb: Superblock, device_bytes: u64) -> backstitch_layout::Result<Superblock> {
    let Some(raw) = sb.upgraded() else {
        return Ok(sb);
    };
    // Both marks are still to be written.
    let raw = RawSuperblock {
        fs_old_flags: sb.raw.fs_old_flags,
        fs_mtime: sb.raw.fs_mtime,
        ..raw
    };
    let bytes = raw.to_bytes(sb.order);
    let parsed = Superblock::parse(&bytes, sb.place, device_bytes).map_err(from_format)?;
    Ok(Superblock {
        record: sb.record,
        log: sb.log,
        ..parsed
    })
}

fn open<const BIG: bool>(
    sb: Superblock,
    v: &mut Volume<'_>,
    request: &OpenRequest,
) -> Step<Opened> {
    let headers = read_headers(&sb, v)?;
    let read_only = why_read_only(&sb, request);
    let has_leaks = sb.is_left_in_order();
    if has_leaks && read_only.is_none() && v.crash_record() == Some(CrashRecord::IN_LOG) {
        let why = "a crash under another ordering left leaks in the image, and its state has no \
                   room for both them and a log of operations: mount it with --ordering soft until \
                   they are found, or run fsck";
        return Err(Error::Unsupported(why.to_owned()).into());
    }
    let mut format = UfsFormat::<BIG> {
        groups: Groups::new(&sb, &headers),
        windows: Windows::default(),
        sb,
    };
    format.check_root(v)?;
    let (mut actions, mut first) = (Vec::new(), Vec::new());
    if has_leaks && holds(Rule::GroupsAreRecounted) {
        actions.push(format.recount(v)?);
    }
    if read_only.is_none() {
        first = format.write_record(v, has_leaks, request.now)?;
    }
    let file_system: Box<dyn FileSystem> =
        Box::new(UnixFs::new(format, read_only, has_leaks, request.now));
    Ok(Opened {
        file_system,
        recovery_needed: has_leaks,
        actions,
        first,
    })
}

/// Groups whose headers are asked for at once. A superblock may claim millions of groups on a device
/// that is one large hole: the first batch shows that, before memory goes to them.
const GROUPS_AT_ONCE: usize = 4096;

/// The headers of all groups.
fn read_headers(sb: &Superblock, v: &mut Volume<'_>) -> Step<Vec<GroupHeader>> {
    let header_of = |group: GroupNumber| BlockNumber(sb.group_header(group));
    let mut groups = GroupNumber::all(sb.groups);
    let mut headers = Vec::new();
    loop {
        let batch: Vec<_> = groups.by_ref().take(GROUPS_AT_ONCE).collect();
        if batch.is_empty() {
            return Ok(headers);
        }
        let missing = batch.iter().filter(|group| !v.want(header_of(**group)));
        if missing.count() > 0 {
            return Err(Stop::Miss);
        }
        for group in batch {
            let bytes = v.read(header_of(group))?;
            headers.push(GroupHeader::parse(sb, group, bytes).map_err(from_format)?);
        }
    }
}

/// Why an image must not be written to.
fn why_read_only(sb: &Superblock, request: &OpenRequest) -> Option<String> {
    let unwritable = sb.write_support();
    if request.read_only {
        Some("mounted read-only".to_owned())
    } else if !unwritable.is_empty() {
        Some(format!(
            "the image uses {}, which this version cannot write",
            unwritable.join(", ")
        ))
    } else if sb.has_dirty_journal() {
        Some(
            "the image was not unmounted cleanly, and its soft updates journal may hold what must \
             be put right first; let FreeBSD check it"
                .to_owned(),
        )
    } else if !sb.is_clean() && !sb.is_left_in_order() {
        Some("the image was not unmounted cleanly and may be damaged; run fsck on it".to_owned())
    } else {
        None
    }
}

impl<const BIG: bool> UfsFormat<BIG> {
    /// The record of this mount with the marks that go with it. Where the superblock has no room for
    /// one there are the marks alone, and what a crash leaves is not trusted.
    ///
    /// An image that a crash left keeps the time that it has, so that the record holds whenever the
    /// next crash comes.
    fn write_record(
        &mut self,
        v: &mut Volume<'_>,
        has_leaks: bool,
        now: Timestamp,
    ) -> Step<Vec<PatchId>> {
        // Only what is clean, or becomes so, is written to.
        let flags = self.sb.flags_at_rest() & !(FLAG_UNCLEAN | FLAG_NEEDS_CHECK);
        if !has_leaks || self.sb.record.is_none() {
            self.sb.raw.fs_mtime = now.seconds;
        }
        let record = MountRecord {
            mechanism: v.crash_record().unwrap_or(CrashRecord::ANYTHING),
            mount_time_seconds: self.sb.raw.fs_mtime,
            atomic_unit_bytes: v.atomic_bytes() as u32,
            flags,
        };
        let written = self.write_marks(v, record.flags_in_use(), Some(record), &[])?;
        self.sb.record = Some(record);
        Ok(v.heeded_first(vec![wait_for(Rule::CleanTakenAfterRecord, written)]))
    }

    /// Takes what the maps say is free for true, in all groups: the counts on the disk are not kept
    /// up to date while mounted.
    fn recount(&mut self, v: &mut Volume<'_>) -> Step<String> {
        let groups: Vec<_> = GroupNumber::all(self.sb.groups).collect();
        let missing = groups.iter().flat_map(|group| {
            let blocks = self.group_blocks(*group);
            blocks.block.run(blocks.blocks)
        });
        if missing.filter(|block| !v.want(*block)).count() > 0 {
            return Err(Stop::Miss);
        }
        let mut counted = Vec::with_capacity(groups.len());
        for group in &groups {
            counted.push(self.derive(v, *group)?.counts);
        }
        self.groups.recount(self.sb.fragments_per_block, &counted);
        Ok(format!(
            "counted free fragments and inodes of {} groups",
            groups.len()
        ))
    }

    /// A mount whose root cannot be read would be of no use to anybody.
    fn check_root(&self, v: &mut Volume<'_>) -> Step<()> {
        let inode = self.read_inode(v, Self::ROOT_INODE)?;
        match inode.file_type() {
            _ if inode.links == 0 => Err(Error::corrupt(ROOT, InodeFault::RootFree).into()),
            Some(FileType::Directory) => Ok(()),
            _ => Err(Error::corrupt(ROOT, InodeFault::RootNoDirectory).into()),
        }
    }
}
