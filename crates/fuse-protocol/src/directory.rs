//! The entries of a directory, one behind the other, each at a multiple of eight bytes.

use crate::abi::fuse_entry_out;
use zerocopy::IntoBytes;

/// What comes before a name: inode, where the next entry is found, length of the name, type.
const DIRENT_BYTES: usize = 24;

/// The entries of one reply.
#[derive(Debug)]
pub struct DirectoryList<'a> {
    space: &'a mut [u8],
    len: usize,
}

impl<'a> DirectoryList<'a> {
    pub(crate) fn new(space: &'a mut [u8]) -> DirectoryList<'a> {
        DirectoryList { space, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry of `READDIR`: the inode's number, the cookie that reading goes on from behind
    /// it, its type as in the upper bits of a mode. `false` if it does not go in any more.
    pub fn add(&mut self, inode: u64, next_cookie: u64, mode: u32, name: &[u8]) -> bool {
        self.put(None, inode, next_cookie, mode, name)
    }

    /// Adds an entry of `READDIRPLUS`, with what a lookup of the name would give.
    pub fn add_plus(&mut self, entry: &fuse_entry_out, next_cookie: u64, name: &[u8]) -> bool {
        self.put(
            Some(entry),
            entry.attr.ino,
            next_cookie,
            entry.attr.mode,
            name,
        )
    }

    fn put(
        &mut self,
        entry: Option<&fuse_entry_out>,
        inode: u64,
        next_cookie: u64,
        mode: u32,
        name: &[u8],
    ) -> bool {
        let entry = entry.map_or(&[][..], fuse_entry_out::as_bytes);
        let end = entry.len() + DIRENT_BYTES + name.len();
        let padded = end.next_multiple_of(8);
        let rest = &mut self.space[self.len..];
        if padded > rest.len() {
            return false;
        }
        let (space, _) = rest.split_at_mut(padded);
        let (plus, dirent) = space.split_at_mut(entry.len());
        plus.copy_from_slice(entry);
        dirent[..8].copy_from_slice(&inode.to_ne_bytes());
        dirent[8..16].copy_from_slice(&next_cookie.to_ne_bytes());
        dirent[16..20].copy_from_slice(&(name.len() as u32).to_ne_bytes());
        dirent[20..24].copy_from_slice(&(mode >> 12 & 0o17).to_ne_bytes());
        dirent[DIRENT_BYTES..DIRENT_BYTES + name.len()].copy_from_slice(name);
        dirent[DIRENT_BYTES + name.len()..].fill(0);
        self.len += padded;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_follow_each_other_until_there_is_no_room() {
        let mut space = [0xee; 80];
        let mut list = DirectoryList::new(&mut space);
        assert!(list.add(12, 1, 0o100_644, b"name"));
        assert_eq!(list.len(), 32);
        assert!(list.add(13, 2, 0o040_755, b"directory"));
        assert_eq!(list.len(), 72);
        assert!(!list.add(14, 3, 0o100_644, b""));
        assert_eq!(space[..8], 12_u64.to_ne_bytes());
        assert_eq!(space[16..20], 4_u32.to_ne_bytes());
        assert_eq!(space[20..24], 8_u32.to_ne_bytes());
        assert_eq!(&space[24..32], b"name\0\0\0\0");
        assert_eq!(space[32 + 20..32 + 24], 4_u32.to_ne_bytes());
        assert_eq!(space[72..], [0xee; 8]);
    }

    #[test]
    fn an_entry_with_attributes_is_of_152_bytes_and_its_name() {
        let mut space = [0; 160];
        let mut entry = fuse_entry_out {
            nodeid: 12,
            ..Default::default()
        };
        entry.attr.ino = 12;
        let mut list = DirectoryList::new(&mut space);
        assert!(list.add_plus(&entry, 1, b"a"));
        assert_eq!(list.len(), 160);
        assert!(!list.add_plus(&entry, 2, b"b"));
        assert_eq!(space[..8], 12_u64.to_ne_bytes());
        assert_eq!(space[128..136], 12_u64.to_ne_bytes());
    }
}
