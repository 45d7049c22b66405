//! Schedule states, end to end within the crate: logs are written here, checks run in a shell, and
//! all states are compared with those that the fault model allows.

use backstitch_crash_core::check::Check;
use backstitch_crash_core::error::StepError;
use backstitch_crash_core::report::{BlockState, Report};
use backstitch_crash_device::{
    Options, Recording, ScheduleError, StateId, Variant, explore, replay,
};
use backstitch_device::write_log::{EntryFlags, LogWriter};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A base of sixteen sectors full of dots, and a log.
struct Case {
    dir: tempfile::TempDir,
}

const PLAIN: EntryFlags = EntryFlags(0);

impl Case {
    fn new(log: impl FnOnce(&mut LogWriter)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let case = Self { dir };
        std::fs::write(case.base(), [b'.'; 16 * 512]).unwrap();
        let mut writer = LogWriter::create(&case.log()).unwrap();
        log(&mut writer);
        case
    }

    fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn open(&self) -> Arc<Recording> {
        Arc::new(Recording::open(&self.base(), &self.log()).unwrap())
    }

    /// Explores with a check that adds a line to a file for each state: the first letters of its
    /// sectors, and how many marks have passed. Returns these lines.
    fn states(&self, torn: bool) -> BTreeSet<String> {
        let seen = self.dir.path().join("seen");
        let check = format!(
            "printf '%s %s\\n' \"$(for s in 0 1 2 3 4 5 6 7; do dd if=$1 bs=512 skip=$s count=1 2>/dev/null | \
             head -c 1 | tr '\\0' 0; done)\" $(wc -l < $BACKSTITCH_MARKS) >> {}",
            seen.display()
        );
        let report = run(&self.open(), &options(&check, torn));
        assert!(report.exhaustive && report.is_good(), "{report:?}");
        let text = std::fs::read_to_string(seen).unwrap();
        let states: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(states.len(), text.lines().count(), "visited twice: {text}");
        assert_eq!(states.len() as u64, report.distinct);
        states
    }
}

fn options(check: &str, torn: bool) -> Options {
    Options {
        check: Check {
            command: check.to_owned(),
            timeout: Duration::from_secs(20),
        },
        states: 1000,
        seed: 1,
        torn,
        jobs: 1,
        command: "the command".into(),
        replay_command: "again".into(),
        keep: None,
        overlay: None,
        stop: Arc::default(),
    }
}

fn run(recording: &Arc<Recording>, options: &Options) -> Report {
    explore(recording, options, &|_| {}).unwrap()
}

fn write(log: &mut LogWriter, letter: u8, sectors: std::ops::Range<u64>, flags: EntryFlags) {
    let data = vec![letter; ((sectors.end - sectors.start) * 512) as usize];
    log.write(sectors.start * 512, &data, flags).unwrap();
}

fn set(states: &[&str]) -> BTreeSet<String> {
    states.iter().map(|&state| state.to_owned()).collect()
}

#[test]
fn earlier_epochs_are_there_and_any_part_of_the_last() {
    let case = Case::new(|log| {
        write(log, b'a', 0..1, PLAIN);
        log.flush().unwrap();
        write(log, b'b', 1..2, PLAIN);
        write(log, b'c', 2..3, PLAIN);
    });
    let expected = [
        "........ 0",
        "a....... 0",
        "ab...... 0",
        "a.c..... 0",
        "abc..... 0",
    ];
    assert_eq!(case.states(false), set(&expected));
}

#[test]
fn marks_make_states_of_their_own() {
    let case = Case::new(|log| {
        write(log, b'a', 0..1, PLAIN);
        log.mark("one").unwrap();
        write(log, b'b', 1..2, PLAIN);
        log.flush().unwrap();
        log.mark("two").unwrap();
    });
    let expected = [
        "........ 0",
        "a....... 0",
        "........ 1",
        "a....... 1",
        ".b...... 1",
        "ab...... 1",
        "ab...... 2",
    ];
    assert_eq!(case.states(false), set(&expected));
}

#[test]
fn overlapping_writes_come_in_any_order() {
    let case = Case::new(|log| {
        write(log, b'a', 0..2, PLAIN);
        write(log, b'b', 1..3, PLAIN);
    });
    let expected = [
        "........ 0",
        "aa...... 0",
        ".bb..... 0",
        "abb..... 0",
        "aab..... 0",
    ];
    assert_eq!(case.states(false), set(&expected));
}

#[test]
fn a_fua_write_is_there_after_it_and_keeps_its_place() {
    let case = Case::new(|log| {
        write(log, b'a', 0..2, PLAIN);
        write(log, b'f', 1..3, EntryFlags::FUA);
        write(log, b'b', 4..5, PLAIN);
    });
    let expected = [
        // While the FUA write is in flight, it may be missing, or reach the disk before or after
        // the first.
        "........ 0",
        "aa...... 0",
        ".ff..... 0",
        "aff..... 0",
        "aaf..... 0",
        // After the FUA write.
        ".ff.b... 0",
        "aff.b... 0",
    ];
    assert_eq!(case.states(false), set(&expected));
}

#[test]
fn a_flush_with_data_comes_before_the_data() {
    let case = Case::new(|log| {
        write(log, b'a', 0..1, PLAIN);
        write(
            log,
            b'f',
            1..2,
            EntryFlags(EntryFlags::FLUSH.0 | EntryFlags::FUA.0),
        );
        write(log, b'b', 2..3, PLAIN);
    });
    let expected = ["........ 0", "a....... 0", "af...... 0", "afb..... 0"];
    assert_eq!(case.states(false), set(&expected));
}

#[test]
fn discards_take_effect_or_not() {
    let case = Case::new(|log| {
        write(log, b'a', 0..2, PLAIN);
        log.flush().unwrap();
        log.discard(512, 1024).unwrap();
        write(log, b'b', 2..3, PLAIN);
    });
    let expected = [
        "........ 0",
        "aa...... 0",
        "a00..... 0",
        "aab..... 0",
        "a0b..... 0",
    ];
    assert_eq!(case.states(false), set(&expected));
}

#[test]
fn torn_writes_leave_any_of_their_sectors() {
    let case = || Case::new(|log| write(log, b'a', 0..3, PLAIN));
    assert_eq!(case().states(true).len(), 8);
    assert_eq!(case().states(false).len(), 2);
}

/// Three writes without a flush between them. The check fails if the third is there without the
/// second.
fn unordered() -> Case {
    Case::new(|log| {
        write(log, b'z', 9..10, PLAIN);
        log.flush().unwrap();
        for (sector, letter) in (0..6).zip(b'a'..) {
            write(log, letter, sector..sector + 1, PLAIN);
        }
        log.mark("all written").unwrap();
        log.flush().unwrap();
    })
}

const WANTS_B_BEFORE_C: &str = "grep -q z $1 || exit 0; grep -q c $1 || exit 0; grep -q b $1 || { echo \"$1: c without b\"; exit 1; }";

#[test]
fn a_failure_is_made_small_and_replays() {
    let case = unordered();
    let recording = case.open();
    let keep = case.dir.path().join("kept");
    let mut wanted = options(WANTS_B_BEFORE_C, false);
    wanted.keep = Some(keep.clone());
    let report = run(&recording, &wanted);
    assert!(report.exhaustive);
    assert_eq!(
        report.coverage["states_that_failed"], 32,
        "half of the states with c, at two moments"
    );
    let failure = &report.failures[0];
    assert!(failure.minimised);
    assert_eq!(
        failure.verdict,
        "exit code 1\n$BACKSTITCH_IMAGE: c without b"
    );
    let missing = failure
        .blocks
        .iter()
        .filter(|block| block.state == BlockState::Missing);
    assert_eq!(missing.count(), 1, "{failure:?}");
    let word = failure.replay.strip_prefix("again --replay ").unwrap();
    let again = replay(&recording, &options(WANTS_B_BEFORE_C, false), word).unwrap();
    assert_eq!(again.failures[0].verdict, failure.verdict);
    assert_eq!(again.failures[0].blocks, failure.blocks);
    let kept = std::fs::read(keep).unwrap();
    assert!(kept.contains(&b'c') && !kept.contains(&b'b'));
    let good = replay(&recording, &options(WANTS_B_BEFORE_C, false), "8:7").unwrap();
    assert!(good.is_good());
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let case = Case::new(|log| {
        for n in 0..40 {
            write(
                log,
                b'a' + n % 26,
                u64::from(n % 12)..u64::from(n % 12) + 3,
                PLAIN,
            );
        }
    });
    let page = |seed, jobs| {
        let mut options = options("grep -q aXb $1 && exit 1; exit 0", true);
        (options.states, options.seed, options.jobs) = (100, seed, jobs);
        let mut report = run(&case.open(), &options);
        assert!(!report.exhaustive && report.explored.contains("seed"));
        report.states_per_second = None;
        (report.to_html(), serde_json::to_string(&report).unwrap())
    };
    assert_eq!(page(3, 1), page(3, 4));
    assert_ne!(page(3, 1), page(4, 1));
}

#[test]
fn what_a_check_does_to_a_state_is_undone() {
    let case = Case::new(|log| {
        write(log, b'a', 0..4, PLAIN);
        log.flush().unwrap();
        write(log, b'b', 2..5, PLAIN);
        write(log, b'c', 8..9, PLAIN);
        log.flush().unwrap();
        log.mark("the end").unwrap();
    });
    let recording = case.open();
    for spoil in [
        "tr a-z A-Z < $1 > $1.new; cat $1.new > $1",
        "printf x | dd of=$1 bs=1 seek=5000 conv=notrunc 2>/dev/null",
        "truncate -s 100 $1",
        "truncate -s 1M $1",
        "cp $1 $1.new; printf x >> $1.new; mv $1.new $1",
        "rm $1",
    ] {
        let intact =
            "test $(stat -c %s $1) = 8192 && ! grep -q [A-Zx] $1 || { echo spoilt; exit 1; }";
        let report = run(&recording, &options(&format!("{intact}; {spoil}"), false));
        assert!(report.is_good(), "{spoil}: {:?}", report.failures);
        let wrote = report.coverage["checks_that_wrote_to_the_image"];
        assert_eq!(wrote, report.distinct, "{spoil}");
    }
    let report = run(&recording, &options("cat $1", false));
    assert_eq!(report.coverage["checks_that_wrote_to_the_image"], 0);
}

#[test]
fn states_have_names() {
    let case = Case::new(|log| {
        write(log, b'a', 0..2, PLAIN);
        write(log, b'b', 1..3, PLAIN);
        write(log, b'f', 4..5, EntryFlags::FUA);
        write(log, b'c', 6..7, PLAIN);
    });
    let recording = case.open();
    for name in ["4:7", "4:0", "0:0", "2:3,o=1.0", "3i:5", "4:3,t=0/1,t=1/2"] {
        let state = StateId::parse(name, &recording).unwrap();
        assert_eq!(state.to_string(), name);
    }
    let moment = recording.moment_at(2, false).unwrap();
    let variant = Variant::of(vec![1]);
    assert_eq!(StateId { moment, variant }.to_string(), "2:2");
    for (name, why) in [
        ("", "no colon"),
        ("x:1", "no entry's number"),
        ("9:0", "the log has 4 entries"),
        ("2i:0", "entry 1 is no FUA write"),
        ("0i:0", "entry 0 is no FUA write"),
        ("2:4", "bit 2 is set"),
        ("2:z", "no hexadecimal digit"),
        ("2:3,o=1", "once"),
        ("4:7,o=2.0.1", "past a FUA write"),
        ("2:1,t=1/1", "no change that is there"),
        ("2:1,t=0/4", "bit 2 is set"),
        ("2:1,q=1", "neither"),
    ] {
        let error = StateId::parse(name, &recording).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
}

#[test]
fn a_log_of_another_image_is_refused() {
    let case = Case::new(|log| write(log, b'a', 15..17, PLAIN));
    let error = Recording::open(&case.base(), &case.log()).unwrap_err();
    assert!(
        matches!(error, ScheduleError::Outside { entry: 0, .. }),
        "{error}"
    );
    assert!(Recording::open(Path::new("/none"), &case.log()).is_err());
}

#[test]
fn it_stops_when_it_is_told_to() {
    let case = unordered();
    let wanted = options("true", false);
    wanted
        .stop
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let stopped = explore(&case.open(), &wanted, &|_| {});
    assert_eq!(stopped, Err(ScheduleError::Step(StepError::Stopped)));
}

#[test]
fn an_empty_log_has_one_state() {
    let case = Case::new(|_| {});
    assert_eq!(case.states(false), set(&["........ 0"]));
}
