//! Which threads there are, and on which processors they run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::sync::OnceLock;

/// Requests of one processor that can be under way at once, at least and at most.
const LEAST_AT_ONCE: usize = 8;
const MOST_AT_ONCE: usize = 16;

/// Which threads serve which queues.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The queue of each thread.
    queues: Vec<u16>,
    at_once: usize,
}

impl Plan {
    /// About `threads` threads: as many for each processor that is there, and one for each that may
    /// come to be.
    ///
    /// # Errors
    ///
    /// The system's, where it does not say which processors it has.
    pub(crate) fn new(threads: usize) -> io::Result<Plan> {
        let (online, possible) = (processors("online")?, processors("possible")?);
        Ok(Plan::over(&online, possible.len(), threads))
    }

    fn over(online: &[u16], possible: usize, threads: usize) -> Plan {
        let at_once = (threads / online.len().max(1)).clamp(LEAST_AT_ONCE, MOST_AT_ONCE);
        let of_queue = |queue: &u16| match online.contains(queue) {
            true => at_once,
            false => 1,
        };
        // The kernel numbers them without gaps.
        let all = 0..u16::try_from(possible).unwrap_or(u16::MAX);
        let queues = all.flat_map(|queue| vec![queue; of_queue(&queue)]);
        Plan {
            queues: queues.collect(),
            at_once,
        }
    }

    /// Requests of one processor that can be under way at once.
    pub(crate) fn at_once(&self) -> usize {
        self.at_once
    }

    pub(crate) fn queues(&self) -> &[u16] {
        &self.queues
    }
}

/// The processors of this system that are `online`, or are `possible`: the kernel has a queue for
/// each of the latter.
fn processors(which: &str) -> io::Result<Vec<u16>> {
    let path = format!("/sys/devices/system/cpu/{which}");
    let found = std::fs::read_to_string(&path).map(|list| numbers_of(&list));
    found?.ok_or_else(|| io::Error::other(format!("{path} is no list of processors")))
}

/// The numbers of a list like `0-3,5`.
fn numbers_of(list: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The thread runs where the requests of its queue come from: then nobody has to wake another
/// processor. Where that is not allowed it runs where it may.
pub(super) fn follow(queue: u16) {
    let cpu = usize::from(queue);
    let Some(allowed) = everywhere() else {
        return;
    };
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        return;
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    if let Err(error) = sched_setaffinity(None, &one) {
        tracing::debug!(%error, cpu, "a thread does not follow its queue");
    }
}

/// Where this process may run, as it was when it was first asked for.
fn everywhere() -> Option<CpuSet> {
    static EVERYWHERE: OnceLock<Option<CpuSet>> = OnceLock::new();
    *EVERYWHERE.get_or_init(|| sched_getaffinity(None).ok())
}

/// Lets this thread run on any processor, although a request started it: it inherits the place of the
/// thread that answered the request.
pub fn run_anywhere() {
    if let Some(all) = everywhere()
        && let Err(error) = sched_setaffinity(None, &all)
    {
        tracing::debug!(%error, "a thread stays on its processor");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(numbers_of("0-3\n"), Some(vec![0, 1, 2, 3]));
        assert_eq!(numbers_of("0\n"), Some(vec![0]));
        assert_eq!(numbers_of("0-1,8-9"), Some(vec![0, 1, 8, 9]));
        assert_eq!(numbers_of(""), None);
    }

    #[test]
    fn every_queue_has_a_thread() {
        let plan = Plan::over(&[1], 3, 9);
        assert_eq!(plan.queues(), [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        let many: Vec<u16> = (0..100).collect();
        let at_least = 100 * LEAST_AT_ONCE;
        assert_eq!(Plan::over(&many, 100, 64).queues().len(), at_least);
        assert_eq!(Plan::over(&[0], 1, 64).at_once(), MOST_AT_ONCE);
    }

    #[test]
    fn every_queue_of_this_system_has_one() {
        let Ok(here) = Plan::new(1) else {
            return;
        };
        assert!(
            processors("possible")
                .unwrap()
                .iter()
                .all(|queue| here.queues().contains(queue))
        );
    }
}
