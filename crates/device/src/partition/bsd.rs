//! The disk label of BSD: 404 bytes or less in the second sector of a slice.
//!
//! Magic number at 0 and at 132, bytes in a sector at 40, a checksum at 136 (the XOR of all 16-bit
//! words is 0), the number of partitions at 138. From 148 on, for each partition: number of
//! sectors, first sector (32 bits each), fragment size, type (8 bits), and two more fields.

use std::ops::Range;

use super::{Found, Partition, SECTOR_BYTES, Scheme, u16_at, u32_at};
use crate::Result;

const MAGIC: u32 = 0x8256_4557;
const ENTRIES: usize = 148;
const MOST_PARTITIONS: usize = 22;
/// The letter `c` is the whole slice.
const RAW: usize = 2;

fn meaning(kind: u8) -> Option<&'static str> {
    Some(match kind {
        0 => "unused",
        1 => "swap",
        7 => "4.2BSD",
        8 => "MS-DOS",
        27 => "ZFS",
        _ => return None,
    })
}

/// The number of partitions of a label, if the sector is a sound one.
fn label(sector: &[u8]) -> Option<usize> {
    let count = usize::from(u16_at(sector, 138));
    if u32_at(sector, 0) != MAGIC || u32_at(sector, 132) != MAGIC || count > MOST_PARTITIONS {
        return None;
    }
    let words = sector[..ENTRIES + 16 * count].chunks_exact(2);
    let sum = words.fold(0, |sum, word| sum ^ u16_at(word, 0));
    (sum == 0).then_some(count)
}

/// Reads the label of a slice; false where there is none.
pub(super) fn read(found: &mut Found<'_>, slice: Range<u64>, prefix: &str) -> Result<bool> {
    let at = slice.start + SECTOR_BYTES;
    let Some(sector) = found.bytes(at, SECTOR_BYTES as usize)? else {
        return Ok(false);
    };
    let Some(count) = label(&sector) else {
        return Ok(false);
    };
    // A slice may claim more than there is.
    let whole = slice.start..slice.end.min(found.disk.size_bytes());
    let sector_bytes = u64::from(u32_at(&sector, 40));
    if !(512..=65536).contains(&sector_bytes) {
        found.note(format!("the BSD label has sectors of {sector_bytes} bytes"));
        return Ok(false);
    }
    let entry = |number: usize| &sector[ENTRIES + 16 * number..][..16];
    // Where the whole slice does not begin at 0, offsets are counted from the disk's start.
    let base = match count > RAW {
        true => u64::from(u32_at(entry(RAW), 4)),
        false => 0,
    };
    for number in (0..count).filter(|number| *number != RAW) {
        let bytes = entry(number);
        let (sectors, first, kind) = (u32_at(bytes, 0), u64::from(u32_at(bytes, 4)), bytes[12]);
        if sectors == 0 {
            continue;
        }
        let letter = (b'a' + number as u8) as char;
        let offset = first.checked_sub(base).map(|first| first * sector_bytes);
        let partition = Partition {
            name: format!("{prefix}{letter}"),
            scheme: Scheme::Bsd,
            kind: kind.to_string(),
            meaning: meaning(kind),
            label: None,
            offset_bytes: offset.map_or(u64::MAX, |offset| slice.start + offset),
            len_bytes: u64::from(sectors) * sector_bytes,
        };
        found.add(partition, &whole);
    }
    Ok(true)
}
