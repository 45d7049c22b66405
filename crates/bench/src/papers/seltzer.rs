//! Seltzer, Ganger, McKusick, Smith, Soules and Stein, "Journaling versus Soft Updates", 2000 (paper
//! 001), §8, and "Logging versus Soft Updates", 1999 (paper 002), §5: the same systems on the same
//! machine, with other numbers.

use super::{
    Change, ChartKind, Claim, Counter, Figure, Line, Measure, Paper, Place, Reason, Remark,
};
use crate::workload::Workload;

/// The paper of 2000.
pub(super) const JOURNALING: Paper = Paper {
    number: "001",
    name: "Seltzer et al. 2000",
    title: "Journaling versus Soft Updates: Asynchronous Meta-data Protection in File Systems",
    published: "USENIX Annual Technical Conference, 2000",
    disk: DISK,
    size_bytes: SIZE_BYTES,
    writes_through: false,
    setting: SETTING,
    figures: &[
        CREATE,
        DELETE,
        ZERO_2000,
        SSH_2000,
        NEWS_2000,
        SDET,
        POSTMARK_2000,
        GROUP_COMMIT,
    ],
    left_out: "Tables 1 and 2 name the systems and what they promise: GUARANTEES.md has ours, found by \
               the explorer.",
};

/// The report of 1999.
pub(super) const LOGGING: Paper = Paper {
    number: "002",
    name: "Seltzer et al. 1999",
    title: "Logging versus Soft Updates: Asynchronous Meta-data Protection in File Systems",
    published: "Harvard Computer Science Group Technical Report TR-07-99",
    disk: DISK,
    size_bytes: SIZE_BYTES,
    writes_through: false,
    setting: SETTING,
    figures: &[
        READ_1999,
        WRITE_1999,
        ZERO_1999,
        SSH_1999,
        NEWS_1999,
        POSTMARK_1999,
    ],
    left_out: "Figures 3, 4 and 5 are figures 1, 2 and 4 of the paper of 2000.",
};

const DISK: &str = "cheetah9";
const SIZE_BYTES: u64 = 8 << 30;
const SETTING: &str = "FreeBSD's FFS on a Seagate Cheetah of 9 GB with 10,000 revolutions a minute and \
                       a Pentium III of 500 MHz with 512 MB. FFS-async is our async, FFS our sync; \
                       LFFS-wafs-2sync and 2async have their log on one more such drive. The news spool is a sixteenth of the paper's, and so is the memory there.";

const FFS_ASYNC: Line = Line::of("FFS-async", "async");
const FFS: Line = Line::of("FFS", "sync");
const SOFT_UPDATES: Line = Line::of("Soft Updates", "soft");
const LFFS_FILE: Line = Line::of("LFFS-file", "lffs-file");
const WAFS_1SYNC: Line = Line::of("LFFS-wafs-1sync", "lffs-wafs=1sync");
const WAFS_1ASYNC: Line = Line::of("LFFS-wafs-1async", "lffs-wafs=1async");
const WAFS_2SYNC: Line = Line::of("LFFS-wafs-2sync", "lffs-wafs=2sync");
const WAFS_2ASYNC: Line = Line::of("LFFS-wafs-2async", "lffs-wafs=2async");

/// What all their figures have in common.
const ANY: Figure = Figure {
    place: "",
    title: "",
    measure: Measure::Speed,
    lines: &[
        FFS_ASYNC,
        FFS,
        SOFT_UPDATES,
        LFFS_FILE,
        WAFS_1SYNC,
        WAFS_1ASYNC,
        WAFS_2SYNC,
        WAFS_2ASYNC,
    ],
    base: 0,
    axis: "",
    places: &[],
    printed: &[],
    claims: &[],
    chart: ChartKind::Bars,
    reasons: &[],
    remarks: &[],
    note: "",
    holds_everything: false,
};

/// The size of all files together, for each size of file.
const MICRO_MEGABYTES: f64 = 128.0;

const SIZES: [(&str, u64); 12] = [
    ("2 KB", 2 << 10),
    ("4 KB", 4 << 10),
    ("8 KB", 8 << 10),
    ("16 KB", 16 << 10),
    ("32 KB", 32 << 10),
    ("64 KB", 64 << 10),
    ("128 KB", 128 << 10),
    ("256 KB", 256 << 10),
    ("512 KB", 512 << 10),
    ("1 MB", 1 << 20),
    ("2 MB", 2 << 20),
    ("4 MB", 4 << 20),
];
const LARGEST: usize = SIZES.len() - 1;
/// Index of the first size with an indirect block (104 KB and more).
const FIRST_INDIRECT: usize = 6;

/// One place for each size of file.
const fn sizes(workload: Workload, phases: &'static [&'static str]) -> [Place; SIZES.len()] {
    let mut places = [Place::of("", workload, phases); SIZES.len()];
    let mut i = 0;
    while i < places.len() {
        (places[i].name, places[i].file_bytes) = (SIZES[i].0, Some(SIZES[i].1));
        places[i].megabytes = Some(MICRO_MEGABYTES);
        i += 1;
    }
    places
}

const CREATE: Figure = Figure {
    place: "Figure 1",
    title: "Creating files of one size",
    measure: Measure::MegabytesPerSecond,
    axis: "size of each file",
    places: &sizes(Workload::MicroCreate, &[]),
    claims: &[
        Claim {
            line: 2,
            by: 0,
            first: 0,
            last: LARGEST,
            low: 0.95,
            high: 1.05,
            says: "Soft Updates and FFS-async provide comparable performance (read as: within 5 %)",
        },
        Claim {
            line: 0,
            by: 1,
            first: 0,
            last: FIRST_INDIRECT,
            low: 1.0,
            high: f64::INFINITY,
            says: "FFS is at the low end until files are large",
        },
        Claim {
            line: 7,
            by: 6,
            first: 0,
            last: FIRST_INDIRECT,
            low: 1.0,
            high: f64::INFINITY,
            says: "for small files LFFS-wafs-2async is far above LFFS-wafs-2sync",
        },
        Claim {
            line: 6,
            by: 4,
            first: 0,
            last: LARGEST,
            low: 1.0,
            high: f64::INFINITY,
            says: "a drive for the log spares the seeks between the log and the files",
        },
    ],
    chart: ChartKind::Lines,
    reasons: &[Reason::smaller(
        Counter::Writes,
        0.0,
        "Contents, inodes and names of a directory go to the drive one after the other: {} writes.",
    )
    .under("soft")],
    ..ANY
};

const DELETE: Figure = Figure {
    place: "Figure 2",
    title: "Deleting them, from a cold cache",
    measure: Measure::OperationsPerSecond,
    axis: "size of each file",
    places: &sizes(Workload::MicroDelete, &["delete"]),
    claims: &[Claim {
        line: 2,
        by: 0,
        first: 0,
        last: LARGEST,
        low: 1.0,
        high: f64::INFINITY,
        says: "Soft Updates outperforms all others, FFS-async too",
    }],
    chart: ChartKind::Lines,
    reasons: &[Reason::smaller(
        Counter::Writes,
        10.0,
        "Soft updates wrote back while files were removed: {} writes came between the reads.",
    )
    .under("soft")],
    note: "The time ends with the last removal: what is freed later does not count, as in the paper.",
    ..ANY
};

/// In the paper, reading does not differ between the systems.
const READ_1999: Figure = Figure {
    place: "Figure 1",
    title: "Reading files of one size, from a cold cache",
    measure: Measure::MegabytesPerSecond,
    axis: "size of each file",
    places: &sizes(Workload::MicroRead, &["read"]),
    claims: &[
        Claim {
            line: 1,
            by: 0,
            first: 0,
            last: LARGEST,
            low: 0.96,
            high: 1.04,
            says: "FFS shows no significant difference (read as: within 4 %)",
        },
        Claim {
            line: 2,
            by: 0,
            first: 0,
            last: LARGEST,
            low: 0.96,
            high: 1.04,
            says: "nor do Soft Updates",
        },
    ],
    chart: ChartKind::Lines,
    ..ANY
};

const WRITE_1999: Figure = Figure {
    place: "Figure 2",
    title: "Writing over them",
    places: &sizes(Workload::MicroWrite, &[]),
    ..READ_1999
};

const ZERO_2000: Figure = Figure {
    place: "Figure 3",
    title: "Creating and deleting 50,000 empty files, one after the other",
    measure: Measure::OperationsPerSecond,
    places: &[Place::of(
        "files a second",
        Workload::Zero,
        &["create-delete"],
    )],
    claims: &[
        Claim {
            line: 2,
            by: 0,
            first: 0,
            last: 0,
            low: 0.85,
            high: 1.0,
            says: "Soft Updates performs nearly as well as FFS-async (read as: within 15 %)",
        },
        Claim {
            line: 4,
            by: 1,
            first: 0,
            last: 0,
            low: 0.95,
            high: 1.05,
            says: "the synchronous logs behave identically to FFS (read as: within 5 %)",
        },
        Claim {
            line: 6,
            by: 1,
            first: 0,
            last: 0,
            low: 0.95,
            high: 1.05,
            says: "with a drive for the log too",
        },
        Claim {
            line: 3,
            by: 5,
            first: 0,
            last: 0,
            low: 1.0,
            high: f64::INFINITY,
            says: "LFFS-file outperforms the schemes with WAFS",
        },
        Claim {
            line: 7,
            by: 5,
            first: 0,
            last: 0,
            low: 0.95,
            high: 1.05,
            says: "one drive or two, the asynchronous logs perform comparably (read as: within 5 %)",
        },
    ],
    reasons: &[Reason::smaller(
        Counter::WritesPerOperation,
        3.0,
        "sync makes {} writes for each file: two inodes, two names and a bitmap. By its rate the \
         paper’s system makes two.",
    )
    .under("sync")],
    chart: ChartKind::LogBars,
    ..ANY
};

const ZERO_1999: Figure = Figure {
    place: "Table 4",
    printed: &[
        &[Some(10_782.8)],
        &[Some(80.4)],
        &[Some(4_962.0)],
        &[Some(7_695.7)],
        &[Some(80.3)],
        &[Some(4_846.4)],
        &[Some(80.5)],
        &[Some(4_692.7)],
    ],
    claims: &[],
    reasons: &[
        Reason::smaller(
            Counter::WritesPerOperation,
            2.0,
            "sync makes {} writes for each file: two inodes, two names and a bitmap. By its rate the \
             paper’s system makes two.",
        )
        .under("sync"),
        Reason::larger(
            Counter::WritesPerOperation,
            0.0,
            "What was made and removed in memory never reaches the drive: {} writes for each file. The \
             paper names a fault of its system that had such files deleted as if they had been on the \
             disk.",
        )
        .up_to(0.1)
        .under("soft"),
        Reason::larger(Counter::KibibytesPerWrite, 64.0, LARGE_LOG_WRITES)
            .under("lffs-wafs=1async"),
        Reason::larger(Counter::KibibytesPerWrite, 64.0, LARGE_LOG_WRITES)
            .under("lffs-wafs=2async"),
    ],
    ..ZERO_2000
};

const LARGE_LOG_WRITES: &str = "The log goes to the drive {} KiB at a time. The paper’s WAFS wrote \
                                smaller pieces than LFFS-file, by which it explains its rate.";

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

const SSH_2000: Figure = Figure {
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

const SSH_1999: Figure = Figure {
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

const NEWS_2000: Figure = Figure {
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

const NEWS_1999: Figure = Figure {
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

const fn scripts(name: &'static str, count: u64) -> Place {
    let mut place = Place::of(name, Workload::Sdet, &["scripts"]);
    place.scripts = Some(count);
    place
}

const SDET: Figure = Figure {
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

const POSTMARK_2000: Figure = Figure {
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
            last: 1,
            low: 0.9,
            high: 1.15,
            says: "Soft Updates is near FFS-async with the large pool, and not below it with the small one \
               (read as: 0.9 or more)",
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
    ..ANY
};

/// A line whose log is in memory that survives a power cut.
const fn in_nvram(name: &'static str, ordering: &'static str) -> Line {
    let mut line = Line::of(name, ordering);
    line.log_disk = Some("nvram");
    line
}

/// What the paper suggests to try, but had no system for.
const GROUP_COMMIT: Figure = Figure {
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
    note: "The paper measured none of these. A group gathers for 5 ms. Under the synchronous logs, too, \
           those who wait at the same time share a write.",
    ..ANY
};

const POSTMARK_1999: Figure = Figure {
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
