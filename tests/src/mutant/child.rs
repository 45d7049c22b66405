//! Runs a command many times: returns as soon as it ends, and measures its memory.

use nix::sys::resource::{UsageWho, getrusage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ran for longer than it may, and was killed.
    pub timed_out: bool,
    /// Its output, including errors.
    pub output: String,
    /// How long it ran.
    pub elapsed: Duration,
    /// The largest memory of any child so far, if this child, or another one at the same time,
    /// raised it above `limit_bytes`.
    pub memory_bytes: Option<u64>,
}

/// Reports excessive memory once only, since the host tells just the maximum over all children.
#[derive(Debug)]
pub struct Memory {
    limit_bytes: u64,
    largest: Mutex<u64>,
}

impl Memory {
    /// Reports children with more than `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Memory {
        Memory {
            limit_bytes,
            largest: Mutex::new(0),
        }
    }

    /// The maximum over all children so far.
    pub fn largest_bytes(&self) -> u64 {
        getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss() as u64 * 1024)
    }

    fn news(&self) -> Option<u64> {
        let now = self.largest_bytes();
        let mut largest = self.largest.lock().expect("a thread panicked");
        let is_news = now > self.limit_bytes && now > *largest;
        *largest = now.max(*largest);
        is_news.then_some(now)
    }
}

/// Runs a command to its end, or kills it after `limit`.
///
/// # Panics
///
/// If the host refuses.
pub fn run(command: &mut Command, limit: Duration, memory: &Memory) -> Ended {
    let mut output = tempfile::tempfile().expect("cannot make a temporary file");
    let duplicate = |file: &File| file.try_clone().expect("cannot duplicate a descriptor");
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(duplicate(&output))
        .stderr(duplicate(&output))
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("cannot watch a child");
    let timed_out = loop {
        let left = limit.saturating_sub(started.elapsed());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(count) => break count == 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for a child: {error}"),
        }
    };
    if timed_out {
        // The child may have just ended.
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = child.wait().expect("cannot wait for a child");
    let elapsed = started.elapsed();
    let mut bytes = Vec::new();
    output
        .rewind()
        .and_then(|()| output.read_to_end(&mut bytes))
        .expect("cannot read back output");
    Ended {
        code: status.code(),
        signal: status.signal(),
        timed_out,
        output: String::from_utf8_lossy(&bytes).into_owned(),
        elapsed,
        memory_bytes: memory.news(),
    }
}
