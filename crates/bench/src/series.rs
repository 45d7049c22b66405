//! Series of runs: which runs, and in which order.

use backstitch_vfs::Optimisations;

use crate::workload::{ImapVariant, SIZES};
use crate::{Result, Run, Scale, Spec, Workload, measure};

/// Several runs of the same specification.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// At least one.
    pub runs: Vec<Run>,
}

impl Series {
    /// The run with the median elapsed time (of an even number, the lower of the two).
    pub fn median(&self) -> &Run {
        let mut order: Vec<&Run> = self.runs.iter().collect();
        order.sort_by(|a, b| a.elapsed_seconds.total_cmp(&b.elapsed_seconds));
        order[(order.len() - 1) / 2]
    }

    /// Median, minimum and maximum of a figure.
    pub fn spread(&self, figure: impl Fn(&Run) -> f64) -> [f64; 3] {
        let mut all: Vec<f64> = self.runs.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        [median(&all), all[0], all[all.len() - 1]]
    }
}

/// The median of sorted figures, of which there must be at least one.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
    (sorted[low] + sorted[high]) / 2.0
}

/// Runs each specification `runs` times, interleaved. `progress` is called before each run, and
/// after it with its result.
///
/// # Errors
///
/// The error of the first run that fails, which ends the series.
pub fn run_series(
    specs: &[Spec],
    runs: usize,
    mut progress: impl FnMut(&Spec, usize, Option<&Run>),
) -> Result<Vec<Series>> {
    let mut all = vec![Series { runs: Vec::new() }; specs.len()];
    for round in 0..runs.max(1) {
        for (spec, series) in specs.iter().zip(&mut all) {
            progress(spec, round, None);
            let run = measure(spec)?;
            progress(spec, round, Some(&run));
            series.runs.push(run);
        }
    }
    Ok(all)
}

/// The runs of figure 9 of Frost et al. 2007: four workloads with four choices of optimisations,
/// under `base`'s mechanism. Memory use should be the workload's alone, so the cache holds
/// everything, and nothing is written before the final sync.
pub fn optimisation_specs(base: &Spec) -> Vec<Spec> {
    /// Dependencies may take a quarter of the cache, and write-back begins at half of that. Both
    /// are far more than any run needs.
    const CACHE_BYTES: u64 = 1 << 40;
    /// Longer than any run takes.
    const EXPIRE_SECONDS: f64 = 1e8;
    let workloads = [
        Workload::Untar,
        Workload::Delete,
        Workload::Postmark,
        Workload::Andrew,
    ];
    let choices = [(false, false), (true, false), (false, true), (true, true)];
    let all = workloads.into_iter().flat_map(|workload| {
        choices.map(|(hard, merge)| Spec {
            workload,
            optimisations: Optimisations { hard, merge },
            cache_bytes: CACHE_BYTES,
            dirty_bytes: 0,
            expire_seconds: EXPIRE_SECONDS,
            ..base.clone()
        })
    });
    all.collect()
}

/// The runs of a workload with several clients: 1 and 8 writers of `fsync`; 1, 5 and 10 scripts of
/// `sdet`; or as many as `base` says.
pub fn client_specs(base: &Spec) -> Vec<Spec> {
    let writers = match (base.scale.writers, base.workload) {
        (Some(writers), _) => vec![writers],
        (None, Workload::Sdet) => vec![1, 5, 10],
        (None, _) => vec![1, 8],
    };
    let with = |writers: u64| Spec {
        scale: Scale {
            writers: Some(writers),
            ..base.scale
        },
        ..base.clone()
    };
    writers.into_iter().map(with).collect()
}

/// The runs of `imap`: each variant with which no crash loses a message.
pub fn imap_specs(base: &Spec) -> Vec<Spec> {
    let safe = ImapVariant::ALL.into_iter();
    let safe = safe.filter(|variant| variant.is_safe(base.ordering));
    let spec = |variant| Spec {
        workload: Workload::Imap(variant),
        ..base.clone()
    };
    safe.map(spec).collect()
}

/// The runs of figures 3 and 6 of Ganger et al. 2000: files of each of the paper's sizes between
/// `base`'s smallest and largest file.
pub fn micro_specs(base: &Spec) -> Vec<Spec> {
    let least = base.scale.min_bytes.unwrap_or(0);
    let largest = base.scale.max_bytes.unwrap_or(u64::MAX);
    let sizes = SIZES
        .into_iter()
        .filter(|size| (least..=largest).contains(size));
    sizes
        .map(|size| Spec {
            scale: Scale {
                min_bytes: Some(size),
                max_bytes: None,
                ..base.scale
            },
            ..base.clone()
        })
        .collect()
}
