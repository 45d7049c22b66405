//! Loads for drives.
#![allow(dead_code, reason = "not every test uses every load")]

use backstitch_drives::{Completion, Drive, DriveSpec, Kind, Request};

/// Numbers from a seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

pub(crate) fn drive(preset: &str) -> Drive {
    Drive::new(&DriveSpec::preset(preset).unwrap())
}

/// Keeps `depth` requests of a load in the queue. Returns what was done.
pub(crate) fn run(
    drive: &mut Drive,
    depth: u32,
    requests: u32,
    mut next: impl FnMut() -> Request,
) -> Vec<Completion> {
    let mut done = Vec::new();
    for _ in 0..depth.min(requests) {
        drive.submit(&next(), drive.now_ns());
    }
    let mut left = requests - depth.min(requests);
    while let Some(completion) = drive.next_completion() {
        done.push(completion);
        if left > 0 {
            left -= 1;
            drive.submit(&next(), completion.completed_ns);
        }
    }
    done
}

/// Requests in a second.
pub(crate) fn per_second(done: &[Completion]) -> f64 {
    let end_ns = done.iter().map(|c| c.completed_ns).max().unwrap();
    let start_ns = done.iter().map(|c| c.submitted_ns).min().unwrap();
    done.len() as f64 * 1e9 / (end_ns - start_ns) as f64
}

/// Random requests of 4 KiB in a second.
pub(crate) fn iops(preset: &str, kind: Kind, depth: u32, requests: u32) -> f64 {
    let mut drive = drive(preset);
    let (mut random, blocks) = (Random(1), drive.capacity_sectors() / 8);
    let next = || Request::new(kind, random.below(blocks) * 8, 8);
    per_second(&run(&mut drive, depth, requests, next))
}

/// Millions of bytes a second in order, in requests of 128 KiB, from a sector on.
pub(crate) fn rate(drive: &mut Drive, kind: Kind, from: u64, bytes: u64, depth: u32) -> f64 {
    let mut at = from;
    let next = || {
        at += 256;
        Request::new(kind, at - 256, 256)
    };
    per_second(&run(drive, depth, (bytes >> 17) as u32, next)) * 131.072e-3
}
