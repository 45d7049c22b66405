//! Closer checks for formats whose magic is short, or lies where other formats have theirs.

use super::{Reader, partitions};
use crate::Result;

/// The place of ext2's magic.
pub(super) const EXT_MAGIC_AT: u64 = 1080;
/// Text is recognised by its first bytes.
const TEXT_BYTES: u64 = 4096;
/// With fewer characters before a zero byte it does not count as text.
const LEAST_TEXT_BYTES: usize = 8;

fn little(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// A number of `length` bytes, and zero behind the end.
fn number(reader: &Reader<'_>, offset: u64, length: usize, read: fn(&[u8]) -> u64) -> Result<u64> {
    Ok(reader.bytes(offset, length)?.as_deref().map_or(0, read))
}

fn one_of(reader: &Reader<'_>, offset: u64, magics: &[&[u8]]) -> Result<bool> {
    for magic in magics {
        if reader.holds(offset, magic)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A superblock of ext2 to ext4 that is not mere chance: its blocks are of a known size.
pub(super) fn is_ext(reader: &Reader<'_>) -> Result<bool> {
    let log = number(reader, EXT_MAGIC_AT - 0x38 + 0x18, 4, little)?;
    Ok(reader.holds(EXT_MAGIC_AT, &[0x53, 0xef])? && log <= 6)
}

/// The boot sector of a FAT begins with a jump; its numbers are powers of two.
pub(super) fn fat(reader: &Reader<'_>, _: u64) -> Result<bool> {
    let Some(sector) = reader.bytes(0, 512)? else {
        return Ok(false);
    };
    let sector_bytes = little(&sector[11..13]);
    let cluster = u64::from(sector[13]);
    let jumps = matches!(sector[0], 0xeb | 0xe9);
    Ok(jumps
        && (512..=4096).contains(&sector_bytes)
        && sector_bytes.is_power_of_two()
        && cluster.is_power_of_two()
        && matches!(sector[16], 1..=4))
}

/// HFS: a block size that is a multiple of a sector.
pub(super) fn hfs(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let block = number(reader, at + 20, 4, big)?;
    Ok(block >= 512 && block.is_multiple_of(512))
}

/// HFS+ is version 4, its variant with cases version 5.
pub(super) fn hfs_plus(reader: &Reader<'_>, at: u64) -> Result<bool> {
    Ok(matches!(number(reader, at + 2, 2, big)?, 4 | 5))
}

/// Minix, versions 1 and 2: zones, inodes and maps that fit each other.
pub(super) fn minix(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let superblock = at - 16;
    let field = |offset, length| number(reader, superblock + offset, length, little);
    let (inodes, inode_maps, zone_maps) = (field(0, 2)?, field(4, 2)?, field(6, 2)?);
    let first_zone = field(8, 2)?;
    Ok(inodes > 0
        && inode_maps >= (inodes + 1).div_ceil(8192)
        && zone_maps > 0
        && first_zone > 2 + inode_maps
        && field(10, 2)? == 0)
}

/// Minix, version 3: the size of a block.
pub(super) fn minix3(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let block = number(reader, at + 4, 2, little)?;
    Ok(block >= 1024 && block.is_power_of_two())
}

/// NILFS: revision 2, and a superblock of a sane length.
pub(super) fn nilfs(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let revision = number(reader, at - 6, 4, little)?;
    let bytes = number(reader, at + 2, 2, little)?;
    Ok(revision == 2 && (256..=1024).contains(&bytes))
}

/// JFFS2: the first node is of a known type.
pub(super) fn jffs2_little(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let kind = number(reader, at + 2, 2, little)?;
    Ok(is_jffs2_node(kind))
}

pub(super) fn jffs2_big(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let kind = number(reader, at + 2, 2, big)?;
    Ok(is_jffs2_node(kind))
}

fn is_jffs2_node(kind: u64) -> bool {
    matches!(
        kind,
        0xe001 | 0xe002 | 0x2003 | 0x2004 | 0x2006 | 0xe008 | 0xe009
    )
}

/// LVM: a label of this version behind the magic.
pub(super) fn lvm2(reader: &Reader<'_>, at: u64) -> Result<bool> {
    reader.holds(at + 24, b"LVM2 001")
}

/// LVM 1: its version.
pub(super) fn lvm1(reader: &Reader<'_>, at: u64) -> Result<bool> {
    Ok(matches!(number(reader, at + 2, 2, little)?, 1 | 2))
}

/// GFS2: the block is of the type of a superblock.
pub(super) fn gfs(reader: &Reader<'_>, at: u64) -> Result<bool> {
    Ok(number(reader, at + 4, 4, big)? == 1)
}

/// UDF: behind the beginning of its area, in blocks of 2 KiB, stands which version it is.
pub(super) fn udf(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let versions: [&[u8]; 2] = [b"NSR02", b"NSR03"];
    for block in 1..=4 {
        if one_of(reader, at + 2048 * block, &versions)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An MBR with partitions, or a GPT; the two bytes alone are at the end of every boot sector.
pub(super) fn has_partitions(reader: &Reader<'_>, _: u64) -> Result<bool> {
    // A sector with FAT's numbers, or the names of NTFS and exFAT, is the boot sector of a file
    // system.
    let names: [&[u8]; 3] = [b"NTFS    ", b"EXFAT   ", b"-FVE-FS-"];
    if fat(reader, 0)? || one_of(reader, 3, &names)? {
        return Ok(false);
    }
    Ok(partitions(reader)? > 0 || is_protective(reader)?)
}

fn is_protective(reader: &Reader<'_>) -> Result<bool> {
    let Some(sector) = reader.bytes(0, 512)? else {
        return Ok(false);
    };
    Ok((0..4).any(|entry| sector[446 + 16 * entry + 4] == 0xee))
}

/// Sun's label: the XOR of its words is zero.
pub(super) fn sun(reader: &Reader<'_>, _: u64) -> Result<bool> {
    let Some(sector) = reader.bytes(0, 512)? else {
        return Ok(false);
    };
    let words = sector.chunks_exact(2).map(big);
    Ok(words.fold(0, |sum, word| sum ^ word) == 0)
}

/// The map of old Macs: a driver descriptor before it.
pub(super) fn mac(reader: &Reader<'_>, _: u64) -> Result<bool> {
    reader.holds(0, b"ER")
}

/// AmigaDOS has a version of 0 to 7.
pub(super) fn amiga(reader: &Reader<'_>, at: u64) -> Result<bool> {
    Ok(number(reader, at + 3, 1, little)? <= 7 && reader.size_bytes() >= 512)
}

/// gzip: deflate is its only method.
pub(super) fn gzip(reader: &Reader<'_>, at: u64) -> Result<bool> {
    Ok(number(reader, at + 2, 1, little)? == 8)
}

/// bzip2: a level of 1 to 9, and a block or the end behind it.
pub(super) fn bzip2(reader: &Reader<'_>, at: u64) -> Result<bool> {
    let level = number(reader, at + 3, 1, little)?;
    let after: [&[u8]; 2] = [b"1AY&SY", &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]];
    Ok((b'1'..=b'9').contains(&(level as u8)) && one_of(reader, at + 4, &after)?)
}

/// A program for Windows: the DOS header leads to its own header.
pub(super) fn windows(reader: &Reader<'_>, _: u64) -> Result<bool> {
    let at = number(reader, 0x3c, 4, little)?;
    reader.holds(at, b"PE\0\0")
}

/// Text: characters of UTF-8 that can be printed, up to a zero byte or for a page.
pub(super) fn text(reader: &Reader<'_>, _: u64) -> Result<bool> {
    let length = TEXT_BYTES.min(reader.size_bytes());
    let Some(mut bytes) = reader.bytes(0, length as usize)? else {
        return Ok(false);
    };
    let is_whole = length == reader.size_bytes();
    if let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(zero);
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        // The page may end within a character.
        Err(error) if bytes.len() - error.valid_up_to() < 4 && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Ok(false),
    };
    let is_printed = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b');
    let is_long = text.len() >= LEAST_TEXT_BYTES || (is_whole && !text.is_empty());
    Ok(is_long && text.chars().all(is_printed))
}
