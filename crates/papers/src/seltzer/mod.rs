//! Seltzer, Ganger, McKusick, Smith, Soules and Stein, "Journaling versus Soft Updates", 2000 (paper
//! 001), §8, and "Logging versus Soft Updates", 1999 (paper 002), §5: the same systems on the same
//! machine, with other numbers.

mod loads;

use crate::places::{SIZES, sizes};
use crate::{ChartKind, Claim, Counter, Figure, Line, Measure, Paper, Place, Reason};
use backstitch_bench::Workload;
use loads::{
    GROUP_COMMIT, NEWS_1999, NEWS_2000, POSTMARK_1999, POSTMARK_2000, SDET, SSH_1999, SSH_2000,
};

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

/// The size of all files together, for each size of file, and how many there are at least: from
/// 512 KB up it is their number that counts.
const MICRO_MEGABYTES: f64 = 128.0;
const MICRO_FILES: u64 = 512;

const fn micro(workload: Workload, phases: &'static [&'static str]) -> [Place; SIZES.len()] {
    sizes(workload, phases, Some(MICRO_MEGABYTES), Some(MICRO_FILES))
}

const LARGEST: usize = SIZES.len() - 1;
/// Index of the first size with an indirect block (104 KB and more).
const FIRST_INDIRECT: usize = 6;

const CREATE: Figure = Figure {
    place: "Figure 1",
    title: "Creating files of one size",
    measure: Measure::MegabytesPerSecond,
    axis: "size of each file",
    places: &micro(Workload::MicroCreate, &[]),
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
    places: &micro(Workload::MicroDelete, &["delete"]),
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
    places: &micro(Workload::MicroRead, &["read"]),
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
    places: &micro(Workload::MicroWrite, &[]),
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
