//! Tasks that are polled in turns, without threads: what several share, and what becomes of them
//! where the device fails.

use std::time::Duration;

use crate::support::{Life, batch};
use backstitch_device::DeviceError;
use backstitch_session::{Chore, Clock, Error, NAP, Outcome, Poll, Task, Throttle, Turn};

#[test]
fn tasks_that_wait_for_the_same_rounds_share_them() {
    let mut life = Life::begin();
    let (first, second) = (life.make("a"), life.make("b"));
    let (mut first, mut second) = (Task::make_stable(first), Task::make_stable(second));
    let (before, mut batches) = (life.session.waited_batches, 0);
    let mut need = life.poll(&mut first).unwrap();
    while let Poll::Write(batch) = need {
        batches += 1;
        // Only one leads.
        assert!(matches!(life.poll(&mut second).unwrap(), Poll::Wait));
        life.write(batch);
        need = life.poll(&mut first).unwrap();
    }
    assert!(matches!(need, Poll::Done(Outcome::Worked)));
    // Inodes and names lie in the same blocks.
    let last = life.poll(&mut second).unwrap();
    assert!(matches!(last, Poll::Done(Outcome::Worked)), "{last:?}");
    assert_eq!(life.session.waited_batches - before, batches);
    assert_eq!(life.session.batches_in_flight(), 0);
}

#[test]
fn where_a_batch_fails_all_who_wait_are_told_and_nothing_is_written_any_more() {
    let mut life = Life::begin();
    let (first, second) = (life.make("a"), life.make("b"));
    let (mut first, mut second) = (Task::make_stable(first), Task::make_stable(second));
    let lost = batch(life.poll(&mut first).unwrap());
    assert!(matches!(life.poll(&mut second).unwrap(), Poll::Wait));
    let reason = "it is gone".to_owned();
    let failure = DeviceError::Abandoned { reason };
    let now = life.clock.now();
    life.session.written(lost, Err(failure.clone()), now);
    for task in [first, second, Task::drain(), Task::unmount(Duration::ZERO)] {
        assert_eq!(life.finish(task), Err(Error::Latched(failure.clone())));
    }
    assert!(life.session.fs.read_only_reason().is_some());
}

#[test]
fn after_an_unmount_nothing_is_left_to_be_done() {
    let mut life = Life::begin();
    life.make("a");
    life.finish(Task::unmount(Duration::ZERO)).unwrap();
    assert_eq!(life.session.store.graph().counters().live, 0);
    assert!(!Life::open(life.device).1.recovery_needed);
    // The same without it.
    let mut life = Life::begin();
    let targets = life.make("a");
    life.finish(Task::make_stable(targets)).unwrap();
    assert!(Life::open(life.device).1.recovery_needed);
}

/// One turn of the writer: what it wrote, and the nap after it.
fn turn(life: &mut Life, now: Duration) -> (usize, Option<Duration>) {
    let (mut turn, mut written) = (Turn::default(), 0);
    loop {
        match turn.next(&mut life.session, now, 0) {
            Chore::Work(task) | Chore::Log(task) => drop(life.finish(task).unwrap()),
            Chore::Write(batch) => {
                written += batch.writes.len();
                life.write(batch);
            }
            Chore::Again => return (written, None),
            Chore::Nap(time) => return (written, Some(time)),
        }
    }
}

/// Turns until there is nothing to do; the blocks written, and the nap.
fn turns(life: &mut Life, now: Duration) -> (usize, Duration) {
    let mut sum = 0;
    for _ in 0..100 {
        let (written, nap) = turn(life, now);
        sum += written;
        if let Some(nap) = nap {
            return (sum, nap);
        }
    }
    panic!("the writer finds no rest");
}

#[test]
fn the_writer_naps_until_changes_have_expired() {
    let mut life = Life::begin();
    let made = life.make("a");
    let now = life.clock.now();
    assert_eq!(turns(&mut life, now), (0, NAP));
    assert!(
        made.iter()
            .any(|id| life.session.store.graph().is_live(*id))
    );
    let expired = now + Duration::from_secs(60);
    let (written, nap) = turns(&mut life, expired);
    assert!(written > 0 && nap == NAP, "{written} writes, {nap:?}");
    assert!(
        !made
            .iter()
            .any(|id| life.session.store.graph().is_live(*id))
    );
    assert_eq!(turns(&mut life, expired), (0, NAP));
}

#[test]
fn the_writer_leaves_what_has_expired_to_a_large_sync() {
    let mut life = Life::begin();
    life.make("a");
    let expired = life.clock.now() + Duration::from_secs(60);
    life.session.sync_blocks = 1 << 20;
    assert_eq!(turns(&mut life, expired), (0, NAP));
    life.session.sync_blocks = 0;
    assert!(turns(&mut life, expired).0 > 0);
}

#[test]
fn who_waits_for_memory_goes_on_where_nothing_is_on_its_way() {
    let mut life = Life::begin();
    // Nothing is crowded: nobody waits.
    assert!(!Throttle::new(false).must_wait(&life.session));
    // Somebody holds more than the bound, and nobody retires it.
    life.session.note_held(u64::MAX / 2);
    let mut throttle = Throttle::new(false);
    let mut rounds = 0;
    while throttle.must_wait(&life.session) {
        // A batch that is done begins the count anew.
        throttle.waited(&life.session, rounds != 5);
        rounds += 1;
    }
    assert_eq!(rounds, 26);
    life.session.note_held(0);
    assert!(!Throttle::new(true).must_wait(&life.session));
}
