//! What is known of the indexes of directories on the disk.

use backstitch_layout::InodeNumber;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Directories whose index is remembered as right. With more, all of these are forgotten, and are
/// verified again when they are needed.
const TRUSTED_MAX: usize = 1 << 16;

/// What is known of the indexes on the disk.
#[derive(Debug, Default)]
pub(crate) struct HashedDirectories {
    /// Whether the index can be believed. A directory that is not listed was not verified yet.
    trust: FxHashMap<InodeNumber, bool>,
    /// A directory and the name that was last looked for in it in vain. To create a file the kernel
    /// first looks for its name: the second search is saved.
    pub(crate) absent: Option<(InodeNumber, SmallVec<[u8; 64]>)>,
}

impl HashedDirectories {
    pub(crate) fn is_trusted(&self, directory: InodeNumber) -> bool {
        self.trust.get(&directory) == Some(&true)
    }

    pub(crate) fn is_distrusted(&self, directory: InodeNumber) -> bool {
        self.trust.get(&directory) == Some(&false)
    }

    pub(crate) fn note(&mut self, directory: InodeNumber, is_right: bool) {
        if is_right && self.trust.len() >= TRUSTED_MAX {
            self.trust.retain(|_, trusted| !*trusted);
        }
        self.trust.insert(directory, is_right);
    }

    /// The directory is gone.
    pub(crate) fn forget(&mut self, directory: InodeNumber) {
        self.trust.remove(&directory);
        self.absent = None;
    }

    pub(crate) fn is_absent(&self, directory: InodeNumber, name: &[u8]) -> bool {
        matches!(&self.absent, Some((of, absent)) if *of == directory && absent[..] == *name)
    }

    /// A name was added to some directory.
    pub(crate) fn name_added(&mut self) {
        self.absent = None;
    }
}
