//! What the log costs beside a plain file: `cargo run --release -p backstitch-wafs --example speed
//! -- DIR`. Each row is run in turns with a file that grows, as a program's log does that is opened
//! to append, and with one whose blocks are there; medians of five, in MB of payload a second.

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
fn overwrite_file(path: &Path, work: Work) -> f64 {
    write_file(File::options().write(true).open(path).unwrap(), work)
}

/// `write(2)` at the end of an empty file, as `dd` does.
fn append_file(path: &Path, work: Work) -> f64 {
    let growing = path.with_extension("growing");
    let file = File::options().append(true).create_new(true).open(&growing);
    let seconds = write_file(file.unwrap(), work);
    std::fs::remove_file(growing).unwrap();
    seconds
}

fn write_file(mut file: File, work: Work) -> f64 {
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

/// Seconds that a way to write takes, at a path.
type Timed = fn(&Path, Work) -> f64;

/// A row: what is measured at the path of a log, beside plain files at another one.
fn row(name: &str, work: Work, (log, file): (&Path, &Path), run: Timed) {
    let sides: [(&Path, Timed); 3] = [(log, run), (file, append_file), (file, overwrite_file)];
    let mut times = sides.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (times, (path, run)) in times.iter_mut().zip(sides) {
            times.push(run(path, work));
        }
    }
    let [ours, growing, there] = times.map(|times| work.megabytes() / median(times));
    println!(
        "{name:<36} {ours:>8.2} {growing:>8.2} {:>6.2} {there:>8.2} {:>6.2}",
        ours / growing,
        ours / there
    );
}

fn main() {
    let dir = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let (log, file) = (dir.join("speed.log"), dir.join("speed.plain"));
    println!(
        "{:<36} {:>8} {:>8} {:>6} {:>8} {:>6}",
        "MB/s", "log", "growing", "ratio", "there", "ratio"
    );
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
        let paths = (log.as_path(), file.as_path());
        row(name, work, paths, append_log);
        if sync_every > 1 && sync_every != end {
            let times = (0..ROUNDS).map(|_| read_log(&log, work)).collect();
            println!(
                "{:<36} {:>8.2}",
                "  read it",
                work.megabytes() / median(times)
            );
        }
        if sync_every == 1 {
            row("  the same, mapped", work, paths, append_mapped);
        }
    }
    for path in [log, file] {
        std::fs::remove_file(path).unwrap();
    }
}
