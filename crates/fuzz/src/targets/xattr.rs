//! Extended attributes, in a block of their own or after an inode. The input is either, with the
//! size of the inode's extra part.

use backstitch_ext::format::xattr::{
    Attribute, Attributes, block_attributes, block_hash, build_block, compare, inode_attributes,
    split_name,
};

use crate::Input;

/// What can be read can be written and read again.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let extra = input.word();
    let rest = input.rest();
    if let Some(attributes) = inode_attributes(rest, extra) {
        look_at(attributes);
    }
    // Blocks have these sizes only.
    for size in [1024, 4096] {
        let mut block = vec![0; size];
        let length = rest.len().min(size);
        block[..length].copy_from_slice(&rest[..length]);
        let Ok(attributes) = block_attributes(&block) else {
            continue;
        };
        write_again(look_at(attributes), &block);
    }
}

fn look_at(attributes: Attributes<'_>) -> Vec<Attribute<'_>> {
    let is_whole = attributes.clone().end().is_some();
    let found: Vec<_> = attributes.clone().map_while(Result::ok).collect();
    let faults = attributes.filter(Result::is_err).count();
    assert!(faults <= 1, "it ends at the first fault");
    for attribute in &found {
        let _ = attribute.has_valid_hash();
        if let Some(name) = attribute.full_name() {
            let split = split_name(&name);
            assert!(split.is_none_or(|(index, rest)| {
                compare(index, rest, attribute.name_index, attribute.name).is_eq()
                    || index != attribute.name_index
            }));
        }
    }
    match is_whole && faults == 0 {
        true => found,
        false => Vec::new(),
    }
}

/// Attributes with the same name, and those with a value in an inode of its own, cannot be written.
fn write_again(mut found: Vec<Attribute<'_>>, block: &[u8]) {
    let key =
        |a: &Attribute<'_>, b: &Attribute<'_>| compare(a.name_index, a.name, b.name_index, b.name);
    // When written, it could not be distinguished from the end.
    found.retain(|attribute| attribute.name_index != 0 || !attribute.name.is_empty());
    found.sort_by(key);
    found.dedup_by(|a, b| key(a, b).is_eq());
    let parts: Vec<_> = found
        .iter()
        .map(|attribute| (attribute.name_index, attribute.name, attribute.value))
        .collect();
    let Some(written) = build_block(block.len(), &parts, 1) else {
        return;
    };
    let read = block_attributes(&written).expect("a block that was just built");
    let read: Vec<_> = read.map(|attribute| attribute.expect("as above")).collect();
    assert_eq!(read.len(), parts.len());
    let _ = block_hash(read.iter().map(|attribute| attribute.hash));
    for (attribute, part) in read.iter().zip(&parts) {
        assert!(attribute.has_valid_hash());
        assert_eq!(
            (attribute.name_index, attribute.name, attribute.value),
            *part
        );
    }
}
