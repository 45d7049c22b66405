//! Entries of directories.

use super::fixer::{ByInode, Fixer};
use crate::entries::{self, Saved};
use crate::fsck::{CheckError, Location, state::Piece};
use backstitch_blocks::directory::{Entry, HEADER_SIZE};
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use backstitch_ufs::format::directory::{CHUNK_BYTES, type_code};
use backstitch_ufs::format::{ROOT_INODE, WHITEOUT_INODE};
use rustc_hash::FxHashSet;

impl Fixer<'_, '_> {
    /// The blocks of a directory that the check has read.
    pub(super) fn directory_blocks(
        &self,
        number: InodeNumber,
    ) -> impl Iterator<Item = Piece> + use<'_> {
        let gathered = &self.facts.gathered;
        let index = gathered.directory_index(number);
        let pieces = index.map_or(0..0, |index| gathered.directories[index].pieces.clone());
        let all = gathered.pieces[pieces].iter().copied();
        all.filter(|piece| piece.fragment.is_some())
    }

    /// The chunks of a directory: the block that each is in, its place there in bytes, and whether
    /// it is the first.
    pub(super) fn chunks(&self, number: InodeNumber) -> Vec<(u64, usize, bool)> {
        let mut chunks = Vec::new();
        for piece in self.directory_blocks(number) {
            let Some(fragment) = piece.fragment else {
                continue;
            };
            let count = piece.bytes as usize / CHUNK_BYTES;
            let is_first = |index| piece.logical == 0 && index == 0;
            chunks.extend((0..count).map(|index| (fragment, index * CHUNK_BYTES, is_first(index))));
        }
        chunks
    }

    pub(super) fn read_chunk(
        &self,
        (block, at, _): (u64, usize, bool),
    ) -> Result<Vec<u8>, CheckError> {
        let offset = block * u64::from(self.sb.fragment_bytes) + at as u64;
        Ok(self.image.read(offset, CHUNK_BYTES)?)
    }

    pub(super) fn write_chunk(
        &mut self,
        (block, at, _): (u64, usize, bool),
        bytes: &[u8],
    ) -> Result<(), CheckError> {
        let offset = block * u64::from(self.sb.fragment_bytes) + at as u64;
        Ok(self.image.write(offset, bytes)?)
    }

    /// An empty directory.
    pub(super) fn empty_directory(
        &self,
        number: InodeNumber,
        parent: InodeNumber,
        len: usize,
    ) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for (index, chunk) in bytes.chunks_exact_mut(CHUNK_BYTES).enumerate() {
            let own = if index == 0 {
                dots(number, parent).to_vec()
            } else {
                Vec::new()
            };
            entries::fill(self.sb.order, chunk, &own);
        }
        bytes
    }

    /// The directory that contains this one, as far as it is known.
    pub(super) fn parent_of(&self, number: InodeNumber) -> InodeNumber {
        let index = self.facts.gathered.directory_index(number);
        let named = index.and_then(|index| self.facts.names.of(index).first());
        named.map_or(ROOT_INODE, |(_, parent)| *parent)
    }

    /// Rebuilds the chunks in which an entry is not what it must be.
    pub(super) fn entries(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for number in found.keys() {
            let mut seen = FxHashSet::default();
            for chunk in self.chunks(*number) {
                self.entries_of_chunk(*number, chunk, &mut seen)?;
            }
        }
        Ok(())
    }

    fn entries_of_chunk(
        &mut self,
        number: InodeNumber,
        chunk: (u64, usize, bool),
        seen: &mut FxHashSet<Vec<u8>>,
    ) -> Result<(), CheckError> {
        let bytes = self.read_chunk(chunk)?;
        let mut kept = Vec::new();
        let mut changes = Vec::new();
        let mut dot_dot = None;
        for (index, entry) in entries::entries(self.sb.order, &bytes).enumerate() {
            let Ok(entry) = entry else {
                changes.push("what follows a damaged entry cleared".to_owned());
                break;
            };
            if chunk.2 && index < 2 {
                if index == 1 && entry.name == b".." {
                    dot_dot = Some(entry.inode);
                }
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
            }
            if entry.inode == InodeNumber::NONE {
                continue;
            }
            match self.sound_entry(number, &entry, &bytes, seen) {
                Ok(saved) => {
                    if saved.file_type != entry.file_type {
                        changes.push(format!("type of {} corrected", show(&entry)));
                    }
                    kept.push(saved);
                }
                Err(why) => changes.push(format!("{} removed: {why}", show(&entry))),
            }
        }
        if chunk.2 {
            let is_directory =
                |inode: &InodeNumber| self.facts.gathered.directory_index(*inode).is_some();
            let parent = dot_dot
                .filter(is_directory)
                .unwrap_or_else(|| self.parent_of(number));
            if !starts_with_dots(self.sb.order, &bytes, number, parent) {
                changes.push(". and .. written anew".to_owned());
            }
            kept.splice(0..0, dots(number, parent));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut rebuilt = vec![0; CHUNK_BYTES];
        let left = entries::fill(self.sb.order, &mut rebuilt, &kept).len();
        self.write_chunk(chunk, &rebuilt)?;
        if left > 0 {
            changes.push(format!(
                "{left} names for which there was no room left removed"
            ));
        }
        for what in changes {
            self.note(Location::inode(number).at_block(BlockNumber(chunk.0)), what);
        }
        Ok(())
    }

    /// An entry as it is to be; or why it cannot be kept.
    fn sound_entry(
        &self,
        directory: InodeNumber,
        entry: &Entry<'_>,
        bytes: &[u8],
        seen: &mut FxHashSet<Vec<u8>>,
    ) -> Result<Saved, &'static str> {
        let name = entry.name;
        let end = HEADER_SIZE + name.len();
        if end >= entry.rec_len || bytes.get(entry.offset + end) != Some(&0) {
            return Err("no zero is behind it");
        }
        if name.is_empty()
            || name == b"."
            || name == b".."
            || name.iter().any(|b| matches!(b, b'/' | 0))
        {
            return Err("it is no name");
        }
        let is_whiteout = entry.inode == WHITEOUT_INODE && entry.file_type == 14;
        if !is_whiteout
            && (entry.inode < ROOT_INODE || entry.inode == directory || entry.inode == ROOT_INODE)
        {
            return Err("it stands for an inode that it cannot");
        }
        let info = self.facts.gathered.inode(self.sb, entry.inode);
        let file_type = match (is_whiteout, info) {
            (true, _) => entry.file_type,
            (false, Some(info)) => info.type_code,
            (false, None) => return Err("its inode is not in use"),
        };
        if !seen.insert(name.to_vec()) {
            return Err("the name is there already");
        }
        Ok(Saved {
            inode: entry.inode,
            file_type,
            name: name.to_vec(),
        })
    }

    /// Removes entries of a directory other than `.` and `..`; gives how many.
    pub(super) fn remove_entries(
        &mut self,
        directory: InodeNumber,
        mut is_wanted: impl FnMut(InodeNumber, &[u8]) -> bool,
    ) -> Result<usize, CheckError> {
        let mut removed = 0;
        for chunk in self.chunks(directory) {
            let bytes = self.read_chunk(chunk)?;
            let mut kept = Vec::new();
            let mut gone = Vec::new();
            for entry in entries::live(self.sb.order, &bytes) {
                let is_dot = chunk.2 && (entry.name == b"." || entry.name == b"..");
                if !is_dot && is_wanted(entry.inode, entry.name) {
                    gone.push(format!("{} of inode {} removed", show(&entry), entry.inode));
                    continue;
                }
                kept.push(saved(&entry));
            }
            if gone.is_empty() {
                continue;
            }
            let mut rebuilt = vec![0; CHUNK_BYTES];
            entries::fill(self.sb.order, &mut rebuilt, &kept);
            self.write_chunk(chunk, &rebuilt)?;
            removed += gone.len();
            for what in gone {
                self.note(
                    Location::inode(directory).at_block(BlockNumber(chunk.0)),
                    what,
                );
            }
        }
        Ok(removed)
    }
}

pub(super) fn saved(entry: &Entry<'_>) -> Saved {
    Saved {
        inode: entry.inode,
        file_type: entry.file_type,
        name: entry.name.to_vec(),
    }
}

/// The first two entries of a directory.
fn dots(number: InodeNumber, parent: InodeNumber) -> [Saved; 2] {
    [(number, &b"."[..]), (parent, b"..")].map(|(inode, name)| Saved {
        inode,
        file_type: type_code(FileType::Directory),
        name: name.to_vec(),
    })
}

fn starts_with_dots(
    order: backstitch_ufs::format::ByteOrder,
    bytes: &[u8],
    number: InodeNumber,
    parent: InodeNumber,
) -> bool {
    let mut first = entries::entries(order, bytes).map_while(Result::ok);
    dots(number, parent)
        .iter()
        .all(|dot| first.next().is_some_and(|entry| saved(&entry) == *dot))
}

fn show(entry: &Entry<'_>) -> String {
    format!("name \"{}\"", entry.name.escape_ascii())
}
