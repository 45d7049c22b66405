//! The structures of UFS's base images.

use crate::base::{self, Base};
use crate::places::What;
use crate::targets::ufs_format::{ATTRIBUTES, DIRECTORY, GROUP, INODE, SUPERBLOCK};

use super::{OF_EACH, Seed};
use backstitch_layout::GroupNumber;
use backstitch_ufs::format::ByteOrder;
use backstitch_ufs::format::superblock::READ_BYTES;

/// Those of one image.
pub(super) fn of_base(number: u8, base: &Base) -> Vec<Seed> {
    let (sb, bytes) = (base::ufs::superblock_of(base), base.bytes());
    let order = u8::from(sb.order == ByteOrder::Big);
    let mut seeds = Vec::new();
    let mut add = |what: &str, parts: &[&[u8]]| {
        let name = format!("{}-{what}", base.name);
        seeds.push(("ufs_format", name, parts.concat()));
    };
    let sectors = (bytes.len() as u32 / 512).to_le_bytes();
    let head = &bytes[sb.place as usize..][..READ_BYTES];
    add("superblock", &[&[SUPERBLOCK, order], &sectors, head]);
    for group in GroupNumber::all(sb.groups) {
        let at = sb.group_header(group) * u64::from(sb.fragment_bytes);
        let block = &bytes[at as usize..][..sb.group_bytes as usize];
        let which = [GROUP, order, number, group.0 as u8];
        add(&format!("group-{}", group.0), &[&which, block]);
    }
    let of_kind = [
        (What::Inodes, INODE, "inode"),
        (What::Directories, DIRECTORY, "directory"),
        (What::Attributes, ATTRIBUTES, "attributes"),
    ];
    for (what, structure, name) in of_kind {
        let places = base.holding(what);
        for (index, range) in places.iter().take(OF_EACH).enumerate() {
            let part = &bytes[range.start as usize..range.end as usize];
            add(&format!("{name}-{index}"), &[&[structure, order], part]);
        }
    }
    seeds
}
