//! The file systems inside an image, where the innermost of them is explored.

use std::sync::{Arc, OnceLock};

use backstitch_formats::Layout;
use backstitch_mechanisms::{Ordering, usual_for};
use backstitch_vfs::stack::{InnerPath, Stack, StackVolume};

use crate::base::Base;

/// The name of the file that holds the next file system.
pub(crate) const INNER: &str = "inner";
/// The name of the file that holds its journal.
pub(crate) const JOURNAL: &str = "journal";
/// The name of the directory at which the innermost file system is mounted, if it is.
const PLACE: &str = "loop";

/// The file systems inside an image.
#[derive(Debug)]
pub struct Nesting {
    /// How many file systems are inside one another.
    pub(crate) levels: u8,
    /// Whether the innermost has its journal in a file beside it.
    pub(crate) has_journal: bool,
    /// Whether the workload runs on the outermost, with the innermost mounted at a directory of it.
    is_shown: bool,
    /// The image inside, as it is in the base.
    pub(crate) inside: OnceLock<Inside>,
}

/// The image inside.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) base: Arc<Base>,
    /// Where its blocks are in the image around it; `None` for a hole.
    pub(crate) places: Vec<Option<u64>>,
    /// The file systems inside this image.
    pub(crate) nesting: Option<Arc<Nesting>>,
}

impl Nesting {
    pub(crate) fn new(levels: u8, has_journal: bool) -> Nesting {
        Nesting {
            levels,
            has_journal,
            is_shown: false,
            inside: OnceLock::new(),
        }
    }

    /// One level deep, and mounted at a directory of the file system outside.
    pub(crate) fn shown(has_journal: bool) -> Nesting {
        Nesting {
            is_shown: true,
            ..Nesting::new(1, has_journal)
        }
    }

    /// Whether the workload runs on the outermost file system, with the innermost as a part of its
    /// tree.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Whether a name in the root is a file that holds the inner file system or its journal.
    /// Nothing is promised of the contents of these files.
    pub fn holds(&self, name: &[u8]) -> bool {
        self.is_shown && [INNER, JOURNAL].iter().any(|file| file.as_bytes() == name)
    }

    /// The stack of all levels, each of this layout, the innermost under this mechanism. Requests
    /// go to the innermost, or to the outermost where the innermost is mounted in its tree.
    pub(crate) fn stack(&self, layout: Layout, ordering: Ordering) -> Stack {
        let levels = usize::from(self.levels);
        let path = |volume: usize, name: &str| InnerPath {
            volume,
            path: name.as_bytes().to_vec(),
        };
        let volumes = (0..=levels).map(|level| {
            let is_last = level == levels;
            let host = level.checked_sub(1);
            let log = host.filter(|_| is_last && self.has_journal);
            StackVolume {
                name: format!("level {level}"),
                layout: layout.layout(),
                file: host.map(|host| path(host, INNER)),
                journal: log.map(|host| path(host, JOURNAL)),
                ordering: Some(if is_last { ordering } else { usual_for(false) }),
                at: (is_last && self.is_shown).then(|| path(0, PLACE)),
            }
        });
        Stack {
            volumes: volumes.collect(),
            front: if self.is_shown { 0 } else { levels },
        }
    }
}
