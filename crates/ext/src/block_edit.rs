//! Changing a directory block's bytes in a copy, where several changes are to become one patch.

use crate::format::directory::{
    OFFSET_INODE, OFFSET_REC_LEN, encode_entry, encode_rec_len, entries, find_insertion,
};

/// Clears the entry at an offset: the one before it swallows it, or it becomes unused.
pub(crate) fn clear_entry(bytes: &mut [u8], offset: usize) {
    let mut previous = None;
    let mut own_len = 0;
    for entry in entries(bytes, u32::MAX).map_while(Result::ok) {
        if entry.offset == offset {
            own_len = entry.rec_len;
            break;
        }
        previous = Some((entry.offset, entry.rec_len));
    }
    match previous {
        Some((at, len)) => {
            let joined = encode_rec_len(len + own_len).to_le_bytes();
            bytes[at + OFFSET_REC_LEN..at + OFFSET_REC_LEN + 2].copy_from_slice(&joined);
        }
        None => bytes[offset + OFFSET_INODE..offset + OFFSET_INODE + 4].fill(0),
    }
}

/// Adds an entry in the first gap that it fits into. Returns where it is.
pub(crate) fn add_entry(bytes: &mut [u8], inode: u32, kind: u8, name: &[u8]) -> Option<usize> {
    let insertion = find_insertion(bytes, name.len()).ok()??;
    if let Some((at, rec_len)) = insertion.shortened {
        bytes[at + OFFSET_REC_LEN..at + OFFSET_REC_LEN + 2]
            .copy_from_slice(&encode_rec_len(rec_len).to_le_bytes());
    }
    let entry = encode_entry(inode, kind, name, insertion.rec_len);
    bytes[insertion.offset..insertion.offset + entry.len()].copy_from_slice(&entry);
    Some(insertion.offset)
}
