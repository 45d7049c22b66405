//! One owner and one set of permissions for all files, as `uid=`, `gid=`, `umask=`, `fmask=` and
//! `dmask=` ask for.
//!
//! Only what is shown, and what the kernel therefore checks, is replaced. What the image stores
//! stays: a new file is stored with the user and group of the process that makes it, and `chown`
//! and `chmod` store what they say, though it does not show.

use backstitch_vfs::{Attributes, FileType};
use std::borrow::Cow;

/// What is shown in place of what the image has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Squash {
    /// The owner of everything.
    pub uid: Option<u32>,
    /// The group of everything.
    pub gid: Option<u32>,
    /// The permissions that no file has; the others all files have.
    pub file_mask: Option<u16>,
    /// The same for directories.
    pub directory_mask: Option<u16>,
}

impl Squash {
    /// Whether anything is replaced.
    pub fn is_any(&self) -> bool {
        *self != Squash::default()
    }

    /// The attributes as they are shown.
    pub(crate) fn shown<'a>(&self, attributes: &'a Attributes) -> Cow<'a, Attributes> {
        if !self.is_any() {
            return Cow::Borrowed(attributes);
        }
        let mask = match attributes.file_type {
            FileType::Directory => self.directory_mask,
            // Nobody looks at them.
            FileType::Symlink => None,
            _ => self.file_mask,
        };
        Cow::Owned(Attributes {
            uid: self.uid.unwrap_or(attributes.uid),
            gid: self.gid.unwrap_or(attributes.gid),
            permissions: mask.map_or(attributes.permissions, |mask| 0o777 & !mask),
            ..*attributes
        })
    }
}
