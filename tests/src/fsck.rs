//! Sorts the output of `e2fsck -fn` into what a file system under soft updates may leave after a
//! crash and what it may not.
//!
//! Allowed is what `docs/GUARANTEES.md` lists for `soft`: space and inodes marked used, link and
//! attribute-block counts too high, block counts off, sizes below the mapped blocks, unconnected
//! inodes and directories, the two names of a directory that was being moved, counters off, the
//! dirty flag. Every line that is not known to be one of those counts as corruption, so that an
//! unknown message cannot pass.

/// The kind of damage of a finding, in the words of `backstitch fsck --json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something is marked used or counted, but is not used.
    Leak,
    /// A counter that can be recomputed is off.
    Count,
    /// The structure is wrong: only a mechanism without order may leave this.
    Corruption,
}

/// One thing that e2fsck found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// e2fsck's words.
    pub text: String,
}

/// Everything that e2fsck said.
#[derive(Clone, Debug)]
pub struct Report {
    /// The findings in their order.
    pub findings: Vec<Finding>,
    /// The whole output.
    pub text: String,
    clean: bool,
}

impl Report {
    /// Whether e2fsck found nothing.
    pub fn is_clean(&self) -> bool {
        self.clean && self.findings.is_empty()
    }

    /// Notes that e2fsck could not go on: so much damage counts as corruption.
    pub fn gave_up(&mut self) {
        let text = "e2fsck gave up".to_owned();
        self.findings.push(Finding {
            kind: Kind::Corruption,
            text,
        });
    }

    /// The findings of one kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(move |finding| finding.kind == kind)
    }

    /// Whether anything was found that soft updates must never leave.
    pub fn is_corrupt(&self) -> bool {
        self.of(Kind::Corruption).next().is_some()
    }
}

/// Sorts the output of `e2fsck -fn`. `content` says whether its exit code was 0.
pub fn classify(text: &str, content: bool) -> Report {
    let mut findings: Vec<Finding> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !is_chatter(line)) {
        let line = strip_question(line);
        let kind = kind_of(line);
        findings.push(Finding {
            kind,
            text: line.to_owned(),
        });
    }
    if !content && findings.is_empty() {
        let text = format!("not content, for a reason that is not understood: {text}");
        findings.push(Finding {
            kind: Kind::Corruption,
            text,
        });
    }
    Report {
        findings,
        text: text.to_owned(),
        clean: content,
    }
}

/// Lines that report progress or ask a question, and are no findings.
fn is_chatter(line: &str) -> bool {
    const STARTS: [&str; 8] = [
        "Pass ",
        "e2fsck ",
        "Warning!  ",
        "Connect to /lost+found",
        "*****",
        "Running additional",
        "Marking ",
        "Rename to ",
    ];
    const QUESTIONS: [&str; 3] = ["Fix? ", "Clear? ", "IGNORED."];
    line.is_empty()
        || STARTS.iter().any(|start| line.starts_with(start))
        || QUESTIONS.iter().any(|start| line.starts_with(start))
        || line.ends_with("was not cleanly unmounted, check forced.")
        || (line.contains(" files (") && line.ends_with(" blocks"))
        || line.ends_with("WARNING: Filesystem still has errors **********")
}

fn strip_question(line: &str) -> &str {
    const QUESTIONS: [&str; 5] = [
        "Fix? no",
        "Clear? no",
        "Salvage? no",
        "IGNORED.",
        "Split? no",
    ];
    let mut rest = line.trim_end();
    while let Some(shorter) = QUESTIONS
        .iter()
        .find_map(|question| rest.strip_suffix(question))
    {
        rest = shorter.trim_end();
    }
    rest
}

fn kind_of(line: &str) -> Kind {
    const COUNTERS: [&str; 3] = [
        "Free blocks count wrong",
        "Free inodes count wrong",
        "Directories count wrong",
    ];
    const UNCONNECTED: [&str; 3] = [
        "Unattached inode ",
        "Unattached zero-length inode ",
        "Unconnected directory inode ",
    ];
    if COUNTERS.iter().any(|start| line.starts_with(start)) {
        return Kind::Count;
    }
    if UNCONNECTED.iter().any(|start| line.starts_with(start)) {
        return Kind::Leak;
    }
    let leak = is_marked_in_vain(line)
        || is_count_too_high(line)
        || is_size_too_low(line)
        || is_about_loose_directory(line);
    if leak { Kind::Leak } else { Kind::Corruption }
}

/// `Block bitmap differences:  -33 -(35--40)`: minus means marked but not used, plus means used but
/// not marked.
fn is_marked_in_vain(line: &str) -> bool {
    ["Block bitmap differences:", "Inode bitmap differences:"]
        .iter()
        .any(|start| {
            line.strip_prefix(start)
                .is_some_and(|list| list.split_whitespace().all(|item| item.starts_with('-')))
        })
}

/// Link counts and reference counts of attribute blocks: one that is too high is a leak, one that
/// is too low loses something. Block counts of inodes may be wrong either way.
fn is_count_too_high(line: &str) -> bool {
    let Some((found, expected)) = is_should_be(line) else {
        return false;
    };
    let counted = line.contains(" ref count is ")
        || (line.starts_with("Extended attribute block ") && line.contains(" reference count "));
    (counted && found > expected) || (line.starts_with("Inode ") && line.contains(", i_blocks is "))
}

fn is_size_too_low(line: &str) -> bool {
    line.starts_with("Inode ")
        && line.contains(", i_size is ")
        && is_should_be(line).is_some_and(|(found, expected)| found < expected)
}

/// The numbers in `… 3, should be 2.`
fn is_should_be(line: &str) -> Option<(u64, u64)> {
    let (before, after) = line.split_once(", should be ")?;
    let found = before.rsplit(' ').next()?;
    Some((
        found.parse().ok()?,
        after.trim_end_matches(['.', ' ']).parse().ok()?,
    ))
}

/// `Entry 'x' in /a (12) is a link to directory /b/x (13).`, a second name; and `'..' in /b/x (13)
/// is /a (12), should be /b (14).`, for a directory that is unconnected, or has two names, or was
/// moved before its first name was on the disk, so that only the new one is there.
fn is_about_loose_directory(line: &str) -> bool {
    let second_name = line.starts_with("Entry '") && line.contains(" is a link to directory ");
    second_name || (line.starts_with("'..' in ") && line.contains(", should be "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        classify(text, false)
            .findings
            .iter()
            .map(|finding| finding.kind)
            .collect()
    }

    #[test]
    fn a_clean_run_has_no_findings() {
        let text = "Pass 1: Checking inodes, blocks, and sizes\nPass 2: Checking directory structure\n\
                    x.img: 11/16384 files (0.0% non-contiguous), 2341/65536 blocks\n";
        assert!(classify(text, true).is_clean());
        assert!(
            classify(text, false).is_corrupt(),
            "discontent without a reason passed"
        );
    }

    #[test]
    fn what_soft_updates_may_leave() {
        let text = "x.img was not cleanly unmounted, check forced.\n\
            Pass 1: Checking inodes, blocks, and sizes\n\
            Inode 14, i_size is 100, should be 8192.  Fix? no\n\n\
            Inode 15, i_blocks is 8, should be 2.  Fix? no\n\n\
            Extended attribute block 77 has reference count 3, should be 2.  Fix? no\n\n\
            Pass 2: Checking directory structure\n\
            Entry 'm' in /a (12) is a link to directory /b/m (13).\nClear? no\n\n\
            Pass 3: Checking directory connectivity\n\
            '..' in /b/m (13) is /a (12), should be /b (16).\nFix? no\n\n\
            Unconnected directory inode 18 (was in /)\nConnect to /lost+found? no\n\n\
            '..' in ... (18) is / (2), should be <The NULL inode> (0).\nFix? no\n\n\
            Pass 4: Checking reference counts\n\
            Inode 14 ref count is 2, should be 1.  Fix? no\n\n\
            Unattached inode 19\nConnect to /lost+found? no\n\n\
            Unattached zero-length inode 20.  Clear? no\n\n\
            Pass 5: Checking group summary information\n\
            Block bitmap differences:  -33 -(35--40)\nFix? no\n\n\
            Free blocks count wrong for group #0 (7, counted=3).\nFix? no\n\n\
            Inode bitmap differences:  -21\nFix? no\n\n\
            Directories count wrong for group #0 (2, counted=1).\nFix? no\n\n\
            x.img: ********** WARNING: Filesystem still has errors **********\n\n\
            x.img: 21/16384 files (4.8% non-contiguous), 2400/65536 blocks\n";
        let report = classify(text, false);
        assert!(
            !report.is_corrupt(),
            "{:#?}",
            report.of(Kind::Corruption).collect::<Vec<_>>()
        );
        assert_eq!(report.findings.len(), 14, "{:#?}", report.findings);
        assert_eq!(report.of(Kind::Count).count(), 2);
    }

    #[test]
    fn what_soft_updates_may_not_leave() {
        for line in [
            "Entry 'f' in /d (12) has deleted/unused inode 14.  Clear? no",
            "Block bitmap differences:  +8300 -8301",
            "Inode bitmap differences:  +14",
            "Inode 14 ref count is 1, should be 2.  Fix? no",
            "Extended attribute block 77 has reference count 1, should be 2.  Fix? no",
            "Inode 14, i_size is 8192, should be 0.  Fix? no",
            "Multiply-claimed block(s) in inode 14: 8300",
            "Inode 14 has illegal block(s).  Clear? no",
            "Entry 'f' in /d (12) has an incorrect filetype (was 1, should be 2).",
            "Directory inode 12, block #0, offset 0: directory corrupted",
            "Inode 14 is in use, but has dtime set.  Fix? no",
            "Deleted inode 14 has zero dtime.  Fix? no",
            "Something new that nobody has thought of",
        ] {
            assert_eq!(kinds(line), [Kind::Corruption], "{line}");
        }
    }
}
