//! Partition tables.
//!
//! The input is the size of the disk in sectors (2 bytes), and pieces of it: a sector's number (1
//! byte; counted from the end if the highest bit is set), a length (2 bytes), and the bytes. A bit
//! of the first byte asks for the right checksums of a GPT.

use std::sync::Arc;

use backstitch_device::BlockDevice;
use backstitch_device::MemoryDevice;
use backstitch_device::partition::{PartitionDevice, PartitionTable};

use crate::Input;

const SECTOR_BYTES: usize = 512;
/// The largest disk, in sectors.
const MOST_SECTORS: usize = 512;
/// The most bytes of a GPT's entries over which a checksum is computed.
const MOST_ENTRY_BYTES: usize = 1 << 16;

/// Every partition that is found is on the disk, and can be read to its end.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let disk = Arc::new(MemoryDevice::from_bytes(disk(&mut input, how)));
    let Ok(Some(table)) = PartitionTable::read(&*disk) else {
        return;
    };
    for partition in &table.partitions {
        assert!(table.get(&partition.name).is_some());
        assert!(partition.offset_bytes + partition.len_bytes <= disk.size_bytes());
        let part = PartitionDevice::new(disk.clone(), partition).expect("it lies on the disk");
        let mut last = [0];
        let read = part.read(part.size_bytes() - 1, &mut last);
        read.expect("it lies on the disk");
        assert!(part.read(part.size_bytes(), &mut last).is_err());
        let _ = (part.atomic_unit_bytes(), part.next_data(0));
    }
}

fn disk(input: &mut Input<'_>, how: u8) -> Vec<u8> {
    let sectors = usize::from(input.word()) % MOST_SECTORS;
    let mut disk = vec![0; sectors * SECTOR_BYTES + usize::from(how & 0x10)];
    while !input.is_empty() {
        let (sector, length) = (input.byte(), usize::from(input.word()));
        let bytes = input.bytes(length);
        let from_start = usize::from(sector & 0x7f);
        let sector = match sector & 0x80 {
            0 => from_start,
            _ => sectors.saturating_sub(from_start),
        };
        let at = (sector * SECTOR_BYTES).min(disk.len());
        let end = (at + bytes.len()).min(disk.len());
        disk[at..end].copy_from_slice(&bytes[..end - at]);
    }
    if how & 1 != 0
        && let Some(end) = disk.get_mut(510..512)
    {
        end.copy_from_slice(&[0x55, 0xaa]);
    }
    if how & 2 != 0 {
        let sector_bytes = if how & 4 == 0 { SECTOR_BYTES } else { 4096 };
        let last = (disk.len() / sector_bytes).saturating_sub(1);
        sum_gpt(&mut disk, sector_bytes, 1);
        sum_gpt(&mut disk, sector_bytes, last);
    }
    if how & 8 != 0 {
        sum_label(&mut disk);
    }
    disk
}

fn number(bytes: &[u8], at: usize) -> usize {
    let part = bytes.get(at..at + 4).unwrap_or(&[0; 4]);
    part.iter()
        .rev()
        .fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn crc32(bytes: &[u8]) -> [u8; 4] {
    let sum = bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
            0 => sum >> 1,
            _ => sum >> 1 ^ 0xedb8_8320,
        })
    });
    (!sum).to_le_bytes()
}

/// Sets the checksums of the header in a sector, and of the entries that it names.
fn sum_gpt(disk: &mut [u8], sector_bytes: usize, sector: usize) {
    let at = sector * sector_bytes;
    let Some(header) = disk.get(at..at + sector_bytes) else {
        return;
    };
    let entries = number(header, 72).saturating_mul(sector_bytes);
    let length = number(header, 80).saturating_mul(number(header, 84));
    let length = length.min(MOST_ENTRY_BYTES);
    let sum = disk.get(entries..entries.saturating_add(length)).map(crc32);
    let header = &mut disk[at..at + sector_bytes];
    header[..8].copy_from_slice(b"EFI PART");
    header[24..32].copy_from_slice(&(sector as u64).to_le_bytes());
    if let Some(sum) = sum {
        header[88..92].copy_from_slice(&sum);
    }
    header[16..20].fill(0);
    let own = number(header, 12).min(sector_bytes);
    let sum = crc32(&header[..own]);
    header[16..20].copy_from_slice(&sum);
}

/// Makes the second sector a BSD label with the right checksum.
fn sum_label(disk: &mut [u8]) {
    const MAGIC: [u8; 4] = 0x8256_4557_u32.to_le_bytes();
    let Some(label) = disk.get_mut(SECTOR_BYTES..2 * SECTOR_BYTES) else {
        return;
    };
    label[..4].copy_from_slice(&MAGIC);
    label[132..136].copy_from_slice(&MAGIC);
    label[136..138].fill(0);
    let end = 148 + 16 * (number(label, 138) & 0xffff);
    let words = label[..end.min(SECTOR_BYTES)].chunks_exact(2);
    let sum = words.fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]]);
    label[136..138].copy_from_slice(&sum);
}
