//! Directory blocks by themselves: saving the names of a damaged one, and making a new one of them.

use backstitch_ext::format::NAME_MAX_BYTES;
use backstitch_ext::format::directory::{HEADER_SIZE, empty_block, encode_entry, required_len};
use backstitch_layout::InodeNumber;

/// A name that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) inode: InodeNumber,
    pub(super) file_type: u8,
    pub(super) name: Vec<u8>,
}

/// Whether an inode can be what an entry says.
pub(super) type Plausible<'p> = &'p dyn Fn(InodeNumber, u8) -> bool;

/// The names of a block, damaged or not. Where lengths do not add up, every place is tried, and an
/// entry is taken only if its name is valid and `plausible` says so.
pub(super) fn salvage(block: &[u8], plausible: Plausible<'_>) -> Vec<Saved> {
    let mut saved = Vec::new();
    let (mut at, mut is_lost) = (0, false);
    while let Some(head) = Head::read(block, at) {
        let room = if head.is_length {
            head.rec_len
        } else {
            block.len() - at
        };
        let text = &block[at + HEADER_SIZE..];
        let is_dot = head.is_sound() && text[..head.name_len] == *b".";
        let (name, length) = if is_dot && leads_to_entry(block, at + head.needed()) {
            // Nothing is ever removed between `.` and `..`: a longer `.` hides what follows it.
            (&text[..head.name_len], head.needed())
        } else if head.is_sound() {
            (&text[..head.name_len], head.rec_len)
        } else if head.name_len > 0 && leads_to_entry(block, at + head.needed()) {
            // The entry's length is wrong, the name's is right.
            (&text[..head.name_len], head.needed())
        } else {
            let name = first_word(&text[..room - HEADER_SIZE]);
            let length = if head.is_length {
                head.rec_len
            } else {
                required_len(name.len())
            };
            (name, length)
        };
        let is_sound = head.is_sound() && !is_lost;
        let is_likely = is_good_name(name) && plausible(head.inode, head.file_type);
        if head.inode != InodeNumber::NONE && (is_sound || is_likely) {
            saved.push(Saved {
                inode: head.inode,
                file_type: head.file_type,
                name: name.to_vec(),
            });
        }
        at += if is_sound || is_likely { length } else { 4 };
        is_lost |= !is_sound && !is_likely;
    }
    saved
}

/// The fixed part of an entry, or of what stands in its place.
struct Head {
    inode: InodeNumber,
    rec_len: usize,
    name_len: usize,
    file_type: u8,
    /// Whether the entry's length is possible.
    is_length: bool,
}

impl Head {
    /// `None` where the block has no room for one.
    fn read(block: &[u8], at: usize) -> Option<Head> {
        let head = block.get(at..at + HEADER_SIZE)?;
        let rec_len = usize::from(u16::from_le_bytes([head[4], head[5]]));
        Some(Head {
            inode: InodeNumber(u32::from_le_bytes([head[0], head[1], head[2], head[3]])),
            rec_len,
            name_len: usize::from(head[6]),
            file_type: head[7],
            is_length: rec_len >= required_len(1)
                && rec_len.is_multiple_of(4)
                && at + rec_len <= block.len(),
        })
    }

    /// The bytes that its name takes, with the header.
    fn needed(&self) -> usize {
        required_len(self.name_len)
    }

    /// Whether the name fits into the entry, and is not empty in an entry in use.
    fn is_sound(&self) -> bool {
        let has_name = self.name_len > 0 || self.inode == InodeNumber::NONE;
        self.is_length && has_name && self.needed() <= self.rec_len
    }
}

/// Whether the block ends here, or an entry with a name stands here.
fn leads_to_entry(block: &[u8], at: usize) -> bool {
    if at == block.len() {
        return true;
    }
    Head::read(block, at).is_some_and(|head| {
        let name = at + HEADER_SIZE..at + HEADER_SIZE + head.name_len;
        head.is_sound()
            && head.inode != InodeNumber::NONE
            && block.get(name).is_some_and(is_good_name)
    })
}

/// What lies before the first zero.
fn first_word(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(bytes.len()).min(NAME_MAX_BYTES);
    &bytes[..end]
}

/// Whether a name is valid.
pub(super) fn is_good_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// A block of these names; also how many fitted.
pub(super) fn build(block_size: usize, names: &[Saved]) -> (Vec<u8>, usize) {
    let mut fitting = 0;
    let mut total = 0;
    for name in names {
        let length = required_len(name.name.len());
        if total + length > block_size {
            break;
        }
        total += length;
        fitting += 1;
    }
    if fitting == 0 {
        return (empty_block(block_size), 0);
    }
    let mut block = Vec::with_capacity(block_size);
    for (index, name) in names[..fitting].iter().enumerate() {
        let length = if index + 1 == fitting {
            block_size - block.len()
        } else {
            required_len(name.name.len())
        };
        block.extend(encode_entry(name.inode, name.file_type, &name.name, length));
    }
    block.resize(block_size, 0);
    (block, fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<Saved> {
        [(12, "one"), (13, "two-two"), (14, "three")]
            .map(|(inode, name)| Saved {
                inode: InodeNumber(inode),
                file_type: 1,
                name: name.into(),
            })
            .to_vec()
    }

    fn plausible(inode: InodeNumber, file_type: u8) -> bool {
        (12..20).contains(&inode.0) && file_type == 1
    }

    #[test]
    fn a_sound_block_is_saved_whole() {
        let (block, fitting) = build(1024, &names());
        assert_eq!(fitting, 3);
        assert_eq!(salvage(&block, &plausible), names());
    }

    #[test]
    fn a_wrong_length_costs_no_name() {
        for length in [0_u16, 1, 17, 2000, 0xffff] {
            let (mut block, _) = build(1024, &names());
            block[12 + 4..12 + 6].copy_from_slice(&length.to_le_bytes());
            assert_eq!(salvage(&block, &plausible), names(), "length {length}");
        }
    }

    #[test]
    fn garbage_gives_nothing() {
        assert_eq!(salvage(&[0xa5; 1024], &plausible), []);
        assert_eq!(salvage(&[0; 1024], &plausible), []);
    }
}
