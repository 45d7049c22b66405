//! Writers and readers at the same time, for `ENDURE_SECONDS`: everything is as it was written,
//! memory stays within its bound and does not grow, no patch is left over, and the image is clean.

use backstitch_tests::command::{backstitch, run};
use backstitch_tests::image::Image;
use backstitch_tests::load::{Load, broken_promises, foreign_bytes};
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 8;
const CACHE_MIB: u64 = 32;
/// Memory that the daemon may use besides its cache.
const BESIDES_MIB: u64 = 64;
/// Memory that it may gain from the first rounds to the last.
const GROWTH_MIB: u64 = 8;
/// The fewest rounds for which growth is checked. In the first rounds caches and the allocator's
/// pools fill, so with fewer rounds only the bound is checked.
const ROUNDS_FOR_GROWTH: usize = 6;

/// Reads every file again and again until told to stop, and counts the bytes in `read`.
fn read_everything(dir: &Path, stop: &AtomicBool, read: &AtomicU64) {
    let mut left = vec![dir.to_owned()];
    while !stop.load(Ordering::Relaxed) {
        let Some(next) = left.pop() else {
            left.push(dir.to_owned());
            continue;
        };
        // What is there now may be removed or replaced at any moment.
        if let Ok(entries) = fs::read_dir(&next) {
            let paths = entries.flatten().map(|entry| entry.path());
            left.extend(paths.filter(|path| !path.is_symlink()));
        } else if next.is_file()
            && let Ok(bytes) = fs::read(&next)
        {
            read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

/// A value in `/proc/PID/status`, in MiB.
fn memory_mib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim_matches([':', ' ', '\t', 'k', 'B']).parse().ok());
    kib.map_or_else(|| panic!("no {name} in {status}"), |kib: u64| kib >> 10)
}

/// One round. Returns the daemon's memory at its end in MiB, and the number of operations.
fn round(mounted: &Mounted, dir: &Path, seed: u64, time: Duration) -> (u64, u64) {
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        let load = Load::start(dir, seed, THREADS);
        for _ in 0..THREADS {
            scope.spawn(|| read_everything(dir, &stop, &read));
        }
        std::thread::sleep(time);
        let done = load.finish();
        stop.store(true, Ordering::Relaxed);
        done
    });
    assert!(done.unexpected.is_empty(), "{:#?}", done.unexpected);
    let broken = broken_promises(&done.promises);
    assert!(broken.is_empty(), "{broken:#?}");
    let foreign = foreign_bytes(dir);
    assert!(foreign.is_empty(), "{foreign:#?}");
    assert!(read.into_inner() > 0 && done.operations > 0);

    run(backstitch().arg("sync").arg(mounted.path())).expect_success();
    let stats = run(backstitch().args(["stats", "--json"]).arg(mounted.path())).expect_success();
    let stats = stats.json();
    let live = stats["patches"]["live"].as_u64().expect("a number");
    // The reading above changes times, whose patches come after the sync.
    assert!(live < 2000, "{live} patches are left: {stats:#}");
    let pid = mounted
        .pid
        .expect("the file system under test has a daemon");
    let peak = memory_mib(pid, "VmHWM");
    assert!(peak <= CACHE_MIB + BESIDES_MIB, "{peak} MiB at the peak");
    (memory_mib(pid, "VmRSS"), done.operations)
}

fn endure(ordering: &str, kind: &str) {
    require!("mke2fs", "e2fsck");
    let time = Duration::from_secs(setting("ENDURE_SECONDS", 3));
    let seed = setting("SEED", 1);
    let scratch = Scratch::new("endurance");
    let image = Image::mke2fs(&scratch, "image", "512M", &["-t", kind]);
    let options = Options::ordered(ordering, &format!("cache={CACHE_MIB}M"));
    let mounted = Mounted::under_test(&image, &scratch.dir("mnt"), &options);
    let began = Instant::now();
    let round_time = (time / 3).min(Duration::from_secs(20));
    let (mut sizes, mut operations) = (Vec::new(), 0);
    while began.elapsed() < time {
        let number = sizes.len() as u64;
        let dir = mounted.path().join(format!("r{number}"));
        let (size, done) = round(&mounted, &dir, seed + number, round_time);
        sizes.push(size);
        operations += done;
    }
    say(&format!(
        "{ordering}, seed {seed}: {operations} operations in {:.0} s, the daemon took {sizes:?} MiB",
        began.elapsed().as_secs_f64()
    ));
    if sizes.len() >= ROUNDS_FOR_GROWTH {
        let (early, late) = sizes.split_at(sizes.len().div_ceil(2));
        let (early, late) = (early.iter().max(), late.iter().min());
        assert!(
            late <= early.map(|early| early + GROWTH_MIB).as_ref(),
            "it grows: {sizes:?} MiB"
        );
    }
    mounted.unmount();
    image.expect_clean();
}

#[test]
fn writers_and_readers_under_soft_updates() {
    endure("soft", "ext2");
}

#[test]
fn writers_and_readers_under_a_journal() {
    endure("journal=ordered", "ext3");
}
