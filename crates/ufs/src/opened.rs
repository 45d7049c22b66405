//! An open UFS: how it looks on the disk, to the rules that all formats share.

use backstitch_layout::{
    BlockNumber, Error, FileType, InodeNumber, NewInode, SetXattrMode, Step, Stop, Structure,
    Timestamp, flags,
};
use backstitch_ordering::{PatchId, Volume};
use backstitch_unixfs::format::{Format, InodeEditor as _, Picks, Space};
use backstitch_unixfs::{PatchIds, READ_AHEAD_BLOCKS, Reclaim, Run, want_ahead};
use smallvec::SmallVec;

use crate::editor::{InodeEditor, linux_flags};
use crate::fault::InodeFault;
use crate::format::directory::UfsEntries;
use crate::format::inode::{Offsets, SF_SNAPSHOT, SYMLINK_MAX, encode_device, holds_device};
use crate::format::superblock::offset;
use crate::format::{Inode, LINK_MAX, ROOT_INODE, Version, attributes};
use crate::image::from_format;
use crate::kinds;
use crate::state::{Open, UfsFormat};
use crate::xattrs;

/// The most bytes of a directory: FreeBSD counts their chunks in 32 bits.
const DIRECTORY_BYTES_MAX: u64 = i32::MAX as u64;

impl<const BIG: bool> Format for UfsFormat<BIG> {
    type Inode = Inode;
    type Editor = InodeEditor<BIG>;
    type Entries = UfsEntries<BIG>;
    /// Attributes are kept as they are.
    type AttributePlan = std::convert::Infallible;
    /// The permissions.
    type Inheritance = u16;

    const ROOT_INODE: InodeNumber = ROOT_INODE;
    const LINK_MAX: u16 = LINK_MAX;
    const SECTORS_MAX: u64 = u32::MAX as u64;
    const DIRECTORY_BYTES_MAX: u64 = DIRECTORY_BYTES_MAX;
    const FLAGS_KEPT: u32 = flags::IMMUTABLE | flags::APPEND | flags::NODUMP;
    const CLEARS_FREED: bool = true;
    const SHARES_ATTRIBUTES: bool = false;

    fn type_name(&self) -> &'static str {
        self.sb.version.name()
    }

    fn max_file_bytes(&self) -> u64 {
        self.sb.file_bytes_max
    }

    fn fast_symlink_max(&self) -> usize {
        (self.sb.symlink_max as usize).saturating_sub(1)
    }

    fn symlink_max(&self) -> usize {
        SYMLINK_MAX
    }

    fn holds_device(&self, device_number: u32) -> bool {
        holds_device(self.sb.version, device_number)
    }

    fn has_file_types(&self) -> bool {
        true
    }

    /// Inodes 0 and 1 are nobody's.
    fn is_valid_inode(&self, inode: InodeNumber) -> bool {
        (ROOT_INODE.0..self.sb.inodes()).contains(&inode.0)
    }

    fn inode_place(&self, inode: InodeNumber) -> Step<(BlockNumber, usize)> {
        let last = self.sb.inodes() - 1;
        if inode.0 > last {
            let fault = InodeFault::NoSuchInode { last };
            return Err(Error::corrupt(Structure::Inode(inode), fault).into());
        }
        let (fragment, at) = self.sb.inode_place(inode);
        Ok((BlockNumber(fragment), at))
    }

    fn inode_bytes(&self) -> usize {
        self.sb.version.inode_bytes()
    }

    fn read_inode(&self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Inode> {
        let (fragment, at) = self.inode_place(inode)?;
        let Ok(data) = v.read(fragment) else {
            self.want_neighbours(v, inode, fragment);
            return Err(Stop::Miss);
        };
        let parsed = Inode::parse(self.sb.version, self.sb.order, &data[at..]);
        let parsed = parsed.map_err(|error| match from_format(error) {
            Error::Corrupt(corruption) => Error::Corrupt(corruption.of(Structure::Inode(inode))),
            other => other,
        })?;
        let most = self.sb.file_bytes_max;
        match parsed.size > most {
            true => {
                let fault = InodeFault::TooLarge {
                    bytes: parsed.size,
                    most,
                };
                Err(Error::corrupt(Structure::Inode(inode), fault).into())
            }
            false => Ok(parsed),
        }
    }

    fn new_inode(&self) -> InodeEditor<BIG> {
        InodeEditor::of_new(self.sb.version)
    }

    fn fill_new(
        &self,
        e: &mut InodeEditor<BIG>,
        parent: &Inode,
        new: &NewInode<'_>,
        block: Option<BlockNumber>,
    ) {
        let inherited = flags::inherited(linux_flags(parent.flags), new.file_type);
        e.set_flags(inherited);
        match new.file_type {
            FileType::Directory => {
                e.set_size(self.sb.fragment_bytes.into());
                e.set_pointer(0, block.unwrap_or(BlockNumber::NONE));
            }
            FileType::Symlink => {
                e.set_size(new.target.len() as u64);
                match block {
                    Some(block) => e.set_pointer(0, block),
                    None => e.set_inline(new.target),
                }
            }
            FileType::BlockDevice | FileType::CharacterDevice => {
                e.set_device(encode_device(new.device_number));
            }
            FileType::Regular | FileType::Fifo | FileType::Socket => {}
        }
    }

    #[inline]
    fn pointer_bytes(&self) -> usize {
        self.sb.version.pointer_bytes()
    }

    #[inline]
    fn pointer_at(&self, bytes: &[u8], index: usize) -> BlockNumber {
        let order = UfsEntries::<BIG>::ORDER;
        BlockNumber(match self.sb.version {
            Version::Ufs1 => order.u32(bytes, index * 4).into(),
            Version::Ufs2 => order.u64(bytes, index * 8),
        })
    }

    fn encode_pointers(&self, blocks: Run) -> SmallVec<[u8; 64]> {
        let order = UfsEntries::<BIG>::ORDER;
        let pointers = blocks.blocks().step_by(self.units_per_pointer() as usize);
        match self.sb.version {
            Version::Ufs1 => pointers
                .flat_map(|block| order.bytes_of_u32(block.0 as u32))
                .collect(),
            Version::Ufs2 => pointers
                .flat_map(|block| order.bytes_of_u64(block.0))
                .collect(),
        }
    }

    fn gather_inheritance(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _directory: (InodeNumber, &Inode),
        _inode: InodeNumber,
        new: &NewInode<'_>,
        _picks: &Picks,
    ) -> Step<u16> {
        Ok(new.permissions & !new.umask)
    }

    fn inherited_permissions(inherited: &u16) -> u16 {
        *inherited
    }

    fn apply_inheritance(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _inherited: &u16,
        _before: &mut PatchIds,
    ) -> BlockNumber {
        BlockNumber::NONE
    }

    fn gather_permissions(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _inode: (InodeNumber, &Inode),
        _permissions: u16,
    ) -> Step<Option<Self::AttributePlan>> {
        Ok(None)
    }

    fn apply_attributes(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _inode: InodeNumber,
        plan: Self::AttributePlan,
        _now: Timestamp,
    ) {
        match plan {}
    }

    fn read_xattr(
        fs: &mut Open<BIG>,
        v: &mut Volume<'_>,
        number: InodeNumber,
        name: &[u8],
    ) -> Step<Vec<u8>> {
        let inode = fs.read_inode(v, number)?;
        let bytes = fs.format.attribute_bytes(v, number, &inode)?;
        let all = attributes::parse(inode.order, &bytes)
            .map_err(|fault| xattrs::corrupt(number, fault))?;
        let found = all.iter().find(|attribute| attribute.is(name));
        Ok(found.ok_or(Error::NoAttribute)?.value.to_vec())
    }

    fn list_xattrs(fs: &mut Open<BIG>, v: &mut Volume<'_>, number: InodeNumber) -> Step<Vec<u8>> {
        let inode = fs.read_inode(v, number)?;
        let bytes = fs.format.attribute_bytes(v, number, &inode)?;
        let all = attributes::parse(inode.order, &bytes)
            .map_err(|fault| xattrs::corrupt(number, fault))?;
        let mut names = Vec::new();
        for attribute in all {
            attribute.push_name(&mut names);
        }
        Ok(names)
    }

    /// Attributes are read and not changed.
    fn change_xattr(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _inode: InodeNumber,
        _name: &[u8],
        _value: (Option<&[u8]>, SetXattrMode),
        _now: Timestamp,
    ) -> Step<()> {
        Err(Error::NotSupported.into())
    }

    fn attribute_runs(&self, number: InodeNumber, inode: &Inode) -> Step<Vec<Run>> {
        self.runs_of_attributes(number, inode)
    }

    fn gather_attribute_release(
        fs: &mut Open<BIG>,
        v: &mut Volume<'_>,
        _block: BlockNumber,
        of: Option<InodeNumber>,
    ) -> Step<()> {
        let Some(number) = of else {
            return Ok(());
        };
        let inode = fs.read_dead_inode(v, number)?;
        let runs = fs.format.runs_of_attributes(number, &inode)?;
        fs.gather_freeing(v, &runs)
    }

    /// An inode's attributes are its own, and go with it: both blocks.
    fn release_attribute_block(
        fs: &mut Open<BIG>,
        v: &mut Volume<'_>,
        _block: BlockNumber,
        of: Option<InodeNumber>,
    ) -> Step<()> {
        let Some(number) = of else {
            return Ok(());
        };
        let inode = fs.read_dead_inode(v, number)?;
        let runs = fs.format.runs_of_attributes(number, &inode)?;
        fs.free_runs(v, &runs);
        Ok(())
    }

    fn correct_references(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _block: BlockNumber,
        _references: u32,
    ) -> Step<()> {
        Ok(())
    }

    fn map_fault(&self, inode: &Inode) -> Option<&'static str> {
        (inode.flags & SF_SNAPSHOT != 0).then_some("it is a snapshot")
    }

    /// Inode 1 maps nothing.
    fn mark_reserved(
        _fs: &mut Open<BIG>,
        _v: &mut Volume<'_>,
        _reclaim: &mut Reclaim,
        _number: InodeNumber,
        _inode: &Inode,
    ) -> Step<()> {
        Ok(())
    }

    /// The list is where FreeBSD's soft updates with a journal have theirs.
    fn write_orphans(
        &mut self,
        v: &mut Volume<'_>,
        list: &[InodeNumber],
        gone: &[InodeNumber],
        _now: Timestamp,
    ) -> Step<()> {
        let nexts = list.iter().skip(1).copied().chain([InodeNumber::NONE]);
        let listed = list.iter().copied().zip(nexts);
        let unlisted = gone.iter().map(|inode| (*inode, InodeNumber::NONE));
        let mut fields = Vec::new();
        for (inode, next) in unlisted.chain(listed) {
            fields.push((self.inode_place(inode)?, next));
        }
        let (superblock, base) = self.superblock_place();
        let blocks = fields.iter().map(|((block, _), _)| *block);
        let all = blocks.chain(superblock.run(self.superblock_fragments()));
        if all.filter(|block| !v.want(*block)).count() > 0 {
            return Err(Stop::Miss);
        }
        let order = self.sb.order;
        let head = list.first().copied().unwrap_or(InodeNumber::NONE);
        let bytes = order.bytes_of_u32(head.0);
        self.write_at(
            v,
            superblock,
            kinds::SUPERBLOCK,
            base + offset::ORPHANS,
            &bytes,
        );
        for ((block, inode), next) in fields {
            let at = inode + Offsets::of(self.sb.version).next_orphan;
            let bytes = order.bytes_of_u32(next.0);
            if v.read(block)?[at..at + 4] != bytes {
                v.write(block, kinds::INODES, at, &bytes, &[]);
            }
        }
        Ok(())
    }

    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.write_counts(v, now)
    }

    fn take_clean_mark(&mut self, v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        self.say_in_use(v)
    }

    fn write_clean_mark(&mut self, v: &mut Volume<'_>, has_leaks: bool) -> Step<()> {
        self.say_clean(v, has_leaks)
    }
}

impl<const BIG: bool> UfsFormat<BIG> {
    /// A fragment of inodes is missing: who looks at one file of a directory looks at the others
    /// too, and their inodes are near.
    #[cold]
    fn want_neighbours(&self, v: &mut Volume<'_>, inode: InodeNumber, fragment: BlockNumber) {
        let group = self.sb.group_of_inode(inode);
        let initialised = self.groups.list[group.index()].initialised_inodes;
        let bytes = u64::from(initialised) * self.inode_bytes() as u64;
        let table = self.sb.group_inodes(group);
        let first = (fragment.0 - table) / READ_AHEAD_BLOCKS * READ_AHEAD_BLOCKS;
        let end = table + bytes / u64::from(self.sb.fragment_bytes);
        want_ahead(v, BlockNumber(table + first), BlockNumber(end));
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
        self.sectors
    }

    fn flags(&self) -> u32 {
        linux_flags(self.flags)
    }

    fn generation(&self) -> u32 {
        self.generation
    }

    fn mark(&self) -> u32 {
        self.revision as u32
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

    /// The first one: the second goes with it.
    fn attribute_block(&self) -> BlockNumber {
        match self.attribute_bytes {
            0 => BlockNumber::NONE,
            _ => BlockNumber(self.attribute_pointers[0]),
        }
    }

    fn pointer(&self, index: usize) -> BlockNumber {
        BlockNumber(self.pointers[index])
    }

    fn is_fast_symlink(&self, _block_size: u32) -> bool {
        Inode::is_fast_symlink(self, self.version.symlink_max())
    }

    fn inline_bytes(&self) -> Vec<u8> {
        Inode::inline_bytes(self)
    }
}
