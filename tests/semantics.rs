//! A new measurement gives the table of docs/GUARANTEES.md on what programs can rely on.

use backstitch_tests::command::{backstitch, run_within};
use backstitch_tests::require;
use std::fs;
use std::path::Path;
use std::time::Duration;

const BEGIN: &str = "<!-- semantics -->\n";
const END: &str = "<!-- end of semantics -->";

#[test]
fn the_table_of_the_guarantees_is_what_is_measured() {
    require!("backstitch");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/GUARANTEES.md");
    let text = fs::read_to_string(path).expect("GUARANTEES.md cannot be read");
    let (_, after) = text.split_once(BEGIN).expect("the table has no beginning");
    let (written, _) = after.split_once(END).expect("the table has no end");
    let mut command = backstitch();
    command.args(["crash", "semantics"]);
    let run = run_within(&mut command, Duration::from_secs(300)).expect_success();
    let stdout = String::from_utf8(run.stdout).expect("a table is text");
    let measured: Vec<&str> = stdout.lines().collect();
    assert!(measured.len() > 16, "{} lines", measured.len());
    // Compared line by line, so that a failure shows the line.
    for (line, now) in written.lines().zip(&measured) {
        assert_eq!(line, *now, "make semantics makes the table anew");
    }
    assert_eq!(written.lines().count(), measured.len());
}
