//! `backstitch stats DIR`.

use crate::error::{Error, Result, host};
use crate::show;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Show the live counters of a mount: operations, cache, patches, undo data, rollbacks, writes, flushes, deferred work.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch stats /mnt
  backstitch stats /mnt --json | jq .patches.live
  watch -n1 backstitch stats /mnt")]
pub(crate) struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let counters = backstitch_fuse::stats_of(&args.dir)
        .map_err(|error| failure("stats", &args.dir, &error))?;
    if args.json {
        return show::print_json("stats", &counters);
    }
    let mut rows = Vec::new();
    flatten("", &counters, &mut rows);
    show::print_table("stats", &rows)
}

/// Why a mount did not do what was asked of it.
pub(super) fn failure(command: &str, dir: &Path, error: &std::io::Error) -> Error {
    let failed = |why: &str| Error::at_path(command, dir, why);
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENODATA | libc::EINVAL) => {
            failed("not the root of a backstitch mount")
        }
        Some(libc::ENOTCONN) => failed("the mount's daemon has died")
            .hint(format!("backstitch umount {}", dir.display())),
        _ => failed(&host(error)),
    }
}

/// Nested counters as rows: `patches.live`, …
fn flatten(prefix: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let dot = if prefix.is_empty() { "" } else { "." };
                flatten(&format!("{prefix}{dot}{name}"), member, rows);
            }
        }
        Value::String(text) => rows.push([prefix.to_owned(), text.clone()]),
        other => rows.push([prefix.to_owned(), other.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_counters_become_dotted_rows() {
        let mut rows = Vec::new();
        flatten(
            "",
            &serde_json::json!({"a": 1, "b": {"c": "x", "d": 2.5}}),
            &mut rows,
        );
        let expected = [["a", "1"], ["b.c", "x"], ["b.d", "2.5"]];
        assert_eq!(rows, expected.map(|row| row.map(str::to_owned)));
    }
}
