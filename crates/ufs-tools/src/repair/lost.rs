//! `lost+found`.

use super::directories::saved;
use super::fixer::{ByInode, Fixer};
use crate::entries::{self, Saved};
use crate::fsck::{CheckError, Location};
use backstitch_layout::tools::rounds::free_name;
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{FileType, InodeNumber};
use backstitch_ufs::format::directory::{CHUNK_BYTES, type_code};
use backstitch_ufs::format::inode::DIRECT_POINTERS;
use backstitch_ufs::format::{ROOT_INODE, SECTOR_BYTES};
use rustc_hash::FxHashSet;

pub(super) const NAME: &str = "lost+found";

/// The chunks of a directory that grows while names are put into it.
struct Open {
    number: InodeNumber,
    chunks: Vec<(u64, usize, bool)>,
    names: FxHashSet<Vec<u8>>,
    /// The first chunk that may have room.
    next: usize,
}

impl Fixer<'_, '_> {
    /// Gives everything without a name one in `lost+found`: `#` and its inode number.
    pub(super) fn reconnect(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let Some(mut open) = self.lost_and_found()? else {
            return Ok(());
        };
        let own = open.number;
        for number in found.keys().filter(|number| **number != own) {
            let Some(info) = self.facts.gathered.inode(self.sb, *number) else {
                continue;
            };
            let name = free_name(&format!("#{number}"), |name| open.names.contains(name));
            let entry = Saved {
                inode: *number,
                file_type: info.type_code,
                name: name.clone().into_bytes(),
            };
            if !self.add_name(&mut open, &entry)? {
                return Ok(());
            }
            let what = format!("had no name, is {NAME}/{name} now");
            self.note(Location::inode(*number), what);
        }
        Ok(())
    }

    fn open(&self, number: InodeNumber) -> Result<Open, CheckError> {
        let chunks = self.chunks(number);
        let mut names = FxHashSet::default();
        for chunk in &chunks {
            let bytes = self.read_chunk(*chunk)?;
            names.extend(entries::live(self.sb.order, &bytes).map(|entry| entry.name.to_vec()));
        }
        Ok(Open {
            number,
            chunks,
            names,
            next: 0,
        })
    }

    /// The directory, made where there is none; `None` where there is no space for it.
    fn lost_and_found(&mut self) -> Result<Option<Open>, CheckError> {
        let mut root = self.open(ROOT_INODE)?;
        let mut known = None;
        for chunk in &root.chunks {
            let bytes = self.read_chunk(*chunk)?;
            let mut names = entries::live(self.sb.order, &bytes);
            let entry = names.find(|entry| entry.name == NAME.as_bytes());
            known = known.or(entry.map(|entry| entry.inode));
        }
        let is_directory =
            |number: &InodeNumber| self.facts.gathered.directory_index(*number).is_some();
        if let Some(number) = known.filter(is_directory) {
            return self.open(number).map(Some);
        }
        // What has the name and is no directory moves into the new one later, as it has no name
        // then.
        self.remove_entries(ROOT_INODE, |_, name| name == NAME.as_bytes())?;
        let block = self.allocate(self.sb.fragments_per_block)?;
        let (Some(number), Some(block)) = (self.allocate_inode(), block) else {
            return Ok(None);
        };
        self.make_directory(number, ROOT_INODE, block)?;
        let entry = Saved {
            inode: number,
            file_type: type_code(FileType::Directory),
            name: NAME.into(),
        };
        if !self.add_name(&mut root, &entry)? {
            return Ok(None);
        }
        self.note(Location::inode(number), format!("/{NAME} made"));
        let count = self.block_bytes() / CHUNK_BYTES;
        Ok(Some(Open {
            number,
            chunks: (0..count)
                .map(|index| (block, index * CHUNK_BYTES, index == 0))
                .collect(),
            names: FxHashSet::default(),
            next: 0,
        }))
    }

    /// Puts a name into a directory; `false` where there is no room and none can be had.
    fn add_name(&mut self, open: &mut Open, entry: &Saved) -> Result<bool, CheckError> {
        loop {
            while let Some(chunk) = open.chunks.get(open.next).copied() {
                let bytes = self.read_chunk(chunk)?;
                let live = entries::live(self.sb.order, &bytes);
                let mut all: Vec<Saved> = live.map(|entry| saved(&entry)).collect();
                all.push(entry.clone());
                let mut rebuilt = vec![0; CHUNK_BYTES];
                if entries::fill(self.sb.order, &mut rebuilt, &all).is_empty() {
                    open.names.insert(entry.name.clone());
                    self.write_chunk(chunk, &rebuilt)?;
                    return Ok(true);
                }
                open.next += 1;
            }
            if !self.grow(open)? {
                return Ok(false);
            }
        }
    }

    /// Gives a directory more chunks: its last block becomes a whole one, or it gets another.
    fn grow(&mut self, open: &mut Open) -> Result<bool, CheckError> {
        let mut inode = self.inode_bytes(open.number)?;
        let parsed = inode.parse()?;
        let block_bytes = u64::from(self.sb.block_bytes);
        let tail = parsed.size % block_bytes;
        let slot = (parsed.size / block_bytes) as usize;
        if slot >= DIRECT_POINTERS {
            return Ok(false);
        }
        let Some(block) = self.allocate(self.sb.fragments_per_block)? else {
            return Ok(false);
        };
        let mut bytes = vec![0; self.block_bytes()];
        for chunk in bytes.chunks_exact_mut(CHUNK_BYTES) {
            entries::fill(self.sb.order, chunk, &[]);
        }
        if tail > 0 {
            let old = self.read(parsed.pointers[slot], tail as usize)?;
            bytes[..old.len()].copy_from_slice(&old);
        }
        self.write(block, &bytes)?;
        self.image.barrier();
        inode.set_pointer(slot, block);
        inode.set_size((slot as u64 + 1) * block_bytes);
        let tail_bytes = tail.next_multiple_of(self.sb.fragment_bytes.into());
        let more = (block_bytes - tail_bytes) / SECTOR_BYTES;
        inode.set_sectors(parsed.sectors + more);
        self.put_inode(open.number, &inode)?;
        let first = slot == 0;
        open.chunks
            .retain(|chunk| tail == 0 || chunk.0 != parsed.pointers[slot]);
        let from = open.chunks.len();
        let count = self.block_bytes() / CHUNK_BYTES;
        let chunks = (0..count).map(|index| (block, index * CHUNK_BYTES, first && index == 0));
        open.chunks.extend(chunks);
        open.next = from;
        self.note(
            Location::inode(open.number),
            "a directory got another block",
        );
        Ok(true)
    }
}
