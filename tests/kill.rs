//! The daemon is killed under load, and what it leaves is judged.
//!
//! A kill alone loses what the daemon had not written. With `-o volatile=SEED` what was not flushed
//! is lost and reordered too, as in a power cut. `KILLS` is the number of kills (a few by default,
//! 50 for a real test). `SEED` repeats a load, and the moment of the kill as far as the machine
//! allows.

use backstitch_tests::command::{backstitch, our_fsck, run};
use backstitch_tests::fsck::Kind;
use backstitch_tests::image::Image;
use backstitch_tests::load::{Load, Promise, broken_promises, foreign_bytes, remove_all_but};
use backstitch_tests::mount::{Backend, Mounted, Options};
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};
use std::path::Path;
use std::time::{Duration, Instant};

/// Free space is filled with this byte first. No file may show it.
const GARBAGE: u8 = 0xee;
const MEBIBYTES: u64 = 96;
const THREADS: u64 = 3;

/// The options of a series of kills.
struct Series {
    name: &'static str,
    ordering: &'static str,
    power_cut: bool,
    seed: u64,
}

/// The result of one kill.
struct Left {
    /// Findings of e2fsck that are not allowed.
    corruption: Vec<String>,
    /// Files that must be there.
    promises: Vec<Promise>,
}

#[test]
fn soft_leaves_only_leaks_when_killed() {
    only_leaks("kill_soft", "soft", false, setting("KILLS", 6));
}

#[test]
fn soft_leaves_only_leaks_after_a_power_cut() {
    only_leaks("power_cut_soft", "soft", true, setting("KILLS", 6));
}

#[test]
fn sync_leaves_only_leaks_when_killed() {
    only_leaks("kill_sync", "sync", false, setting("KILLS", 6).div_ceil(3));
}

#[test]
fn sync_leaves_only_leaks_after_a_power_cut() {
    only_leaks(
        "power_cut_sync",
        "sync",
        true,
        setting("KILLS", 6).div_ceil(3),
    );
}

#[test]
fn systems_that_order_without_a_log_leave_only_leaks() {
    let kills = setting("KILLS", 6).div_ceil(6);
    only_leaks("kill_scheduler", "scheduler", false, kills);
    only_leaks("power_cut_scheduler", "scheduler", true, kills);
    only_leaks("power_cut_interbuffer", "interbuffer", true, kills);
    only_leaks("kill_amom", "amom=immediate", false, kills);
    only_leaks("power_cut_amom", "amom=delayed:3", true, kills);
}

#[test]
fn a_reclaim_that_is_killed_loses_nothing_and_is_ended_by_the_next_mount() {
    require!("root", "fuse", "mke2fs", "e2fsck");
    let name = "kill_reclaim";
    if Backend::from_env() == Backend::Kernel {
        return backstitch_tests::requirements::skip(name, "the kernel cannot be killed");
    }
    let series = Series {
        name,
        ordering: "soft",
        power_cut: true,
        seed: Random::seed(name),
    };
    let scratch = Scratch::new(name);
    let image = Image::mke2fs_over_garbage(&scratch, "disk.img", MEBIBYTES, GARBAGE, &[]);
    let left = series.round(&scratch, &image, 0);
    let mut complaints = left.corruption;
    let mut killed = 0;
    for number in 1..=3 {
        killed += u32::from(series.kill_in_reclaim(&scratch, &image, number));
        let report = image.e2fsck();
        complaints.extend(report.of(Kind::Corruption).map(|f| f.text.clone()));
    }
    complaints.extend(series.look_again(&scratch, &image, 0, &left.promises));
    let text = complaints.join("\n");
    assert!(complaints.is_empty(), "{text}");
    assert!(killed > 0, "every reclaim was over before the kill");
}

#[test]
fn async_leaves_damage_when_killed() {
    damage("kill_async", false);
}

#[test]
fn async_leaves_damage_after_a_power_cut() {
    damage("power_cut_async", true);
}

fn only_leaks(name: &'static str, ordering: &'static str, power_cut: bool, kills: u64) {
    require!("root", "fuse", "mke2fs", "e2fsck");
    if Backend::from_env() == Backend::Kernel {
        return backstitch_tests::requirements::skip(name, "the kernel cannot be killed");
    }
    let series = Series {
        name,
        ordering,
        power_cut,
        seed: Random::seed(name),
    };
    let scratch = Scratch::new(name);
    let image = Image::mke2fs_over_garbage(&scratch, "disk.img", MEBIBYTES, GARBAGE, &[]);
    for round in 0..kills {
        let left = series.round(&scratch, &image, round);
        let mut complaints = left.corruption;
        complaints.extend(series.look_again(&scratch, &image, round, &left.promises));
        let text = complaints.join("\n");
        assert!(complaints.is_empty(), "{name}, round {round}:\n{text}");
    }
}

/// A mechanism without order must leave damage. If this test finds none, it would not find any
/// elsewhere either.
fn damage(name: &'static str, power_cut: bool) {
    require!("root", "fuse", "mke2fs", "e2fsck");
    if Backend::from_env() == Backend::Kernel {
        return backstitch_tests::requirements::skip(name, "the kernel cannot be killed");
    }
    let series = Series {
        name,
        ordering: "async",
        power_cut,
        seed: Random::seed(name),
    };
    let scratch = Scratch::new(name);
    let rounds = setting("KILLS", 6).max(20);
    for round in 0..rounds {
        let image = Image::mke2fs_over_garbage(&scratch, "disk.img", MEBIBYTES, GARBAGE, &[]);
        let left = series.round(&scratch, &image, round);
        if let Some(first) = left.corruption.first() {
            let count = left.corruption.len();
            return say(&format!(
                "{name}: round {round} left {count} damages: {first}"
            ));
        }
    }
    panic!("{name}: {rounds} kills left no damage; this test finds nothing");
}

impl Series {
    fn options(&self, round: u64) -> Options {
        let power = if self.power_cut {
            format!(",volatile={}", self.seed + round)
        } else {
            "".into()
        };
        Options::ordered(self.ordering, &format!("expire=1{power}"))
    }

    /// Mounts, works, kills, and judges.
    fn round(&self, scratch: &Scratch, image: &Image, round: u64) -> Left {
        let dir = scratch.dir("mnt");
        let mut random = Random::new(self.seed * 31 + round);
        let mounted = Mounted::under_test(image, &dir, &self.options(round));
        let place = dir.join(format!("r{round}"));
        let load = Load::start(&place, self.seed + round, THREADS);
        let pause = Duration::from_millis(random.between(200, 3500));
        std::thread::sleep(pause);
        load.expect_the_end();
        let log = mounted.log();
        mounted.kill();
        let done = load.finish();
        mounted.detach();
        let text = done.unexpected.join("\n");
        assert!(
            done.unexpected.is_empty(),
            "errors before the kill:\n{text}\n{log}"
        );

        // Kept for finding out what went wrong.
        image.copy("killed.img");
        let report = image.e2fsck();
        let texts = |kind| report.of(kind).map(|finding| finding.text.clone());
        let corruption: Vec<String> = texts(Kind::Corruption).collect();
        say(&format!(
            "{}: round {round}, killed after {} operations in {:.1} s: {} damages, {} leaks, {} promises",
            self.name,
            done.operations,
            pause.as_secs_f64(),
            corruption.len(),
            texts(Kind::Leak).count(),
            done.promises.len(),
        ));
        Left {
            corruption,
            promises: done.promises,
        }
    }

    /// Mounts with a slow disk, and kills the daemon after the reclaim has freed something, each
    /// time a little later. Returns whether the reclaim was still running.
    fn kill_in_reclaim(&self, scratch: &Scratch, image: &Image, number: u64) -> bool {
        let dir = scratch.dir("mnt");
        let slow = format!("expire=0.1,flush_ms=150,volatile={}", self.seed + number);
        let mounted = Mounted::under_test(image, &dir, &Options::ordered(self.ordering, &slow));
        let reclaim = || {
            let stats = run(backstitch().args(["stats", "--json"]).arg(&dir));
            stats.expect_success().json()["reclaim"].clone()
        };
        let started = Instant::now();
        while reclaim()["freed_blocks"] == 0 && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(3));
        }
        std::thread::sleep(Duration::from_millis(60 * (number - 1)));
        let left = reclaim();
        mounted.kill();
        mounted.detach();
        say(&format!("{}: killed in the reclaim: {left}", self.name));
        // The reclaim ends with a flush, which takes longer than the kill.
        left["running"] == true
    }

    /// Waits for the end of the reclaim. Returns a complaint if it does not end.
    fn reclaim_that_does_not_end(&self, dir: &Path) -> Option<String> {
        let end = Instant::now() + Duration::from_secs(60);
        while Backend::from_env() == Backend::Backstitch {
            let stats = run(backstitch().args(["stats", "--json"]).arg(dir));
            let reclaim = stats.expect_success().json()["reclaim"].clone();
            if reclaim["running"] == false {
                say(&format!("{}: reclaimed: {reclaim}", self.name));
                return None;
            }
            if Instant::now() > end {
                return Some(format!("the reclaim does not end: {reclaim}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Mounts again, checks the files, unmounts, and checks the image. Returns what is wrong.
    fn look_again(
        &self,
        scratch: &Scratch,
        image: &Image,
        round: u64,
        promises: &[Promise],
    ) -> Vec<String> {
        let dir = scratch.dir("mnt");
        let start = Instant::now();
        let mounted = Mounted::under_test(image, &dir, &Options::ordered(self.ordering, ""));
        let recovery = start.elapsed().as_secs_f64();
        say(&format!("{}: mounted again in {recovery:.3} s", self.name));
        // The reclaim goes on while the file system is in use.
        let place = dir.join(format!("r{round}")).join("meanwhile");
        let load = Load::start(&place, self.seed + round, THREADS);
        std::thread::sleep(Duration::from_millis(400));
        let mut complaints = load.finish().unexpected;
        let probe = dir.join("writable");
        if let Err(error) = std::fs::write(&probe, "x").and_then(|()| std::fs::remove_file(&probe))
        {
            complaints.push(format!("not writable after the crash: {error}"));
        }
        complaints.extend(broken_promises(promises));
        complaints.extend(foreign_bytes(&dir));
        complaints.extend(self.reclaim_that_does_not_end(&dir));
        // Makes room for the next round: earlier kills may have prevented removals.
        if let Err(error) = remove_all_but(&dir.join(format!("r{round}"))) {
            complaints.push(format!(
                "what earlier rounds left cannot be removed: {error}"
            ));
        }
        mounted.unmount();
        let report = image.e2fsck();
        if !report.is_clean() {
            complaints.push(format!("after reclaim and unmount:\n{}", report.text));
        }
        if Backend::from_env() == Backend::Backstitch {
            let ours = our_fsck(image.path()).filter(|outcome| outcome.code != Some(0));
            complaints.extend(ours.map(|outcome| outcome.describe()));
        }
        complaints
    }
}
