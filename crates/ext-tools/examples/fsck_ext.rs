//! Checks an image and prints what is wrong:
//! `cargo run --release -p backstitch-ext-tools --example fsck_ext IMAGE [THREADS]`.

use backstitch_device::{FileDevice, OpenOptions};
use backstitch_ext_tools::fsck::{self, Options};
use std::path::Path;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: fsck_ext IMAGE [THREADS]");
        std::process::exit(16);
    };
    let threads = arguments.get(2).and_then(|threads| threads.parse().ok());
    let read_only = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let options = Options {
        threads,
        ..Options::default()
    };
    let start = Instant::now();
    let result = FileDevice::open(Path::new(path), read_only)
        .map_err(|error| error.to_string())
        .and_then(|device| fsck::check(&device, &options).map_err(|error| error.to_string()));
    match result {
        Ok(report) => {
            for finding in report.findings.iter().chain(&report.notes) {
                println!("{finding}");
            }
            println!(
                "{:?}, {:.3} s",
                report.summary,
                start.elapsed().as_secs_f64()
            );
            std::process::exit(report.exit_status());
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            std::process::exit(fsck::EXIT_OPERATIONAL);
        }
    }
}
