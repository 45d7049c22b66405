//! Tasks in virtual time: futures that one thread polls, and what they wait for.
//!
//! A task runs until it waits, and no time passes meanwhile. When all tasks wait, the clock
//! advances to the next event: a timer, or one of a drive. Simultaneous events happen in the order
//! in which they were requested. So the same tasks have the same result on every host.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::drives::{Asked, Drives};
use crate::{Error, Result};

/// Events of which tasks inform each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A batch was written, blocks were read, or a task of the session has news.
    News,
    /// The writer has something to do.
    Writer,
    /// A client is done.
    Client,
    /// Requests are done whose end was to be [noted](Schedule::note).
    Done,
}

/// The index of a task. The first one is the caller that runs the machine.
type TaskId = usize;
const CALLER: TaskId = 0;

/// How often tasks may be polled while no time passes: far more often than they need.
const MOST_POLLS: u64 = 10_000_000;

/// What a task waits for.
enum Wait {
    /// A time.
    Time(u64),
    /// The end of all these requests.
    Requests(Vec<Asked>),
    /// An event, or a time if that comes first.
    Event(Event, Option<u64>),
    /// Until all other tasks that can run have had a turn.
    Turn,
}

/// How a task waits.
#[derive(Clone, Copy, Default)]
struct Waiting {
    /// Counts its waits. Timers of earlier ones are ignored.
    number: u64,
    requests_left: usize,
    event: Option<Event>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<TaskId>,
    waiting: Vec<Waiting>,
    /// Time, order of request, task, number of the task's wait.
    timers: BinaryHeap<Reverse<(u64, u64, TaskId, u64)>>,
    timers_asked: u64,
    requests: FxHashMap<Asked, TaskId>,
    /// Requests that no task waits for, but whose end is to be noted, and those that have ended.
    noted: FxHashSet<Asked>,
    done: Vec<Asked>,
}

/// Which task waits for what.
pub(super) struct Schedule {
    drives: Rc<Drives>,
    running: Cell<TaskId>,
    state: RefCell<State>,
}

impl Schedule {
    pub(super) fn new(drives: Rc<Drives>) -> Schedule {
        let state = State {
            waiting: vec![Waiting::default()],
            ..State::default()
        };
        Schedule {
            drives,
            running: Cell::new(CALLER),
            state: RefCell::new(state),
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.drives.clock().now_ns()
    }

    /// Waits until a time.
    pub(super) async fn until(&self, at_ns: u64) {
        self.wait(Wait::Time(at_ns)).await;
    }

    /// Waits for some time.
    pub(super) async fn sleep(&self, time: Duration) {
        self.until(self.now_ns() + time.as_nanos() as u64).await;
    }

    /// Waits until requests are done that were submitted in this turn.
    pub(super) async fn requests(&self, ids: Vec<Asked>) {
        if !ids.is_empty() {
            self.wait(Wait::Requests(ids)).await;
        }
    }

    /// Has the end of requests noted that were submitted in this turn, without waiting.
    pub(super) fn note(&self, ids: &[Asked]) {
        self.state.borrow_mut().noted.extend(ids);
    }

    /// The requests that have ended, of those to be noted, since the last call.
    pub(super) fn take_done(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.borrow_mut().done)
    }

    /// Waits until an event happens.
    pub(super) async fn event(&self, event: Event) {
        self.wait(Wait::Event(event, None)).await;
    }

    /// Waits until an event happens, or for this time at most.
    pub(super) async fn event_within(&self, event: Event, time: Duration) {
        let at_ns = self.now_ns() + time.as_nanos() as u64;
        self.wait(Wait::Event(event, Some(at_ns))).await;
    }

    /// Lets others have a turn.
    pub(super) async fn turn(&self) {
        self.wait(Wait::Turn).await;
    }

    fn wait(&self, wait: Wait) -> impl Future<Output = ()> + '_ {
        let mut wait = Some(wait);
        // A task is polled only once what it waits for has happened.
        std::future::poll_fn(move |_| match wait.take() {
            Some(wait) => {
                self.state.borrow_mut().begin_wait(self.running.get(), wait);
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
    }

    /// Wakes the tasks that wait for an event.
    pub(super) fn tell(&self, event: Event) {
        self.state.borrow_mut().tell(event);
    }

    /// Advances the clock to the next event. False if there is none.
    fn advance(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let timer_ns = state.timers.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let next_ns = match (timer_ns, self.drives.next_event_ns()) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => match one.or(other) {
                Some(next_ns) => next_ns,
                None => return false,
            },
        };
        self.drives.clock().reach(next_ns);
        for done in self.drives.take_done() {
            state.request_done(done);
        }
        let now_ns = self.now_ns();
        while let Some(Reverse((at_ns, _, task, number))) = state.timers.peek().copied()
            && at_ns <= now_ns
        {
            state.timers.pop();
            if state.waiting[task].number == number {
                state.wake(task);
            }
        }
        true
    }
}

impl State {
    fn begin_wait(&mut self, task: TaskId, wait: Wait) {
        let waiting = &mut self.waiting[task];
        let (event, at_ns) = match wait {
            Wait::Time(at_ns) => (None, Some(at_ns)),
            Wait::Event(event, at_ns) => (Some(event), at_ns),
            Wait::Requests(ids) => {
                waiting.requests_left = ids.len();
                self.requests.extend(ids.into_iter().map(|id| (id, task)));
                return;
            }
            Wait::Turn => return self.ready.push_back(task),
        };
        waiting.event = event;
        let number = waiting.number;
        if let Some(at_ns) = at_ns {
            let timer = (at_ns, self.timers_asked, task, number);
            self.timers.push(Reverse(timer));
            self.timers_asked += 1;
        }
    }

    fn tell(&mut self, event: Event) {
        for task in 0..self.waiting.len() {
            if self.waiting[task].event == Some(event) {
                self.wake(task);
            }
        }
    }

    fn request_done(&mut self, id: Asked) {
        if self.noted.remove(&id) {
            self.done.push(id);
            self.tell(Event::Done);
        }
        let Some(task) = self.requests.remove(&id) else {
            return;
        };
        self.waiting[task].requests_left -= 1;
        if self.waiting[task].requests_left == 0 {
            self.wake(task);
        }
    }

    fn wake(&mut self, task: TaskId) {
        let waiting = &mut self.waiting[task];
        waiting.number += 1;
        waiting.event = None;
        self.ready.push_back(task);
    }
}

/// Background tasks that have not ended.
#[derive(Default)]
pub(super) struct Tasks {
    /// By their numbers minus one.
    all: Vec<Option<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl Tasks {
    /// Begins a task. It runs while the machine is [run](Self::run).
    pub(super) fn spawn(&mut self, schedule: &Schedule, task: impl Future<Output = ()> + 'static) {
        self.all.push(Some(Box::pin(task)));
        let mut state = schedule.state.borrow_mut();
        state.waiting.push(Waiting::default());
        state.ready.push_back(self.all.len());
    }

    /// Runs all tasks until `caller` ends.
    ///
    /// # Errors
    /// [`Error::Standstill`] if it never can.
    pub(super) fn run<T>(
        &mut self,
        schedule: &Schedule,
        caller: impl Future<Output = T>,
    ) -> Result<T> {
        let mut caller = pin!(caller);
        let mut context = Context::from_waker(Waker::noop());
        schedule.state.borrow_mut().ready.push_back(CALLER);
        let (mut polls, mut since_ns) = (0, schedule.now_ns());
        loop {
            while let Some(task) = {
                let mut state = schedule.state.borrow_mut();
                state.ready.pop_front()
            } {
                schedule.running.set(task);
                polls += 1;
                if polls > MOST_POLLS {
                    return Err(Error::Standstill);
                }
                if task == CALLER {
                    if let Poll::Ready(value) = caller.as_mut().poll(&mut context) {
                        return Ok(value);
                    }
                } else if let Some(slot) = self.all.get_mut(task - 1)
                    && let Some(background) = slot
                    && background.as_mut().poll(&mut context).is_ready()
                {
                    *slot = None;
                }
            }
            if !schedule.advance() {
                return Err(Error::Standstill);
            }
            if std::mem::replace(&mut since_ns, schedule.now_ns()) != schedule.now_ns() {
                polls = 0;
            }
        }
    }
}
