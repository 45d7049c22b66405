//! The GUID partition table (UEFI specification 2.10, chapter 5).
//!
//! A header in the second sector and one in the last, each with its CRC. They say where an array of
//! entries is, and its CRC. Sectors have 512 or 4096 bytes: the header is looked for in both
//! places.

use super::{Found, Partition, SECTOR_BYTES, Scheme, bsd, mbr, u16_at, u32_at, u64_at};
use crate::Result;

/// Larger arrays of entries are not read.
const MOST_ENTRY_BYTES: u64 = 1 << 20;

/// A partition that has a BSD label inside, as a slice of an MBR has.
const BSD_LABELLED: &str = "516e7cb4-6ecf-11d6-8ff8-00022d09712b";

struct Header {
    entries_at: u64,
    entries: u32,
    entry_bytes: u32,
    entries_crc: u32,
    usable: std::ops::Range<u64>,
}

/// CRC-32 as in IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

/// The header in a sector, if it is sound and belongs there.
fn header(bytes: &[u8], sector: u64) -> Option<Header> {
    let len = u32_at(bytes, 12) as usize;
    if &bytes[..8] != b"EFI PART" || !(92..=bytes.len()).contains(&len) {
        return None;
    }
    let mut zeroed = bytes[..len].to_vec();
    zeroed[16..20].fill(0);
    if crc32(&zeroed) != u32_at(bytes, 16) || u64_at(bytes, 24) != sector {
        return None;
    }
    let entry_bytes = u32_at(bytes, 84);
    (entry_bytes >= 128 && entry_bytes.is_power_of_two()).then(|| Header {
        entries_at: u64_at(bytes, 72),
        entries: u32_at(bytes, 80),
        entry_bytes,
        entries_crc: u32_at(bytes, 88),
        usable: u64_at(bytes, 40)..u64_at(bytes, 48).saturating_add(1),
    })
}

/// Reads the table; false where there is none.
pub(super) fn read(found: &mut Found<'_>) -> Result<bool> {
    let first = found.bytes(0, SECTOR_BYTES as usize)?;
    let announced = first.as_deref().is_some_and(mbr::is_protective);
    for sector_bytes in [512_u64, 4096] {
        let sectors = found.disk.size_bytes() / sector_bytes;
        for (sector, is_backup) in [(1, false), (sectors.saturating_sub(1), true)] {
            // Without a protective MBR the copy at the end may be left from an earlier use of the
            // disk.
            if (is_backup && !announced) || sectors < 3 {
                continue;
            }
            if !read_at(found, sector, sector_bytes)? {
                continue;
            }
            if is_backup {
                let note = "the table at the disk's start is damaged: the copy at its end is used";
                found.note(note.to_owned());
            }
            return Ok(true);
        }
    }
    if announced {
        found.note("the disk's start announces a GPT, and there is no sound one".to_owned());
    }
    Ok(announced)
}

fn read_at(found: &mut Found<'_>, sector: u64, sector_bytes: u64) -> Result<bool> {
    let Some(bytes) = found.bytes(sector * sector_bytes, sector_bytes as usize)? else {
        return Ok(false);
    };
    let Some(header) = header(&bytes, sector) else {
        return Ok(false);
    };
    let len = u64::from(header.entries) * u64::from(header.entry_bytes);
    let at = header.entries_at.checked_mul(sector_bytes);
    let (Some(at), true) = (at, len <= MOST_ENTRY_BYTES) else {
        return Ok(false);
    };
    let Some(array) = found.bytes(at, len as usize)? else {
        return Ok(false);
    };
    if crc32(&array) != header.entries_crc {
        return Ok(false);
    }
    let scaled = |sector: u64| sector.saturating_mul(sector_bytes);
    let end = scaled(header.usable.end).min(found.disk.size_bytes());
    let usable = scaled(header.usable.start)..end;
    for (number, entry) in array.chunks_exact(header.entry_bytes as usize).enumerate() {
        if entry[..16] == [0; 16] {
            continue;
        }
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let sectors = last.saturating_add(1).saturating_sub(first);
        let guid = guid(&entry[..16]);
        let is_labelled = guid == BSD_LABELLED;
        let name = (number + 1).to_string();
        let partition = Partition {
            name: name.clone(),
            scheme: Scheme::Gpt,
            meaning: meaning(&guid),
            kind: guid,
            label: label(&entry[56..128]),
            offset_bytes: scaled(first),
            len_bytes: scaled(sectors),
        };
        let slice = partition.offset_bytes..scaled(last.saturating_add(1));
        found.add(partition, &usable);
        if is_labelled && slice.end <= usable.end {
            bsd::read(found, slice, &name)?;
        }
    }
    Ok(true)
}

/// The first three parts of a GUID are little-endian numbers.
fn guid(bytes: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!(
        "{:08x}-{:04x}-{:04x}-{}-{}",
        u32_at(bytes, 0),
        u16_at(bytes, 4),
        u16_at(bytes, 6),
        hex(&bytes[8..10]),
        hex(&bytes[10..16])
    )
}

fn label(bytes: &[u8]) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|pair| u16_at(pair, 0));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}

fn meaning(guid: &str) -> Option<&'static str> {
    Some(match guid {
        "c12a7328-f81f-11d2-ba4b-00a0c93ec93b" => "EFI system",
        "21686148-6449-6e6f-744e-656564454649" => "BIOS boot",
        "0fc63daf-8483-4772-8e79-3d69d8477de4" => "Linux",
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709" => "Linux root (x86-64)",
        "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f" => "Linux swap",
        "e6d6d379-f507-44c2-a23c-238f2a3df928" => "Linux LVM",
        "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7" => "Microsoft data",
        BSD_LABELLED => "FreeBSD",
        "516e7cb6-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD UFS",
        "516e7cb5-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD swap",
        "516e7cba-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD ZFS",
        "83bd6b9d-7f41-11dc-be0b-001560b84f0f" => "FreeBSD boot",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
