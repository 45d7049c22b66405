//! Opening an image, and leaving it clean.
//!
//! While an image is mounted for writing its superblock says that it is not clean, and that it
//! needs a check: the counts of groups, which FreeBSD relies on, are written at the end only.

use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, FileSystem, FileType, GroupNumber, LayoutKind, OpenRequest, Opened, Step,
    Stop, Structure,
};
use backstitch_ordering::Volume;
use backstitch_unixfs::format::Format;
use backstitch_unixfs::{UnixFs, Windows};

use crate::fault::InodeFault;
use crate::format::{ByteOrder, GroupHeader, Superblock};
use crate::groups::Groups;
use crate::image::{Ufs, from_format, read_superblock, refuse_unreadable};
use crate::state::UfsFormat;

/// The directory that all names begin at.
const ROOT: Structure = Structure::Sole("the root directory");

impl LayoutKind for Ufs {
    /// The fragment: it is what bits stand for.
    fn block_bytes(&self, device: &dyn BlockDevice) -> backstitch_layout::Result<u32> {
        Ok(read_superblock(device)?.fragment_bytes)
    }

    fn open(
        &self,
        v: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened> {
        let sb = read_superblock(device)?;
        refuse_unreadable(&sb)?;
        let file_system = match sb.order {
            ByteOrder::Little => open::<false>(sb, v, request)?,
            ByteOrder::Big => open::<true>(sb, v, request)?,
        };
        Ok(Opened {
            file_system,
            recovery_needed: false,
            actions: Vec::new(),
            first: Vec::new(),
        })
    }
}

fn open<const BIG: bool>(
    sb: Superblock,
    v: &mut Volume<'_>,
    request: &OpenRequest,
) -> Step<Box<dyn FileSystem>> {
    let headers = read_headers(&sb, v)?;
    let read_only = why_read_only(&sb, request);
    let format = UfsFormat::<BIG> {
        groups: Groups::new(&sb, &headers),
        windows: Windows::default(),
        sb,
    };
    format.check_root(v)?;
    Ok(Box::new(UnixFs::new(format, read_only, false, request.now)))
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
    } else if !sb.is_clean() {
        Some("the image was not unmounted cleanly and may be damaged; run fsck on it".to_owned())
    } else {
        None
    }
}

impl<const BIG: bool> UfsFormat<BIG> {
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
