//! Partition tables of every kind and faults in them, compared with `partx` where that is
//! installed.

use backstitch_device::partition::{PartitionDevice, PartitionTable, Scheme};
use backstitch_device::{BlockDevice, MemoryDevice};
use std::process::Command;
use std::sync::Arc;

const SECTOR: usize = 512;

fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An entry of an MBR, or of a table in the chain.
fn entry(disk: &mut [u8], table: usize, number: usize, kind: u8, start: u32, sectors: u32) {
    let at = table * SECTOR + 446 + 16 * number;
    disk[at + 4] = kind;
    put(disk, at + 8, &start.to_le_bytes());
    put(disk, at + 12, &sectors.to_le_bytes());
    put(disk, table * SECTOR + 510, &[0x55, 0xaa]);
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// A BSD label of three partitions in the slice at a sector; offsets are counted from `base`
/// sectors.
fn label(disk: &mut [u8], slice: usize, base: u32) {
    let at = (slice + 1) * SECTOR;
    put(disk, at, &0x8256_4557_u32.to_le_bytes());
    put(disk, at + 132, &0x8256_4557_u32.to_le_bytes());
    put(disk, at + 40, &512_u32.to_le_bytes());
    put(disk, at + 136, &[0; 2]);
    put(disk, at + 138, &4_u16.to_le_bytes());
    for (number, (sectors, first, kind)) in [(50, base + 16, 7), (20, base + 66, 1), (100, base, 0)]
        .into_iter()
        .enumerate()
    {
        put(disk, at + 148 + 16 * number, &u32::to_le_bytes(sectors));
        put(disk, at + 152 + 16 * number, &u32::to_le_bytes(first));
        disk[at + 160 + 16 * number] = kind;
    }
    let sum = disk[at..at + 148 + 64]
        .chunks(2)
        .fold(0, |sum, word| sum ^ u16::from_le_bytes([word[0], word[1]]));
    put(disk, at + 136, &sum.to_le_bytes());
}

fn mbr() -> Vec<u8> {
    let mut disk = vec![0; 2000 * SECTOR];
    entry(&mut disk, 0, 0, 0x83, 64, 100);
    entry(&mut disk, 0, 1, 0xa5, 200, 100);
    entry(&mut disk, 0, 3, 0x0f, 400, 1000);
    // Two logical partitions: each table counts its partition from itself, and the next table from
    // the first table.
    entry(&mut disk, 400, 0, 0x82, 8, 50);
    entry(&mut disk, 400, 1, 0x05, 300, 100);
    entry(&mut disk, 700, 0, 0x83, 4, 60);
    label(&mut disk, 200, 200);
    disk
}

/// `0fc63daf-8483-4772-8e79-3d69d8477de4`
const LINUX: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];
/// `516e7cb4-6ecf-11d6-8ff8-00022d09712b`
const BSD: [u8; 16] = [
    0xb4, 0x7c, 0x6e, 0x51, 0xcf, 0x6e, 0xd6, 0x11, 0x8f, 0xf8, 0x00, 0x02, 0x2d, 0x09, 0x71, 0x2b,
];

fn gpt() -> Vec<u8> {
    gpt_of(LINUX)
}

/// A GPT of two partitions of a type.
fn gpt_of(kind: [u8; 16]) -> Vec<u8> {
    let mut disk = vec![0; 2000 * SECTOR];
    entry(&mut disk, 0, 0, 0xee, 1, 1999);
    let mut entries = vec![0; 128 * 128];
    for (number, first, last, name) in [(0, 100_u64, 299_u64, "root"), (4, 300, 1000, "größe")] {
        let at = number * 128;
        put(&mut entries, at, &kind);
        put(&mut entries, at + 16, &[number as u8 + 1; 16]);
        put(&mut entries, at + 32, &first.to_le_bytes());
        put(&mut entries, at + 40, &last.to_le_bytes());
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(&mut entries, at + 56, &units);
    }
    for (own, other, entries_at) in [(1_u64, 1999_u64, 2_u64), (1999, 1, 1967)] {
        let mut header = vec![0; 92];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 8, &0x1_0000_u32.to_le_bytes());
        put(&mut header, 12, &92_u32.to_le_bytes());
        for (at, value) in [
            (24, own),
            (32, other),
            (40, 34),
            (48, 1966),
            (72, entries_at),
        ] {
            put(&mut header, at, &value.to_le_bytes());
        }
        put(&mut header, 80, &128_u32.to_le_bytes());
        put(&mut header, 84, &128_u32.to_le_bytes());
        put(&mut header, 88, &crc32(&entries).to_le_bytes());
        let crc = crc32(&header);
        put(&mut header, 16, &crc.to_le_bytes());
        put(&mut disk, own as usize * SECTOR, &header);
        put(&mut disk, entries_at as usize * SECTOR, &entries);
    }
    disk
}

fn read(disk: &[u8]) -> Option<PartitionTable> {
    PartitionTable::read(&MemoryDevice::from_bytes(disk.to_vec())).unwrap()
}

/// Names, first sectors and numbers of sectors.
fn list(table: &PartitionTable) -> Vec<(&str, u64, u64)> {
    let sectors = |bytes: u64| bytes / SECTOR as u64;
    table
        .partitions
        .iter()
        .map(|p| {
            (
                p.name.as_str(),
                sectors(p.offset_bytes),
                sectors(p.len_bytes),
            )
        })
        .collect()
}

#[test]
fn an_mbr_with_logical_partitions_and_a_label() {
    let table = read(&mbr()).unwrap();
    assert_eq!((table.scheme, &table.notes), (Scheme::Mbr, &Vec::new()));
    let wanted = [
        ("1", 64, 100),
        ("2", 200, 100),
        ("2a", 216, 50),
        ("2b", 266, 20),
        ("4", 400, 1000),
        ("5", 408, 50),
        ("6", 704, 60),
    ];
    assert_eq!(list(&table), wanted);
    assert_eq!(table.get("2a").unwrap().meaning, Some("4.2BSD"));
    assert_eq!(table.get("6").unwrap().kind, "0x83");
}

#[test]
fn a_label_counts_from_the_disk_or_from_its_slice_and_needs_no_mbr() {
    let mut disk = mbr();
    label(&mut disk, 200, 0);
    assert_eq!(list(&read(&disk).unwrap()), list(&read(&mbr()).unwrap()));
    let mut alone = vec![0; 200 * SECTOR];
    label(&mut alone, 0, 0);
    let table = read(&alone).unwrap();
    assert_eq!(table.scheme, Scheme::Bsd);
    assert_eq!(list(&table), [("a", 16, 50), ("b", 66, 20)]);
    // With a wrong checksum it does not count.
    alone[SECTOR + 150] ^= 1;
    assert_eq!(read(&alone), None);
}

#[test]
fn a_label_may_be_in_a_partition_of_a_gpt() {
    for base in [0, 100] {
        let mut disk = gpt_of(BSD);
        label(&mut disk, 100, base);
        let table = read(&disk).unwrap();
        let wanted = [
            ("1", 100, 200),
            ("1a", 116, 50),
            ("1b", 166, 20),
            ("5", 300, 701),
        ];
        assert_eq!((table.scheme, list(&table)), (Scheme::Gpt, wanted.to_vec()));
        assert_eq!(table.get("1").unwrap().meaning, Some("FreeBSD"));
        assert_eq!(table.get("1a").unwrap().scheme, Scheme::Bsd);
        // In a partition of another type no label is looked for.
        let mut disk = gpt();
        label(&mut disk, 100, base);
        assert_eq!(list(&read(&disk).unwrap()).len(), 2);
    }
}

#[test]
fn a_gpt_and_its_copy() {
    let disk = gpt();
    let wanted = [("1", 100, 200), ("5", 300, 701)];
    let table = read(&disk).unwrap();
    assert_eq!(
        (table.scheme, list(&table), table.notes.len()),
        (Scheme::Gpt, wanted.to_vec(), 0)
    );
    assert_eq!(table.get("5").unwrap().label.as_deref(), Some("größe"));
    assert_eq!(table.get("1").unwrap().meaning, Some("Linux"));
    // If the header or the entries are damaged, the copy is used. If both copies are, nothing is
    // believed.
    for damaged in [SECTOR + 40, 2 * SECTOR + 33] {
        let mut disk = disk.clone();
        disk[damaged] ^= 1;
        let table = read(&disk).unwrap();
        assert_eq!(list(&table), wanted);
        assert!(
            table.notes[0].contains("copy at its end"),
            "{:?}",
            table.notes
        );
        disk[1999 * SECTOR + 20] ^= 1;
        let table = read(&disk).unwrap();
        assert!(
            table.partitions.is_empty() && table.notes.len() == 1,
            "{table:?}"
        );
    }
}

#[test]
fn what_is_no_table_is_none() {
    assert_eq!(read(&vec![0; 100 * SECTOR]), None);
    assert_eq!(read(&[]), None);
    // A file system's boot sector: the two bytes, and code in place of entries.
    let mut boot = vec![0xb8; 100 * SECTOR];
    put(&mut boot, 510, &[0x55, 0xaa]);
    assert_eq!(read(&boot), None);
}

#[test]
fn what_lies_outside_is_left_out_and_circles_end() {
    let mut disk = mbr();
    entry(&mut disk, 0, 2, 0x83, 1990, 100);
    // The second table leads to itself.
    entry(&mut disk, 700, 1, 0x05, 300, 100);
    let table = read(&disk).unwrap();
    assert!(table.get("3").is_none());
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.contains("partition 3 is left out")),
        "{:?}",
        table.notes
    );
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.contains("more than 128 tables")),
        "{:?}",
        table.notes
    );
    entry(&mut disk, 700, 1, 0x05, u32::MAX, 100);
    assert!(read(&disk).is_some());
    for at in (0..disk.len()).step_by(7).take(500) {
        let mut damaged = disk.clone();
        damaged[at] ^= 0xff;
        for partition in read(&damaged).map(|t| t.partitions).unwrap_or_default() {
            assert!(partition.offset_bytes + partition.len_bytes <= disk.len() as u64);
        }
    }
}

#[test]
fn a_partition_is_a_device_of_its_own() {
    let disk: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(mbr()));
    let table = PartitionTable::read(&*disk).unwrap().unwrap();
    let part = PartitionDevice::new(disk.clone(), table.get("2a").unwrap()).unwrap();
    assert_eq!(part.size_bytes(), 50 * 512);
    part.write(512, &[7; 512]).unwrap();
    part.flush().unwrap();
    let mut bytes = [0; 512];
    disk.read(217 * 512, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 512]);
    assert!(part.read(49 * 512 + 1, &mut bytes).is_err());
    assert!(part.write(50 * 512, &[1]).is_err());
    assert!(part.name().ends_with("#2a"));
    assert_eq!(part.next_data(0).unwrap(), Some(0..50 * 512));
}

#[test]
fn partx_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for (name, disk) in [("mbr", mbr()), ("gpt", gpt())] {
        let path = dir.path().join(name);
        std::fs::write(&path, &disk).unwrap();
        let done = Command::new("partx")
            .args(["-g", "-b", "-o", "NR,START,SECTORS", "--show"])
            .arg(&path)
            .output();
        let Ok(done) = done else {
            eprintln!("skipped: there is no partx (Debian package util-linux)");
            return;
        };
        let text = String::from_utf8(done.stdout).unwrap();
        let theirs: Vec<Vec<u64>> = text
            .lines()
            .map(|line| {
                line.split_whitespace()
                    .map(|w| w.parse().unwrap())
                    .collect()
            })
            .collect();
        let table = read(&disk).unwrap();
        // `partx` gives a label's partitions further numbers, and shows the first two sectors of
        // the extended one.
        for (name, start, sectors) in list(&table) {
            let Ok(number) = name.parse::<u64>() else {
                continue;
            };
            let row = theirs.iter().find(|row| row[0] == number);
            let row = row.unwrap_or_else(|| panic!("partx has no {number}: {text}"));
            assert_eq!(row[1], start, "{name}: {text}");
            assert!(
                row[2] == sectors || table.get(name).unwrap().meaning == Some("extended"),
                "{name}: {text}"
            );
        }
    }
}
