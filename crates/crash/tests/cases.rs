//! The families of scripts, a bounded part of each under every mechanism; and regression tests for
//! what they found.

use crate::effort;
use backstitch_crash::{
    Campaign, ImageOptions, NoObserver, Results, Schedule, Workload, generate, parse_script, script,
};

use backstitch_mechanisms::Ordering;
use backstitch_store::Optimisations;

const ORDERED: Ordering = Ordering::JOURNAL_ORDERED;

fn campaign(ordering: Ordering, workloads: Vec<Workload>) -> Campaign {
    let variants = Schedule::ALL.map(|schedule| (Optimisations::BOTH, schedule));
    Campaign {
        ordering,
        workloads,
        variants: variants.to_vec(),
        image: ImageOptions::default(),
        base: None,
        seed: 1,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 400,
        samples: 50,
        whole_every: 64,
        in_use_every: 16,
        most_states: u64::MAX,
        most_states_each: u64::MAX,
        most_failures: 1,
        threads: 2,
    }
}

fn scripted(text: &str) -> Vec<Workload> {
    vec![Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("a script of our own"),
        setup: 0,
    }]
}

fn passes(campaign: &Campaign) -> Results {
    let results = campaign.run(&NoObserver).expect("the engine gets through");
    if let Some(failure) = results.failures.first() {
        let operations = script(failure.operations());
        panic!("{}: {operations}: {}", campaign.ordering, failure.verdict());
    }
    results
}

/// The first states of every script, under mechanisms that keep order: each has a quarter of the
/// scripts, another one than the next mechanism.
#[test]
fn no_state_of_the_cases_is_wrong() {
    let kept = |kind: &Ordering| *kind != Ordering::ASYNC;
    for (number, ordering) in Ordering::ALL.into_iter().filter(kept).enumerate() {
        let mut campaign = campaign(ordering, effort::part(generate::cases(), number));
        campaign.most_states_each = 25;
        let results = passes(&campaign);
        assert!(results.distinct > 1000, "{} states", results.distinct);
    }
}

/// A session of more than 200 operations and twenty commits. All but the last 30 operations are
/// done without looking at their states.
#[test]
fn a_long_session_under_a_journal() {
    let mut sessions = generate::long(1, 1);
    sessions[0].setup = sessions[0].operations.len() - 30;
    let mut campaign = campaign(ORDERED, sessions);
    (campaign.exhaustive, campaign.samples) = (8, 2);
    campaign.variants.truncate(1);
    let results = passes(&campaign);
    assert!(results.moments > 30, "{} moments", results.moments);
}

/// A log of 64 blocks that wraps around three times, and past the largest sequence number.
fn wrapping() -> Campaign {
    let log = generate::Family::named("log").expect("it is there");
    let wraps = |workload: &Workload| {
        let has = |what: &str| {
            let mut texts = workload.operations.iter().map(ToString::to_string);
            texts.any(|text| text.starts_with(what))
        };
        has("log-blocks 64") && has("log-sequence 4294967")
    };
    let wrapping = log.workloads().into_iter().find(wraps);
    let wrapping = wrapping.expect("one of its scripts wraps");
    let mut campaign = campaign(Ordering::JOURNAL_FULL, vec![wrapping]);
    campaign.most_states_each = 400;
    campaign
}

#[test]
fn a_log_wraps_three_times_over_the_end_of_its_numbers() {
    passes(&wrapping());
}

/// If a transaction has room for only a block or two, space is reserved in as many steps, and a
/// transaction may end after each of them. So after a crash the file may end anywhere in between,
/// and shows zeros there, although it had other bytes there before it was truncated.
#[test]
fn a_crash_may_come_between_the_steps_of_a_reservation() {
    let text = "log-blocks 64; creat f; write f 0 20000; truncate f 5000; falloc f 0 20000";
    for ordering in [Ordering::JOURNAL_FULL, ORDERED] {
        passes(&campaign(ordering, scripted(text)));
    }
}

/// A crash leaves a link count that is too high. The last name that is on the disk must still not
/// go before a new one is there.
#[test]
fn a_name_does_not_go_because_of_a_count_that_a_crash_left() {
    let text =
        "mkdir A; creat A/f; link A/f g; sync; unlink A/f; link g A/h; crash; link g A/i; unlink g";
    for optimisations in [Optimisations::NONE, Optimisations::BOTH] {
        let mut campaign = campaign(Ordering::SOFT, scripted(text));
        campaign.variants = Schedule::ALL.map(|s| (optimisations, s)).to_vec();
        for way in 0..12 {
            let text = text.replace("crash;", &format!("crash {way};"));
            campaign.workloads = scripted(&text);
            passes(&campaign);
        }
    }
}

/// A name that a file got and lost in memory is gone once the file was flushed by `fsync`. What has
/// the name by then need not be on the disk for that.
#[test]
fn what_took_a_name_is_not_flushed_with_what_had_it() {
    let text = "creat f; sync; link f bar; rename bar foo; creat D; rename D foo; fsync f";
    passes(&campaign(Ordering::SOFT, scripted(text)));
}

/// A file is flushed in a directory that was made and then moved, to another directory or within
/// its own. A crash may leave the directory with two names. No recovery, not even one that is cut
/// short, may remove the name under which the file was flushed.
#[test]
fn a_moved_directory_keeps_the_name_that_a_file_was_flushed_under() {
    let (first, second) = ("n".repeat(250), "m".repeat(250));
    let across = "mkdir A; mkdir B; sync; mkdir A/d; creat A/d/f; rename A/d B/e; fsync B/e/f";
    let within = format!(
        "mkdir B; creat B/{first}; sync; mkdir B/d; creat B/d/f; rename B/d B/{second}; fsync B/{second}/f"
    );
    for (text, unit_bytes) in [(across, None), (&within, Some(512))] {
        let mut campaign = campaign(Ordering::SOFT, scripted(text));
        campaign.variants = vec![(Optimisations::BOTH, Schedule::Nothing)];
        (campaign.whole_every, campaign.unit_bytes) = (1, unit_bytes);
        assert!(passes(&campaign).states > 500);
    }
}

/// What is written after a truncation, where zeros were, reaches the disk after the truncation: the
/// file has its old size with its old contents, or the new size.
#[test]
fn what_is_written_behind_a_cut_into_zeros_comes_after_it() {
    for text in [
        "creat f; write f 0 500; truncate f 3000; sync; truncate f 600; append f 100",
        "creat f; write f 0 9000; sync; punch f 1500 1000; sync; truncate f 1600; append f 3000",
    ] {
        passes(&campaign(ORDERED, scripted(text)));
    }
}

/// After a crash, and after a mount with another mechanism, promises are kept as before. The same
/// seed cuts in the same way.
#[test]
fn lives_follow_each_other() {
    let text = "mkdir A; creat A/f; write A/f 0 3000; fsync A/f; creat g; crash; rename A/f h; fsync h; remount sync; unlink h; crash";
    let states = |seed| {
        let mut campaign = campaign(Ordering::SOFT, scripted(text));
        campaign.seed = seed;
        passes(&campaign).states
    };
    assert_eq!(states(3), states(3));
    for seed in 1..12 {
        assert!(states(seed) > 100);
    }
}
