//! What the log costs beside a plain file: `cargo run --release -p backstitch-wafs --example speed
//! -- DIR`. Each row is run in turns with its counterpart; medians of five, in MB of payload a
//! second.

use backstitch_device::{BlockDevice, FileDevice, MappedDevice, OpenOptions};
use backstitch_wafs::{Log, Wafs, host_clock};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 5;

/// Payloads of one length.
#[derive(Clone, Copy)]
struct Work {
    len: usize,
    count: usize,
    /// The number of records between two syncs.
    sync_every: usize,
}

impl Work {
    fn megabytes(self) -> f64 {
        (self.len * self.count) as f64 / 1e6
    }
}

fn make(path: &Path, work: Work) {
    let size = 8192 + (work.count * (work.len + 48)) as u64 + (1 << 20);
    let device = FileDevice::create(path, size).unwrap();
    // Zeros are written first, as in a log in use: its blocks exist.
    let zeros = vec![0; 1 << 20];
    (0..size >> 20).for_each(|at| device.write(at << 20, &zeros).unwrap());
    Wafs::make(&device, [7; 16], 0).unwrap();
}

fn append(device: Arc<dyn BlockDevice>, work: Work) -> f64 {
    let wafs = Wafs::mount(device, host_clock()).unwrap();
    wafs.checkpoint(wafs.end()).unwrap();
    let payload = vec![b'x'; work.len];
    let started = Instant::now();
    for number in 1..=work.count {
        wafs.append(&payload).unwrap();
        if number % work.sync_every == 0 {
            wafs.sync_all().unwrap();
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    wafs.unmount().unwrap();
    seconds
}

fn append_log(path: &Path, work: Work) -> f64 {
    append(
        Arc::new(FileDevice::open(path, OpenOptions::default()).unwrap()),
        work,
    )
}

fn append_mapped(path: &Path, work: Work) -> f64 {
    append(Arc::new(MappedDevice::open(path).unwrap()), work)
}

/// `write(2)` into a file whose blocks exist, as `dd conv=notrunc` does.
fn append_file(path: &Path, work: Work) -> f64 {
    let mut file = File::options().write(true).open(path).unwrap();
    let payload = vec![b'x'; work.len];
    let started = Instant::now();
    for number in 1..=work.count {
        file.write_all(&payload).unwrap();
        if number % work.sync_every == 0 {
            file.sync_data().unwrap();
        }
    }
    started.elapsed().as_secs_f64()
}

fn read_log(path: &Path, _: Work) -> f64 {
    let device = FileDevice::open(
        path,
        OpenOptions {
            read_only: true,
            ..Default::default()
        },
    );
    let device = device.unwrap();
    let log = Log::open(&device).unwrap();
    let started = Instant::now();
    let mut records = log.records(log.start()).unwrap();
    let mut bytes = 0;
    while let Some(record) = records.next().unwrap() {
        bytes += record.payload.len();
    }
    assert!(bytes > 0);
    started.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A file, and the function that appends to it.
type Side<'a> = (&'a Path, fn(&Path, Work) -> f64);

fn row(name: &str, work: Work, ours: Side<'_>, theirs: Option<Side<'_>>) {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(ours.1(ours.0, work));
        other.extend(theirs.map(|(path, run)| run(path, work)));
    }
    let rate = |seconds: f64| work.megabytes() / seconds;
    let ours = rate(median(one));
    match theirs {
        Some(_) => {
            let theirs = rate(median(other));
            println!(
                "{name:<44} {ours:>8.2} {theirs:>8.2} {:>6.2}",
                ours / theirs
            );
        }
        None => println!("{name:<44} {ours:>8.2}"),
    }
}

fn main() {
    let dir = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let (log, file) = (dir.join("speed.log"), dir.join("speed.plain"));
    println!("{:<44} {:>8} {:>8} {:>6}", "MB/s", "log", "file", "ratio");
    let end = usize::MAX;
    for (name, len, count, sync_every) in [
        ("append 100 bytes, no sync", 100, 1_000_000, end),
        (
            "append 100 bytes, a sync at the end",
            100,
            1_000_000,
            1_000_000,
        ),
        ("append 1 MiB, no sync", 1 << 20, 256, end),
        ("append 1 MiB, a sync at the end", 1 << 20, 256, 256),
        ("append 100 bytes, a sync each", 100, 2000, 1),
        ("append 4 KiB, a sync each", 4096, 2000, 1),
    ] {
        let work = Work {
            len,
            count,
            sync_every,
        };
        make(&log, work);
        std::fs::copy(&log, &file).unwrap();
        row(name, work, (&log, append_log), Some((&file, append_file)));
        if sync_every > 1 && sync_every != end {
            row("  read it", work, (&log, read_log), None);
        }
        if sync_every == 1 {
            row(
                "  the same, mapped",
                work,
                (&log, append_mapped),
                Some((&file, append_file)),
            );
        }
    }
    for path in [log, file] {
        std::fs::remove_file(path).unwrap();
    }
}
