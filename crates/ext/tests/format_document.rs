//! `docs/FORMAT.md` against the structures in the code: every field, in order, with its place and
//! size.

use std::path::Path;

/// Fields of a structure as the source declares them: (offset, bytes, name).
fn fields_in_source(source: &str, name: &str) -> Vec<(usize, usize, String)> {
    let start = source
        .find(&format!("pub struct {name} {{"))
        .expect("the structure is declared");
    let body = &source[start..start + source[start..].find("\n}").expect("the structure ends")];
    let mut offset = 0;
    let mut fields = Vec::new();
    for line in body.lines().skip(1) {
        let Some((field, kind)) = line
            .trim()
            .strip_prefix("pub ")
            .and_then(|l| l.split_once(": "))
        else {
            continue;
        };
        let bytes = bytes_of(kind.trim_end_matches(','));
        fields.push((offset, bytes, field.to_string()));
        offset += bytes;
    }
    fields
}

fn bytes_of(kind: &str) -> usize {
    match kind {
        "u8" => 1,
        "U16" => 2,
        "U32" => 4,
        "U64" => 8,
        "RawMountRecord" => 24,
        "RawLogRecord" => 28,
        "POINTERS" => 15,
        array => {
            let (element, count) = array
                .trim_matches(['[', ']'])
                .split_once("; ")
                .unwrap_or_else(|| panic!("a field of kind {kind}"));
            let count = count.parse().unwrap_or_else(|_| bytes_of(count));
            bytes_of(element) * count
        }
    }
}

/// Rows of the table that follows a structure's mark.
fn fields_in_document(document: &str, mark: &str) -> Vec<(usize, usize, String)> {
    let section = document
        .split(mark)
        .nth(1)
        .expect("the document has the structure");
    let section = section.split("\n## ").next().unwrap_or(section);
    section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| 0x")?.split(" | ");
            let offset = usize::from_str_radix(cells.next()?, 16).ok()?;
            let bytes = cells.next()?.parse().ok()?;
            Some((offset, bytes, cells.next()?.trim_matches('`').to_string()))
        })
        .collect()
}

#[test]
fn the_document_has_every_field_in_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("../../docs/FORMAT.md")).unwrap();
    let mut structures = 0;
    for mark in document.lines().filter(|l| l.starts_with("<!-- struct ")) {
        let words: Vec<&str> = mark.split_whitespace().collect();
        let (name, file) = (words[2], words[4]);
        let source = std::fs::read_to_string(root.join("src/format").join(file)).unwrap();
        let expected = fields_in_source(&source, name);
        assert!(!expected.is_empty());
        assert_eq!(fields_in_document(&document, mark), expected, "{name}");
        structures += 1;
    }
    assert_eq!(structures, 16);
}
