//! Tables for people.

use crate::paper::{FIGURE_9, OptimisationRow, PROTOTYPE, find};
use crate::series::Series;
use crate::{EngineFigures, RecoveryFigures, Run, Workload};

/// Aligns rows under a heading: the first `words` columns to the left, the others to the right.
fn aligned(rows: &[Vec<String>], words: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if column < words {
                line.push_str(&format!("{cell:<width$}  "));
            } else {
                line.push_str(&format!("{cell:>width$}  "));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn megabytes(bytes: u64) -> String {
    let value = bytes as f64 / 1e6;
    if bytes > 0 && value < 1.0 {
        format!("{value:.4}")
    } else {
        format!("{value:.2}")
    }
}

fn heading(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A figure over the runs: the median and, if there are several runs, the spread.
fn spread(series: &Series, figure: impl Fn(&Run) -> f64, digits: usize) -> String {
    let [median, min, max] = series.spread(figure);
    if series.runs.len() == 1 {
        format!("{median:.digits$}")
    } else {
        format!("{median:.digits$} [{min:.digits$}–{max:.digits$}]")
    }
}

fn engine(series: &Series, figure: impl Fn(&EngineFigures) -> u64) -> String {
    if series.runs.iter().any(|run| run.engine.is_none()) {
        return "–".to_owned();
    }
    let [median, ..] = series.spread(|run| run.engine.as_ref().map_or(0.0, |e| figure(e) as f64));
    thousands(median as u64)
}

/// A run as one line, to show progress.
pub fn run_line(run: &Run) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "–".to_owned());
    let engine = run.engine.as_ref().map_or(String::new(), |e| {
        format!(
            ", {} patches, {} B of undo data, {} blocks written",
            thousands(e.patches_created),
            thousands(e.undo_bytes_total),
            thousands(e.blocks_written)
        )
    });
    format!(
        "{} {} {}: {:.3} s, CPU {:.3} s{engine}",
        run.workload,
        word(&run.ordering),
        word(&run.opt),
        run.elapsed_seconds,
        run.cpu_seconds()
    )
}

/// A table of runs: one line for each series, with the median, and in brackets minimum and maximum.
pub fn run_table(all: &[Series]) -> String {
    let mut rows = vec![heading(&[
        "workload",
        "ordering",
        "opt",
        "elapsed s",
        "user s",
        "sys s",
        "ops/s",
        "patches",
        "undo B",
        "dep. peak B",
        "cache peak B",
        "dep. %",
        "blocks",
        "requests",
        "flushes",
        "rollbacks",
        "useless",
        "useless %",
    ])];
    for series in all {
        let run = series.median();
        let percent = |figure: fn(&EngineFigures) -> f64| match &run.engine {
            Some(_) => {
                let [median, ..] = series.spread(|run| run.engine.as_ref().map_or(0.0, figure));
                format!("{median:.2}")
            }
            None => "–".to_owned(),
        };
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "–".to_owned());
        rows.push(vec![
            match &run.variant {
                Some(variant) => format!("{}, {variant}", run.workload),
                _ => run.workload.to_owned(),
            },
            word(&run.ordering),
            word(&run.opt),
            spread(series, |run| run.elapsed_seconds, 3),
            spread(series, |run| run.cpu_user_seconds, 3),
            spread(series, |run| run.cpu_sys_seconds, 3),
            spread(series, |run| run.operations_per_second, 0),
            engine(series, |e| e.patches_created),
            engine(series, |e| e.undo_bytes_total),
            engine(series, |e| e.dependency_bytes_peak),
            engine(series, |e| e.cache_bytes_peak),
            percent(EngineFigures::dependency_percent),
            engine(series, |e| e.blocks_written),
            engine(series, |e| e.write_requests),
            engine(series, |e| e.flushes),
            engine(series, |e| e.rollbacks),
            engine(series, |e| e.blocks_rewritten_for_rollback),
            percent(EngineFigures::useless_percent),
        ]);
    }
    aligned(&rows, 3)
}

/// The table of `imap`, with the paper's writes: one line for each mechanism and variant. The last
/// column has the time of fsync per operation, divided by this variant's.
pub fn imap_table(all: &[Series]) -> String {
    let mut rows = vec![heading(&[
        "ordering",
        "way",
        "elapsed s",
        "CPU s",
        "writes",
        "paper",
        "blocks",
        "flushes",
        "faster",
    ])];
    for series in all {
        let run = series.median();
        let same = |other: &&Series| {
            other.median().ordering == run.ordering
                && other.median().variant.as_deref() == Some("fsync")
        };
        let slow = all.iter().find(same).map(|s| s.median().elapsed_seconds);
        let faster = slow.map_or("–".to_owned(), |slow| {
            format!("{:.1} ×", slow / run.elapsed_seconds.max(1e-9))
        });
        let paper = run.paper.as_ref();
        rows.push(vec![
            run.ordering.clone().unwrap_or_default(),
            run.variant.clone().unwrap_or_default(),
            spread(series, |run| run.elapsed_seconds, 3),
            spread(series, Run::cpu_seconds, 3),
            engine(series, |e| e.write_requests),
            paper.map_or("–".to_owned(), |p| thousands(p.value as u64)),
            engine(series, |e| e.blocks_written),
            engine(series, |e| e.flushes),
            faster,
        ]);
    }
    aligned(&rows, 2)
}

/// The table of `bench recovery`: times to a usable mount, empty and full, with the paper's, and
/// the reclaim's times.
pub fn recovery_table(series: &Series) -> String {
    const PAPER_SECONDS: f64 = 0.35;
    let run = series.median();
    let Some(built) = run.recovery else {
        return String::new();
    };
    let figure = |of: fn(&RecoveryFigures) -> f64, digits| {
        spread(series, |run| run.recovery.as_ref().map_or(0.0, of), digits)
    };
    let phase = |index: usize| spread(series, |run| run.phases[index].elapsed_seconds, 3);
    let rows = [
        heading(&["", "seconds", "paper"]),
        vec![
            "usable mount, empty".into(),
            phase(0),
            PAPER_SECONDS.to_string(),
        ],
        vec![
            "usable mount, full".into(),
            phase(1),
            PAPER_SECONDS.to_string(),
        ],
        vec![
            "full by empty".into(),
            figure(|r| r.full_by_empty, 2),
            "1".into(),
        ],
        vec!["reclaim, full".into(), phase(2), "–".into()],
    ];
    let [blocks, ..] = series.spread(|run| run.recovery.map_or(0.0, |r| r.reclaimed_blocks as f64));
    let [inodes, ..] = series.spread(|run| run.recovery.map_or(0.0, |r| r.reclaimed_inodes as f64));
    let tenths: Vec<String> = (built.reclaim_progress_seconds.iter().zip(1..))
        .map(|(seconds, tenth)| format!("{}0 % {seconds:.2} s", tenth))
        .collect();
    format!(
        "{}\nfull: {} files, {:.1} % of the blocks and {:.1} % of the inodes in use, made in {:.0} s\n\
         reclaimed: {} blocks and {} inodes; {}\n",
        aligned(&rows, 1),
        thousands(built.files),
        100.0 * built.fill_fraction,
        100.0 * built.inodes_fraction,
        built.build_seconds,
        thousands(blocks as u64),
        thousands(inodes as u64),
        tenths.join(", "),
    )
}

/// The tables of `bench optimisations`: figure 9 with the paper's and the prototype's values, then
/// memory and writes.
pub fn optimisation_tables(all: &[Series]) -> String {
    let mut created = vec![heading(&[
        "workload",
        "opt",
        "patches",
        "not empty",
        "paper",
        "prototype",
        "undo MB",
        "paper",
        "prototype",
        "CPU s",
        "paper sys s",
        "elapsed s",
    ])];
    let mut memory = vec![heading(&[
        "workload",
        "opt",
        "patches peak",
        "dep. peak MB",
        "cache peak MB",
        "ratio %",
        "blocks",
        "before sync",
        "requests",
        "rollbacks",
        "useless",
    ])];
    for series in all {
        let run = series.median();
        let Some(e) = &run.engine else { continue };
        let opt = run.opt.clone().unwrap_or_default();
        let paper = find(&FIGURE_9, run.workload, &opt);
        let prototype = find(&PROTOTYPE, run.workload, &opt);
        let patches = |row: Option<OptimisationRow>| cell(row.map(|r| thousands(r.patches)));
        let undo = |row: Option<OptimisationRow>| cell(row.map(|r| r.undo_megabytes.to_string()));
        created.push(vec![
            run.workload.to_owned(),
            opt.clone(),
            thousands(e.patches_created),
            thousands(e.patches_not_empty()),
            patches(paper),
            patches(prototype),
            megabytes(e.undo_bytes_total),
            undo(paper),
            undo(prototype),
            spread(series, Run::cpu_seconds, 2),
            cell(paper.and_then(|row| row.sys_seconds).map(|s| s.to_string())),
            spread(series, |run| run.elapsed_seconds, 2),
        ]);
        memory.push(vec![
            run.workload.to_owned(),
            opt,
            thousands(e.patches_peak),
            megabytes(e.dependency_bytes_peak),
            megabytes(e.cache_bytes_peak),
            format!("{:.2}", e.dependency_percent()),
            thousands(e.blocks_written),
            thousands(e.blocks_written_before_sync),
            thousands(e.write_requests),
            thousands(e.rollbacks),
            thousands(e.blocks_rewritten_for_rollback),
        ]);
    }
    format!(
        "What the optimisations are worth (paper: soft updates, Frost et al. 2007, figure 9; MB of 10^6 bytes)\n\n{}\n\
         Memory at its peak, nothing written before the final sync; what was written\n\n{}",
        aligned(&created, 2),
        aligned(&memory, 2)
    )
}

/// Figure 6 of Ganger et al. 2000: the writes for each created file, with the paper's value. Empty
/// if `all` has no `micro-create`.
pub fn micro_table(all: &[Series]) -> String {
    let mut rows = vec![heading(&[
        "ordering",
        "file B",
        "files",
        "blocks",
        "requests",
        "blocks/file",
        "requests/file",
        "paper",
    ])];
    for series in all {
        let run = series.median();
        let (Some(variant), Some(e)) = (&run.variant, &run.engine) else {
            continue;
        };
        if run.workload != Workload::MicroCreate.name() {
            continue;
        }
        let per_file = |count: u64| format!("{:.3}", count as f64 / run.operations.max(1) as f64);
        rows.push(vec![
            cell(run.ordering.clone()),
            variant.clone(),
            thousands(run.operations),
            thousands(e.blocks_written),
            thousands(e.write_requests),
            per_file(e.blocks_written),
            per_file(e.write_requests),
            cell(run.paper.map(|paper| paper.value.to_string())),
        ]);
    }
    if rows.len() == 1 {
        return String::new();
    }
    format!(
        "Written for each created file (paper: Ganger et al. 2000, figure 6, one write for a file of up to 64 KB)\n\n{}",
        aligned(&rows, 1)
    )
}

fn cell(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(4_996_331), "4,996,331");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [heading(&["a", "bb"]), heading(&["long", "1"])];
        assert_eq!(aligned(&rows, 1), "a     bb\nlong   1\n");
    }
}
