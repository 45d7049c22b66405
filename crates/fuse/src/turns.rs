//! Who reads the next request: as few threads as the mount can do with, the others stand by.
//!
//! The kernel wakes the threads that read requests one after the other. Where requests are answered
//! in a few microseconds, threads that take turns at it only cost the change from one to the next.
//! So a thread that has answered a request reads on only as long as no more than [`MOST_READERS`]
//! do; what is about to wait for the disk lets one that stands by read in its place.
//!
//! This hangs on the front's methods: each holds a [`Turn`] until it has answered. Where requests
//! come by io_uring the kernel hands them out so by itself, and there are no turns.

use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that read requests at once.
const MOST_READERS: usize = 1;

thread_local! {
    /// What the thread is here, once it has had a request.
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// Lets few of the threads that serve a mount read its requests.
#[derive(Default)]
pub(crate) struct Turns {
    /// Threads that read or answer a request. Changed under the lock only.
    readers: AtomicUsize,
    state: Mutex<State>,
    next: Condvar,
}

#[derive(Default)]
struct State {
    standing_by: usize,
    /// Threads of those that stand by that have been called, and are counted as readers already.
    called: usize,
    /// The connection is at its end: every thread is to learn that from it.
    is_over: bool,
}

/// A thread that serves a mount; the thread's end drops it.
struct Place {
    turns: Arc<Turns>,
    /// It is one of those that read.
    reads: bool,
}

/// A request is being answered; afterwards the thread reads the next one, or stands by.
pub(crate) struct Turn(());

impl Turns {
    /// To be held while a request is answered.
    pub(crate) fn take(self: &Arc<Self>) -> Turn {
        PLACE.with_borrow_mut(|place| {
            if place.is_none() {
                let _state = self.state.lock();
                self.readers.fetch_add(1, Ordering::Relaxed);
                *place = Some(Place {
                    turns: self.clone(),
                    reads: true,
                });
            }
        });
        Turn(())
    }

    /// Another thread reads on in this one's place. Nothing happens in threads that do not answer a
    /// request.
    pub(crate) fn hand_over() {
        PLACE.with_borrow_mut(|place| {
            if let Some(place) = place
                && std::mem::take(&mut place.reads)
            {
                place.turns.one_less();
            }
        });
    }

    fn one_less(&self) {
        let mut state = self.state.lock();
        if state.standing_by > state.called {
            state.called += 1;
            self.next.notify_one();
        } else {
            self.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Comes back where this thread is to read.
    fn stand_by(&self, reads: bool) {
        let mut state = self.state.lock();
        if reads {
            if self.readers.load(Ordering::Relaxed) <= MOST_READERS || state.is_over {
                return;
            }
            self.readers.fetch_sub(1, Ordering::Relaxed);
        } else if self.readers.load(Ordering::Relaxed) < MOST_READERS || state.is_over {
            self.readers.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.standing_by += 1;
        while state.called == 0 && !state.is_over {
            self.next.wait(&mut state);
        }
        state.standing_by -= 1;
        if state.called > 0 {
            state.called -= 1;
        } else {
            self.readers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        PLACE.with_borrow_mut(|place| {
            let Some(place) = place else { return };
            let is_enough = place.turns.readers.load(Ordering::Relaxed) <= MOST_READERS;
            if place.reads && is_enough || std::thread::panicking() {
                return;
            }
            place.turns.stand_by(place.reads);
            place.reads = true;
        });
    }
}

impl Drop for Place {
    /// A thread that reads ends because the mount does; nobody would call those that stand by.
    fn drop(&mut self) {
        self.turns.state.lock().is_over = true;
        self.turns.next.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(30);

    /// Threads that take requests from one queue, as those of a mount do from the kernel's. A request is
    /// told when it is being answered, and is answered once `go` says so; `true` waits for the disk
    /// meanwhile.
    struct Served {
        ask: Sender<bool>,
        began: Receiver<std::thread::ThreadId>,
        go: Sender<()>,
        answered: Receiver<()>,
        threads: Vec<std::thread::JoinHandle<()>>,
    }

    fn serve(threads: usize) -> Served {
        let (ask, asked) = channel::<bool>();
        let (tell_began, began) = channel();
        let (go, gone) = channel::<()>();
        let (tell_answered, answered) = channel();
        let turns = Arc::new(Turns::default());
        let asked = Arc::new(Mutex::new(asked));
        let gone = Arc::new(Mutex::new(gone));
        let threads = (0..threads).map(|_| {
            let (turns, asked, gone) = (turns.clone(), asked.clone(), gone.clone());
            let (tell_began, tell_answered) = (tell_began.clone(), tell_answered.clone());
            std::thread::spawn(move || {
                loop {
                    // The lock stands for the kernel's queue: given up before the request is looked
                    // at.
                    let request = asked.lock().recv();
                    let Ok(waits) = request else { return };
                    let _turn = turns.take();
                    if waits {
                        Turns::hand_over();
                    }
                    tell_began.send(std::thread::current().id()).unwrap();
                    gone.lock().recv_timeout(LONG).unwrap();
                    tell_answered.send(()).unwrap();
                }
            })
        });
        let threads = threads.collect();
        Served {
            ask,
            began,
            go,
            answered,
            threads,
        }
    }

    impl Served {
        fn ask(&self, waits: bool) -> std::thread::ThreadId {
            self.ask.send(waits).unwrap();
            self.began.recv_timeout(LONG).unwrap()
        }

        fn answer(&self) {
            self.go.send(()).unwrap();
            self.answered.recv_timeout(LONG).unwrap();
        }

        /// Every thread has a request at the same time, so that each is known; afterwards one
        /// reads.
        fn settle(&self) {
            let all = self.threads.len();
            for _ in 0..all {
                self.ask(true);
            }
            for _ in 0..all {
                self.answer();
            }
        }
    }

    #[test]
    fn one_thread_answers_what_takes_no_waiting() {
        let served = serve(4);
        served.settle();
        let first = served.ask(false);
        served.answer();
        for _ in 0..20 {
            assert_eq!(served.ask(false), first);
            served.answer();
        }
    }

    #[test]
    fn who_waits_is_relieved_and_as_many_as_there_are() {
        let served = serve(4);
        served.settle();
        // Three wait; the fourth goes on answering.
        let mut waiting: Vec<_> = (0..3).map(|_| served.ask(true)).collect();
        waiting.push(served.ask(false));
        waiting.sort_by_key(|id| format!("{id:?}"));
        waiting.dedup();
        assert_eq!(waiting.len(), 4);
        for _ in 0..4 {
            served.answer();
        }
        served.settle();
        let first = served.ask(false);
        served.answer();
        assert_eq!(served.ask(false), first);
        served.answer();
    }

    #[test]
    fn the_end_of_one_ends_all() {
        let served = serve(4);
        served.settle();
        drop(served.ask);
        for thread in served.threads {
            thread.join().unwrap();
        }
    }
}
