//! Extended attributes: in the inode's body as other systems leave them there, and in attribute
//! blocks that inodes share.
//!
//! New attributes go into an attribute block. Inodes with the same attributes share one, which
//! counts its references: one more before a pointer to it is on the disk, one less only after a
//! pointer is gone from there.

use crate::fault::AttributesFault;
use std::ops::{Deref, DerefMut};

use backstitch_layout::{
    BlockNumber, Error, FileType, InodeNumber, SetXattrMode, Step, Structure, Timestamp,
};
use backstitch_ordering::Volume;
use backstitch_unixfs::format::{Format, Inode as _, InodeEditor as _, Picks, Space};
use backstitch_unixfs::{PatchIds, Run};

use crate::format::Inode;
use crate::format::features::COMPAT_EXT_ATTR;
use crate::format::inode::{BASE_SIZE, FLAG_APPEND, FLAG_IMMUTABLE};
use crate::format::posix_acl::Acl;
use crate::format::xattr::{
    self, ENTRY_SIZE, INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, OFFSET_REFCOUNT,
    REFCOUNT_MAX, block_attributes, build_block, entry_len, header, inode_attributes, split_name,
    value_len,
};
use crate::kinds;
use crate::rules::{Rule, holds, note_by, wait_for, wait_for_all};
use crate::state::{Ext, ExtFormat};

/// The largest inode whose body's attributes we can change.
const BODY_EDITABLE: usize = 256;

/// An attribute taken out of where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) index: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What becomes of an inode's attribute block.
#[derive(Debug, Default)]
pub(crate) enum BlockPlan {
    /// It stays as it is.
    #[default]
    Keep,
    /// The inode has none any more.
    Remove,
    /// A block with the same attributes gets a reference more.
    Share(BlockNumber),
    /// It is the inode's alone, and is changed.
    InPlace(Vec<u8>),
    /// A new block.
    Fresh(BlockNumber, Vec<u8>),
}

/// A change of attributes that was decided on.
#[derive(Debug, Default)]
pub(crate) struct AttributePlan {
    /// The new bytes behind the inode's extra fields.
    body: Option<Vec<u8>>,
    block: BlockPlan,
    /// New permission bits, from an access control list.
    permissions: Option<u16>,
}

/// The error for a value that is no access control list, as Linux reports it. It does not make the
/// file system damaged: no checker looks at what is in a list.
pub(crate) const BAD_LIST: Error = Error::Invalid;

fn corrupt_attributes(
    number: InodeNumber,
    fault: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::corrupt(Structure::Attributes(number), fault)
}

/// Refuses a block that cannot be an attribute block, because it is outside or metadata.
pub(crate) fn checked_attribute_block(
    format: &ExtFormat,
    number: InodeNumber,
    block: BlockNumber,
) -> Step<BlockNumber> {
    if format.is_data_run(Run::one(block)) {
        Ok(block)
    } else {
        Err(corrupt_attributes(number, AttributesFault::NoAttributeBlock { block }).into())
    }
}

/// The attributes of a file system's inodes.
pub(crate) struct Attributes<'f>(pub(crate) &'f mut Ext);

impl Deref for Attributes<'_> {
    type Target = Ext;

    fn deref(&self) -> &Ext {
        self.0
    }
}

impl DerefMut for Attributes<'_> {
    fn deref_mut(&mut self) -> &mut Ext {
        self.0
    }
}

impl Attributes<'_> {
    fn body_attributes(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
    ) -> Step<Vec<Owned>> {
        let (block, at) = self.format.inode_place(number)?;
        let size = self.format.sb.inode_size as usize;
        let bytes = &v.read(block)?[at..at + size];
        match inode_attributes(bytes, inode.extra_isize) {
            Some(attributes) => collect(number, attributes),
            None => Ok(Vec::new()),
        }
    }

    fn block_attributes_of(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
    ) -> Step<Vec<Owned>> {
        if inode.file_acl == BlockNumber::NONE {
            return Ok(Vec::new());
        }
        let block = checked_attribute_block(&self.format, number, inode.file_acl)?;
        let bytes = v.read(block)?;
        collect(
            number,
            block_attributes(bytes).map_err(|e| corrupt_attributes(number, e))?,
        )
    }

    pub(crate) fn find_attribute(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        index: u8,
        name: &[u8],
    ) -> Step<Option<Vec<u8>>> {
        let mut all = self.body_attributes(v, number, inode)?;
        all.extend(self.block_attributes_of(v, number, inode)?);
        Ok(all
            .into_iter()
            .find(|a| a.index == index && a.name == name)
            .map(|a| a.value))
    }

    pub(crate) fn read(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        name: &[u8],
    ) -> Step<Vec<u8>> {
        let (index, rest) = split_name(name).ok_or(Error::NotSupported)?;
        let inode = self.read_inode(v, number)?;
        let value = self
            .find_attribute(v, number, &inode, index, rest)?
            .ok_or(Error::NoAttribute)?;
        if !is_acl(index) {
            return Ok(value);
        }
        let acl = Acl::from_disk(&value).ok_or(BAD_LIST)?;
        Ok(acl.to_linux())
    }

    pub(crate) fn list(&mut self, v: &mut Volume<'_>, number: InodeNumber) -> Step<Vec<u8>> {
        let inode = self.read_inode(v, number)?;
        let mut all = self.body_attributes(v, number, &inode)?;
        all.extend(self.block_attributes_of(v, number, &inode)?);
        let mut names = Vec::new();
        for attribute in all {
            if let Some(name) = xattr::full_name(attribute.index, &attribute.name) {
                names.extend(name);
                names.push(0);
            }
        }
        Ok(names)
    }

    pub(crate) fn change(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        name: &[u8],
        (value, mode): (Option<&[u8]>, SetXattrMode),
        now: Timestamp,
    ) -> Step<()> {
        let (index, rest) = split_name(name).ok_or(Error::NotSupported)?;
        if rest.len() > usize::from(u8::MAX) {
            return Err(Error::Range.into());
        }
        let inode = self.read_inode(v, number)?;
        if inode.flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 {
            return Err(Error::NotPermitted.into());
        }
        let exists = self
            .find_attribute(v, number, &inode, index, rest)?
            .is_some();
        match (value, mode) {
            (None, _) if !exists => return Err(Error::NoAttribute.into()),
            (Some(_), SetXattrMode::Create) if exists => return Err(Error::Exists.into()),
            (Some(_), SetXattrMode::Replace) if !exists => return Err(Error::NoAttribute.into()),
            _ => {}
        }
        let (value, permissions) = match (value, is_acl(index)) {
            (Some(value), true) => acl_for_disk(&inode, index, value)?,
            (value, _) => (value.map(<[u8]>::to_vec), None),
        };
        self.format.declare_compat_feature(v, COMPAT_EXT_ATTR)?;
        let mut plan = self.gather_change(v, number, &inode, index, rest, value)?;
        plan.permissions = permissions;
        self.apply(v, number, plan, now);
        Ok(())
    }

    /// Decides where the attributes go once one of them has a new value (or none).
    pub(crate) fn gather_change(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        index: u8,
        name: &[u8],
        value: Option<Vec<u8>>,
    ) -> Step<AttributePlan> {
        let is_it = |a: &Owned| a.index == index && a.name == name;
        let mut body = self.body_attributes(v, number, inode)?;
        let in_body = body.iter().any(is_it);
        body.retain(|a| !is_it(a));
        let mut plan = AttributePlan::default();
        if in_body {
            plan.body = Some(self.build_body(number, inode, &body)?);
        }
        let old = self.block_attributes_of(v, number, inode)?;
        let mut new = old.clone();
        new.retain(|a| !is_it(a));
        new.extend(value.map(|value| Owned {
            index,
            name: name.to_vec(),
            value,
        }));
        // An entry of index 0 without a name looks like the end of the list: written anew, it would
        // hide the entries behind it.
        if new.iter().any(|a| a.index == 0 && a.name.is_empty()) {
            return Err(corrupt_attributes(number, AttributesFault::Nameless).into());
        }
        if new != old {
            plan.block = self.gather_block(v, number, inode.file_acl, &new, &Picks::default())?;
        }
        Ok(plan)
    }

    /// The bytes behind an inode's extra fields with these attributes: those that were there,
    /// without one.
    fn build_body(
        &self,
        number: InodeNumber,
        inode: &Inode,
        attributes: &[Owned],
    ) -> Step<Vec<u8>> {
        let size = self.format.sb.inode_size as usize;
        if size > BODY_EDITABLE {
            return Err(Error::NotSupported.into());
        }
        let mut body = vec![0; size - BASE_SIZE - usize::from(inode.extra_isize)];
        if attributes.is_empty() {
            return Ok(body);
        }
        let needed = attributes
            .iter()
            .map(|a| entry_len(a.name.len()) + value_len(a.value.len()));
        // The attributes of a damaged inode may need more space than they had: their values
        // overlapped.
        if 4 + needed.sum::<usize>() + 4 > body.len() {
            return Err(corrupt_attributes(number, AttributesFault::Overlap).into());
        }
        body[..4].copy_from_slice(&xattr::XATTR_MAGIC.to_le_bytes());
        let (mut offset, mut value_at) = (4, body.len());
        for a in attributes {
            value_at -= value_len(a.value.len());
            let mut entry = vec![0; entry_len(a.name.len())];
            entry[0] = a.name.len() as u8;
            entry[1] = a.index;
            entry[2..4].copy_from_slice(&((value_at - 4) as u16).to_le_bytes());
            entry[8..12].copy_from_slice(&(a.value.len() as u32).to_le_bytes());
            entry[12..16].copy_from_slice(&xattr::entry_hash(&a.name, &a.value).to_le_bytes());
            entry[ENTRY_SIZE..ENTRY_SIZE + a.name.len()].copy_from_slice(&a.name);
            body[offset..offset + entry.len()].copy_from_slice(&entry);
            body[value_at..value_at + a.value.len()].copy_from_slice(&a.value);
            offset += entry.len();
        }
        Ok(body)
    }

    /// Finds a place for attributes: a block that holds the same, the inode's own, or a new one.
    pub(crate) fn gather_block(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        old: BlockNumber,
        attributes: &[Owned],
        picks: &Picks,
    ) -> Step<BlockPlan> {
        if attributes.is_empty() {
            return Ok(BlockPlan::Remove);
        }
        let list: Vec<(u8, &[u8], &[u8])> = attributes
            .iter()
            .map(|a| (a.index, a.name.as_slice(), a.value.as_slice()))
            .collect();
        let contents = build_block(self.block_size(), &list, 1).ok_or(Error::NoSpace)?;
        if let Some(block) = self.format.shared_blocks.get(&hash_of(&contents)).copied()
            && block != old
        {
            let bytes = v.read(block)?;
            if same_attributes(bytes, &contents) && refcount(bytes) < REFCOUNT_MAX {
                return Ok(BlockPlan::Share(block));
            }
        }
        // Entries and values lie at both ends of a block. So it is changed in place only where a
        // block is written wholly or not at all.
        let is_atomic = v.is_atomic(0..contents.len()) || !holds(Rule::AttributesChangedWhole);
        let is_own =
            |bytes: &[u8]| refcount(bytes) == 1 || !holds(Rule::AttributesInPlaceOnlyIfOwn);
        if old != BlockNumber::NONE && is_atomic && is_own(v.read(old)?) {
            return Ok(BlockPlan::InPlace(contents));
        }
        match self.pick_single(v, number, picks)? {
            Some(block) => Ok(BlockPlan::Fresh(block, contents)),
            None => Err(self.no_blocks()),
        }
    }

    /// Applies a plan: pointer, body and permissions are one patch of the inode.
    pub(crate) fn apply(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        plan: AttributePlan,
        now: Timestamp,
    ) {
        let Ok(inode) = self.read_any_inode(v, number) else {
            return;
        };
        let old = inode.file_acl;
        let mut after = PatchIds::new();
        let pointer = match &plan.block {
            BlockPlan::Keep => old,
            BlockPlan::InPlace(contents) => {
                // Only keeps the table small: before a block is shared, all of it is compared.
                self.forget_shared(v, old);
                self.format.shared_blocks.insert(hash_of(contents), old);
                let id = v.write(old, kinds::ATTRIBUTES, 0, contents, &[]);
                let noted = note_by(Rule::FsyncWaitsForAttributesInPlace, id);
                self.note_change(v, number, noted);
                old
            }
            other => self.place_block(v, other, &mut after),
        };
        let (sectors, per_block) = (inode.sectors(), self.sectors_per_block());
        let sectors = match (old != BlockNumber::NONE, pointer != BlockNumber::NONE) {
            (false, true) => sectors.saturating_add(per_block),
            (true, false) => sectors.saturating_sub(per_block),
            _ => sectors,
        };
        let changed = self.change_inode(v, number, &after, |e| {
            e.set_attribute_block(pointer);
            e.set_sectors(sectors);
            if let Some(permissions) = plan.permissions {
                e.set_mode(inode.mode & !0o777 | permissions);
            }
            if let Some(body) = &plan.body {
                e.body().copy_from_slice(body);
            }
            e.set_changed(now);
        });
        self.track_attributes(number, old, pointer);
        if old != BlockNumber::NONE && old != pointer {
            let after = wait_for(Rule::AttributeReleaseAfterPointer, changed);
            self.defer_attribute_release(v, old, after);
        }
    }

    /// Initialises a new block, or adds a reference to one. Returns the block, and adds to
    /// `before_pointer` what a pointer to it must come after.
    pub(crate) fn place_block(
        &mut self,
        v: &mut Volume<'_>,
        plan: &BlockPlan,
        before_pointer: &mut PatchIds,
    ) -> BlockNumber {
        match plan {
            BlockPlan::Share(block) => {
                let count = v.peek(*block).map_or(0, |b| refcount(b)) + 1;
                let counted = v.write(
                    *block,
                    kinds::ATTRIBUTES,
                    OFFSET_REFCOUNT,
                    &count.to_le_bytes(),
                    &[],
                );
                before_pointer.push(wait_for(Rule::AttributePointerAfterReference, counted));
                if !v.is_atomic(0..self.block_size()) {
                    // The new count comes after the contents of its own unit (sector) only: the
                    // pointer must wait for the other units as well.
                    let mut pending = Vec::new();
                    v.pending(*block, &mut pending);
                    let pending = wait_for_all(Rule::AttributesSharedWhole, &pending);
                    before_pointer.extend_from_slice(pending);
                }
                *block
            }
            BlockPlan::Fresh(block, contents) => {
                let run = Run::one(*block);
                let mut marked = PatchIds::new();
                self.set_block_bits(v, run, &mut marked);
                // The contents come after the bits, because an inode that later shares the block
                // waits only for its contents, through the reference count.
                let after = wait_for_all(Rule::AttributeBlockAfterBit, &marked);
                let filled = v.initialise(*block, kinds::ATTRIBUTES, contents, after);
                before_pointer.push(wait_for(Rule::AttributePointerAfterContents, filled));
                self.format.shared_blocks.insert(hash_of(contents), *block);
                *block
            }
            BlockPlan::Keep | BlockPlan::Remove | BlockPlan::InPlace(_) => BlockNumber::NONE,
        }
    }

    /// Looks up what releasing an attribute block needs.
    pub(crate) fn gather_release(&mut self, v: &mut Volume<'_>, block: BlockNumber) -> Step<()> {
        if !self.format.is_data_run(Run::one(block)) {
            return Err(Error::corrupt(
                Structure::AttributeBlock { block },
                AttributesFault::NoAttributeBlock { block },
            )
            .into());
        }
        v.read(block)?;
        self.format.check_blocks_used(v, Run::one(block))
    }

    /// Takes away one reference to an attribute block, once no pointer of that inode is left on the
    /// disk; with the last one the block is freed. `of` is the inode that gives the reference up
    /// because it is freed; `None` where the inode has lost its pointer before.
    pub(crate) fn release(
        &mut self,
        v: &mut Volume<'_>,
        block: BlockNumber,
        of: Option<InodeNumber>,
    ) -> Step<()> {
        self.gather_release(v, block)?;
        self.track_reference_dropped(block, of);
        let bytes = v.read(block)?;
        let (count, hash) = (refcount(bytes), hash_of(bytes));
        if count > 1 {
            v.write(
                block,
                kinds::ATTRIBUTES,
                OFFSET_REFCOUNT,
                &(count - 1).to_le_bytes(),
                &[],
            );
        } else {
            if self.format.shared_blocks.get(&hash) == Some(&block)
                && holds(Rule::FreedAttributesAreNotShared)
            {
                self.format.shared_blocks.remove(&hash);
            }
            self.track_attribute_block_freed(block);
            self.free_runs(v, &[Run::one(block)]);
        }
        Ok(())
    }

    /// Lowers the reference count of a block to the references that were found. Without any the
    /// block is not offered for sharing any more.
    pub(crate) fn correct_references(
        &mut self,
        v: &mut Volume<'_>,
        block: BlockNumber,
        references: u32,
    ) -> Step<()> {
        let structure = Structure::AttributeBlock { block };
        let count = header(v.read(block)?)
            .map_err(|e| Error::corrupt(structure, e))?
            .h_refcount
            .get();
        if count < references {
            let fault = AttributesFault::TooFewReferences {
                found: count,
                inodes: references,
            };
            return Err(Error::corrupt(structure, fault).into());
        }
        if references == 0 {
            self.forget_shared(v, block);
        } else if count > references {
            let bytes = references.to_le_bytes();
            v.write(block, kinds::ATTRIBUTES, OFFSET_REFCOUNT, &bytes, &[]);
        }
        Ok(())
    }

    /// A block is not offered for sharing any more.
    fn forget_shared(&mut self, v: &Volume<'_>, block: BlockNumber) {
        let hash = v.peek(block).map_or(0, |bytes| hash_of(bytes));
        if self.format.shared_blocks.get(&hash) == Some(&block) {
            self.format.shared_blocks.remove(&hash);
        }
    }
}

/// Whether it is the number of a prefix that names a list.
fn is_acl(index: u8) -> bool {
    index == INDEX_POSIX_ACL_ACCESS || index == INDEX_POSIX_ACL_DEFAULT
}

/// An access control list as it is stored (not at all where the mode says the same), and the
/// permission bits that go with it.
fn acl_for_disk(inode: &Inode, index: u8, value: &[u8]) -> Step<(Option<Vec<u8>>, Option<u16>)> {
    if inode.file_type() == Some(FileType::Symlink) {
        return Err(Error::NotSupported.into());
    }
    if index == INDEX_POSIX_ACL_DEFAULT && !inode.is_directory() {
        return Err(Error::AccessDenied.into());
    }
    let acl = Acl::from_linux(value).ok_or(Error::Invalid)?;
    if index == INDEX_POSIX_ACL_DEFAULT {
        return Ok((Some(acl.to_disk()), None));
    }
    let stored = if acl.is_minimal() {
        None
    } else {
        Some(acl.to_disk())
    };
    Ok((stored, Some(acl.mode_bits())))
}

fn collect(number: InodeNumber, attributes: xattr::Attributes<'_>) -> Step<Vec<Owned>> {
    attributes
        .map(|a| {
            a.map(|a| Owned {
                index: a.name_index,
                name: a.name.to_vec(),
                value: a.value.to_vec(),
            })
            .map_err(|e| corrupt_attributes(number, e).into())
        })
        .collect()
}

fn refcount(block: &[u8]) -> u32 {
    header(block).map_or(0, |h| h.h_refcount.get())
}

fn hash_of(block: &[u8]) -> u32 {
    header(block).map_or(0, |h| h.h_hash.get())
}

/// Whether two attribute blocks hold the same: all but the reference count.
fn same_attributes(a: &[u8], b: &[u8]) -> bool {
    let behind = OFFSET_REFCOUNT + 4;
    header(a).is_ok() && a[behind..] == b[behind..]
}
