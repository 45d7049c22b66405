//! `docs/FORMAT.md` against the structures of a record: every field, in order, with its place and
//! size.

use backstitch_lffs::record::{ENDS_GROUP, RawOperation, RawSpan, ZEROS_FOLLOW, kind_name};
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
    let mark = format!("<!-- log of operations: struct {structure} in lffs/src/record.rs -->");
    let section = document.split(&mark).nth(1).expect("the mark");
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
    let operation =
        fields!(RawOperation: kind 1, flags 1, name_bytes 2, spans 4, freed 4, unused 4, object 8);
    assert_eq!(documented(&document, "RawOperation"), operation);
    let span = fields!(RawSpan: block 8, offset_bytes 2, flags 2, len_bytes 4);
    assert_eq!(documented(&document, "RawSpan"), span);
}

#[test]
fn the_document_names_the_operations_as_the_code_numbers_them() {
    assert_eq!((ENDS_GROUP, ZEROS_FOLLOW), (1, 1));
    let document = document();
    for (kind, name) in [
        (1, "create"),
        (3, "remove"),
        (4, "rename"),
        (11, "background"),
        (13, "exchange"),
    ] {
        assert_eq!(kind_name(kind), name);
        assert!(document.contains(&format!("{kind} {name}")), "{name}");
    }
    assert_eq!(kind_name(200), "unknown");
}
