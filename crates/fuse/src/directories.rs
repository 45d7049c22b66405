//! Reading directories, with and without the attributes of what they name.

use crate::convert::{FOREVER, errno, file_type, generation};
use crate::front::Front;
use backstitch_vfs::{DirectoryEntry, FileType, InodeNumber};
use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Front {
    pub(crate) fn read_directory(&self, dir: InodeNumber, cookie: u64, mut reply: ReplyDirectory) {
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
                Some(kind) if untyped.is_empty() => !reply.add(
                    INodeNo(u64::from(entry.inode.0)),
                    entry.next_cookie,
                    file_type(kind),
                    OsStr::from_bytes(entry.name),
                ),
                _ => {
                    untyped.push((entry.inode, entry.next_cookie, entry.name.to_vec()));
                    untyped.len() < UNTYPED_AT_ONCE
                }
            }
        });
        for (inode, next_cookie, name) in untyped {
            let Ok(attributes) = self.engine.attributes(inode) else {
                continue;
            };
            let number = INodeNo(u64::from(inode.0));
            let kind = file_type(attributes.file_type);
            if reply.add(number, next_cookie, kind, OsStr::from_bytes(&name)) {
                break;
            }
        }
        match read {
            Ok(()) => reply.ok(),
            Err(error) => return reply.error(errno("readdir", dir, &error)),
        }
        if cookie == 0 {
            self.touch_directory(dir);
        }
    }

    pub(crate) fn read_directory_plus(
        &self,
        dir: InodeNumber,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let read =
            self.engine
                .read_directory_plus(dir, cookie, &mut |entry: &DirectoryEntry, a| {
                    let node = self.nodes.node(entry.inode);
                    let attributes = self.show(node, a);
                    let name = OsStr::from_bytes(entry.name);
                    !reply.add(
                        node,
                        entry.next_cookie,
                        name,
                        &FOREVER,
                        &attributes,
                        generation(a),
                    )
                });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => return reply.error(errno("readdirplus", dir, &error)),
        }
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
