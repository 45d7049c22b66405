//! Damaged indexes: no name is lost, and our check comes to e2fsck's verdict.

use std::sync::Arc;

use backstitch_device::MemoryDevice;
use backstitch_vfs::FileType;

use super::image::{Image, Random, directory, fill, list, mount, run};
use crate::support::{check, new_inode};

/// The offsets of the index blocks of `/d` in an image of blocks of 1 KiB: the root first.
fn index_blocks(image: &Image) -> Vec<usize> {
    let said = image.debugfs("blocks /d");
    let blocks: Vec<usize> = said
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    let bytes = image.bytes();
    let is_node = |at: &usize| bytes[*at..*at + 4] == [0; 4] && bytes[at + 8..at + 10] == [127, 0];
    let nodes = blocks[1..].iter().map(|b| b * 1024).filter(is_node);
    std::iter::once(blocks[0] * 1024).chain(nodes).collect()
}

#[test]
fn no_name_is_lost_to_a_hostile_index() {
    let image = Image::new("hostile", &["-b", "1024", "-N", "100"], "24m");
    let names = 2_500;
    image.with("journal=ordered", |e| {
        assert_eq!(fill(e, 250, 0, names), names)
    });
    let good = image.bytes();
    let nodes = index_blocks(&image);
    assert!(nodes.len() > 2, "{nodes:?}");
    let mut random = Random(5);
    let mut distrusted = 0;
    for round in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let node = nodes[random.below(nodes.len())];
            // The root's own fields and the entry counts are hit more often than the rest.
            let start = if node == nodes[0] { 24 } else { 8 };
            let at = match random.below(3) {
                0 => start + random.below(16),
                _ => start + random.below(200),
            };
            let value = random.below(256) as u8;
            bytes[node + at] = value;
        }
        if round % 5 == 0 {
            // A circle, or a block twice.
            let node = nodes[random.below(nodes.len())];
            let at = node + if node == nodes[0] { 32 } else { 8 } + 8 * random.below(5);
            bytes[at + 4] = random.below(8) as u8;
            bytes[at + 5] = 0;
        }
        let memory = Arc::new(MemoryDevice::from_bytes(bytes));
        let engine = mount(memory.clone(), "journal=ordered");
        let d = directory(&engine);
        for index in (0..names).step_by(23).chain([names - 1]) {
            let name = format!("{index:0250}");
            let found = engine.lookup(d, name.as_bytes());
            assert!(found.is_ok(), "round {round}: {index} is lost");
        }
        assert!(engine.lookup(d, b"not there").is_err());
        engine
            .create(d, b"new", &new_inode(FileType::Regular))
            .unwrap();
        engine.unlink(d, format!("{:0250}", 3).as_bytes()).unwrap();
        assert_eq!(list(&engine, d).len(), names, "round {round}");
        engine.unmount().unwrap();
        std::fs::write(&image.path, memory.snapshot()).unwrap();
        let flags = image.debugfs("stat /d");
        distrusted += usize::from(!flags.contains("Flags: 0x1000"));
        image.assert_sound(&format!("round {round}"));
    }
    assert!(
        distrusted > 20,
        "only {distrusted} of 60 indexes were refused"
    );
}

#[test]
fn verdicts_on_damaged_indexes_are_those_of_e2fsck_and_repair_keeps_the_names() {
    let cases: [(&str, &[&str], usize, usize); 2] = [
        ("damaged-two", &["-b", "1024", "-N", "100"], 1_200, 60),
        (
            "damaged-three",
            &["-b", "1024", "-N", "100", "-O", "large_dir"],
            25_000,
            6,
        ),
    ];
    for (case, (name, options, names, rounds)) in cases.into_iter().enumerate() {
        let image = Image::new(name, options, "64m");
        image.with("journal=ordered", |e| {
            assert_eq!(fill(e, 250, 0, names), names)
        });
        assert_eq!(image.levels(), Some(1 + case as u32));
        let (good, nodes) = (image.bytes(), index_blocks(&image));
        let (mut random, mut found, mut stricter) = (Random(11 + case as u64), 0, 0);
        for round in 0..rounds {
            let mut bytes = good.clone();
            let node = match random.below(2) {
                0 => nodes[0],
                _ => nodes[random.below(nodes.len())],
            };
            let (start, table) = if node == nodes[0] { (24, 32) } else { (8, 8) };
            let count = usize::from(bytes[node + table + 2]);
            let at = match random.below(3) {
                0 => random.below(16),
                _ => random.below(8 * count.max(2)),
            };
            bytes[node + start + at] = random.below(256) as u8;
            std::fs::write(&image.path, &bytes).unwrap();
            let (code, said) = run("timeout", &["20", "e2fsck", "-fn", &image.word()]);
            let ours = check(&MemoryDevice::from_bytes(bytes.clone()));
            let what = format!("{name}, round {round}, byte {at} of block {}", node / 1024);
            // e2fsck accepts a border above index blocks that is too low for names in the block
            // before. A program that searches by this border (the kernel, too) does not find them.
            let is_excluded = |f: &backstitch_layout::tools::Finding| f.what.contains("excludes");
            if code == Some(0) && !ours.is_clean() && ours.findings.iter().all(is_excluded) {
                stricter += 1;
            } else {
                assert_eq!(
                    code == Some(0),
                    ours.is_clean(),
                    "{what}: {:?}\n{said}",
                    ours.findings
                );
            }
            if ours.is_clean() {
                continue;
            }
            found += 1;
            let memory = MemoryDevice::from_bytes(bytes);
            let options = backstitch_layout::tools::RepairOptions {
                guess_geometry: false,
                mode: backstitch_layout::tools::Mode::All,
                now_seconds: 1_700_000_000,
                check: Default::default(),
            };
            backstitch_formats::usual()
                .repair(&memory, &options)
                .unwrap();
            std::fs::write(&image.path, memory.snapshot()).unwrap();
            image.assert_sound(&what);
            image.with("journal=ordered", |engine| {
                let d = directory(engine);
                assert_eq!(list(engine, d).len(), names, "{what}");
            });
        }
        assert!(stricter <= rounds / 6, "{name}: {stricter} of {rounds}");
        assert!(
            found > rounds / 4,
            "{name}: {found} of {rounds} were damages"
        );
    }
}
