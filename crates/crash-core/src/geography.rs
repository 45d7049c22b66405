//! What each block of an image is used for, as far as its layout can tell.

use std::ops::Range;

use backstitch_layout::tools::{Geography, Use};
use backstitch_layout::{BlockNumber, InodeNumber};

use crate::image::Fork;

/// Adjacent blocks that have the same purpose as long as the file system lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Which blocks.
    pub blocks: Range<u64>,
    /// What they are, in words.
    pub what: &'static str,
    /// For inode tables, the number of the first inode.
    pub first_inode: Option<InodeNumber>,
}

/// The uses of blocks, from some images of one volume.
pub struct Blocks(Vec<Box<dyn Geography>>);

impl Blocks {
    /// Each block's use is taken from the first image that knows it.
    pub fn of(images: &[&Fork]) -> Blocks {
        let read = images.iter().filter_map(|image| {
            let read = image.kind.tools().geography(*image)?;
            (read.block_bytes() == image.block_bytes()).then_some(read)
        });
        Blocks(read.collect())
    }

    /// What a block is for; `None` of what is no file system.
    pub fn what(&self, block: u64) -> Option<Use> {
        let mut found = self.0.iter().map(|image| image.what(BlockNumber(block)));
        let known = found.find(|what| *what != Use::Unknown);
        known.or_else(|| self.0.first().map(|_| Use::Unknown))
    }

    /// The first image's uses and how it reads blocks; `None` if no image is a file system.
    pub fn reader(&self) -> Option<&dyn Geography> {
        self.0.first().map(|first| &**first)
    }

    /// What the file system keeps at places that never change, in the first `count` blocks: superblock,
    /// descriptors, bitmaps and inodes.
    pub fn areas(&self, count: u64) -> Vec<Area> {
        let mut areas: Vec<Area> = Vec::new();
        for block in 0..count {
            let (what, first_inode) = match self.what(block) {
                Some(Use::Superblock) => ("superblock", None),
                Some(Use::Descriptors) => ("group descriptors", None),
                Some(Use::BlockBitmap(_)) => ("block bitmap", None),
                Some(Use::InodeBitmap(_)) => ("inode bitmap", None),
                Some(Use::Inodes(first)) => ("inode table", Some(first)),
                _ => continue,
            };
            match areas.last_mut() {
                Some(last) if last.blocks.end == block && last.what == what => last.blocks.end += 1,
                _ => areas.push(Area {
                    blocks: block..block + 1,
                    what,
                    first_inode,
                }),
            }
        }
        areas
    }

    /// A block in words; what is not the file system's own is a file's or a directory's.
    pub fn describe(&self, block: u64) -> String {
        let (Some(what), Some(reader)) = (self.what(block), self.reader()) else {
            return "block".to_owned();
        };
        match what {
            Use::Superblock | Use::Descriptors | Use::Backup => {
                "superblock or group descriptors".to_owned()
            }
            Use::BlockBitmap(group) => format!("block bitmap of group {group}"),
            Use::InodeBitmap(group) => format!("inode bitmap of group {group}"),
            Use::Inodes(first) => {
                let count = reader.block_bytes() / reader.inode_bytes();
                format!("inodes {first} to {}", first + (count - 1))
            }
            _ => "names, pointers, attributes or contents".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formatted::ImageOptions;

    #[test]
    fn blocks_of_a_new_image() {
        let image = ImageOptions::default().make().unwrap();
        let blocks = Blocks::of(&[&image]);
        let all: Vec<String> = (0..8192).map(|block| blocks.describe(block)).collect();
        let count = |what: &str| all.iter().filter(|text| text.starts_with(what)).count();
        assert_eq!(count("block bitmap of group"), 2);
        assert_eq!(count("inode bitmap of group"), 2);
        assert_eq!(count("inodes "), 64);
        assert_eq!(count("inodes 9 to 12"), 1);
        assert_eq!(count("superblock"), 5);
        let areas = blocks.areas(8192);
        let tables = areas.iter().filter(|area| area.first_inode.is_some());
        let tables: Vec<_> = tables
            .map(|area| (area.first_inode, area.blocks.end - area.blocks.start))
            .collect();
        let first = |number| Some(InodeNumber(number));
        assert_eq!(tables, [(first(1), 32), (first(129), 32)]);
        let bitmaps = areas.iter().filter(|area| area.what.contains("bitmap"));
        assert_eq!(bitmaps.count(), 4);
    }
}
