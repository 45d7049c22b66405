//! `docs/FORMAT.md` against the structures in the code: every field, in order, with its place and
//! size.

use std::path::Path;

/// Fields of a structure as the source declares them: (offset, bytes, name).
fn fields_in_source(source: &str, name: &str) -> Vec<(usize, usize, String)> {
    let start = source.find(&format!("pub struct {name}, ")).unwrap();
    let body = &source[start..start + source[start..].find("\n    }").unwrap()];
    let mut offset = 0;
    let mut fields = Vec::new();
    for line in body.lines().skip(1) {
        let field = line.trim().strip_prefix("pub ");
        let Some((field, kind)) = field.and_then(|line| line.split_once(": ")) else {
            continue;
        };
        let bytes = bytes_of(kind.trim_end_matches(','));
        fields.push((offset, bytes, field.to_owned()));
        offset += bytes;
    }
    fields
}

fn bytes_of(kind: &str) -> usize {
    match kind {
        "u8" | "i8" => 1,
        "u16" | "i16" => 2,
        "u32" | "i32" => 4,
        "u64" | "i64" => 8,
        "RawSummary" => 16,
        "RawSummaryTotal" => 64,
        "ATTRIBUTE_POINTERS" => 2,
        "FRAGMENTS_MAX" => 8,
        "DIRECT_POINTERS" => 12,
        array => {
            let inner = array.trim_matches(['[', ']']).split_once("; ");
            let (element, count) = inner.unwrap_or_else(|| panic!("a field of kind {kind}"));
            let count = count.parse().unwrap_or_else(|_| bytes_of(count));
            bytes_of(element) * count
        }
    }
}

/// Rows of the table that follows a structure's mark.
fn fields_in_document(document: &str, mark: &str) -> Vec<(usize, usize, String)> {
    let section = document.split(mark).nth(1).unwrap();
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
fn the_document_has_every_field_in_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("../../docs/FORMAT.md")).unwrap();
    let mut structures = 0;
    for mark in document
        .lines()
        .filter(|line| line.starts_with("<!-- ufs struct "))
    {
        let words: Vec<&str> = mark.split_whitespace().collect();
        let (name, file) = (words[3], words[5]);
        let path = root.join("../ufs/src/format").join(file);
        let source = std::fs::read_to_string(path).unwrap();
        let expected = fields_in_source(&source, name);
        assert!(!expected.is_empty());
        assert_eq!(fields_in_document(&document, mark), expected, "{name}");
        structures += 1;
    }
    assert_eq!(structures, 9);
}
