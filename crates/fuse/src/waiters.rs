//! Threads for requests that wait for the disk, so that few threads are enough for all that do not.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Requests that wait at once; more wait for these.
const MOST_THREADS: usize = 64;
/// Time after which a thread that has nothing to do ends.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// Runs what may take long: the first one at a time in the thread that has it, for a thread of its
/// own would only cost the change to it, and what comes meanwhile in others.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Somebody waits in the thread that got the request.
    one_waits: AtomicBool,
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Waiters {
    /// Runs a job here or in another thread.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if !self.one_waits.swap(true, Ordering::Acquire) {
            job();
            self.one_waits.store(false, Ordering::Release);
            return;
        }
        self.pool.add(Box::new(job));
    }
}

impl Pool {
    fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.more.notify_one();
            return;
        }
        if state.threads == MOST_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = self.clone();
        let spawned = std::thread::Builder::new()
            .name("backstitch-wait".into())
            .spawn(move || pool.work());
        if let Err(error) = spawned {
            tracing::debug!("no thread for a request that waits: {error}");
            let mut state = self.state.lock();
            state.threads -= 1;
            // A thread that is there takes it in its turn; where none is, we do.
            let job = match state.threads {
                0 => state.jobs.pop_back(),
                _ => None,
            };
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.more.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    #[test]
    fn many_wait_for_each_other_and_all_come_through() {
        const JOBS: usize = 2 * MOST_THREADS;
        let waiters = Arc::new(Waiters::default());
        let (told, done) = channel();
        // As many meet as can wait in the pool at once.
        let met = Arc::new(Barrier::new(MOST_THREADS));
        for _ in 0..JOBS {
            let (met, told) = (met.clone(), told.clone());
            waiters.pool.add(Box::new(move || {
                met.wait();
                told.send(()).unwrap();
            }));
        }
        for _ in 0..JOBS {
            done.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        assert_eq!(waiters.pool.state.lock().threads, MOST_THREADS);
    }

    #[test]
    fn the_first_runs_here_and_the_next_elsewhere() {
        let waiters = Arc::new(Waiters::default());
        let (told, heard) = channel();
        let inner = waiters.clone();
        waiters.run(move || {
            let here = std::thread::current().id();
            let told_by_inner = told.clone();
            inner.run(move || {
                told_by_inner
                    .send(std::thread::current().id() == here)
                    .unwrap()
            });
            told.send(true).unwrap();
        });
        let mut both = [
            heard.recv_timeout(Duration::from_secs(30)).unwrap(),
            heard.recv_timeout(Duration::from_secs(30)).unwrap(),
        ];
        both.sort_unstable();
        assert_eq!(both, [false, true]);
        // And here again, once the first is through.
        let (told, heard) = channel();
        waiters.run(move || told.send(std::thread::current().id()).unwrap());
        assert_eq!(heard.recv().unwrap(), std::thread::current().id());
    }
}
