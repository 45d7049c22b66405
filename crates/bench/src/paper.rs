//! Results of the papers, and of the original prototype measured on a present-day machine.

use serde::Serialize;

use crate::workload::{ImapVariant, file_bytes};
use crate::{Scale, Spec, Workload};

/// A figure of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PaperFigure {
    /// The paper, and the place in it.
    pub source: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// A row of figure 9 of Frost et al. 2007, or the same measured with the prototype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimisationRow {
    /// The workload.
    pub workload: Workload,
    /// `none`, `hard`, `merge` or `both`.
    pub opt: &'static str,
    /// Patches created.
    pub patches: u64,
    /// Undo data ever allocated, in MB.
    pub undo_megabytes: f64,
    /// CPU time in the kernel, where the paper's implementation ran; `None` for the prototype.
    pub sys_seconds: Option<f64>,
}

const fn row(
    workload: Workload,
    opt: &'static str,
    patches: u64,
    undo_megabytes: f64,
    sys_seconds: Option<f64>,
) -> OptimisationRow {
    OptimisationRow {
        workload,
        opt,
        patches,
        undo_megabytes,
        sys_seconds,
    }
}

/// Figure 9: ext2 under soft updates, untar and delete of Linux 2.6.15, PostMark, the modified
/// Andrew benchmark on Ion.
pub const FIGURE_9: [OptimisationRow; 16] = [
    row(Workload::Untar, "none", 619_740, 459.41, Some(3.33)),
    row(Workload::Untar, "hard", 446_002, 205.94, Some(2.73)),
    row(Workload::Untar, "merge", 111_486, 254.02, Some(1.87)),
    row(Workload::Untar, "both", 68_887, 0.39, Some(1.83)),
    row(Workload::Delete, "none", 299_089, 1.43, Some(0.81)),
    row(Workload::Delete, "hard", 41_113, 0.91, Some(0.24)),
    row(Workload::Delete, "merge", 54_665, 0.93, Some(0.31)),
    row(Workload::Delete, "both", 1_800, 0.0, Some(0.15)),
    row(Workload::Postmark, "none", 4_590_571, 3_175.28, Some(23.64)),
    row(Workload::Postmark, "hard", 2_544_198, 1_582.94, Some(18.62)),
    row(Workload::Postmark, "merge", 550_442, 1_590.27, Some(12.88)),
    row(Workload::Postmark, "both", 675_308, 0.11, Some(11.05)),
    row(Workload::Andrew, "none", 70_932, 64.09, Some(4.34)),
    row(Workload::Andrew, "hard", 50_769, 36.18, Some(4.32)),
    row(Workload::Andrew, "merge", 12_449, 27.90, Some(4.20)),
    row(Workload::Andrew, "both", 10_418, 0.04, Some(4.07)),
];

/// The original prototype, its userspace build of 2009: a tree of 13,129 files (a 265 MB archive)
/// and the paper's PostMark.
pub const PROTOTYPE: [OptimisationRow; 6] = [
    row(Workload::Untar, "none", 753_859, 551.9, None),
    row(Workload::Untar, "both", 146_965, 0.41, None),
    row(Workload::Delete, "none", 298_355, 1.30, None),
    row(Workload::Delete, "both", 2_341, 0.0, None),
    row(Workload::Postmark, "none", 4_996_331, 3_329.0, None),
    row(Workload::Postmark, "both", 995_293, 0.117, None),
];

/// The row for a workload and its optimisations.
pub fn find(rows: &[OptimisationRow], workload: &str, opt: &str) -> Option<OptimisationRow> {
    rows.iter()
        .find(|row| row.workload.name() == workload && row.opt == opt)
        .copied()
}

/// The papers' figure for a run at full scale, if there is one.
pub(crate) fn figure(spec: &Spec) -> Option<PaperFigure> {
    if spec.workload == Workload::PostmarkSmall && spec.scale.is_full() {
        return Some(PaperFigure {
            source: "Ganger et al. 2000, tables I and IV",
            value: match spec.ordering.name() {
                "async" => 165.0,
                "soft" => 170.0,
                "sync" => 45.4,
                _ => 155.0,
            },
            unit: "transactions_per_second",
        });
    }
    if spec.workload == Workload::MicroCreate {
        return micro_figure(spec);
    }
    if !spec.scale.is_full() {
        return None;
    }
    if let Workload::Imap(variant) = spec.workload {
        return imap_figure(spec.ordering.name(), variant);
    }
    if spec.workload == Workload::Zero {
        let value = match spec.ordering.name() {
            "sync" => 80.4,
            "async" => 10_782.8,
            "soft" => 4_962.0,
            _ => return None,
        };
        return Some(PaperFigure {
            source: "Seltzer et al. 2000, table 4",
            value,
            unit: "operations_per_second",
        });
    }
    if spec.ordering.name() != "soft" {
        return None;
    }
    let opt = spec.optimisations.to_string();
    let row = find(&FIGURE_9, spec.workload.name(), &opt)?;
    Some(PaperFigure {
        source: "Frost et al. 2007, figure 9",
        value: row.patches as f64,
        unit: "patches_created",
    })
}

/// Figure 11 of Frost et al. 2007.
fn imap_figure(ordering: &str, variant: ImapVariant) -> Option<PaperFigure> {
    let value = match (ordering, variant) {
        ("soft", ImapVariant::Fsync) => 8083.0,
        ("soft", ImapVariant::Patchgroups) => 3015.0,
        ("journal=full", ImapVariant::Fsync) => 7114.0,
        ("journal=full", ImapVariant::Patchgroups) => 32.0,
        // Linux's ext3. The paper says that the prototype is similar.
        ("journal=full", ImapVariant::FsyncDurable) => 26.0,
        _ => return None,
    };
    Some(PaperFigure {
        source: "Frost et al. 2007, figure 11",
        value,
        unit: "write_requests",
    })
}

/// Figure 6 of Ganger et al. 2000, as the text gives it: for files of 2 KB to 64 KB, each of which
/// that system writes with one request.
fn micro_figure(spec: &Spec) -> Option<PaperFigure> {
    let scale = Scale {
        min_bytes: None,
        max_bytes: None,
        ..spec.scale
    };
    let is_small = file_bytes(&spec.scale) <= 64 << 10;
    (scale.is_full() && is_small).then_some(PaperFigure {
        source: "Ganger et al. 2000, figure 6",
        value: match spec.ordering.name() {
            "sync" => 3.1,
            "soft" | "async" => 1.1,
            _ => return None,
        },
        unit: "writes_per_file",
    })
}
