//! The rounds of a repair: check, repair the most basic of what was found, and check again.
//!
//! So no step works with what another one has made untrue, and the last check, which finds nothing,
//! is the proof. A bound on the number of rounds ends it where a repair does not help.

use super::tree::ByInode;
use super::{CheckError, CheckOptions, Code, Finding, Losses, Outcome, Overlay, RepairLog, Report};

/// More rounds than any damage needs, each of which settles a kind of it.
const MAX_ROUNDS: usize = 60;
/// A round repairs this many findings; more come in the next one.
pub const MAX_FINDINGS: usize = 200_000;

/// A check with what it gathered on the way, for a repair.
pub struct Survey<Facts> {
    /// What was found.
    pub report: Report,
    /// What was gathered; `None` where the check ended early.
    pub facts: Option<Facts>,
}

/// What a layout's repair does in the rounds.
pub trait Rounds {
    /// What its check gathers.
    type Facts;

    /// Checks, and keeps what was gathered.
    ///
    /// # Errors
    /// Where the image cannot be checked at all.
    fn survey(
        &self,
        image: &Overlay<'_>,
        options: &CheckOptions,
    ) -> Result<Survey<Self::Facts>, CheckError>;

    /// Repairs the most basic of what was found.
    ///
    /// # Errors
    /// The device's.
    fn round(
        &mut self,
        image: &mut Overlay<'_>,
        log: &mut RepairLog,
        facts: &Self::Facts,
        findings: &[Finding],
    ) -> Result<(), CheckError>;

    /// Nothing is wrong any more: restores what a damaged image may lack though no check misses it.
    /// Called again, after a further check, until it repairs nothing.
    ///
    /// # Errors
    /// The device's.
    fn complete(
        &mut self,
        _image: &mut Overlay<'_>,
        _log: &mut RepairLog,
        _facts: &Self::Facts,
    ) -> Result<(), CheckError> {
        Ok(())
    }

    /// Nothing is left: marks the image as clean, and takes what that settles from the report.
    ///
    /// # Errors
    /// The device's.
    fn finish(
        &mut self,
        image: &mut Overlay<'_>,
        log: &mut RepairLog,
        facts: &Self::Facts,
        report: &mut Report,
    ) -> Result<(), CheckError>;

    /// Compares the names before and after; each image comes with the facts of its check.
    ///
    /// # Errors
    /// The device's.
    fn losses(
        &self,
        before: (&Overlay<'_>, &Self::Facts),
        after: (&Overlay<'_>, &Self::Facts),
    ) -> Result<Losses, CheckError>;
}

/// Repairs until nothing is left, or nothing helps. Returns the last check.
///
/// # Errors
/// The device's.
pub fn repair_in_rounds<R: Rounds>(
    repair: &mut R,
    image: &mut Overlay<'_>,
    log: &mut RepairLog,
) -> Result<Survey<R::Facts>, CheckError> {
    let check = CheckOptions {
        threads: Some(1),
        check_backups: true,
        max_findings: MAX_FINDINGS,
    };
    for _ in 0..MAX_ROUNDS {
        let mut survey = repair.survey(image, &check)?;
        let (report, Some(facts)) = (&mut survey.report, &survey.facts) else {
            return Ok(survey);
        };
        let known = log.len();
        if report.is_clean() {
            repair.complete(image, log, facts)?;
            if log.len() != known {
                continue;
            }
            repair.finish(image, log, facts, report)?;
            return Ok(survey);
        }
        repair.round(image, log, facts, &report.findings)?;
        image.barrier();
        if log.len() == known {
            return Ok(survey);
        }
    }
    repair.survey(image, &check)
}

/// What a repair takes away from the image that was there at its start; `None` where that could not
/// be checked to the end.
///
/// # Errors
/// The device's.
pub fn losses<R: Rounds>(
    repair: &R,
    start: &Overlay<'_>,
    after: (&Overlay<'_>, &R::Facts),
    log: &RepairLog,
    options: &CheckOptions,
) -> Result<Option<Losses>, CheckError> {
    let Some(before) = repair.survey(start, options)?.facts else {
        return Ok(None);
    };
    Ok(Some(Losses {
        pointers_cleared: log.pointers_cleared,
        ..repair.losses((start, &before), after)?
    }))
}

impl Outcome {
    /// Writes what was worked out, step by step, each stable before the next one.
    ///
    /// # Errors
    /// The device's.
    pub fn written(
        image: Overlay<'_>,
        log: RepairLog,
        before: Option<Report>,
        after: Option<Report>,
        losses: Option<Losses>,
    ) -> Result<Outcome, CheckError> {
        if image.is_changed() {
            image.commit()?;
        }
        Ok(Outcome {
            before,
            repairs: log.list,
            omitted: log.omitted,
            after,
            losses,
        })
    }
}

impl Report {
    /// Whether preening can do all that is needed. It clears what has no name only on images that
    /// it trusts.
    pub fn may_preen(&self, is_trusted: bool) -> bool {
        let is_unnamed = |finding: &Finding| {
            matches!(
                finding.code,
                Code::UnconnectedInode | Code::UnconnectedDirectory
            )
        };
        self.omitted == 0 && (is_trusted || !self.findings.iter().any(is_unnamed))
    }
}

/// The first step of which anything was found, with what was found of it, and the same by inode.
/// `None` where nothing was found.
pub fn first_step<S: Ord + Copy>(
    findings: &[Finding],
    step_of: impl Fn(&Finding) -> S,
) -> Option<(S, Vec<&Finding>, ByInode)> {
    let first = findings.iter().map(&step_of).min()?;
    let mine: Vec<&Finding> = findings.iter().filter(|f| step_of(f) == first).collect();
    let mut by_inode = ByInode::new();
    for finding in &mine {
        if let Some(inode) = finding.location.inode {
            by_inode.entry(inode).or_default().insert(finding.code);
        }
    }
    Some((first, mine, by_inode))
}

/// This name for something without one, or one like it, that is not taken.
pub fn free_name(name: &str, is_taken: impl Fn(&[u8]) -> bool) -> String {
    let numbered = (1..).map(|number| format!("{name}.{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !is_taken(name.as_bytes()))
        .unwrap_or_else(|| name.to_owned())
}
