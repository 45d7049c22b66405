//! Images in which the explored file system is in a file of another one, at any depth.
//!
//! The workload runs on the innermost file system of a stack, and states are those of the outermost
//! device. Each state is judged level by level: the outer file system must be one that a crash may
//! leave, and the image that is read from its file is judged as a state of a device.

use crate::fault::Fault;
use std::sync::Arc;

use backstitch_device::Buffer;
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_layout::{Error, FileType, InodeNumber, NewInode, Result, SetAttributes};
use backstitch_layout::{Structure, operations};
use backstitch_mechanisms::usual_for;
use backstitch_ordering::Operation;
use backstitch_store::Optimisations;

use crate::image::Fork;
use crate::mount::{Engine, Mount, Nobody};
use crate::nesting::{INNER, Inside, JOURNAL, Nesting};

impl Fork {
    /// An image whose file system holds another one in its file `inner`, and so on, `levels` deep.
    /// With `has_journal`, the journal of the innermost is in the file `journal` beside it.
    ///
    /// # Panics
    /// If the image is not a whole number of blocks.
    pub fn nested(bytes: Vec<u8>, block_bytes: u32, levels: u8, has_journal: bool) -> Fork {
        let mut fork = Fork::new(bytes, block_bytes);
        fork.nesting = (levels > 0).then(|| Arc::new(Nesting::new(levels, has_journal)));
        fork
    }

    /// As [`nested`](Self::nested), one level deep, with the file system inside in place of the
    /// directory `loop` of the one outside: workloads run on both.
    ///
    /// # Panics
    /// If the image is not a whole number of blocks.
    pub fn nested_in_tree(bytes: Vec<u8>, block_bytes: u32, has_journal: bool) -> Fork {
        let mut fork = Fork::new(bytes, block_bytes);
        fork.nesting = Some(Arc::new(Nesting::shown(has_journal)));
        fork
    }

    /// A small file system in a sparse file of another one, whose free blocks still hold the
    /// contents of a removed file.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn stacked() -> Result<Fork> {
        let inner = small(INSIDE_BLOCKS)?.to_bytes();
        let engine = Engine {
            ordering: usual_for(false),
            optimisations: Optimisations::BOTH,
            unit_bytes: None,
        };
        let mut mount = Mount::open(small(OUTSIDE_BLOCKS)?, engine, false, &mut Nobody)?;
        let file = mount.create(INNER)?;
        let blocks = (0..).zip(inner.chunks(SMALL_BLOCK_BYTES));
        for (number, block) in blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
            mount.write_at(file, number * SMALL_BLOCK_BYTES as u64, block)?;
        }
        let set = SetAttributes {
            size_bytes: Some(inner.len() as u64),
            ..SetAttributes::default()
        };
        let scope = operations::set_attributes(file, &set);
        mount.run(scope, &mut Nobody, |fs, v, now| {
            fs.set_attributes(v, file, &set, now).map(drop)
        })?;
        let removed = mount.create("removed")?;
        for number in 0..REMOVED_BLOCKS {
            let bytes = [0xee; SMALL_BLOCK_BYTES];
            mount.write_at(removed, number * SMALL_BLOCK_BYTES as u64, &bytes)?;
        }
        mount.drain(&mut Nobody)?;
        let scope = operations::remove(mount.fs.root(), b"removed", false);
        mount.run(scope, &mut Nobody, |fs, v, now| {
            fs.unlink(v, fs.root(), b"removed", now)
        })?;
        mount.unmount(&mut Nobody)?;
        let bytes = mount.fork().to_bytes();
        Ok(Fork::nested(bytes, SMALL_BLOCK_BYTES as u32, 1, false))
    }

    /// The same image, with the outermost file system as the one that is explored.
    pub fn outermost(&self) -> Fork {
        let mut fork = self.clone();
        fork.nesting = None;
        fork
    }

    /// The image inside; `None` where there is none.
    ///
    /// # Errors
    /// Where the file system that holds it cannot be read.
    pub fn inner(&self) -> Result<Option<Fork>> {
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
        // A file without holes keeps its blocks where they are.
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
                Some(place) => {
                    let bytes = self.block(*place);
                    let is_new = before.is_none() && self.changed_block(*place).is_none();
                    if is_new && bytes.iter().any(|byte| *byte != 0) {
                        return Err(Error::corrupt(
                            Structure::ImageBlock { block },
                            Fault::ShowsOldContents,
                        ));
                    }
                    fork.set_block(block, Buffer::from(bytes));
                }
                None if before.is_some() => {
                    return Err(Error::corrupt(Structure::ImageBlock { block }, Fault::Gone));
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

    /// Where the blocks of the image inside are, followed by those of its journal; and the number
    /// of blocks without the journal's.
    fn places(&self, nesting: &Nesting) -> Result<(Vec<Option<u64>>, usize)> {
        let engine = Engine {
            ordering: usual_for(false),
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

/// The smallest block size in bytes; the blocks of the inner and of the outer file system; and
/// those of the outer one that the removed file had.
const SMALL_BLOCK_BYTES: usize = 1024;
const INSIDE_BLOCKS: u64 = 320;
const OUTSIDE_BLOCKS: u64 = 640;
const REMOVED_BLOCKS: u64 = 200;

/// An empty file system of `blocks` blocks.
fn small(blocks: u64) -> Result<Fork> {
    let mkfs = Mkfs {
        features: vec!["^resize_inode".to_owned()],
        block_size: Some(SMALL_BLOCK_BYTES as u32),
        inodes: Some(64),
        device_is_zero: true,
        ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
    };
    Fork::formatted(
        usual(),
        &mkfs,
        blocks * SMALL_BLOCK_BYTES as u64,
        SMALL_BLOCK_BYTES as u32,
    )
    .map_err(|error| Error::corrupt(Structure::Sole("image"), error))
}

impl Mount {
    fn create(&mut self, name: &str) -> Result<InodeNumber> {
        let new = NewInode {
            file_type: FileType::Regular,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: b"",
        };
        let scope = operations::create(self.fs.root(), name.as_bytes(), &new);
        self.run(scope, &mut Nobody, |fs, v, now| {
            fs.create(v, fs.root(), name.as_bytes(), &new, now)
        })
    }

    /// Writes a block, in one step.
    fn write_at(&mut self, inode: InodeNumber, offset: u64, block: &[u8]) -> Result<()> {
        self.run(
            operations::write(inode, offset, block),
            &mut Nobody,
            |fs, v, now| fs.write(v, inode, offset, block, now).map(drop),
        )
    }

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
            into.extend((0..count).map(|i| first.map(|first| (first + i).0)));
            at += count.max(1);
        }
        Ok(())
    }
}
