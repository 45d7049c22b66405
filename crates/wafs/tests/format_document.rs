//! `docs/FORMAT.md` against the structures of the log: every field, in order, with its place and
//! size.

use backstitch_wafs::format::{
    LEAST_LOG_BYTES, LONGEST_PAYLOAD_BYTES, MAGIC, RecordHeader, Superblock, VERSION,
};
use std::mem::offset_of;
use std::path::Path;

type Field = (usize, usize, String);

macro_rules! fields {
    ($structure:ident: $($name:ident $bytes:literal),*) => {{
        let fields = vec![$((offset_of!($structure, $name), $bytes, stringify!($name).to_owned())),*];
        let last = fields.last().map(|(offset, bytes, _): &Field| offset + bytes);
        assert_eq!(last, Some(size_of::<$structure>()), "a field is missing here");
        fields
    }};
}

fn document() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../../docs/FORMAT.md")).unwrap()
}

/// Rows of the table that follows a structure's mark.
fn documented(document: &str, structure: &str) -> Vec<Field> {
    let mark = format!("<!-- write-ahead log: struct {structure} in wafs/src/format.rs -->");
    let section = document
        .split(&mark)
        .nth(1)
        .expect("the document has the mark");
    let section = section.split("\n## ").next().unwrap_or(section);
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| 0x")?.split(" | ");
        let offset = usize::from_str_radix(cells.next()?, 16).ok()?;
        let bytes = cells.next()?.parse().ok()?;
        Some((offset, bytes, cells.next()?.trim_matches('`').to_owned()))
    };
    section.lines().filter_map(row).collect()
}

#[test]
fn the_document_has_every_field() {
    let document = document();
    let superblock = fields!(Superblock: magic 8, version 4, checksum 4, uuid 16, generation 8, log_bytes 8, start 8,
        end 8, mount 8, flags 4, last_record_bytes 4, time 8, owner 4, unused 420);
    assert_eq!(documented(&document, "Superblock"), superblock);
    let header = fields!(RecordHeader: checksum 4, payload_checksum 4, len_bytes 4, back_bytes 4, lsn 8, time 8,
        mount 8);
    assert_eq!(documented(&document, "RecordHeader"), header);
}

#[test]
fn the_document_states_the_values_of_the_code() {
    let document = document();
    let magic = String::from_utf8_lossy(&MAGIC).into_owned();
    assert_eq!((VERSION, LEAST_LOG_BYTES), (1, 16_384));
    assert_eq!(LONGEST_PAYLOAD_BYTES, 67_108_864);
    for stated in [&*magic, "67,108,864", "at least 16,384"] {
        assert!(document.contains(stated), "{stated}");
    }
}
