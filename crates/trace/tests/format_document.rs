//! `docs/FORMAT.md` says what the code does.

use backstitch_trace::record::KINDS;
use backstitch_trace::{CHUNK_HEAD_BYTES, HEAD_BYTES, VERSION};

/// The rows of the table below a heading, each as its cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let document = std::fs::read_to_string(path).unwrap();
    let section = document.split(&format!("\n## {heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("there is no '{heading}'"));
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter(|line| line.starts_with("| "));
    rows.skip(1)
        .map(|row| {
            let cells = row.trim_matches('|').split('|');
            cells
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}

#[test]
fn the_records_are_those_of_the_document() {
    let rows = table("Trace: records");
    let listed: Vec<(u8, &str)> = rows
        .iter()
        .map(|row| (row[0].parse().unwrap(), &row[1][..]))
        .collect();
    let known: Vec<(u8, &str)> = (0..).zip(KINDS).collect();
    assert_eq!(listed, known);
}

/// The offset behind a table's last field.
fn end_of(heading: &str) -> usize {
    let mut end = 0;
    for row in table(heading) {
        let offset = usize::from_str_radix(row[0].trim_start_matches("0x"), 16).unwrap();
        let bytes: usize = row[1].parse().unwrap();
        assert_eq!(offset, end, "{row:?}");
        end = offset + bytes;
    }
    end
}

#[test]
fn the_heads_are_as_long_as_the_document_says() {
    assert_eq!(end_of("Trace: head"), HEAD_BYTES);
    assert_eq!(end_of("Trace: chunk"), CHUNK_HEAD_BYTES);
    let head = table("Trace: head");
    let version = head.iter().find(|row| row[2] == "version").unwrap();
    assert!(version[3].contains(&VERSION.to_string()), "{version:?}");
}
