//! Reading directories, with and without the attributes of what they name.

use crate::convert::{entry, errno};
use crate::front::Front;
use backstitch_fuse_protocol::{Directory, DirectoryList, Errno, Reply};
use backstitch_vfs::{DirectoryEntry, FileType, InodeNumber};

impl Front {
    /// Answers with the entries behind a cookie, in at most `most` bytes.
    pub(crate) fn read_directory(
        &self,
        dir: InodeNumber,
        cookie: u64,
        most: u32,
        reply: Reply<Directory>,
    ) {
        reply.entries(most as usize, |list| {
            self.list(dir, cookie, list)?;
            self.note_reading(dir, cookie);
            Ok(())
        });
    }

    fn list(
        &self,
        dir: InodeNumber,
        cookie: u64,
        list: &mut DirectoryList<'_>,
    ) -> Result<(), Errno> {
        // Entries without a type need their inodes, which cannot be read while the engine hands out
        // entries.
        let mut untyped: Vec<(InodeNumber, u64, Vec<u8>)> = Vec::new();
        let read = self.engine.read_directory(dir, cookie, &mut |entry| {
            let known = if is_dot(entry.name) {
                Some(FileType::Directory)
            } else {
                entry.file_type
            };
            match known {
                Some(kind) if untyped.is_empty() => list.add(
                    u64::from(entry.inode.0),
                    entry.next_cookie,
                    kind.mode_bits(),
                    entry.name,
                ),
                _ => {
                    untyped.push((entry.inode, entry.next_cookie, entry.name.to_vec()));
                    untyped.len() < UNTYPED_AT_ONCE
                }
            }
        });
        read.map_err(|error| errno("readdir", dir, &error))?;
        for (inode, next_cookie, name) in untyped {
            let Ok(attributes) = self.engine.attributes(inode) else {
                continue;
            };
            let mode = attributes.file_type.mode_bits();
            if !list.add(u64::from(inode.0), next_cookie, mode, &name) {
                break;
            }
        }
        Ok(())
    }

    /// As [`read_directory`](Self::read_directory), with attributes.
    pub(crate) fn read_directory_plus(
        &self,
        dir: InodeNumber,
        cookie: u64,
        most: u32,
        reply: Reply<Directory>,
    ) {
        reply.entries(most as usize, |list| {
            let mut add = |found: &DirectoryEntry<'_>, attributes: &_| {
                let node = self.nodes.node(found.inode);
                let shown = self.show(node.0, attributes);
                let entry = entry(node, attributes.generation, shown);
                list.add_plus(&entry, found.next_cookie, found.name)
            };
            let read = self.engine.read_directory_plus(dir, cookie, &mut add);
            read.map_err(|error| errno("readdirplus", dir, &error))?;
            self.note_reading(dir, cookie);
            Ok(())
        });
    }

    /// A directory is being read, from a cookie on: it counts once, at its beginning.
    fn note_reading(&self, dir: InodeNumber, cookie: u64) {
        if cookie == 0 {
            self.touch_directory(dir);
        }
    }
}

/// How many entries whose type the directory does not tell are looked up per request.
const UNTYPED_AT_ONCE: usize = 64;

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
