//! Runs every input that once made a target fail, and every initial input of the fuzzer, on the
//! ordinary compiler, in every test run.
//!
//! Also runs random variations of these: `INPUTS` for each target, with the seed `SEED`, for the
//! targets named in `TARGETS`.
//!
//! `regressions/TARGET/NAME` is such an input as the fuzzer wrote it (see the user guide on how to
//! add one). `BACKSTITCH_INPUT=TARGET:FILE` runs one of your own instead.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs};

use backstitch_fuzz::corpus::Seed;
use backstitch_fuzz::{TARGETS, corpus, target};

/// Far longer than any input takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts panics of all threads, since an engine's own threads do not panic in the caller.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// The failure of an input, if there is one: it panics, another thread panicked meanwhile, or it
/// takes too long.
fn failure((name, what, bytes): &Seed) -> Option<String> {
    let run = target(name).expect("a target of that name").run;
    let (done, wait) = mpsc::channel();
    let panics = PANICS.load(Ordering::SeqCst);
    let bytes = bytes.clone();
    std::thread::spawn(move || {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| run(&bytes)));
        let _ = done.send(());
    });
    if wait.recv_timeout(PATIENCE).is_err() {
        return Some(format!("{name}: {what} takes too long"));
    }
    (PANICS.load(Ordering::SeqCst) != panics).then(|| format!("{name}: {what} panics"))
}

/// Runs inputs, as many at a time as there are processors. Returns the failures. A panic may be
/// that of another input, so those that ran at the time are run again alone.
fn failures(inputs: &[Seed]) -> Vec<String> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
    let next = AtomicUsize::new(0);
    let suspects = Mutex::new(Vec::new());
    let work = || {
        while let Some(input) = inputs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(what) = failure(input) {
                suspects
                    .lock()
                    .expect("nobody panics here")
                    .push((input, what));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let suspects = suspects.into_inner().expect("nobody panics here");
    let alone: Vec<String> = suspects
        .iter()
        .filter_map(|(input, _)| failure(input))
        .collect();
    match alone.is_empty() {
        // The failure happens only together with others, or not always.
        true => suspects.into_iter().map(|(_, what)| what).collect(),
        false => alone,
    }
}

fn files(folder: &Path, target: &'static str) -> Vec<Seed> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let bytes = fs::read(entry.path()).expect("a file that can be read");
        found.push((
            target,
            entry.file_name().to_string_lossy().into_owned(),
            bytes,
        ));
    }
    found.sort();
    found
}

#[test]
fn the_fuzzer_has_a_binary_for_each_target() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the fuzzer's manifest");
    let binaries = manifest.split("[[bin]]").skip(1);
    let names: Vec<&str> = binaries.filter_map(|part| part.split('"').nth(1)).collect();
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, targets);
}

#[test]
fn inputs_that_once_failed_and_inputs_to_begin_with() {
    let inputs = match env::var("BACKSTITCH_INPUT") {
        Ok(chosen) => {
            let (name, path) = chosen.split_once(':').expect("TARGET:FILE");
            let target = target(name).expect("a target of that name").name;
            let bytes = fs::read(path).expect("a file that can be read");
            vec![(target, path.to_owned(), bytes)]
        }
        Err(_) => {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
            let all = TARGETS.iter();
            let mut inputs: Vec<_> = all
                .flat_map(|target| files(&folder.join(target.name), target.name))
                .collect();
            inputs.extend(corpus::seeds());
            inputs
        }
    };
    let failed = failures(&inputs);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    let given = env::var(name).ok();
    given.map_or(default, |text| {
        let Ok(value) = text.parse() else {
            panic!("{name}={text} is no number")
        };
        value
    })
}

/// A known input with a few bytes changed, inserted or removed, or with the end of another one.
fn drawn(known: &[Seed], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = known[rng.usize(..known.len())].2.clone();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(..4) {
            0 if at < bytes.len() => bytes[at] = rng.u8(..),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, rng.u8(..)),
            _ => {
                let other = &known[rng.usize(..known.len())].2;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[at.min(other.len())..]);
            }
        }
    }
    bytes
}

#[test]
fn inputs_drawn_at_random() {
    let (count, seed) = (setting("INPUTS", 40_usize), setting("SEED", 1_u64));
    let chosen = env::var("TARGETS").unwrap_or_default();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.split(' ').any(|word| word == name);
    let mut rng = fastrand::Rng::with_seed(seed);
    let corpus = corpus::seeds();
    let mut inputs = Vec::new();
    for target in TARGETS.iter().filter(|target| is_chosen(target.name)) {
        let of_target = corpus.iter().filter(|(name, ..)| *name == target.name);
        let known: Vec<Seed> = of_target.cloned().collect();
        assert!(
            !known.is_empty(),
            "{}: no inputs to begin with",
            target.name
        );
        inputs.extend((0..count).map(|number| {
            let bytes = drawn(&known, &mut rng);
            let what = format!("SEED={seed}, number {number}: {}", bytes.escape_ascii());
            (target.name, what, bytes)
        }));
    }
    let failed = failures(&inputs);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
