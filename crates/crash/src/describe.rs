//! What a block of an ext2 image is, in words.

use backstitch_ext::format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use backstitch_ext::format::{GroupDescriptor, group};
use backstitch_ext_tools::fsck::Source;

use crate::image::Fork;

/// Where an image keeps what.
pub(crate) struct Geometry(Option<(Superblock, Vec<GroupDescriptor>)>);

impl Geometry {
    /// Reads it from an image; of one that cannot be read, nothing is known.
    pub(crate) fn of(image: &Fork) -> Geometry {
        let read = || {
            let mut scratch = Vec::new();
            let bytes = image.bytes(SUPERBLOCK_OFFSET, 1024, &mut scratch).ok()?;
            let bytes = bytes.try_into().ok()?;
            let sb = Superblock::parse(bytes, image.size_bytes()).ok()?;
            let start = group::descriptor_table_block(&sb) << sb.block_size_bits;
            let len = (sb.descriptor_blocks * sb.block_size) as usize;
            let table = image.bytes(start, len, &mut scratch).ok()?;
            let groups = group::parse_table(&sb, table).ok()?;
            Some((sb, groups))
        };
        Geometry(read())
    }

    /// A block in words; what is not the file system's own is a file's or a directory's.
    pub(crate) fn describe(&self, block: u64) -> String {
        let Some((sb, groups)) = &self.0 else {
            return "block".to_owned();
        };
        for (number, descriptor) in groups.iter().enumerate() {
            let number = number as u32;
            let table = descriptor.inode_table;
            if block == descriptor.block_bitmap {
                return format!("block bitmap of group {number}");
            }
            if block == descriptor.inode_bitmap {
                return format!("inode bitmap of group {number}");
            }
            if (table..table + u64::from(sb.inode_table_blocks)).contains(&block) {
                let per_block = sb.block_size / sb.inode_size;
                let first = sb.group_first_inode(number) + (block - table) as u32 * per_block;
                return format!("inodes {first} to {}", first + per_block - 1);
            }
            let from_start = block.wrapping_sub(sb.group_first_block(number));
            if from_start < u64::from(sb.super_blocks_in_group(number)) {
                return "superblock or group descriptors".to_owned();
            }
        }
        match block << sb.block_size_bits {
            at if at <= SUPERBLOCK_OFFSET => "superblock".to_owned(),
            _ => "names, pointers, attributes or contents".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::ImageOptions;

    #[test]
    fn blocks_of_a_new_image() {
        let image = ImageOptions::default().make().unwrap();
        let geometry = Geometry::of(&image);
        let all: Vec<String> = (0..8192).map(|block| geometry.describe(block)).collect();
        let count = |what: &str| all.iter().filter(|text| text.starts_with(what)).count();
        assert_eq!(count("block bitmap of group"), 2);
        assert_eq!(count("inode bitmap of group"), 2);
        assert_eq!(count("inodes "), 64);
        assert_eq!(count("inodes 9 to 12"), 1);
        assert_eq!(count("superblock"), 5);
    }
}
