//! Torn blocks: order between the sectors of a block prevents what order between blocks cannot.

use crate::effort;
use backstitch_crash::{
    Campaign, ImageOptions, NoObserver, Results, Schedule, Workload, generate, parse_script, script,
};

use backstitch_mechanisms::Ordering;
use backstitch_store::Optimisations;

fn campaign(workloads: Vec<Workload>) -> Campaign {
    let variants = [Optimisations::NONE, Optimisations::BOTH]
        .into_iter()
        .flat_map(|optimisations| Schedule::ALL.map(|schedule| (optimisations, schedule)))
        .collect();
    Campaign {
        ordering: Ordering::SOFT,
        workloads,
        variants,
        image: ImageOptions::default(),
        base: None,
        seed: 1,
        torn: true,
        drive: None,
        unit_bytes: Some(512),
        exhaustive: 400,
        samples: 60,
        whole_every: 64,
        in_use_every: 64,
        most_states: u64::MAX,
        most_states_each: effort::bound(20_000),
        most_failures: 1,
        threads: 2,
    }
}

fn workload(text: &str) -> Workload {
    Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("a script of our own"),
        setup: 0,
    }
}

fn explored(campaign: &Campaign) -> Results {
    campaign.run(&NoObserver).expect("the engine gets through")
}

fn assert_nothing(campaign: &Campaign, what: &str) {
    let results = explored(campaign);
    if let Some(failure) = results.failures.first() {
        panic!(
            "{what}: {}: {}",
            script(failure.operations()),
            failure.verdict()
        );
    }
    eprintln!("{what}: {} states", results.states);
}

/// Wrong if the unit is taken to be larger than it is: of two inodes in two sectors of a block, one
/// must be written before the other.
const TWO_INODES: &str = "mkdir A; mkdir A/C; rename A/C B; mkdir A/C; sync";

#[test]
fn order_between_blocks_alone_is_not_enough() {
    let mut campaign = campaign(vec![workload(TWO_INODES)]);
    campaign.unit_bytes = None;
    campaign.most_states_each = u64::MAX;
    let results = explored(&campaign);
    assert!(
        !results.failures.is_empty(),
        "nothing found in {} states: are blocks torn at all?",
        results.states
    );
}

#[test]
fn order_between_sectors_is() {
    let mut campaign = campaign(vec![workload(TWO_INODES)]);
    campaign.most_states_each = u64::MAX;
    assert_nothing(&campaign, "two inodes");
}

/// Blocks of 1, 2 and 4 KiB, and both mechanisms that keep order between blocks.
#[test]
fn single_operations_and_random_ones_stand_torn_blocks() {
    for (block_bytes, ordering) in [
        (1024, Ordering::SOFT),
        (2048, Ordering::SOFT),
        (4096, Ordering::SOFT),
        (1024, Ordering::SYNC),
    ] {
        let mut workloads = generate::sequences(1);
        workloads.truncate(24);
        workloads.extend(generate::random(12, u64::from(block_bytes)));
        workloads.extend(generate::flushed(6, u64::from(block_bytes)));
        let campaign = Campaign {
            ordering,
            image: ImageOptions {
                block_bytes,
                ..ImageOptions::default()
            },
            // Crashes inside the recovery are left out under `sync`: a rename over an empty
            // directory fails there whether blocks are torn or not.
            whole_every: if ordering == Ordering::SYNC { 0 } else { 64 },
            most_states_each: effort::bound(2_000),
            ..campaign(workloads)
        };
        assert_nothing(&campaign, &format!("{ordering}, blocks of {block_bytes}"));
    }
}

/// What is not at home yet is written there again from the journal, over whatever is there.
#[test]
fn a_journal_needs_no_order_between_sectors() {
    for mode in [Ordering::JOURNAL_ORDERED, Ordering::JOURNAL_FULL] {
        let campaign = Campaign {
            ordering: mode,
            most_states_each: effort::bound(1_000),
            ..campaign(generate::random(8, 3))
        };
        assert_nothing(&campaign, &format!("{}", campaign.ordering));
    }
}

/// Names of every length, in directories that were made while blocks were written wholly, so that
/// entries cross sectors.
#[test]
fn directories_whose_entries_cross_sectors() {
    let name = |letter: char, len: usize| letter.to_string().repeat(len);
    let mut made = "mkdir A; mkdir B; creat A/f".to_owned();
    let mut changed = Vec::new();
    for (at, len) in [230, 233, 100, 190].into_iter().enumerate() {
        let letter = (b'k' + at as u8) as char;
        made += &format!("; creat A/{}", name(letter, len));
        made += &format!("; creat B/{}", name(letter, len - at));
        changed.push(name(letter, len));
    }
    let mut base = campaign(Vec::new());
    (base.torn, base.unit_bytes) = (false, None);
    let base = base.after(&workload(&made)).expect("it runs");
    let [first, second, third, fourth] = &changed[..] else {
        unreachable!("four names");
    };
    let scripts = [
        format!("unlink A/{second}; creat A/{}; sync", name('n', 210)),
        format!(
            "unlink A/{third}; unlink A/{second}; creat A/{}; fsync A/{}",
            name('n', 240),
            name('n', 240)
        ),
        format!(
            "rename A/{second} A/{}; rename A/{first} A/{fourth}; sync",
            name('n', 220)
        ),
        format!(
            "mkdir A/d; rename A/f A/{second}; symlink {first} A/g; rename A/g A/{third}; sync"
        ),
        format!(
            "link A/{first} A/{}; unlink A/{first}; link A/{second} A/g; sync",
            name('n', 120)
        ),
    ];
    let workloads: Vec<Workload> = scripts.iter().map(|text| workload(text)).collect();
    let campaign = Campaign {
        base: Some(base),
        whole_every: 16,
        ..campaign(workloads)
    };
    assert_nothing(&campaign, "entries that cross sectors");
}
