//! The larger workloads of both papers: ssh, netnews, Sdet and PostMark, and group commit.

use backstitch_bench::Workload;

use super::{ANY, FFS, FFS_ASYNC, WAFS_1SYNC, WAFS_2SYNC};
use crate::places::scripts;
use crate::{Change, ChartKind, Claim, Counter, Figure, Line, Measure, Place, Reason, Remark};

const SSH_PLACES: &[Place] = &[
    Place::of("unpack", Workload::Ssh, &["unpack"]),
    Place::of("config", Workload::Ssh, &["configure"]),
    Place::of("build", Workload::Ssh, &["build"]),
    Place::of("total", Workload::Ssh, &[]),
];

const LOGGED_ATTRIBUTES: &str = "{} writes for each file: its creation, its times and its permissions \
                                 each wait for the log. The paper’s logs let only creations, removals \
                                 and renames wait.";
const NO_WAIT_FOR_LOG: &str = "Nobody waits for the log: the processor is busy for {} % of the time. In the \
                               paper the log costs a tenth.";

const SSH: Figure = Figure {
    title: "Unpacking, configuring and building ssh",
    places: SSH_PLACES,
    reasons: &[
        Reason::smaller(
            Counter::WritesPerOperation,
            0.5,
            "sync makes {} writes for each operation, and waits for each.",
        )
        .under("sync"),
        Reason::smaller(Counter::WritesPerOperation, 2.5, LOGGED_ATTRIBUTES)
            .under("lffs-wafs=1sync")
            .at("unpack"),
        Reason::smaller(Counter::WritesPerOperation, 2.5, LOGGED_ATTRIBUTES)
            .under("lffs-wafs=2sync")
            .at("unpack"),
        Reason::larger(
            Counter::ProcessorPercent,
            70.0,
            "Nobody waits for the log: the processor is busy for {} % of the time. The paper’s LFFS-file \
             is slow in creating files of more than 64 KB.",
        )
        .under("lffs-file"),
        Reason::larger(Counter::ProcessorPercent, 70.0, NO_WAIT_FOR_LOG).under("lffs-wafs=1async"),
        Reason::larger(Counter::ProcessorPercent, 70.0, NO_WAIT_FOR_LOG).under("lffs-wafs=2async"),
        Reason::larger(
            Counter::WritesPerOperation,
            0.0,
            "sync makes {} writes for each operation: compiling is played, with fewer small files than \
             the compiler makes.",
        )
        .up_to(0.5)
        .under("sync"),
    ],
    remarks: &[Remark {
        place: "unpack",
        says: "While FFS-async unpacks, reads wait in the drive’s queue, behind a batch of writes, for {} % \
               of the time; under LFFS-wafs-2async for {} %.",
        counters: &[
            ("async", Counter::ReadQueuePercent),
            ("lffs-wafs=2async", Counter::ReadQueuePercent),
        ],
    }],
    note: "What the programs read, write and compute was derived from the paper's times under FFS-async \
           and FFS: no prediction.",
    ..ANY
};

pub(super) const SSH_2000: Figure = Figure {
    place: "Table 4",
    printed: &[
        &[Some(1.0), Some(1.0), Some(1.0), Some(1.0)],
        &[Some(0.14), Some(0.66), Some(0.85), Some(0.73)],
        &[Some(0.99), Some(0.98), Some(1.01), Some(1.01)],
        &[Some(0.72), Some(1.08), Some(0.95), Some(0.96)],
        &[Some(0.15), Some(1.01), Some(0.88), Some(0.82)],
        &[Some(0.90), Some(0.94), Some(1.00), Some(0.99)],
        &[Some(0.20), Some(0.85), Some(0.93), Some(0.86)],
        &[Some(0.90), Some(1.05), Some(0.98), Some(0.99)],
    ],
    ..SSH
};

pub(super) const SSH_1999: Figure = Figure {
    place: "Table 5",
    printed: &[
        &[Some(1.0), Some(1.0), Some(1.0), Some(1.0)],
        &[Some(0.13), Some(0.73), Some(0.83), Some(0.74)],
        &[Some(0.98), Some(0.99), Some(1.01), Some(1.01)],
        &[Some(0.79), Some(0.98), Some(0.99), Some(1.01)],
        &[Some(0.17), Some(0.92), Some(0.92), Some(0.84)],
        &[Some(0.91), Some(0.98), Some(0.99), Some(0.99)],
        &[Some(0.20), Some(0.93), Some(0.94), Some(0.87)],
        &[Some(0.91), Some(0.99), Some(1.00), Some(1.00)],
    ],
    ..SSH
};

/// A part of `netnews`, which by default is a sixteenth of the paper's. So is the memory: the paper
/// explains its figures by the spool's size beside that of the memory.
const fn news(name: &'static str, phases: &'static [&'static str]) -> Place {
    let mut place = Place::of(name, Workload::Netnews, phases);
    place.memory_part = 16;
    place
}

const NEWS: Figure = Figure {
    title: "A news server: articles come in, old ones go",
    places: &[
        news("unbatch", &["unbatch"]),
        news("expire", &["expire"]),
        news("total", &["unbatch", "expire"]),
    ],
    reasons: &[
        Reason::smaller(
            Counter::WritesPerOperation,
            1.0,
            "sync makes {} writes for each operation, and waits for each.",
        )
        .under("sync"),
        Reason::larger(
            Counter::RollbacksPerThousand,
            0.0,
            "Of a thousand versions of blocks {} leave patches out: a block that would go with a \
             rollback is passed over twice, and contents go first. The paper’s system wrote 13 % more \
             than FFS.",
        )
        .up_to(100.0)
        .under("soft"),
        Reason::larger(
            Counter::WritesPerOperation,
            0.0,
            "sync makes {} writes for each removal. By its rate, 17.6 ms for each, the paper’s system \
             makes about three.",
        )
        .up_to(2.5)
        .under("sync")
        .at("expire"),
        // A value is FFS-async's time divided by the line's. If the line's is the paper's, the
        // difference is FFS-async's.
        Reason::smaller(
            Counter::MillisecondsPerOperation,
            0.0,
            "An article takes {} ms, in the paper 24.5: the difference is that of FFS-async, which is \
             faster here.",
        )
        .up_to(24.5)
        .under("lffs-wafs=1sync")
        .at("unbatch"),
        Reason::smaller(
            Counter::MillisecondsPerOperation,
            0.0,
            "An article takes {} ms, in the paper 19.3. The rest of the difference is that of \
             FFS-async, which is faster here.",
        )
        .up_to(22.0)
        .under("lffs-wafs=1sync")
        .at("total"),
        Reason::larger(
            Counter::MillisecondsPerOperation,
            10.5,
            "A removal takes {} ms, in the paper (of 2000) 10.5: the difference is that of FFS-async, which \
             is slower here.",
        )
        .under("lffs-wafs=2sync")
        .at("expire"),
    ],
    claims: &[Claim {
        line: 2,
        by: 7,
        first: 2,
        last: 2,
        low: 0.8,
        high: 1.0,
        says: "Soft Updates is below the asynchronous log on a drive of its own (read as: 0.8 or more of it)",
    }],
    remarks: &[Remark {
        place: "total",
        says: "Soft Updates write {} versions of blocks, FFS-async {}, LFFS-wafs-2async {}. {} patches were \
               left out of versions that left the small memory early (rollbacks), and {} % of the versions \
               were written for these patches alone: the other blocks had changed again since they \
               were written. Up to {} patches were held at once.",
        counters: &[
            ("soft", Counter::Blocks),
            ("async", Counter::Blocks),
            ("lffs-wafs=2async", Counter::Blocks),
            ("soft", Counter::Rollbacks),
            ("soft", Counter::RewrittenPercent),
            ("soft", Counter::PatchesPeak),
        ],
    }],
    ..ANY
};

pub(super) const NEWS_2000: Figure = Figure {
    place: "Table 5",
    printed: &[
        &[Some(1.0), Some(1.0), Some(1.0)],
        &[Some(0.63), Some(0.40), Some(0.53)],
        &[Some(0.86), Some(0.89), Some(0.87)],
        &[Some(0.95), Some(0.95), Some(0.95)],
        &[Some(0.67), Some(0.48), Some(0.59)],
        &[Some(0.98), Some(0.92), Some(0.96)],
        &[Some(0.91), Some(0.67), Some(0.81)],
        &[Some(0.97), Some(0.95), Some(0.96)],
    ],
    ..NEWS
};

pub(super) const NEWS_1999: Figure = Figure {
    place: "Table 6",
    printed: &[
        &[Some(1.0), Some(1.0), Some(1.0)],
        &[Some(0.57), Some(0.37), Some(0.48)],
        &[Some(0.86), Some(0.76), Some(0.82)],
        &[Some(0.95), Some(0.95), Some(0.95)],
        &[Some(0.67), Some(0.46), Some(0.58)],
        &[Some(0.98), Some(0.94), Some(0.97)],
        // The paper prints 0.96 as the total, which is more than either part: a misprint.
        &[Some(0.88), Some(0.58), None],
        &[Some(0.99), Some(0.96), Some(0.98)],
    ],
    ..NEWS
};

pub(super) const SDET: Figure = Figure {
    place: "Figure 4",
    title: "Sdet: scripts of user commands",
    measure: Measure::ScriptsPerHour,
    axis: "scripts at a time",
    places: &[
        scripts("1", 1),
        scripts("5", 5),
        scripts("10", 10),
        scripts("20", 20),
    ],
    claims: &[Claim {
        line: 0,
        by: 1,
        first: 0,
        last: 3,
        low: 1.5,
        high: f64::INFINITY,
        says: "the asynchronous systems and the synchronous ones diverge (read as: by half)",
    }],
    chart: ChartKind::Lines,
    note: "What is in a script is not published: ours are those of figure 7 of Ganger et al.",
    ..ANY
};

const POSTMARK_SMALL_FILES: u64 = 10_000;

const fn small_pool(name: &'static str) -> Place {
    let mut place = Place::of(name, Workload::PostmarkLarge, &["transactions"]);
    place.files = Some(POSTMARK_SMALL_FILES);
    place
}

pub(super) const POSTMARK_2000: Figure = Figure {
    place: "Figure 5",
    title: "PostMark: mail and news in small files",
    places: &[
        Place::of("150,000 files", Workload::PostmarkLarge, &["transactions"]),
        small_pool("10,000 files"),
    ],
    claims: &[
        Claim {
            line: 2,
            by: 0,
            first: 0,
            last: 0,
            low: 0.9,
            high: 1.15,
            says: "Soft Updates is near FFS-async with the large pool (read as: 0.9 or more)",
        },
        Claim {
            line: 2,
            by: 0,
            first: 1,
            last: 1,
            low: 1.0,
            high: f64::INFINITY,
            says: "Soft Updates is not below FFS-async with the small pool",
        },
        Claim {
            line: 6,
            by: 4,
            first: 0,
            last: 1,
            low: 1.0,
            high: f64::INFINITY,
            says: "with a synchronous log, the second drive is a significant benefit",
        },
    ],
    reasons: &[
        Reason::smaller(Counter::RollbacksPerThousand, 100.0, LEFT_OUT)
            .under("soft")
            .at("10,000 files")
            .tested_by(Change::Memory(16)),
        Reason::smaller(Counter::RollbacksPerThousand, 100.0, LEFT_OUT).under("soft"),
    ],
    ..ANY
};

const LEFT_OUT: &str = "{} patches are left out for each thousand versions of blocks: with half of the \
                        buffers waiting, blocks must leave before what they depend on.";

/// A line whose log is in memory that survives a power cut.
const fn in_nvram(name: &'static str, ordering: &'static str) -> Line {
    let mut line = Line::of(name, ordering);
    line.log_disk = Some("nvram");
    line
}

/// What the paper suggests to try, but had no system for.
pub(super) const GROUP_COMMIT: Figure = Figure {
    place: "Section 3.2",
    title: "Group commit, and a log in memory that survives (section 5.2)",
    lines: &[
        FFS_ASYNC,
        FFS,
        Line::of("journal", "journal=ordered"),
        Line::of("journal, group commit", "journal=ordered:group"),
        WAFS_1SYNC,
        Line::of("LFFS-wafs-1, group commit", "lffs-wafs=1group"),
        WAFS_2SYNC,
        Line::of("LFFS-wafs-2, group commit", "lffs-wafs=2group"),
        in_nvram("LFFS-wafs, NVRAM", "lffs-wafs=2sync"),
    ],
    places: &[
        Place::of("empty files", Workload::Zero, &["create-delete"]),
        small_pool("PostMark, 10,000 files"),
        scripts("Sdet, 1 script", 1),
        scripts("Sdet, 5", 5),
        scripts("Sdet, 20", 20),
    ],
    claims: &[
        Claim {
            line: 5,
            by: 4,
            first: 0,
            last: 2,
            low: 0.0,
            high: 1.0,
            says: "group commit is no assistance to a single caller",
        },
        Claim {
            line: 5,
            by: 4,
            first: 4,
            last: 4,
            low: 1.0,
            high: f64::INFINITY,
            says: "with many callers it is an improvement",
        },
        Claim {
            line: 8,
            by: 6,
            first: 0,
            last: 4,
            low: 1.0,
            high: f64::INFINITY,
            says: "a log in NVRAM has the greatest performance",
        },
    ],
    reasons: &[Reason::smaller(
        Counter::FlushesPerOperation,
        0.0,
        "With groups there are {} batches for each command; without, those who wait at the same time \
         share a write too.",
    )
    .under("lffs-wafs=1group")
    .at("Sdet, 20")],
    note: "The paper measured none of these. A group gathers for 5 ms. Under the synchronous logs, too, \
           those who wait at the same time share a write.",
    ..ANY
};

pub(super) const POSTMARK_1999: Figure = Figure {
    place: "Table 7",
    title: "PostMark: mail and news in small files",
    places: &[small_pool("10,000 files, 20,000 transactions")],
    printed: &[
        &[Some(1.0)],
        &[Some(0.24)],
        &[Some(1.15)],
        &[Some(0.95)],
        &[Some(0.37)],
        &[Some(0.95)],
        &[Some(0.61)],
        &[Some(0.99)],
    ],
    reasons: &[
        Reason::smaller(
            Counter::RollbacksPerThousand,
            100.0,
            "{} patches are left out for each thousand versions of blocks: with half of the buffers \
             waiting, blocks must leave before what they depend on. The paper’s FFS-async makes 952 \
             transactions a second, more than the drive can write.",
        )
        .under("soft")
        .tested_by(Change::Memory(16)),
        Reason::smaller(
            Counter::WritesPerOperation,
            1.5,
            "sync makes {} writes for each operation, and waits for each. By its rates a transaction \
             of the paper, which consists of two operations, takes 4.4 ms: time for one write.",
        )
        .under("sync"),
        Reason::smaller(
            Counter::FlushesPerOperation,
            0.5,
            "Each creation and each removal waits for the log: {} batches for each operation of the run. \
             By its rates a transaction of the paper, which has one of them, takes 2.8 ms, less than half \
             a turn of the drive: not all can have waited for the medium.",
        )
        .under("lffs-wafs=1sync"),
        Reason::smaller(
            Counter::FlushesPerOperation,
            0.5,
            "Each creation and each removal waits for the log: {} batches for each operation of the run. \
             By its rates a transaction of the paper, which has one of them, takes 1.7 ms, less than half \
             a turn of the drive: not all can have waited for the medium.",
        )
        .under("lffs-wafs=2sync"),
    ],
    ..ANY
};
