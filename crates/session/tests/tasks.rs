//! Tasks that are polled in turns, without threads: what several share, and what becomes of them
//! where the device fails.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, DeviceError, MemoryDevice};
use backstitch_ext::Ext2;
use backstitch_ext_tools::mkfs;
use backstitch_layout::operations;
use backstitch_layout::{FileType, InodeNumber, NewInode, OpenRequest, Timestamp};
use backstitch_ordering::PatchId;
use backstitch_session::{
    Chore, Clock, Error, Found, NAP, Outcome, Poll, Session, Task, Throttle, Turn,
};
use backstitch_store::{Batch, Limits, Optimisations, Store, drive};

const BLOCK_BYTES: u32 = 1024;

/// A second for each step.
struct Steps(u64);

impl Clock for Steps {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0)
    }

    fn stamp(&mut self) -> (Duration, Timestamp) {
        self.0 += 1;
        let seconds = 1_700_000_000 + self.0 as i64;
        let nanoseconds = 0;
        (
            self.now(),
            Timestamp {
                seconds,
                nanoseconds,
            },
        )
    }
}

struct Life {
    session: Session,
    clock: Steps,
    device: Arc<dyn BlockDevice>,
}

impl Life {
    fn begin() -> Life {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
        let mut options = mkfs::Mkfs::new([7; 16], [9; 16], 1_600_000_000);
        options.block_size = Some(BLOCK_BYTES);
        mkfs::write(&options, &*device).unwrap();
        let (mut life, found) = Life::open(device);
        life.finish(Task::start(found.first)).unwrap();
        life
    }

    fn open(device: Arc<dyn BlockDevice>) -> (Life, Found) {
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(BLOCK_BYTES);
        let request = OpenRequest {
            read_only: false,
            now: Timestamp::default(),
            without_journal: false,
            journaled: false,
            unwritable_journal: None,
        };
        let devices = [device.clone()];
        let read = |store: &mut Store| drive::read_wanted(store, &devices).map(drop);
        let soft = backstitch_mechanisms::make_without_log();
        let opened = Session::open(store, soft, volume, &Ext2, &*device, &request, read);
        let (session, found) = opened.unwrap();
        let life = Life {
            session,
            clock: Steps(0),
            device,
        };
        (life, found)
    }

    /// Polls until the task needs a batch written, somebody else, or nothing.
    fn poll(&mut self, task: &mut Task) -> Result<Poll, Error> {
        loop {
            match task.poll(&mut self.session, &mut self.clock)? {
                Poll::Read => {
                    let devices = [self.device.clone()];
                    drive::read_wanted(&mut self.session.store, &devices).unwrap();
                }
                Poll::Changed | Poll::Turn | Poll::Rest(_) => {}
                need => return Ok(need),
            }
        }
    }

    fn write(&mut self, batch: Batch) {
        let result = drive::perform(std::slice::from_ref(&self.device), &batch.writes);
        self.session.written(batch, result, self.clock.now());
    }

    fn finish(&mut self, mut task: Task) -> Result<Outcome, Error> {
        loop {
            match self.poll(&mut task)? {
                Poll::Write(batch) => self.write(batch),
                Poll::Done(outcome) => return Ok(outcome),
                need => panic!("it is alone: {need:?}"),
            }
        }
    }

    /// Makes a file, and says what has to be on stable storage for it to be there.
    fn make(&mut self, name: &str) -> Vec<PatchId> {
        let new = NewInode {
            file_type: FileType::Regular,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: &[],
        };
        let mut made: Option<InodeNumber> = None;
        let root = self.session.fs.root();
        while made.is_none() {
            let at = self.clock.stamp();
            let step = self.session.step(
                Some(operations::create(root, name.as_bytes(), &new)),
                at,
                &[],
                &mut Vec::new(),
                &mut |fs, v, now| fs.create(v, root, name.as_bytes(), &new, now),
            );
            made = step.ok();
            drive::read_wanted(&mut self.session.store, std::slice::from_ref(&self.device))
                .unwrap();
        }
        let mut targets = Vec::new();
        let at = self.clock.stamp();
        let looked = self
            .session
            .step(None, at, &[], &mut Vec::new(), &mut |fs, v, _| {
                fs.flush_targets(v, made.unwrap(), false, &mut targets);
                Ok(())
            });
        looked.unwrap();
        targets
    }
}

/// The batch that a task asks for.
fn batch(need: Poll) -> Batch {
    match need {
        Poll::Write(batch) => batch,
        need => panic!("{need:?}"),
    }
}

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
