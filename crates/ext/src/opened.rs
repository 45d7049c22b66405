//! An open ext file system: how it looks on the disk, to the rules that all formats share.

use crate::fault::InodeFault;
use crate::image::from_format;

use backstitch_layout::{
    BlockNumber, DirectoryEntry, Error, FileType, InodeNumber, NewInode, SetXattrMode, Step, Stop,
    Structure, Timestamp, flags,
};
use backstitch_ordering::{PatchId, Volume};
use backstitch_unixfs::format::{Format, InodeEditor as _, Picks};
use backstitch_unixfs::{
    Found, Mapped, PatchIds, READ_AHEAD_BLOCKS, Reclaim, Room, Run, want_ahead,
};
use smallvec::SmallVec;

use crate::acls::Inheritance;
use crate::editor::InodeEditor;
use crate::extents::Extents;
use crate::format::directory::ExtEntries;
use crate::format::features::{
    COMPAT_DIR_INDEX, COMPAT_EXT_ATTR, INCOMPAT_64BIT, INCOMPAT_FILETYPE, RO_COMPAT_METADATA_CSUM,
};
use crate::format::inode::{
    FAST_SYMLINK_MAX, FLAG_EXTENTS, FLAG_INDEX, FLAG_INLINE_DATA, encode_device, new_extra_isize,
    offset,
};
use crate::format::superblock::{FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, OFFSET_LAST_ORPHAN};
use crate::format::{Inode, LINK_MAX, ROOT_INODE};
use crate::htree::Indexes;
use crate::kinds;
use crate::reserved;
use crate::state::{Ext, ExtFormat};
use crate::xattrs::{AttributePlan, Attributes, checked_attribute_block};

impl Format for ExtFormat {
    type Inode = Inode;
    type Editor = InodeEditor;
    type Entries = ExtEntries;
    type AttributePlan = AttributePlan;
    type Inheritance = Inheritance;

    const ROOT_INODE: InodeNumber = ROOT_INODE;
    const LINK_MAX: u16 = LINK_MAX;
    const SECTORS_MAX: u64 = u32::MAX as u64;
    // The size of a directory has 32 bits.
    const DIRECTORY_BYTES_MAX: u64 = u32::MAX as u64 / 2;
    const INDEX_FLAG: u32 = FLAG_INDEX;

    fn type_name(&self) -> &'static str {
        self.sb.type_name()
    }

    fn max_file_bytes(&self) -> u64 {
        self.max_file_bytes
    }

    /// In revision 0 files end at 2 GiB: it has no feature that marks larger ones.
    fn max_file_bytes_at_once(&self) -> u64 {
        match self.sb.revision {
            0 => self.max_file_bytes.min(i32::MAX as u64),
            _ => self.max_file_bytes,
        }
    }

    fn fast_symlink_max(&self) -> usize {
        FAST_SYMLINK_MAX
    }

    /// A target takes at most one block, with a zero at the end.
    fn symlink_max(&self) -> usize {
        self.sb.block_size as usize - 1
    }

    fn has_file_types(&self) -> bool {
        self.sb.features.has_incompat(INCOMPAT_FILETYPE)
    }

    fn is_valid_inode(&self, inode: InodeNumber) -> bool {
        self.sb.is_valid_inode(inode)
    }

    fn is_log(&self, inode: InodeNumber) -> bool {
        self.sb.log.is_some_and(|log| log.inode == inode)
    }

    fn inode_place(&self, inode: InodeNumber) -> Step<(BlockNumber, usize)> {
        if !self.sb.is_valid_inode(inode) {
            return Err(Error::corrupt(
                Structure::inode(inode),
                InodeFault::NoSuchInode {
                    last: self.sb.inodes_count,
                },
            )
            .into());
        }
        let group = self.sb.group_of_inode(inode).index();
        let (block, at) = self.sb.inode_position(inode);
        Ok((self.groups.list[group].inode_table + block, at))
    }

    fn inode_bytes(&self) -> usize {
        self.sb.inode_size as usize
    }

    fn read_inode(&self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Inode> {
        let (block, at) = self.inode_place(inode)?;
        let size = self.sb.inode_size as usize;
        let Ok(data) = v.read(block) else {
            self.want_neighbours(v, inode, block);
            return Err(Stop::Miss);
        };
        let bytes = &data[at..at + size];
        let mut parsed = Inode::parse(bytes).map_err(|error| match from_format(error) {
            Error::Corrupt(corruption) => Error::Corrupt(corruption.of(Structure::inode(inode))),
            other => other,
        })?;
        if self.sb.features.has_incompat(INCOMPAT_64BIT) {
            parsed.widen(bytes);
        }
        Ok(parsed)
    }

    fn new_inode(&self) -> InodeEditor {
        InodeEditor::of_new(self.inode_bytes(), new_extra_isize(&self.sb))
    }

    fn fill_new(
        &self,
        e: &mut InodeEditor,
        parent: &Inode,
        new: &NewInode<'_>,
        block: Option<BlockNumber>,
    ) {
        e.set_flags(flags::inherited(parent.flags, new.file_type));
        match new.file_type {
            FileType::Directory => {
                e.set_size(self.sb.block_size.into());
                e.set_pointer(0, block.unwrap_or_default());
            }
            FileType::Symlink => {
                e.set_size(new.target.len() as u64);
                match block {
                    Some(block) => e.set_pointer(0, block),
                    None => e.set_inline(new.target),
                }
            }
            FileType::BlockDevice | FileType::CharacterDevice => {
                let [first, second] = encode_device(new.device_number);
                e.set_pointer(0, BlockNumber(first.into()));
                e.set_pointer(1, BlockNumber(second.into()));
            }
            FileType::Regular | FileType::Fifo | FileType::Socket => {}
        }
    }

    #[inline]
    fn pointer_bytes(&self) -> usize {
        size_of::<u32>()
    }

    #[inline]
    fn pointer_at(&self, bytes: &[u8], index: usize) -> BlockNumber {
        match bytes.get(index * 4..index * 4 + 4) {
            Some(b) => BlockNumber(u32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()),
            None => BlockNumber::NONE,
        }
    }

    fn encode_pointers(&self, blocks: Run) -> SmallVec<[u8; 64]> {
        let pointers = blocks.blocks().map(|block| block.0 as u32);
        pointers.flat_map(u32::to_le_bytes).collect()
    }

    fn foreign_map(
        &self,
        v: &mut Volume<'_>,
        inode: &Inode,
        logical: u64,
        max: u64,
    ) -> Option<Step<Mapped>> {
        let is_foreign = inode.has_extents(&self.sb.features);
        is_foreign.then(|| Extents { fs: self, inode }.map(v, logical, max))
    }

    fn can_keep_indexes(&self) -> bool {
        let signedness = self.sb.flags & (FLAG_SIGNED_HASH | FLAG_UNSIGNED_HASH);
        self.sb.features.has_compat(COMPAT_DIR_INDEX)
            && !self.sb.features.has_ro_compat(RO_COMPAT_METADATA_CSUM)
            // Without one of these flags the hash of a name depends on the machine.
            && matches!(signedness, FLAG_SIGNED_HASH | FLAG_UNSIGNED_HASH)
    }

    fn has_index(&self, directory: InodeNumber, inode: &Inode) -> bool {
        inode.flags & FLAG_INDEX != 0
            && self.sb.features.has_compat(COMPAT_DIR_INDEX)
            && !self.hashed.is_distrusted(directory)
    }

    fn note_name_added(&mut self) {
        self.hashed.name_added();
    }

    fn forget_directory(&mut self, directory: InodeNumber) {
        self.hashed.forget(directory);
    }

    fn find_by_index(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        inode: &Inode,
        name: &[u8],
    ) -> Step<Option<Option<Found>>> {
        Indexes(fs).find(v, directory, inode, name)
    }

    fn list_by_index(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        inode: &Inode,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<bool> {
        Indexes(fs).list(v, directory, inode, cookie, emit)
    }

    fn room_by_index(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        inode: &Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Step<Option<Room>> {
        Indexes(fs).room(v, directory, inode, name, now)
    }

    fn gather_inheritance(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        directory: (InodeNumber, &Inode),
        inode: InodeNumber,
        new: &NewInode<'_>,
        picks: &Picks,
    ) -> Step<Inheritance> {
        Attributes(fs).gather_inheritance(v, directory, inode, new, picks)
    }

    fn inherited_permissions(inherited: &Inheritance) -> u16 {
        inherited.permissions
    }

    fn apply_inheritance(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        inherited: &Inheritance,
        before: &mut PatchIds,
    ) -> BlockNumber {
        Attributes(fs).apply_inheritance(v, inherited, before)
    }

    fn gather_permissions(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        (number, inode): (InodeNumber, &Inode),
        permissions: u16,
    ) -> Step<Option<AttributePlan>> {
        Attributes(fs).gather_acl_mode(v, number, inode, permissions)
    }

    fn apply_attributes(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        plan: AttributePlan,
        now: Timestamp,
    ) {
        Attributes(fs).apply(v, inode, plan, now);
    }

    fn read_xattr(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        name: &[u8],
    ) -> Step<Vec<u8>> {
        Attributes(fs).read(v, inode, name)
    }

    fn list_xattrs(fs: &mut Ext, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        Attributes(fs).list(v, inode)
    }

    fn change_xattr(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        name: &[u8],
        (value, mode): (Option<&[u8]>, SetXattrMode),
        now: Timestamp,
    ) -> Step<()> {
        Attributes(fs).change(v, inode, name, (value, mode), now)
    }

    fn gather_attribute_release(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        block: BlockNumber,
        _of: Option<InodeNumber>,
    ) -> Step<()> {
        Attributes(fs).gather_release(v, block)
    }

    fn release_attribute_block(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        block: BlockNumber,
        of: Option<InodeNumber>,
    ) -> Step<()> {
        Attributes(fs).release(v, block, of)
    }

    fn correct_references(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        block: BlockNumber,
        references: u32,
    ) -> Step<()> {
        Attributes(fs).correct_references(v, block, references)
    }

    fn retain_shared(&mut self, is_in_use: &dyn Fn(BlockNumber) -> bool) {
        self.shared_blocks.retain(|_, block| is_in_use(*block));
    }

    fn declare_size(&mut self, v: &mut Volume<'_>, size: u64) -> Step<()> {
        self.declare_large_file(v, size)
    }

    fn declare_features(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
    ) -> Step<()> {
        if inode.file_type() == Some(FileType::Regular) {
            self.declare_large_file(v, inode.size)?;
        }
        if inode.file_acl != BlockNumber::NONE {
            checked_attribute_block(self, number, inode.file_acl)?;
            self.declare_compat_feature(v, COMPAT_EXT_ATTR)?;
        }
        Ok(())
    }

    fn map_fault(&self, inode: &Inode) -> Option<&'static str> {
        let is_foreign = inode.flags & (FLAG_EXTENTS | FLAG_INLINE_DATA) != 0;
        is_foreign.then_some("its contents are mapped in a foreign way")
    }

    fn mark_reserved(
        fs: &mut Ext,
        v: &mut Volume<'_>,
        reclaim: &mut Reclaim,
        number: InodeNumber,
        inode: &Inode,
    ) -> Step<()> {
        reserved::mark(fs, v, reclaim, number, inode)
    }

    /// The superblock names the first orphan, the field for the time of deletion in each orphan the
    /// next one.
    fn write_orphans(
        &mut self,
        v: &mut Volume<'_>,
        list: &[InodeNumber],
        gone: &[InodeNumber],
        now: Timestamp,
    ) -> Step<()> {
        let deleted = now.seconds.clamp(1, u32::MAX.into()) as u32;
        let mut fields = Vec::new();
        for inode in gone {
            fields.push((self.inode_place(*inode)?, None));
        }
        for (index, inode) in list.iter().enumerate() {
            let next = list.get(index + 1).copied().unwrap_or_default();
            fields.push((self.inode_place(*inode)?, Some(next)));
        }
        let missing = fields
            .iter()
            .filter(|((block, _), _)| !v.want(*block))
            .count();
        if missing > 0 {
            return Err(Stop::Miss);
        }
        let head = list.first().copied().unwrap_or_default();
        self.write_superblock(v, OFFSET_LAST_ORPHAN, &head.0.to_le_bytes(), &[])?;
        for ((block, inode), next) in fields {
            let at = inode + offset::DTIME;
            let links = inode + offset::LINKS;
            // An inode that leaves the list was deleted, or was truncated and lives on.
            let lives = v.read(block)?[links..links + 2] != [0, 0];
            let unlisted = if lives { 0 } else { deleted };
            let value = next.map_or(unlisted, |next| next.0);
            if v.read(block)?[at..at + 4] != value.to_le_bytes() {
                v.write(block, kinds::INODES, at, &value.to_le_bytes(), &[]);
            }
        }
        Ok(())
    }

    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.write_free_counts(v, now)
    }

    fn take_clean_mark(&mut self, v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        self.say_in_use(v)
    }

    fn write_clean_mark(&mut self, v: &mut Volume<'_>, has_leaks: bool) -> Step<()> {
        self.say_clean(v, has_leaks)
    }
}

impl ExtFormat {
    /// A block of an inode table is missing. Its neighbours are read with it: programs that look at
    /// one file of a directory look at the others too, whose inodes are near.
    #[cold]
    fn want_neighbours(&self, v: &mut Volume<'_>, inode: InodeNumber, block: BlockNumber) {
        let table = self.groups.list[self.sb.group_of_inode(inode).index()].inode_table;
        let len = u64::from(self.sb.inode_table_blocks);
        let first = (block - table) / READ_AHEAD_BLOCKS * READ_AHEAD_BLOCKS;
        want_ahead(v, table + first, table + len);
    }
}

impl backstitch_unixfs::format::Inode for Inode {
    fn mode(&self) -> u16 {
        self.mode
    }

    fn uid(&self) -> u32 {
        self.uid
    }

    fn gid(&self) -> u32 {
        self.gid
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn links(&self) -> u16 {
        self.links
    }

    fn sectors(&self) -> u64 {
        self.sectors.into()
    }

    fn flags(&self) -> u32 {
        self.flags
    }

    fn generation(&self) -> u32 {
        self.generation
    }

    fn mark(&self) -> u32 {
        self.version
    }

    fn accessed(&self) -> Timestamp {
        self.accessed
    }

    fn modified(&self) -> Timestamp {
        self.modified
    }

    fn changed(&self) -> Timestamp {
        self.changed
    }

    fn created(&self) -> Option<Timestamp> {
        self.created
    }

    fn device_number(&self) -> u32 {
        Inode::device_number(self)
    }

    fn attribute_block(&self) -> BlockNumber {
        self.file_acl
    }

    fn pointer(&self, index: usize) -> BlockNumber {
        BlockNumber(self.block[index].into())
    }

    fn is_fast_symlink(&self, block_size: u32) -> bool {
        Inode::is_fast_symlink(self, block_size)
    }

    fn inline_bytes(&self) -> Vec<u8> {
        Inode::inline_bytes(self).to_vec()
    }
}
