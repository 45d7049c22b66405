//! Reading directories, with and without the attributes of what they name.

use std::ops::Range;

use backstitch_layout::{Attributes, DirectoryEntry, FileSystem, FileType, InodeNumber, Stop};
use backstitch_ordering::Volume;

use crate::Result;
use crate::engine::Engine;

impl Engine {
    /// Names of a directory from `cookie` on, until `emit` returns false.
    ///
    /// # Errors
    /// `ENOTDIR`, `EIO`.
    pub fn read_directory(
        &self,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let listing = self.run(None, |fs, v, _| Listing::read(fs, v, directory, cookie))?;
        for entry in listing.entries() {
            if !emit(&entry) {
                break;
            }
        }
        Ok(())
    }

    /// As [`read_directory`](Self::read_directory), with attributes, and a reference taken on the
    /// inode of every entry for which `emit` returns true, except `.` and `..`. `emit` is called
    /// under the engine's lock, and must not call the engine.
    ///
    /// # Errors
    /// `ENOTDIR`, `EIO`.
    pub fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>, &Attributes) -> bool,
    ) -> Result<()> {
        self.run(None, |fs, v, _| {
            let listing = Listing::read(fs, v, directory, cookie)?;
            let mut missing = false;
            let mut found = Vec::with_capacity(listing.listed.len());
            for listed in &listing.listed {
                // Ask for every inode before giving up, so that one round of reads brings them all.
                match fs.attributes(v, listed.inode) {
                    Err(Stop::Miss) => missing = true,
                    other => found.push(other.ok()),
                }
            }
            if missing {
                return Err(Stop::Miss);
            }
            for (entry, attributes) in listing.entries().zip(&found) {
                let Some(attributes) = attributes else {
                    continue;
                };
                if !emit(&entry, attributes) {
                    break;
                }
                if entry.name != b"." && entry.name != b".." {
                    fs.hold(entry.inode);
                }
            }
            Ok(())
        })
    }
}

/// Some names of a directory.
#[derive(Default)]
struct Listing {
    listed: Vec<Listed>,
    /// All their names, one behind the other.
    names: Vec<u8>,
}

/// An entry of a listing.
struct Listed {
    inode: InodeNumber,
    file_type: Option<FileType>,
    next_cookie: u64,
    name: Range<usize>,
}

impl Listing {
    /// Entries read at a time: enough to fill a reply of a few pages.
    const AT_ONCE: usize = 256;

    fn read(
        fs: &mut dyn FileSystem,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        cookie: u64,
    ) -> backstitch_layout::Step<Listing> {
        let mut listing = Listing::default();
        fs.read_directory(v, directory, cookie, &mut |entry| {
            let start = listing.names.len();
            listing.names.extend_from_slice(entry.name);
            listing.listed.push(Listed {
                inode: entry.inode,
                file_type: entry.file_type,
                next_cookie: entry.next_cookie,
                name: start..listing.names.len(),
            });
            listing.listed.len() < Self::AT_ONCE
        })?;
        Ok(listing)
    }

    fn entries(&self) -> impl Iterator<Item = DirectoryEntry<'_>> {
        self.listed.iter().map(|listed| DirectoryEntry {
            inode: listed.inode,
            file_type: listed.file_type,
            name: &self.names[listed.name.clone()],
            next_cookie: listed.next_cookie,
        })
    }
}
