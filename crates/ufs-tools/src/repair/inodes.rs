//! Inodes by themselves: types, sizes, links and sectors.

use super::fixer::{ByInode, Fixer};
use super::raw::InodeBytes;
use crate::entries;
use crate::fsck::{CheckError, Code, Location};
use backstitch_layout::{FileType, InodeNumber};
use backstitch_ufs::format::directory::CHUNK_BYTES;
use backstitch_ufs::format::inode::POINTERS;
use backstitch_ufs::format::{Inode, LINK_MAX, ROOT_INODE, SECTOR_BYTES};

/// The mode given to a file whose mode is lost.
const FILE_MODE: u16 = 0o100_600;
/// The mode given to a directory whose mode is lost.
const DIRECTORY_MODE: u16 = 0o040_700;
/// The mode given to a root directory whose mode is lost: all users may reach what is in it.
const ROOT_MODE: u16 = 0o040_755;

impl Fixer<'_, '_> {
    /// What an inode is.
    pub(super) fn inodes(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for (number, codes) in found {
            let place = Location::inode(*number);
            let mut bytes = self.inode_bytes(*number)?;
            let inode = bytes.parse()?;
            if codes.contains(&Code::RootInvalid) {
                self.root(bytes, &inode)?;
                continue;
            }
            if codes.contains(&Code::FieldNotZero) {
                bytes.clear();
                self.note(place, "what was left of a free inode cleared");
            }
            if codes.contains(&Code::ModeInvalid) {
                let (mode, what) = self.likely_mode(*number, &inode)?;
                match mode {
                    0 => bytes.clear(),
                    mode => bytes.set_mode(mode),
                }
                self.note(place, what);
            }
            if codes.contains(&Code::SpecialFileInvalid) {
                let is_device = matches!(
                    inode.file_type(),
                    Some(FileType::CharacterDevice | FileType::BlockDevice)
                );
                for slot in usize::from(is_device)..POINTERS {
                    bytes.set_pointer(slot, 0);
                }
                self.note(place, "pointers of what has none cleared");
            }
            if codes.contains(&Code::SymlinkInvalid) {
                match self.target_bytes(&inode)? {
                    0 => {
                        bytes.clear();
                        self.note(place, "a symbolic link without a target freed");
                    }
                    length => {
                        bytes.set_size(length);
                        self.note(place, format!("its target has {length} bytes"));
                    }
                }
            }
            if codes.contains(&Code::XattrInodeInvalid) {
                bytes.clear_attributes();
                self.note(place, "attributes that nobody can read cleared");
            }
            self.put_inode(*number, &bytes)?;
        }
        Ok(())
    }

    /// The most likely type of an inode without one, and the words of the report.
    fn likely_mode(
        &self,
        number: InodeNumber,
        inode: &Inode,
    ) -> Result<(u16, &'static str), CheckError> {
        let first = inode.pointers[0];
        let is_empty = inode.pointers.iter().all(|pointer| *pointer == 0);
        if is_empty || inode.size > self.sb.file_bytes_max || !self.is_possible(first.max(1), 1) {
            return Ok((0, "of no type, and freed"));
        }
        let chunk = match first {
            0 => Vec::new(),
            first => self.read(first, CHUNK_BYTES)?,
        };
        let mut names = entries::live(self.sb.order, &chunk);
        let is_dot = names
            .next()
            .is_some_and(|e| e.name == b"." && e.inode == number);
        let is_dot_dot = names.next().is_some_and(|entry| entry.name == b"..");
        Ok(match is_dot && is_dot_dot {
            true => (
                DIRECTORY_MODE,
                "of no type, and is a directory by its names",
            ),
            false => (FILE_MODE, "of no type, and is a file now"),
        })
    }

    /// The bytes of a symbolic link's target that make sense; 0 for none.
    fn target_bytes(&self, inode: &Inode) -> Result<u64, CheckError> {
        if !inode.is_fast_symlink(self.sb.symlink_max) {
            let size = inode.size.min(self.sb.block_bytes.into());
            let fragments = size.div_ceil(self.sb.fragment_bytes.into());
            if size != inode.size || size == 0 || !self.is_possible(inode.pointers[0], fragments) {
                return Ok(0);
            }
            let target = self.read(inode.pointers[0], size as usize)?;
            // A target that is shorter than those that have blocks would be looked for elsewhere.
            let length = length_of(&target);
            return Ok(if length < self.sb.symlink_max.into() {
                0
            } else {
                length
            });
        }
        let target = inode.inline_bytes();
        Ok(length_of(
            &target[..(inode.size as usize).min(target.len())],
        ))
    }

    /// Makes inode 2 a directory: the one that it was where its first block says so, or else an
    /// empty one.
    fn root(&mut self, mut bytes: InodeBytes, inode: &Inode) -> Result<(), CheckError> {
        let (mode, _) = self.likely_mode(ROOT_INODE, inode)?;
        if mode != DIRECTORY_MODE {
            return self.make_root();
        }
        bytes.set_mode(ROOT_MODE);
        self.put_inode(ROOT_INODE, &bytes)?;
        let what = "the root is a directory again: it is one by its names";
        self.note(Location::inode(ROOT_INODE), what);
        Ok(())
    }

    /// Makes inode 2 an empty directory.
    fn make_root(&mut self) -> Result<(), CheckError> {
        let per_block = self.sb.fragments_per_block;
        let Some(block) = self.allocate(per_block)? else {
            return Ok(());
        };
        self.make_directory(ROOT_INODE, ROOT_INODE, block)?;
        let mut bytes = self.inode_bytes(ROOT_INODE)?;
        bytes.set_mode(ROOT_MODE);
        self.put_inode(ROOT_INODE, &bytes)?;
        self.note(Location::inode(ROOT_INODE), "the root made anew");
        Ok(())
    }

    /// Makes an inode an empty directory of one block.
    pub(super) fn make_directory(
        &mut self,
        number: InodeNumber,
        parent: InodeNumber,
        block: u64,
    ) -> Result<(), CheckError> {
        let bytes = self.block_bytes();
        let contents = self.empty_directory(number, parent, bytes);
        self.write(block, &contents)?;
        let mut inode = self.inode_bytes(number)?;
        let sectors = bytes as u64 / SECTOR_BYTES;
        inode.make_directory(block, bytes as u64, sectors, self.now_seconds.into());
        self.put_inode(number, &inode)
    }

    /// Sizes that cannot be.
    pub(super) fn sizes(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for number in found.keys() {
            let mut bytes = self.inode_bytes(*number)?;
            let inode = bytes.parse()?;
            let most = self.sb.file_bytes_max;
            let mut size = inode.size;
            if size > most {
                size = self.mapped_bytes(&inode)?;
            }
            if inode.is_directory() {
                size = size.next_multiple_of(CHUNK_BYTES as u64);
            }
            bytes.set_size(size);
            self.put_inode(*number, &bytes)?;
            self.note(Location::inode(*number), format!("its size is {size} now"));
        }
        Ok(())
    }

    /// Links and sectors.
    pub(super) fn counts(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for (number, codes) in found {
            let Some(info) = self.facts.gathered.inode(self.sb, *number) else {
                continue;
            };
            let mut bytes = self.inode_bytes(*number)?;
            let place = Location::inode(*number);
            if codes.contains(&Code::LinksTooHigh) || codes.contains(&Code::LinksTooLow) {
                let links = info.names.get().min(LINK_MAX.into()) as u16;
                bytes.set_links(links);
                self.note(place, format!("{} links counted, {links} now", info.links));
            }
            if codes.contains(&Code::BlockCountWrong) {
                bytes.set_sectors(info.sectors);
                self.note(place, format!("{} sectors counted now", info.sectors));
            }
            self.put_inode(*number, &bytes)?;
        }
        Ok(())
    }
}

fn length_of(target: &[u8]) -> u64 {
    let end = target.iter().position(|byte| *byte == 0);
    end.unwrap_or(target.len()) as u64
}
