//! A mechanism takes one file: one that is not registered is explored like the others.

mod batches;

use std::time::Duration;

use backstitch_crash::{Campaign, NoObserver, Results, Workload, generate, script, standard};
use backstitch_device::Buffer;
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{BlockClass, BlockNumber, MechanismKind, Operation, PatchId, Volume};
use backstitch_store::{Goal, Limits, Optimisations, Store};

use batches::{BATCHES, LOOSE};

fn explored(kind: &'static dyn MechanismKind, workloads: Vec<Workload>) -> (Campaign, Results) {
    let campaign = Campaign {
        workloads,
        exhaustive: 400,
        samples: 50,
        in_use_every: 16,
        most_states_each: 60,
        ..standard::campaign(Ordering::unregistered(kind), 1, 2)
    };
    let results = campaign.run(&NoObserver);
    (campaign, results.expect("the engine gets through"))
}

#[test]
fn no_power_cut_leaves_what_batches_do_not_promise() {
    let (_, results) = explored(&BATCHES, generate::cases());
    if let Some(failure) = results.failures.first() {
        panic!("{}: {}", script(failure.operations()), failure.verdict());
    }
    assert!(results.distinct > 1000, "{} states", results.distinct);
}

/// Shows that the test above can fail: without the layout's order within a batch, states are wrong.
#[test]
fn a_batch_in_any_order_is_found_out() {
    let (_, results) = explored(&LOOSE, generate::cases());
    assert!(!results.failures.is_empty(), "{} states", results.distinct);
}

const BLOCK: u32 = 1024;

/// Operations that the layout does not order. The third changes the block of the first, and could
/// go with it into one write.
#[test]
fn a_batch_is_written_after_all_of_the_one_before() {
    let mut store = Store::new(Limits::default(), Optimisations::BOTH);
    let id = store.add_volume(BLOCK);
    for block in 0..4 {
        let bytes: Buffer = vec![0; BLOCK as usize].into();
        store.insert(id, block, BlockClass::Metadata, bytes);
    }
    let mut mechanism = BATCHES.make(None).expect("it has no log");
    let mut write = |store: &mut Store, block: u64, at: usize| {
        let mut volume = Volume::new(store, &mut *mechanism, id, Duration::ZERO);
        volume.begin(Operation::Touch { object: 2 });
        let made = volume.write(BlockNumber(block), BlockClass::Metadata, at, &[1; 4], &[]);
        let mut wait_for = Vec::new();
        volume.end(&mut wait_for);
        assert!(wait_for.is_empty(), "nobody waits");
        made
    };
    let first = write(&mut store, 0, 0);
    let second = write(&mut store, 1, 0);
    // A change of the same block as the first batch's.
    let third = write(&mut store, 0, 8);
    let batch = |store: &mut Store, target: PatchId| {
        let goal = Goal::Patches(std::slice::from_ref(&target));
        let batch = store.next_batch(goal, Duration::ZERO, u64::MAX);
        store.complete(batch, Duration::ZERO);
    };
    let live = |store: &Store| [first, second, third].map(|id| store.graph().is_live(id));
    batch(&mut store, third);
    assert_eq!(live(&store), [false, true, true]);
    batch(&mut store, third);
    assert_eq!(live(&store), [false, false, true]);
    batch(&mut store, third);
    assert_eq!(live(&store), [false; 3]);
}
