//! Images whose file system holds the one that is explored, in a file, however deep.
//!
//! The workload runs on the innermost file system of a stack, and states are those of the outermost device. Each is judged level by level:
//! the file system outside must hold nothing that no crash may leave, and the image that is read from its file is judged as any state of a
//! device is.

use std::sync::{Arc, OnceLock};

use backstitch_device::Buffer;
use backstitch_ext::Ext2;
use backstitch_layout::{Error, InodeNumber, Result};
use backstitch_ordering::{MechanismKind, Operation};
use backstitch_store::Optimisations;
use backstitch_vfs::stack::{InnerPath, Stack, StackVolume};

use crate::image::{Base, Fork};
use crate::mount::{Engine, Mount, Nobody};

/// The name of the file that holds the next file system.
const INNER: &str = "inner";
/// The name of the file that holds its journal.
const JOURNAL: &str = "journal";
/// The name of the directory in whose place the innermost shows, where it does.
const PLACE: &str = "loop";

/// What a file system of an image holds.
#[derive(Debug)]
pub(crate) struct Nesting {
    /// So many file systems are inside.
    levels: u8,
    /// The innermost has its journal in a file beside it.
    has_journal: bool,
    /// The workload runs on the outermost, in which the innermost shows in place of a directory.
    is_shown: bool,
    /// The image inside as the base has it.
    inside: OnceLock<Inside>,
}

#[derive(Debug)]
struct Inside {
    base: Arc<Base>,
    /// Where its blocks are.
    places: Vec<Option<u64>>,
    nesting: Option<Arc<Nesting>>,
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

    /// Whether the workload runs on the outermost file system, the innermost being a part of its tree.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Whether a name in the root stands for a file whose contents are what is done inside, of which nothing is promised.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        self.is_shown && [INNER, JOURNAL].iter().any(|file| file.as_bytes() == name)
    }

    /// What opens all of it, with the innermost file system under this mechanism, and in front unless it shows in another one.
    pub(crate) fn stack(&self, ordering: MechanismKind) -> Stack {
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
                layout: Arc::new(Ext2),
                file: host.map(|host| path(host, INNER)),
                journal: log.map(|host| path(host, JOURNAL)),
                ordering: Some(if is_last {
                    ordering
                } else {
                    MechanismKind::Soft
                }),
                at: (is_last && self.is_shown).then(|| path(0, PLACE)),
            }
        });
        Stack {
            volumes: volumes.collect(),
            front: if self.is_shown { 0 } else { levels },
        }
    }
}

impl Fork {
    /// An image whose file system holds another one in its file `inner`, and that one too, `levels` deep; where `has_journal`, the journal
    /// of the innermost is in the file `journal` beside it.
    ///
    /// # Panics
    /// If the image is not a whole number of blocks.
    pub fn nested(bytes: Vec<u8>, block_bytes: u32, levels: u8, has_journal: bool) -> Fork {
        let mut fork = Fork::new(bytes, block_bytes);
        fork.nesting = (levels > 0).then(|| Arc::new(Nesting::new(levels, has_journal)));
        fork
    }

    /// As [`nested`](Self::nested), one level deep, with the file system inside in place of the directory `loop` of the one outside:
    /// workloads run on both.
    ///
    /// # Panics
    /// If the image is not a whole number of blocks.
    pub fn nested_in_tree(bytes: Vec<u8>, block_bytes: u32, has_journal: bool) -> Fork {
        let mut fork = Fork::new(bytes, block_bytes);
        fork.nesting = Some(Arc::new(Nesting {
            is_shown: true,
            ..Nesting::new(1, has_journal)
        }));
        fork
    }

    /// The same image without regard to what its file system holds.
    pub(crate) fn outermost(&self) -> Fork {
        let mut fork = self.clone();
        fork.nesting = None;
        fork
    }

    /// The image inside; `None` where there is none.
    ///
    /// # Errors
    /// Where the file system that holds it cannot be read.
    pub(crate) fn inner(&self) -> Result<Option<Fork>> {
        let Some(nesting) = &self.nesting else {
            return Ok(None);
        };
        let inside = match nesting.inside.get() {
            Some(inside) => inside,
            None => {
                let made = self.base_fork().read_inside(nesting)?;
                nesting.inside.get_or_init(|| made)
            }
        };
        // A file that has all its blocks keeps them where they are.
        let is_whole = inside.places.iter().all(Option::is_some);
        let now = match is_whole {
            true => None,
            false => Some(self.places(nesting)?.0),
        };
        let places = now.as_ref().unwrap_or(&inside.places);
        let (base, nesting) = (inside.base.clone(), inside.nesting.clone());
        let mut fork = Fork::of_base(base, nesting, self.kind);
        for (block, (place, before)) in (0..).zip(places.iter().zip(&inside.places)) {
            match place {
                Some(place) if place == &before.unwrap_or(u64::MAX) => {
                    if let Some(bytes) = self.changed_block(*place) {
                        fork.set_block(block, bytes.clone());
                    }
                }
                Some(place) => fork.set_block(block, Buffer::from(self.block(*place))),
                None if before.is_some() => {
                    return Err(Error::corrupt(
                        format!("block {block} of the file that holds the file system"),
                        "it is gone",
                    ));
                }
                None => {}
            }
        }
        Ok(Some(fork))
    }

    fn read_inside(&self, nesting: &Nesting) -> Result<Inside> {
        let (places, home_blocks) = self.places(nesting)?;
        let size = self.block_bytes() as usize;
        let mut bytes = Vec::with_capacity(places.len() * size);
        for place in &places {
            match place {
                Some(place) => bytes.extend_from_slice(self.block(*place)),
                None => bytes.resize(bytes.len() + size, 0),
            }
        }
        let split = Fork::split(bytes, home_blocks * size, self.block_bytes());
        let levels = nesting.levels - 1;
        let below = (levels > 0).then(|| Arc::new(Nesting::new(levels, nesting.has_journal)));
        Ok(Inside {
            base: split.base,
            places,
            nesting: below,
        })
    }

    /// Where the blocks of the image inside are, those of its journal behind the others, and how many these are.
    fn places(&self, nesting: &Nesting) -> Result<(Vec<Option<u64>>, usize)> {
        let engine = Engine {
            ordering: MechanismKind::Soft,
            optimisations: Optimisations::BOTH,
            unit_bytes: None,
        };
        let mut mount = Mount::open(self.outermost(), engine, true, &mut Nobody)?;
        let mut places = Vec::new();
        mount.places_of(INNER, &mut places)?;
        let home_blocks = places.len();
        if nesting.has_journal && nesting.levels == 1 {
            mount.places_of(JOURNAL, &mut places)?;
        }
        Ok((places, home_blocks))
    }
}

impl Mount {
    fn places_of(&mut self, name: &str, into: &mut Vec<Option<u64>>) -> Result<()> {
        let block_bytes = u64::from(self.block_bytes());
        let scope = Operation::Administration;
        let (inode, blocks): (InodeNumber, u64) = self.run(scope, &mut Nobody, |fs, v, _| {
            let inode = fs.lookup(v, fs.root(), name.as_bytes())?;
            let size = fs.attributes(v, inode)?.size_bytes;
            Ok((inode, size / block_bytes))
        })?;
        let mut at = 0;
        while at < blocks {
            let (first, count) = self.run(scope, &mut Nobody, |fs, v, _| {
                fs.extent(v, inode, at, blocks - at)
            })?;
            into.extend((0..count).map(|i| first.map(|first| first + i)));
            at += count.max(1);
        }
        Ok(())
    }
}
