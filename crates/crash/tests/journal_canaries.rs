//! One rule of the journal's module is left out at a time, and the explorer must find it.

use backstitch_crash::{
    Campaign, ImageOptions, NoObserver, Schedule, Without, Workload, parse_script,
};
use backstitch_formats::usual;
use backstitch_journal::rules::Rule;

use backstitch_mechanisms::{Ordering, jbd2};
use backstitch_store::Optimisations;

/// Blocks of directories that become a file's, blocks of files that become a directory's, growth
/// and removal.
const SCRIPT: &str = "mkdir A; mkdir A/b; mkdir A/c; creat A/f; write A/f 0 9000; sync; rmdir A/b; rmdir A/c; unlink A/f; \
     sync; creat A/g; write A/g 0 60000; fsync A/g; creat h; write h 0 3000; fsync h; mkdir C; truncate A/g 100; rename h C/h; \
     fsync A/g; creat k; write k 0 14000; unlink k";

/// A file that is made and removed within a transaction, and another one that is given its inode
/// and its blocks before that transaction ends. The schedule decides whether it does end in
/// between.
const REUSING: &str = "creat k; write k 0 3000; unlink k; work; creat m; write m 0 3000; fsync m";

/// Commit records are written together with what they commit.
const AT_ONCE: ImageOptions = ImageOptions {
    layout: usual(),
    size_bytes: 8 << 20,
    block_bytes: 1024,
    features: &[],
    journal_device: false,
    journal_features: jbd2::ASYNC_COMMIT,
    log_blocks: 64,
};

fn campaign(seed: u64, mode: Ordering, image: ImageOptions) -> Campaign {
    campaign_of(SCRIPT, seed, mode, image)
}

fn campaign_of(script: &str, seed: u64, mode: Ordering, image: ImageOptions) -> Campaign {
    let variants = Schedule::ALL
        .into_iter()
        .map(|schedule| (Optimisations::BOTH, schedule))
        .collect();
    Campaign {
        ordering: mode,
        workloads: vec![Workload {
            name: "script".to_owned(),
            operations: parse_script(script).expect("a script of our own"),
            setup: 0,
        }],
        variants,
        image,
        base: None,
        seed,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 400,
        samples: 100,
        whole_every: 64,
        in_use_every: 64,
        most_states: u64::MAX,
        most_states_each: u64::MAX,
        most_failures: 1,
        threads: 2,
    }
}

#[test]
fn the_module_as_it_is_passes() {
    passes(
        campaign(1, Ordering::JOURNAL_ORDERED, ImageOptions::default()),
        1000,
    );
    let reusing = campaign_of(
        REUSING,
        1,
        Ordering::JOURNAL_ORDERED,
        ImageOptions::default(),
    );
    passes(reusing, 100);
}

/// A commit record with a checksum may be on the disk before what it commits. It does not count
/// then.
#[test]
fn the_module_passes_where_commit_records_do_not_wait() {
    for mode in [
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_FULL,
    ] {
        passes(
            Campaign {
                exhaustive: 60,
                samples: 20,
                most_states_each: 2000,
                ..campaign(1, mode, AT_ONCE)
            },
            1000,
        );
    }
}

/// The same where blocks may be torn at sectors, and with the log on a device of its own.
#[test]
fn commit_records_that_do_not_wait_stand_torn_sectors() {
    for (mode, journal_device) in [
        (Ordering::JOURNAL_ORDERED, false),
        (Ordering::JOURNAL_WRITEBACK, true),
        (Ordering::JOURNAL_FULL, true),
    ] {
        let image = ImageOptions {
            journal_device,
            ..AT_ONCE
        };
        passes(
            Campaign {
                torn: true,
                drive: None,
                exhaustive: 60,
                samples: 20,
                most_states_each: 3000,
                ..campaign(1, mode, image)
            },
            1000,
        );
    }
}

fn passes(campaign: Campaign, least: u64) {
    let results = campaign.run(&NoObserver).unwrap();
    assert!(
        results.failures.is_empty(),
        "{}",
        results.failures[0].verdict()
    );
    assert!(results.states > least, "{}", results.states);
}

/// The rules whose absence these two scripts show without patchgroups.
const RULES: [Rule; 9] = [
    Rule::CommitAfterCopies,
    Rule::CommitStandsWithCopies,
    Rule::OriginalsAfterCommit,
    Rule::FreedAreRevoked,
    Rule::CommitAfterContents,
    Rule::CommitAfterReusedContents,
    Rule::AwaitedContentsAreKept,
    Rule::TailAfterOriginals,
    Rule::PartOfOriginalsIsNoted,
];

#[test]
fn every_rule_left_out_is_found() {
    for rule in RULES {
        let found = (1..=6).find_map(|seed| {
            let image = match rule {
                Rule::CommitStandsWithCopies => AT_ONCE,
                _ => ImageOptions::default(),
            };
            let script = match rule {
                Rule::CommitAfterReusedContents => REUSING,
                _ => SCRIPT,
            };
            let campaign = campaign_of(script, seed, Ordering::JOURNAL_ORDERED, image);
            let results = campaign.run(&Without(Some(rule.into()))).ok()?;
            let failure = results.failures.first()?;
            Some(format!("state {}: {}", results.states, failure.verdict()))
        });
        let found = found.unwrap_or_else(|| panic!("{rule:?} was not found"));
        eprintln!("{rule:?}: found in {found}");
    }
}
