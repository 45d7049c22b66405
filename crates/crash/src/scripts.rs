//! Workloads with names: sequences of operations that show what a rule of the engine prevents, where sequences of one operation and
//! random ones seldom do. Each says what it is about. They are explored by default.

use crate::ace::Workload;
use crate::operation::{Operation, parse_script};

/// A name, and operations on an empty file system of 1024-byte blocks. What comes before the first `sync` only prepares.
const SCRIPTS: &[(&str, &str)] = &[
    // Appends into a block behind a double indirect block that is on the disk: what its leaf leads to.
    (
        "double-indirect-append",
        "creat foo; write foo 300000 1000; sync; write foo 310000 3000; fsync foo; write foo 400000 2000",
    ),
    // Attributes in a block of their own, changed where they are.
    (
        "attribute-in-place",
        "creat foo; setxattr foo user.a x; sync; setxattr foo user.a y; fsync foo; setxattr foo user.a z; fsync foo",
    ),
];

/// All of them.
pub fn workloads() -> Vec<Workload> {
    SCRIPTS.iter().filter_map(workload).collect()
}

fn workload((name, script): &(&str, &str)) -> Option<Workload> {
    let operations = parse_script(script).ok()?;
    let synced = operations.iter().position(|o| *o == Operation::Sync);
    Some(Workload {
        name: format!("scripts/{name}"),
        setup: synced.map_or(0, |at| at + 1),
        operations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_can_be_parsed() {
        assert_eq!(workloads().len(), SCRIPTS.len());
    }
}
