//! Damages to a base image, read from an input.
//!
//! A damage takes five bytes, and more for some methods: the kind of place, its number within the
//! kind, the offset in the place (two bytes), and the method. Choices are taken modulo what there
//! is, so every input is a list of damages.

use backstitch_device::BlockDevice;

use crate::Input;
use crate::base::Base;

/// The most damages of one input.
const MOST: usize = 48;

/// Applies all damages that an input lists to a device with the base image.
pub fn all(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice) {
    for _ in 0..MOST {
        if input.is_empty() {
            return;
        }
        one(input, base, device);
    }
}

/// Two thirds of all damages should be small, since a whole block of garbage is noticed at once.
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
    // Every place is on the device, and a device in memory does not fail.
    device.write(at, bytes).expect("a place of the base image");
}

/// The first bytes of a number or, if the method says so, the last ones in reverse order.
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

/// The bytes of another place.
fn copied(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice, room: usize) -> Vec<u8> {
    let Some(from) = base.place(input) else {
        return Vec::new();
    };
    let length = (from.end - from.start).min(room as u64);
    changed(device, from.start, length as usize, 0)
}

/// Pseudo-random bytes.
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
