//! `docs/FORMAT.md` against the structures of the write log: every field, in order, with its place and size.

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
fn documented(document: &str, structure: &str) -> Vec<Field> {
    let mark = format!("<!-- write log: struct {structure} in write_log/raw.rs -->");
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

#[test]
fn the_document_has_every_field_of_the_write_log() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("../../docs/FORMAT.md")).unwrap();
    let superblock = fields!(RawSuper: magic 8, version 8, nr_entries 8, sectorsize 4);
    assert_eq!(documented(&document, "RawSuper"), superblock);
    let entry = fields!(RawEntry: sector 8, nr_sectors 8, flags 8, data_len 8);
    assert_eq!(documented(&document, "RawEntry"), entry);
}
