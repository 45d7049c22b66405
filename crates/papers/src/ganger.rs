//! Ganger, McKusick, Soules and Patt, "Soft Updates", 2000 (paper 000), §4.

use super::places::{scripts, sizes};
use super::{Change, ChartKind, Claim, Counter, Figure, Line, Measure, Paper, Place, Reason};
use backstitch_bench::{QueueOrder, Workload};
use backstitch_drives::Flag;

/// The paper.
pub(super) const PAPER: Paper = Paper {
    number: "000",
    name: "Ganger et al. 2000",
    title: "Soft Updates: A Solution to the Metadata Update Problem in File Systems",
    published: "ACM Transactions on Computer Systems 18(2), 2000",
    disk: "viking",
    size_bytes: 4 << 30,
    writes_through: false,
    setting: "FreeBSD's FFS on a Quantum Viking of 4.5 GB and a Pentium II of 300 MHz with 128 MB. \
              Most of the paper's figures are curves without printed values: what its text says of \
              them is compared instead. No Order is our async, Conventional our sync.",
    figures: &[
        SECTION_2_1,
        FIGURE_3,
        FIGURE_4,
        FIGURE_5,
        FIGURE_6,
        FIGURE_7,
        FIGURE_8,
        TABLE_IV,
    ],
    left_out: "Table II is the load of a mail server in production, which nobody can run again. \
               Table III, the time until a file system can be used after a crash, is measured by \
               `backstitch bench recovery`, on a file and by the real clock.",
};

const NO_ORDER: Line = Line::of("No Order", "async");
const SOFT_UPDATES: Line = Line::of("Soft Updates", "soft");
const CONVENTIONAL: Line = Line::of("Conventional", "sync");
const LOGGING: Line = Line::of("Logging-FFS", "lffs-file");
const THREE: &[Line] = &[NO_ORDER, SOFT_UPDATES, CONVENTIONAL];
const FOUR: &[Line] = &[NO_ORDER, SOFT_UPDATES, CONVENTIONAL, LOGGING];

const CREATE: &[Place] = &sizes(Workload::MicroCreate, &[], None, None);
const WRITES: &[Place] = &sizes(Workload::MicroCreate, &["create"], None, None);
const DELETE: &[Place] = &sizes(Workload::MicroDelete, &["delete"], None, None);
const READ: &[Place] = &sizes(Workload::MicroRead, &["read"], None, None);

/// Index of the last place with files of up to 64 KB.
const LAST_SMALL: usize = 5;
/// Index of the first place with an indirect block (104 KB and more).
const FIRST_INDIRECT: usize = 6;
const LARGEST: usize = 11;

const MICRO: Figure = Figure {
    place: "",
    title: "",
    measure: Measure::MegabytesPerSecond,
    lines: THREE,
    base: 0,
    axis: "size of each file",
    places: CREATE,
    printed: &[],
    claims: &[],
    chart: ChartKind::Lines,
    reasons: &[],
    remarks: &[],
    note: "",
    holds_everything: false,
};

/// `scheduler` with one of the flags of Ganger and Patt.
const fn flagged(name: &'static str, flag: Flag) -> Line {
    let mut line = Line::of(name, "scheduler");
    line.queue_order = QueueOrder::Flag(flag);
    line
}

/// Indices of the lines of section 2.1.
const SYNCHRONOUS: usize = 0;
const CHAINS: usize = 1;
const FULL: usize = 4;
const INTERBUFFER: usize = 5;
const SOFT: usize = 6;

/// A claim on the time under `line`, divided by that under `by`, at all places.
const fn times(line: usize, by: usize, low: f64, high: f64, says: &'static str) -> Claim {
    Claim {
        line,
        by,
        first: 0,
        last: 2,
        low,
        high,
        says,
    }
}

const SECTION_2_1: Figure = Figure {
    place: "Section 2.1",
    title: "Ordering by the drive’s queue, and between buffers",
    measure: Measure::Seconds,
    lines: &[
        CONVENTIONAL,
        Line::of("scheduler, chains", "scheduler"),
        flagged("flags, Part", Flag::Part),
        flagged("flags, Back", Flag::Back),
        flagged("flags, Full", Flag::Full),
        Line::of("interbuffer", "interbuffer"),
        SOFT_UPDATES,
    ],
    axis: "",
    places: &[
        of_4_kb("create", Workload::MicroCreate),
        of_4_kb("delete", Workload::MicroDelete),
        Place::of("PostMark", Workload::PostmarkSmall, &["transactions"]),
    ],
    claims: &[
        times(
            SYNCHRONOUS,
            CHAINS,
            1.3,
            f64::INFINITY,
            "ordering by the scheduler outperforms synchronous writes by more than 30 %: chains",
        ),
        times(
            SYNCHRONOUS,
            FULL,
            1.3,
            f64::INFINITY,
            "the same with the flag that orders most",
        ),
        times(
            SYNCHRONOUS,
            INTERBUFFER,
            1.0,
            1.3,
            "dependencies between buffers are only a marginal improvement on synchronous writes (read as: \
             up to 30 %)",
        ),
        times(
            CHAINS,
            SOFT,
            0.98,
            f64::INFINITY,
            "neither is faster than Soft Updates (read as: by more than 2 %): scheduler",
        ),
        times(INTERBUFFER, SOFT, 0.98, f64::INFINITY, "interbuffer"),
    ],
    chart: ChartKind::LogBars,
    reasons: &[Reason::smaller(
        Counter::WritesPerOperation,
        0.0,
        "Only the blocks of a circle are written at once, with all that has gathered in them: {} \
             writes for each operation. Where files are only created, or only removed, hardly any \
             circle forms.",
    )
    .up_to(2.0)
    .under("interbuffer"),
    Reason::smaller(
        Counter::MillisecondsPerWrite,
        0.0,
        "With chains the next requests are in the drive’s queue already, and it always has a choice: {} ms \
             for each write. Soft updates hand it a batch, wait for it, and hand it the next.",
    )
    .up_to(2.8)
    .under("scheduler")],
    note: "32 MB of files of 4 KB, and the PostMark of table I. The paper quotes Ganger and Patt 1994: flags \
           and chains are theirs. With chains a request names those that it has to follow, with a flag it has to \
           do with all requests around it.",
    ..MICRO
};

const fn of_4_kb(name: &'static str, workload: Workload) -> Place {
    let mut place = Place::of(name, workload, &[]);
    place.file_bytes = Some(4 << 10);
    place
}

const FIGURE_3: Figure = Figure {
    place: "Figure 3",
    title: "Creating 32 MB of files",
    places: CREATE,
    claims: &[
        Claim {
            line: 1,
            by: 0,
            first: 0,
            last: LARGEST,
            low: 0.93,
            high: 1.07,
            says: "Soft Updates and No Order are similar (read as: within the variation of 7 %)",
        },
        Claim {
            line: 0,
            by: 2,
            first: 0,
            last: LAST_SMALL,
            low: 1.0,
            high: f64::INFINITY,
            says: "No Order outperforms Conventional with small files",
        },
        Claim {
            line: 2,
            by: 0,
            first: LARGEST,
            last: LARGEST,
            low: 0.85,
            high: 1.0,
            says: "the three converge as files grow (read as: within 15 % at 4 MB)",
        },
    ],
    reasons: &[Reason::smaller(
        Counter::Writes,
        0.0,
        "Contents, inodes and names of a directory go to the drive one after the other: {} writes.",
    )
    .under("soft")],
    note: "The time ends when the final sync has returned.",
    ..MICRO
};

const FIGURE_4: Figure = Figure {
    place: "Figure 4",
    title: "Deleting the files, from a cold cache",
    measure: Measure::OperationsPerSecond,
    places: DELETE,
    claims: &[
        Claim {
            line: 0,
            by: 2,
            first: FIRST_INDIRECT,
            last: LARGEST,
            low: 2.5,
            high: 3.5,
            says: "above 104 KB No Order is approximately three times faster than Conventional",
        },
        Claim {
            line: 1,
            by: 0,
            first: 0,
            last: LARGEST,
            low: 1.0,
            high: f64::INFINITY,
            says: "Soft Updates outperforms No Order",
        },
    ],
    reasons: &[
        Reason::smaller(
            Counter::Writes,
            10.0,
            "Soft updates wrote back while files were removed: {} writes came between the reads.",
        )
        .under("soft"),
        Reason::larger(
            Counter::ReadsPerOperation,
            0.0,
            "No Order makes {} reads for each file: one read brings the indirect blocks of several, \
             which lie beside each other. The paper’s system makes one for each file.",
        )
        .up_to(0.5)
        .under("async"),
    ],
    note: "The time ends with the last removal: what soft updates do later does not count, as in the \
           paper.",
    ..MICRO
};

const FIGURE_5: Figure = Figure {
    place: "Figure 5",
    title: "Reading the files, from a cold cache",
    places: READ,
    claims: &[Claim {
        line: 2,
        by: 0,
        first: 0,
        last: LARGEST,
        low: 0.96,
        high: 1.04,
        says: "no significant difference between No Order and Conventional (read as: within the \
               variation of 4 %)",
    }],
    ..MICRO
};

const FIGURE_6: Figure = Figure {
    place: "Figure 6",
    title: "Writes of the disk for each file that is created",
    measure: Measure::WritesPerFile,
    places: WRITES,
    printed: &[
        &SMALL_FILES_WRITES_WITHOUT_WAITING,
        &SMALL_FILES_WRITES_WITHOUT_WAITING,
        &SMALL_FILES_WRITES_WITH_WAITING,
    ],
    reasons: &[Reason::smaller(
        Counter::KibibytesPerWrite,
        16.0,
        "The contents of files that lie beside each other go to the drive together, {} KiB in a write. \
         The paper’s system makes a write for each file.",
    )],
    note: "The paper draws the total; its text has it for each file of up to 64 KB.",
    ..MICRO
};

const SMALL_FILES_WRITES_WITHOUT_WAITING: [Option<f64>; 12] = small_files(1.1);
const SMALL_FILES_WRITES_WITH_WAITING: [Option<f64>; 12] = small_files(3.1);

const fn small_files(value: f64) -> [Option<f64>; 12] {
    let mut printed = [None; 12];
    let mut i = 0;
    while i <= LAST_SMALL {
        printed[i] = Some(value);
        i += 1;
    }
    printed
}

const FIGURE_7: Figure = Figure {
    place: "Figure 7",
    title: "Sdet: scripts of user commands",
    measure: Measure::ScriptsPerHour,
    axis: "scripts at a time",
    places: &[
        scripts("1", 1),
        scripts("5", 5),
        scripts("10", 10),
        scripts("20", 20),
    ],
    claims: &[
        Claim {
            line: 1,
            by: 0,
            first: 0,
            last: 3,
            low: 0.97,
            high: 1.03,
            says: "Soft Updates is always within 3 % of No Order",
        },
        Claim {
            line: 0,
            by: 2,
            first: 0,
            last: 0,
            low: 5.5,
            high: 6.5,
            says: "No Order outperforms Conventional by 6 times with one script at a time",
        },
        Claim {
            line: 0,
            by: 2,
            first: 1,
            last: 3,
            low: 8.0,
            high: f64::INFINITY,
            says: "by more than 8 times with several",
        },
    ],
    reasons: &[Reason::larger(
        Counter::MillisecondsPerWrite,
        0.0,
        "Conventional takes {} ms for each write, with one script and with many: those of several \
         scripts are in the drive’s queue together. In the paper throughput falls with more scripts.",
    )
    .up_to(12.0)
    .under("sync")],
    note: "What is in a script is not published. Ours is 430 commands by assumed weights: how many \
           there are and what they compute is fitted to one script at a time, under async and sync.",
    ..MICRO
};

const FIGURE_8: Figure = Figure {
    place: "Figure 8",
    title: "Sdet with write-ahead logging",
    lines: FOUR,
    claims: &[
        Claim {
            line: 3,
            by: 2,
            first: 0,
            last: 3,
            low: 5.9,
            high: 7.8,
            says: "Logging-FFS outperforms Conventional by 5.9 to 7.8 times",
        },
        Claim {
            line: 3,
            by: 0,
            first: 0,
            last: 3,
            low: 0.81,
            high: 0.96,
            says: "Logging-FFS is 4 to 19 % slower than No Order",
        },
    ],
    reasons: &[Reason::larger(
        Counter::ProcessorPercent,
        70.0,
        "Nobody waits for the log, and the drive has time for it: the processor is busy for {} % of \
         the time. In the paper the log’s writes compete with the scripts for the drive.",
    )],
    note: "Logging-FFS has its log in a file of about 1 % of the file system, with the first and the last \
           record that each buffer belongs to: lffs-file.",
    ..FIGURE_7
};

const TABLE_IV: Figure = Figure {
    place: "Tables I and IV",
    title: "PostMark: mail and news in small files",
    measure: Measure::TransactionsPerSecond,
    lines: FOUR,
    axis: "",
    places: &[Place::of(
        "1,000 files, 30,000 transactions",
        Workload::PostmarkSmall,
        &["transactions"],
    )],
    printed: &[
        &[Some(165.0)],
        &[Some(170.0)],
        &[Some(45.4)],
        &[Some(155.0)],
    ],
    chart: ChartKind::Bars,
    reasons: &[Reason::larger(
        Counter::MillisecondsPerWrite,
        0.0,
        "The drive has a whole batch of writes in its queue and chooses their order: one takes {} ms, \
         where one alone takes 12.8 (average seek, half a revolution and the command).",
    )
    .up_to(6.4)
    .tested_by(Change::OneRequest)],
    ..MICRO
};
