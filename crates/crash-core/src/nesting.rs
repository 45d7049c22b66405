//! What the file system of an image holds, where it holds the one that is explored.

use std::sync::{Arc, OnceLock};

use backstitch_formats::Layout;
use backstitch_mechanisms::{Ordering, usual_for};
use backstitch_vfs::stack::{InnerPath, Stack, StackVolume};

use crate::base::Base;

/// The name of the file that holds the next file system.
pub(crate) const INNER: &str = "inner";
/// The name of the file that holds its journal.
pub(crate) const JOURNAL: &str = "journal";
/// The name of the directory in whose place the innermost shows, where it does.
const PLACE: &str = "loop";

/// What a file system of an image holds.
#[derive(Debug)]
pub struct Nesting {
    /// File systems that are inside.
    pub(crate) levels: u8,
    /// The innermost has its journal in a file beside it.
    pub(crate) has_journal: bool,
    /// The workload runs on the outermost, in which the innermost shows in place of a directory.
    is_shown: bool,
    /// The image inside as the base has it.
    pub(crate) inside: OnceLock<Inside>,
}

/// The image inside.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) base: Arc<Base>,
    /// Where its blocks are.
    pub(crate) places: Vec<Option<u64>>,
    /// What it holds itself.
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

    /// One level deep, in place of a directory of the file system outside.
    pub(crate) fn shown(has_journal: bool) -> Nesting {
        Nesting {
            is_shown: true,
            ..Nesting::new(1, has_journal)
        }
    }

    /// Whether the workload runs on the outermost file system, the innermost being a part of its
    /// tree.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Whether a name in the root stands for a file whose contents are what is done inside, of
    /// which nothing is promised.
    pub fn holds(&self, name: &[u8]) -> bool {
        self.is_shown && [INNER, JOURNAL].iter().any(|file| file.as_bytes() == name)
    }

    /// What opens all of it, file systems of one layout, with the innermost under this mechanism,
    /// and in front unless it shows in another one.
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
