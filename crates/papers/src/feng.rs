//! Feng and Chang, "Using Asynchronous Writes on Metadata", 1997 (paper 003), §5.

use super::{ChartKind, Counter, Figure, Line, Measure, Paper, Place, Reason};
use backstitch_bench::Workload;

/// The paper.
pub(super) const PAPER: Paper = Paper {
    number: "003",
    name: "Feng and Chang 1997",
    title: "Using Asynchronous Writes on Metadata to Improve File System Performance",
    published: "Journal of Systems and Software, 1997",
    disk: "st2383",
    size_bytes: 80 << 20,
    writes_through: false,
    setting: "USL's System V Release 4 on a Seagate ST2383 and a 486 of 50 MHz with 32 MB; a partition \
              of 80 MB, blocks of 4 KB. UFS is our sync, AUFS our amom. The paper does not say \
              under which policy tables 2 and 3 were made: scheme 5 is assumed, whose figures in \
              table 4 are the nearest. Its times end with the last call, before any sync. How long the compiler computes \
              is fitted to the time of phase 5 under AUFS.",
    figures: &[TABLE_2, TABLE_3, TABLE_4],
    left_out: "Figures 8 and 9 draw tables 2 and 4. Table 1 counts the writes of each operation by its \
               code; nothing in it was measured.",
};

const UFS: Line = Line::of("UFS", "sync");
const AUFS: Line = Line::of("AUFS", "amom=periodic:300");

const BOTH: Figure = Figure {
    place: "",
    title: "",
    measure: Measure::Seconds,
    lines: &[UFS, AUFS],
    base: 0,
    axis: "",
    places: &[],
    printed: &[],
    claims: &[],
    chart: ChartKind::Bars,
    reasons: &[
        Reason::larger(
            Counter::WritesPerOperation,
            0.5,
            "sync has a changed mode written before the call returns, {} writes for each operation. \
             The paper’s system delays it (its table 1).",
        )
        .under("sync")
        .at("4: chmod, stat"),
        Reason::smaller(
            Counter::WritesPerOperation,
            0.0,
            "A directory takes {} writes here. The paper counts five (its table 1).",
        )
        .up_to(4.5)
        .under("sync")
        .at("1: make directories"),
        Reason::smaller(
            Counter::ProcessorPercent,
            0.0,
            "Without waiting for writes the paper’s copying takes 7.71 s, under AUFS: cp and the other \
             drive, from which it reads, are not simulated. Here the processor is busy for {} % of the \
             time.",
        )
        .up_to(20.0)
        .under("sync")
        .at("2: copy"),
        Reason::larger(
            Counter::ReadQueuePercent,
            30.0,
            "Blocks of inodes are read while contents are written: for {} % of the time a read waits in \
             the drive’s queue.",
        )
        .at("6: readdir"),
        Reason::larger(
            Counter::IdlePercent,
            50.0,
            "The drive waits for the host for {} % of the time: the figure is the processor’s, whose \
             speed is assumed.",
        ),
        Reason::smaller(
            Counter::IdlePercent,
            50.0,
            "The drive waits for the host for {} % of the time, and the host does nothing but the file \
             system’s work: the programs that make the calls are not simulated.",
        ),
        Reason::smaller(
            Counter::WritesPerOperation,
            0.0,
            "The changes of several operations go to the drive together: {} writes for each operation.",
        )
        .up_to(0.9),
        Reason::larger(
            Counter::Writes,
            50.0,
            "Each change waits for its writes, {} in these phases.",
        )
        .under("sync"),
        Reason::larger(
            Counter::WritesPerOperation,
            0.0,
            "Nobody waits for the writes of amom, {} for each operation: the figure is the \
             processor’s, whose speed is assumed.",
        )
        .up_to(0.2),
        Reason::smaller(
            Counter::KibibytesPerWrite,
            16.0,
            "Contents go to the drive {} KiB at a time. The paper’s system has blocks of 4 KB.",
        )
        .at("5: write and read 1 MB"),
    ],
    remarks: &[],
    note: "",
    holds_everything: false,
};

const fn andrew(name: &'static str, phases: &'static [&'static str]) -> Place {
    Place::of(name, Workload::AndrewSmall, phases)
}

const fn test(name: &'static str, phases: &'static [&'static str]) -> Place {
    Place::of(name, Workload::Connectathon, phases)
}

const TABLE_2: Figure = Figure {
    place: "Table 2",
    title: "The Andrew benchmark, phase by phase",
    places: &[
        andrew("1: make directories", &["make-directories"]),
        andrew("2: copy", &["copy"]),
        andrew("3: stat", &["stat"]),
        andrew("4: read", &["read"]),
        andrew("5: compile", &["compile"]),
        andrew(
            "all five",
            &["make-directories", "copy", "stat", "read", "compile"],
        ),
    ],
    printed: &[
        &[
            Some(2.57),
            Some(8.14),
            Some(4.86),
            Some(6.0),
            Some(47.14),
            Some(68.71),
        ],
        &[
            Some(0.71),
            Some(7.71),
            Some(4.0),
            Some(6.14),
            Some(44.57),
            Some(63.13),
        ],
    ],
    ..BOTH
};

/// The tests in the order of the tables: first those of metadata, then the others, last all of
/// them.
const TESTS: &[Place] = &[
    test("1: create files, directories", &["test-1"]),
    test("2: remove them", &["test-2"]),
    test("4: chmod, stat", &["test-4"]),
    test("7: rename, link", &["test-7"]),
    test("8: symlink, readlink", &["test-8"]),
    test("3: getwd, stat", &["test-3"]),
    test("5: write and read 1 MB", &["test-5"]),
    test("6: readdir", &["test-6"]),
    test("9: statvfs", &["test-9"]),
    test(
        "all nine",
        &[
            "test-1", "test-2", "test-3", "test-4", "test-5", "test-6", "test-7", "test-8",
            "test-9",
        ],
    ),
];

/// A row of table 3 or 4, with its sum.
const fn row(tests: [f64; 9]) -> [Option<f64>; 10] {
    let mut row = [None; 10];
    let (mut i, mut sum) = (0, 0.0);
    while i < tests.len() {
        row[i] = Some(tests[i]);
        sum += tests[i];
        i += 1;
    }
    row[tests.len()] = Some(sum);
    row
}

const TABLE_3: Figure = Figure {
    place: "Table 3",
    title: "The nine basic tests of Connectathon",
    places: TESTS,
    printed: &[
        &row([10.425, 5.65, 0.373, 8.82, 12.795, 1.13, 4.295, 3.665, 0.275]),
        &row([4.32, 0.19, 0.4, 0.42, 3.808, 1.16, 3.998, 0.933, 0.28]),
    ],
    note: "How often a test makes its calls the paper says of some; the others are the suite's \
           defaults. The sum is ours.",
    ..BOTH
};

const TABLE_4: Figure = Figure {
    place: "Table 4",
    title: "Connectathon under the six update policies",
    lines: &[
        UFS,
        Line::of("scheme 1, immediate", "amom=immediate"),
        Line::of("2, delayed 100 ticks", "amom=delayed:100"),
        Line::of("3, delayed 300", "amom=delayed:300"),
        Line::of("4, periodic 4", "amom=periodic:4"),
        Line::of("5, periodic 300", "amom=periodic:300"),
        Line::of("6, periodic 500", "amom=periodic:500"),
    ],
    printed: &[
        &row([
            10.246, 5.926, 0.388, 6.66, 10.182, 1.142, 3.976, 3.74, 0.264,
        ]),
        &row([8.818, 0.393, 0.435, 1.87, 3.648, 1.228, 2.843, 1.4, 0.308]),
        &row([4.727, 0.197, 0.408, 0.442, 4.134, 1.22, 3.966, 1.122, 0.284]),
        &row([4.65, 0.19, 0.392, 0.44, 3.845, 1.207, 3.918, 0.94, 0.278]),
        &row([8.47, 0.245, 0.4, 1.13, 3.645, 1.205, 3.99, 0.945, 0.275]),
        &row([4.514, 0.19, 0.414, 0.43, 4.056, 1.172, 3.984, 0.95, 0.282]),
        &row([4.526, 0.19, 0.39, 0.42, 4.283, 1.138, 3.948, 0.934, 0.268]),
    ],
    ..TABLE_3
};
