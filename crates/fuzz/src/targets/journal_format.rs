//! The records of a journal, each by itself.
//!
//! The input is the size of a block (1 byte), a superblock of 1024 bytes, and a block that may be
//! any record. Without a valid superblock the features come from its first bytes.

use backstitch_device::MemoryDevice;
use backstitch_journal::format::commit::Commit;
use backstitch_journal::format::superblock::SUPERBLOCK_BYTES;
use backstitch_journal::format::{
    Checksums, ExternalJournal, Features, Header, Sequence, Superblock, TagFormat, commit,
    descriptor, revoke,
};

use crate::Input;

/// Blocks of the journal. Any number would do.
const BLOCKS: u32 = 4096;

/// A record that can be read claims no more than fits into its block. What is written can be read
/// again.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let block_bytes = 1024 << (input.byte() % 3);
    let mut head = [0; SUPERBLOCK_BYTES];
    let taken = input.bytes(SUPERBLOCK_BYTES);
    head[..taken.len()].copy_from_slice(taken);
    let mut block = vec![0; block_bytes as usize];
    let record = input.bytes(block_bytes as usize);
    block[..record.len()].copy_from_slice(record);
    external(bytes);
    let (features, uuid) = match Superblock::parse(&head, block_bytes, BLOCKS, 0) {
        Ok(sb) => superblock(sb, &head),
        Err(_) => {
            let word = |at: usize| u32::from(head[at]);
            let features = Features {
                compat: word(0),
                incompat: word(1),
                ro_compat: word(2),
            };
            (features, [head[3]; 16])
        }
    };
    let _ = (
        features.names(),
        features.unreplayable(),
        features.unwritable(),
    );
    let checksums = Checksums::new(features, &uuid);
    let _ = (checksums.tail_holds(&block), checksums.commit_holds(&block));
    tags(block_bytes, features, &checksums, &uuid, &block);
    revokes(block_bytes, features, &checksums, &block);
    commits(block_bytes, &checksums, &block);
    let _ = Header::parse(&block).and_then(|header| header.kind());
}

fn external(bytes: &[u8]) {
    let mut device = bytes.to_vec();
    device.resize(device.len().max(8192), 0);
    if let Ok(Some(found)) = ExternalJournal::read(&MemoryDevice::from_bytes(device)) {
        let _ = (found.map.blocks(), found.map.block(found.map.superblock()));
    }
}

fn superblock(mut sb: Superblock, head: &[u8; SUPERBLOCK_BYTES]) -> (Features, [u8; 16]) {
    assert_eq!(sb.encode(), *head);
    assert!(sb.first < sb.end && sb.end <= sb.blocks);
    let positions = [sb.first, sb.start.max(sb.first), sb.end - 1];
    for (position, distance) in positions.into_iter().zip([1, sb.log_blocks(), u32::MAX]) {
        let moved = sb.advance(position, distance);
        assert!((sb.first..sb.end).contains(&moved));
    }
    let (features, uuid) = (sb.features, sb.uuid);
    sb.set_tail(sb.first, Sequence(u32::MAX));
    sb.set_user([3; 16]);
    sb.set_features(features);
    let again = Superblock::parse(&sb.encode(), sb.block_bytes, BLOCKS, 0);
    assert!(again.is_ok(), "{again:?}");
    (features, uuid)
}

fn tags(
    block_bytes: u32,
    features: Features,
    checksums: &Checksums,
    uuid: &[u8; 16],
    block: &[u8],
) {
    let format = TagFormat::new(features, checksums);
    let found: Vec<_> = format.tags(block).collect();
    assert!(found.len() <= block.len() / format.tag_bytes());
    let copies: Vec<_> = found
        .iter()
        .take(format.capacity(block_bytes))
        .map(|tag| (tag.block, tag.is_escaped(), tag.checksum))
        .collect();
    if copies.is_empty() {
        return;
    }
    let sequence = Sequence(7);
    let written = descriptor::encode(block_bytes, &format, checksums, uuid, sequence, &copies);
    assert!(checksums.tail_holds(&written));
    let read: Vec<_> = format
        .tags(&written)
        .map(|tag| (tag.block, tag.is_escaped(), tag.checksum))
        .collect();
    assert_eq!(read, copies);
}

fn revokes(block_bytes: u32, features: Features, checksums: &Checksums, block: &[u8]) {
    let Some(records) = revoke::records(block, features, checksums) else {
        return;
    };
    let blocks: Vec<u64> = records.collect();
    assert!(blocks.len() <= revoke::capacity(block_bytes, features, checksums));
    let written = revoke::encode(block_bytes, features, checksums, Sequence(7), &blocks);
    assert!(checksums.tail_holds(&written));
    let read = revoke::records(&written, features, checksums);
    assert!(read.is_some_and(|read| read.eq(blocks)));
}

fn commits(block_bytes: u32, checksums: &Checksums, block: &[u8]) {
    let Some(found) = Commit::parse(block) else {
        return;
    };
    let time = (found.seconds, found.nanoseconds);
    let written = commit::encode(block_bytes, checksums, Sequence(7), time, 9);
    assert!(checksums.commit_holds(&written));
    let again = Commit::parse(&written).expect("a commit block that was just written");
    assert_eq!((again.seconds, again.nanoseconds), time);
}
