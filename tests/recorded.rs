//! All writes and flushes of the engine under load are recorded at the device. Then the power is
//! cut at random moments of the recording, each time with a random part of what was not flushed,
//! and two checkers judge each state.
//!
//! `MOMENTS` is the number of cuts (60), `SEED` the seed. The load itself is repeated only as far
//! as threads allow.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, MemoryDevice, Record, RecordingDevice, materialise};
use backstitch_formats::usual;
use backstitch_fuse::FrontOptions;
use backstitch_layout::tools::{self, CheckOptions, SliceSource};
use backstitch_tests::fsck::Kind;
use backstitch_tests::image::Image;
use backstitch_tests::load::Load;
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};
use backstitch_vfs::{Engine, MountOptions, Ordering};

const MEBIBYTES: u64 = 48;
const GARBAGE: u8 = 0xee;
const THREADS: u64 = 3;
const WORK: Duration = Duration::from_secs(4);

/// The device's bytes before the mount, and everything that happened to it since.
struct Recording {
    base: Vec<u8>,
    records: Vec<Record>,
}

/// Mounts the image through a recording device, works on it, and unmounts.
fn record(image: &Image, dir: &Path, ordering: Ordering, seed: u64) -> Recording {
    let base = image.bytes();
    let memory = Arc::new(MemoryDevice::from_bytes(base.clone()));
    let device = Arc::new(RecordingDevice::new(memory));
    let options = MountOptions {
        ordering,
        expire_seconds: 1.0,
        // Small, so that blocks are also written because the cache fills.
        cache_bytes: 16 << 20,
        ..MountOptions::default()
    };
    let below: Arc<dyn BlockDevice> = device.clone();
    let engine = Engine::mount(below, usual().layout(), &options).expect("cannot mount");
    let front = FrontOptions {
        check_permissions: false,
        devices: true,
        set_user_id: true,
        ..FrontOptions::default()
    };
    let mounted = backstitch_fuse::spawn(engine, dir, &front).expect("cannot mount");
    let load = Load::start(&dir.join("r0"), seed, THREADS);
    std::thread::sleep(WORK);
    let done = load.finish();
    assert!(done.unexpected.is_empty(), "{}", done.unexpected.join("\n"));
    mounted.unmounter().unmount().expect("cannot unmount");
    mounted.wait().expect("cannot end the mount");
    let records = device.records();
    say(&format!(
        "{ordering}: {} operations, {} writes and flushes",
        done.operations,
        records.len()
    ));
    Recording { base, records }
}

impl Recording {
    /// Calls `look` with the state that each of `moments` power cuts leaves, and the number of the
    /// record before which it came.
    fn cut(&self, random: &mut Random, moments: u64, look: &mut dyn FnMut(&[u8], usize)) {
        let len = self.records.len();
        let mut cuts: Vec<usize> = (0..moments)
            .map(|_| random.below(len as u64 + 1) as usize)
            .collect();
        cuts.sort_unstable();
        let mut stable = self.base.clone();
        let mut applied = 0;
        for cut in cuts {
            let flushed = self.records[applied..cut]
                .iter()
                .rposition(|record| *record == Record::Flush)
                .map_or(applied, |at| applied + at + 1);
            let certain = &self.records[applied..flushed];
            materialise(&mut stable, certain, certain.len(), &mut |_| true);
            applied = flushed;
            let mut state = stable.clone();
            let open = &self.records[flushed..cut];
            // Any part of what was not flushed, from nothing to all.
            let share = random.below(5);
            materialise(&mut state, open, open.len(), &mut |_| {
                random.below(4) < share
            });
            look(&state, cut);
        }
    }
}

/// What our own check and e2fsck find that soft updates must never leave.
fn damages(state: &[u8], scratch: &Scratch) -> Vec<String> {
    let ours = usual().check(&SliceSource(state), &CheckOptions::default());
    let ours = ours.expect("nothing that can be checked").findings;
    let mut found: Vec<String> = ours
        .iter()
        .filter(|f| f.kind == tools::Kind::Corruption)
        .map(ToString::to_string)
        .collect();
    let path = scratch.path("cut.img");
    std::fs::write(&path, state).expect("cannot write an image");
    let theirs = Image::at(path).e2fsck();
    found.extend(theirs.of(Kind::Corruption).map(|f| f.text.clone()));
    found
}

/// Returns how many of the cuts left damage, and the first of it.
fn explore(name: &str, ordering: Ordering, moments: u64) -> (u64, Option<String>) {
    let seed = Random::seed(name);
    let scratch = Scratch::new(name);
    let image = Image::mke2fs_over_garbage(&scratch, "disk.img", MEBIBYTES, GARBAGE, &[]);
    let recording = record(&image, &scratch.dir("mnt"), ordering, seed);
    let mut bad = 0;
    let mut first = None;
    let mut random = Random::new(seed);
    recording.cut(&mut random, moments, &mut |state, cut| {
        let found = damages(state, &scratch);
        if !found.is_empty() {
            bad += 1;
            first.get_or_insert_with(|| format!("cut before record {cut}: {}", found.join("\n")));
        }
    });
    say(&format!("{name}: {bad} of {moments} cuts left damage"));
    (bad, first)
}

#[test]
fn soft_leaves_only_leaks_at_any_moment() {
    require!("root", "fuse", "mke2fs", "e2fsck");
    let (bad, first) = explore("recorded_soft", Ordering::SOFT, setting("MOMENTS", 60));
    assert_eq!(bad, 0, "{}", first.unwrap_or_default());
}

#[test]
fn sync_leaves_only_leaks_at_any_moment() {
    require!("root", "fuse", "mke2fs", "e2fsck");
    let moments = setting("MOMENTS", 60) / 4;
    let (bad, first) = explore("recorded_sync", Ordering::SYNC, moments);
    assert_eq!(bad, 0, "{}", first.unwrap_or_default());
}

#[test]
fn async_leaves_damage() {
    require!("root", "fuse", "mke2fs", "e2fsck");
    let (bad, _) = explore("recorded_async", Ordering::ASYNC, 8);
    assert!(bad > 0, "this test finds nothing");
}
