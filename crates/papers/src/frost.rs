//! Frost, Mammarella, Kohler and others, "Generalized File System Dependencies", 2007 (paper 004), §8.

use super::{Change, ChartKind, Counter, Figure, Line, Measure, Paper, Place, Reason};
use backstitch_bench::paper::FIGURE_9;
use backstitch_bench::{ImapVariant, Workload};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    number: "004",
    name: "Frost et al. 2007",
    title: "Generalized File System Dependencies",
    published: "SOSP 2007",
    disk: "st3320620as",
    size_bytes: 10 << 30,
    writes_through: true,
    setting: "Featherstitch's ext2 on a Seagate ST3320620AS and a Pentium 4 of 3.2 GHz with 912 MB; a \
              file system of 10 GB. The tree is drawn with 18,812 files and 203 MiB, as Linux 2.6.15 \
              had (quoted from memory; the paper has a tar file of 218 MB, which allocates 256 MB of \
              blocks). How long Andrew’s compiler computes is fitted to the time under async.",
    figures: &[FIGURE_9_PATCHES, FIGURE_9_UNDO, FIGURE_10, FIGURE_11],
    left_out: "The column of processor time of figures 9 and 10: the simulated processor costs the same \
               under every choice. `backstitch bench optimisations --memory` measures the real one. \
               The rows of Linux are of other systems; `make bench` measures today's.",
};

const WORKLOADS: &[Place] = &[
    tree("untar", Workload::Untar),
    tree("delete", Workload::Delete),
    Place::of("PostMark", Workload::Postmark, &[]),
    Place::of("Andrew", Workload::Andrew, &[]),
];

/// A workload on the paper's tree.
const fn tree(name: &'static str, workload: Workload) -> Place {
    let mut place = Place::of(name, workload, &[]);
    (place.files, place.megabytes) = (Some(18_812), Some(203.0));
    place
}

const fn choice(name: &'static str, opt: &'static str) -> Line {
    let mut line = Line::of(name, "soft");
    line.opt = opt;
    line
}

const fn patches(line: usize) -> [Option<f64>; 4] {
    let mut printed = [None; 4];
    let mut place = 0;
    while place < printed.len() {
        printed[place] = Some(FIGURE_9[place * 4 + line].patches as f64);
        place += 1;
    }
    printed
}

const fn undo(line: usize) -> [Option<f64>; 4] {
    let mut printed = [None; 4];
    let mut place = 0;
    while place < printed.len() {
        printed[place] = Some(FIGURE_9[place * 4 + line].undo_megabytes);
        place += 1;
    }
    printed
}

const FIGURE_9_PATCHES: Figure = Figure {
    place: "Figure 9, patches",
    title: "What the optimisations save: patches",
    measure: Measure::Patches,
    lines: &[
        choice("none", "none"),
        choice("hard patches", "hard"),
        choice("overlap merging", "merge"),
        choice("both", "both"),
    ],
    base: 0,
    axis: "",
    places: WORKLOADS,
    printed: &[&patches(0), &patches(1), &patches(2), &patches(3)],
    claims: &[],
    chart: ChartKind::LogBars,
    reasons: &[
        Reason::smaller(
            Counter::PatchesPerOperation,
            0.0,
            "Changes are stated with fewer patches from the beginning: {} for each operation.",
        ),
        Reason::larger(
            Counter::Flushes,
            10.0,
            "What was removed is freed in {} batches, and a change after a batch needs a patch of its \
             own.",
        )
        .at("delete"),
    ],
    remarks: &[],
    note: "Memory holds everything and nothing is written before the final sync, so that no patch \
           leaves early.",
    holds_everything: true,
};

const FIGURE_9_UNDO: Figure = Figure {
    place: "Figure 9, undo data",
    title: "What the optimisations save: undo data",
    measure: Measure::UndoMegabytes,
    reasons: &[
        Reason::larger(
            Counter::UndoBytesPerPatch,
            20.0,
            "There are fewer patches, and larger ones: {} bytes of undo data for each. The paper’s have \
             4.8 bytes without optimisations, and 17 with overlap merging.",
        )
        .at("delete"),
        Reason::smaller(
            Counter::WithoutUndoPercent,
            50.0,
            "{} % of the patches need no undo data.",
        ),
        Reason::smaller(
            Counter::PatchesPerOperation,
            0.0,
            "There are fewer patches that could need undo data: {} for each operation.",
        ),
    ],
    printed: &[&undo(0), &undo(1), &undo(2), &undo(3)],
    ..FIGURE_9_PATCHES
};

const FIGURE_10: Figure = Figure {
    place: "Figure 10",
    title: "Four workloads under four mechanisms",
    measure: Measure::Seconds,
    lines: &[
        Line::of("async", "async"),
        Line::of("soft updates", "soft"),
        Line::of("meta journal", "journal=writeback"),
        Line::of("full journal", "journal=full"),
    ],
    printed: &[
        &[Some(4.1), Some(0.7), Some(37.3), Some(36.4)],
        &[Some(6.4), Some(0.8), Some(38.3), Some(36.9)],
        &[Some(5.8), Some(1.4), Some(48.3), Some(36.7)],
        &[Some(11.5), Some(1.4), Some(82.8), Some(36.8)],
    ],
    chart: ChartKind::Bars,
    reasons: &[
        Reason::larger(
            Counter::Flushes,
            10.0,
            "What was removed is read block by block, and freed in {} batches that wait for each other. \
             The paper’s system reads 32 blocks at a time (its published source).",
        )
        .under("soft")
        .at("delete"),
        Reason::larger(
            Counter::KibibytesPerRead,
            0.0,
            "What is removed is read block by block from a cold cache, {} KiB at a time. The paper’s \
             system reads 32 blocks at a time (its published source).",
        )
        .up_to(16.0)
        .at("delete"),
        Reason::larger(
            Counter::ReadQueuePercent,
            20.0,
            "Inodes’ blocks are read while batches are written: for {} % of the time a read waits in the \
             drive’s queue. The paper’s only row of async is not safe: its writes are done once they are \
             in the drive’s cache.",
        )
        .under("async")
        .at("untar")
        .tested_by(Change::Memory(8)),
        Reason::smaller(
            Counter::ProcessorSeconds,
            0.0,
            "The simulated processor has the same work under every mechanism, {} s. The paper’s had 14.5 \
             under the metadata journal, 6.1 under async.",
        )
        .up_to(10.0)
        .under("journal=writeback")
        .at("PostMark"),
    ],
    note: "The paper's safe rows: a write is done when it is on the medium. async has no safe row.",
    holds_everything: false,
    ..FIGURE_9_PATCHES
};

const FIGURE_11: Figure = Figure {
    place: "Figure 11",
    title: "A mail server moves 1,000 messages: writes",
    measure: Measure::WriteRequests,
    lines: &[
        Line::of("soft updates", "soft"),
        Line::of("full journal", "journal=full"),
    ],
    places: &[
        Place::of("fsync", Workload::Imap(ImapVariant::Fsync), &[]),
        Place::of("patchgroups", Workload::Imap(ImapVariant::Patchgroups), &[]),
    ],
    printed: &[&[Some(8083.0), Some(3015.0)], &[Some(7114.0), Some(32.0)]],
    reasons: &[
        Reason::smaller(
            Counter::WritesPerOperation,
            0.0,
            "{} writes for each operation: the inodes of a mailbox's changes and their directory share blocks, and a block is written once for each fsync.",
        )
        .at("fsync"),
        Reason::smaller(
            Counter::Flushes,
            1.0,
            "Contents wait for nothing, and the inodes of all messages are one block: {} flushes.",
        )
        .at("patchgroups"),
    ],
    note: "The paper's fsync per durable operation, which only a journal makes safe, is not on this page: \
           `backstitch bench imap` measures it.",
    ..FIGURE_10
};
