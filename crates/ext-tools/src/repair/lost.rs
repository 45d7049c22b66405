//! `lost+found`.

use super::entries::Saved;
use super::fixer::{ByInode, Fixer, put_u16, put_u32};
use crate::fsck::{CheckError, Location};
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::{entries, new_directory_block, type_code};
use backstitch_ext::format::inode::{self, BASE_SIZE, offset};
use backstitch_layout::tools::rounds::free_name;
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use rustc_hash::FxHashMap;

pub(super) const NAME: &str = "lost+found";

impl Fixer<'_, '_> {
    /// Gives everything without a name one in `lost+found`: `#` and its inode number.
    pub(super) fn reconnect(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let Some((directory, mut blocks)) = self.lost_and_found()? else {
            return Ok(());
        };
        let taken = self.names_in(&blocks)?;
        self.drop_index(directory)?;
        for number in found.keys().filter(|number| **number != directory) {
            let Some(info) = self.info(*number) else {
                continue;
            };
            let name = free_name(&format!("#{number}"), |name| taken.contains_key(name));
            let entry = Saved {
                inode: *number,
                file_type: self.entry_code(info.type_code),
                name: name.clone().into_bytes(),
            };
            if !self.add_name(directory, &mut blocks, &entry)? {
                return Ok(());
            }
            let what = format!("had no name, is {NAME}/{name} now");
            self.note(Location::inode(*number), what);
        }
        Ok(())
    }

    fn names_in(
        &self,
        blocks: &[BlockNumber],
    ) -> Result<FxHashMap<Vec<u8>, InodeNumber>, CheckError> {
        let mut names = FxHashMap::default();
        for block in blocks {
            let bytes = self.block(*block)?;
            let live = entries(&bytes, u32::MAX).map_while(Result::ok);
            for entry in live.filter(|entry| entry.inode != InodeNumber::NONE) {
                names.insert(entry.name.to_vec(), entry.inode);
            }
        }
        Ok(names)
    }

    /// The directory and its blocks, made where there is none; `None` where there is no space for
    /// it.
    pub(super) fn lost_and_found(
        &mut self,
    ) -> Result<Option<(InodeNumber, Vec<BlockNumber>)>, CheckError> {
        let blocks_of = |fixer: &Self, number| -> Vec<BlockNumber> {
            let blocks = fixer.directory_blocks(number);
            blocks.into_iter().map(|(_, block)| block).collect()
        };
        let mut root = blocks_of(self, ROOT_INODE);
        if root.is_empty() {
            return Ok(None);
        }
        let names = self.names_in(&root)?;
        let known = names.get(NAME.as_bytes()).copied();
        let is_directory =
            |number: &InodeNumber| self.facts.gathered.directory_index(*number).is_some();
        if let Some(number) = known.filter(is_directory) {
            return Ok(Some((number, blocks_of(self, number))));
        }
        let (Some(number), Some(block)) = (self.allocate_inode(), self.allocate()?) else {
            return Ok(None);
        };
        let code = self.directory_code();
        let fresh = new_directory_block(self.block_size(), number, ROOT_INODE, code);
        self.put_block(block, &fresh)?;
        self.make_directory(number, block)?;
        self.drop_index(ROOT_INODE)?;
        // A file of this name loses it here. A later round gives it a new one in the new directory.
        self.remove_entries(ROOT_INODE, &|_, name, _| name == NAME.as_bytes())?;
        let entry = Saved {
            inode: number,
            file_type: code,
            name: NAME.into(),
        };
        if !self.add_name(ROOT_INODE, &mut root, &entry)? {
            return Ok(None);
        }
        self.note(Location::inode(number), format!("/{NAME} made"));
        Ok(Some((number, vec![block])))
    }

    fn make_directory(
        &mut self,
        number: InodeNumber,
        block: BlockNumber,
    ) -> Result<(), CheckError> {
        let mut bytes = self.inode_bytes(number)?;
        bytes.fill(0);
        put_u16(&mut bytes, offset::MODE, 0o040_700);
        put_u16(&mut bytes, offset::LINKS, 2);
        put_u32(&mut bytes, offset::SIZE, self.sb.block_size);
        put_u32(&mut bytes, offset::BLOCKS, self.sb.block_size / 512);
        put_u32(&mut bytes, offset::BLOCK, block.0 as u32);
        for time in [offset::ATIME, offset::CTIME, offset::MTIME] {
            put_u32(&mut bytes, time, self.now_seconds);
        }
        if bytes.len() > BASE_SIZE {
            put_u16(
                &mut bytes,
                offset::EXTRA_ISIZE,
                inode::new_extra_isize(self.sb),
            );
        }
        debug_assert_eq!(type_code(FileType::Directory), 2);
        self.put_inode(number, &bytes)
    }
}
