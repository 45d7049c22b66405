//! `docs/FORMAT.md` against the structures of the write log and of undo files: every field, in
//! order, with its place and size.

use backstitch_device::undo::raw::{self as undo, RawHeader, RawKey, RawKeys};
use backstitch_device::write_log::raw::{RawEntry, RawSuper};
use std::mem::offset_of;
use std::path::Path;

type Field = (usize, usize, String);

fn field(offset: usize, bytes: usize, name: &str) -> Field {
    (offset, bytes, name.to_owned())
}

macro_rules! fields {
    ($structure:ident: $($name:ident $bytes:literal),*) => {{
        let fields = vec![$(field(offset_of!($structure, $name), $bytes, stringify!($name))),*];
        let last = fields.last().map(|(offset, bytes, _)| offset + bytes);
        assert_eq!(last, Some(size_of::<$structure>()), "a field is missing here");
        fields
    }};
}

/// Rows of the table that follows a structure's mark.
fn documented(document: &str, what: &str, structure: &str) -> Vec<Field> {
    let mark = format!(
        "<!-- {what}: struct {structure} in {}/raw.rs -->",
        module(what)
    );
    let section = document.split(&mark).nth(1);
    let section = section.unwrap_or_else(|| panic!("docs/FORMAT.md has no {mark}"));
    let section = section.split("\n## ").next().unwrap_or(section);
    section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| 0x")?.split(" | ");
            let offset = usize::from_str_radix(cells.next()?, 16).ok()?;
            let bytes = cells.next()?.parse().ok()?;
            Some(field(offset, bytes, cells.next()?.trim_matches('`')))
        })
        .collect()
}

/// The module that has the structures.
fn module(what: &str) -> &'static str {
    match what {
        "write log" => "write_log",
        _ => "undo",
    }
}

fn document() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../../docs/FORMAT.md")).unwrap()
}

#[test]
fn the_document_has_every_field_of_undo_files() {
    let document = document();
    let header = fields!(RawHeader: magic 8, num_keys 8, super_offset 8, key_offset 8, block_size 4, fs_block_size 4,
        sb_crc 4, state 4, f_compat 4, f_incompat 4, f_rocompat 4, pad32 4, fs_offset 8, x_magic 8, x_device_bytes 8,
        x_sectors 400, x_padding 20, header_crc 4);
    assert_eq!(documented(&document, "undo file", "RawHeader"), header);
    let keys = fields!(RawKeys: magic 4, crc 4, reserved 8);
    assert_eq!(documented(&document, "undo file", "RawKeys"), keys);
    let key = fields!(RawKey: fsblk 8, blk_crc 4, size 4);
    assert_eq!(documented(&document, "undo file", "RawKey"), key);
    // The values that the text states.
    let magic = |bytes: [u8; 8]| format!("`{}`", String::from_utf8_lossy(&bytes));
    for stated in [
        magic(undo::MAGIC),
        magic(undo::OURS),
        format!("{:#x}", undo::KEYS_MAGIC),
    ] {
        assert!(document.contains(&stated), "{stated}");
    }
}

#[test]
fn the_document_has_every_field_of_the_write_log() {
    let document = document();
    let superblock = fields!(RawSuper: magic 8, version 8, nr_entries 8, sectorsize 4);
    assert_eq!(documented(&document, "write log", "RawSuper"), superblock);
    let entry = fields!(RawEntry: sector 8, nr_sectors 8, flags 8, data_len 8);
    assert_eq!(documented(&document, "write log", "RawEntry"), entry);
}
