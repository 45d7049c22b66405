//! `backstitch journal dump` and `debugfs -R "logdump -a"` print the same records, line by line.

use std::path::Path;

use crate::command::{backstitch, run, tool};

/// The part of debugfs's output from the log's beginning to its end. For a journal on a device of
/// its own, the name of that device comes before it. After it comes what debugfs takes for fast
/// commits, even if there are none.
fn log_lines(text: &str) -> Vec<&str> {
    let is_beginning = |line: &&str| line.starts_with("Journal starts at block");
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !is_beginning(line))
        .collect();
    let end = lines
        .iter()
        .position(|line| line.ends_with("end of journal."));
    lines[..end.map_or(lines.len(), |at| at + 1)].to_vec()
}

/// Compares both outputs for an image's journal, or for one on a device of its own. Returns the
/// number of lines.
///
/// # Panics
///
/// If they differ.
pub fn same_dumps(what: &str, image: &Path, journal: Option<&Path>) -> usize {
    let mut command = backstitch();
    command
        .args(["journal", "dump"])
        .arg(journal.unwrap_or(image));
    let dumped = run(&mut command).expect_success();
    let request = match journal {
        None => "logdump -a".to_owned(),
        Some(journal) => format!("logdump -a -f {}", journal.display()),
    };
    let mut command = tool("debugfs");
    command.args(["-c", "-R", &request]).arg(image);
    let expected = run(&mut command).expect_success();
    let (ours, theirs) = (dumped.text(), expected.text());
    let (ours, theirs) = (log_lines(&ours), log_lines(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
    ours.len()
}
