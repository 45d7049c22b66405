//! Parts of files as readers get them.

use backstitch_device::Buffer;
use backstitch_ordering::{BlockNumber, Volume};

/// A part of a file as a reader gets it.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Zeros.
    Hole {
        /// How many.
        len_bytes: usize,
    },
    /// Bytes in memory.
    Buffer {
        /// The block.
        data: Buffer,
        /// The first byte of it.
        start: usize,
        /// How many.
        len_bytes: usize,
    },
    /// Bytes on the device, and nowhere newer.
    Device {
        /// Where, from the volume's start.
        offset_bytes: u64,
        /// How many.
        len_bytes: usize,
    },
}

/// Appends `len_bytes` that lie together in the volume, from byte `within` of a block on: what is
/// in memory, and what is on the device.
pub fn pieces_of_blocks(
    v: &Volume<'_>,
    first: BlockNumber,
    within: u64,
    len_bytes: u64,
    pieces: &mut Vec<Piece>,
) {
    let block_bytes = u64::from(v.block_bytes());
    let mut block = first;
    let mut start = within;
    let mut rest = len_bytes;
    while rest > 0 {
        let part = rest.min(block_bytes - start);
        match v.peek(block) {
            Some(data) => {
                pieces.push(Piece::Buffer {
                    data: data.clone(),
                    start: start as usize,
                    len_bytes: part as usize,
                });
            }
            None => {
                let at = block.offset_bytes(block_bytes) + start;
                match pieces.last_mut() {
                    Some(Piece::Device {
                        offset_bytes,
                        len_bytes,
                    }) if *offset_bytes + *len_bytes as u64 == at => {
                        *len_bytes += part as usize;
                    }
                    _ => pieces.push(Piece::Device {
                        offset_bytes: at,
                        len_bytes: part as usize,
                    }),
                }
            }
        }
        rest -= part;
        start = 0;
        block += 1;
    }
}
