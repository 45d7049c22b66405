//! What a run did and what it took.

use std::time::Duration;

use backstitch_drives::Completion;
use backstitch_vfs::Stats;
use serde::Serialize;

use crate::paper::PaperFigure;
use crate::recovery::RecoveryFigures;

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// What it is called.
    pub name: &'static str,
    /// When it began, by the clock of what it ran on; zero in `imap` and `recovery`.
    #[serde(skip)]
    pub started: Duration,
    /// How long it took.
    pub elapsed_seconds: f64,
    /// File operations in it.
    pub operations: u64,
}

/// A run: a workload under a mechanism with some of the optimisations. The keys are the JSON's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The workload.
    pub workload: &'static str,
    /// The mechanism; none of ours where the workload ran through system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<String>,
    /// `none`, `hard`, `merge` or `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt: Option<String>,
    /// Which of a workload's kinds: the size of a file of `micro-…`, in bytes; the writers of `fsync`;
    /// the scripts of `sdet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// On what: `memory`, `image FILE`, `disk NAME` or `dir DIR`.
    pub target: String,
    /// The speed of a simulated host's processor, see [`Disk`](crate::Disk).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_speed: Option<f64>,
    /// The requests of a simulated disk, where they were to be remembered.
    #[serde(skip)]
    pub trace: Vec<Completion>,
    /// Those of the disk that its log had to itself.
    #[serde(skip)]
    pub log_trace: Vec<Completion>,
    /// From the first operation to the return of the final sync.
    pub elapsed_seconds: f64,
    /// Time of the process outside the kernel, all its threads; on a simulated disk, how long the
    /// simulated processor was busy.
    pub cpu_user_seconds: f64,
    /// The same in the kernel.
    pub cpu_sys_seconds: f64,
    /// File operations: files and directories made or removed, files read or appended to.
    pub operations: u64,
    /// The same by second.
    pub operations_per_second: f64,
    /// What the engine counted.
    #[serde(flatten)]
    pub engine: Option<EngineFigures>,
    /// The parts of the run.
    pub phases: Vec<Phase>,
    /// What only `recovery` measures.
    #[serde(flatten)]
    pub recovery: Option<RecoveryFigures>,
    /// A paper's figure for the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperFigure>,
}

impl Run {
    /// Time of the process, in and outside the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_user_seconds + self.cpu_sys_seconds
    }
}

/// What the engine counted during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineFigures {
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// Versions of blocks written.
    pub blocks_written: u64,
    /// Of these, before the final sync.
    #[serde(skip)]
    pub blocks_written_before_sync: u64,
    /// Requests, adjacent blocks merged.
    pub write_requests: u64,
    /// Flushes.
    pub flushes: u64,
    /// Patches that were left out of a version written.
    pub rollbacks: u64,
    /// Blocks written again only because of that.
    pub blocks_rewritten_for_rollback: u64,
    /// Patches created, empty ones included.
    pub patches_created: u64,
    /// Of these, empty ones.
    pub patches_created_empty: u64,
    /// Of these, runs: one patch for the contents of several blocks.
    pub patches_created_runs: u64,
    /// Of these, others without undo data.
    pub patches_created_hard: u64,
    /// The most patches alive at once.
    pub patches_peak: u64,
    /// Undo data ever allocated.
    pub undo_bytes_total: u64,
    /// The most undo data at once.
    pub undo_bytes_peak: u64,
    /// The most bytes of patches, edges and undo data at once.
    pub dependency_bytes_peak: u64,
    /// The most bytes of block buffers at once.
    pub cache_bytes_peak: u64,
}

impl EngineFigures {
    /// What happened between two looks at an engine's counters. Peaks are the later look's.
    pub(crate) fn between(before: &Stats, after: &Stats) -> EngineFigures {
        EngineFigures {
            bytes_read: after.bytes_read - before.bytes_read,
            bytes_written: after.bytes_written - before.bytes_written,
            blocks_written: after.blocks_written - before.blocks_written,
            blocks_written_before_sync: 0,
            write_requests: after.write_requests - before.write_requests,
            flushes: after.flushes - before.flushes,
            rollbacks: after.rollbacks - before.rollbacks,
            blocks_rewritten_for_rollback: after.blocks_rewritten_for_rollback
                - before.blocks_rewritten_for_rollback,
            patches_created: after.patches.created - before.patches.created,
            patches_created_empty: after.patches.created_empty - before.patches.created_empty,
            patches_created_runs: after.patches.runs - before.patches.runs,
            patches_created_hard: (after.patches.hard - after.patches.runs)
                - (before.patches.hard - before.patches.runs),
            patches_peak: after.patches.peak,
            undo_bytes_total: after.undo.bytes_total - before.undo.bytes_total,
            undo_bytes_peak: after.undo.bytes_peak,
            dependency_bytes_peak: after.patches.bytes_peak,
            cache_bytes_peak: after.cache.bytes_peak,
        }
    }

    /// Patches created that change something.
    pub fn patches_not_empty(&self) -> u64 {
        self.patches_created - self.patches_created_empty
    }

    /// Memory for dependencies by memory for blocks, each at its peak.
    pub fn dependency_percent(&self) -> f64 {
        percent(self.dependency_bytes_peak, self.cache_bytes_peak)
    }

    /// Useless write-backs by all writes.
    pub fn useless_percent(&self) -> f64 {
        percent(self.blocks_rewritten_for_rollback, self.blocks_written)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Time that this process took, of all its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Outside the kernel.
    pub user_seconds: f64,
    /// In the kernel.
    pub sys_seconds: f64,
}

impl CpuTime {
    /// So far.
    pub fn now() -> CpuTime {
        use nix::sys::resource::{UsageWho, getrusage};
        use nix::sys::time::TimeValLike;
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
            return CpuTime::default();
        };
        let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
        CpuTime {
            user_seconds: seconds(usage.user_time()),
            sys_seconds: seconds(usage.system_time()),
        }
    }

    /// Since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_seconds: self.user_seconds - earlier.user_seconds,
            sys_seconds: self.sys_seconds - earlier.sys_seconds,
        }
    }
}
