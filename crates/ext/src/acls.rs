//! Access control lists, which are attributes: what a new inode inherits, and what `chmod` changes.

use backstitch_layout::{BlockNumber, FileType, InodeNumber, NewInode, Step};
use backstitch_ordering::Volume;
use backstitch_unixfs::PatchIds;
use backstitch_unixfs::format::Picks;

use crate::format::Inode;
use crate::format::posix_acl::Acl;
use crate::format::xattr::{INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT};
use crate::rules::{Rule, wait_for_all};
use crate::xattrs::{AttributePlan, Attributes, BAD_LIST, BlockPlan, Owned};

/// What a new inode gets from its directory.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    pub(crate) permissions: u16,
    block: BlockPlan,
}

impl Attributes<'_> {
    /// What a new inode gets from its directory's default access control list; the umask counts
    /// only where there is none.
    pub(crate) fn gather_inheritance(
        &mut self,
        v: &mut Volume<'_>,
        (directory, parent): (InodeNumber, &Inode),
        number: InodeNumber,
        new: &NewInode<'_>,
        picks: &Picks,
    ) -> Step<Inheritance> {
        let plain = Inheritance {
            permissions: new.permissions & !new.umask,
            block: BlockPlan::Keep,
        };
        if new.file_type == FileType::Symlink {
            return Ok(Inheritance {
                permissions: 0o777,
                ..plain
            });
        }
        let Some(default) =
            self.find_attribute(v, directory, parent, INDEX_POSIX_ACL_DEFAULT, b"")?
        else {
            return Ok(plain);
        };
        let acl = Acl::from_disk(&default).ok_or(BAD_LIST)?;
        let access = acl.inherit(new.permissions & 0o777);
        let mut attributes = Vec::new();
        let own = |index, value| Owned {
            index,
            name: Vec::new(),
            value,
        };
        if !access.is_minimal() {
            attributes.push(own(INDEX_POSIX_ACL_ACCESS, access.to_disk()));
        }
        if new.file_type == FileType::Directory {
            attributes.push(own(INDEX_POSIX_ACL_DEFAULT, default));
        }
        let block = match attributes.is_empty() {
            true => BlockPlan::Keep,
            false => self.gather_block(v, number, BlockNumber::NONE, &attributes, picks)?,
        };
        Ok(Inheritance {
            permissions: new.permissions & !0o777 | access.mode_bits(),
            block,
        })
    }

    /// Makes the attribute block that a new inode inherits. Returns it, 0 for none.
    pub(crate) fn apply_inheritance(
        &mut self,
        v: &mut Volume<'_>,
        inherited: &Inheritance,
        before: &mut PatchIds,
    ) -> BlockNumber {
        let mut placed = PatchIds::new();
        let block = self.place_block(v, &inherited.block, &mut placed);
        before.extend_from_slice(wait_for_all(Rule::InodeAfterInheritedAttributes, &placed));
        block
    }

    /// `chmod` of an inode with an access control list changes the list too.
    pub(crate) fn gather_acl_mode(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
        permissions: u16,
    ) -> Step<Option<AttributePlan>> {
        let Some(value) = self.find_attribute(v, number, inode, INDEX_POSIX_ACL_ACCESS, b"")?
        else {
            return Ok(None);
        };
        let mut acl = Acl::from_disk(&value).ok_or(BAD_LIST)?;
        acl.set_mode_bits(permissions);
        let changed = acl.to_disk();
        if changed == value {
            return Ok(None);
        }
        self.gather_change(v, number, inode, INDEX_POSIX_ACL_ACCESS, b"", Some(changed))
            .map(Some)
    }
}
