//! The host's time for a simulated request: at most 2 µs of one core. `cargo test --release -p
//! backstitch-drives speed:: -- --ignored --nocapture` simulates ten million requests in a
//! minute, as `make soak` does (part `drives`).

use crate::common::{Random, drive, run};
use backstitch_drives::{DriveSpec, Kind, Request};

/// The processor's time of this thread so far, in seconds. Other work of a loaded machine does not
/// count.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn microseconds(preset: &str, depth: u32, requests: u32) -> f64 {
    let mut drive = drive(preset);
    let (mut random, blocks) = (Random(7), drive.capacity_sectors() / 8);
    let next = || {
        let kind = if random.below(3) == 0 {
            Kind::Read
        } else {
            Kind::Write
        };
        Request::new(kind, random.below(blocks) * 8, 8)
    };
    let start = cpu_seconds();
    let done = run(&mut drive, depth, requests, next);
    assert_eq!(done.len(), requests as usize);
    let each = (cpu_seconds() - start) * 1e6 / f64::from(requests);
    println!("{preset:12} {depth:3} in the queue: {each:.2} µs a request");
    each
}

/// Microseconds for a request.
const BOUND: f64 = 2.0;
/// How often a drive is measured. The least counts: what other work does to the caches of a
/// loaded machine is not the drive's.
const ROUNDS: usize = 5;

#[test]
fn a_request_is_cheap() {
    for preset in DriveSpec::presets() {
        for depth in [1, 32] {
            let rounds = (0..ROUNDS).map(|_| microseconds(preset, depth, 50_000));
            let least = rounds.fold(f64::INFINITY, f64::min);
            assert!(least <= BOUND, "{preset}, {depth} in the queue: {least} µs");
        }
    }
}

#[test]
#[ignore = "takes half a minute: part of the soak"]
fn ten_million() {
    let start = cpu_seconds();
    for preset in ["viking", "st3320620as", "sata-ssd", "nvme"] {
        microseconds(preset, 32, 2_500_000);
    }
    let seconds = cpu_seconds() - start;
    println!("10 million requests in {seconds:.1} s");
    assert!(seconds < 60.0);
}
