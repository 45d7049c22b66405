//! Which lines of a figure there are on a layout: it may not host every log.

use backstitch_formats::Layout;
use backstitch_vfs::Ordering;

use super::{Claim, Figure, Line};
use backstitch_bench::can_make;

/// The lines of a figure that a layout can have, and what the paper has of them.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// The lines.
    pub(super) lines: Vec<Line>,
    /// The one that the others are compared with.
    pub(super) base: usize,
    /// What the paper printed: by line, then by place. Empty where it printed none.
    pub(super) printed: Vec<&'static [Option<f64>]>,
    /// What the paper says of these lines.
    pub(super) claims: Vec<Claim>,
    /// The names of those that the layout cannot have.
    pub(super) left_out: Vec<&'static str>,
}

impl Lines {
    /// Those of `figure` on file systems of this layout and size; `None` where too few are left to
    /// compare.
    pub(super) fn on(figure: &Figure, layout: Layout, size_bytes: u64) -> Option<Lines> {
        let fits = |line: &Line| can_be(line.ordering, layout, size_bytes);
        let fitting = figure.lines.iter().map(|line| fits(line).then_some(*line));
        let fitting: Vec<Option<Line>> = fitting.collect();
        // By its number in the figure: its number here.
        let number = |line: usize| {
            let is_there = fitting[line].is_some();
            is_there.then(|| fitting[..line].iter().flatten().count())
        };
        let kept = |line: &usize| fitting[*line].is_some();
        let claims = figure.claims.iter().filter_map(|claim| {
            let (line, by) = (number(claim.line)?, number(claim.by)?);
            Some(Claim { line, by, ..*claim })
        });
        let printed = (0..figure.printed.len()).filter(kept);
        let left_out = (0..fitting.len()).filter(|line| !kept(line));
        let lines: Vec<Line> = fitting.iter().flatten().copied().collect();
        let base = number(figure.base)?;
        (lines.len() > 1).then(|| Lines {
            base,
            printed: printed.map(|line| figure.printed[line]).collect(),
            claims: claims.collect(),
            left_out: left_out.map(|line| figure.lines[line].name).collect(),
            lines,
        })
    }
}

/// Whether a file system of a layout can have what an ordering needs.
fn can_be(ordering: &str, layout: Layout, size_bytes: u64) -> bool {
    // An ordering that nobody knows is an error of the figure, which its run tells.
    ordering
        .parse::<Ordering>()
        .map_or(true, |ordering| can_make(layout, ordering, size_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAPERS;

    const SIZE_BYTES: u64 = 1 << 30;

    fn on(figure: &Figure, type_name: &str) -> Option<Lines> {
        let layout = type_name.parse::<Layout>().unwrap();
        Lines::on(figure, layout, SIZE_BYTES)
    }

    #[test]
    fn the_usual_layout_has_all_lines() {
        for figure in PAPERS.iter().flat_map(|paper| paper.figures) {
            let lines = on(figure, "ext2").unwrap();
            assert_eq!(lines.lines.len(), figure.lines.len());
            assert_eq!(
                (lines.base, lines.claims.len()),
                (figure.base, figure.claims.len())
            );
            assert_eq!(lines.printed, figure.printed);
            assert!(lines.left_out.is_empty());
        }
    }

    #[test]
    fn what_a_layout_cannot_host_is_left_out() {
        let mut left_out = 0;
        for figure in PAPERS.iter().flat_map(|paper| paper.figures) {
            let Some(lines) = on(figure, "ufs2") else {
                left_out += 1;
                continue;
            };
            left_out += lines.left_out.len();
            let name = figure.lines[figure.base].name;
            assert_eq!(lines.lines[lines.base].name, name);
            for line in &lines.lines {
                assert!(!line.ordering.starts_with("journal="), "{}", line.ordering);
            }
            for claim in &lines.claims {
                let said = figure.claims.iter().find(|c| c.says == claim.says).unwrap();
                let names =
                    |lines: &[Line], claim: &Claim| (lines[claim.line].name, lines[claim.by].name);
                assert_eq!(names(&lines.lines, claim), names(figure.lines, said));
            }
        }
        assert!(left_out > 1, "{left_out}");
    }
}
