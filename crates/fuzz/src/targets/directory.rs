//! Blocks of directories: entries, and the index over them.
//!
//! The input is the highest number of an inode (4 bytes), the number of the block in the directory
//! (1 byte), and the block.

use backstitch_ext::format::directory::{self, encode_entry, entries, find, required_len};
use backstitch_ext::format::htree::block::{IndexBlock, IndexEntries, Root, is_unused};
use backstitch_ext::format::htree::{self, MAX_INDIRECT_LEVELS_LARGE};

use backstitch_layout::InodeNumber;

use crate::Input;

/// Entries are in the block one after the other, and a search finds the same as a scan of all
/// entries.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let most_inodes = input.number();
    let logical = u64::from(input.byte() % 3);
    let block = input.rest();
    let mut behind = 0;
    let mut names = Vec::new();
    for entry in entries(block, most_inodes) {
        let Ok(entry) = entry else { break };
        assert_eq!(entry.offset, behind);
        let used = entry.used_len::<directory::ExtEntries>();
        assert!(used <= entry.rec_len && entry.inode.0 <= most_inodes);
        behind = entry.offset + entry.rec_len;
        assert!(behind <= block.len());
        let written = encode_entry(entry.inode, entry.file_type, entry.name, entry.rec_len);
        assert_eq!(written.len(), required_len(entry.name.len()));
        assert_eq!(written[8..8 + entry.name.len()], *entry.name);
        names.push(entry);
    }
    for entry in names
        .iter()
        .filter(|entry| entry.inode != InodeNumber::NONE)
    {
        let first = names
            .iter()
            .find(|e| e.inode != InodeNumber::NONE && e.name == entry.name);
        assert_eq!(find(block, entry.name).as_ref(), first);
        for version in 0..=htree::HASH_TEA_UNSIGNED {
            let hash = htree::hash(version, &[1, 2, 3, 4], entry.name);
            assert!(hash.is_some_and(|hash| hash & 1 == 0));
        }
    }
    let _ = directory::entry_at(block, behind, most_inodes);
    index(block, logical);
}

/// An index block with possible numbers keeps the entries that are added to it.
fn index(block: &[u8], logical: u64) {
    let root = Root::parse(block, MAX_INDIRECT_LEVELS_LARGE);
    let _ = is_unused(block);
    for tail_bytes in [0, 8] {
        let Ok(found) = IndexEntries::parse(block, logical, tail_bytes) else {
            continue;
        };
        let list = found.list();
        assert_eq!(list.len(), found.count());
        for (hash, _) in &list {
            assert!(found.find(*hash) < found.count());
        }
        if tail_bytes == 0 && (logical > 0 || root.is_ok()) {
            let mut changed = IndexBlock::of(block, logical);
            changed.set_entries(&list);
            let again = IndexEntries::parse(changed.bytes(), logical, 0);
            assert_eq!(again.map(|entries| entries.list()), Ok(list));
        }
    }
}
