//! Counters of a run, in all of it or in some of its phases.

use std::ops::Range;
use std::time::Duration;

use backstitch_drives::{Completion, Kind};

use backstitch_bench::{Phase, Run};

/// Bytes of a drive's sector.
const SECTOR_BYTES: f64 = 512.0;

/// A run, and what its drives did in each phase.
#[derive(Debug)]
pub(super) struct Measurement {
    /// The run without its list of requests.
    pub(super) run: Run,
    phases: Vec<(&'static str, Part)>,
}

/// What happened in a phase, or in several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) seconds: f64,
    pub(super) operations: u64,
    reads: u64,
    read_sectors: u64,
    writes: u64,
    written_sectors: u64,
    positioning_seconds: f64,
    transfer_seconds: f64,
    flush_seconds: f64,
    /// The sum of the times that reads waited in queues.
    read_queue_seconds: f64,
    /// The time during which any drive had a request.
    busy_seconds: f64,
    /// The time during which the processor was busy.
    processor_seconds: f64,
}

impl Part {
    fn of(phase: &Phase, trace: &[Completion]) -> Part {
        let end = phase.started + Duration::from_secs_f64(phase.elapsed_seconds);
        let window = phase.started.as_nanos() as u64..end.as_nanos() as u64;
        let mut part = Part {
            seconds: phase.elapsed_seconds,
            operations: phase.operations,
            busy_seconds: busy_ns(&window, trace) as f64 / 1e9,
            processor_seconds: phase.processor.as_secs_f64(),
            ..Part::default()
        };
        // A request belongs to the phase in which it was submitted, even if it is done later.
        for done in trace
            .iter()
            .filter(|done| window.contains(&done.submitted_ns))
        {
            part.add(done);
        }
        part
    }

    fn add(&mut self, done: &Completion) {
        if done.kind == Kind::Read {
            self.reads += 1;
            self.read_sectors += u64::from(done.sectors);
            self.read_queue_seconds += done.queue_ns() as f64 / 1e9;
        }
        if done.kind.is_write() {
            self.writes += 1;
            self.written_sectors += u64::from(done.sectors);
        }
        if done.kind == Kind::Flush {
            self.flush_seconds += (done.completed_ns - done.submitted_ns) as f64 / 1e9;
            return;
        }
        let service = done.service;
        self.positioning_seconds += (service.seek_ns + service.rotation_ns) as f64 / 1e9;
        self.transfer_seconds += service.transfer_ns as f64 / 1e9;
    }

    fn and(self, other: Part) -> Part {
        Part {
            seconds: self.seconds + other.seconds,
            operations: self.operations + other.operations,
            reads: self.reads + other.reads,
            read_sectors: self.read_sectors + other.read_sectors,
            writes: self.writes + other.writes,
            written_sectors: self.written_sectors + other.written_sectors,
            positioning_seconds: self.positioning_seconds + other.positioning_seconds,
            transfer_seconds: self.transfer_seconds + other.transfer_seconds,
            flush_seconds: self.flush_seconds + other.flush_seconds,
            read_queue_seconds: self.read_queue_seconds + other.read_queue_seconds,
            busy_seconds: self.busy_seconds + other.busy_seconds,
            processor_seconds: self.processor_seconds + other.processor_seconds,
        }
    }
}

/// The time in a window during which requests were under way; `trace` is in the order of
/// submission.
fn busy_ns(window: &Range<u64>, trace: &[Completion]) -> u64 {
    let (mut busy_ns, mut counted_to) = (0, window.start);
    for done in trace {
        let end = done.completed_ns.min(window.end);
        let begin = done.submitted_ns.max(counted_to);
        if begin < end {
            busy_ns += end - begin;
            counted_to = end;
        }
    }
    busy_ns
}

impl Measurement {
    pub(super) fn of(mut run: Run) -> Measurement {
        // Adds the requests of the log's drive, if there is one.
        let mut trace = std::mem::take(&mut run.trace);
        trace.append(&mut run.log_trace);
        trace.sort_by_key(|done| done.submitted_ns);
        let phases = run.phases.iter();
        Measurement {
            phases: phases
                .map(|phase| (phase.name, Part::of(phase, &trace)))
                .collect(),
            run,
        }
    }

    /// The sum over these phases; over the whole run if there are none.
    pub(super) fn part(&self, names: &[&str]) -> Part {
        let is_counted = |name: &str| names.is_empty() || names.contains(&name);
        let phases = self.phases.iter().filter(|(name, _)| is_counted(name));
        let sum = phases.fold(Part::default(), |sum, (_, part)| sum.and(*part));
        match names {
            [] => Part {
                seconds: self.run.elapsed_seconds,
                ..sum
            },
            _ => sum,
        }
    }
}

/// A counter of a run, or a value computed from counters. It is of the phases in question unless
/// "of the whole run" is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Writes of the drive.
    Writes,
    /// Writes for each operation.
    WritesPerOperation,
    /// KiB in a write, on average.
    KibibytesPerWrite,
    /// The time divided by the number of operations, in milliseconds.
    MillisecondsPerOperation,
    /// The time divided by the number of writes, in milliseconds.
    MillisecondsPerWrite,
    /// Reads of the drive.
    Reads,
    /// Reads for each operation.
    ReadsPerOperation,
    /// KiB in a read, on average.
    KibibytesPerRead,
    /// What reads waited in queues, together, in per cent of the time.
    ReadQueuePercent,
    /// Seeks and rotation, of all drives together, in per cent of the time.
    PositioningPercent,
    /// Transfer of data, of all drives together, in per cent of the time.
    TransferPercent,
    /// Waiting until the drive has written its cache, in per cent of the time.
    FlushPercent,
    /// The time in which no drive has a request, in per cent: they wait for the host.
    IdlePercent,
    /// The time in which the processor was busy, in per cent.
    ProcessorPercent,
    /// The same in seconds.
    ProcessorSeconds,
    /// Flushes, one for each batch of writes; of the whole run.
    Flushes,
    /// The same for each operation of the whole run.
    FlushesPerOperation,
    /// Blocks written before the final sync; of the whole run.
    BlocksBeforeSync,
    /// Versions of blocks that were written; of the whole run.
    Blocks,
    /// Patches left out of versions that were written; of the whole run.
    Rollbacks,
    /// The most patches that existed at once, each held until it was written.
    PatchesPeak,
    /// Versions of blocks without some of their patches, for each thousand written; of the whole
    /// run.
    RollbacksPerThousand,
    /// Blocks that were written again only for what an earlier version left out, in per cent of
    /// all; of the whole run.
    RewrittenPercent,
    /// Patches that change something, for each operation of the whole run.
    PatchesPerOperation,
    /// Bytes of undo data for each of them.
    UndoBytesPerPatch,
    /// Those of them without undo data, in per cent.
    WithoutUndoPercent,
}

impl Counter {
    /// Its value.
    pub(super) fn of(self, measured: &Measurement, phases: &[&str]) -> f64 {
        let (run, part) = (&measured.run, measured.part(phases));
        let engine = run.engine.unwrap_or_default();
        let by = |value: f64, whole: f64| if whole > 0.0 { value / whole } else { 0.0 };
        let percent = |value: f64| 100.0 * by(value, part.seconds);
        let kibibytes =
            |sectors: u64, requests: f64| by(sectors as f64 * SECTOR_BYTES / 1024.0, requests);
        let (writes, operations) = (part.writes as f64, part.operations as f64);
        let patches = engine.patches_not_empty() as f64;
        let without_undo = (engine.patches_created_hard + engine.patches_created_runs) as f64;
        match self {
            Counter::Writes => writes,
            Counter::WritesPerOperation => by(writes, operations),
            Counter::KibibytesPerWrite => kibibytes(part.written_sectors, writes),
            Counter::MillisecondsPerOperation => by(1e3 * part.seconds, operations),
            Counter::MillisecondsPerWrite => by(1e3 * part.seconds, writes),
            Counter::Reads => part.reads as f64,
            Counter::ReadsPerOperation => by(part.reads as f64, operations),
            Counter::KibibytesPerRead => kibibytes(part.read_sectors, part.reads as f64),
            Counter::ReadQueuePercent => percent(part.read_queue_seconds),
            Counter::PositioningPercent => percent(part.positioning_seconds),
            Counter::TransferPercent => percent(part.transfer_seconds),
            Counter::FlushPercent => percent(part.flush_seconds),
            Counter::IdlePercent => (100.0 - percent(part.busy_seconds)).max(0.0),
            Counter::ProcessorPercent => percent(part.processor_seconds),
            Counter::ProcessorSeconds => part.processor_seconds,
            Counter::Flushes => engine.flushes as f64,
            Counter::FlushesPerOperation => by(engine.flushes as f64, run.operations as f64),
            Counter::BlocksBeforeSync => engine.blocks_written_before_sync as f64,
            Counter::Blocks => engine.blocks_written as f64,
            Counter::Rollbacks => engine.rollbacks as f64,
            Counter::PatchesPeak => engine.patches_peak as f64,
            Counter::RollbacksPerThousand => {
                1e3 * by(engine.rollbacks as f64, engine.blocks_written as f64)
            }
            Counter::RewrittenPercent => engine.useless_percent(),
            Counter::PatchesPerOperation => by(patches, run.operations as f64),
            Counter::UndoBytesPerPatch => by(engine.undo_bytes_total as f64, patches),
            Counter::WithoutUndoPercent => 100.0 * by(without_undo, patches),
        }
    }
}
