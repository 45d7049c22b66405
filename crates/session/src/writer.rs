//! Write-back: what the writer of a mount does next, and which operations wait while memory is
//! full.
//!
//! This is the policy alone. Its driver has a thread, or virtual time, and takes one [`Turn`] after
//! the other, each a few [chores](Chore), with a nap where there is nothing to do.

use std::time::Duration;

use backstitch_store::{Batch, Goal};

use crate::{BATCH_BYTES, Session, Task};

/// How long the writer sleeps at most: the resolution of expiry.
pub const NAP: Duration = Duration::from_millis(500);
/// No batch is larger than this part of the bound on memory: its versions stay in memory beside
/// newer ones.
const BATCH_PART: u64 = 4;
/// From how many blocks on the writer leaves everything to a sync that is writing them: as many as
/// its own batches have.
const LARGE_SYNC_BLOCKS: usize = 4096;
/// Rounds without a batch on its way after which nobody waits for memory any more: 2 s.
const IDLE_ROUNDS: u32 = 20;

/// Something that the writer is to do.
pub enum Chore {
    /// Drive this to its end: the layout's deferred work whose time has come.
    Work(Task),
    /// Drive this to its end: the log wants to be committed or freed. Of an error the turn
    /// [is told](Turn::log_failed).
    Log(Task),
    /// Write this batch, which is on its way.
    Write(Batch),
    /// The turn is over, and there may be more to do at once.
    Again,
    /// The turn is over. There is nothing to do for this time, or until somebody wakes the writer.
    Nap(Duration),
}

/// One turn of the writer.
#[derive(Debug, Default)]
pub struct Turn {
    stage: Stage,
    wrote: bool,
}

/// What a turn comes to next.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Work,
    Commit,
    Committed,
    FreeLog,
    Issued,
    Oldest,
    End,
}

impl Turn {
    /// The next chore. `held_bytes` is what the front holds in memory until patches commit.
    pub fn next(&mut self, session: &mut Session, now: Duration, held_bytes: u64) -> Chore {
        loop {
            match self.stage {
                Stage::Work => {
                    self.stage = Stage::Commit;
                    return Chore::Work(Task::work());
                }
                Stage::Commit if session.is_commit_due(now) => {
                    self.stage = Stage::Committed;
                    return Chore::Log(Task::commit());
                }
                Stage::Commit => self.stage = Stage::FreeLog,
                Stage::Committed => {
                    self.stage = Stage::FreeLog;
                    let last = session.log_state().map(|log| log.last);
                    return Chore::Log(Task::make_stable(last.into_iter().collect()));
                }
                Stage::FreeLog => {
                    self.stage = Stage::Issued;
                    if session.is_log_filling() {
                        return Chore::Log(Task::free_log());
                    }
                }
                Stage::Issued => {
                    self.stage = Stage::Oldest;
                    session.note_held(held_bytes);
                    let hurry = session.store.is_filling();
                    if let Some(batch) = session.next_issued(now, hurry) {
                        self.wrote = true;
                        return Chore::Write(batch);
                    }
                }
                Stage::Oldest => {
                    self.stage = Stage::End;
                    if let Some(batch) = session.next_oldest(now) {
                        self.wrote = true;
                        return Chore::Write(batch);
                    }
                }
                Stage::End => return self.end(session, now),
            }
        }
    }

    /// A chore of the log failed: nothing more is done about the log in this turn.
    pub fn log_failed(&mut self) {
        self.stage = Stage::Issued;
    }

    /// Deferred work that comes due by what was just done can wait: taken up at once, it would be
    /// one removed file at a time. Patches that have fired cannot: somebody waits for what follows.
    fn end(&self, session: &mut Session, now: Duration) -> Chore {
        session.store.trim();
        if self.wrote || session.store.graph().has_fired() {
            return Chore::Again;
        }
        let issue = session.next_issue().map(|at| at.saturating_sub(now));
        // What is issued and could not be written waits for a batch on its way.
        let issue = issue.filter(|time| !time.is_zero());
        Chore::Nap(issue.map_or(NAP, |time| time.min(NAP)))
    }
}

impl Session {
    /// Tells the store what is held in memory until patches commit: by deferred work, and by the
    /// front.
    pub fn note_held(&mut self, front_bytes: u64) {
        let deferred = self.fs.deferred();
        let retiring = deferred.bytes + front_bytes;
        self.store.note_held(retiring, deferred.index_bytes);
    }

    /// A batch of what has expired, or of what is oldest where memory fills up.
    fn next_oldest(&mut self, now: Duration) -> Option<Batch> {
        if self.latched.is_some() || self.leaves_it_to_a_sync() {
            return None;
        }
        let goal = match self.store.is_filling() {
            true => Goal::Oldest,
            false => Goal::Expired,
        };
        let max_bytes = BATCH_BYTES.min(self.store.limits().memory_bytes / BATCH_PART);
        let batch = self.store.next_batch(goal, now, max_bytes);
        self.hand_out(batch)
    }

    /// Whether a large batch of a sync is under way: what it leaves for later rounds goes in those.
    /// Bits of it written beside it would each cost a flush that the large batch waits for as well.
    fn leaves_it_to_a_sync(&self) -> bool {
        self.sync_blocks >= LARGE_SYNC_BLOCKS && !self.store.is_crowded()
    }
}

/// The wait of an operation that makes changes, while memory is crowded with what is not on disk
/// yet.
///
/// Before the first round what a running transaction has changed is to be committed, or it could
/// not leave memory. Each round wakes the writer and waits for a batch, at most for
/// [`ROUND`](Self::ROUND).
#[derive(Debug)]
pub struct Throttle {
    is_early: bool,
    idle_rounds: u32,
}

impl Throttle {
    /// `is_early`: the operation makes long chains of patches, each of which may take a flush to
    /// get to the disk. So it waits a little earlier than others, and they need not wait for its
    /// chain.
    pub fn new(is_early: bool) -> Throttle {
        Throttle {
            is_early,
            idle_rounds: 0,
        }
    }

    /// How long a round takes at most.
    pub const ROUND: Duration = Duration::from_millis(100);

    /// Whether there must be a round, or one more. The store [knows](Session::note_held) what is
    /// held.
    ///
    /// Nobody hangs where nothing can be retired: after some rounds the operation goes on, and
    /// memory grows by what it needs.
    pub fn must_wait(&self, session: &Session) -> bool {
        let is_full = match self.is_early {
            true => session.store.is_nearly_crowded(),
            false => session.store.is_crowded(),
        };
        is_full && session.latched.is_none() && self.idle_rounds < IDLE_ROUNDS
    }

    /// A round is over.
    pub fn waited(&mut self, session: &Session, timed_out: bool) {
        let is_idle = timed_out && session.batches_in_flight() == 0;
        self.idle_rounds = if is_idle { self.idle_rounds + 1 } else { 0 };
    }
}
