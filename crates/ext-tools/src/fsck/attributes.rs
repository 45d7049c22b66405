//! Pass 1, extended attributes: in inodes, and in the blocks that inodes share.

use super::CheckError;
use super::state::{Context, Gathered};
use backstitch_ext::format::xattr::{
    self, Attributes, ENTRY_SIZE, HEADER_SIZE, XattrError, entry_len, value_len,
};
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};

/// A hash of 0 says that there is none: allowed inside inodes only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ZeroHash {
    Allowed,
    Wrong,
}

/// What is wrong with the attributes inside an inode; `None` where they are fine, or where there
/// are none.
pub(super) fn bad_inline(inode: &[u8], extra_isize: u16) -> Option<String> {
    let start = xattr::inline_start(inode, extra_isize)?;
    let attributes = xattr::inode_attributes(inode, extra_isize)?;
    bad_attributes(inode, start, attributes, ZeroHash::Allowed)
}

/// Checks every attribute block that inodes use, and its count of these inodes.
pub(super) fn check_blocks<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &mut Gathered,
    findings: &mut Findings,
    notes: &mut Findings,
) -> Result<(), CheckError> {
    let mut uses: Vec<_> = gathered
        .xattr_blocks
        .iter()
        .map(|(block, use_)| (*block, *use_))
        .collect();
    uses.sort_unstable_by_key(|(block, _)| *block);
    let mut scratch = Vec::new();
    for (block, use_) in uses {
        let place = Location::inode(use_.inode).at_block(block);
        if !gathered.used.insert(block) {
            let code = if context.is_metadata(block) {
                Code::BlockInMetadata
            } else {
                Code::BlockClaimedTwice
            };
            findings.add(code, place, || {
                "the attribute block is something else too".into()
            });
        }
        let bytes = context.block(block, &mut scratch)?;
        match block_fault(bytes) {
            Some(what) => findings.add(Code::XattrBlockInvalid, place, || what),
            None => check_header(bytes, use_.count, place, findings, notes),
        }
    }
    Ok(())
}

/// What is wrong with an attribute block.
pub(crate) fn block_fault(bytes: &[u8]) -> Option<String> {
    match xattr::block_attributes(bytes) {
        Err(error) => Some(error.to_string()),
        Ok(attributes) => bad_attributes(bytes, 0, attributes, ZeroHash::Wrong),
    }
}

/// The reference count and the hash of a block that is otherwise sound.
fn check_header(
    bytes: &[u8],
    users: u32,
    place: Location,
    findings: &mut Findings,
    notes: &mut Findings,
) {
    let Ok(header) = xattr::header(bytes) else {
        return;
    };
    let found = header.h_refcount.get();
    if found != users {
        let code = if found > users {
            Code::XattrRefcountTooHigh
        } else {
            Code::XattrRefcountTooLow
        };
        findings.add(code, place, || format!("counts {found} users, has {users}"));
    }
    let Ok(attributes) = xattr::block_attributes(bytes) else {
        return;
    };
    let hash = xattr::block_hash(attributes.filter_map(Result::ok).map(|entry| entry.hash));
    // A hash of 0 says that the block is not to be shared; libext2fs writes nothing else.
    if header.h_hash.get() != 0 && header.h_hash.get() != hash {
        notes.add(Code::XattrBlockHash, place, || {
            format!(
                "its hash is {:#x}, should be {hash:#x}",
                header.h_hash.get()
            )
        });
    }
}

/// What is wrong with a row of attributes: an entry or a value is outside of it, two values
/// overlap, or a hash is wrong. `start` is where the area begins, with a header (in a block) or the
/// magic number (in an inode).
fn bad_attributes(
    bytes: &[u8],
    start: usize,
    attributes: Attributes<'_>,
    zero_hash: ZeroHash,
) -> Option<String> {
    let mut entries_end = start + if start == 0 { HEADER_SIZE } else { 4 };
    let mut values: Vec<(usize, usize)> = Vec::new();
    for attribute in attributes {
        let attribute = match attribute {
            Ok(attribute) => attribute,
            // An entry that is not complete at the very end: e2fsck takes it for the end mark.
            Err(XattrError::EntryTooLong(at)) if at + ENTRY_SIZE > bytes.len() && start != 0 => {
                break;
            }
            Err(error) => return Some(error.to_string()),
        };
        let name = || String::from_utf8_lossy(attribute.name).into_owned();
        entries_end = attribute.offset + entry_len(attribute.name.len());
        if start == 0 && attribute.name_index == 0 {
            return Some(format!("attribute {} has no prefix", name()));
        }
        if !attribute.value.is_empty() {
            let end = attribute.value_offset + value_len(attribute.value.len());
            values.push((attribute.value_offset, end));
        }
        let is_without = attribute.hash == 0 && zero_hash == ZeroHash::Allowed;
        if !is_without && !attribute.has_valid_hash() {
            return Some(format!(
                "attribute {} has the hash {:#x}",
                name(),
                attribute.hash
            ));
        }
    }
    values.sort_unstable();
    let is_twice = values.windows(2).any(|pair| pair[1].0 < pair[0].1);
    let first = values.first().map_or(bytes.len(), |value| value.0);
    let last = values.last().map_or(0, |value| value.1);
    if is_twice || first < entries_end + 4 || last > bytes.len() {
        return Some("attributes overlap".into());
    }
    None
}
