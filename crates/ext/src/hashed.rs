//! What is known of the indexes of directories on the disk.

use backstitch_layout::InodeNumber;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Directories that are remembered as right; with more, all are forgotten and looked at again when
/// they are needed.
const TRUSTED_MAX: usize = 1 << 16;

/// What is known of the indexes on the disk.
#[derive(Debug, Default)]
pub(crate) struct HashedDirectories {
    /// Whether the index can be believed; of those that are not in here nobody knows.
    trust: FxHashMap<InodeNumber, bool>,
    /// A directory and the name that was last looked for in it in vain: who creates a file has
    /// looked for its name before.
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

    /// Some directory has another name.
    pub(crate) fn name_added(&mut self) {
        self.absent = None;
    }
}
