//! The bytes of leaves: their names by hash, and what a split makes of them.

use crate::format::DirectoryError;
use crate::format::directory::{ExtEntries, HEADER_SIZE, OFFSET_REC_LEN, encode_rec_len, entries};
use backstitch_layout::InodeNumber;

/// A name of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) hash: u32,
    pub(super) offset: usize,
    /// The space that it needs.
    pub(super) len: usize,
}

/// The names of a block, `.` and `..` apart where it is a directory's `first`, in the order of
/// their hashes.
pub(super) fn items(
    block: &[u8],
    first: bool,
    hash: impl Fn(&[u8]) -> u32,
) -> Result<Vec<Item>, DirectoryError> {
    let mut items = Vec::new();
    for entry in entries(block, u32::MAX) {
        let entry = entry?;
        let is_dot = first && (entry.name == b"." || entry.name == b"..");
        if entry.inode == InodeNumber::NONE || is_dot {
            continue;
        }
        items.push(Item {
            hash: hash(entry.name),
            offset: entry.offset,
            len: entry.used_len::<ExtEntries>(),
        });
    }
    items.sort_unstable_by_key(|item| (item.hash, item.offset));
    Ok(items)
}

/// The space that names need together.
pub(super) fn used(items: &[Item]) -> usize {
    items.iter().map(|item| item.len).sum()
}

/// A block with these names of another one, at least one, one behind the other; the last one has
/// the space that is left.
pub(super) fn pack(block: &[u8], items: &[Item]) -> Vec<u8> {
    let mut packed = vec![0; block.len()];
    let mut at = 0;
    for (index, item) in items.iter().enumerate() {
        let rec_len = if index + 1 == items.len() {
            block.len() - at
        } else {
            item.len
        };
        let name_len = usize::from(block[item.offset + 6]);
        let bytes = &block[item.offset..item.offset + HEADER_SIZE + name_len];
        packed[at..at + bytes.len()].copy_from_slice(bytes);
        packed[at + OFFSET_REC_LEN..at + OFFSET_REC_LEN + 2]
            .copy_from_slice(&encode_rec_len(rec_len).to_le_bytes());
        at += rec_len;
    }
    packed
}

/// Where to cut: how many of the names, by hash, stay. About half of the space does, and at least
/// one name is on each side.
pub(super) fn cut(items: &[Item]) -> usize {
    let half = used(items) / 2;
    let mut kept = 0;
    let place = items.iter().position(|item| {
        kept += item.len;
        kept > half
    });
    place
        .unwrap_or(0)
        .clamp(1, items.len().saturating_sub(1).max(1))
}

/// The border between two parts: the first hash behind it, with the lowest bit set where the last
/// name before it has the same.
pub(super) fn border(items: &[Item], kept: usize) -> u32 {
    let hash = items[kept].hash;
    let continues = items[kept - 1].hash == hash;
    hash | u32::from(continues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockEdit;
    use crate::format::directory::{empty_block, find};

    fn block(names: &[&[u8]]) -> Vec<u8> {
        let mut edit = BlockEdit::new(&empty_block(1024), 1024);
        for (i, name) in names.iter().enumerate() {
            edit.add_entry(InodeNumber(12 + i as u32), 1, name).unwrap();
        }
        let mut bytes = empty_block(1024);
        let (from, patch) = edit.patch();
        bytes[from..from + patch.len()].copy_from_slice(patch);
        bytes
    }

    #[test]
    fn a_cut_leaves_about_half_on_each_side() {
        let names: Vec<Vec<u8>> = (0..40_u8).map(|i| vec![b'a' + i; 12]).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let bytes = block(&names);
        let items = items(&bytes, false, |name| u32::from(name[0]) << 1).unwrap();
        assert_eq!(items.len(), 40);
        let kept = cut(&items);
        assert_eq!((kept, border(&items, kept)), (20, items[20].hash));
        let low = pack(&bytes, &items[..kept]);
        let high = pack(&bytes, &items[kept..]);
        for (i, name) in names.iter().enumerate() {
            let side = if i < 20 { &low } else { &high };
            assert_eq!(find(side, name).unwrap().inode, InodeNumber(12 + i as u32));
        }
    }

    #[test]
    fn equal_hashes_over_a_border_are_marked() {
        let names: Vec<&[u8]> = vec![&[b'x'; 250], &[b'y'; 250], &[b'z'; 250]];
        let bytes = block(&names);
        let all = items(&bytes, false, |_| 0x50).unwrap();
        let kept = cut(&all);
        assert_eq!((kept, border(&all, kept)), (1, 0x51));
        let last = items(&bytes, false, |name| u32::from(name[0]) << 1).unwrap();
        assert_eq!(border(&last, 1), u32::from(b'y') << 1);
        assert_eq!((cut(&all[..2]), used(&all)), (1, 3 * 260));
    }
}
