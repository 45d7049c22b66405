//! The end of a transaction that several tasks wait for: they share one commit.

use std::time::Duration;

use crate::support::{Life, batch};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::PatchId;
use backstitch_session::{Clock, Poll, Task};

fn commits(life: &mut Life) -> u64 {
    life.session.log_state().unwrap().commits
}

/// A task that waits for what was made.
fn wait_for(targets: &[PatchId]) -> Task {
    Task::make_stable(targets.to_vec())
}

#[test]
fn a_transaction_that_somebody_ends_is_waited_for_without_ending_the_next_one() {
    let mut life = Life::begin_under(Ordering::JOURNAL_ORDERED);
    let made = life.make("removed");
    life.finish(wait_for(&made)).unwrap();
    life.remove("removed");
    let made = life.make("awaited");
    let (mut first, mut second) = (wait_for(&made), wait_for(&made));
    let before = commits(&mut life);
    // What was removed is freed at the transaction's end, in steps between which others have a
    // turn.
    loop {
        let need = first.poll(&mut life.session, &mut life.clock).unwrap();
        match need {
            Poll::Turn if !life.session.has_room() => break,
            Poll::Turn | Poll::Changed => {}
            need => panic!("nothing is freed: {need:?}"),
        }
    }
    assert!(matches!(life.poll(&mut second).unwrap(), Poll::Wait));
    let mut need = life.poll(&mut first).unwrap();
    assert_eq!(commits(&mut life), before + 1);
    life.make("later");
    while let Poll::Write(batch) = need {
        assert!(matches!(life.poll(&mut second).unwrap(), Poll::Wait));
        life.write(batch);
        need = life.poll(&mut first).unwrap();
    }
    assert!(matches!(need, Poll::Done(_)));
    assert!(matches!(life.poll(&mut second).unwrap(), Poll::Done(_)));
    assert_eq!(commits(&mut life), before + 1);
}

#[test]
fn those_who_wait_are_gathered_from_the_first_one_on() {
    let mut life = Life::begin_under(Ordering::JOURNAL_ORDERED_GROUP);
    let mut first = wait_for(&life.make("a"));
    let need = life.poll_to_rest(&mut first).unwrap();
    let Poll::Rest(whole) = need else {
        panic!("it is alone, and does not let others come: {need:?}");
    };
    assert!(whole > Duration::ZERO && whole < Duration::from_secs(1));
    let written = batch(life.poll_to_rest(&mut first).unwrap());
    // While one transaction is on its way to the disk, somebody waits for the next one.
    let mut second = wait_for(&life.make("b"));
    assert!(matches!(
        life.poll_to_rest(&mut second).unwrap(),
        Poll::Wait
    ));
    life.clock.0 += 1;
    life.write(written);
    loop {
        match life.poll_to_rest(&mut first).unwrap() {
            Poll::Write(batch) => life.write(batch),
            Poll::Done(_) => break,
            need => panic!("{need:?}"),
        }
    }
    // By now others have had their time.
    let before = commits(&mut life);
    let need = life.poll_to_rest(&mut second).unwrap();
    assert!(matches!(need, Poll::Write(_)), "{need:?}");
    assert_eq!(commits(&mut life), before + 1);
    assert!(life.clock.now() > whole);
}

#[test]
fn who_comes_later_waits_for_the_rest_of_the_time_only() {
    let mut life = Life::begin_under(Ordering::JOURNAL_ORDERED_GROUP);
    let made = life.make("a");
    let (mut first, mut second) = (wait_for(&made), wait_for(&made));
    assert!(matches!(
        life.poll_to_rest(&mut first).unwrap(),
        Poll::Rest(_)
    ));
    life.clock.0 += 1;
    let need = life.poll_to_rest(&mut second).unwrap();
    assert!(matches!(need, Poll::Write(_)), "{need:?}");
}
