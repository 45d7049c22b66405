//! What a run did, and how long it took.

use std::time::Duration;

use backstitch_drives::Completion;
use backstitch_vfs::Stats;
use serde::Serialize;

use crate::paper::PaperFigure;
use crate::recovery::RecoveryFigures;

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// When it began, by the target's clock; zero in `imap` and `recovery`.
    #[serde(skip)]
    pub started: Duration,
    /// How long a simulated processor was busy during it; zero on other targets.
    #[serde(skip)]
    pub processor: Duration,
    /// How long it took.
    pub elapsed_seconds: f64,
    /// File operations during it.
    pub operations: u64,
}

/// A run of a workload, under a mechanism, with some optimisations. The keys are those of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The workload.
    pub workload: &'static str,
    /// The mechanism; none if the workload ran through system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<String>,
    /// `none`, `hard`, `merge` or `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt: Option<String>,
    /// Variant of the workload: the size of a file in bytes (`micro-…`), the writers (`fsync`), the
    /// scripts (`sdet`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The target: `memory`, `image FILE`, `disk NAME` or `dir DIR`.
    pub target: String,
    /// The speed of a simulated host's processor, see [`Disk`](crate::Disk).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_speed: Option<f64>,
    /// The requests of a simulated disk, if they were recorded.
    #[serde(skip)]
    pub trace: Vec<Completion>,
    /// Those of the drive for the log alone.
    #[serde(skip)]
    pub log_trace: Vec<Completion>,
    /// From the first operation to the return of the final sync.
    pub elapsed_seconds: f64,
    /// Time of all threads of the process outside the kernel. On a simulated disk, how long the
    /// simulated processor was busy.
    pub cpu_user_seconds: f64,
    /// The same in the kernel.
    pub cpu_sys_seconds: f64,
    /// File operations: files and directories made or removed, files read or appended to.
    pub operations: u64,
    /// File operations in a second.
    pub operations_per_second: f64,
    /// The engine's counters.
    #[serde(flatten)]
    pub engine: Option<EngineFigures>,
    /// The parts of the run.
    pub phases: Vec<Phase>,
    /// The figures of `recovery` only.
    #[serde(flatten)]
    pub recovery: Option<RecoveryFigures>,
    /// A paper's figure for the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperFigure>,
}

impl Run {
    /// Time of the process, inside and outside the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_user_seconds + self.cpu_sys_seconds
    }
}

/// The engine's counters for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineFigures {
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// Versions of blocks written.
    pub blocks_written: u64,
    /// Those written before the final sync.
    #[serde(skip)]
    pub blocks_written_before_sync: u64,
    /// Write requests, each of adjacent blocks.
    pub write_requests: u64,
    /// Flushes.
    pub flushes: u64,
    /// Patches left out of versions that were written.
    pub rollbacks: u64,
    /// Blocks that were written again only because of that.
    pub blocks_rewritten_for_rollback: u64,
    /// Patches created, empty ones included.
    pub patches_created: u64,
    /// Empty patches among these.
    pub patches_created_empty: u64,
    /// Runs among these: one patch for the contents of several blocks.
    pub patches_created_runs: u64,
    /// Other patches without undo data among these.
    pub patches_created_hard: u64,
    /// The most patches alive at once.
    pub patches_peak: u64,
    /// Undo data allocated in all.
    pub undo_bytes_total: u64,
    /// The most undo data at once.
    pub undo_bytes_peak: u64,
    /// The most bytes of patches, edges and undo data at once.
    pub dependency_bytes_peak: u64,
    /// The most bytes of block buffers at once.
    pub cache_bytes_peak: u64,
}

impl EngineFigures {
    /// Differences between two readings of an engine's counters. Peaks are those of the later one.
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
            // Undo data that a patch turns out not to need is taken off again.
            undo_bytes_total: (after.undo.bytes_total).saturating_sub(before.undo.bytes_total),
            undo_bytes_peak: after.undo.bytes_peak,
            dependency_bytes_peak: after.patches.bytes_peak,
            cache_bytes_peak: after.cache.bytes_peak,
        }
    }

    /// Patches created, without empty ones.
    pub fn patches_not_empty(&self) -> u64 {
        self.patches_created - self.patches_created_empty
    }

    /// Memory for dependencies in per cent of that for blocks, both at their peaks.
    pub fn dependency_percent(&self) -> f64 {
        percent(self.dependency_bytes_peak, self.cache_bytes_peak)
    }

    /// Needless writes, in per cent of all writes.
    pub fn useless_percent(&self) -> f64 {
        percent(self.blocks_rewritten_for_rollback, self.blocks_written)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// CPU time of all threads of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Outside the kernel.
    pub user_seconds: f64,
    /// In the kernel.
    pub sys_seconds: f64,
}

impl CpuTime {
    /// The time so far.
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

    /// The time since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_seconds: self.user_seconds - earlier.user_seconds,
            sys_seconds: self.sys_seconds - earlier.sys_seconds,
        }
    }
}
