//! States that one kind of drive may leave: fewer than without a drive, enough to show that order
//! is missing, and none that a correct order forbids.

use std::sync::Arc;

use backstitch_crash::{Campaign, NoObserver, Results, Workload, parse_script, scripts, standard};
use backstitch_drives::DriveSpec;
use backstitch_mechanisms::Ordering;

/// Blocks of contents on their way all over the disk, with names and pointers.
const SCRIPT: &str = "creat a; write a 0 20000; mkdir d; rename a d/b; creat c; sync; unlink c";

fn workload(text: &str) -> Workload {
    Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("a script of our own"),
        setup: 0,
    }
}

fn explored(ordering: Ordering, drive: Option<DriveSpec>, workloads: Vec<Workload>) -> Results {
    let campaign = Campaign {
        workloads,
        drive: drive.map(Arc::new),
        most_states_each: 300,
        ..standard::campaign(ordering, 7, 2)
    };
    campaign.run(&NoObserver).expect("the engine gets through")
}

/// The drive of this name with a queue of one, with or without a volatile cache.
fn drive(name: &str, is_cached: bool) -> DriveSpec {
    let mut spec = DriveSpec::preset(name).unwrap();
    spec.queue.tags = 1;
    spec.rotating.as_mut().unwrap().write_cache = is_cached;
    spec
}

#[test]
fn a_drive_without_a_cache_leaves_fewer_states_than_one_with_it_and_that_fewer_than_any() {
    let states = |drive| explored(Ordering::SOFT, drive, vec![workload(SCRIPT)]).distinct;
    let (plain, cached) = (drive("viking", false), drive("viking", true));
    let counts = [states(Some(plain)), states(Some(cached)), states(None)];
    assert!(
        counts[0] > 20 && counts.is_sorted() && counts[0] < counts[1],
        "{counts:?}"
    );
    assert!(counts[1] < counts[2], "{counts:?}");
}

#[test]
fn without_order_each_drive_leaves_damage() {
    for name in ["viking", "st2383", "st3320620as", "nvme", "sata-ssd"] {
        let spec = DriveSpec::preset(name).unwrap();
        let results = explored(Ordering::ASYNC, Some(spec), vec![workload(SCRIPT)]);
        assert!(
            !results.failures.is_empty(),
            "{name}: {} states",
            results.states
        );
    }
}

#[test]
fn with_order_none_does() {
    for ordering in Ordering::ALL
        .into_iter()
        .filter(|o| o.promises().keeps_order())
    {
        for name in ["viking", "nvme"] {
            let spec = DriveSpec::preset(name).unwrap();
            let some = scripts::workloads().into_iter().step_by(40);
            let results = explored(ordering, Some(spec), some.collect());
            let failure = results.failures.first().map(|failure| failure.verdict());
            assert_eq!(failure, None, "{ordering} on {name}");
            assert!(
                results.states > 100,
                "{ordering} on {name}: {}",
                results.states
            );
        }
    }
}
