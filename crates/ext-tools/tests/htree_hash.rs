//! The hashes of names beside debugfs: every version, several seeds, names of every length with
//! bytes from all over.

use std::io::Write;

use crate::support::have;
use backstitch_ext::format::htree::{
    HASH_HALF_MD4, HASH_HALF_MD4_UNSIGNED, HASH_LEGACY, HASH_LEGACY_UNSIGNED, HASH_TEA,
    HASH_TEA_UNSIGNED, hash,
};

const VERSIONS: [u8; 6] = [
    HASH_LEGACY,
    HASH_HALF_MD4,
    HASH_TEA,
    HASH_LEGACY_UNSIGNED,
    HASH_HALF_MD4_UNSIGNED,
    HASH_TEA_UNSIGNED,
];

/// A seed as the superblock's bytes, and as debugfs takes it.
fn seed(bytes: [u8; 16]) -> ([u32; 4], String) {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    }
    let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    let text = [
        part(0..4),
        part(4..6),
        part(6..8),
        part(8..10),
        part(10..16),
    ]
    .join("-");
    (words, text)
}

#[test]
fn hashes_of_any_name_are_those_of_debugfs() {
    if !have("debugfs", "e2fsprogs") {
        return;
    }
    let mut state = 7_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as u8
    };
    let mut folder = tempfile::NamedTempFile::new().unwrap();
    let mut expected = Vec::new();
    let seeds = [
        [0; 16],
        [0xff; 16],
        std::array::from_fn(|i| (i as u8).wrapping_mul(17).wrapping_add(3)),
    ];
    for seed_bytes in seeds {
        let (words, text) = seed(seed_bytes);
        for version in VERSIONS {
            // debugfs reads lines of 1024 bytes, and words between quotes.
            for length in (1..=255).step_by(3) {
                let name: Vec<u8> = (0..length)
                    .map(|_| match random() {
                        byte @ (b'"' | b'\\' | b'-' | 0..=b' ' | 0x7f) => byte % 26 + b'a',
                        byte => byte,
                    })
                    .collect();
                // By number: debugfs takes the name of a version for unsigned characters as the
                // first version.
                let command = format!("dx_hash -h {version} -s {text} ");
                folder.write_all(command.as_bytes()).unwrap();
                folder.write_all(&name).unwrap();
                folder.write_all(b"\n").unwrap();
                expected.push((version, hash(version, &words, &name).unwrap(), name));
            }
        }
    }
    let output = std::process::Command::new("debugfs")
        .arg("-f")
        .arg(folder.path())
        .output()
        .unwrap();
    // Names are shown as they are: only the end of a line is looked at.
    let said: Vec<u32> = output
        .stdout
        .split(|b| *b == b'\n')
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line);
            let (_, value) = line.rsplit_once(" is 0x")?;
            u32::from_str_radix(value.split(' ').next()?, 16).ok()
        })
        .collect();
    assert_eq!(said.len(), expected.len());
    for (said, (version, ours, name)) in said.iter().zip(&expected) {
        assert_eq!(said, ours, "version {version}: {}", name.escape_ascii());
    }
}
