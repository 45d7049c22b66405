//! Damages to a base image, out of an input.
//!
//! A damage is five bytes and what its method wants beside: the kind of place, which of that kind,
//! the offset in it (two bytes), and the method. What the bytes choose from is counted around, so
//! that every input is a list of damages.

use backstitch_device::BlockDevice;

use crate::Input;
use crate::base::Base;

/// The most damages of one input.
const MOST: usize = 48;

/// Does the damages that an input lists, to its end, to a device that holds the base image.
pub fn all(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice) {
    for _ in 0..MOST {
        if input.is_empty() {
            return;
        }
        one(input, base, device);
    }
}

/// Two thirds of all damages should be small, for a whole block of garbage is found at once.
fn one(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice) {
    let Some(place) = base.place(input) else {
        return;
    };
    let offset = u64::from(input.word()) % (place.end - place.start);
    let at = place.start + offset;
    let room = (place.end - at).min(base.block_bytes()) as usize;
    let method = input.byte();
    let length = (1 + usize::from(method >> 3)).min(room);
    let bytes = match method % 8 {
        0 => input.bytes(length).to_vec(),
        1 => vec![0; length],
        2 => vec![0xff; length],
        3 => changed(device, at, length, input.byte()),
        4 => in_order(base.number(input).to_le_bytes(), 4, method),
        5 => in_order(base.number(input).to_le_bytes(), 2, method),
        6 => copied(input, base, device, room),
        _ => random(room, input.byte()),
    };
    let bytes = &bytes[..bytes.len().min(room)];
    // Every place lies on the device, and a device in memory does not fail.
    device.write(at, bytes).expect("a place of the base image");
}

/// The first bytes of a number, or the last ones the other way round where the method says so.
fn in_order(mut bytes: [u8; 4], length: usize, method: u8) -> Vec<u8> {
    if method & 0x80 != 0 {
        bytes[..length].reverse();
    }
    bytes[..length].to_vec()
}

fn changed(device: &dyn BlockDevice, at: u64, length: usize, by: u8) -> Vec<u8> {
    let mut bytes = vec![0; length];
    device
        .read(at, &mut bytes)
        .expect("a place of the base image");
    bytes.iter_mut().for_each(|byte| *byte ^= by);
    bytes
}

/// What another place holds.
fn copied(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice, room: usize) -> Vec<u8> {
    let Some(from) = base.place(input) else {
        return Vec::new();
    };
    let length = (from.end - from.start).min(room as u64);
    changed(device, from.start, length as usize, 0)
}

/// Bytes that look like nothing.
fn random(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}
