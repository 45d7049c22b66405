//! How many checks a second:
//! `cargo run --release -p backstitch-ext-tools --example fsck_rate IMAGE`.

use backstitch_ext_tools::fsck::{self, Options, SliceSource};
use std::time::Instant;

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: fsck_rate IMAGE");
        return;
    };
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => return eprintln!("{}: {error}", path.display()),
    };
    let options = Options {
        threads: Some(1),
        check_backups: false,
        ..Options::default()
    };
    let (start, mut checks, mut findings) = (Instant::now(), 0_u32, 0);
    while start.elapsed().as_secs() < 3 {
        for _ in 0..100 {
            match fsck::check_source(&SliceSource(&bytes), &options) {
                Ok(report) => findings += report.findings.len(),
                Err(error) => return eprintln!("{}: {error}", path.display()),
            }
            checks += 1;
        }
    }
    let per_second = f64::from(checks) / start.elapsed().as_secs_f64();
    println!(
        "{per_second:.0} checks per second, {} findings each",
        findings / checks as usize
    );
}
