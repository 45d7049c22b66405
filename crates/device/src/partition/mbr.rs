//! The PC's partition table: four entries of 16 bytes from byte 446 of the first sector on, `55 aa`
//! at its end.
//!
//! An entry: status (0x80 active, 0 not), 3 bytes of an old address, type, 3 more, first sector and
//! number of sectors as 32 bits. A partition of type 5, 0xf or 0x85 holds a chain of such tables:
//! in each the first entry is a partition, counted from this table, the second leads to the next
//! table, counted from the start of the extended partition.

use super::{Found, Partition, SECTOR_BYTES, Scheme, bsd, u32_at};
use crate::Result;

/// No chain of tables is followed further.
const MOST_TABLES: u32 = 128;

#[derive(Clone, Copy)]
struct Entry {
    status: u8,
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

fn entries(sector: &[u8]) -> Option<[Entry; 4]> {
    let entry = |number: usize| {
        let bytes = &sector[446 + 16 * number..][..16];
        Entry {
            status: bytes[0],
            kind: bytes[4],
            start: u32_at(bytes, 8).into(),
            sectors: u32_at(bytes, 12).into(),
        }
    };
    (sector[510..512] == [0x55, 0xaa]).then(|| [0, 1, 2, 3].map(entry))
}

/// What a type stands for.
fn meaning(kind: u8) -> Option<&'static str> {
    Some(match kind {
        0x01 | 0x04 | 0x06 | 0x0e => "FAT",
        0x0b | 0x0c => "FAT32",
        0x05 | 0x0f | 0x85 => "extended",
        0x07 => "NTFS or exFAT",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        0xa5 => "FreeBSD",
        0xa6 => "OpenBSD",
        0xa9 => "NetBSD",
        0xee => "GPT",
        0xef => "EFI system",
        0xfd => "Linux RAID",
        _ => return None,
    })
}

fn partition(number: usize, entry: Entry, from: u64) -> Partition {
    Partition {
        name: number.to_string(),
        scheme: Scheme::Mbr,
        kind: format!("{:#04x}", entry.kind),
        meaning: meaning(entry.kind),
        label: None,
        offset_bytes: (from + entry.start) * SECTOR_BYTES,
        len_bytes: entry.sectors * SECTOR_BYTES,
    }
}

/// Whether the first sector says that the real table is a GPT.
pub(super) fn is_protective(sector: &[u8]) -> bool {
    entries(sector).is_some_and(|all| all.iter().any(|entry| entry.kind == 0xee))
}

/// Reads the table of the first sector and the tables that it leads to. False where there is none:
/// a file system's boot sector ends with the same two bytes, but its entries make no sense.
pub(super) fn read(found: &mut Found<'_>) -> Result<bool> {
    let Some(sector) = found.bytes(0, SECTOR_BYTES as usize)? else {
        return Ok(false);
    };
    let Some(all) = entries(&sector) else {
        return Ok(false);
    };
    let makes_sense = |entry: &Entry| matches!(entry.status, 0 | 0x80);
    if !all.iter().all(makes_sense) || !all.iter().any(Entry::is_used) {
        return Ok(false);
    }
    let disk = 0..found.disk.size_bytes();
    for (at, entry) in all.into_iter().enumerate() {
        if !entry.is_used() {
            continue;
        }
        let partition = partition(at + 1, entry, 0);
        let (name, start) = (partition.name.clone(), partition.offset_bytes);
        let slice = start..start + partition.len_bytes;
        found.add(partition, &disk);
        if matches!(entry.kind, 0xa5 | 0xa6 | 0xa9) {
            bsd::read(found, slice, &name)?;
        }
    }
    if let Some(extended) = all.into_iter().find(|e| e.is_used() && e.is_extended()) {
        read_chain(found, extended)?;
    }
    Ok(true)
}

fn read_chain(found: &mut Found<'_>, extended: Entry) -> Result<()> {
    let disk = 0..found.disk.size_bytes();
    let (mut at, mut number) = (extended.start, 5);
    for _ in 0..MOST_TABLES {
        let sector = found.bytes(at * SECTOR_BYTES, SECTOR_BYTES as usize)?;
        let Some(all) = sector.as_deref().and_then(entries) else {
            found.note(format!(
                "the extended partition's tables end at sector {at}, where there is none"
            ));
            return Ok(());
        };
        let [first, second, ..] = all;
        if first.is_used() && !first.is_extended() {
            found.add(partition(number, first, at), &disk);
            number += 1;
        }
        if !second.is_used() {
            return Ok(());
        }
        at = extended.start + second.start;
    }
    found.note(format!(
        "the extended partition has more than {MOST_TABLES} tables: the rest is left out"
    ));
    Ok(())
}
